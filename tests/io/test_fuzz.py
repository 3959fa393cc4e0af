"""Thousands of mutations of every input: nothing crashes, and every exception is a PgmError.

Input that is still accepted is then used, to show that it does no harm later.
"""

import csv
import io
import json
import tomllib

import numpy as np
import pytest
from damaged import TOML, answered, model, parts_of, tabled
from limits import free_memory
from mutations import ODD, array, cut, json_of, pick, raw, tensors, toml_of, tree
from safetensors.numpy import save

import pgmengine as pgm
from pgmengine.base.files import checksum

pytestmark = pytest.mark.long
COUNT = 10_000
X = {"v": pgm.datasets.bars_and_stripes(3).x_train}


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    """Free memory is set low, so that sizes that are large by mutation are refused."""
    free_memory(monkeypatch, 2.0**26)


def refused(act, what):
    """Whether it raises a PgmError; any other exception fails, and what was tried is shown."""
    try:
        act()
    except pgm.PgmError as error:
        assert str(error)
        return True
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} ({error}) of {what!r:.3000}") from error
    return False


def forged(found, metadata, rng):
    """A file whose tensors and metadata are as given, with a checksum that says so, or without."""
    found = {name: np.asarray(value, order="C") for name, value in found.items()}
    if rng.random() < 0.9:
        metadata = {**metadata, "sha256": checksum(found, metadata)}
    return save(found, metadata=metadata)


def mutated_text(text, rng):
    """JSON with changes in its tree, or in its letters."""
    if rng.random() < 0.8:
        return json_of(tree(json.loads(text), rng))
    return raw(text.encode(), rng).decode(errors="replace")


def mutated_file(whole, found, metadata, text, rng):
    """A .safetensors file with any of the mutations."""
    kind = rng.random()
    if kind < 0.35:
        return raw(whole, rng)
    if kind < 0.7:
        changed = {**metadata, text: mutated_text(metadata[text], rng)}
        changed["format"] = pick(rng, [metadata["format"], "pgmengine-1", "pgmengine-checkpoint-3"])
        return forged(found, changed, rng)
    return forged(
        tensors(found, rng),
        {**metadata, "format": pick(rng, [metadata["format"], "pgmengine-1"])},
        rng,
    )


@pytest.mark.parametrize("made", [model, tabled])
def test_model_files(made, tmp_path, seed=1):
    path, rng = tmp_path / "m", np.random.default_rng(seed)
    pgm.save(made(), path)
    whole, (found, metadata) = path.read_bytes(), parts_of(path)

    def act():
        loaded = pgm.load(path)
        repr(loaded)
        pgm.save(loaded, tmp_path / "again")
        pgm.load(tmp_path / "again")

    taken = 0
    for _ in range(COUNT):
        content = mutated_file(whole, found, metadata, "declaration", rng)
        path.write_bytes(content)
        taken += not refused(act, content)
    assert 0 < taken < COUNT / 2


def test_checkpoints(tmp_path, seed=2):
    path, rng, m = tmp_path / "c", np.random.default_rng(seed), pgm.rbm(9, 2, rng=0)
    settings = {
        "negative": pgm.PCD(chains=4),
        "batch_size": 5,
        "progress": False,
        "checkpoint": path,
    }
    pgm.fit(m, X, updates=2, **settings)
    whole, (found, metadata) = path.read_bytes(), parts_of(path)
    taken = 0
    for _ in range(COUNT):
        content = mutated_file(whole, found, metadata, "text", rng)
        path.write_bytes(content)
        taken += not refused(lambda: pgm.fit(m, X, updates=4, **settings), content)
    assert 0 < taken < COUNT / 2


def test_toml(tmp_path, seed=3):
    path, rng, declaration = tmp_path / "m.toml", np.random.default_rng(seed), tomllib.loads(TOML)
    pgm.save(model(), tmp_path / "w.safetensors")
    declaration = {"weights": "w.safetensors", **declaration}
    del declaration["weights"]
    taken = 0
    for _ in range(COUNT):
        text = (
            raw(TOML.encode(), rng)
            if rng.random() < 0.4
            else toml_of(tree(declaration, rng)).encode(errors="surrogatepass")
        )
        path.write_bytes(text)
        taken += not refused(lambda: repr(pgm.load_declaration(path, rng=0)), text)
    assert 0 < taken < COUNT / 2


