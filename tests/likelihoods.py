"""The likelihood of data under a model."""

import pgmengine as pgm


def mean_log_prob(model, data):
    """The mean of log p over the rows, by enumeration."""
    return float(pgm.infer(model, data, want=("log_prob",), method=pgm.Exact()).log_prob.mean())
