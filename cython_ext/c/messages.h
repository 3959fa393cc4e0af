/* Messages on a factor graph: belief propagation with sums or maxima.

   A message is a log weight for each state of a variable, whose largest is 0. A factor has a slot
   for each variable of its scope, and a slot keeps the message from the factor to the variable. For
   each state of a variable, `sum` is the sum of all finite messages to it, and `zeros` the number
   of messages that are -inf there. The message from a variable to a factor is then a difference:

       in(x) = sum(x) - out(x),    -inf where another message is -inf
       out_i(x_i) = log sum over the other variables of f(x) prod over j other than i of e^in_j(x_j)

   A table is visited entry by entry, with the products of the messages before and after each
   variable, so that nothing is divided. A factor that depends on the count of two-state variables
   that are 1, or on this count modulo 2 (a parity check), has its messages from the paths of a chain
   whose state is the count so far: 4 S operations for a variable, with S the number of counts. Such
   factors are recognised by their entries.

   The arithmetic is one of three: products of linear numbers where no product can underflow, the
   same in logarithms elsewhere, and maxima of sums of logarithms. A message is -inf only where its
   state is impossible for sure, since no number underflows.

   A sweep updates the factors one after the other in a given order, or in the opposite one, each
   with the newest messages. Factors of a single variable have one message for good.

   Kschischang, Frey and Loeliger (2001). The reference is tests/plain_messages.py. */
#ifndef PGM_MESSAGES_H
#define PGM_MESSAGES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { PGM_LINEAR, PGM_LOGS, PGM_MAXIMA };

/* The least sum of log weights whose product is computed in linear numbers. */
#define PGM_LEAST_LOG (-650.0)

/* The least numbers of variables of a parity check and of a factor of counts: smaller tables are
   visited entry by entry, which takes no longer. */
enum { PGM_LEAST_OF_PARITY = 3, PGM_LEAST_OF_COUNTS = 6 };

typedef struct {
    int64_t variables, factors;
    /* Of each variable the first state, and its slots; of each factor the first slot and entry. */
    const int64_t *state, *slots_of, *slot, *start, *entry;
    /* Of each slot the variable, the factor, and its first number among the messages. */
    const int64_t *scope, *owner, *number;
    /* The order of sweeps. */
    const int64_t *order;
    /* Of each factor: the number of counts, or 0 for a table; less than 0 before it is known. */
    int64_t *counts;
    /* Log entries, and linear ones, of which the largest is 1. */
    const double *log;
    double *linear;
    /* Of each factor the log of the largest entry, and of the least possible one less it. */
    double *top, *low;
    double *message, *sum;
    int64_t *zeros;
    /* The decided state of each variable, or -1. */
    int64_t *decided;
    /* Working space: messages into a factor, their linear weights, and messages out of it;
       products, chains of counts, and the states of an entry. */
    double *in, *weight, *out, *before, *forward;
    int64_t *digit;
    int64_t maximum, done;
    double damping;
} pgm_messages;

static inline double pgm_both(const int how, double a, double b)
{
    return how == PGM_LINEAR ? a * b : a + b;
}

static inline double pgm_either(const int how, double a, double b)
{
    if (how == PGM_LINEAR)
        return a + b;
    double most = a > b ? a : b, least = a > b ? b : a;
    if (how == PGM_MAXIMA || least == -INFINITY)
        return most;
    return most + log1p(exp(least - most));
}

/* The exponential and the logarithm of numbers that are often 0 and 1. */
static inline double pgm_exp(double x)
{
    return x == 0.0 ? 1.0 : exp(x);
}

static inline double pgm_log(double x)
{
    return x == 1.0 ? 0.0 : log(x);
}

/* Return whether the entries of a factor of n variables depend on the count of ones modulo S. */
static int pgm_depends_on_count(const double *entries, int64_t n, int64_t S)
{
    for (int64_t e = 0; e < (int64_t)1 << n; e++) {
        int64_t ones = 0;
        for (int64_t rest = e; rest; rest &= rest - 1)
            ones++;
        if (entries[e] != entries[((int64_t)1 << ones % S) - 1])
            return 0;
    }
    return 1;
}

