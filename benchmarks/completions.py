"""Completed half images of a trained model, as a user asks for them, beside plain numpy.

    python benchmarks/completions.py --mnist FOLDER [--out benchmarks/results/completions.md]

FOLDER of --mnist holds the four files of MNIST, binarised at 127. An RBM 784x100 learns 10,000
images for 5 epochs, with the defaults of `fit`. The lower halves of test images are then asked for,
given the upper halves, by `infer` with its defaults and by `MCMC()`. The loop in numpy makes the
sweeps of `MCMC()`, 4 chains of 1,500 for each image, and judges nothing. Doubtful rows are the ones
whose chains have not mixed, of the last method that answered; agreement is the share of missing
pixels whose more probable state is the right one.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from apart import put_block, table
from defaults import mnist
from judging import Case, measured, numpy_loop

import pgmengine as pgm
from pgmengine.infer.question.joining import unmixed_rows

COLUMNS = [
    "images", "asked", "answered by", "s", "numpy s", "status", "doubtful rows", "agreement"
]  # fmt: skip
TITLE = "Lower halves of digits given the upper halves, by an RBM 784x100 after 5 epochs."


def row(model, images, method):
    """Return a row of the table."""
    half = images.copy()
    half[:, 392:] = np.nan
    found = []
    seconds = measured(lambda: found.append(pgm.infer(model, {"v": half}, method=method, rng=0)))
    numpy_seconds = measured(lambda: numpy_loop(Case("", model, {"v": half}, pgm.MCMC())))
    # Answers of several methods are judged by the statistics that these have in common.
    judged = replace(found[0], method=pgm.MCMC(), warnings=())
    right = (found[0].mean["v"][:, 392:] > 0.5) == (images[:, 392:] > 0.5)
    return [
        str(len(images)),
        "defaults" if isinstance(method, pgm.Auto) else "`MCMC()`",
        found[0].plan.method,
        f"{seconds:.2f}",
        f"{numpy_seconds:.2f}",
        found[0].status.name,
        str(unmixed_rows(judged, model.structure, len(images)).sum()),
        f"{right.mean():.3f}",
    ]


def main():
    """Train a model, complete images, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", required=True)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    train, test = mnist(args.mnist, 10000, "train"), mnist(args.mnist, 200, "t10k")
    model = pgm.fit(pgm.rbm(784, 100, rng=0), {"v": train}, epochs=5, rng=0, progress=False).model
    # The first answers also read the files of compiled routines.
    row(model, test[:1], pgm.MCMC())
    rows = [
        row(model, test[:count], method)
        for count in (1, 5, 40, 200)
        for method in (pgm.MCMC(), pgm.Auto())
    ]
    text = table(COLUMNS, rows)
    print(text)
    if args.out:
        put_block(args.out, "completions.py", f"{TITLE}\n\n{text}")


if __name__ == "__main__":
    main()
