/* Updates of learning: a list of operations on fixed arrays, run many times.
 *
 * `fit` prepares the operations of an update once (learn/recorded): the mini-batch, the data phase,
 * the sweeps of the chains, the gradient and the step. This loop then makes any number of updates
 * without Python. Each operation is one of the routines of this folder, or a short loop below, and
 * does what one line of the Python update does, in the same order, in the same precision.
 *
 * Layout. An array with rows holds the rows of the chains first, and those of the mini-batch after
 * them. One outer product over both, with negative weights of the chains, is the gradient.
 *
 * Random numbers. The order of the rows in pass p is a function of a key and of p; the chains of
 * each update have a key of their own. Nothing depends on how many updates a call makes, or on the
 * number of threads.
 *
 * Reference: Run.update of pgmengine/learn/run.py (tests/learn/test_compiled_fits.py).
 */
#ifndef PGM_LEARNING_H
#define PGM_LEARNING_H

#include "coupled.h"
#include "means.h"
#include "optimizers.h"
#include "products.h"
#include "small_products.h"
#include "sweep.h"

/* ---- mini-batches ---- */

/* Rows 0 .. rows - 1 in random order (Fisher and Yates). A uniform of 64 bits chooses among the
 * rows that are left; its bias is below rows / 2^64. */
static void pgm_shuffle(const uint32_t *key, uint64_t pass, int64_t rows, int64_t *order)
{
    const uint32_t k[5] = {key[0], key[1], key[2], key[3],
                           0x1BD11BDAu ^ key[0] ^ key[1] ^ key[2] ^ key[3]};
    for (int64_t i = 0; i < rows; i++) order[i] = i;
    for (int64_t i = rows - 1; i > 0; i--) {
        uint64_t bits = pgm_threefry_bits(k, (uint64_t)i, pass);
        int64_t j = (int64_t)((unsigned __int128)bits * (uint64_t)(i + 1) >> 64), one = order[i];
        order[i] = order[j], order[j] = one;
    }
}

/* Take the next rows, ascending, and their weights. The last mini-batch of a pass may be smaller.
 * Returns their number. */
static int64_t pgm_next_batch(pgm_learning *u)
{
    if (!u->left) {
        pgm_shuffle(u->order_key, u->pass++, u->rows, u->order);
        u->left = u->rows;
    }
    const int64_t most = pgm_min_l(u->size, u->left), *order = u->order + u->rows - u->left;
    int64_t count = 0;
    u->left -= most;
    for (int64_t i = 0; i < most; i++) u->mark[order[i] / 64] |= UINT64_C(1) << order[i] % 64;
    for (int64_t w = 0; w <= (u->rows - 1) / 64; w++) {
        for (uint64_t left = u->mark[w]; left; left &= left - 1)
            u->batch[count++] = w * 64 + __builtin_ctzll(left);
        u->mark[w] = 0;
    }
    const int64_t n = count, chains = u->chains ? u->chains : n;
    double sum = 0.0;
    u->mass = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double weight = u->weight[u->batch[i]];
        sum += weight, u->mass += weight / n;
        u->weights[chains + i] = (float)(weight / n);
    }
    for (int64_t c = 0; c < chains; c++)
        u->weights[c] = u->chains ? -(float)(sum / n / chains) : -u->weights[chains + c];
    return n;
}

/* ---- short loops ---- */

/* out = weight a of each row */
PGM_INLINE void pgm_weigh(const float *restrict a, const float *weight, int64_t rows, int64_t n,
                          float *restrict out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j++) out[r * n + j] = weight[r] * a[r * n + j];
}

/* out = sum over rows of weight a, in one running sum of each column */
PGM_INLINE void pgm_sum_rows(const float *restrict a, const float *weight, int64_t rows, int64_t n,
                             float *restrict out)
{
    for (int64_t j = 0; j < n; j++) out[j] = 0.0f;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j++) out[j] += weight[r] * a[r * n + j];
}

