"""Training and log p with nothing but the defaults, beside a grid of settings.

python benchmarks/defaults.py [--mnist FOLDER] [--usps FILE] [--msa FILE] [--scale smoke|full]
[--only NAME] [--epochs N] [--seed N] [--out benchmarks/results/defaults.md]

FOLDER holds the four files of MNIST (*-ubyte.gz), binarised at 127: 10,000 training images and 500
test images. FILE of --usps is an .npz with packed bits X (11000, 8), 1,100 rows a class in order;
FILE of --msa is an alignment (.fasta.gz) with 21 letters. Digits and tables come from scikit-learn.

Every cell is the mean log p of held-out rows under the learned model. It is exact up to 2^25 hidden
states. Belief nets have their mean-field bound. Elsewhere log Z is annealed from the base rates of
the data, 100 runs of 2,000 temperatures, and a cell is marked ~ where few weights carry it.
Columns: the independent base rates; the defaults, their seconds, the best of the grid and its name;
and the answer of `infer` with its defaults, its status and seconds. The grid starts at the base
rates, with rates that fall linearly to 0. --epochs asks for other passes than those of the cases;
--seed is the seed of weights and of learning.
"""

import argparse
import gzip
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from apart import put_block
from sklearn import datasets

import pgmengine as pgm

# Rows of which `infer` is asked for log p.
ASKED = 200
EXACT_BITS = 25


def steps(updates):
    """Return name -> optimizer of the grid."""

    def falling(rate):
        return pgm.linear_decay(rate, updates)

    plain = {f"SGD({r})": pgm.SGD(falling(r)) for r in (0.05, 0.2)}
    adam = {f"Adam({r})": pgm.Adam(falling(r)) for r in (0.003, 0.01)}
    centred = {f"Centered(SGD({r}))": pgm.Centered(pgm.SGD(falling(r))) for r in (0.2, 0.5)}
    return plain | adam | centred


@dataclass(frozen=True)
class Case:
    """A model, its data, and the passes over the data."""

    name: str
    model: pgm.Model
    train: np.ndarray
    test: np.ndarray
    epochs: tuple[int, ...]
    grid: bool = True


def mnist(folder, count, which):
    """Return images of MNIST, binarised."""
    raw = gzip.decompress((Path(folder) / f"{which}-images-idx3-ubyte.gz").read_bytes())
    return (np.frombuffer(raw, np.uint8)[16:].reshape(-1, 784)[:count] > 127) * 1.0


def usps(file):
    """Return 7,000 training rows and 1,000 test rows of 8x8 pixels."""
    x = np.unpackbits(np.load(file)["X"], axis=1).reshape(10, 1100, 64) * 1.0
    return x[:, :700].reshape(-1, 64), x[:, 700:800].reshape(-1, 64)


def alignment(file):
    """Return training and test sequences as states 0 to 20, every tenth for testing."""
    lines = gzip.decompress(Path(file).read_bytes()).decode().split(">")[1:]
    rows = ["".join(line.split("\n")[1:]).upper() for line in lines]
    letters = {letter: i for i, letter in enumerate("ACDEFGHIKLMNPQRSTVWY-")}
    x = np.array([[letters.get(letter, 20) for letter in row] for row in rows])
    held = np.arange(len(x)) % 10 == 0
    return x[~held], x[held][:500]


def standardised(table):
    """Return training and test rows of a table of scikit-learn, standardised on the former."""
    x = table.data[np.random.default_rng(0).permutation(len(table.data))]
    many = len(x) * 4 // 5
    mean, deviation = x[:many].mean(axis=0), x[:many].std(axis=0)
    return (x[:many] - mean) / deviation, (x[many:] - mean) / deviation


def cases(args):
    """Return the cases; without the files of real data only the small ones."""
    pixels = datasets.load_digits().data
    a, b = pixels[:1437], pixels[1437:]
    small = (1, 5, 20) if args.scale == "smoke" else (1, 5, 20, 100)
    out = [
        Case(
            "RBM 64x10, digits", pgm.rbm(64, 10, rng=args.seed), (a > 7) * 1.0, (b > 7) * 1.0, small
        ),
        Case(
            "RBM 64x10, spins",
            pgm.rbm(64, 10, pgm.Spin(), rng=args.seed),
            np.where(a > 7, 1.0, -1.0),
            np.where(b > 7, 1.0, -1.0),
            small,
        ),
        Case(
            "RBM 64x10, three states",
            pgm.rbm(64, 10, pgm.Categorical(3), rng=args.seed),
            np.digitize(a, [5, 11]),
            np.digitize(b, [5, 11]),
            small,
        ),
    ]
    for name, table in (
        ("breast cancer", datasets.load_breast_cancer()),
        ("wine", datasets.load_wine()),
    ):
        train, test = standardised(table)
        model = pgm.rbm(train.shape[1], 10, pgm.Gaussian(), rng=args.seed)
        out.append(Case(f"RBM {train.shape[1]}x10, {name}", model, train, test, small))
    if args.scale == "smoke":
        return out
    if args.usps:
        train, test = usps(args.usps)
        out.append(
            Case("RBM 64x16, USPS", pgm.rbm(64, 16, rng=args.seed), train, test, (1, 5, 20, 100))
        )
        out.append(
            Case("SBN 64-16, USPS", pgm.sbn([64, 16], rng=args.seed), train[::4], test, (5,))
        )
    if args.msa:
        train, test = alignment(args.msa)
        model = pgm.rbm(train.shape[1], 16, pgm.Categorical(21), rng=args.seed)
        out.append(Case(f"RBM {train.shape[1]}x16, alignment", model, train, test, (1, 5, 20)))
    return out + (cases_of_mnist(args) if args.mnist else [])