/* Return the number of counts of a factor, or 0 for a table. */
static int64_t pgm_messages_counts(const pgm_messages *w, int64_t f)
{
    int64_t n = w->start[f + 1] - w->start[f];
    const double *entries = w->log + w->entry[f];
    for (int64_t s = w->start[f]; s < w->start[f + 1]; s++)
        if (w->number[s + 1] - w->number[s] != 2)
            return 0;
    if (n >= PGM_LEAST_OF_PARITY && pgm_depends_on_count(entries, n, 2))
        return 2;
    return n >= PGM_LEAST_OF_COUNTS && pgm_depends_on_count(entries, n, n + 1) ? n + 1 : 0;
}

/* Recognise the structure of all factors, and write their linear entries: of a factor of counts,
   those at which the first variables are 1. */
static void pgm_messages_entries(pgm_messages *w)
{
    for (int64_t f = 0; f < w->factors; f++) {
        double top = -INFINITY, low = INFINITY;
        int64_t counts = w->counts[f] = pgm_messages_counts(w, f);
        int64_t size = counts ? counts : w->entry[f + 1] - w->entry[f];
        const double *log = w->log + w->entry[f];
        double *linear = w->linear + w->entry[f];
        for (int64_t i = 0; i < size; i++) {
            double x = linear[i] = log[counts ? ((int64_t)1 << i) - 1 : i];
            top = x > top ? x : top;
            if (x > -INFINITY && x < low)
                low = x;
        }
        w->top[f] = top == -INFINITY ? 0.0 : top;
        w->low[f] = top == -INFINITY ? 0.0 : low - top;
        for (int64_t i = 0; i < size; i++)
            linear[i] = linear[i] == -INFINITY ? 0.0 : pgm_exp(linear[i] - w->top[f]);
    }
}

/* Write the sums of the messages to all variables, which updates change only by differences. */
static void pgm_messages_sums(pgm_messages *w)
{
    int64_t states = w->state[w->variables];
    memset(w->sum, 0, sizeof(double) * states);
    memset(w->zeros, 0, sizeof(int64_t) * states);
    for (int64_t s = 0; s < w->start[w->factors]; s++) {
        int64_t at = w->state[w->scope[s]];
        for (int64_t k = w->number[s]; k < w->number[s + 1]; k++, at++) {
            if (w->message[k] == -INFINITY)
                w->zeros[at]++;
            else
                w->sum[at] += w->message[k];
        }
    }
}

/* Write the messages into a factor; return the sum of the least finite ones and of the least entry,
   or NaN if all states of a variable are impossible. */
static double pgm_messages_in(pgm_messages *w, int64_t f)
{
    double low = w->low[f];
    int64_t first = w->number[w->start[f]];
    for (int64_t s = w->start[f]; s < w->start[f + 1]; s++) {
        int64_t v = w->scope[s], base = w->state[v], states = w->state[v + 1] - base;
        const double *own = w->message + w->number[s];
        double *in = w->in + w->number[s] - first, top = -INFINITY, least = INFINITY;
        for (int64_t k = 0; k < states; k++) {
            int gone = own[k] == -INFINITY;
            if (w->decided[v] >= 0)
                in[k] = k == w->decided[v] ? 0.0 : -INFINITY;
            else if (w->zeros[base + k] > gone)
                in[k] = -INFINITY;
            else
                in[k] = w->sum[base + k] - (gone ? 0.0 : own[k]);
            top = in[k] > top ? in[k] : top;
            if (in[k] > -INFINITY && in[k] < least)
                least = in[k];
        }
        if (top == -INFINITY)
            return NAN;
        for (int64_t k = 0; k < states; k++)
            in[k] -= top;
        low += least - top;
    }
    return low;
}

/* Add the entries of a table over two variables to the messages out of it. */
static inline void pgm_by_pairs(pgm_messages *w, int64_t f, const int how)
{
    int64_t s = w->start[f], n = w->number[s + 1] - w->number[s];
    int64_t m = w->number[s + 2] - w->number[s + 1];
    const double *entries = (how == PGM_LINEAR ? w->linear : w->log) + w->entry[f];
    const double *one = how == PGM_LINEAR ? w->weight : w->in, *two = one + n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            double x = entries[i * m + j];
            w->out[i] = pgm_either(how, w->out[i], pgm_both(how, x, two[j]));
            w->out[n + j] = pgm_either(how, w->out[n + j], pgm_both(how, x, one[i]));
        }
}

