"""Files of models: what comes back is what was saved, or it is refused."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from damaged import parts_of, without_sum
from loops import one_test_over

import pgmengine as pgm


def test_a_saved_model_may_be_read_by_whoever_may_read_new_files(tmp_path):
    (tmp_path / "new").touch()
    pgm.save(pgm.rbm(3, 2, rng=0), tmp_path / "m")
    assert (tmp_path / "m").stat().st_mode == (tmp_path / "new").stat().st_mode
    with pytest.raises(OSError):
        pgm.save(pgm.rbm(3, 2, rng=0), tmp_path / "none" / "m")
    assert {path.name for path in tmp_path.iterdir()} == {"m", "new"}


def test_a_file_that_lacks_a_parameter_is_refused(tmp_path):
    """The weights of the file are used, not new random weights."""
    pgm.save(pgm.rbm(3, 2, rng=0), tmp_path / "m")
    tensors, metadata = parts_of(tmp_path / "m")
    for name in tensors:
        without_sum(tmp_path / "n", {n: v for n, v in tensors.items() if n != name}, metadata)
        with pytest.raises(pgm.PgmError, match=f"parameter '{name}' is missing"):
            pgm.load(tmp_path / "n")


def test_sparse_weights_whose_indices_lie_outside_are_refused(tmp_path):
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 3)
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h", weight=sp.csr_array(np.eye(3, 2)))
    pgm.save(b.build(), tmp_path / "m")
    tensors, metadata = parts_of(tmp_path / "m")
    tensors["v-h.weight/indices"] = tensors["v-h.weight/indices"] + 10**8
    without_sum(tmp_path / "m", tensors, metadata)
    with pytest.raises(pgm.PgmError, match="damaged"):
        pgm.load(tmp_path / "m")
    broken = sp.csr_array(np.eye(3, 2))
    broken.indices[0] = 7
    b.weights[0] = broken
    with pytest.raises(pgm.PgmError, match="'v-h'.*not a whole sparse matrix"):
        b.build()


@pytest.mark.smoke
def test_files_keep_names_with_a_slash_tuples_and_subclasses(tmp_path):
    class Coin(pgm.Binary):
        pass

    Coin.__name__ = "CoinOfATest"
    b = pgm.GraphBuilder()
    b.layer("a/b", Coin(), 2, states=[("no", 0), ("yes", 1)])
    b.layer("data", pgm.Binary(), 2)
    b.couple("a/b", "data", weight=sp.csr_array(np.eye(2)))
    model = b.build()
    pgm.save(model, tmp_path / "m")
    back = pgm.load(tmp_path / "m")
    layer = back.structure.layers["a/b"]
    assert isinstance(layer.unit, Coin) and layer.state_names == (("no", 0), ("yes", 1))
    np.testing.assert_array_equal(back.params["a/b-data.weight"].toarray(), np.eye(2))
    Spin = type("Spin", (pgm.Binary,), {})  # noqa: N806
    other = pgm.GraphBuilder()
    other.layer("v", Spin(), 2)
    with pytest.raises(pgm.PgmError, match="unit type 'Spin' has the name of one of pgmengine's"):
        pgm.save(other.build(), tmp_path / "m")
    pgm.save(pgm.rbm(2, 2, visible=pgm.Spin(), rng=0), tmp_path / "s")
    assert type(pgm.load(tmp_path / "s").structure.layers["v"].unit) is pgm.Spin


def test_threads_that_save_one_path_leave_a_whole_file(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    model = pgm.rbm(50, 20, rng=0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: pgm.save(model, tmp_path / "m"), range(60)))
    np.testing.assert_array_equal(
        pgm.load(tmp_path / "m").params["v-h.weight"], model.params["v-h.weight"]
    )


class Stateful(pgm.Unit):
    """Up to a number that is no field of a dataclass, so that two of them are equal."""

    def __init__(self, top):
        object.__setattr__(self, "top", top)

    @property
    def support(self):
        return np.arange(self.top + 1.0)


@dataclass(frozen=True)
class WithField(pgm.Unit):
    """Two values, and a field of any kind."""

    field: object = None
    support = np.array([0.0, 1.0])


@dataclass(frozen=True)
class WithSize(pgm.Unit):
    """Two values, and a field of a name that layers have."""

    size: int = 3
    support = np.array([0.0, 1.0])


def test_units_that_would_be_mixed_up_are_refused():
    """Two units are the same when their fields are; a file and a graph of variables know units by
    their fields.
    """
    g = nx.Graph()
    g.add_node("a", unit=Stateful(2))
    g.add_node("b", unit=Stateful(5))
    for make in (
        lambda: pgm.rbm(2, 2, visible=Stateful(2)),
        lambda: pgm.GraphBuilder.from_networkx(g),
    ):
        with pytest.raises(pgm.PgmError, match="'top' of Stateful is not a field"):
            make()
    g = nx.Graph([("a", "b")])
    for unit in (WithField(np.ones(2)), WithField([1, 2])):
        nx.set_node_attributes(g, unit, "unit")
        for make in (
            lambda u=unit: pgm.rbm(2, 2, visible=u),
            lambda: pgm.GraphBuilder.from_networkx(g),
        ):
            with pytest.raises(pgm.PgmError, match="must be numbers, text or tuples"):
                make()
    nx.set_node_attributes(g, "Binary", "unit")
    with pytest.raises(pgm.PgmError, match="node 'a': the unit must be one such as Binary"):
        pgm.GraphBuilder.from_networkx(g)


@one_test_over(
    "field", [None, 3, 2.5, "text", (1, ("a", None)), np.int64(4), np.float64(0.5), True]
)
def test_fields_of_units_come_back_from_a_file(field, tmp_path):
    model = pgm.rbm(2, 2, visible=WithField(field), rng=0)
    pgm.save(model, tmp_path / "m")
    assert pgm.load(tmp_path / "m").structure.layers["v"].unit == WithField(field)


def test_a_label_that_is_none_is_not_its_name(tmp_path):
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 3, labels=[None, "None", ("a", None)])
    b.layer("h", pgm.Binary(), 1)
    b.couple("v", "h")
    pgm.save(b.build(rng=0), tmp_path / "m")
    assert pgm.load(tmp_path / "m").structure.layers["v"].labels == (None, "None", ("a", None))


@one_test_over("unit", [WithField(frozenset({1})), WithField(1j), WithField(b"bytes"), WithSize()])
def test_fields_that_a_file_cannot_hold_are_named(unit, tmp_path):
    with pytest.raises(pgm.PgmError, match=f"layer 'v': .*{type(unit).__name__}"):
        pgm.save(pgm.rbm(2, 2, visible=unit, rng=0), tmp_path / "m")
    assert not list(tmp_path.iterdir())


@one_test_over("name", ["asia.bif", "asia.UAI", "asia.xdsl.gz"])
def test_a_model_is_not_saved_under_the_suffix_of_another_format(name, tmp_path):
    with pytest.raises(pgm.PgmError, match="save writes .safetensors files; pgm.write writes"):
        pgm.save(pgm.read(pgm.datasets.asia()), tmp_path / name)
    assert not list(tmp_path.iterdir())
