/* Messages on a factor graph: belief propagation with sums or maxima.

   A message is a weight for each state of a variable, whose largest is 1. A factor has a slot for
   each variable of its scope, and a slot keeps the message from the factor to the variable. For each
   state of a variable, `sum` is the product of all messages to it but those that are 0, and `zeros`
   the number of these. The message from a variable to a factor is then a quotient:

       in(x) = sum(x) / out(x),    0 where another message is 0
       out_i(x_i) = sum over the other variables of f(x) prod over j other than i of in_j(x_j)

   A table is visited entry by entry, with the products of the messages before and after each
   variable, so that nothing is divided. A factor that depends on the count of two-state variables
   that are 1, or on this count modulo 2 (a parity check), has its messages from the paths of a chain
   whose state is the count so far: 4 S operations for a variable, with S the number of counts. Such
   factors are recognised by their entries.

   Numbers are linear until one might come near the end of their range. All messages of the row then
   become logarithms, with sums for products and log sums for sums; maxima are always taken of
   logarithms. A message is therefore 0 only where its state is impossible for sure.

   Factors are stored in the order of sweeps. A sweep updates them one after the other, from the
   first or from the last one, each with the newest messages. Factors of a single variable have one
   message for good, and come last.

   Kschischang, Frey and Loeliger (2001). The reference is tests/plain_messages.py. */
#ifndef PGM_MESSAGES_H
#define PGM_MESSAGES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Functions of the kind of numbers, `how`, are compiled for each kind. */
#define PGM_EACH_KIND static inline __attribute__((always_inline))

enum { PGM_LINEAR, PGM_LOGS, PGM_MAXIMA };

/* In place of a change: no state is possible, or a number left the range of linear ones. */
#define PGM_IMPOSSIBLE (-1.0)
#define PGM_OUT_OF_RANGE (-2.0)

/* The least linear number. Products of weights are scaled outside of PGM_SMALL and its inverse. */
#define PGM_LEAST 1e-280
#define PGM_SMALL 1e-100

/* The number of sweeps that keep products of messages before these are computed again. */
#define PGM_SWEEPS_WITH_SUMS 16

/* The least numbers of variables of a parity check and of a factor of counts: smaller tables are
   visited entry by entry, which takes no longer. */
enum { PGM_LEAST_OF_PARITY = 3, PGM_LEAST_OF_COUNTS = 6 };

/* A state of a variable: the product of the messages to it that are not 0, and the number of the
   others. */
typedef struct {
    double sum;
    int64_t zeros;
} pgm_met;

typedef struct {
    int64_t variables, factors, swept;
    /* Of each variable the first state, and its slots; of each factor the first slot, and the first
       and the number of its entries. */
    const int64_t *state, *slots_of, *slot, *start, *entry, *size;
    /* Of each slot the variable and its first state, the factor, and the first message. */
    const int64_t *scope, *first, *owner, *number;
    /* Of each factor the number of counts, 0 for a table, and the first linear entry. */
    int64_t *counts, *place;
    /* Log entries, and linear ones, of which the largest of a factor is 1; the least of them. */
    const double *log;
    double *linear, *low;
    double *message;
    pgm_met *met;
    /* The decided state of each variable, or -1. */
    int64_t *decided;
    /* Working space: messages into a factor, also as they would be without zeros, and out of it;
       products, chains of counts, and the states of an entry. */
    double *in, *rest, *out, *before, *forward;
    int64_t *digit;
    int64_t how, done;
    double damping;
} pgm_messages;

static inline double pgm_both(const int how, double a, double b)
{
    return how == PGM_LINEAR ? a * b : a + b;
}

