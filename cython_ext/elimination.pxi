# Junction trees for Python: checks of arrays, memory, and the order of the passes.

from libc.math cimport NAN, log2
from libc.string cimport memset

cimport junction as jt


cdef struct arrays:
    double **table
    double **gain
    const double **value
    double *scale
    double *spare
    double *child
    double *block
    double *sums
    double *sorted
    double *drawn
    int64_t *offset
    int64_t *digit
    double *tables
    double *separators


cdef class JunctionTree:
    """The junction tree of an elimination order, for variables 0 .. n - 1 and factors.

    cards (n,) int64 are the numbers of states. Factor f has the variables
    scope[start[f]:start[f + 1]], which are distinct; its table is in C order, the last variable
    fastest. start (F + 1,) is int64, scope int32; an empty scope is a constant. order (n,) int32
    has every variable once.

    cliques: number of cliques. largest: log2 of the entries of the largest one. entries,
    separators: entries of all cliques and of all separators, as floats.

    >>> import numpy as np
    >>> from pgmengine._kernels import JunctionTree
    >>> tree = JunctionTree(np.array([2, 2]), np.array([0, 1, 3]),
    ...                     np.array([0, 0, 1], dtype=np.int32), np.array([1, 0], dtype=np.int32))
    >>> result = tree.run(np.log([0.5, 1.5, 0.2, 0.8, 0.6, 0.4]), marginals=True)
    >>> result["log_z"].round(4), result["marginals"][:, 0].round(2)
    (array([0.6931]), array([0.25, 0.75, 0.5 , 0.5 ]))
    """

    cdef jt.pgm_tree tree
    cdef readonly int64_t cliques
    cdef readonly double largest, entries, separators
    cdef object keep
    cdef int64_t[::1] size
    cdef int64_t[::1] margin_at
    cdef double children, factor_entries
    # a tree whose cliques belong to the tree in `keep`
    cdef bint shares

    def __cinit__(self):
        memset(&self.tree, 0, sizeof(jt.pgm_tree))

    def __dealloc__(self):
        if self.shares:
            jt.pgm_tree_free_part(&self.tree)
        else:
            jt.pgm_tree_free(&self.tree)

    def __init__(self, const int64_t[::1] cards, const int64_t[::1] start,
                 const int32_t[::1] scope, const int32_t[::1] order):
        cdef jt.pgm_tree *t = &self.tree
        cdef int64_t i, n = cards.shape[0], factors = start.shape[0] - 1
        cdef bint fine
        if self.keep is not None:
            raise PgmError("a junction tree is built once; make another object")
        self.keep = check_factors(cards, start, scope, order)
        t.variables, t.factors = n, factors
        t.card = &cards[0] if n else NULL
        t.order = &order[0] if n else NULL
        t.start = &start[0]
        t.scope = &scope[0] if scope.shape[0] else NULL
        with nogil:
            fine = jt.pgm_tree_build(t)
        if not fine:
            raise MemoryError
        self.cliques = t.cliques
        self.size = np.zeros(max(t.factors, 1), dtype=np.int64)
        self.margin_at = np.zeros(t.variables + 1, dtype=np.int64)
        self.measure()

    cdef JunctionTree part(self, const int64_t *card):
        """Return a tree with the same cliques, whose numbers of states can be changed."""
        cdef JunctionTree p = JunctionTree.__new__(JunctionTree)
        p.shares, p.keep, p.cliques = True, self, self.cliques
        if not jt.pgm_tree_part(&p.tree, &self.tree, card):
            raise MemoryError
        p.size, p.margin_at = np.zeros_like(self.size), np.zeros_like(self.margin_at)
        return p

    cdef measure(self):
        """Sum up the sizes of tables; float64, because they may exceed any integer."""
        cdef jt.pgm_tree *t = &self.tree
        cdef int64_t i, k
        cdef double size, below
        self.entries = self.separators = self.largest = self.children = self.factor_entries = 0.0
        for i in range(t.variables):
            self.margin_at[i + 1] = self.margin_at[i] + t.card[i]
        for i in range(t.factors):
            size = 1.0
            for k in range(t.start[i], t.start[i + 1]):
                size *= t.card[t.scope[k]]
            if size > 2147483647.0:
                raise PgmError(f"factor {i} has {size:.3g} entries, expected at most 2^31 - 1: "
                               "leave it out or split it")
            self.size[i] = <int64_t> size
            self.factor_entries += size
        for i in range(t.cliques):
            self.entries += t.size[i]
            self.separators += t.separator[i]
            self.largest = max(self.largest, log2(t.size[i]))
            below = 0.0
            for k in range(t.child_start[i], t.child_start[i + 1]):
                below += t.separator[t.child[k]]
            self.children = max(self.children, below)

    def clique_scopes(self):
        """Return the variables of each clique, a list of arrays, in the order of their axes."""
        cdef jt.pgm_tree *t = &self.tree
        cdef int64_t i, k
        scopes = []
        for i in range(t.cliques):
            scopes.append(np.array([t.member[k] for k in range(t.member_start[i],
                                                               t.member_start[i + 1])],
                                   dtype=np.int32))
        return scopes

    def parents(self):
        """Return the parent of each clique, -1 for roots."""
        return np.array([self.tree.parent[i] for i in range(self.cliques)], dtype=np.int32)

    def bytes(self, int64_t lanes=1, bint more=False, int64_t draws=0, double narrow=0.0):
        """Return an estimate of the bytes of a run: tables, messages and schedule, without results.

        more: whether the run computes more than log_z. narrow: the number of entries of factors
        without lanes; 0 gives an upper bound.
        """
        cdef jt.pgm_tree *t = &self.tree
        cdef double plan = 0.0, below = 0.0, spare = 1.0
        cdef int64_t i, axes, inner = 1, most = 1
        for i in range(t.cliques):
            jt.pgm_block_axes(t, i, &inner)
            most = max(most, inner)
            axes = t.member_start[i + 1] - t.member_start[i]
            # each clique is an operand of itself and of its parent
            plan += 2.0 * (4 * inner + 16 * axes + sizeof(c.pgm_operand)) + sizeof(c.pgm_clique)
            spare = max(spare, t.separator[i])
        for i in range(t.factors):
            if t.home[i] >= 0:
                jt.pgm_block_axes(t, t.home[i], &inner)
                axes = t.member_start[t.home[i] + 1] - t.member_start[t.home[i]]
                plan += 4 * inner + 16 * axes + sizeof(c.pgm_operand)
        below = self.separators + self.children if more else t.peak
        plan += 16.0 * draws + (8.0 * min(<double> c.PGM_TREE_SUMS, 2.0 ** self.largest)
                                if draws else 0.0)
        return plan + 24.0 * (t.factors + t.cliques) + 8.0 * narrow + 8.0 * lanes * (
            self.factor_entries - narrow + spare + below + 2 * most + t.cliques + 2)

    cdef plan(self):
        """Make the schedule, once."""
        cdef bint fine
        if self.tree.clique != NULL:
            return
        if not self.entries < 2.0 ** 50:
            raise PgmError(f"the cliques have {self.entries:.3g} entries, expected below 2^50: "
                           "find a better elimination order")
        # with the GIL, so that two runs in two threads make only one schedule
        fine = jt.pgm_tree_plan(&self.tree)
        if not fine:
            raise MemoryError

    def run(self, values, *, int64_t lanes=1, wide=None, where=None,
            bint log_z=True, bint marginals=False, expected=None, bint mode=False,
            int64_t draws=0, uniforms=None, key=None, stream=None, bint log_space=False,
            progress=None):
        """Return the wanted quantities of all lanes, a dictionary.

        Parameters
        ----------
        values : (...,) float64, or a list of such arrays
            The log tables of the factors, one after the other; -inf is impossible. Each of several
            arrays has whole tables, so that tables in different places need not be copied.
        lanes : int
            Number of tables that are answered at once.
        wide : (F,) uint8, optional
            Whether a factor has lanes: its table is then (entries, lanes), else (entries,).
        where : (F,) int64, optional
            First entry of each factor in `values`, which is then one array, so that factors may
            share a table. Without it, the tables fill `values` in order.
        log_z, marginals, mode : bool
            Quantities wanted. `mode` needs a separate pass.
        expected : (...,) int64, optional
            Factors whose expected indicators, the marginals over their scopes, are wanted.
        draws : int
            Number of exact draws for each lane.
        uniforms : (draws, lanes, cliques) float64, optional
            Uniforms of the draws. Without them they come from the generator at `key` (4,) uint32,
            sweep number clique, chain stream[lane], one block for 32 draws; stream (lanes,) uint32
            is 0, 1, ... by default.
        log_space : bool
            Compute with logarithms from the start. After an underflow, a run does so in any case.
        progress : callable, optional
            Receives the share of the work done, about ten times a second.

        Returns
        -------
        dict
            log_z (lanes,); marginals (sum of cards, lanes), expected (entries of these factors,
            lanes), both NaN where log_z is -inf; mode (lanes, n) int32 and mode_value (lanes,);
            samples (draws, lanes, n) int32. States of impossible lanes are -1. log_space: whether
            logarithms were used.

        Raises
        ------
        PgmError
            If an array does not fit, or a value is NaN or +inf.
        """
        cdef jt.pgm_tree *t = &self.tree
        cdef Run r = Run()
        r.tree = self
        r.lanes = lanes
        if lanes < 1:
            raise PgmError(f"lanes is {lanes}, expected at least 1")
        if draws < 0:
            raise PgmError(f"draws is {draws}, expected at least 0")
        r.place(values, wide, where)
        r.ask(marginals, expected)
        r.random(draws, uniforms, key, stream)
        self.plan()
        r.allocate(marginals or expected is not None, mode, draws)
        r.watch.progress = progress
        r.watch.total = max(1.0, self.entries * lanes * (
            (log_z or draws > 0) + (marginals or expected is not None) + mode))
        result = {}
        if log_z or marginals or expected is not None or draws:
            r.sums(log_space)
            result["log_z"] = r.log_scale
            result["log_space"] = bool(r.job.additive)
            if draws:
                result["samples"] = r.states(draws)
            if marginals or expected is not None:
                r.distribute(expected)
                if marginals:
                    result["marginals"] = r.margin
                if expected is not None:
                    result["expected"] = r.expected
        if mode:
            result["mode_value"], result["mode"] = r.most_probable()
        return result


