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
        double *rest
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
        self.maximum, self.held = maximum, []
        cdef const int64_t[::1] card, begin, member, by
        card, begin, member, by = (
            np.ascontiguousarray(x, dtype=np.int64) for x in (cards, start, scope, order)
        )
        cdef int64_t v, f, i, j, s, at, n, size, taken, swept = 0, most = 0, long = 0, end = 0
        cdef int64_t variables = card.shape[0], slots = member.shape[0], factors = by.shape[0]
        cdef int64_t *state = self.whole(variables + 1)
        cdef int64_t *first = self.whole(slots)
        cdef int64_t *number = self.whole(slots + 1)
        cdef int64_t *own = self.whole(slots)
        cdef int64_t *owner = self.whole(slots)
        cdef int64_t *to = self.whole(factors + 1)
        cdef int64_t *sizes = self.whole(factors)
        cdef int64_t *entry = self.whole(factors)
        cdef int64_t *slot = self.whole(slots)
        cdef int64_t *slots_of = self.whole(variables + 2)
        cdef int64_t[::1] places = np.full(factors, -1, dtype=np.int64)
        if begin.shape[0] != factors + 1 or begin[0] or begin[factors] != slots:
            raise ValueError("the scopes of a factor graph do not fit")
        for v in range(variables):
            if card[v] < 1:
                raise ValueError("a variable has no states")
            state[v + 1] = state[v] + card[v]
        i = 0
        # Factors are stored in the order of sweeps, those that are not swept at the end.
        for j in range(2 * factors):
            f = by[j % factors]
            if not 0 <= f < factors or begin[f + 1] < begin[f]:
                raise ValueError("the factors or their order do not fit")
            n, size, taken = begin[f + 1] - begin[f], 1, 0
            if (n > 1) != (j < factors):
                continue
            if places[f] >= 0:
                raise ValueError("a factor is twice in the order")
            places[f], swept, long = i, swept + (n > 1), max(long, n)
            for s in range(begin[f], begin[f + 1]):
                v, at = member[s], to[i] + s - begin[f]
                if not 0 <= v < variables:
                    raise ValueError("a variable does not exist")
                own[at], owner[at], first[at] = v, i, state[v]
                number[at + 1], size, taken = number[at] + card[v], size * card[v], taken + card[v]
                slots_of[v + 2] += 1
            to[i + 1], sizes[i], most, i = to[i] + n, size, max(most, taken), i + 1
        for f in range(factors):
            entry[places[f]], end = end, end + sizes[places[f]]
        for v in range(variables):
            slots_of[v + 2] += slots_of[v + 1]
        for at in range(slots):
            slot[slots_of[own[at] + 1]] = at
            slots_of[own[at] + 1] += 1
        self.entries, self.places = end, np.asarray(places)
        cdef pgm_messages *w = &self.w
        w.variables, w.factors, w.swept, w.log = variables, factors, swept, NULL
        w.state, w.slots_of, w.slot, w.start, w.entry = state, slots_of, slot, to, entry
        w.size, w.scope, w.first, w.owner, w.number = sizes, own, first, owner, number
        w.counts, w.place = self.whole(factors), self.whole(factors)
        w.decided, w.digit = self.whole(variables), self.whole(long)
        w.linear, w.low, w.message = self.room(end), self.room(factors), self.room(number[slots])
        w.incoming, w.rest, w.out = self.room(most), self.room(most), self.room(most)
        w.before = self.room(2 * long + 2)
        w.met = <pgm_met *> self.room(2 * state[variables])
        w.forward = self.room((long + 1) * (long + 1))

    cdef int64_t *whole(self, int64_t n) except NULL:
        """Return room for whole numbers, which are held as long as this object."""
        cdef int64_t[::1] a = np.zeros(n + 1, dtype=np.int64)
        self.held.append(a)
        return &a[0]

    cdef double *room(self, int64_t n) except NULL:
        """Return room for so many numbers."""
        cdef double[::1] a = np.zeros(n + 1)
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