/* The same for any table. */
static inline void pgm_by_table(pgm_messages *w, int64_t f, const int how)
{
    int64_t first = w->start[f], n = w->start[f + 1] - first, base = w->number[first];
    const double *entries = (how == PGM_LINEAR ? w->linear : w->log) + w->entry[f];
    const double *every = how == PGM_LINEAR ? w->weight : w->in;
    double none = how == PGM_LINEAR ? 0.0 : -INFINITY, one = how == PGM_LINEAR ? 1.0 : 0.0;
    int64_t size = w->entry[f + 1] - w->entry[f];
    memset(w->digit, 0, sizeof(int64_t) * n);
    for (int64_t e = 0; e < size; e++) {
        double product = entries[e];
        if (product != none) {
            w->before[0] = one;
            for (int64_t i = 0; i + 1 < n; i++)
                w->before[i + 1] = pgm_both(
                    how, w->before[i], every[w->number[first + i] - base + w->digit[i]]);
            for (int64_t i = n - 1; i >= 0; i--) {
                int64_t at = w->number[first + i] - base + w->digit[i];
                w->out[at] = pgm_either(how, w->out[at], pgm_both(how, w->before[i], product));
                product = pgm_both(how, product, every[at]);
            }
        }
        for (int64_t i = n - 1; i >= 0; i--) {
            if (++w->digit[i] < w->number[first + i + 1] - w->number[first + i])
                break;
            w->digit[i] = 0;
        }
    }
}

/* The same for a factor of S counts, by the paths of its chain. */
static inline void pgm_by_counts(pgm_messages *w, int64_t f, const int how, const int64_t S)
{
    int64_t n = w->start[f + 1] - w->start[f];
    const double *log = w->log + w->entry[f], *linear = w->linear + w->entry[f];
    const double *every = how == PGM_LINEAR ? w->weight : w->in;
    double none = how == PGM_LINEAR ? 0.0 : -INFINITY, one = how == PGM_LINEAR ? 1.0 : 0.0;
    double *last = w->before, *two = w->before + S;
    for (int64_t s = 0; s < S; s++) {
        w->forward[s] = s ? none : one;
        last[s] = how == PGM_LINEAR ? linear[s] : log[((int64_t)1 << s) - 1];
    }
    for (int64_t i = 0; i + 1 < n; i++) {
        double *a = w->forward + i * S, *b = a + S;
        const double *in = every + 2 * i;
        for (int64_t s = 0; s < S; s++)
            b[s] = pgm_either(
                how, pgm_both(how, a[s], in[0]), pgm_both(how, a[s ? s - 1 : S - 1], in[1]));
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        const double *a = w->forward + i * S, *in = every + 2 * i;
        double *out = w->out + 2 * i;
        for (int64_t s = 0; s < S; s++) {
            double after = last[s + 1 < S ? s + 1 : 0];
            out[0] = pgm_either(how, out[0], pgm_both(how, a[s], last[s]));
            out[1] = pgm_either(how, out[1], pgm_both(how, a[s], after));
            two[s] = pgm_either(how, pgm_both(how, last[s], in[0]), pgm_both(how, after, in[1]));
        }
        double *other = last;
        last = two, two = other;
    }
}

static inline void pgm_by_kind(pgm_messages *w, int64_t f, const int how)
{
    int64_t size = w->number[w->start[f + 1]] - w->number[w->start[f]];
    for (int64_t k = 0; k < size; k++)
        w->out[k] = how == PGM_LINEAR ? 0.0 : -INFINITY;
    if (w->counts[f] == 2)
        pgm_by_counts(w, f, how, 2);
    else if (w->counts[f])
        pgm_by_counts(w, f, how, w->counts[f]);
    else if (w->start[f + 1] - w->start[f] == 2)
        pgm_by_pairs(w, f, how);
    else
        pgm_by_table(w, f, how);
}

/* Write the messages out of a factor, without damping; return 0 if all states of one of its
   variables are impossible. The largest of each becomes 0; that of
   the first variable was `top_of_first`. */
