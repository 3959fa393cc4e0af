/* Diagnostics of many series of draws: R-hat and the error of the mean.
 *
 * A series x consists of the draws of several chains, whose halves are compared. R-hat (Vehtari,
 * Gelman, Simpson, Carpenter and Buerkner 2021) is computed for two transformations of a series,
 * the normal scores of the ranks of x and of |x - median|:
 *
 *     R-hat^2 = (B / W + h - 1) / h    W: mean variance of halves of h draws, B: h var(their means)
 *
 * Both transformations are functions of the value. A series of K different values therefore needs
 * only its K values, how often each occurs in each half, and 2 K scores. Ranks follow from the
 * counts without sorting. The values are found in ascending order, with one pass over the series
 * for each. Series of more than PGM_COUNTED_VALUES values are sorted one by one.
 *
 * The error of the mean comes from the variance of the means of the chains, or from the
 * autocorrelation: sums over lags up to the end of Geyer's initial monotone sequence, which are few
 * if chains mix. The caller treats a series that needs more than PGM_MOST_LAGS.
 *
 * PGM_LANES series are judged together, one in each lane of a vector. Lanes are never combined, so
 * that the bits of a series depend neither on the others nor on the kind of processor.
 *
 * Reference: ArviZ (arviz_stats.base.array_stats: rhat, ess of method "mean"). Tests:
 * tests/infer/test_series.py.
 */
#ifndef PGM_SERIES_H
#define PGM_SERIES_H

#include <stdlib.h>

#include "routines.h"
#include "vectors.h"

/* A smaller range counts as 0, because ArviZ treats such draws as independent. */
#define PGM_NO_RANGE 1e-15

typedef struct {
    double value;
    int64_t place;
} pgm_series_draw;

/* Working memory of one thread: n numbers of a series, 2 halves of each chain. */
typedef struct {
    pgm_vd *x;            /* (chains, draws) */
    pgm_vd *y;            /* (halves, draws / 2) without the mean of the half */
    pgm_vd *mean;         /* (halves) */
    pgm_vd *count;        /* (values, halves) draws of each value in each half, */
    pgm_vd *total;        /* (values) and in all draws */
    pgm_vd *value;        /* (values) ascending; infinite beyond the last one */
    pgm_vd *score[2];     /* (values) of x and of |x - median| */
    pgm_vd *rho;          /* (PGM_MOST_LAGS + 2) autocorrelation */
    pgm_series_draw *sorted[2]; /* (n) */
    double *own, *often, *scores[2]; /* (n) different values of one series, counts, scores */
    int64_t *code;        /* (n) the number of the value of each draw */
    void *all;
} pgm_series_room;

static int pgm_series_open(pgm_series_room *r, const pgm_series_job *j)
{
    const int64_t n = j->chains * j->draws, halves = 2 * j->chains, v = PGM_COUNTED_VALUES;
    const int64_t vectors = 2 * n + halves + v * halves + 4 * v + PGM_MOST_LAGS + 2;
    const size_t size = (size_t)vectors * sizeof(pgm_vd) + (size_t)n * 2 * sizeof(pgm_series_draw)
                        + (size_t)n * (4 * sizeof(double) + sizeof(int64_t));
    char *p = r->all = malloc(size);
    if (!p) return 0;
#define PGM_TAKE(field, type, number) \
    r->field = (type *)p;             \
    p += (size_t)(number) * sizeof(type)
    PGM_TAKE(x, pgm_vd, n);
    PGM_TAKE(y, pgm_vd, n);
    PGM_TAKE(mean, pgm_vd, halves);
    PGM_TAKE(count, pgm_vd, v * halves);
    PGM_TAKE(total, pgm_vd, v);
    PGM_TAKE(value, pgm_vd, v);
    PGM_TAKE(score[0], pgm_vd, v);
    PGM_TAKE(score[1], pgm_vd, v);
    PGM_TAKE(rho, pgm_vd, PGM_MOST_LAGS + 2);
    PGM_TAKE(sorted[0], pgm_series_draw, n);
    PGM_TAKE(sorted[1], pgm_series_draw, n);
    PGM_TAKE(own, double, n);
    PGM_TAKE(often, double, n);
    PGM_TAKE(scores[0], double, n);
    PGM_TAKE(scores[1], double, n);
    PGM_TAKE(code, int64_t, n);
#undef PGM_TAKE
    return 1;
}

