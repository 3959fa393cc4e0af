# Belief propagation on a factor graph for Python: c/messages.h.

cdef extern from "messages.h" nogil:
    ctypedef struct pgm_messages:
        int64_t variables, factors
        const int64_t *state, *slots_of, *slot, *start, *entry, *scope, *owner, *number
        const int64_t *order
        const double *log
        double *linear, *top, *low, *message, *sum, *weight, *out, *before, *forward
        double *incoming "in"
        int64_t *counts, *zeros, *decided, *digit
        int64_t maximum, done
        double damping
    int pgm_messages_begin(pgm_messages *w)
    int pgm_messages_weights(pgm_messages *w)
    double pgm_messages_sweep(pgm_messages *w)
    double pgm_messages_bethe(pgm_messages *w)
    void pgm_messages_factor(pgm_messages *w, int64_t f, double *to)
    void pgm_messages_decide(pgm_messages *w, const int64_t *order)


cdef class Messages:
    """The messages of one row on a factor graph, which many rows use one after the other.

    Parameters
    ----------
    cards : (variables,) numbers of states.
    start, scope : the variables of factor f are scope[start[f]:start[f + 1]].
    order : (factors,) the order of sweeps.
    maximum : whether messages are maxima.
    """

    cdef pgm_messages w
    cdef list held
    cdef object log
    cdef readonly int64_t entries

    def __init__(self, cards, start, scope, order, bint maximum):
        cards, start, scope, order = (
            np.ascontiguousarray(x, dtype=np.int64) for x in (cards, start, scope, order)
        )
        variables, factors, slots = len(cards), len(start) - 1, len(scope)
        if factors < 0 or start[0] != 0 or start[factors] != slots or (np.diff(start) < 0).any() \
                or (slots and not 0 <= scope.min() <= scope.max() < variables) \
                or (variables and cards.min() < 1) \
                or not np.array_equal(np.sort(order), np.arange(factors)):
            raise ValueError("the arrays of a factor graph do not fit")
        arity, states = np.diff(start), cards[scope]
        padded = np.append(states, 1)
        sizes = np.where(arity > 0, np.multiply.reduceat(padded, start[:-1]), 1)
        taken = np.where(arity > 0, np.add.reduceat(padded, start[:-1]), 0)
        entry, first = ends_of(sizes), ends_of(cards)
        most, long = int(taken.max(initial=1)), int(arity.max(initial=0)) + 1
        self.entries, self.held = entry[factors], []
        cdef pgm_messages *w = &self.w
        w.variables, w.factors, w.maximum, w.done, w.log = variables, factors, maximum, 0, NULL
        w.damping = 0.0
        w.state, w.entry, w.start = self.whole(first), self.whole(entry), self.whole(start)
        w.scope, w.number = self.whole(scope), self.whole(ends_of(states))
        w.owner = self.whole(np.repeat(np.arange(factors), arity))
        w.slot = self.whole(np.argsort(scope, kind="stable"))
        w.slots_of = self.whole(ends_of(np.bincount(scope, minlength=variables)))
        w.counts, w.order = self.whole(np.full(factors, -1)), self.whole(order)
        w.zeros, w.decided = self.whole(np.zeros(first[variables])), self.whole(cards)
        w.digit = self.whole(np.zeros(long))
        w.linear, w.top, w.low = self.room(entry[factors]), self.room(factors), self.room(factors)
        w.message, w.sum = self.room(states.sum()), self.room(first[variables])
        w.incoming, w.weight, w.out = self.room(most), self.room(most), self.room(most)
        w.before, w.forward = self.room(2 * long), self.room(long * long)

    cdef int64_t *whole(self, numbers) except NULL:
        """Return whole numbers, which are held as long as this object."""
        cdef int64_t[::1] a = np.append(numbers, 0).astype(np.int64)
        self.held.append(a)
        return &a[0]

    cdef double *room(self, n) except NULL:
        """Return room for so many numbers."""
        cdef double[::1] a = np.zeros(int(n) + 1)
        self.held.append(a)
        return &a[0]

    def begin(self, const double[::1] log):
        """Start with equal messages and the log entries of a row; return whether it is possible."""
        if log.shape[0] != self.entries:
            raise ValueError(f"{log.shape[0]} entries, expected {self.entries}")
        self.log = log
        self.w.log = &log[0] if self.entries else NULL
        return bool(pgm_messages_begin(&self.w))

    def run(self, double[::1] changes, double tolerance, double damping):
        """Make sweeps until no message changes by more than a tolerance.

        Fills in the largest change of each sweep, and returns the number of sweeps, or -1 where no
        state is possible.
        """
        cdef int64_t i = 0
        if self.w.log == NULL and self.entries:
            raise ValueError("there are no entries")
        self.w.damping = damping
        with nogil:
            while i < changes.shape[0]:
                changes[i] = pgm_messages_sweep(&self.w)
                if changes[i] < 0.0:
                    i = -1
                    break
                i += 1
                if changes[i - 1] <= tolerance:
                    break
        return i

    def log_weights(self, double[::1] weights):
        """Write the log weights of the states of variables; return whether each has a state."""
        cdef int64_t i
        if weights.shape[0] != self.w.state[self.w.variables]:
            raise ValueError("the states of variables do not fit")
        possible = bool(pgm_messages_weights(&self.w))
        for i in range(weights.shape[0]):
            weights[i] = self.w.sum[i]
        return possible

    def log_z(self):
        """Return the Bethe log Z, -inf where no state is possible."""
        cdef double log_z
        with nogil:
            log_z = pgm_messages_bethe(&self.w)
        return log_z

    def counts(self):
        """Return the number of counts of each factor, 0 for tables."""
        return np.array([self.w.counts[i] for i in range(self.w.factors)], dtype=np.int64)

    def of_factors(self, const int64_t[::1] which, double[::1] weights):
        """Write the log weights of the entries of some factors, one after the other."""
        cdef int64_t i, f, at = 0
        for i in range(which.shape[0]):
            f = which[i]
            if not 0 <= f < self.w.factors \
                    or at + self.w.entry[f + 1] - self.w.entry[f] > weights.shape[0]:
                raise ValueError("the entries of factors do not fit")
            pgm_messages_factor(&self.w, f, &weights[at])
            at += self.w.entry[f + 1] - self.w.entry[f]

    def messages(self):
        """Return the log messages from factors to the variables of their scopes, factor by factor."""
        return np.array([self.w.message[i] for i in range(self.w.number[self.w.start[self.w.factors]])])

    def decided(self, order):
        """Return a state of each variable, decided one after the other in an order."""
        cdef int64_t[::1] by = np.append(order, 0).astype(np.int64)
        if not np.array_equal(np.sort(order), np.arange(self.w.variables)):
            raise ValueError("the order is not one of all variables")
        with nogil:
            pgm_messages_decide(&self.w, &by[0])
        return np.array([self.w.decided[i] for i in range(self.w.variables)], dtype=np.int64)


def ends_of(sizes):
    """Return the first place of each of several parts of these sizes, and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