static int pgm_messages_out(pgm_messages *w, int64_t f, double *top_of_first)
{
    double low = pgm_messages_in(w, f);
    int64_t base = w->number[w->start[f]], size = w->number[w->start[f + 1]] - base;
    int linear = !w->maximum && low >= PGM_LEAST_LOG;
    if (isnan(low))
        return 0;
    if (linear) {
        for (int64_t k = 0; k < size; k++)
            w->weight[k] = pgm_exp(w->in[k]);
        pgm_by_kind(w, f, PGM_LINEAR);
    } else
        pgm_by_kind(w, f, w->maximum ? PGM_MAXIMA : PGM_LOGS);
    for (int64_t s = w->start[f]; s < w->start[f + 1]; s++) {
        double *out = w->out + w->number[s] - base, top = -INFINITY;
        int64_t states = w->number[s + 1] - w->number[s];
        for (int64_t k = 0; k < states; k++)
            top = out[k] > top ? out[k] : top;
        if (top == (linear ? 0.0 : -INFINITY))
            return 0;
        for (int64_t k = 0; k < states; k++)
            out[k] = linear ? pgm_log(out[k] / top) : out[k] - top;
        if (s == w->start[f])
            *top_of_first = linear ? w->top[f] + log(top) : top;
    }
    return 1;
}

/* Update the messages out of a factor; return a bound of the largest change of a weight e^message,
   and -1 if no state is possible. */
static double pgm_messages_update(pgm_messages *w, int64_t f)
{
    double change = 0.0, top;
    int64_t base = w->number[w->start[f]];
    if (!pgm_messages_out(w, f, &top))
        return -1.0;
    for (int64_t s = w->start[f]; s < w->start[f + 1]; s++) {
        double again = -INFINITY, *to = w->out + w->number[s] - base;
        double *old = w->message + w->number[s];
        int64_t states = w->number[s + 1] - w->number[s], at = w->state[w->scope[s]];
        for (int64_t k = 0; k < states; k++) {
            if (w->damping > 0.0 && to[k] > -INFINITY && old[k] > -INFINITY)
                to[k] = (1.0 - w->damping) * to[k] + w->damping * old[k];
            again = to[k] > again ? to[k] : again;
        }
        for (int64_t k = 0; k < states; k++, at++) {
            double now = to[k] - again, most = now > old[k] ? now : old[k];
            if (now == old[k])
                continue;
            /* |e^a - e^b| <= e^max(a, b) |a - b|, and no larger than e^max(a, b). */
            double d = fabs(now - old[k]);
            if (d > change) {
                d = pgm_exp(most) * (d < 1.0 ? d : 1.0);
                change = d > change ? d : change;
            }
            w->sum[at] += (now == -INFINITY ? 0.0 : now) - (old[k] == -INFINITY ? 0.0 : old[k]);
            w->zeros[at] += (now == -INFINITY) - (old[k] == -INFINITY);
            old[k] = now;
        }
    }
    return change;
}

/* Update all factors once; return the largest change, or -1 if no state is possible. */
static double pgm_messages_sweep(pgm_messages *w)
{
    double most = 0.0;
    pgm_messages_sums(w);
    for (int64_t i = 0; i < w->factors; i++) {
        int64_t f = w->order[w->done % 2 ? i : w->factors - 1 - i];
        if (w->start[f + 1] - w->start[f] < 2)
            continue;
        double change = pgm_messages_update(w, f);
        if (change < 0.0)
            return -1.0;
        most = change > most ? change : most;
    }
    w->done++;
    return most;
}

/* Begin with equal messages of all factors but those of a single variable; return 0 if no state is
   possible. */
static int pgm_messages_begin(pgm_messages *w)
{
    memset(w->message, 0, sizeof(double) * w->number[w->start[w->factors]]);
    for (int64_t v = 0; v < w->variables; v++)
        w->decided[v] = -1;
    w->done = 0;
    w->damping = 0.0;
    pgm_messages_entries(w);
    pgm_messages_sums(w);
    for (int64_t f = 0; f < w->factors; f++) {
        int64_t one = w->start[f], size = w->number[w->start[f + 1]] - w->number[one];
        if (w->start[f + 1] - one != 1)
            continue;
        double top = -INFINITY, *to = w->message + w->number[one];
        for (int64_t k = 0; k < size; k++)
            top = w->log[w->entry[f] + k] > top ? w->log[w->entry[f] + k] : top;
        if (top == -INFINITY)
            return 0;
        for (int64_t k = 0; k < size; k++)
            to[k] = w->log[w->entry[f] + k] - top;
    }
    return 1;
}

