"""Files on disks that are full, broken or shared: checksums, links, faults, and locks."""

import errno
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from comparisons import same_models
from damaged import model, parts_of
from limits import no_unnamed_files
from safetensors.numpy import save_file

import pgmengine as pgm
from pgmengine.learn.saving.checkpoint import read
from pgmengine.learn.saving.lock import Lock

KEPT = Path(__file__).parents[1] / "files"
X = {"v": pgm.datasets.bars_and_stripes(3).x_train}
TRAINER = {"negative": pgm.PCD(chains=4), "progress": False}


def test_files_of_the_format_without_a_checksum_are_read():
    found = pgm.load(KEPT / "model-1.safetensors")
    same_models(found, model())
    layer = found.structure.layers["v"]
    assert layer.labels == ("a", ("b", 1), None) and layer.state_names == ("off", "on")


def test_files_of_the_format_without_shared_tables_are_read():
    found = pgm.load(KEPT / "model-3.safetensors")
    assert found.variables == ["rain", "wet"] and found.structure.layers["v"].size == 3
    shapes = {key: value.shape for key, value in found.params.items() if key.endswith(".table")}
    assert list(shapes.values()) == [(2,), (2, 2), (2, 3), (2, 3, 3)]
    np.testing.assert_array_equal(found.params["v,v.table"].ravel(), np.log(np.arange(18) + 1.0))


def test_checkpoints_of_the_format_before_are_read(tmp_path):
    (tmp_path / "c").write_bytes((KEPT / "checkpoint-3").read_bytes())
    arrays, notes = read(tmp_path / "c", {})
    assert arrays["update"] == 3 and arrays["params/v-h.weight"].shape == (18,)
    assert notes["by"] == "Adam and PCD" and list(notes["history"]) == ["weight_norm"]


def checkpoint(path):
    pgm.fit(pgm.rbm(9, 2, rng=0), X, updates=3, checkpoint=path, **TRAINER)


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.long)])
def test_single_bits_that_flip_are_seen(every, tmp_path):
    """Each of them in the long run, else one of so many, which is every bit of a byte in turn."""
    pgm.save(model(), tmp_path / "m")
    checkpoint(tmp_path / "c")
    acts = {"m": lambda: pgm.load(tmp_path / "m"), "c": lambda: read(tmp_path / "c", {})}
    for name, act in acts.items():
        whole = (tmp_path / name).read_bytes()
        accepted = []
        for bit in range(0, 8 * len(whole), every):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << bit % 8
            (tmp_path / name).write_bytes(content)
            try:
                act()
                accepted.append(bit)
            except pgm.PgmError:
                pass
        assert not accepted


def test_checksums_cover_names_dtypes_shapes_bytes_and_text(tmp_path):
    pgm.save(model(), tmp_path / "m")
    checkpoint(tmp_path / "c")
    for name, act in (
        ("m", lambda: pgm.load(tmp_path / "x")),
        ("c", lambda: read(tmp_path / "x", {})),
    ):
        tensors, metadata = parts_of(tmp_path / name)
        key = "v-h.weight" if name == "m" else "negative/v"
        value = tensors[key]
        integers = value.view(np.int64 if value.dtype.itemsize == 8 else np.int32)
        for changed in (
            {**tensors, key: integers},
            {**tensors, key: value.T.reshape(value.shape)},
            {**tensors, key: value.reshape(1, *value.shape)},
            {n: v for n, v in tensors.items() if n != key},
            {**tensors, "more": value},
        ):
            save_file(
                {n: np.ascontiguousarray(v) for n, v in changed.items()},
                tmp_path / "x",
                metadata=metadata,
            )
            with pytest.raises(pgm.PgmError, match="x: .*is damaged"):
                act()
        text = "declaration" if name == "m" else "text"
        for changed in (
            {**metadata, text: metadata[text] + " "},
            {**metadata, "more": ""},
            {n: v for n, v in metadata.items() if n != "sha256"},
            {n: v for n, v in metadata.items() if n != text},
        ):
            save_file(tensors, tmp_path / "x", metadata=changed)
            with pytest.raises(pgm.PgmError, match="damaged"):
                act()


