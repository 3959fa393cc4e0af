"""Log Z of RBMs that were trained on digits: the default answer beside two long runs.

    python benchmarks/log_z.py --mnist FOLDER [--models FOLDER] [--out benchmarks/results/log_z.md]

FOLDER of --mnist holds the four files of MNIST, binarised at 127; 10,000 images are learned. Each
model has 784 visible units, and is trained for 1, 5 or 20 epochs by persistent chains: from zero
biases by Adam(0.001), or from the base rates of the pixels by SGD with a rate that falls to 0 from
0.2 (100 hidden units) or 0.1 (500). --models keeps the trained models for another run.

The answer is that of `AIS()`, which `infer` takes for log Z. The long runs have 200 chains: 10,000
temperatures from the means of all layers under the chains of the training, and 20,000 from the base
rates of the pixels. Either may miss modes, so that the higher one counts.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from apart import put_block, table
from defaults import mnist

import pgmengine as pgm

HIDDEN, EPOCHS, STARTS = (100, 500), (1, 5, 20), ("zero", "base rates")
COLUMNS = ["model", "answer", "interval", "status", "CPU s", "long runs, error", "difference"]
TITLE = (
    "Log Z in nats of RBMs that were trained on 10,000 digits: `AIS()` beside two long runs, one "
    "from the means of the chains of the training, and one from the base rates of the pixels. The "
    "difference is to the long run whose estimate less three errors is higher."
)


def log_odds(mean):
    """Return the log-odds of means, moved a little to the middle."""
    mean = 0.01 + 0.98 * mean
    return np.log(mean / (1 - mean))


def trained(data, hidden, start, epochs):
    """Return a model that was trained from a start."""
    model = pgm.rbm(784, hidden, rng=0)
    optimizer = pgm.Adam(0.001)
    params = dict(model.params)
    if start == "base rates":
        rate = 0.2 if hidden == 100 else 0.1
        optimizer = pgm.SGD(pgm.linear_decay(rate, epochs * 100))
        mean = np.clip(data.mean(axis=0), 0.005, 0.995)
        params["v.bias"] = np.log(mean / (1 - mean))
    settings = {"optimizer": optimizer, "negative": pgm.PCD(), "rng": 0, "progress": False}
    # Given parameters stay as they are.
    return pgm.fit(model.with_params(params), {"v": data}, epochs=epochs, **settings).model


def long_runs(model):
    """Return estimates and errors of two long runs."""
    v = model.training.chains["v"]
    weight, a, b = (model.params[name] for name in ("v-h.weight", "v.bias", "h.bias"))
    h = 1 / (1 + np.exp(-(v @ weight + b)))
    means = {"v": 1 / (1 + np.exp(-(h @ weight.T + a))), "h": h}
    chains = {name: log_odds(value.mean(axis=0)) for name, value in means.items()}
    rates = {"v": log_odds(model.training.base_rates["v"])}
    out = []
    for seed, (reference, count) in enumerate(((chains, 10_000), (rates, 20_000)), start=1):
        settings = {"reference": reference, "reverse": False, "confirm": 0}
        method = pgm.AIS(chains=200, betas=pgm.Adaptive(count), **settings)
        r = pgm.infer(model, want=("log_z",), method=method, rng=seed)
        out.append((r.log_z[0], r.log_z_error[0]))
    return out


def kept(folder, data, *which):
    """Return a trained model from a folder, after training it where it is missing."""
    file = folder / ("-".join(map(str, which)).replace(" ", "-") + ".npz")
    if not file.exists():
        pgm.save(trained(data, *which), file)
    return pgm.load(file)


def main():
    """Train the models, and ask for their log Z."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", required=True)
    parser.add_argument("--models", type=Path, help="a folder that keeps the trained models")
    parser.add_argument("--out", type=Path, help="a file whose block of this script is replaced")
    given = parser.parse_args()
    data, lines, right = mnist(given.mnist, 10_000, "train"), [], 0
    folder = given.models or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    every = [(h, s, e) for h in HIDDEN for s in STARTS for e in EPOCHS]
    for hidden, start, epochs in every:
        model = kept(folder, data, hidden, start, epochs)
        begun = time.process_time()
        r = pgm.infer(model, want=("log_z",), method=pgm.AIS(), rng=0)
        seconds, runs = time.process_time() - begun, long_runs(model)
        difference = r.log_z[0] - max(runs, key=lambda run: run[0] - 3 * run[1])[0]
        right += bool(r.status.good) and abs(difference) < 0.5
        low, high = r.log_z_interval[0]
        longer = ", ".join(f"{value:.2f} ± {error:.2f}" for value, error in runs)
        lines.append([f"784x{hidden}, {epochs} epochs from {start}", f"{r.log_z[0]:.2f}"])
        lines[-1] += [f"{low:.2f} to {high:.2f}", r.status.name, f"{seconds:.1f}", longer]
        lines[-1] += [f"{difference:+.2f}"]
        print(" | ".join(lines[-1]), flush=True)
    text = f"{TITLE} {right} of {len(lines)} have a good status and are within 0.5 nats."
    text = "\n\n".join([text, table(COLUMNS, lines)])
    if given.out:
        put_block(given.out, "log_z.py", text)
    print(text)


if __name__ == "__main__":
    main()
