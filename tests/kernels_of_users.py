"""Kernels as users write them, which the reference engine runs."""

import numpy as np


class OwnGibbs:
    """Gibbs sampling that the compiled engines do not know."""

    def transition(self, prob, current):
        return np.asarray(prob)


class Lazy:
    """Gibbs sampling, but half of the time a unit stays as it is."""

    def transition(self, prob, current):
        return 0.5 * prob + 0.5 * np.eye(prob.shape[-1])[current]