def evidence_file(folder, rng):
    """A file of evidence, whole or not."""
    rows = rng.integers(0, 2, (int(rng.integers(1, 4)), 4)).astype(float)
    kind = pick(rng, ["npz", "csv", "json"])
    held = io.BytesIO()
    if kind == "npz":
        named = {pick(rng, ["v", "h", "x", ""]): rows if rng.random() < 0.5 else array(rows, rng)}
        pick(rng, [np.savez, np.savez_compressed])(held, **named)
        content = held.getvalue()
    elif kind == "csv":
        text = io.StringIO()
        csv.writer(text).writerows(
            [
                [
                    pick(rng, [0, 1, "?", "", "x", "nan", "1e999"])
                    if rng.random() < 0.1
                    else int(v)
                    for v in row
                ]
                for row in rows
            ]
        )
        content = text.getvalue().encode()
    else:
        value = {"v": rows.tolist()}
        content = json_of(tree(value, rng) if rng.random() < 0.5 else value).encode()
    if rng.random() < 0.5:
        content = raw(content, rng)
    path = folder / f"e.{kind if rng.random() < 0.98 else 'txt'}"
    path.write_bytes(content)
    return path


def words_of(folder, rng):
    """A command line, with anything in the places where it has something."""
    command = pick(rng, ["info", "explain", "infer", "infer", "sample", "fit"])
    words = [command, folder / pick(rng, ["m.safetensors"] * 8 + ["m.toml", "absent", "."])]
    if command == "fit":
        words += [
            evidence_file(folder, rng),
            folder / pick(rng, ["out.safetensors", "out.safetensors", "no/out", ""]),
        ]
        words += ["--epochs", "1"]
    elif command != "info":
        inline = ",".join(
            pick(rng, ["0", "1", "?", "", "2", "x", "nan", "inf", "\0", "1e400"])
            if rng.random() < 0.2
            else "1"
            for _ in range(4 if rng.random() < 0.8 else int(rng.integers(0, 400)))
        )
        given = pick(
            rng,
            [
                f"v={inline}",
                f"{pick(rng, ['v', 'h', '', 'vv'])}={inline}",
                evidence_file(folder, rng),
            ],
        )
        words += ["--evidence", given]
    if command in ("infer", "explain"):
        words += [
            "--want",
            pick(rng, ["marginals", "log_z,log_prob", "mode", "all", "", ",", "pairs"]),
        ]
    if command in ("infer", "sample") and rng.random() < 0.3:
        words += [
            "--out",
            folder / pick(rng, ["a.npz", "a.json", "a.txt", "no/a.npz", ".npz", "folder.npz"]),
        ]
    if command in ("infer", "sample", "fit"):
        words += ["--seed", pick(rng, ["0", "0", "-1", "x", str(2**70), "1.5"])]
    if command == "sample":
        words += ["--draws", pick(rng, ["2", "2", "0", "-3", "x"])]
    if rng.random() < 0.1:
        words[int(rng.integers(len(words)))] = str(pick(rng, ODD))
    return [word for word in words if "demo" not in str(word)]


def test_the_command_line(tmp_path, seed=4):
    rng, whole = np.random.default_rng(seed), pgm.rbm(4, 2, rng=0)
    (tmp_path / "folder.npz").mkdir()
    pgm.save(whole, tmp_path / "m.safetensors")
    (tmp_path / "m.toml").write_bytes(cut(TOML.encode(), rng))
    taken = 0
    for _ in range(COUNT):
        words = words_of(tmp_path, rng)
        try:
            code, err = answered(words)
        except Exception as error:
            content = [path.read_bytes() for path in tmp_path.glob("e.*")]
            raise AssertionError(
                f"{type(error).__name__} ({error}) of {words}, {content!r:.3000}"
            ) from error
        assert code == 0 or (
            code == 2 and err.startswith("pgmengine: ") and err.count("\n") == 1
        ), (words, err)
        taken += code == 0
    assert COUNT / 10 < taken < COUNT
