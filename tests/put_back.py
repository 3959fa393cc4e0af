"""Faults of the shortcuts, to be put in one at a time: the comparison has to find each of them.

The first ones are faults that the package has had. Each fault is a function that takes a
`pytest.MonkeyPatch` and changes the package with it.

    python tests/put_back.py [NAME ...]

puts in each fault, or the named ones, asks questions until one is answered wrongly, and prints
which quantity of which question was wrong.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from rows_together import compare

from pgmengine.base.equal_rows import distinct
from pgmengine.evidence.target import evidence_patterns
from pgmengine.infer.exact import gathered, planning
from pgmengine.infer.exact.enumeration import compiled_enumerator, enumeration, linear_plan
from pgmengine.infer.exact.junction_tree import (
    causal_independence,
    conditioned_model,
    cutset,
    elimination,
    trees,
)
from pgmengine.infer.question import auto, splitting

# Questions that are asked until a fault is found.
MOST_QUESTIONS = 600
FAULTS = {}


def fault(function):
    """List a function among the faults."""
    FAULTS[function.__name__] = function
    return function


def _wrap(patch, module, name, change):
    """Replace a function f by change(f)."""
    patch.setattr(module, name, change(getattr(module, name)))


def _asking_first_rows(patch, kept):
    """Let the first row of a pattern decide for all of them whether the shared tree answers it.

    `kept` returns the tree of a pattern as it was then, or None, from the right tree, the pattern,
    and whether its first row is answered by the shared tree.
    """
    sharing = []

    def shared(inner):
        def found(*args):
            sharing[:] = inner(*args)
            return list(sharing)

        return found

    def trees_of(inner):
        def found(target, want, limits):
            sharing.clear()
            out, done = [], np.zeros(target.rows, dtype=bool)
            right = inner(target, want, limits)
            for tree in sharing:
                done[tree.rows] = True
            for tree in right:
                pattern = next(p for p in evidence_patterns(target) if tree.rows[0] in p)
                several = done[pattern].any() and not any(tree is other for other in sharing)
                out.append(kept(tree, pattern, done[pattern[0]]) if several else tree)
            return [tree for tree in out if tree is not None]

        return found

    _wrap(patch, planning, "_shared", shared)
    _wrap(patch, planning, "_trees", trees_of)


@fault
def rows_in_no_tree(patch):
    """A row that the shared tree does not answer has no tree where the first of its pattern has."""
    _asking_first_rows(patch, lambda tree, pattern, first: None if first else tree)


@fault
def rows_in_two_trees(patch):
    """A row that the shared tree answers is in the tree of its pattern, too, beside the first."""

    def kept(tree, pattern, first):
        plain = not first and tree.restricted is None and not tree.form.small
        return replace(tree, rows=pattern) if plain else tree

    _asking_first_rows(patch, kept)


@fault
def separate_units_of_the_first_row(patch):
    """The units in no factor are those of the first row, whatever hints other rows have."""

    for module in (planning, enumeration):
        _wrap(patch, module, "one_for_all", lambda _: lambda target, rows: target.take(rows[:1]))


@fault
def auxiliary_variables_without_places(patch):
    """Trees with auxiliary variables are restricted row by row, which knows free units alone."""

    def change(inner):
        def row_by_row(tree, target, most):
            variables, units = len(tree.conditioned.states), len(tree.conditioned.free.states)
            if (
                tree.possible
                and len(tree.rows) >= planning.MIN_ROWS_OF_OWN_TREE
                and variables > units
            ):
                raise IndexError(f"index {units} is out of bounds for axis 0 with size {units}")
            return inner(tree, target, most)

        return row_by_row

    _wrap(patch, planning, "_row_by_row", change)


@fault
def hints_are_no_evidence(patch):
    """A unit is barren although it has a hint."""
    from pgmengine.evidence import relevance

    def change(inner):
        return lambda target, name: np.zeros_like(inner(target, name))

    _wrap(patch, relevance, "has_soft", change)


@fault
def plans_of_another_pattern(patch):
    """A tree is remembered under the number of free units, not under their places."""

    def change(inner):
        def draft(target, kind, form):
            found = inner(target, kind, form)
            key = (form, *(int(mask.sum()) for mask in kind.free.values()))
            memo = target.structure.memo
            kept = memo.recall(("draft", "some pattern", key), lambda: found)
            own = {"conditioned": kept.conditioned, "rough": kept.rough, "small": kept.small}
            return replace(found, key=key, **own)

        return draft

    _wrap(patch, planning, "_draft", change)


@fault
def impossible_states_of_other_values(patch):
    """The states that are left are remembered for a pattern, whatever its values are."""
    patch.setattr(planning, "sha256", lambda _: _Digest())


class _Digest:
    @staticmethod
    def digest():
        return b""


@fault
def rows_out_of_order(patch):
    """Answers of rows of several patterns are put down in the order of the patterns."""

    def change(inner):
        def filled(self, out, value, rows):
            some = len(rows) < self.target.rows
            return inner(self, out, value, np.sort(rows)[::-1] if some else rows)

        return filled

    _wrap(patch, gathered.Gathered, "_filled", change)


@fault
def the_last_row_of_a_pass_is_left_out(patch):
    """A tree whose rows take several passes forgets the last row of each."""

    def change(inner):
        def passes(rows, size):
            return [p[:-1] if 1 < len(p) < len(rows) else p for p in inner(rows, size)]

        return passes

    _wrap(patch, elimination, "blocks", change)


@fault
def a_gradient_counts_the_first_part_twice(patch):
    """The gradient of the first pattern is added twice."""

    def change(inner):
        def add(total, part):
            return inner(inner(None, part), part) if total is None else inner(total, part)

        return add

    _wrap(patch, gathered, "add_gradients", change)


@fault
def the_constant_of_the_observed_part_is_forgotten(patch):
    """Terms of the log density without a free unit are left out."""

    def change(inner):
        return lambda target, whole: 0.0 * inner(target, whole)

    _wrap(patch, conditioned_model, "observed_constant", change)


@fault
def a_unit_that_is_not_barren_is_left_out(patch):
    """The first free unit with a conditional table is pruned, whatever depends on it."""

    def change(inner):
        def leaving(target, kinds, structural):
            found, s = inner(target, kinds, structural), target.structure
            for name in s.layers if kinds <= planning.NEED_NO_BARREN else ():
                mine = distinct(target.free[name]) & (s.child_tables[name] >= 0)
                if mine.any():
                    gone = mine & (np.arange(mine.shape[1]) == mine.any(axis=0).argmax())
                    return {**found, name: found.get(name, False) | gone}
            return found

        return leaving

    _wrap(patch, planning, "leaving", change)


@fault
def a_leak_with_the_wrong_sign(patch):
    """Absent findings subtract their leak from -z."""

    def change(inner):
        def values(self, target):
            found = inner(self, target).copy()
            found[-1] *= -1
            return found

        return values

    _wrap(patch, causal_independence.AbsentTerm, "values", change)


@fault
def a_chain_without_its_leak(patch):
    """Chains of causes begin without the leak."""

    def change(inner):
        return lambda self, target: inner(self, target) * 0.5

    _wrap(patch, causal_independence.ChainTerm, "leaks", change)


@fault
def units_in_no_factor_without_their_leak(patch):
    """A unit in no factor is 0 with a probability that leaves out one of its parents."""

    def change(inner):
        return lambda target, arrow, parents, children: (
            0.9 * inner(target, arrow, parents, children)
        )

    _wrap(patch, elimination, "shares", change)


@fault
def the_last_states_outside_are_left_out(patch):
    """Conditioning on variables outside leaves out the last joint state where there are several."""

    def change(inner):
        return lambda self: inner(self) - (inner(self) > 1)

    patch.setattr(cutset.Cutset, "states", property(change(cutset.Cutset.states.fget)))


@fault
def joint_states_outside_count_alike(patch):
    """Joint states outside are averaged with equal weights."""
    _wrap(patch, cutset, "softmax", lambda inner: lambda logs: inner(np.zeros_like(logs)))


@fault
def a_piece_of_a_walk_twice(patch):
    """A walk in pieces sums its first piece twice."""

    def change(inner):
        def walk(self, moments):
            sums, found = inner(self, moments)
            if sums.shape[1] > 1:
                sums[:, 0] += np.log(2)
            return sums, found

        return walk

    _wrap(patch, compiled_enumerator.CompiledEnumerator, "sums", change)


@fault
def a_group_of_rows_begins_one_late(patch):
    """Groups of rows of a pattern overlap by one row, so that gradients count it twice."""

    def change(inner):
        def solved(wanted, whole, group, rows, draws, rng):
            log_z, found = inner(wanted, whole, group, rows, draws, rng)
            if "gradient" in found and len(rows) < len(group.rows) and rows[0] != group.rows[0]:
                before = group.rows[[int(np.searchsorted(group.rows, rows[0])) - 1]]
                more = inner(wanted, whole, group, before, draws, rng)[1]["gradient"]
                found["gradient"] = wanted.add_gradients(found["gradient"], more)
            return log_z, found

        return solved

    _wrap(patch, enumeration, "_solved", change)


@fault
def the_program_of_the_first_row(patch):
    """A program answers for the values of the first row only."""

    def change(inner):
        def run(self, target):
            return inner(self, target.take(np.zeros(target.rows, dtype=int)))

        return run

    _wrap(patch, linear_plan.LinearPlan, "run", change)


@fault
def a_question_with_the_values_it_was_planned_for(patch):
    """A remembered question answers for the first target that it was asked about."""

    def change(inner):
        def question(self, target, index):
            if target.rows > 1:
                kept = self.__dict__.setdefault("_first", target)
                target = kept if kept.rows == target.rows else target
            return inner(self, target, index)

        return question

    _wrap(patch, auto.Choice, "question", change)


@fault
def parts_of_rows_in_another_order(patch):
    """The parts of a question are joined in reversed order."""

    def change(inner):
        return lambda found, structure: inner(found[::-1], structure)

    _wrap(patch, splitting, "joined", change)


@fault
def parts_of_a_question_without_the_normaliser(patch):
    """log_prob of a question in parts is log_z."""

    def change(inner):
        def joined(choices, found):
            r = inner(choices, found)
            more = {"log_prob": r.answers["log_z"]} if "log_prob" in r.answers else {}
            return replace(r, answers={**r.answers, **more})

        return joined

    _wrap(patch, auto, "joined_parts", change)


@fault
def states_left_by_number(patch):
    """Marginals at the states that are left are not moved to their places."""

    def change(inner):
        def all_states(self, units):
            found = inner(self, units)
            return np.sort(found, axis=0) if self.possible is not None else found

        return all_states

    _wrap(patch, trees.Tree, "all_states", change)


@fault
def drawn_states_of_another_row(patch):
    """Draws of rows that share a pass are those of the row before."""

    def change(inner):
        def named(self, states):
            found = inner(self, states)
            return np.roll(found, 1, axis=0) if found.ndim == 3 else found

        return named

    _wrap(patch, trees.Tree, "named", change)


@fault
def observed_states_of_another_row(patch):
    """Rows that share a tree are restricted to what the row before observes."""

    def change(inner):
        def observed(target, c, p):
            return np.roll(inner(target, c, p), 1, axis=0)

        return observed

    for module in (elimination, trees):
        _wrap(patch, module, "observed_states", change)


def found_by(name, most=MOST_QUESTIONS):
    """The seed of the first question that is answered wrongly with a fault, and its message."""
    with pytest.MonkeyPatch.context() as patch:
        FAULTS[name](patch)
        for seed in range(most):
            try:
                compare(seed)
            except AssertionError as error:
                return seed, str(error)
    return None


if __name__ == "__main__":
    for name in sys.argv[1:] or FAULTS:
        found = found_by(name)
        if found is None:
            print(f"{name}: not found in {MOST_QUESTIONS} questions", flush=True)
            continue
        lines = [line for line in found[1].splitlines() if line and "tolerance" not in line]
        print(f"{name}: question {found[0]}: {' '.join(lines)[:160]}", flush=True)
