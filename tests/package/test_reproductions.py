"""Every command in benchmarks/reproduce runs at the scale small on made-up data, writes its table
and its pictures, and goes on from the parts that it has finished.
"""

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from extras import extra
from scipy.io import savemat

import pgmengine as pgm

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
REPRODUCE = ROOT / "benchmarks" / "reproduce"
# Arguments beside the folder of results, the table, and the pictures. DATA, WEIGHTS and IMAGES
# stand for made-up files.
COMMANDS = {
    "adaptive_tempering.py": ([], "adaptive_tempering.txt", ["figure_2.png", "figure_4.png"]),
    "belief_nets.py": (
        ["--data", "DATA"],
        "belief_nets.txt",
        ["figure_2.png", "figure_5.png", "figure_6.png", "noisy_or.png", "missing.png"],
    ),
    "deep_boltzmann.py": (["DATA"], "deep_boltzmann.txt", ["deep_boltzmann.png"]),
    "flip_state.py": (
        ["--data", "DATA", "--weights", "WEIGHTS"],
        "flip_state.txt",
        ["figure_3.png", "flip_state.png"],
    ),
    "flip_state_learning.py": (
        ["--data", "DATA"],
        "flip_state_learning.txt",
        ["flip_state_learning.png"],
    ),
    "hidden_units.py": ([], "hidden_units.txt", ["hidden_units.png"]),
    "multivalued.py": (
        ["--data", "DATA"],
        "multivalued.txt",
        ["figure_2_3.png", "figure_4.png", "figure_6.png"],
    ),
    "norb.py": (["--file", "IMAGES"], "norb.txt", ["norb.png"]),
    "occupancy.py": (["DATA"], "occupancy-0.05-20000.txt", ["occupancy-0.05-20000.png"]),
    "public_weights.py": (["WEIGHTS", "DATA"], "public_weights.txt", ["public_weights.png"]),
}


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """Files in the formats of MNIST, of 8x8 digits, of an RBM, and of grey images."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    # A blurred square for each label, at a place of its own, and noise.
    places = np.stack(np.meshgrid(np.arange(28), np.arange(28), indexing="ij"), axis=-1)
    corners = rng.integers(2, 18, (10, 2))
    shapes = np.array([np.all((places >= c) & (places < c + 8), axis=-1) for c in corners])
    for part, many in (("train", 300), ("t10k", 120)):
        labels = np.arange(many) % 10
        images = np.clip(200 * shapes[labels] + rng.integers(0, 60, (many, 28, 28)), 0, 255)
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
    (folder / "usps").mkdir()
    bits = (rng.random((10, 1, 64)) < 0.4) ^ (rng.random((10, 1100, 64)) < 0.1)
    packed, labels = np.packbits(bits.reshape(-1, 64), axis=1), np.repeat(np.arange(10), 1100)
    np.savez(folder / "usps" / "usps_8x8_binary.npz", X=packed, y=labels)
    weights = {"vishid": rng.normal(0, 0.1, (784, 20))}
    savemat(
        folder / "weights.mat",
        weights | {"visbiases": rng.normal(0, 1, (1, 784)), "hidbiases": np.zeros((1, 20))},
    )
    np.savez(folder / "images.npz", images=rng.integers(0, 256, (400, 256), dtype=np.uint8))
    return {
        "DATA": str(folder),
        "WEIGHTS": str(folder / "weights.mat"),
        "IMAGES": str(folder / "images.npz"),
    }


def write_idx(path, array):
    """Write bytes in the format of the MNIST files."""
    array = np.asarray(array, dtype=np.uint8)
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes(), 1))


def test_every_command_is_tested():
    commands = [p.name for p in REPRODUCE.glob("*.py") if "typer.run(" in p.read_text("utf-8")]
    others = "".join(
        p.read_text("utf-8") for p in Path(__file__).parent.glob("test_*.py") if p != Path(__file__)
    )
    assert [c for c in commands if c not in COMMANDS and Path(c).stem not in others] == []
    assert [c for c in COMMANDS if c not in commands] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_writes_tables_and_pictures_and_goes_on(command, made_up, tmp_path):
    extra("matplotlib")
    arguments, table, pictures = COMMANDS[command]
    arguments = [made_up.get(word, word) for word in arguments]
    out = tmp_path / "out"

    def run():
        words = [str(REPRODUCE / command), str(out), *arguments, "--scale", "small"]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        files = sorted(p for p in (out / "parts").rglob("*") if p.is_file())
        return {p: p.stat().st_mtime_ns for p in files}

    first = run()
    assert first and not any(p.suffix == ".part" for p in first)
    assert len((out / table).read_text("utf-8").splitlines()) >= 2
    for picture in pictures:
        assert (out / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    # A run that was interrupted before its last part makes this part alone.
    *kept, last = first
    last.unlink()
    second = run()
    assert set(second) == set(first)
    assert all(second[p] == first[p] for p in kept) and second[last] > first[last]


def test_runs_with_a_change_of_kernel_go_on_from_the_others(monkeypatch):
    """Learning with T after G is learning with G for the first half of the updates, and goes on
    from its chains.
    """
    monkeypatch.syspath_prepend(str(REPRODUCE))
    from flip_state_learning import run

    fit, states = pgm.fit, [None]

    def recorded(*args, **kwargs):
        assert kwargs["state"] is states[-1]
        f = fit(*args, **kwargs)
        states.append(f.state)
        return f

    g, t = (pgm.PCD(kernel=kernel) for kernel in (pgm.Gibbs(), pgm.FlipState()))
    plain = run("Bars-and-Stripes 4x4", "", (g, g), 0.05, 400, 0, False)
    monkeypatch.setattr(pgm, "fit", recorded)
    after = run("Bars-and-Stripes 4x4", "", (g, t), 0.05, 400, 0, False)
    assert len(plain) == len(after) == 5 and len(states) == 3
    assert np.array_equal(plain[:3], after[:3]) and (plain[3:] != after[3:]).all()


def test_log_p_of_images_at_the_scale_small(made_up, tmp_path):
    model, out = tmp_path / "machine.safetensors", tmp_path / "out"
    pgm.save(pgm.dbm([784, 10, 10], rng=0), model)
    words = [str(REPRODUCE / "log_p.py"), str(out), made_up["DATA"], str(model)]
    for _ in range(2):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
    # The second run reads the classes from their files, and measures none.
    assert done.stderr == "" and len(list(out.glob("*.npy"))) == 10
    page = (out / "log_p-machine.md").read_text("utf-8")
    assert "10 images, 100 temperatures" in page and "nan" not in page
