/* Elimination orders of factor graphs: greedy searches, local search, and a lower bound.
 *
 * The graph has a vertex for each variable. An edge joins two variables that have several states
 * and are in the scope of one factor. Eliminating a vertex joins its neighbours to each other and
 * removes the vertex. Its clique consists of the vertex and its neighbours. The cost of an order is
 * the total number of table entries of its maximal cliques, which are contained in no other clique
 * of the order. The number of table entries of a clique is the product of the numbers of states of
 * its variables.
 *
 * pgm_orders_open removes vertices that can safely be eliminated first, and splits the remaining
 * graph into connected components. A search treats each component separately and keeps the best
 * order of each. The final order may therefore combine the results of different searches. Results
 * depend only on the arguments, and not on time or on the kind of processor.
 *
 * Functions that return an int return 0, or -1 if memory ran out. Searches poll whether to stop, and
 * return PGM_ORDER_STOPPED then: what they have found so far stays.
 * Reference: the plain symbolic elimination in tests/infer/exact/test_orders.py.
 */
#ifndef PGM_ORDERS_H
#define PGM_ORDERS_H

#include <stdint.h>

/* The quantity that a greedy search minimises at each step. The fill of a vertex is the sum over
 * pairs of its neighbours that are not adjacent of the product of their weights: 1 (FILL), the
 * logarithms of their numbers of states (FILL_LOG), or the numbers of states themselves
 * (FILL_STATES). WEIGHT is the number of entries of the clique, SIZE its number of variables,
 * WEIGHT_FILL the number of entries times the fill. Vertices with equal neighbours need no separate
 * rule: when one of them is eliminated, the others become simplicial, and are eliminated next. */
enum {
    PGM_ORDER_FILL,
    PGM_ORDER_FILL_LOG,
    PGM_ORDER_FILL_STATES,
    PGM_ORDER_WEIGHT,
    PGM_ORDER_SIZE,
    PGM_ORDER_WEIGHT_FILL,
    PGM_ORDER_RULES
};

#define PGM_ORDER_STOPPED (-2)

/* Called repeatedly by searches; not 0: stop. */
typedef struct {
    int (*poll)(void *token);
    void *token;
} pgm_order_watch;

typedef struct pgm_orders pgm_orders;

/* the graph of `factors` scopes (start, scope) over n variables with `cards` states; NULL if
 * memory runs out */
pgm_orders *pgm_orders_open(int64_t n, const int64_t *cards, int64_t factors, const int64_t *start,
                            const int32_t *scope);
void pgm_orders_close(pgm_orders *o);

/* Search each component by a rule; keep an order that is better than the best so far. Seed 0 breaks
 * ties by a second score, any other seed at random; scores are multiplied by 1 + noise * uniform. A
 * search stops where its total exceeds `best` or the best of the component. */
int pgm_orders_greedy(pgm_orders *o, int rule, uint64_t seed, double noise, double best,
                      pgm_order_watch watch);

/* Order random windows of the best order of each component anew: windows.h. */
int pgm_orders_improve(pgm_orders *o, uint64_t seed, int64_t rounds, int64_t window,
                       pgm_order_watch watch);

/* Keep each part of an order of the whole graph that is better than the best of its component. */
int pgm_orders_offer(pgm_orders *o, const int32_t *order);

/* The work of all searches so far, in entries of lists that they have read: about 5 ns each. */
int64_t pgm_orders_work(const pgm_orders *o);

/* The number of components that the safe reductions leave. */
int64_t pgm_orders_parts(const pgm_orders *o);

/* Write the best order (n,); return 1 if no search of some component has ended below its limit. */
int pgm_orders_best(const pgm_orders *o, int32_t *order);

/* The cost of an order: *entries, and the log2 of the entries of the largest clique. */
int pgm_orders_cost(const pgm_orders *o, const int32_t *order, double *entries, double *largest);

/* A lower bound on log2 of the entries of the largest clique of any order. In each of a sequence of
 * minors, the smallest clique of a vertex is found, and the bound is the largest of these. The next
 * minor contracts this vertex into the neighbour with which it shares the fewest neighbours. The
 * contracted vertex has the smaller of the two weights. Bodlaender
 * and Koster, Treewidth computations II (2011), have the unweighted rule. */
int pgm_orders_bound(const pgm_orders *o, double *bound);

#endif