static inline double pgm_without(const int how, double a, double b)
{
    return how == PGM_LINEAR ? a / b : a - b;
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

/* The weights 1 and 0. */
static inline double pgm_one(const int how)
{
    return how == PGM_LINEAR ? 1.0 : 0.0;
}

static inline double pgm_none(const int how)
{
    return how == PGM_LINEAR ? 0.0 : -INFINITY;
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
    int64_t end = 0;
    for (int64_t f = 0; f < w->factors; f++) {
        double top = -INFINITY, low = INFINITY;
        int64_t counts = w->counts[f] = pgm_messages_counts(w, f);
        int64_t size = counts ? counts : w->size[f];
        const double *log = w->log + w->entry[f];
        double *linear = w->linear + end;
        w->place[f] = end;
        end += size;
        for (int64_t i = 0; i < size; i++) {
            double x = linear[i] = log[counts ? ((int64_t)1 << i) - 1 : i];
            top = x > top ? x : top;
            if (x > -INFINITY && x < low)
                low = x;
        }
        w->low[f] = top == -INFINITY ? 1.0 : exp(low - top);
        for (int64_t i = 0; i < size; i++)
            linear[i] = linear[i] == -INFINITY ? 0.0 : linear[i] == top ? 1.0 : exp(linear[i] - top);
    }
}

/* Scale the products of a variable. */
static void pgm_scaled(pgm_met *met, int64_t states)
{
    double top = 0.0;
    for (int64_t k = 0; k < states; k++)
        top = met[k].sum > top ? met[k].sum : top;
    if (top < PGM_SMALL || top > 1.0 / PGM_SMALL)
        for (int64_t k = 0; k < states; k++)
            met[k].sum /= top;
}

/* Write the products of the messages to all variables, from which updates may slowly depart. */
static void pgm_messages_sums(pgm_messages *w)
{
    const int how = w->how == PGM_LINEAR ? PGM_LINEAR : PGM_LOGS;
    for (int64_t k = 0; k < w->state[w->variables]; k++)
        w->met[k] = (pgm_met){pgm_one(how), 0};
    for (int64_t s = 0; s < w->start[w->factors]; s++) {
        pgm_met *met = w->met + w->first[s];
        int64_t states = w->number[s + 1] - w->number[s];
        for (int64_t k = 0; k < states; k++) {
            double message = w->message[w->number[s] + k];
            if (message == pgm_none(how))
                met[k].zeros++;
            else
                met[k].sum = pgm_both(how, met[k].sum, message);
        }
        if (how == PGM_LINEAR)
            pgm_scaled(met, states);
    }
}

/* Turn linear messages into logarithms. */
static void pgm_messages_to_logs(pgm_messages *w)
{
    if (w->how != PGM_LINEAR)
        return;
    for (int64_t k = 0; k < w->number[w->start[w->factors]]; k++)
        w->message[k] = w->message[k] == 1.0 ? 0.0 : log(w->message[k]);
    w->how = PGM_LOGS;
    pgm_messages_sums(w);
}

/* Write the messages into a factor; return 0, or why there are none. No product of a linear path
   that matters may underflow: of a parity check, one with the least message alone. */
PGM_EACH_KIND double pgm_messages_in(pgm_messages *w, int64_t f, const int how)
{
    double low = w->low[f], lowest = 1.0;
    int64_t base = w->number[w->start[f]];
    for (int64_t s = w->start[f]; s < w->start[f + 1]; s++) {
        int64_t states = w->number[s + 1] - w->number[s];
        /* States are decided with maxima alone. */
        int64_t decided = how == PGM_MAXIMA ? w->decided[w->scope[s]] : -1;
        const pgm_met *met = w->met + w->first[s];
        const double *own = w->message + w->number[s];
        double *in = w->in + w->number[s] - base, *rest = w->rest + w->number[s] - base;
        double top = pgm_none(how), least = INFINITY;
        for (int64_t k = 0; k < states; k++) {
            int gone = own[k] == pgm_none(how);
            rest[k] = gone ? met[k].sum : pgm_without(how, met[k].sum, own[k]);
            if (decided >= 0)
                in[k] = k == decided ? pgm_one(how) : pgm_none(how);
            else if (met[k].zeros > gone)
                in[k] = pgm_none(how);
            else {
                in[k] = rest[k];
                least = in[k] < least ? in[k] : least;
            }
            top = in[k] > top ? in[k] : top;
        }
        if (top == pgm_none(how))
            return least == 0.0 ? PGM_OUT_OF_RANGE : PGM_IMPOSSIBLE;
        if (how == PGM_LINEAR && !(top <= 1.0 / PGM_LEAST))
            return PGM_OUT_OF_RANGE;
        double scale = how == PGM_LINEAR ? 1.0 / top : -top;
        for (int64_t k = 0; k < states; k++) {
            in[k] = pgm_both(how, in[k], scale);
            rest[k] = pgm_both(how, rest[k], scale);
        }
        least = least == INFINITY ? 1.0 : least * scale;
        lowest = least < lowest ? least : lowest;
        low *= least;
    }
    if (how == PGM_LINEAR && !((w->counts[f] == 2 ? w->low[f] * lowest : low) >= PGM_LEAST))
        return PGM_OUT_OF_RANGE;
    return 0.0;
}

/* Add the entries of a table over two variables to the messages out of it. */
PGM_EACH_KIND void pgm_by_pairs(pgm_messages *w, int64_t f, const int how)
{
    int64_t s = w->start[f], n = w->number[s + 1] - w->number[s];
    int64_t m = w->number[s + 2] - w->number[s + 1];
    const double *entries = how == PGM_LINEAR ? w->linear + w->place[f] : w->log + w->entry[f];
    const double *one = w->in, *two = one + n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            double x = entries[i * m + j];
            w->out[i] = pgm_either(how, w->out[i], pgm_both(how, x, two[j]));
            w->out[n + j] = pgm_either(how, w->out[n + j], pgm_both(how, x, one[i]));
        }
}

