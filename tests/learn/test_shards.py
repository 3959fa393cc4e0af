"""Data in parts: fits equal those of all rows together, and errors name the part."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from extras import extra

import pgmengine as pgm

ASIA = pgm.read(pgm.datasets.asia())
STATES = np.array(["yes", "no"], dtype=object)


def rows_of_asia(count, missing=0.0, seed=0):
    """Return rows of asia by column, with this share of missing cells."""
    drawn = pgm.infer(ASIA, want=("samples",), method=pgm.Forward(draws=count), rng=seed)
    rng = np.random.default_rng(seed)
    names = [str(name) for name in ASIA.structure.names.by_key()]
    states = drawn.samples["variables2"][:, 0]
    return {
        name: np.where(rng.random(count) < missing, None, STATES[states[:, i].astype(int)])
        for i, name in enumerate(names)
    }


def parts_of(rows, size):
    """Return the rows in parts of so many."""
    count = len(next(iter(rows.values())))
    return [{n: x[i : i + size] for n, x in rows.items()} for i in range(0, count, size)]


def close(one, other, within):
    """Assert that two fits have the same parameters."""
    for key, value in one.params.items():
        np.testing.assert_allclose(
            np.exp(other.params[key]), np.exp(value), rtol=within, atol=within, err_msg=key
        )


CASES = {
    "counting": (0.0, pgm.EM()),
    "gaps": (0.2, pgm.EM()),
    "gradient": (0.2, pgm.LBFGS()),
    "gradient of complete rows": (0.0, pgm.LBFGS()),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_are_learned_as_all_rows_together(name):
    missing, optimizer = CASES[name]
    rows = rows_of_asia(400, missing)
    settings = {"optimizer": optimizer, "updates": 6, "progress": False}
    whole = pgm.fit(ASIA, rows, **settings)
    shards = pgm.Shards(parts_of(rows, 150))
    close(whole, pgm.fit(ASIA, shards, **settings), 1e-6)
    with ThreadPoolExecutor(2) as pool:
        by_two = pgm.fit(ASIA, shards, executor=pool, **settings)
    one = pgm.fit(ASIA, shards, **settings)
    for key, value in one.params.items():
        np.testing.assert_array_equal(by_two.params[key], value)


def test_real_children_have_the_moments_of_all_parts():
    rng = np.random.default_rng(0)
    z = rng.integers(0, 2, 300)
    x = rng.normal(4.0 * z[:, None], 1.0 + z[:, None], (300, 2))
    x[rng.random(x.shape) < 0.2] = np.nan
    y = np.where(rng.random(300) < 0.3, np.nan, z + rng.integers(0, 2, 300))
    rows = {"x": x, "y": y}
    b = pgm.GraphBuilder()
    z, x, y = b.variable("z", states=2), b.layer("x", pgm.Normal(), 2), b.variable("y", states=3)
    b.conditional(z, (), [0.5, 0.5])
    for i in range(2):
        b.cause(z, x[i], np.array([[0.5, 0.0], [3.0, 0.0]]), name=f"x{i}")
    b.conditional(y, (z,), [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    model = b.build()
    settings = {"optimizer": pgm.EM(), "updates": 8, "progress": False}
    whole = pgm.fit(model, rows, **settings)
    found = pgm.fit(model, pgm.Shards(parts_of(rows, 110)), **settings)
    for key, value in whole.params.items():
        np.testing.assert_allclose(found.params[key], value, rtol=1e-6, atol=1e-6, err_msg=key)


def load(seed):
    """Return rows of one part."""
    return rows_of_asia(60, 0.1, seed)


class Loaded:
    """A function that can be pickled, which returns rows of one part."""

    def __init__(self, seed):
        self.seed = seed

    def __call__(self):
        return load(self.seed)


@pytest.mark.long
def test_other_processes_give_the_same_bits():
    shards = pgm.Shards([Loaded(seed) for seed in range(4)])
    settings = {"optimizer": pgm.EM(), "updates": 3, "progress": False}
    here = pgm.fit(ASIA, shards, **settings)
    with ProcessPoolExecutor(2) as pool:
        there = pgm.fit(ASIA, shards, executor=pool, **settings)
    for key, value in here.params.items():
        np.testing.assert_array_equal(there.params[key], value)


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_files_are_read_a_few_rows_at_a_time(ending, tmp_path):
    pd = extra("pandas")
    if ending == "parquet":
        extra("pyarrow")
    rows = rows_of_asia(90, 0.2)
    frame = pd.DataFrame(rows)
    paths = [tmp_path / f"{i}.{ending}" for i in range(2)]
    for path, part in zip(paths, (frame[:40], frame[40:]), strict=True):
        if ending == "parquet":
            part.to_parquet(path)
        else:
            part.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    settings = {"optimizer": pgm.EM(), "updates": 4, "progress": False}
    whole = pgm.fit(ASIA, frame, **settings)
    close(whole, pgm.fit(ASIA, pgm.Shards(paths, rows=17), **settings), 1e-9)
    close(whole, pgm.fit(ASIA, pgm.Shards([*map(str, paths)]), **settings), 1e-9)


def fails():
    """Raise the error of a broken loader."""
    raise OSError("disk on fire")


def test_errors_name_the_part(tmp_path):
    rows = rows_of_asia(20)
    with pytest.raises(pgm.PgmError, match="shard 1 cannot be loaded: OSError: disk on fire"):
        pgm.fit(ASIA, pgm.Shards([rows, fails]), progress=False)
    wrong = rows | {"lung": np.full(20, "maybe")}
    with pytest.raises(pgm.PgmError, match="shard 1: .*'lung'"):
        pgm.fit(ASIA, pgm.Shards([rows, wrong]), progress=False)
    with pytest.raises(pgm.PgmError, match="shard 0: .*'lung'"):
        pgm.fit(ASIA, pgm.Shards([wrong, rows]), progress=False)
    with pytest.raises(pgm.PgmError, match=r"shard 0 \(a.txt\): files end with"):
        pgm.Shards(["a.txt"])
    with pytest.raises(pgm.PgmError, match="there are no parts"):
        pgm.Shards([])
    with pytest.raises(pgm.PgmError, match="a list of parts, not"):
        pgm.Shards("a.csv")
    with pytest.raises(pgm.PgmError, match="rows of Shards have no weights"):
        pgm.fit(ASIA, pgm.Shards([rows]), sample_weight=np.ones(20), progress=False)
    with pytest.raises(pgm.PgmError, match=r"take optimizer=pgm.EM\(\) or pgm.LBFGS\(\)"):
        v = np.zeros((5, 4))
        pgm.fit(pgm.rbm(4, 30, rng=0), pgm.Shards([{"v": v}]), updates=1, progress=False)


def test_tables_that_would_lose_something_are_refused(tmp_path):
    extra("pandas")
    settings = {"optimizer": pgm.EM(), "updates": 2, "progress": False}
    rows = rows_of_asia(30)
    part = {name: x for name, x in rows.items() if name != "lung"}
    with pytest.raises(pgm.PgmError, match="shard 1: there is no column 'lung', which the first"):
        pgm.fit(ASIA, pgm.Shards([rows, part]), **settings)
    model = pgm.network("a -> b", states={"a": ["no", "yes"], "b": ["no", "yes"]})
    path = tmp_path / "long.CSV"
    path.write_text("a,b\n" + "yes,no,yes\n" * 5, encoding="utf-8")
    with pytest.raises(pgm.PgmError, match=r"shard 0 \(.*long.CSV\) cannot be loaded: .*header"):
        pgm.fit(model, pgm.Shards([path]), **settings)
    path.write_text("a,b\n" + "yes,no,\n" * 5, encoding="utf-8")
    empty = tmp_path / "empty.csv"
    empty.write_text("a,b\n", encoding="utf-8")
    found = pgm.fit(model, pgm.Shards([path, empty]), **settings)
    right = pgm.fit(model, {"a": ["yes"] * 5, "b": ["no"] * 5}, **settings)
    close(right, found, 1e-12)
    with pytest.raises(pgm.PgmError, match="rows of Shards have no weights: give one table"):
        pgm.bootstrap(found, 3)
