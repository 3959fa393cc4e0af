"""Files that were made to do harm are refused: what SECURITY.md promises.

The fuzzing of the other files of this folder damages files that were good.
"""

import gzip
import json
import os
import pickle
import struct

import pytest
from loops import one_test_over

import pgmengine as pgm


class Runs:
    """An object whose unpickling makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def header(entries):
    """A .safetensors file with these entries, and no numbers."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


LAUGHS = """<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>
<BIF VERSION="0.3"><NETWORK><NAME>&b;</NAME></NETWORK></BIF>"""
FORTY = "2 " * 40 + "\n1\n40 " + " ".join(str(i) for i in range(40))

HOSTILE = {
    "entities.xmlbif": LAUGHS.encode(),
    "joint.uai": b"MARKOV\n3\n" + b"1000000000 " * 3 + b"\n1\n3 0 1 2\n8\n" + b"1 " * 8,
    "variables.uai": b"MARKOV\n2000000000\n2 2",
    "entries.uai": f"MARKOV\n40\n{FORTY}\n1099511627776\n1".encode(),
    "deep.bif": b"network x {" + b"{" * 100_000,
    "deep.net": b"net { a = " + b"(" * 200_000,
    "deep.dsl": b"net x { node y { " * 5_000,
    "bytes.bif": bytes(range(256)) * 100,
    "long.safetensors": struct.pack("<Q", 2**62) + b"{}",
    "wide.safetensors": header(
        {"a": {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}}
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_sizes_and_depths_of_a_file_take_no_memory(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    reads = pgm.load if name.endswith(".safetensors") else pgm.read
    with pytest.raises(pgm.PgmError, match=name):
        reads(path)


@one_test_over("name", ["model.safetensors", "model.uai", "model.bif", "model.net"])
def test_nothing_is_unpickled(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Runs(str(tmp_path / "made"))))
    for reads in (pgm.load, pgm.read, pgm.load_declaration):
        with pytest.raises(pgm.PgmError):
            reads(path)
    assert not (tmp_path / "made").exists()


def test_another_file_is_not_read(tmp_path):
    (tmp_path / "other").write_text("a secret", encoding="utf-8")
    place = (tmp_path / "other").as_uri()
    path = tmp_path / "outside.xmlbif"
    path.write_text(
        f'<?xml version="1.0"?><!DOCTYPE b [<!ENTITY x SYSTEM "{place}">]>'
        '<BIF VERSION="0.3"><NETWORK><NAME>&x;</NAME></NETWORK></BIF>',
        encoding="utf-8",
    )
    with pytest.raises(pgm.PgmError, match="entity") as refused:
        pgm.read(path)
    assert "a secret" not in str(refused.value)


def test_a_small_file_cannot_unpack_to_any_size(tmp_path, monkeypatch):
    monkeypatch.setenv("PGMENGINE_FILE_GIB", "0.001")
    path = tmp_path / "bomb.uai.gz"
    path.write_bytes(gzip.compress(b"MARKOV\n1\n2\n1\n1 0\n2\n1 1" + b" " * 30_000_000, 9))
    assert path.stat().st_size < 100_000
    with pytest.raises(pgm.PgmError, match="PGMENGINE_FILE_GIB"):
        pgm.read(path)


def test_every_changed_byte_of_a_model_is_found(tmp_path, step=11):
    path = tmp_path / "m.safetensors"
    pgm.save(pgm.rbm(3, 2, rng=0), path)
    good = path.read_bytes()
    for i in range(0, len(good), step):
        path.write_bytes(good[:i] + bytes([good[i] ^ 0x55]) + good[i + 1 :])
        with pytest.raises(pgm.PgmError):
            pgm.load(path)