static double pgm_log_total(const double *a, const double *b, int64_t n)
{
    double total = -INFINITY;
    for (int64_t k = 0; k < n; k++)
        total = pgm_either(PGM_LOGS, total, b ? a[k] + b[k] : a[k]);
    return total;
}

/* Leave the log weights of all states of variables in `sum`; return whether each variable has a
   possible one. */
static int pgm_messages_weights(pgm_messages *w)
{
    pgm_messages_sums(w);
    for (int64_t v = 0; v < w->variables; v++) {
        int possible = 0;
        for (int64_t k = w->state[v]; k < w->state[v + 1]; k++) {
            possible |= !w->zeros[k];
            w->sum[k] = w->zeros[k] ? -INFINITY : w->sum[k];
        }
        if (!possible)
            return 0;
    }
    return 1;
}

/* Return the Bethe log Z. */
static double pgm_messages_bethe(pgm_messages *w)
{
    double total = 0.0, top;
    pgm_messages_sums(w);
    for (int64_t f = 0; f < w->factors; f++) {
        int64_t first = w->start[f], base = w->number[first];
        if (first == w->start[f + 1]) {
            total += w->log[w->entry[f]];
            continue;
        }
        if (!pgm_messages_out(w, f, &top))
            return -INFINITY;
        total += top + pgm_log_total(w->in, w->out, w->number[first + 1] - base);
        for (int64_t s = first; s < w->start[f + 1]; s++)
            total -= pgm_log_total(w->in + w->number[s] - base, w->message + w->number[s],
                                   w->number[s + 1] - w->number[s]);
    }
    if (!pgm_messages_weights(w))
        return -INFINITY;
    for (int64_t v = 0; v < w->variables; v++)
        total += pgm_log_total(w->sum + w->state[v], 0, w->state[v + 1] - w->state[v]);
    return total;
}

/* Write the log weights of the entries of a factor, by the messages into it. */
static void pgm_messages_factor(pgm_messages *w, int64_t f, double *to)
{
    int64_t first = w->start[f], n = w->start[f + 1] - first, base = w->number[first];
    int64_t size = w->entry[f + 1] - w->entry[f];
    pgm_messages_in(w, f);
    memset(w->digit, 0, sizeof(int64_t) * n);
    for (int64_t e = 0; e < size; e++) {
        to[e] = w->log[w->entry[f] + e];
        for (int64_t i = 0; i < n; i++)
            to[e] += w->in[w->number[first + i] - base + w->digit[i]];
        for (int64_t i = n - 1; i >= 0; i--) {
            if (++w->digit[i] < w->number[first + i + 1] - w->number[first + i])
                break;
            w->digit[i] = 0;
        }
    }
}

/* Decide the state of one variable after the other, the best one given those before. Messages
   beside decided variables are new, and all others have not changed. */
static void pgm_messages_decide(pgm_messages *w, const int64_t *order)
{
    pgm_messages_sums(w);
    w->damping = 0.0;
    for (int64_t i = 0; i < w->variables; i++) {
        int64_t v = order[i], base = w->state[v], best = 0;
        for (int64_t j = w->slots_of[v]; j < w->slots_of[v + 1]; j++) {
            int64_t f = w->owner[w->slot[j]], known = 0;
            for (int64_t t = w->start[f]; t < w->start[f + 1]; t++)
                known |= w->decided[w->scope[t]] >= 0;
            if (known)
                pgm_messages_update(w, f);
        }
        for (int64_t k = 0; k < w->state[v + 1] - base; k++)
            if (w->zeros[base + k] < w->zeros[base + best]
                || (w->zeros[base + k] == w->zeros[base + best]
                    && w->sum[base + k] > w->sum[base + best]))
                best = k;
        w->decided[v] = best;
    }
}

#endif
