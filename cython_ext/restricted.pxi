# States that are possible, c/possible.h, and rows of many evidence patterns on one junction tree,
# c/restrict.h.

from libc.string cimport memcmp, memcpy

def possible_states(const int64_t[::1] cards, const int64_t[::1] start, const int32_t[::1] scope,
                    zeros):
    """Return the states that no table makes impossible, and the entries of tables at them.

    Parameters
    ----------
    cards : (n,) int64
        The number of states of each variable.
    start, scope
        The variables of factor f are scope[start[f]:start[f + 1]].
    zeros : (entries,) bool
        Whether each entry of the tables is 0, one table after the other, last variable fastest.

    Returns
    -------
    left : (states of all variables,) bool
    stays : (entries,) bool
        Both are False everywhere if a variable loses all states.

    Raises
    ------
    PgmError
        If the tables do not fit the scopes.
    """
    cdef int64_t f, i, v, factors = checked_factors(cards, start, scope)
    cdef int64_t[::1] first = first_entries(cards, start, scope)
    cdef const uint8_t[::1] zero = np.ascontiguousarray(zeros, dtype=bool).view(np.uint8)
    cdef uint8_t[::1] tight = with_zeros(first, zero)
    cdef jt.pgm_left left
    cdef jt.pgm_scopes scopes = jt.pgm_scopes(cards.shape[0], factors, NULL, &start[0], NULL)
    cdef jt.pgm_entries *entries = <jt.pgm_entries *> malloc((factors + 1) * sizeof(jt.pgm_entries))
    cdef int32_t[::1] free_units = np.full(cards.shape[0] + 1, -1, dtype=np.int32)
    cdef uint8_t[::1] states = np.zeros(np.sum(cards), dtype=bool).view(np.uint8)
    cdef uint8_t[::1] stays = np.zeros(zero.shape[0], dtype=bool).view(np.uint8)
    if cards.shape[0]:
        scopes.card = &cards[0]
    if scope.shape[0]:
        scopes.scope = &scope[0]
    memset(&left, 0, sizeof(left))
    try:
        # No zero has been followed yet, so that every factor with one is visited.
        if entries == NULL or not jt.pgm_left_open(&left, scopes, &tight[0], &tight[0]):
            raise MemoryError
        for f in range(factors):
            entries[f] = jt.pgm_entries(NULL, 1, &zero[first[f]])
        if jt.pgm_left_restrict(&left, &free_units[0], entries):
            for v in range(cards.shape[0]):
                for i in range(left.card[v]):
                    states[left.first[v] + left.kept[left.first[v] + i]] = 1
            for f in range(factors):
                jt.pgm_left_mark(&left, f, &stays[first[f]])
    finally:
        jt.pgm_left_close(&left)
        free(entries)
    return np.asarray(states).view(bool), np.asarray(stays).view(bool)


cdef first_entries(const int64_t[::1] cards, const int64_t[::1] start, const int32_t[::1] scope):
    """Return the position of the first entry of each table, and the end of the last one."""
    cdef int64_t f, i, n, factors = start.shape[0] - 1
    cdef int64_t[::1] first = np.zeros(factors + 1, dtype=np.int64)
    for f in range(factors):
        n = 1
        for i in range(start[f], start[f + 1]):
            n *= cards[scope[i]]
        first[f + 1] = first[f] + n
    return np.asarray(first)


cdef with_zeros(const int64_t[::1] first, const uint8_t[::1] zero):
    """Return whether each table has an entry of 0; PgmError unless they fit the entries."""
    cdef int64_t f, i, factors = first.shape[0] - 1
    cdef uint8_t[::1] found = np.zeros(factors + 1, dtype=np.uint8)
    if zero.shape[0] != first[factors]:
        raise PgmError(f"zeros has the shape ({zero.shape[0]},), but the tables have "
                       f"{first[factors]} entries in all")
    for f in range(factors):
        for i in range(first[f], first[f + 1]):
            found[f] |= zero[i]
    return np.asarray(found)


