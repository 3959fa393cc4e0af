"""Limits of the package that tests lower, so that small questions reach code for large ones.

Each function sets one group of limits until the end of a test. A limit is named here and nowhere
else in the tests, except in `shortcuts.py`, which draws the limits of exact inference at random,
and in `enumerators.py`, which chooses how states are enumerated.
"""

import os

import numpy as np

from pgmengine.base.work import executors, memory, progress
from pgmengine.infer.exact import planning
from pgmengine.infer.exact.junction_tree import causal_independence
from pgmengine.infer.sampling.methods import annealing


def small_parts(monkeypatch, work=1.0):
    """Split questions into parts that take this work, in sampled or enumerated unit updates."""
    monkeypatch.setattr(executors, "MIN_UPDATES_A_PART", work)


def tables_are_searched(monkeypatch):
    """Look for impossible states and for small tables in every model, whatever that costs."""
    monkeypatch.setattr(planning, "MIN_ENTRIES_TO_REDUCE", 0)
    monkeypatch.setattr(planning, "MAX_SHARE_OF_WHOLE_TABLES", np.inf)


def small_tables(monkeypatch):
    """Give every noisy-or child a chain of small tables in place of a whole one."""
    tables_are_searched(monkeypatch)
    monkeypatch.setattr(causal_independence, "MAX_WHOLE_ENTRIES", 1)


def rows_are_restricted(monkeypatch):
    """Restrict the shared tree to the possible states of each row, however few are saved."""
    monkeypatch.setattr(planning, "MIN_ENTRIES_TO_REDUCE", 0)
    monkeypatch.setattr(planning, "CLIQUE_SECONDS", -1.0)


def planning_takes(monkeypatch, seconds):
    """Let the planning of a tree cost this time: larger rows have trees of their own."""
    monkeypatch.setattr(planning, "CLIQUE_SECONDS", 0.0)
    monkeypatch.setattr(planning, "planning_seconds", lambda *_: seconds)


def no_exact_draws(monkeypatch):
    """Refuse annealing the exact draws from which it runs backward, as in large models."""
    monkeypatch.setattr(annealing, "MAX_EXACT_DRAW_ENTRIES", 1.0)


def free_memory(monkeypatch, free):
    """Let the computer have this number of free bytes."""
    monkeypatch.setattr(memory, "available_memory", lambda: free)


def bars_after(monkeypatch, seconds):
    """Show progress after this time."""
    monkeypatch.setattr(progress, "SECONDS_BEFORE_BAR", seconds)


def no_unnamed_files(monkeypatch):
    """Write files as on a system without O_TMPFILE."""
    monkeypatch.setattr(os, "O_TMPFILE", 0)