/* ---- the series of a block, and whether they move ---- */

static void pgm_series_load(const pgm_series_job *j, int64_t first, int lanes, pgm_vd *x)
{
    int64_t at[PGM_LANES];
    int together = 1;
    /* spare lanes repeat the last series */
    for (int l = 0; l < PGM_LANES; l++) at[l] = j->at[first + (l < lanes ? l : lanes - 1)];
    for (int l = 1; l < PGM_LANES; l++) together &= at[l] == at[0] + l;
    for (int64_t c = 0; c < j->chains; c++)
        for (int64_t t = 0; t < j->draws; t++) {
            const double *from = j->x + c * j->chain + t * j->draw;
            pgm_vd *to = x + c * j->draws + t;
            if (together)
                *to = *(const pgm_vd *)(from + at[0]);
            else
                for (int l = 0; l < PGM_LANES; l++) (*to)[l] = from[at[l]];
        }
}

/* variance of n vectors around their mean, divided by n - less; exactly 0 where all are equal */
static pgm_vd pgm_series_variance(const pgm_vd *x, int64_t n, int64_t less)
{
    pgm_vd sum = pgm_splat_d(0.0), square = sum, sum2 = sum, square2 = sum;
    const int64_t even = n & ~INT64_C(1);
    /* the processor adds two running sums at the same time */
    for (int64_t i = 0; i < even; i += 2) {
        sum += x[i] - x[0];
        sum2 += x[i + 1] - x[0];
    }
    if (even < n) sum += x[even] - x[0];
    const pgm_vd mean = x[0] + (sum + sum2) / (double)n;
    for (int64_t i = 0; i < even; i += 2) {
        square += (x[i] - mean) * (x[i] - mean);
        square2 += (x[i + 1] - mean) * (x[i + 1] - mean);
    }
    if (even < n) square += (x[even] - mean) * (x[even] - mean);
    return (square + square2) / (double)(n - less);
}

/* Find which series move; with the variance of the draws and of the means of chains. */
static void pgm_series_kinds(const pgm_series_job *j, const pgm_series_room *r, int64_t first,
                             int lanes, pgm_vd *variance, pgm_vd *of_means)
{
    pgm_vd low = pgm_splat_d(INFINITY), high = -low, sum = pgm_splat_d(0.0);
    pgm_vl moves = {0};
    for (int64_t c = 0; c < j->chains; c++) {
        pgm_vd least = pgm_splat_d(INFINITY), most = -least, here = pgm_splat_d(0.0);
        for (int64_t t = 0; t < j->draws; t++) {
            const pgm_vd x = r->x[c * j->draws + t];
            least = pgm_min_d(x, least);
            most = pgm_max_d(x, most);
            here += x;
        }
        moves |= least != most;
        low = pgm_min_d(least, low);
        high = pgm_max_d(most, high);
        sum += here;
        r->mean[c] = here / (double)j->draws;
    }
    for (int l = 0; l < lanes; l++)
        /* A single draw does not show whether its chain moves. A series with NaN is not constant.
         * */
        j->kind[first + l] = isnan(sum[l])                       ? PGM_SERIES_MOVES
                             : low[l] == high[l]                 ? PGM_SERIES_CONSTANT
                             : !moves[l] && j->draws > 1         ? PGM_SERIES_STUCK
                                                                 : PGM_SERIES_MOVES;
    if (!j->rhat) return;
    *variance = pgm_series_variance(r->x, j->chains * j->draws, 0);
    *of_means = pgm_series_variance(r->mean, j->chains, 0);
}

/* ---- R-hat ---- */

