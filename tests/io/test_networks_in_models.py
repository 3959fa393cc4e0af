"""Networks of tables as models: files and other libraries through the builder's declarations.

The answers are sums over all joint states, which are few.
"""

import numpy as np
import pytest
from small_networks import NAMES, RAIN, TEXTS, WET, WIND, drawn, network

import pgmengine as pgm
from pgmengine.io.formats import read, read_evidence, write_network
from pgmengine.io.network import build

JOINT = RAIN[:, None, None] * WIND[None, :, None] * WET


@pytest.mark.parametrize("suffix", TEXTS)
def test_a_model_is_read_from_every_format(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    path.write_text(TEXTS[suffix])
    model = read(path)
    names = ("0", "1", "2") if suffix == ".uai" else NAMES
    yes = "0" if suffix == ".uai" else "yes"
    assert tuple(model.variables) == names
    posterior = JOINT[:, :, 0].sum(1) / JOINT[:, :, 0].sum()
    answer = pgm.infer(model, {names[2]: yes}).marginal(names[0])
    assert np.allclose(list(answer.values()), posterior)


def test_conditionals_have_z_of_1_and_tables_the_sum_of_their_product(tmp_path, seed=0):
    rng = np.random.default_rng(seed)
    assert np.allclose(pgm.infer(build(network()), want=("log_z",)).log_z, 0.0)
    for _ in range(5):
        n = drawn(rng, directed=False)
        total = np.einsum(*(x for t in n.tables for x in (t.values, list(t.scope))), [])
        assert np.allclose(pgm.infer(build(n), want=("log_z",)).log_z, np.log(total))


def test_evidence_of_a_file_is_taken_as_it_is(tmp_path):
    write_network(network(), tmp_path / "m.uai")
    (tmp_path / "m.uai.evid").write_text("2\n1 2 0\n2 2 1 0 0\n")
    evidence = read_evidence(tmp_path / "m.uai.evid")
    log_z = pgm.infer(read(tmp_path / "m.uai"), evidence, want=("log_prob",)).log_prob
    assert np.allclose(log_z, np.log([JOINT[:, :, 0].sum(), JOINT[0, :, 1].sum()]))


def test_rows_that_do_not_sum_to_1_are_refused_by_file(tmp_path):
    path = tmp_path / "m.bif"
    path.write_text(TEXTS[".bif"].replace("0.15, 0.85", "0.15, 0.75"))
    with pytest.raises(pgm.PgmError, match=f"^{path}: .*wet"):
        read(path)