def test_save_follows_links_and_replaces_regular_files_only(tmp_path):
    m = pgm.rbm(3, 2, rng=0)
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("second")
    (tmp_path / "second").symlink_to("far/m")
    for _ in range(2):  # first a link to nothing
        pgm.save(m, tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and (tmp_path / "second").is_symlink()
        assert {path.name for path in (tmp_path / "far").iterdir()} == {"m"}
        same_models(pgm.load(tmp_path / "far" / "m"), m)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "null").symlink_to("/dev/null")
    before = set(tmp_path.iterdir())
    for name, match in (
        ("far", "a directory"),
        ("pipe", "a pipe"),
        ("loop", "leads back to itself"),
        ("null", "a device"),
    ):
        for act in (lambda path: pgm.save(m, path), checkpoint):
            with pytest.raises(pgm.PgmError, match=f"{name}: is .*{match}"):
                act(tmp_path / name)
        with pytest.raises(pgm.PgmError, match=f"{name}: cannot be read"):
            pgm.load(tmp_path / name)
    assert set(tmp_path.iterdir()) == before
    (tmp_path / "to").symlink_to("far/c")
    checkpoint(tmp_path / "to")
    assert (tmp_path / "to").is_symlink() and read(tmp_path / "far" / "c", {}) is not None


@pytest.mark.parametrize("unnamed", [True, False])
def test_the_folder_is_synchronised_after_the_file_has_its_name(unnamed, monkeypatch, tmp_path):
    """The file has no name until it is whole, or a name beside where a system has no such files."""
    steps = []
    if not unnamed:
        no_unnamed_files(monkeypatch)

    def fsync(number):
        name = Path(os.readlink(f"/proc/self/fd/{number}")).name
        steps.append(("fsync", "m" if name.startswith(("#", "m.")) else name))

    def replace(one, other):
        steps.append(("replace", Path(other).name))
        os.rename(one, other)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    pgm.save(pgm.rbm(3, 2, rng=0), tmp_path / "m")
    assert steps == [("fsync", "m"), ("replace", "m"), ("fsync", tmp_path.name)]


def failing(error, calls):
    """A function that fails when it is called, so often."""
    left = [calls]

    def call(function):
        def called(*args, **named):
            if left[0] > 0:
                left[0] -= 1
                raise error
            return function(*args, **named)

        return called

    return call


FAULTS = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EIO, "Input/output error"),
    MemoryError(),
]
PLACES = [(os, "fsync"), (os, "replace"), ("safetensors.numpy", "save")]


def place_of(where):
    return sys.modules[where] if isinstance(where, str) else where