cdef class Run:
    """One run over a junction tree: its memory, and the passes."""

    cdef JunctionTree tree
    cdef c.pgm_tree_job job
    cdef c.pgm_values_job values_job
    cdef c.pgm_draw_job draw_job
    cdef arrays a
    cdef void *memory
    cdef int64_t lanes, gained
    cdef bint stacked
    cdef Watch watch
    cdef object keep, held, log_scale, margin, expected
    # arrays of the tables, and the address of each table
    cdef object values
    cdef int64_t[::1] at
    cdef const uint8_t[::1] wide

    def __cinit__(self):
        self.memory = NULL
        self.watch = Watch()

    def __dealloc__(self):
        free(self.memory)

    cdef place(self, values, wide, where):
        """Check that the tables of all factors lie in `values`, and find them."""
        cdef int64_t factors = self.tree.tree.factors
        self.wide = np.zeros(max(factors, 1), dtype=np.uint8) if wide is None \
            else np.ascontiguousarray(wide, dtype=np.uint8)
        if wide is not None and self.wide.shape[0] != factors:
            raise PgmError(f"wide has {self.wide.shape[0]} numbers, expected one for each of the "
                           f"{factors} factors")
        self.at = np.zeros(max(factors, 1), dtype=np.int64)
        self.values = values if isinstance(values, list) else [values]
        if where is None:
            self.fill()
        else:
            self.place_at(values, where)

    cdef fill(self):
        """Find the tables of all factors, which fill the arrays in order."""
        cdef const double[::1] part
        cdef int64_t f = 0, used = 0, left = 0, needed = 0, factors = self.tree.tree.factors
        for array in self.values:
            part = array
            used = 0
            while f < factors and used + self.entries(f) <= part.shape[0]:
                self.at[f] = <int64_t> &part[used]
                used += self.entries(f)
                f += 1
            left = part.shape[0] - used
            if left:
                break
        if f == factors and not left:
            return
        for f in range(factors):
            needed += self.entries(f)
        given = sum([len(array) for array in self.values])
        raise PgmError(f"values has {given} entries, expected {needed}: the tables of {factors} "
                       f"factors in {self.lanes} lanes, each within one array")

    cdef place_at(self, const double[::1] values, where):
        """Find the table of each factor in one array."""
        cdef int64_t f, n, factors = self.tree.tree.factors
        cdef const int64_t[::1] first = np.ascontiguousarray(where, dtype=np.int64)
        if first.shape[0] != factors:
            raise PgmError(f"where has {first.shape[0]} numbers, expected one for each "
                           f"of the {factors} factors")
        for f in range(factors):
            n = self.entries(f)
            if first[f] < 0 or first[f] > values.shape[0] - n:
                raise PgmError(f"the table of factor {f} has {n} entries from {first[f]} on, "
                               f"and values has {values.shape[0]} entries")
            self.at[f] = <int64_t> &values[first[f]]

    cdef inline int64_t entries(self, int64_t f):
        """Return the number of entries of a factor in all lanes."""
        return self.tree.size[f] * (self.lanes if self.wide[f] else 1)

    cdef ask(self, bint marginals, expected):
        """Check the factors whose expected indicators are wanted."""
        cdef int64_t f, i, factors = self.tree.tree.factors
        cdef const int64_t[::1] asked
        cdef uint8_t[::1] seen
        self.gained = 0
        if expected is None:
            return
        asked = np.ascontiguousarray(expected, dtype=np.int64)
        seen = np.zeros(max(factors, 1), dtype=np.uint8)
        for i in range(asked.shape[0]):
            f = asked[i]
            if f < 0 or f >= factors:
                raise PgmError(f"expected[{i}] is {f}, and the factors are 0 to {factors - 1}")
            if seen[f]:
                raise PgmError(f"expected[{i}] is {f}, which is there twice")
            seen[f] = 1
            self.gained += self.tree.size[f]
        self.keep = asked

    cdef random(self, int64_t draws, uniforms, key, stream):
        """Check the uniforms of the draws, or the place of the generator that makes them."""
        cdef c.pgm_draw_job *d = &self.draw_job
        cdef const double[:, :, ::1] given
        cdef const uint32_t[::1] words, streams
        d.uniform = NULL
        d.key = NULL
        if not draws:
            return
        if uniforms is not None:
            given = np.ascontiguousarray(uniforms, dtype=np.float64)
            if given.shape[0] != draws or given.shape[1] != self.lanes \
                    or given.shape[2] != self.tree.cliques:
                raise PgmError(f"uniforms has the shape ({given.shape[0]}, {given.shape[1]}, "
                               f"{given.shape[2]}), expected ({draws}, {self.lanes}, "
                               f"{self.tree.cliques})")
            if given.size and not ((np.asarray(given) >= 0) & (np.asarray(given) <= 1)).all():
                raise PgmError("uniforms has numbers outside 0 to 1")
            d.uniform = &given[0, 0, 0] if self.tree.cliques else NULL
            self.held = given
            return
        if key is None:
            raise PgmError("draws need uniforms or a key")
        words = np.array(key, dtype=np.uint32)
        streams = np.arange(self.lanes, dtype=np.uint32) if stream is None \
            else np.array(stream, dtype=np.uint32)
        if words.shape[0] != 4 or streams.shape[0] != self.lanes:
            raise PgmError(f"key has {words.shape[0]} words and stream {streams.shape[0]}, "
                           f"expected 4 and one for each of the {self.lanes} lanes")
        d.key, d.stream = &words[0], &streams[0]
        self.held = words, streams

    cdef allocate(self, bint down, bint mode, int64_t draws):
        """Allocate all memory except the results as one block."""
        cdef jt.pgm_tree *t = &self.tree.tree
        cdef arrays *a = &self.a
        cdef int64_t f, i, n, tables = 0, spare = 1, lanes = self.lanes
        cdef int64_t room = t.factors + t.cliques
        cdef int64_t messages, drawn = 0
        cdef double *at
        self.stacked = not (down or mode or draws)
        messages = <int64_t> (t.peak if self.stacked else self.tree.separators)
        for f in range(t.factors):
            tables += self.tree.size[f] * (lanes if self.wide[f] else 1)
        for i in range(t.cliques):
            spare = max(spare, t.clique[i].separator)
            drawn = max(drawn, c.pgm_sums_room(&t.clique[i], draws))
        n = 3 * room + tables + (messages + spare + t.cliques) * lanes
        n += (<int64_t> self.tree.children * lanes if down else 0) + 2 * draws + drawn
        n += (2 * t.most_inner + 1) * lanes + 80 + t.most_operands + t.most_axes
        self.memory = malloc(n * sizeof(double))
        if self.memory == NULL:
            raise MemoryError
        a.table = <double **> self.memory
        a.gain = a.table + room
        a.value = <const double **> (a.gain + room)
        at = <double *> (a.value + room)
        a.offset = <int64_t *> at
        a.digit = a.offset + t.most_operands
        at += t.most_operands + t.most_axes
        a.sorted = at
        at += 2 * draws
        a.drawn = at
        at += drawn + 16
        a.block = at
        at += t.most_inner * lanes + 16
        a.sums = at
        at += (t.most_inner + 1) * lanes + 16
        a.scale = at
        at += t.cliques * lanes
        a.tables = at
        at += tables
        a.separators = at
        at += messages * lanes
        a.spare = at
        at += spare * lanes
        a.child = at
        for f in range(t.factors):
            a.value[f] = <const double *> self.at[f]
        memset(a.gain, 0, room * sizeof(double *))

    cdef begin(self, bint additive, bint largest):
        """Prepare a job with tables of values, or with the values themselves."""
        cdef jt.pgm_tree *t = &self.tree.tree
        cdef c.pgm_tree_job *j = &self.job
        cdef arrays *a = &self.a
        cdef int64_t f, i, l, lanes = self.lanes
        cdef double *at = a.tables
        cdef double[::1] log_scale = np.zeros(lanes)
        for f in range(t.factors):
            a.table[f] = <double *> a.value[f] if additive else at
            at += self.tree.size[f] * (lanes if self.wide[f] else 1)
        at = a.separators
        for i in range(t.cliques):
            a.table[t.factors + i] = at
            at += t.clique[i].separator * lanes
        self.log_scale = np.asarray(log_scale)
        j.clique, j.cliques, j.factors, j.lanes, j.variables = \
            t.clique, t.cliques, t.factors, lanes, t.variables
        j.additive, j.largest, j.table, j.gain, j.wide = \
            additive, largest, a.table, a.gain, &self.wide[0]
        j.scale, j.log_scale, j.spare, j.child = a.scale, &log_scale[0], a.spare, a.child
        j.margin, j.block, j.sums, j.offset, j.digit = NULL, a.block, a.sums, a.offset, a.digit
        j.stack = a.separators if self.stacked else NULL
        j.flagged = j.stopped = 0
        j.poll, j.token = watch, &self.watch.state
        j.due = j.done + (1 << 20)
        self.watch.job = j
        self.watch.begin()
        self.values_job.value, self.values_job.size = a.value, &self.tree.size[0]
        self.values_job.bad = self.values_job.lost = 0
        with nogil:
            routines.tabulate(j, &self.values_job)
        if self.values_job.bad:
            raise PgmError(f"the table of factor {self.values_job.bad - 1} has NaN or +inf: log "
                           "values are numbers or -inf")
        if additive:
            for f in range(t.factors):
                if t.home[f] < 0:
                    for l in range(lanes):
                        log_scale[l] += a.value[f][l if self.wide[f] else 0]

    cdef collect(self):
        cdef c.pgm_tree_job *j = &self.job
        with nogil:
            routines.collect(j, 0, j.cliques)
        self.check()

    cdef check(self):
        if self.job.stopped:
            raise self.watch.error

    cdef sums(self, bint log_space):
        """Collect sums; use logarithms if they are wanted, or after an underflow."""
        if not log_space:
            self.begin(False, False)
            if not self.values_job.lost:
                self.collect()
                if not self.job.flagged:
                    return
        self.begin(True, False)
        self.collect()

    cdef distribute(self, asked):
        """Compute the wanted marginals of variables and of factors."""
        cdef jt.pgm_tree *t = &self.tree.tree
        cdef c.pgm_tree_job *j = &self.job
        cdef int64_t i, f, used = 0, lanes = self.lanes, total = self.tree.margin_at[t.variables]
        cdef double[:, ::1] margin = np.zeros((total, lanes))
        cdef double[:, ::1] expected = np.zeros((self.gained, lanes))
        cdef const int64_t[::1] factors = self.keep
        cdef int64_t count = 0 if factors is None else factors.shape[0]
        j.margin, j.margin_at = (&margin[0, 0] if total else NULL), &self.tree.margin_at[0]
        for i in range(count):
            f = factors[i]
            self.a.gain[f] = &expected[used, 0]
            if t.home[f] < 0:
                expected[used, :] = 1.0
            used += self.tree.size[f]
        with nogil:
            routines.distribute(j, 0, j.cliques)
        self.check()
        for i in range(t.variables):
            normalise(j, j.margin + self.tree.margin_at[i] * lanes, t.card[i])
        for i in range(count):
            normalise(j, self.a.gain[factors[i]], self.tree.size[factors[i]])
            self.a.gain[factors[i]] = NULL
        self.margin, self.expected = np.asarray(margin), np.asarray(expected)

    cdef states(self, int64_t draws):
        """Draw states (draws, lanes, n); 0 draws are the most probable ones."""
        cdef int64_t n = self.tree.tree.variables
        cdef int32_t[:, :, ::1] state = np.zeros((self.lanes, n, max(draws, 1)), dtype=np.int32)
        cdef c.pgm_draw_job *d = &self.draw_job
        d.draws, d.state, d.sorted, d.sums = \
            draws, (&state[0, 0, 0] if n else NULL), self.a.sorted, self.a.drawn
        if n:
            with nogil:
                routines.draw_states(&self.job, d)
            self.check()
        return np.asarray(state).transpose(2, 0, 1)

    cdef most_probable(self):
        """The most probable states of each lane, and the sum of the log values there."""
        cdef double[::1] value
        self.begin(True, True)
        value = self.log_scale.copy()
        self.draw_job.log_value = &value[0]
        self.collect()
        states = self.states(0)[0]
        result = np.asarray(value)
        result[self.log_scale == -INFINITY] = -INFINITY
        return result, states


