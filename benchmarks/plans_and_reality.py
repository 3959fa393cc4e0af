"""Planned seconds beside the seconds of a first answer, for questions of all methods.

    python benchmarks/plans_and_reality.py [--only TEXT] [--most SECONDS] [--out FILE]

A first answer includes its planning: every question is about a model that was just made, in a
process in which the same question has been answered about another one. The planned seconds are
`seconds` of its plan, which are computed, and those of planning, which a plan measures. Seconds are
those of the processor, in one thread, so that other work on the machine disturbs them little. The
last column is planned / taken; the summary counts the questions within a factor of two.
"""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "PGMENGINE_THREADS"), "1"))

import gc
import math
import time
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from apart import apart, put_block, table
from rooms.plans import Question, questions

import pgmengine as pgm

# Seconds of the processor after which a question counts as not answered, and its memory in GiB.
PATIENCE, GIB = 120.0, 8.0
# Seconds of an answer below which it is asked nine times, and above which it is asked once.
SHORT, LONG = 0.2, 5.0
# Ratios of planned and taken seconds that are near enough.
NEAR = 2.0


def main(
    only: Annotated[str, typer.Option(help="questions whose name contains this")] = "",
    most: Annotated[float, typer.Option(help="questions planned to take at most this")] = 40.0,
    out: Annotated[Path | None, typer.Option(help="a file whose table is replaced")] = None,
) -> None:
    """Ask the questions one after the other, each in a process of its own, and print them."""
    lines, ratios = list[list[str]](), list[float]()
    for question in questions():
        name = f"{question.name}, {type(question.method).__name__}"
        if only not in name:
            continue
        done = apart(lambda question=question: compared(question, most), PATIENCE, GIB)
        if done.value is None:
            lines.append([name, "", "", done.failed[:60]])
            ratios.append(0.0)
        elif math.isfinite(done.value[1]):
            planned, taken = done.value
            ratios.append(planned / taken)
            lines.append([name, f"{planned:.3g}", f"{taken:.3g}", f"{planned / taken:.2f}"])
        else:
            continue
        print("  ".join(lines[-1]), flush=True)
    near = sum(1 / NEAR <= ratio <= NEAR for ratio in ratios)
    summary = f"{near} of {len(ratios)} within a factor of {NEAR:g}"
    print(summary)
    if out is not None:
        text = table(("question", "planned, s", "taken, s", "ratio"), lines)
        put_block(out, "plans_and_reality.py", f"{text}\n\n{summary}.")


def compared(question: Question, most: float) -> tuple[float, float]:
    """Return the planned and the taken seconds; the taken ones are infinite where not asked."""
    warnings.simplefilter("ignore")
    pgm.infer(pgm.rbm(3, 2, rng=0), method=pgm.MCMC(warmup=5, draws=10))
    model, evidence = question.make()
    seconds = question.method.plan(model.given(evidence), question.want).seconds
    if seconds > most:
        return seconds, math.inf
    answers = list[tuple[float, float]]()
    # The first of several short answers imports modules.
    while len(answers) < (9 if answers and answers[0][1] < SHORT else 1 if seconds > LONG else 2):
        answers.append(first_answer(question))
    planned, taken = np.median(answers[1:] or answers, axis=0).tolist()
    return planned, taken


def first_answer(question: Question) -> tuple[float, float]:
    """Return planned and taken seconds of an answer about a new model, nothing remembered.

    The planning of another new model is measured by the same clock as the answer.
    """
    model, evidence = question.make()
    gc.collect()
    begin = time.thread_time()
    planned = question.method.plan(model.given(evidence), question.want).seconds
    planned += time.thread_time() - begin
    model, evidence = question.make()
    gc.collect()
    begin = time.thread_time()
    pgm.infer(model, evidence, want=question.want, method=question.method, rng=0)
    return planned, time.thread_time() - begin


if __name__ == "__main__":
    typer.run(main)