@pytest.mark.parametrize("error", FAULTS, ids=repr)
@pytest.mark.parametrize(("where", "name"), PLACES)
def test_a_save_that_fails_leaves_what_was_there(error, where, name, monkeypatch, tmp_path):
    first, second = pgm.rbm(3, 2, rng=0), pgm.rbm(3, 2, rng=1)
    pgm.save(first, tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(place_of(where), name, failing(error, 1)(getattr(place_of(where), name)))
        with pytest.raises(type(error)):
            pgm.save(second, tmp_path / "m")
    same_models(pgm.load(tmp_path / "m"), first)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def messages(caplog):
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("error", FAULTS, ids=repr)
@pytest.mark.parametrize(("where", "name"), PLACES)
def test_a_disk_that_is_full_for_a_while_does_not_end_a_fit(
    error, where, name, monkeypatch, tmp_path, caplog
):
    monkeypatch.setattr(sys.modules["pgmengine.learn.fit"], "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    whole = pgm.fit(pgm.rbm(9, 2, rng=0), X, updates=9, **TRAINER)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(place_of(where), name, failing(error, 4)(getattr(place_of(where), name)))
        # A monitor that looks at every update ends each call of the compiled loop there.
        found = pgm.fit(
            pgm.rbm(9, 2, rng=0),
            X,
            updates=9,
            checkpoint=tmp_path / "c",
            callbacks=[lambda model, update: None],
            **TRAINER,
        )
    same_models(found.model, whole.model)
    # The fit is short, and says that it was still rising as well.
    said = [text for text in messages(caplog) if "checkpoint" in text]
    assert (
        "update 1: the checkpoint" in said[0] and "tries again" in said[0] and found.unsaved == ""
    )
    assert len(said) == 5 and said[-1].endswith("could not be written 4 times before")
    assert int(read(tmp_path / "c", {})[0]["update"]) == 9
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_disk_that_stays_full_is_told_at_the_end(monkeypatch, tmp_path, caplog):
    checkpoint(tmp_path / "c")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "fsync", failing(FAULTS[0], 10**9)(os.fsync))
        found = pgm.fit(pgm.rbm(9, 2, rng=0), X, updates=9, checkpoint=tmp_path / "c", **TRAINER)
    assert found.state["update"] == 9 and "could not be written at the end" in found.unsaved
    assert "No space left" in found.unsaved and found.unsaved in repr(found)
    assert any(found.unsaved in text for text in messages(caplog))
    assert int(read(tmp_path / "c", {})[0]["update"]) == 3
    again = pgm.fit(pgm.rbm(9, 2, rng=0), X, updates=9, checkpoint=tmp_path / "c", **TRAINER)
    same_models(again.model, found.model)


def test_two_fits_on_one_checkpoint_are_refused(tmp_path):
    """A second fit is refused in the same process and under another name of the file, and accepted
    after the first fit has ended in any way.
    """
    seen = []
    (tmp_path / "link").symlink_to("c")

    def second(m, update):
        for name in ("c", "link"):
            with pytest.raises(
                pgm.PgmError, match=f"another fit is writing {tmp_path / 'c'}; give"
            ):
                checkpoint(tmp_path / name)
        seen.append(update)
        if update == 2:
            raise KeyError("ends here")

    with pytest.raises(KeyError):
        pgm.fit(
            pgm.rbm(9, 2, rng=0),
            X,
            updates=3,
            checkpoint=tmp_path / "c",
            callbacks=[second],
            **TRAINER,
        )
    assert seen == [0, 1, 2]
    checkpoint(tmp_path / "c")
    assert {path.name for path in tmp_path.iterdir()} == {"c", "link"}


HOLDER = """
import sys, time, pgmengine as pgm
x = {"v": pgm.datasets.bars_and_stripes(3).x_train}
def hold(model, update):
    print("holds", flush=True)
    time.sleep(600)
pgm.fit(pgm.rbm(9, 2, rng=0), x, negative=pgm.PCD(chains=4), updates=3, checkpoint=sys.argv[1],
        callbacks=[hold], progress=False)
"""


def test_a_lock_ends_with_its_process_however_it_ends(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "c")], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "holds\n"
    with pytest.raises(pgm.PgmError, match="another fit is writing"):
        checkpoint(tmp_path / "c")
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    # The lock file stays, and blocks no other fit.
    assert (tmp_path / "c.lock").exists()
    checkpoint(tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_forked_children_do_not_keep_a_lock(tmp_path):
    """Children that outlive a killed parent do not keep its lock: the parent's file is closed, and
    nothing is removed.
    """
    lock, (here, there) = Lock(tmp_path / "c"), multiprocessing.Pipe()
    lock.__enter__()
    child = os.fork()
    if child == 0:
        here.close()
        there.send("is there")
        there.recv()
        os._exit(0)
    assert here.recv() == "is there"
    with pytest.raises(pgm.PgmError, match="another fit"), Lock(tmp_path / "c"):
        pass
    lock.close()
    with Lock(tmp_path / "c"):
        pass
    here.send("may go")
    assert os.waitpid(child, 0)[1] == 0


def test_a_checkpoint_whose_lock_cannot_be_made_is_refused_at_once(tmp_path):
    (tmp_path / "c.lock").mkdir()
    with pytest.raises(pgm.PgmError, match=r"c.lock cannot be made beside .*c: Is a directory"):
        checkpoint(tmp_path / "c")


def test_states_of_other_dtypes_are_refused():
    half = pgm.fit(pgm.rbm(9, 2, rng=0), X, updates=3, **TRAINER)
    state = {**half.state, "order": half.state["order"].astype(float)}
    with pytest.raises(pgm.PgmError, match="'order' has entries of float64, expected int64"):
        pgm.fit(half.model, X, updates=5, state=state, **TRAINER)
