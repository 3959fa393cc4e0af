# Belief propagation on a factor graph for Python: c/messages.h.

cdef extern from "messages.h" nogil:
    ctypedef struct pgm_met:
        double sum
        int64_t zeros
    ctypedef struct pgm_messages:
        int64_t variables, factors, swept
        const int64_t *state
        const int64_t *slots_of
        const int64_t *slot
        const int64_t *start
        const int64_t *entry
        const int64_t *size
        const int64_t *scope
        const int64_t *first
        const int64_t *owner
        const int64_t *number
        const double *log
        double *linear
        double *low
        double *message
        pgm_met *met
        double *incoming "in"
        double *out
        double *before
        double *forward
        int64_t *counts
        int64_t *place
        int64_t *decided
        int64_t *digit
        double damping
    int pgm_messages_begin(pgm_messages *w, int64_t maximum)
    int pgm_messages_weights(pgm_messages *w, double *to)
    double pgm_messages_sweep(pgm_messages *w)
    double pgm_messages_bethe(pgm_messages *w, const double *weights)
    void pgm_messages_to_logs(pgm_messages *w)
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
    cdef object log, places
    cdef readonly int64_t entries
    cdef bint maximum

    def __init__(self, cards, start, scope, order, bint maximum):
        cards, start, scope, order = (
            np.ascontiguousarray(x, dtype=np.int64) for x in (cards, start, scope, order)
        )
        variables, factors, slots = len(cards), len(start) - 1, len(scope)
        places = np.zeros(factors, dtype=np.int64)
        if factors < 0 or start[0] != 0 or start[factors] != slots or (np.diff(start) < 0).any() \
                or (slots and not 0 <= scope.min() <= scope.max() < variables) \
                or (variables and cards.min() < 1) or len(order) != factors:
            raise ValueError("the arrays of a factor graph do not fit")
        places[order] = 1
        if not places.all():
            raise ValueError("the order is not one of all factors")
        arity, padded = np.diff(start), np.append(cards[scope], 1)
        sizes = np.where(arity > 0, np.multiply.reduceat(padded, start[:factors]), 1)
        taken = np.where(arity > 0, np.add.reduceat(padded, start[:factors]), 0)
        entry, first, long = ends_of(sizes), ends_of(cards), int(arity.max(initial=0)) + 1
        self.entries, self.held, self.maximum = entry[factors], [], maximum
        # Factors are stored in the order of sweeps, those that are not swept at the end.
        order = np.concatenate([order[arity[order] > 1], order[arity[order] < 2]])
        begin, arity = start[:factors][order], arity[order]
        places[order] = np.arange(factors)
        start, self.places = ends_of(arity), places
        scope = scope[np.repeat(begin - start[:factors], arity) + np.arange(slots)]
        cdef pgm_messages *w = &self.w
        w.variables, w.factors, w.swept, w.log = variables, factors, (arity > 1).sum(), NULL
        w.state, w.start, w.scope = self.whole(first), self.whole(start), self.whole(scope)
        w.first = self.whole(first[scope])
        w.entry, w.size = self.whole(entry[order]), self.whole(sizes[order])
        w.number = self.whole(ends_of(cards[scope]))
        # Decisions alone go from variables to their factors.
        own = scope if maximum else scope[:0]
        w.owner = self.whole(np.repeat(np.arange(factors), arity) if maximum else own)
        w.slot = self.whole(np.argsort(own, kind="stable"))
        w.slots_of = self.whole(ends_of(np.bincount(own, minlength=variables)))
        w.counts, w.place = self.whole(np.zeros(factors)), self.whole(np.zeros(factors))
        w.decided, w.digit = self.whole(cards), self.whole(np.zeros(long))
        w.linear, w.low = self.room(entry[factors]), self.room(factors)
        w.message, w.met = self.room(cards[scope].sum()), <pgm_met *> self.room(2 * first[variables])
        w.incoming, w.out = self.room(taken.max(initial=1)), self.room(taken.max(initial=1))
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
        return bool(pgm_messages_begin(&self.w, self.maximum))

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
        if weights.shape[0] != self.w.state[self.w.variables]:
            raise ValueError("the states of variables do not fit")
        return not weights.shape[0] or bool(pgm_messages_weights(&self.w, &weights[0]))

    def log_z(self, const double[::1] weights):
        """Return the Bethe log Z from the log weights of the states, -inf where it is impossible."""
        cdef double log_z
        if weights.shape[0] != self.w.state[self.w.variables]:
            raise ValueError("the states of variables do not fit")
        with nogil:
            log_z = pgm_messages_bethe(&self.w, &weights[0] if weights.shape[0] else NULL)
        return log_z

    def of_factors(self, const int64_t[::1] which, double[::1] weights):
        """Write the log weights of the entries of some factors, one after the other."""
        cdef int64_t f, at = 0
        for f in self.places[np.asarray(which)]:
            if at + self.w.size[f] > weights.shape[0]:
                raise ValueError("the entries of factors do not fit")
            pgm_messages_factor(&self.w, f, &weights[at])
            at += self.w.size[f]

    def sent(self, int64_t factor):
        """Return the log messages from a factor, and its number of counts, 0 for a table."""
        cdef int64_t f = self.places[factor]
        pgm_messages_to_logs(&self.w)
        ends = self.w.number[self.w.start[f]], self.w.number[self.w.start[f + 1]]
        return np.array([self.w.message[i] for i in range(*ends)]), self.w.counts[f]

    def decided(self, order):
        """Return a state of each variable, decided one after the other in an order."""
        cdef int64_t[::1] by = np.append(order, 0).astype(np.int64)
        if not (self.maximum and np.array_equal(np.sort(order), np.arange(self.w.variables))):
            raise ValueError("the order is not one of all variables, or messages are no maxima")
        with nogil:
            pgm_messages_decide(&self.w, &by[0])
        return np.array([self.w.decided[i] for i in range(self.w.variables)], dtype=np.int64)


def ends_of(sizes):
    """Return the first place of each of several parts of these sizes, and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
