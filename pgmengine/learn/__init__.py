"""Learning: the likelihood gradient is two inferences, E[statistics | data] - E[statistics | given]."""

from pgmengine.learn.callbacks import ExactLogLikelihood
from pgmengine.learn.fit import Fit, fit
from pgmengine.learn.optimizers import SGD, Adam, AdaMax, harmonic
from pgmengine.learn.phases import CD, PCD, ExactGradient

__all__ = ["CD", "PCD", "SGD", "AdaMax", "Adam", "ExactGradient", "ExactLogLikelihood", "Fit", "fit", "harmonic"]