def cases_of_mnist(args):
    """Return RBMs, a deep machine and belief nets of the images of MNIST."""
    train, test = mnist(args.mnist, 10000, "train"), mnist(args.mnist, 500, "t10k")
    few = train[:2000]
    return [
        Case("RBM 784x16, MNIST", pgm.rbm(784, 16, rng=args.seed), train, test, (1, 5, 20)),
        Case("RBM 784x25, MNIST", pgm.rbm(784, 25, rng=args.seed), train, test, (1, 5, 20)),
        Case("RBM 784x100, MNIST", pgm.rbm(784, 100, rng=args.seed), train, test, (1, 5, 20)),
        Case("RBM 784x500, MNIST", pgm.rbm(784, 500, rng=args.seed), train, test, (1, 5, 20)),
        Case(
            "DBM 784-200-100, MNIST", pgm.dbm([784, 200, 100], rng=args.seed), train, test, (5, 20)
        ),
        Case(
            "SBN 784-50, 2,000 of MNIST",
            pgm.sbn([784, 50], rng=args.seed),
            few,
            test,
            (1, 5),
            False,
        ),
        Case(
            "DBN 784-100-50, 2,000 of MNIST",
            pgm.dbn([784, 100, 50], rng=args.seed),
            few,
            test,
            (1, 5),
            False,
        ),
    ]


def log_p(model, case):
    """Return the mean log p of the test rows as text and as a number."""
    evidence = {"v": case.test}
    hidden = sum(x.size for n, x in model.structure.layers.items() if n != "v")
    if model.structure.normalized:
        value = pgm.infer(model, evidence, want=("log_prob",), method=pgm.MeanField()).log_prob
        return float(value.mean()), ""
    if hidden <= EXACT_BITS:
        value = pgm.infer(model, evidence, want=("log_prob",), method=pgm.Exact()).log_prob
        return float(value.mean()), ""
    start = pgm.base_rates(model, {"v": case.train})
    z = pgm.infer(
        model,
        want=("log_z",),
        method=pgm.AIS(betas=pgm.Linear(2000), reference=start, confirm=0),
        rng=0,
    )
    # The bound of mean field is exact where posteriors factorise.
    found = pgm.infer(model, evidence, want=("log_z",), method=pgm.MeanField(), rng=0).log_z
    return float(found.mean() - np.ravel(z.log_z)[0]), "" if z.status.good else "~"


def independent(case):
    """Return the mean log p of the test rows under independent units at their base rates."""
    params = case.model.params
    bare = case.model.with_params({k: v * 0.0 for k, v in params.items() if "weight" in k})
    start = pgm.base_rate_start(bare, {"v": case.train}, strength=1 / len(case.train))
    return log_p(start, case)[0]


def timed(call):
    """Return what a call returns, and its seconds."""
    start = time.perf_counter()
    found = call()
    return found, time.perf_counter() - start


def row(case, epochs, seed):
    """Return the line of the table of a case."""
    data = {"v": case.train}
    fitted, seconds = timed(
        lambda: pgm.fit(case.model, data, epochs=epochs, rng=seed, progress=False)
    )
    value, sign = log_p(fitted.model, case)
    best = ("", -np.inf, "")
    start = pgm.base_rate_start(case.model, data, strength=1 / len(case.train))
    updates = epochs * -(-len(case.train) // 100)
    for name, optimizer in steps(updates).items() if case.grid else ():
        try:
            other = pgm.fit(
                start, data, epochs=epochs, optimizer=optimizer, rng=seed, progress=False
            )
            found, mark = log_p(other.model, case)
        except pgm.PgmError:
            continue
        best = max(best, (name, found, mark), key=lambda one: one[1])
    answer, waited = timed(
        lambda: pgm.infer(fitted, {"v": case.test[:ASKED]}, want=("log_prob",), rng=0)
    )
    status = f"{answer.log_prob.mean():.1f} {answer.status.name}, {waited:.1f} s"
    grid = f"{best[1]:.1f}{best[2]} {best[0]}" if case.grid else "not run"
    return (
        f"| {case.name} | {epochs} | {independent(case):.1f} | {value:.1f}{sign} | {seconds:.1f} | "
        f"{grid} | {status} |"
    )


HEAD = (
    "| model and data | epochs | base rates | defaults | s | best of the grid "
    "| `infer`, 200 rows |\n"
    "|---|---|---|---|---|---|---|"
)


def main(argv=None):
    """Print the table, and write it into a file, in place of its last version."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    for name in ("mnist", "usps", "msa", "only", "out"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", choices=("smoke", "full"), default="full")
    args = parser.parse_args(argv)
    lines = [HEAD]
    print(HEAD, flush=True)
    for case in cases(args):
        if args.only and args.only not in case.name:
            continue
        for epochs in case.epochs if args.epochs is None else (args.epochs,):
            lines.append(row(case, epochs, args.seed))
            print(lines[-1], flush=True)
            if args.out:
                put_block(Path(args.out), "defaults.py", "\n".join(lines))


if __name__ == "__main__":
    main()