/* The gradient of a weight in the centred model (Montavon and Mueller 2012),
 *
 *     dW' = dW - o_a db_b' - db_a o_b',
 *
 * and the parts dW' o_b and dW' o_a that the biases lose. */
#define PGM_CENTRE_ROWS 32 /* rows with a sum over columns of their own, for any number of threads */

typedef struct {
    const pgm_op *op;
    float *columns; /* (blocks, m) */
} pgm_centre_job;

static void pgm_centre_part(void *job, int64_t first, int64_t last)
{
    const pgm_centre_job *j = job;
    const pgm_op *o = j->op;
    const int64_t n = o->n, m = o->m;
    const float *left = o->a, *right = o->b; /* db_a, db_b */
    for (int64_t block = first; block < last; block++) {
        float *columns = j->columns + block * m;
        memset(columns, 0, sizeof *columns * (size_t)m);
        for (int64_t i = block * PGM_CENTRE_ROWS;
             i < n && i < (block + 1) * PGM_CENTRE_ROWS; i++) {
            const float own = isnan(o->x[i]) ? 0.0f : (float)o->x[i], at = -own, slope = -left[i];
            float *g = o->out + i * m;
            /* sixteen running sums, whatever the width of vectors is */
            float row[PGM_GROUP] = {0}, rest = 0.0f;
            int64_t k = 0;
            for (; k + PGM_GROUP <= m; k += PGM_GROUP)
                for (int v = 0; v < PGM_GROUP; v += PGM_WIDE) {
                    pgm_vf ob = *(const pgm_vf *)(o->c + k + v);
                    pgm_vf db = *(const pgm_vf *)(right + k + v);
                    pgm_vf new = *(pgm_vf *)(g + k + v) + (at * db + slope * ob);
                    *(pgm_vf *)(g + k + v) = new;
                    *(pgm_vf *)(row + v) += new * ob;
                    *(pgm_vf *)(columns + k + v) += own * new;
                }
            for (; k < m; k++) {
                g[k] += at * right[k] + slope * o->c[k];
                rest += g[k] * o->c[k];
                columns[k] += own * g[k];
            }
            for (int v = 0; v < PGM_GROUP; v++) rest += row[v];
            o->more[i] = rest;
        }
    }
}

static void pgm_centre(pgm_learning *u, const pgm_op *o)
{
    const int64_t blocks = (o->n + PGM_CENTRE_ROWS - 1) / PGM_CENTRE_ROWS;
    pgm_centre_job job = {o, u->scratch};
    float *sums = u->scratch + blocks * o->m;
    u->share(pgm_centre_part, &job, blocks, o->parts);
    memset(sums, 0, sizeof *sums * (size_t)o->m);
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t k = 0; k < o->m; k++) sums[k] += u->scratch[b * o->m + k];
    memcpy((float *)o->d, sums, sizeof *sums * (size_t)o->m);
}

/* Changes of means that are larger than `quiet`, added to the means that neighbours know. Returns
 * the largest difference from the means `before`, which become the present ones. */
PGM_INLINE float pgm_change_of(const float *restrict mean, int64_t n, float quiet,
                               float *restrict before, float *restrict sent,
                               float *restrict change)
{
    pgm_vf most = pgm_splat_f(0.0f);
    float top = 0.0f;
    int64_t j = 0;
    for (; j + PGM_WIDE <= n; j += PGM_WIDE) {
        pgm_vf now = *(const pgm_vf *)(mean + j), known = *(pgm_vf *)(sent + j), step = now - known;
        most = pgm_max_f(pgm_abs_f(now - *(pgm_vf *)(before + j)), most);
        step = pgm_select_f(pgm_abs_f(step) > quiet, step, pgm_splat_f(0.0f));
        *(pgm_vf *)(before + j) = now;
        *(pgm_vf *)(sent + j) = known + step;
        *(pgm_vf *)(change + j) = step;
    }
    for (; j < n; j++) {
        float step = mean[j] - sent[j], far = fabsf(mean[j] - before[j]);
        top = far > top ? far : top;
        step = fabsf(step) > quiet ? step : 0.0f;
        before[j] = mean[j];
        sent[j] += step;
        change[j] = step;
    }
    for (int k = 0; k < PGM_WIDE; k++) top = most[k] > top ? most[k] : top;
    return top;
}

