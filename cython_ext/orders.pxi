# ---- elimination orders: c/orders.h ----

cimport orders as od

FILL, FILL_LOG, FILL_STATES = od.PGM_ORDER_FILL, od.PGM_ORDER_FILL_LOG, od.PGM_ORDER_FILL_STATES
WEIGHT, SIZE, WEIGHT_FILL = od.PGM_ORDER_WEIGHT, od.PGM_ORDER_SIZE, od.PGM_ORDER_WEIGHT_FILL


cpdef int64_t checked_factors(const int64_t[::1] cards, const int64_t[::1] start,
                              const int32_t[::1] scope) except -1:
    """PgmError unless the scopes of a factor graph are in order; the number of factors."""
    cdef int64_t n = cards.shape[0], f, i, factors = start.shape[0] - 1
    if n > 500_000_000:
        raise PgmError(f"{n} variables are too many for an elimination order")
    for i in range(n):
        if cards[i] < 1:
            raise PgmError(f"variable {i} has {cards[i]} states, expected at least 1")
    if factors < 0 or start[0] != 0 or start[factors] != scope.shape[0]:
        raise PgmError(f"start must lead from 0 to the length of scope, {scope.shape[0]}")
    cdef int64_t[::1] last = np.full(n, -1, dtype=np.int64)
    for f in range(factors):
        if start[f] > start[f + 1] or start[f] < 0 or start[f + 1] > scope.shape[0]:
            raise PgmError(f"start falls or leaves the scope at factor {f}")
        for i in range(start[f], start[f + 1]):
            if scope[i] < 0 or scope[i] >= n:
                raise PgmError(f"factor {f} names variable {scope[i]}, expected 0 to {n - 1}")
            if last[scope[i]] == f:
                raise PgmError(f"factor {f} names variable {scope[i]} twice")
            last[scope[i]] = f
    return factors


cdef int raise_of(int status, Watch watching) except -1:
    """Raise the error of a search: the one of a signal handler, or MemoryError."""
    if status == od.PGM_ORDER_STOPPED:
        raise watching.error
    if status < 0:
        raise MemoryError
    return 0


cdef class Orders:
    """Searches for elimination orders of one factor graph; keeps the best order of each component.

    Searches call signal handlers repeatedly, and an exception that they raise ends a search.

    cards (n,) are the numbers of states; the variables of factor f are scope[start[f]:start[f +
    1]].
    """

    cdef od.pgm_orders *orders
    # variables: number of variables; parts: number of components after the safe reductions
    cdef readonly int64_t variables, parts

    def __cinit__(self, const int64_t[::1] cards, const int64_t[::1] start,
                  const int32_t[::1] scope):
        self.orders = NULL
        cdef int64_t factors = checked_factors(cards, start, scope)
        cdef const int64_t *states = &cards[0] if cards.shape[0] else NULL
        cdef const int32_t *members = &scope[0] if scope.shape[0] else NULL
        self.variables = cards.shape[0]
        with nogil:
            self.orders = od.pgm_orders_open(self.variables, states, factors, &start[0], members)
        if self.orders == NULL:
            raise MemoryError
        self.parts = od.pgm_orders_parts(self.orders)

    def __dealloc__(self):
        od.pgm_orders_close(self.orders)

    def greedy(self, int rule, uint64_t seed, double noise, double best):
        """Search by a rule; seed 0 breaks ties by a second score, and ignores the noise.

        Scores are multiplied by 1 + noise * uniform. A component takes the new order if the search
        has ended with fewer than `best` entries, and with fewer than its best order so far.
        """
        cdef int status
        cdef Watch watching = Watch()
        cdef od.pgm_order_watch stop = od.pgm_order_watch(watch, watching.begin())
        if rule < 0 or rule >= od.PGM_ORDER_RULES:
            raise PgmError(f"rule is {rule}, expected 0 to {od.PGM_ORDER_RULES - 1}")
        with nogil:
            status = od.pgm_orders_greedy(self.orders, rule, seed, noise, best, stop)
        raise_of(status, watching)

    def improve(self, uint64_t seed, int64_t rounds, int64_t window):
        """Order `rounds` random windows of the best order of each component anew."""
        cdef int status
        cdef Watch watching = Watch()
        cdef od.pgm_order_watch stop = od.pgm_order_watch(watch, watching.begin())
        with nogil:
            status = od.pgm_orders_improve(self.orders, seed, rounds, window, stop)
        raise_of(status, watching)

    def offer(self, const int32_t[::1] order):
        """Keep the parts of an order (n,) that are better than the best of their component."""
        cdef int status
        self.check(order)
        if self.variables:
            with nogil:
                status = od.pgm_orders_offer(self.orders, &order[0])
            if status < 0:
                raise MemoryError

    cdef int check(self, const int32_t[::1] order) except -1:
        cdef int64_t i
        cdef uint8_t[::1] seen = np.zeros(self.variables, dtype=np.uint8)
        if order.shape[0] != self.variables:
            raise PgmError(f"an order of {order.shape[0]} variables does not fit a graph of "
                           f"{self.variables}")
        for i in range(self.variables):
            if order[i] < 0 or order[i] >= self.variables or seen[order[i]]:
                raise PgmError(f"the order is no permutation: it has {order[i]} at place {i}")
            seen[order[i]] = 1
        return 0

    def work(self):
        """Return the work of all searches so far: entries of lists, about 5 ns each."""
        return od.pgm_orders_work(self.orders)

    def best(self):
        """Return the best order (n,) int32; None if no search has ended within its limit."""
        out = np.empty(self.variables, dtype=np.int32)
        cdef int32_t[::1] view = out
        return None if od.pgm_orders_best(self.orders, &view[0] if self.variables else NULL) \
            else out

    def cost(self, const int32_t[::1] order):
        """Return the table entries of an order, and the log2 of those of its largest clique."""
        cdef double entries = 0.0, largest = 0.0
        cdef int status = 0
        self.check(order)
        if self.variables:
            with nogil:
                status = od.pgm_orders_cost(self.orders, &order[0], &entries, &largest)
        if status < 0:
            raise MemoryError
        return entries, largest

    def bound(self):
        """Return a lower bound on the bits of the largest clique of any order."""
        cdef double bound = 0.0
        cdef int status
        with nogil:
            status = od.pgm_orders_bound(self.orders, &bound)
        if status < 0:
            raise MemoryError
        return bound


def elimination_order(const int64_t[::1] cards, const int64_t[::1] start,
                      const int32_t[::1] scope, int rule, uint64_t seed, double best):
    """Return an order (n,) by one greedy search, its table entries, and log2 of its largest clique.

    If the entries exceed `best`, the order is None, and the numbers are infinite.
    """
    search = Orders(cards, start, scope)
    search.greedy(rule, seed, 0.0, best)
    order = search.best()
    if order is None:
        return None, INFINITY, INFINITY
    entries, largest = search.cost(order)
    return (order, entries, largest) if entries <= best else (None, INFINITY, INFINITY)


def width_bound(const int64_t[::1] cards, const int64_t[::1] start, const int32_t[::1] scope):
    """Return a lower bound on the bits (log2 of states) of the largest clique of any order.

    It is the largest weighted minimum degree among the minors of a greedy contraction.
    """
    return Orders(cards, start, scope).bound()