/* Give each of `count` ascending values its two scores; often[k] is how often value k occurs. */
static void pgm_series_scores(const pgm_series_job *j, int64_t count, const double *value,
                              const double *often, double *score, double *folded)
{
    const int64_t n = j->chains * j->ranked;
    double below = 0.0, middle[2] = {0.0, 0.0};
    for (int64_t k = 0; k < count; k++) {
        const double up_to = below + often[k];
        /* the median of an even number of draws is the mean of two */
        for (int e = 0; e < 2; e++) {
            const double place = (double)((n - 1 + e) / 2);
            if (below <= place && place < up_to) middle[e] = value[k];
        }
        score[k] = j->score ? j->score[(int64_t)(below + up_to) + 1] : value[k];
        below = up_to;
    }
    const double median = n % 2 ? middle[0] : (middle[0] + middle[1]) / 2;
    int64_t up = 0, down;
    while (up < count && value[up] < median) up++;
    down = up - 1;
    below = 0.0;
    /* Distances from the median ascend on either side: merge both. */
    while (up < count || down >= 0) {
        const int64_t old_up = up, old_down = down;
        const double right = up < count ? fabs(value[up] - median) : INFINITY;
        const double left = down >= 0 ? fabs(value[down] - median) : INFINITY;
        const double distance = left < right ? left : right;
        double up_to = below;
        for (; up < count && fabs(value[up] - median) == distance; up++) up_to += often[up];
        for (; down >= 0 && fabs(value[down] - median) == distance; down--) up_to += often[down];
        const double found = j->score ? j->score[(int64_t)(below + up_to) + 1] : distance;
        for (int64_t k = old_up; k < up; k++) folded[k] = found;
        for (int64_t k = down + 1; k <= old_down; k++) folded[k] = found;
        below = up_to;
    }
}

/* R-hat from the mean variance within halves of h draws, and the variance of their means */
PGM_INLINE double pgm_series_rhat(double within, double of_means, int64_t h)
{
    return sqrt((h * of_means / within + (double)h - 1.0) / (double)h);
}

/* the larger one, if neither is NaN; 1 if both are, since all values are equal */
PGM_INLINE double pgm_series_larger(double a, double b)
{
    if (isnan(a)) a = b;
    return isnan(a) ? 1.0 : b > a ? b : a;
}

/* Count the draws x[from], ..., x[to - 1] equal to `now`; lower `next` to the least larger draw. */
PGM_INLINE pgm_vd pgm_series_times(const pgm_vd *x, int64_t from, int64_t to, pgm_vd now,
                                   pgm_vd *next)
{
    const pgm_vd none = pgm_splat_d(INFINITY);
    pgm_vd least = *next, least2 = none;
    pgm_vl times = {0};
    int64_t t = from;
    /* The processor updates two running minima at the same time. True is -1. */
    for (; t + 2 <= to; t += 2) {
        times -= x[t] == now;
        times -= x[t + 1] == now;
        least = pgm_min_d(pgm_select_d(x[t] > now, x[t], none), least);
        least2 = pgm_min_d(pgm_select_d(x[t + 1] > now, x[t + 1], none), least2);
    }
    for (; t < to; t++) {
        times -= x[t] == now;
        least = pgm_min_d(pgm_select_d(x[t] > now, x[t], none), least);
    }
    *next = pgm_min_d(least2, least);
    return __builtin_convertvector(times, pgm_vd);
}

/* Find the values of each series in ascending order, and how often they occur in each half. Return
 * the largest number of values, PGM_COUNTED_VALUES at most. */
static int64_t pgm_series_values(const pgm_series_job *j, const pgm_series_room *r)
{
    const int64_t halves = 2 * j->chains, h = j->ranked / 2;
    const pgm_vd none = pgm_splat_d(INFINITY);
    pgm_vd now = none;
    for (int64_t c = 0; c < j->chains; c++)
        for (int64_t t = 0; t < j->ranked; t++) now = pgm_min_d(r->x[c * j->draws + t], now);
    for (int64_t k = 0; k < PGM_COUNTED_VALUES; k++) {
        if (!pgm_any_l(now < none)) return k;
        pgm_vd next = none, total = pgm_splat_d(0.0);
        for (int64_t c = 0; c < j->chains; c++) {
            const pgm_vd *x = r->x + c * j->draws;
            pgm_vd *count = r->count + k * halves + 2 * c;
            count[0] = pgm_series_times(x, 0, h, now, &next);
            /* the middle draw of an odd number is in no half */
            total += count[0] + pgm_series_times(x, h, j->ranked - h, now, &next);
            count[1] = pgm_series_times(x, j->ranked - h, j->ranked, now, &next);
            total += count[1];
        }
        r->value[k] = now;
        r->total[k] = total;
        now = next;
    }
    return PGM_COUNTED_VALUES;
}