/* ---- the loop ---- */

/* whether x has so many zeros that rows of a weight are added for the others; as adds_rows of
 * model/couplings.py */
static int pgm_adds_rows(const pgm_learning *u, const float *x, int64_t rows, int64_t n, int64_t m)
{
    const float few = u->sparse_share - u->listing / (float)m;
    const int64_t step = rows / 8 > 1 ? rows / 8 : 1;
    int64_t used = 0, seen = 0;
    if (few <= 0.0f) return 0;
    for (int64_t r = 0; r < rows; r += step, seen += n)
        for (int64_t j = 0; j < n; j++) used += x[r * n + j] != 0.0f;
    return (double)used <= (double)few * (double)seen;
}

static void pgm_product_of(pgm_learning *u, const pgm_op *o, const float *a, int64_t rows, float *out)
{
    const int64_t n = o->n, m = o->m;
    const pgm_matrix b = {o->b, o->turned ? 1 : m, o->turned ? n : 1, n, m};
    if (pgm_is_small(n, m))
        pgm_small_product(a, &b, rows, o->apart, out);
    else if (pgm_adds_rows(u, a, rows, n, m)) {
        pgm_product_job job = {a, rows, n, b, out, o->apart, 0};
        u->share(pgm_multiply_part, &job, rows, o->parts);
        if (job.failed) u->failed = o - u->op;
    } else {
        pgm_blas_job job = {a, o->b, out, rows, n, m, o->apart, o->turned};
        u->share(u->times, &job, (rows + 255) / 256 * ((m + 127) / 128), o->parts);
    }
}

static void pgm_outer_of(pgm_learning *u, const pgm_op *o, int64_t rows)
{
    if (pgm_is_small(o->n, o->m))
        pgm_small_outer(o->a, o->b, rows, o->n, o->m, o->out);
    else if (pgm_adds_rows(u, o->a, rows, o->n, o->m)) {
        pgm_product_job job = {o->a, rows, o->n, {o->b, o->m, 1, rows, o->m}, o->out, o->m, 0};
        u->share(pgm_outer_part, &job, o->n, o->parts);
        if (job.failed) u->failed = o - u->op;
    } else {
        pgm_blas_job job = {o->a, o->b, o->out, rows, o->n, o->m, o->m, 0};
        u->share(u->across, &job, (o->n + 127) / 128, o->parts);
    }
}

/* Give the chains the key and the kernel of an update. */
static void pgm_rekey(const pgm_learning *u, const pgm_op *o, int64_t t)
{
    if (o->key >= 0) memcpy(o->chains->key, u->key + (t * u->keys + o->key) * 4, 16);
    o->chains->alpha = o->anew ? 0.0f : u->alpha[t];
}

static void pgm_move_chains(pgm_learning *u, const pgm_op *o, int64_t t, int64_t chains)
{
    pgm_sweep_job job = {
        .chains = o->chains, .count = chains, .first = o->first, .sweeps = o->sweeps,
        .refresh = o->kind == PGM_SWEEP, .only = o->kind == PGM_SWEEP ? -1 : o->layer,
        .changed = u->moved, .capacity = o->capacity, .widest = o->widest};
    pgm_rekey(u, o, t);
    u->share(pgm_sweep_part, &job, chains, o->parts);
    if (job.failed) u->failed = o - u->op;
}