cdef void normalise(c.pgm_tree_job *j, double *x, int64_t n) noexcept nogil:
    """Divide tables of expectations by their sums; NaN in impossible lanes."""
    cdef int64_t i, l
    cdef double total
    for l in range(j.lanes):
        total = 0.0
        for i in range(n):
            total += x[i * j.lanes + l]
        if j.log_scale[l] == -INFINITY:
            total = NAN
        for i in range(n):
            x[i * j.lanes + l] /= total


cdef check_factors(const int64_t[::1] cards, const int64_t[::1] start, const int32_t[::1] scope,
                   const int32_t[::1] order):
    """PgmError unless the arrays describe factors and an elimination order; return all arrays."""
    cdef int64_t i, k, n = cards.shape[0], factors = start.shape[0] - 1
    cdef int64_t[::1] seen
    if n >= 2 ** 31 - 1 or factors >= 2 ** 31 - 1 or factors < 0:
        raise PgmError(f"there are {n} variables and {factors} factors, expected fewer than "
                       "2^31 - 1 of each, and start to have one number more than factors")
    for i in range(n):
        if not 1 <= cards[i] < 2 ** 31:
            raise PgmError(f"variable {i} has {cards[i]} states, expected 1 to 2^31 - 1")
    if start[0] != 0 or start[factors] != scope.shape[0]:
        raise PgmError(f"start goes from {start[0]} to {start[factors]}, expected 0 to the "
                       f"{scope.shape[0]} variables in scope")
    for i in range(factors):
        if start[i + 1] < start[i]:
            raise PgmError(f"start falls from {start[i]} to {start[i + 1]} at factor {i}")
    seen = np.full(max(n, 1), -1, dtype=np.int64)
    for i in range(factors):
        for k in range(start[i], start[i + 1]):
            if not 0 <= scope[k] < n:
                raise PgmError(f"factor {i} has the variable {scope[k]}, and the variables are 0 "
                               f"to {n - 1}")
            if seen[scope[k]] == i:
                raise PgmError(f"factor {i} has the variable {scope[k]} twice")
            seen[scope[k]] = i
    if order.shape[0] != n:
        raise PgmError(f"order has {order.shape[0]} variables, expected {n}")
    seen[:] = -1
    for i in range(n):
        if not 0 <= order[i] < n or seen[order[i]] == 1:
            raise PgmError(f"order[{i}] is {order[i]}, which is out of range or there twice: "
                           f"expected a permutation of 0 to {n - 1}")
        seen[order[i]] = 1
    return cards, start, scope, order
