"""The smoke lane has every kind of class in it, and nothing that takes long."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from registry import KERNELS, METHODS, NEGATIVES, UNITS

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_lane_has_every_unit_kernel_method_and_model_phase():
    asked = ["-n", "0", "--collect-only", "-m", "smoke"]
    command = [sys.executable, "-m", "pytest", *asked]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = [line for line in found.splitlines() if "::" in line]
    kinds = {
        "test_unit_contract": [repr(u) for u in UNITS if not u.observed_only],
        "test_kernel_contract": [repr(k) for k in KERNELS],
        "test_method_contract": METHODS,
        "test_negative_contract": [f"'{name}'" for name in NEGATIVES],
    }
    for file, names in kinds.items():
        some = [line for line in lines if file in line]
        for name in names:
            place = rf"[\[-]{re.escape(name)}[-\]]"
            assert any(re.search(place, line) for line in some), f"{name} is not in {file}"
    for file in ("test_rooms", "test_registries", "test_model_files", "test_writing"):
        assert any(file in line for line in lines), f"{file} is not in the lane"
    models = {m[1] for line in lines if (m := re.search(r"kernel_contract.*-([a-z ]+)\]", line))}
    assert models == {"rbm"}