/* a step of an optimizer; parameters are read and written where the loop is in its updates */
static void pgm_make_step(pgm_learning *u, pgm_op *o, int64_t t)
{
    pgm_ascend_job *s = &o->step;
    const double number = (double)(u->first + t + 1);
    s->rate = u->rate[t * u->rates + o->from], s->fine = 1;
    s->p = t ? o->work : o->x, s->p2 = t + 1 == u->updates ? o->last : o->work;
    s->unbias1 = s->kind == PGM_SGD ? 1.0 : 1.0 - pow(o->beta1, number);
    s->unbias2 = s->kind == PGM_ADAM ? 1.0 - pow(o->beta2, number) : 1.0;
    u->share(pgm_ascend_part, s, o->n, o->parts);
    if (!s->fine) u->failed = o - u->op;
}

/* theta_fast = decay theta_fast + rate g, and theta + theta_fast (Tieleman and Hinton 2009) */
static void pgm_fast(pgm_learning *u, const pgm_op *o, int64_t t)
{
    const float rate = (float)u->rate[t * u->rates + o->from], decay = (float)o->number;
    int fine = 1;
    for (int64_t i = 0; i < o->n; i++) {
        const float fast = o->out[i] * decay + rate * o->a[i];
        fine &= isfinite(fast) != 0;
        o->out[i] = fast;
    }
    if (!fine) u->failed = o - u->op;
}

/* Averaged of learn/steps/wrappers.py, whose constant is o->rest */
static void pgm_average(const pgm_learning *u, const pgm_op *o, int64_t t)
{
    const int64_t made = u->first + t + 1, apart = (int64_t)o->rest;
    if (made % apart && made >= apart) return;
    double share = apart * o->number, early = (double)apart / (double)made;
    const double *p = t + 1 == u->updates ? o->last : o->work;
    share = share > early ? share : early;
    share = share < 1.0 ? share : 1.0;
    for (int64_t i = 0; i < o->n; i++) o->sums[i] += share * (p[i] - o->sums[i]);
}