/* R-hat of one transformation from the counts of `values` values */
static void pgm_series_from_counts(const pgm_series_job *j, const pgm_series_room *r,
                                   int64_t values, const pgm_vd *score, double *out)
{
    const int64_t halves = 2 * j->chains, h = j->ranked / 2;
    pgm_vd within = pgm_splat_d(0.0);
    for (int64_t s = 0; s < halves; s++) {
        pgm_vd mean = pgm_splat_d(0.0), square = pgm_splat_d(0.0);
        for (int64_t k = 0; k < values; k++) mean += r->count[k * halves + s] * score[k];
        mean /= (double)h;
        /* The variance of a half of equal draws must be 0, so that the mean must not be rounded. */
        for (int64_t k = 0; k < values; k++)
            mean = pgm_select_d(r->count[k * halves + s] == (double)h, score[k], mean);
        for (int64_t k = 0; k < values; k++)
            square += r->count[k * halves + s] * ((score[k] - mean) * (score[k] - mean));
        within += square / (double)(h - 1);
        r->mean[s] = mean;
    }
    within /= (double)halves;
    const pgm_vd of_means = pgm_series_variance(r->mean, halves, 1);
    for (int l = 0; l < PGM_LANES; l++) out[l] = pgm_series_rhat(within[l], of_means[l], h);
}

/* Sort n pairs by value, with b as spare memory; the sorted ones are returned. */
static pgm_series_draw *pgm_series_sort(pgm_series_draw *a, pgm_series_draw *b, int64_t n)
{
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t from = 0; from < n; from += 2 * run) {
            const int64_t half = pgm_min_l(from + run, n), end = pgm_min_l(from + 2 * run, n);
            int64_t left = from, right = half, to = from;
            while (left < half && right < end) {
                /* no branch, which would be predicted wrongly half of the time */
                const int take = a[left].value <= a[right].value;
                b[to++] = a[take ? left : right];
                left += take;
                right += !take;
            }
            while (left < half) b[to++] = a[left++];
            while (right < end) b[to++] = a[right++];
        }
        pgm_series_draw *const other = a;
        a = b;
        b = other;
    }
    return a;
}

/* R-hat of one transformation of the series in lane l, with the scores of its values */
static double pgm_series_from_draws(const pgm_series_job *j, const pgm_series_room *r,
                                    const double *score)
{
    const int64_t halves = 2 * j->chains, h = j->ranked / 2;
    double within = 0.0;
    for (int64_t s = 0; s < halves; s++) {
        const int64_t *code = r->code + s / 2 * j->ranked + s % 2 * (j->ranked - h);
        double mean = 0.0, square = 0.0;
        for (int64_t t = 0; t < h; t++) mean += score[code[t]] - score[code[0]];
        mean = score[code[0]] + mean / (double)h;
        for (int64_t t = 0; t < h; t++)
            square += (score[code[t]] - mean) * (score[code[t]] - mean);
        within += square / (double)(h - 1);
        r->mean[s] = pgm_splat_d(mean);
    }
    return pgm_series_rhat(within / (double)halves, pgm_series_variance(r->mean, halves, 1)[0], h);
}

/* R-hat of the series in lane l, which has many values */
static double pgm_series_by_sorting(const pgm_series_job *j, const pgm_series_room *r, int l)
{
    const int64_t n = j->chains * j->ranked;
    for (int64_t c = 0, i = 0; c < j->chains; c++)
        for (int64_t t = 0; t < j->ranked; t++, i++)
            r->sorted[0][i] = (pgm_series_draw){r->x[c * j->draws + t][l], i};
    const pgm_series_draw *sorted = pgm_series_sort(r->sorted[0], r->sorted[1], n);
    int64_t values = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!i || sorted[i].value != r->own[values - 1]) {
            r->own[values] = sorted[i].value;
            r->often[values++] = 0.0;
        }
        r->often[values - 1] += 1.0;
        r->code[sorted[i].place] = values - 1;
    }
    pgm_series_scores(j, values, r->own, r->often, r->scores[0], r->scores[1]);
    return pgm_series_larger(pgm_series_from_draws(j, r, r->scores[0]),
                             pgm_series_from_draws(j, r, r->scores[1]));
}