/* The same for any table. */
PGM_EACH_KIND void pgm_by_table(pgm_messages *w, int64_t f, const int how)
{
    int64_t first = w->start[f], n = w->start[f + 1] - first, base = w->number[first];
    const double *entries = how == PGM_LINEAR ? w->linear + w->place[f] : w->log + w->entry[f];
    memset(w->digit, 0, sizeof(int64_t) * n);
    for (int64_t e = 0; e < w->size[f]; e++) {
        double product = entries[e];
        if (product != pgm_none(how)) {
            w->before[0] = pgm_one(how);
            for (int64_t i = 0; i + 1 < n; i++)
                w->before[i + 1] = pgm_both(
                    how, w->before[i], w->in[w->number[first + i] - base + w->digit[i]]);
            for (int64_t i = n - 1; i >= 0; i--) {
                int64_t at = w->number[first + i] - base + w->digit[i];
                w->out[at] = pgm_either(how, w->out[at], pgm_both(how, w->before[i], product));
                product = pgm_both(how, product, w->in[at]);
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
PGM_EACH_KIND void pgm_by_counts(pgm_messages *w, int64_t f, const int how, const int64_t S)
{
    int64_t n = w->start[f + 1] - w->start[f];
    const double *log = w->log + w->entry[f], *linear = w->linear + w->place[f];
    double *last = w->before, *two = w->before + S;
    for (int64_t s = 0; s < S; s++) {
        w->forward[s] = s ? pgm_none(how) : pgm_one(how);
        last[s] = how == PGM_LINEAR ? linear[s] : log[((int64_t)1 << s) - 1];
    }
    for (int64_t i = 0; i + 1 < n; i++) {
        double *a = w->forward + i * S, *b = a + S;
        const double *in = w->in + 2 * i;
        for (int64_t s = 0; s < S; s++)
            b[s] = pgm_either(
                how, pgm_both(how, a[s], in[0]), pgm_both(how, a[s ? s - 1 : S - 1], in[1]));
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        const double *a = w->forward + i * S, *in = w->in + 2 * i;
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

PGM_EACH_KIND void pgm_by_kind(pgm_messages *w, int64_t f, const int how)
{
    int64_t size = w->number[w->start[f + 1]] - w->number[w->start[f]];
    for (int64_t k = 0; k < size; k++)
        w->out[k] = pgm_none(how);
    if (w->counts[f] == 2)
        pgm_by_counts(w, f, how, 2);
    else if (w->counts[f])
        pgm_by_counts(w, f, how, w->counts[f]);
    else if (w->start[f + 1] - w->start[f] == 2)
        pgm_by_pairs(w, f, how);
    else
        pgm_by_table(w, f, how);
}

/* Write the messages out of a factor, without damping, and the largest weight of the first one
   before it became 1; return 0, or why there are none. */
PGM_EACH_KIND double pgm_messages_out(pgm_messages *w, int64_t f, const int how, double *of_first)
{
    double why = pgm_messages_in(w, f, how);
    int64_t base = w->number[w->start[f]];
    if (why < 0.0)
        return why;
    pgm_by_kind(w, f, how);
    for (int64_t s = w->start[f]; s < w->start[f + 1]; s++) {
        double *out = w->out + w->number[s] - base, top = pgm_none(how);
        int64_t states = w->number[s + 1] - w->number[s];
        for (int64_t k = 0; k < states; k++)
            top = out[k] > top ? out[k] : top;
        if (top == pgm_none(how))
            return PGM_IMPOSSIBLE;
        double scale = how == PGM_LINEAR ? 1.0 / top : -top;
        for (int64_t k = 0; k < states; k++)
            out[k] = out[k] == top ? pgm_one(how) : pgm_both(how, out[k], scale);
        if (s == w->start[f])
            *of_first = top;
    }
    return 0.0;
}

/* Return a message of which a share is the old one, in logarithms. */
static inline double pgm_damped(const int how, double share, double now, double old)
{
    if (how == PGM_LINEAR)
        return now == old ? now : exp((1.0 - share) * log(now) + share * log(old));
    return (1.0 - share) * now + share * old;
}

/* Return the change of a weight, or of a logarithm a bound of it: |e^a - e^b| <= e^max |a - b|. */
static inline double pgm_change(const int how, double now, double old, double least)
{
    double d = fabs(now - old);
    if (how == PGM_LINEAR || d <= least)
        return d;
    return exp(now > old ? now : old) * (d < 1.0 ? d : 1.0);
}

/* Update the messages out of a factor; return the largest change of a weight, or why there is
   none. */
PGM_EACH_KIND double pgm_messages_update(pgm_messages *w, int64_t f, const int how)
{
    double change = 0.0, top, none = pgm_none(how), why = pgm_messages_out(w, f, how, &top);
    int64_t base = w->number[w->start[f]];
    if (why < 0.0)
        return why;
    for (int64_t s = w->start[f]; s < w->start[f + 1]; s++) {
        double again = none, *to = w->out + w->number[s] - base, *old = w->message + w->number[s];
        const double *rest = w->rest + w->number[s] - base;
        int64_t states = w->number[s + 1] - w->number[s];
        pgm_met *met = w->met + w->first[s];
        for (int64_t k = 0; k < states && w->damping > 0.0; k++) {
            if (to[k] != none && old[k] != none)
                to[k] = pgm_damped(how, w->damping, to[k], old[k]);
            again = to[k] > again ? to[k] : again;
        }
        for (int64_t k = 0; k < states; k++) {
            double now = w->damping > 0.0 ? pgm_without(how, to[k], again) : to[k];
            double d = now == old[k] ? 0.0 : pgm_change(how, now, old[k], change);
            change = d > change ? d : change;
            met[k].sum = now == none ? rest[k] : pgm_both(how, rest[k], now);
            met[k].zeros += (now == none) - (old[k] == none);
            old[k] = now;
        }
    }
    return change;
}

static double pgm_messages_updated(pgm_messages *w, int64_t f)
{
    if (w->how == PGM_MAXIMA)
        return pgm_messages_update(w, f, PGM_MAXIMA);
    double change = w->how == PGM_LINEAR ? pgm_messages_update(w, f, PGM_LINEAR) : PGM_OUT_OF_RANGE;
    if (change != PGM_OUT_OF_RANGE)
        return change;
    pgm_messages_to_logs(w);
    return pgm_messages_update(w, f, PGM_LOGS);
}

/* Update all factors once; return the largest change, or PGM_IMPOSSIBLE. */
static double pgm_messages_sweep(pgm_messages *w)
{
    double most = 0.0;
    if (w->done % PGM_SWEEPS_WITH_SUMS == 0)
        pgm_messages_sums(w);
    for (int64_t i = 0; i < w->swept; i++) {
        double change = pgm_messages_updated(w, w->done % 2 ? i : w->swept - 1 - i);
        if (change < 0.0)
            return change;
        most = change > most ? change : most;
    }
    w->done++;
    return most;
}

/* Begin with equal messages of all factors but those of a single variable; return 0 if no state is
   possible. */
static int pgm_messages_begin(pgm_messages *w, int64_t maximum)
{
    for (int64_t v = 0; v < w->variables; v++)
        w->decided[v] = -1;
    w->done = 0;
    w->damping = 0.0;
    w->how = maximum ? PGM_MAXIMA : PGM_LINEAR;
    pgm_messages_entries(w);
    /* Linear messages of single variables may underflow, so that these begin as logarithms. */
    for (int64_t f = 0; f < w->factors; f++)
        if (w->start[f + 1] - w->start[f] == 1 && w->low[f] < PGM_LEAST && !maximum)
            w->how = PGM_LOGS;
    for (int64_t k = 0; k < w->number[w->start[w->factors]]; k++)
        w->message[k] = pgm_one((int)w->how);
    for (int64_t f = 0; f < w->factors; f++) {
        const double *log = w->log + w->entry[f], *linear = w->linear + w->place[f];
        double top = -INFINITY, *to = w->message + w->number[w->start[f]];
        if (w->start[f + 1] - w->start[f] != 1)
            continue;
        for (int64_t k = 0; k < w->size[f]; k++)
            top = log[k] > top ? log[k] : top;
        if (top == -INFINITY)
            return 0;
        for (int64_t k = 0; k < w->size[f]; k++)
            to[k] = w->how == PGM_LINEAR ? linear[k] : log[k] - top;
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

/* Write the log weights of all states of variables; return whether each variable has a possible
   one. */
static int pgm_messages_weights(pgm_messages *w, double *to)
{
    pgm_messages_to_logs(w);
    pgm_messages_sums(w);
    for (int64_t v = 0; v < w->variables; v++) {
        int possible = 0;
        for (int64_t k = w->state[v]; k < w->state[v + 1]; k++) {
            possible |= !w->met[k].zeros;
            to[k] = w->met[k].zeros ? -INFINITY : w->met[k].sum;
        }
        if (!possible)
            return 0;
    }
    return 1;
}

/* Return the Bethe log Z, from the log weights of all states of variables. */
static double pgm_messages_bethe(pgm_messages *w, const double *weights)
{
    double total = 0.0, top = 0.0;
    pgm_messages_to_logs(w);
    pgm_messages_sums(w);
    for (int64_t f = 0; f < w->factors; f++) {
        int64_t first = w->start[f], base = w->number[first];
        if (first == w->start[f + 1]) {
            total += w->log[w->entry[f]];
            continue;
        }
        if (pgm_messages_out(w, f, PGM_LOGS, &top) < 0.0)
            return -INFINITY;
        total += top + pgm_log_total(w->in, w->out, w->number[first + 1] - base);
        for (int64_t s = first; s < w->start[f + 1]; s++)
            total -= pgm_log_total(w->in + w->number[s] - base, w->message + w->number[s],
                                   w->number[s + 1] - w->number[s]);
    }
    for (int64_t v = 0; v < w->variables; v++)
        total += pgm_log_total(weights + w->state[v], 0, w->state[v + 1] - w->state[v]);
    return total;
}

/* Write the log weights of the entries of a factor, by the messages into it. */
static void pgm_messages_factor(pgm_messages *w, int64_t f, double *to)
{
    int64_t first = w->start[f], n = w->start[f + 1] - first, base = w->number[first];
    pgm_messages_to_logs(w);
    pgm_messages_in(w, f, PGM_LOGS);
    memset(w->digit, 0, sizeof(int64_t) * n);
    for (int64_t e = 0; e < w->size[f]; e++) {
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
                pgm_messages_update(w, f, PGM_MAXIMA);
        }
        for (int64_t k = 0; k < w->state[v + 1] - base; k++) {
            const pgm_met *one = w->met + base + k, *most = w->met + base + best;
            if (one->zeros < most->zeros || (one->zeros == most->zeros && one->sum > most->sum))
                best = k;
        }
        w->decided[v] = best;
    }
}

#endif
