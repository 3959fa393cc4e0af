"""Learning: the likelihood gradient is the difference of two inferences.

It is E[d log_density | data] - E[d log_density | given], a data phase less a model phase. The
update stands in run.py (`Run.update`), the algorithm of each model phase in a file of negative/.
"""

from pgmengine.learn.fit import Fit, fit
from pgmengine.learn.initial import base_rate_start, pretrain
from pgmengine.learn.monitors import (
    AISLogLikelihood,
    EarlyStopping,
    ExactLogLikelihood,
    FlipRates,
    FreeEnergyGap,
    Occupancy,
    PseudoLikelihood,
    ReconstructionError,
    VariationalBound,
    WeightNorms,
)
from pgmengine.learn.negative import (
    CAST,
    CD,
    PCD,
    PT,
    AdaptiveSAP,
    ExactGradient,
    FastPCD,
    TransSAP,
)
from pgmengine.learn.optimizers import SGD, Adam, AdaMax
from pgmengine.learn.schedules import GrowingBlend, harmonic, linear_decay
from pgmengine.learn.wrappers import Averaged, Centered, Tied

__all__ = [
    "CAST",
    "CD",
    "PCD",
    "PT",
    "SGD",
    "AISLogLikelihood",
    "AdaMax",
    "Adam",
    "AdaptiveSAP",
    "Averaged",
    "Centered",
    "EarlyStopping",
    "ExactGradient",
    "ExactLogLikelihood",
    "FastPCD",
    "Fit",
    "FlipRates",
    "FreeEnergyGap",
    "GrowingBlend",
    "Occupancy",
    "PseudoLikelihood",
    "ReconstructionError",
    "Tied",
    "TransSAP",
    "VariationalBound",
    "WeightNorms",
    "base_rate_start",
    "fit",
    "harmonic",
    "linear_decay",
    "pretrain",
]