cdef class Part:
    """The tree of one row: the cliques of a whole tree, with only the possible states."""

    cdef JunctionTree whole, tree
    cdef jt.pgm_left left
    cdef jt.pgm_entries *entries
    cdef int64_t rows
    cdef const double[::1] values
    cdef const uint8_t[::1] wide
    cdef const int64_t[::1] first
    cdef double[::1] tables
    cdef int64_t[::1] where
    cdef int64_t[::1] place
    # the numbers of possible states for which the tree has its sizes and schedule
    cdef int64_t[::1] planned
    # the possible states of the row before, and whether those of each variable differ from them
    cdef int32_t[::1] before
    cdef uint8_t[::1] moved
    # whether the numbers of possible states have changed since tables were copied
    cdef bint resized

    def __cinit__(self):
        memset(&self.left, 0, sizeof(jt.pgm_left))
        self.entries = NULL

    def __dealloc__(self):
        jt.pgm_left_close(&self.left)
        free(self.entries)

    def __init__(self, JunctionTree whole, const double[::1] values, wide, int64_t rows):
        cdef jt.pgm_tree *t = &whole.tree
        cdef int64_t f, n, total = 0, used = 0, factors = t.factors
        cdef jt.pgm_scopes scopes
        cdef uint8_t[::1] tight = np.zeros(max(factors, 1), dtype=np.uint8)
        self.whole, self.values, self.rows = whole, values, rows
        self.wide = np.zeros(max(factors, 1), dtype=np.uint8) if wide is None \
            else np.ascontiguousarray(wide, dtype=np.uint8)
        if wide is not None and self.wide.shape[0] != factors:
            raise PgmError(f"wide has {self.wide.shape[0]} numbers, expected one for each of the "
                           f"{factors} factors")
        first = np.zeros(max(factors, 1), dtype=np.int64)
        for f in range(factors):
            first[f] = used
            used += whole.size[f] * (rows if self.wide[f] else 1)
            total += whole.size[f]
        if used != values.shape[0]:
            raise PgmError(f"values has {values.shape[0]} entries, expected {used}: the tables of "
                           f"{factors} factors for {rows} rows")
        self.first = first
        for f in range(factors):
            n = whole.size[f] * (rows if self.wide[f] else 1)
            tight[f] = jt.pgm_any_zero(&values[0] + self.first[f], n)
        scopes = jt.pgm_scopes(t.variables, factors, t.card, t.start, t.scope)
        self.entries = <jt.pgm_entries *> malloc(max(factors, 1) * sizeof(jt.pgm_entries))
        if self.entries == NULL or not jt.pgm_left_open(&self.left, scopes, &tight[0],
                                                        &self.wide[0]):
            raise MemoryError
        self.tables, self.where = np.empty(max(total, 1)), np.zeros(max(factors, 1), dtype=np.int64)
        self.place = np.empty(max(total, 1), dtype=np.int64)
        self.tree = whole.part(self.left.card)
        self.planned = np.full(t.variables + 1, -1, dtype=np.int64)
        self.before = np.full(self.left.first[t.variables] + 1, -1, dtype=np.int32)
        self.moved = np.ones(t.variables + 1, dtype=np.uint8)

    cdef bint leave(self, int64_t row, const int32_t[:, ::1] seen):
        """Restrict to the states that are possible for a row; False if there are none."""
        cdef jt.pgm_entries *e = self.entries
        cdef int64_t f
        for f in range(self.whole.tree.factors):
            e[f].value = &self.values[0] + self.first[f] + (row if self.wide[f] else 0)
            e[f].step = self.rows if self.wide[f] else 1
            e[f].zero = NULL
        if self.whole.tree.variables and not jt.pgm_left_restrict(&self.left, &seen[row, 0], e):
            return False
        self.compare()
        return True

    cdef compare(self):
        """Compare with the row before; sizes and schedule are computed again if they differ."""
        cdef int64_t v, n = self.whole.tree.variables
        cdef int32_t *kept
        cdef int32_t *before
        cdef int64_t card
        cdef bint resized = n == 0
        for v in range(n):
            kept, card = self.left.kept + self.left.first[v], self.left.card[v]
            resized |= self.planned[v] != card
            self.planned[v] = card
            before = &self.before[self.left.first[v]]
            self.moved[v] = memcmp(before, kept, card * sizeof(int32_t)) != 0
            memcpy(before, kept, card * sizeof(int32_t))
        self.resized |= resized
        if resized:
            jt.pgm_tree_resize(&self.tree.tree)
            jt.pgm_tree_unplan(&self.tree.tree)
            self.tree.measure()

    cdef bint stays(self, int64_t f):
        """Return whether a table has the entries of the row before."""
        cdef jt.pgm_tree *t = &self.whole.tree
        cdef int64_t k
        if self.resized or self.wide[f]:
            return False
        for k in range(t.start[f], t.start[f + 1]):
            if self.moved[t.scope[k]]:
                return False
        return True

    cdef copy(self):
        """Copy the tables of the row at the possible states."""
        cdef jt.pgm_entries *e = self.entries
        cdef int64_t f, k, n, used = 0
        for f in range(self.whole.tree.factors):
            if not self.stays(f):
                n = jt.pgm_left_places(&self.left, f, &self.place[used])
                self.where[f] = used
                for k in range(n):
                    self.tables[used + k] = e[f].value[self.place[used + k] * e[f].step]
            used += self.tree.size[f]
        self.resized = False

    cdef put_marginals(self, const double[:, ::1] found, double[::1] out):
        """Write the marginals of variables at the possible states."""
        cdef int64_t v, k, at = 0
        for v in range(self.whole.tree.variables):
            for k in range(self.left.card[v]):
                out[self.left.first[v] + self.left.kept[self.left.first[v] + k]] = found[at, 0]
                at += 1

    cdef put_expected(self, const double[:, ::1] found, const int64_t[::1] asked, double[::1] out):
        """Write the marginals of factors at the possible states."""
        cdef int64_t i, k, n, place, at = 0, first = 0
        for i in range(asked.shape[0]):
            n, place = self.tree.size[asked[i]], self.where[asked[i]]
            for k in range(n):
                out[first + self.place[place + k]] = found[at + k, 0]
            at += n
            first += self.whole.size[asked[i]]

    cdef name_states(self, int32_t[:, :] states):
        """Turn numbers among possible states (draws, n) into numbers among all states."""
        cdef int64_t v, k
        for v in range(self.whole.tree.variables):
            for k in range(states.shape[0]):
                states[k, v] = self.left.kept[self.left.first[v] + states[k, v]]