/* Make one operation; returns the number of the next one. */
static int64_t pgm_operate(pgm_learning *u, pgm_op *o, int64_t t, int64_t n)
{
    const int64_t chains = u->chains ? u->chains : n;
    const int64_t from = o->span == PGM_OF_DATA ? chains : 0;
    const int64_t rows = o->rows                     ? o->rows
                         : o->span == PGM_OF_CHAINS ? chains
                         : o->span == PGM_OF_DATA   ? n
                                                    : chains + n;
    switch (o->kind) {
    case PGM_TAKE:
        for (int64_t i = 0; i < n; i++)
            memcpy(o->out + (chains + i) * o->m, o->a + u->batch[i] * o->m,
                   sizeof(float) * (size_t)o->m);
        break;
    case PGM_KEEP:
        for (int64_t i = 0; i < n; i++) {
            const float *seen = o->a + u->batch[i] * o->m;
            float *out = o->out + (chains + i) * o->m;
            for (int64_t j = 0; j < o->m; j++) out[j] = isnan(seen[j]) ? out[j] : seen[j];
        }
        break;
    case PGM_TAKE_STATES:
        for (int64_t i = 0; i < n; i++)
            memcpy(o->to_states + i * o->m, o->states + u->batch[i] * o->m, (size_t)o->m);
        break;
    case PGM_COPY_ROWS:
        for (int64_t i = 0; i < n; i++)
            memcpy(o->out + i * o->apart, o->a + (chains + i) * o->m, sizeof(float) * (size_t)o->m);
        break;
    case PGM_START_FIELD:
        for (int64_t r = from; r < from + rows; r++)
            memcpy(o->out + r * o->apart, o->a, sizeof(float) * (size_t)o->m);
        break;
    case PGM_ADD_PRODUCT:
        pgm_product_of(u, o, o->a + from * o->n, rows, o->out + from * o->apart);
        break;
    case PGM_ADD_EACH:
        memset(o->more, 0, sizeof(float) * (size_t)o->m);
        pgm_product_of(u, o, o->a, 1, o->more);
        for (int64_t r = from; r < from + rows; r++)
            for (int64_t j = 0; j < o->m; j++) o->out[r * o->apart + j] += o->more[j];
        break;
    case PGM_MEAN: {
        pgm_mean_job job = o->mean;
        job.eta = o->a + from * o->m, job.out = o->out + from * o->m;
        u->share(pgm_mean_part, &job, rows, o->parts);
        break;
    }
    case PGM_CHANGE: {
        const int64_t at = from * o->m;
        const float top = pgm_change_of(o->a + at, rows * o->m, (float)o->number, o->more + at,
                                        (float *)o->c + at, o->out + at);
        u->changed = top > u->changed ? top : u->changed;
        break;
    }
    case PGM_SETTLED: {
        const float changed = u->changed;
        u->changed = 0.0f;
        if (changed <= (float)o->number) return o->to;
        break;
    }
    case PGM_CHECK_FIELD: {
        double sum = 0.0;
        for (int64_t i = 0; i < rows * o->apart; i++) sum += o->out[i];
        if (!isfinite(sum)) u->failed = o - u->op;
        break;
    }
    case PGM_DRAW:
        if (o->turned) memset(o->to_states, 0, (size_t)(rows * o->m));
        /* fall through */
    case PGM_SWEEP: pgm_move_chains(u, o, t, rows); break;
    case PGM_PACK: u->share(pgm_pack_part, &o->pack, o->n, o->parts); break;
    case PGM_VALUES: pgm_values_of(o->chains->layer + o->layer, rows, o->out); break;
    case PGM_WEIGH: pgm_weigh(o->a, u->weights, rows, o->m, o->out); break;
    case PGM_OUTER: pgm_outer_of(u, o, rows); break;
    case PGM_SUM: pgm_sum_rows(o->a + from * o->m, u->weights + from, rows, o->m, o->out); break;
    case PGM_FOLLOW:
        for (int64_t j = 0; j < o->m; j++) {
            /* a batch that weighs nothing has no means; the first means are taken as they are */
            if (u->mass != 0.0) {
                const double mean = o->a[j] / u->mass;
                o->sums[j] = isnan(o->sums[j])
                                 ? mean
                                 : (1 - o->number) * o->sums[j] + o->number * mean;
            }
            /* without means so far the gradient, which is 0, stays as it is */
            o->out[j] = isnan(o->sums[j]) ? 0.0f : (float)o->sums[j];
        }
        break;
    case PGM_CENTRE: pgm_centre(u, o); break;
    case PGM_COMBINE:
        for (int64_t j = 0; j < o->m; j++) o->out[j] = o->a[j] + (float)o->number * o->b[j];
        break;
    case PGM_FAST: pgm_fast(u, o, t); break;
    case PGM_LADDER: {
        const pgm_density_job job = {o->chains, o->ladder->density};
        u->share(pgm_density_part, (void *)&job, rows, o->parts);
        pgm_couple(o->ladder, u->uniform + t * u->uniforms, u->rate[t * u->rates + o->from],
                   u->rate[t * u->rates + o->from + 1] != 0.0, o->chains->beta);
        break;
    }
    case PGM_PICK:
        for (int64_t c = 0; c < chains; c++)
            memcpy(o->out + c * o->m, o->a + o->chosen[c] * o->m, sizeof(float) * (size_t)o->m);
        break;
    case PGM_ASCEND: pgm_make_step(u, o, t); break;
    case PGM_AVERAGE: pgm_average(u, o, t); break;
    }
    return o - u->op + 1;
}

/* Make the updates; one that fails stops the loop. */
static void pgm_run_updates(pgm_learning *u)
{
    for (u->made = 0, u->failed = -1; u->made < u->updates; u->made++) {
        u->changed = 0.0f;
        const int64_t n = pgm_next_batch(u);
        for (int64_t i = 0; i < u->ops && u->failed < 0;)
            i = pgm_operate(u, u->op + i, u->made, n);
        if (u->failed >= 0) return;
    }
}

#endif
