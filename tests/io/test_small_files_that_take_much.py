"""Small files that would take gigabytes: the memory is asked for before it is taken."""

import gzip
import io
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from damaged import answered
from limits import free_memory
from loops import one_test_over

import pgmengine as pgm
from pgmengine.base.work.memory import too_large
from pgmengine.io.bif import read_bif
from pgmengine.io.uai import read_uai_evidence

# Each of them took more than a GiB, or would have, without a limit.
MANY = 1_500_000


def bif(parents):
    """A conditional of one row, the default, for two states of each parent."""
    names = [f"p{i}" for i in range(parents)]
    kinds = "".join(f"variable {x} {{ type discrete [2] {{ y, n }}; }}\n" for x in [*names, "c"])
    roots = "".join(f"probability ( {x} ) {{ table 0.5, 0.5; }}\n" for x in names)
    child = f"probability ( c | {', '.join(names)} ) {{ default 0.5, 0.5; }}\n"
    return f"network n {{ }}\n{kinds}{roots}{child}"


def evid(samples):
    """Samples, in each of which another variable is observed."""
    return f"{samples}\n" + "".join(f"1 {i} 0\n" for i in range(samples))


def xml(before, repeated, behind):
    return gzip.compress((before + repeated * MANY + behind).encode())


def npz(entries, content, dtype="|u1"):
    """An archive whose array has a header for so many entries, and zeros as content."""
    held = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": (entries // 4, 4)}
    np.lib.format.write_array_header_1_0(held, header)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("v.npy", held.getvalue() + b"\0" * content)
    return packed.getvalue()


def small_files():
    return {
        "unknown.xmlbif.gz": xml("<BIF><NETWORK>", "<a/>", "</NETWORK></BIF>"),
        "nested.xmlbif.gz": gzip.compress(b"<BIF><NETWORK>" + b"<a>" * MANY),
        "variables.xmlbif.gz": xml("<BIF><NETWORK>", "<VARIABLE/>", "</NETWORK></BIF>"),
        "names.xmlbif.gz": xml("<BIF><NETWORK><VARIABLE>", "<NAME/>", "</VARIABLE></NETWORK>"),
        "nodes.xdsl.gz": xml("<smile><nodes>", "<cpt/>", "</nodes></smile>"),
        "spaces.uai.gz": gzip.compress(b" " * 2**26),
        "samples.evid": evid(12_000).encode(),
        "default.bif": bif(26).encode(),
        "states.uai": b"MARKOV 9000 " + b"9000 " * 9000 + b" 0",
        "bytes.npz": npz(2**28, 2**28),
        "header.npz": npz(2**28, 64, "<f8"),
    }


MEASURED = """
import json, resource, sys
from pathlib import Path
import pgmengine as pgm
from pgmengine.apps.reading.inputs import read_arrays

def refused(path):
    try:
        if path.suffix == ".npz":
            read_arrays(pgm.rbm(4, 2, rng=0), path)
        else:
            (pgm.read_evidence if path.suffix == ".evid" else pgm.read)(path)
    except pgm.PgmError as error:
        return str(error)
    return ""

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
out, before = {}, peak()
for path in map(Path, sys.argv[1:]):
    out[path.name] = refused(path), peak() - before
print(json.dumps(out))
"""


def test_small_files_take_little_memory_before_they_are_refused(tmp_path, most_mib=300):
    """The peak of a fresh process, in MiB above the imports, under a limit of 100 MiB a file."""
    paths = []
    for name, content in small_files().items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
        assert len(content) < 500_000
    env = {**os.environ, "PGMENGINE_FILE_GIB": "0.1"}
    words = [sys.executable, "-c", MEASURED, *map(str, paths)]
    found = json.loads(subprocess.run(words, capture_output=True, env=env, check=True).stdout)
    for path in paths:
        message, mib = found[path.name]
        assert str(path) in message, (path, message)
        assert mib < most_mib, (path, mib)


def test_the_limit_is_named_and_can_be_lifted(monkeypatch, tmp_path):
    monkeypatch.setenv("PGMENGINE_FILE_GIB", "0.07")
    path = tmp_path / "e.npz"
    path.write_bytes(npz(2**23, 2**23))
    words = ["infer", tmp_path / "m.safetensors", "--want", "log_prob", "--evidence", path]
    pgm.save(pgm.rbm(4, 2, rng=0), tmp_path / "m.safetensors")
    code, err = answered(words)
    assert code == 2 and "it needs 0.133 GiB, and a file of this size may take 0.07 GiB" in err
    assert "set the environment variable PGMENGINE_FILE_GIB to more GiB" in err
    for read, text in ((read_bif, bif(21)), (read_uai_evidence, evid(2000))):
        with pytest.raises(pgm.PgmError, match=r"line \d+.*may take 0.07 GiB; .* to more GiB"):
            read(text)
    monkeypatch.setenv("PGMENGINE_FILE_GIB", "1")
    assert read_bif(bif(21)).conditionals[21].values.shape == (2,) * 22
    assert len(read_uai_evidence(evid(2000))) == 2000


@one_test_over("given", ["0", "-1", "nan", "much", "1 GiB"])
def test_a_limit_that_is_none_is_refused(given, monkeypatch):
    monkeypatch.setenv("PGMENGINE_FILE_GIB", given)
    with pytest.raises(pgm.PgmError, match="PGMENGINE_FILE_GIB is .*, expected a number of GiB"):
        too_large(2.0**27, 0.0, "")


def test_large_files_take_what_their_size_explains(monkeypatch):
    free_memory(monkeypatch, 2.0**40)
    assert not too_large(2.0**33, 2.0**33, "give fewer") and too_large(2.0**33, 2.0**32, "") != ""
    free_memory(monkeypatch, 2.0**30)
    assert "are free; give fewer" in too_large(2.0**33, 2.0**33, "give fewer")