static void pgm_series_rhats(const pgm_series_job *j, const pgm_series_room *r, int64_t first,
                             int lanes)
{
    const int64_t values = pgm_series_values(j, r);
    double value[PGM_COUNTED_VALUES], often[PGM_COUNTED_VALUES], score[2][PGM_COUNTED_VALUES];
    double rhat[2][PGM_LANES];
    for (int l = 0; l < PGM_LANES; l++) {
        int64_t own = 0;
        for (; own < values && r->value[own][l] < INFINITY; own++) {
            value[own] = r->value[own][l];
            often[own] = r->total[own][l];
        }
        pgm_series_scores(j, own, value, often, score[0], score[1]);
        for (int e = 0; e < 2; e++)
            for (int64_t k = 0; k < values; k++) r->score[e][k][l] = k < own ? score[e][k] : 0.0;
    }
    for (int e = 0; e < 2; e++) pgm_series_from_counts(j, r, values, r->score[e], rhat[e]);
    for (int l = 0; l < lanes; l++) {
        /* R-hat of numbers that are not finite is NaN. */
        if (j->kind[first + l] != PGM_SERIES_MOVES || !isfinite(j->variance[first + l])) continue;
        double seen = 0.0;
        for (int64_t k = 0; k < values; k++) seen += r->total[k][l];
        /* If a series has more values, its counts are incomplete. */
        j->rhat[first + l] = seen == (double)(j->chains * j->ranked)
                                 ? pgm_series_larger(rhat[0][l], rhat[1][l])
                                 : pgm_series_by_sorting(j, r, l);
    }
}

/* ---- the error of the mean ---- */

/* Means of products of y at two lags, t and t + 1, over all halves: sums divided by their length */
static void pgm_series_lags(const pgm_series_job *j, const pgm_series_room *r, int64_t t,
                            pgm_vd found[2])
{
    const int64_t halves = 2 * j->chains, h = j->draws / 2;
    pgm_vd here = pgm_splat_d(0.0), after = here, here2 = here, after2 = here;
    for (int64_t s = 0; s < halves; s++) {
        const pgm_vd *y = r->y + s * h, *later = y + t;
        const int64_t both = h - t - 1;
        int64_t i = 0;
        /* the processor adds four running sums at the same time */
        for (; i + 2 <= both; i += 2) {
            here += y[i] * later[i];
            after += y[i] * later[i + 1];
            here2 += y[i + 1] * later[i + 1];
            after2 += y[i + 1] * later[i + 2];
        }
        for (; i < both; i++) {
            here += y[i] * later[i];
            after += y[i] * later[i + 1];
        }
        here += y[both] * later[both];
    }
    found[0] = (here + here2) / (double)(halves * h);
    found[1] = (after + after2) / (double)(halves * h);
}

/* ESS from the autocorrelation of lane l, whose initial positive sequence ends at lag t */
static double pgm_series_ess(pgm_vd *rho, int l, int64_t t, double even, double n)
{
    const int64_t last = t - 2;
    double tau = -1.0;
    if (even > 0.0) rho[last + 1][l] = even;
    /* Geyer's initial monotone sequence */
    for (int64_t i = 1; i <= last - 2; i += 2)
        if (rho[i + 1][l] + rho[i + 2][l] > rho[i - 1][l] + rho[i][l])
            rho[i + 1][l] = rho[i + 2][l] = (rho[i - 1][l] + rho[i][l]) / 2.0;
    for (int64_t i = 0; i <= last; i++) tau += 2.0 * rho[i][l];
    tau += rho[last + 1][l];
    return n / fmax(tau, 1.0 / log10(n));
}

