# c/orders.h for Cython.

from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "orders.h" nogil:
    int PGM_ORDER_FILL, PGM_ORDER_FILL_LOG, PGM_ORDER_FILL_STATES
    int PGM_ORDER_WEIGHT, PGM_ORDER_SIZE, PGM_ORDER_WEIGHT_FILL, PGM_ORDER_RULES
    int PGM_ORDER_STOPPED

    ctypedef struct pgm_order_watch:
        int (*poll)(void *token) noexcept nogil
        void *token

    ctypedef struct pgm_orders:
        pass

    pgm_orders *pgm_orders_open(int64_t n, const int64_t *cards, int64_t factors,
                                const int64_t *start, const int32_t *scope)
    void pgm_orders_close(pgm_orders *o)
    int pgm_orders_greedy(pgm_orders *o, int rule, uint64_t seed, double noise, double best,
                          pgm_order_watch watch)
    int pgm_orders_improve(pgm_orders *o, uint64_t seed, int64_t rounds, int64_t window,
                           pgm_order_watch watch)
    int pgm_orders_offer(pgm_orders *o, const int32_t *order)
    int pgm_orders_best(const pgm_orders *o, int32_t *order)
    int pgm_orders_cost(const pgm_orders *o, const int32_t *order, double *entries,
                        double *largest)
    int pgm_orders_bound(const pgm_orders *o, double *bound)
    int64_t pgm_orders_work(const pgm_orders *o)
    int64_t pgm_orders_parts(const pgm_orders *o)