def run_restricted(JunctionTree tree, const double[::1] values, seen, *, wide=None,
                   bint marginals=False, expected=None, bint mode=False, int64_t draws=0,
                   key=None, progress=None):
    """Return the wanted quantities of rows that observe different variables.

    The answers are those of `tree.run` with a lane for each row, and with the evidence as tables
    that are -inf at all other states. Each row is answered alone, over the states that are possible
    for it.

    Parameters
    ----------
    tree : JunctionTree
        The tree of the model in which all these variables are free.
    values, wide, marginals, expected, mode, draws, key, progress
        As in `tree.run`, with a lane for each row.
    seen : (rows, n) int32
        The state of each observed variable, -1 where it is free, -2 where no state is possible.

    Raises
    ------
    PgmError
        If an array does not fit, or a value is NaN or +inf.
    """
    cdef const int32_t[:, ::1] states = check_seen(tree, seen)
    cdef int64_t i, rows = states.shape[0], n = tree.tree.variables
    cdef Part part = Part(tree, values, wide, rows)
    asked = None if expected is None else np.ascontiguousarray(expected, dtype=np.int64)
    result = {"log_z": np.full(rows, -INFINITY), "log_space": False}
    if marginals:
        result["marginals"] = np.full((rows, part.left.first[n]), NAN)
    if asked is not None:
        entries = np.asarray(tree.size)[asked[(asked >= 0) & (asked < tree.tree.factors)]].sum()
        result["expected"] = np.full((rows, entries), NAN)
    if mode:
        result["mode_value"] = np.full(rows, -INFINITY)
        result["mode"] = np.full((rows, n), -1, dtype=np.int32)
    if draws:
        result["samples"] = np.full((draws, rows, n), -1, dtype=np.int32)
    for i in range(rows):
        PyErr_CheckSignals()
        if progress is not None:
            progress(i / <double> rows)
        if not part.leave(i, states):
            continue
        part.copy()
        found = part.tree.run(
            np.asarray(part.tables), where=part.where[:tree.tree.factors], marginals=marginals,
            expected=asked, mode=mode, draws=draws, key=key, stream=[i])
        result["log_z"][i] = found["log_z"][0]
        result["log_space"] |= found["log_space"]
        if found["log_z"][0] == -INFINITY:
            continue
        if marginals:
            result["marginals"][i] = 0.0
            part.put_marginals(found["marginals"], result["marginals"][i])
        if asked is not None:
            result["expected"][i] = 0.0
            part.put_expected(found["expected"], asked, result["expected"][i])
        if mode:
            result["mode_value"][i] = found["mode_value"][0]
            result["mode"][i] = found["mode"][0]
            part.name_states(result["mode"][i:i + 1])
        if draws:
            result["samples"][:, i] = found["samples"][:, 0]
            part.name_states(result["samples"][:, i])
    for name in ("marginals", "expected"):
        if name in result:
            result[name] = result[name].T
    return result


def restricted_entries(JunctionTree tree, const double[::1] values, seen, *, wide=None):
    """Return the entries of all cliques, and of the largest one, for each row, (rows, 2).

    The arguments are those of `run_restricted`. Both numbers are 0 for an impossible row.
    """
    cdef const int32_t[:, ::1] states = check_seen(tree, seen)
    cdef int64_t i, row, rows = states.shape[0]
    cdef Part part = Part(tree, values, wide, rows)
    cdef double[:, ::1] found = np.zeros((rows, 2))
    for row in range(rows):
        PyErr_CheckSignals()
        if not part.leave(row, states):
            continue
        for i in range(tree.cliques):
            found[row, 0] += part.tree.tree.size[i]
            found[row, 1] = max(found[row, 1], part.tree.tree.size[i])
    return np.asarray(found)


cdef check_seen(JunctionTree tree, seen):
    """Return the states that rows observe; PgmError unless they are states of the variables."""
    cdef const int32_t[:, ::1] states = np.ascontiguousarray(seen, dtype=np.int32)
    cdef int64_t i, v
    if states.shape[1] != tree.tree.variables:
        raise PgmError(f"seen has {states.shape[1]} variables, expected {tree.tree.variables}")
    for i in range(states.shape[0]):
        for v in range(states.shape[1]):
            if not -2 <= states[i, v] < tree.tree.card[v]:
                raise PgmError(f"seen[{i}, {v}] is {states[i, v]}, expected a state below "
                               f"{tree.tree.card[v]}, -1 or -2")
    return np.asarray(states)
