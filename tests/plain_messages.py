"""Belief propagation in plain numpy, message by message: the reference of c/messages.h.

Messages are log weights with the largest 0, kept by (factor, place in its scope). A factor is a
pair of a scope and an array of log entries with an axis for each variable of it. The schedule is
the one of the compiled routine: the factors in an order from its end to its begin, then from its
begin to its end, and so on, each with the newest messages. Factors of one variable speak once.
"""

import numpy as np


def total(logs, axis=None, maximum=False):
    """The log of the sum of exponentials over some axes, or the maximum."""
    if maximum:
        return logs.max(axis=axis)
    top = logs.max(axis=axis, keepdims=True)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        out = np.log(np.exp(logs - top).sum(axis=axis, keepdims=True)) + top
    return out.reshape(logs.sum(axis=axis).shape)


class Plain:
    """The messages of one factor graph."""

    def __init__(self, cards, factors, maximum=False):
        self.cards, self.factors, self.maximum = cards, factors, maximum
        self.sent = {
            (f, i): np.zeros(cards[v])
            for f, (scope, _) in enumerate(factors)
            for i, v in enumerate(scope)
        }
        self.impossible, self.done = False, 0
        for f, (scope, logs) in enumerate(factors):
            if len(scope) == 1:
                self.impossible |= bool(np.isneginf(logs.max()))
                if not self.impossible:
                    self.sent[f, 0] = logs - logs.max()

    def into(self, v, but=None):
        """The log message from a variable to a factor: the sum of all others."""
        out = np.zeros(self.cards[v])
        for (f, i), message in self.sent.items():
            if self.factors[f][0][i] == v and f != but:
                out = out + message
        return out

    def weights(self, f, but=None):
        """The log entries of a factor with the messages into it, normalised to 0 at most."""
        scope, logs = self.factors[f]
        for i, v in enumerate(scope):
            if i == but:
                continue
            message = self.into(v, f)
            if np.isneginf(message.max()):
                return None
            shape = [1] * len(scope)
            shape[i] = -1
            logs = logs + (message - message.max()).reshape(shape)
        return logs

    def out(self, f, i):
        """The log message from a factor to a variable, without damping; None where impossible."""
        logs = self.weights(f, but=i)
        if logs is None or np.isneginf(self.into(self.factors[f][0][i], f).max()):
            return None
        out = total(logs, tuple(j for j in range(logs.ndim) if j != i), self.maximum)
        return None if np.isneginf(out.max()) else out - out.max()

    def sweep(self, order, damping=0.0):
        """Update every factor once; the largest change of a weight, a bound of it."""
        change = 0.0
        for f in order if self.done % 2 else order[::-1]:
            scope, new = self.factors[f][0], {}
            for i in range(len(scope)) if len(scope) > 1 else ():
                old, message = self.sent[f, i], self.out(f, i)
                if message is None:
                    self.impossible = True
                    return change
                both = np.isfinite(old) & np.isfinite(message) & (damping > 0)
                with np.errstate(invalid="ignore"):
                    message = np.where(both, (1 - damping) * message + damping * old, message)
                new[f, i] = message - message.max()
                change = max(change, np.abs(np.exp(new[f, i]) - np.exp(old)).max())
            self.sent |= new
        self.done += 1
        return change

    def beliefs(self):
        """The probabilities of the states of each variable."""
        logs = [self.into(v) for v in range(len(self.cards))]
        return [np.exp(x - total(x)) for x in logs]

    def belief(self, f):
        """The probabilities of the entries of a factor."""
        logs = self.weights(f)
        return np.exp(logs - total(logs))

    def log_z(self):
        """The Bethe free energy by energy and entropy, which needs no message but for beliefs."""
        energy = entropy = 0.0
        degree = np.zeros(len(self.cards))
        for f, (scope, logs) in enumerate(self.factors):
            p = self.belief(f)
            some = p > 0
            energy += (p[some] * logs[some]).sum()
            entropy -= (p[some] * np.log(p[some])).sum()
            degree[list(scope)] += 1
        for v, p in enumerate(self.beliefs()):
            entropy -= (1 - degree[v]) * (p[p > 0] * np.log(p[p > 0])).sum()
        return energy + entropy