/* Effective numbers of draws of a block, from the halves of chains; NaN beyond PGM_MOST_LAGS. */
static void pgm_series_autocorrelation(const pgm_series_job *j, const pgm_series_room *r,
                                       int64_t first, int lanes, double *ess)
{
    const int64_t halves = 2 * j->chains, h = j->draws / 2;
    const double n = (double)(halves * h);
    pgm_vd low = pgm_splat_d(INFINITY), high = -low, lag[2], even = pgm_splat_d(1.0), odd;
    int64_t t = 1;
    int active = 0;
    for (int64_t s = 0; s < halves; s++) {
        const pgm_vd *x = r->x + s / 2 * j->draws + s % 2 * (j->draws - h);
        pgm_vd sum = pgm_splat_d(0.0);
        for (int64_t i = 0; i < h; i++) {
            low = pgm_min_d(x[i], low);
            high = pgm_max_d(x[i], high);
            sum += x[i];
        }
        r->mean[s] = sum / (double)h;
        for (int64_t i = 0; i < h; i++) r->y[s * h + i] = x[i] - r->mean[s];
    }
    pgm_series_lags(j, r, 0, lag);
    const pgm_vd within = lag[0] * ((double)h / ((double)h - 1.0));
    const pgm_vd whole = within * (((double)h - 1.0) / (double)h)
                         + pgm_series_variance(r->mean, halves, 1);
    odd = 1.0 - (within - lag[1]) / whole;
    memset(r->rho, 0, (PGM_MOST_LAGS + 2) * sizeof(pgm_vd));
    r->rho[0] = even;
    r->rho[1] = odd;
    for (int l = 0; l < PGM_LANES; l++) {
        const int moves = l < lanes && j->kind[first + l] == PGM_SERIES_MOVES;
        ess[l] = NAN;
        if (moves && high[l] - low[l] < PGM_NO_RANGE) ess[l] = n;
        else if (moves && isfinite(odd[l])) active |= 1 << l;
    }
    /* Geyer's initial positive sequence */
    while (active) {
        for (int l = 0; l < PGM_LANES; l++)
            if (active >> l & 1 && !(t < h - 3 && even[l] + odd[l] > 0.0)) {
                ess[l] = pgm_series_ess(r->rho, l, t, even[l], n);
                active ^= 1 << l;
            }
        if (!active) break;
        if (t + 2 > PGM_MOST_LAGS) {
            for (int l = 0; l < lanes; l++)
                if (active >> l & 1) j->kind[first + l] = PGM_SERIES_SLOW;
            break;
        }
        pgm_series_lags(j, r, t + 1, lag);
        even = 1.0 - (within - lag[0]) / whole;
        odd = 1.0 - (within - lag[1]) / whole;
        for (int l = 0; l < PGM_LANES; l++)
            if (active >> l & 1 && even[l] + odd[l] >= 0.0) {
                r->rho[t + 1][l] = even[l];
                r->rho[t + 2][l] = odd[l];
            }
        t += 2;
    }
}

/* Items are blocks of PGM_LANES series. */
static void pgm_series_part(void *job, int64_t begin, int64_t end)
{
    pgm_series_job *j = job;
    pgm_series_room room, *r = &room;
    if (!pgm_series_open(r, j)) {
        j->failed = 1;
        return;
    }
    for (int64_t b = begin; b < end; b++) {
        const int64_t first = b * PGM_LANES;
        const int lanes = (int)pgm_min_l(j->series - first, PGM_LANES);
        pgm_vd variance, of_means;
        double ess[PGM_LANES];
        int any = 0;
        pgm_series_load(j, first, lanes, r->x);
        pgm_series_kinds(j, r, first, lanes, &variance, &of_means);
        if (!j->rhat) continue;
        for (int l = 0; l < lanes; l++) {
            const double count = (double)j->chains;
            j->variance[first + l] = variance[l];
            any |= j->kind[first + l] == PGM_SERIES_MOVES;
            if (j->kind[first + l] == PGM_SERIES_CONSTANT) j->mcse[first + l] = 0.0;
            if (j->kind[first + l] == PGM_SERIES_STUCK) j->mcse[first + l] = sqrt(of_means[l]);
            if (j->kind[first + l] == PGM_SERIES_MOVES)
                j->mcse[first + l] = j->error == PGM_SERIES_BY_MEANS
                                         ? sqrt(of_means[l] / (count - 1.0))
                                         : NAN;
        }
        if (!any) continue;
        if (j->ranked) pgm_series_rhats(j, r, first, lanes);
        if (j->error == PGM_SERIES_BY_LAGS) {
            pgm_series_autocorrelation(j, r, first, lanes, ess);
            for (int l = 0; l < lanes; l++)
                if (j->kind[first + l] == PGM_SERIES_MOVES)
                    j->mcse[first + l] = sqrt(variance[l] / ess[l]);
        }
    }
    free(r->all);
}

#endif
