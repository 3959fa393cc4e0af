"""Monitors: what each says, against enumeration, and when learning stops."""

import numpy as np
import pytest
from brute import Brute
from extras import extra
from loops import one_test_over
from registry import MONITORS_OF_DATA
from tiny import TABLED, as_evidence, draw_row

import pgmengine as pgm


def free_log_density(model, v):
    """log sum over hidden states of exp(log_density), by enumeration of the three hidden units."""
    hidden = np.array(np.meshgrid(*[[0.0, 1.0]] * 3)).reshape(3, -1).T
    each = [model.log_density({"v": v, "h": np.tile(h, (len(v), 1))}) for h in hidden]
    return np.logaddexp.reduce(each, axis=0)


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(0)
    model = pgm.rbm(5, 3, rng=0)
    model = model.with_params({k: rng.normal(size=v.shape) for k, v in model.params.items()})
    return model, rng.integers(0, 2, (6, 5)).astype(float)


def test_pseudo_likelihood(small):
    model, x = small
    total = 0.0
    for i in range(5):
        other = x.copy()
        other[:, i] = 1 - x[:, i]
        here, there = free_log_density(model, x), free_log_density(model, other)
        total += (here - np.logaddexp(here, there)).mean()
    np.testing.assert_allclose(
        pgm.PseudoLikelihood({"v": x})(model, 0)["pseudo_likelihood"], total, rtol=1e-10
    )
    with pytest.raises(pgm.PgmError, match="complete"):
        pgm.PseudoLikelihood({"v": np.full((1, 5), np.nan)})(model, 0)


@one_test_over("unit", [pgm.Categorical(3), pgm.MultiValued(2), pgm.Spin()], ids=repr)
def test_pseudo_likelihood_of_other_units_and_lateral_couplings(unit):
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    b.layer("v", unit, 3)
    b.layer("h", pgm.Spin(), 2)
    b.couple("h", "v")
    if unit.width == 1:
        b.couple("v", "v", weight=np.array([[0, 1, 2], [1, 0, -1], [2, -1, 0.0]]))
    model = b.build(rng=0)
    k = len(unit.support)
    x = rng.integers(0, k, (4, 3))
    values = (lambda labels: labels) if unit.width > 1 else (lambda labels: unit.support[labels])

    def log_z(labels):
        return pgm.infer(model, {"v": values(labels)}, want=("log_z",), method=pgm.Exact()).log_z

    total = 0.0
    for i in range(3):
        each = []
        for state in range(k):
            other = x.copy()
            other[:, i] = state
            each.append(log_z(other))
        total += (log_z(x) - np.logaddexp.reduce(each, axis=0)).mean()
    found = pgm.PseudoLikelihood({"v": values(x)})(model, 0)["pseudo_likelihood"]
    np.testing.assert_allclose(found, total, rtol=1e-9)


def test_reconstruction_and_free_energy(small):
    model, x = small
    h = 1 / (1 + np.exp(-(x @ model.params["v-h.weight"] + model.params["h.bias"])))
    back = 1 / (1 + np.exp(-(h @ model.params["v-h.weight"].T + model.params["v.bias"])))
    found = pgm.ReconstructionError({"v": x})(model, 0)["reconstruction_error"]
    np.testing.assert_allclose(found, ((back - x) ** 2).mean(), rtol=1e-9)
    gap = pgm.FreeEnergyGap({"v": x[:4]}, {"v": x[4:]})(model, 0)["free_energy_gap"]
    own = free_log_density(model, x)
    np.testing.assert_allclose(gap, own[:4].mean() - own[4:].mean(), rtol=1e-5, atol=1e-5)


def test_bounds_and_estimates_of_the_likelihood(small, sure=5.0):
    model, x = small
    exact = pgm.infer(model, {"v": x}, want="log_prob", method=pgm.Exact()).log_prob.mean()
    found = pgm.AISLogLikelihood({"v": x})(model, 0)
    assert abs(found["log_likelihood"] - exact) < sure * found["log_likelihood_error"] + 1e-3
    np.testing.assert_allclose(
        pgm.VariationalBound({"v": x}, log_z=pgm.Exact())(model, 0)["bound"], exact, atol=1e-4
    )
    deep = pgm.dbm([5, 3, 2], rng=0)
    bound = pgm.VariationalBound({"v": x}, log_z=pgm.Exact())(deep, 0)["bound"]
    assert (
        bound
        < pgm.infer(deep, {"v": x}, want="log_prob", method=pgm.Exact()).log_prob.mean() + 1e-5
    )
    with pytest.raises(pgm.PgmError, match="VariationalBound"):
        pgm.AISLogLikelihood({"v": x})(deep, 0)


def test_flip_rates_and_norms(small):
    model, _ = small
    still = model.with_params(
        {"v-h.weight": np.zeros((5, 3)), "v.bias": np.full(5, 50.0), "h.bias": np.zeros(3)}
    )
    found = pgm.FlipRates(chains=2000)(still, 0)
    assert found["flips v"] == 0.0
    assert abs(found["flips h"] - 0.5) < 5 * 0.5 / np.sqrt(6000)
    assert pgm.WeightNorms()(still, 0)["norm v.bias"] == pytest.approx(50 * np.sqrt(5))
    assert pgm.WeightNorms(every=10)(still, 3) is None


def test_early_stopping_survives_a_checkpoint(tmp_path):
    x = pgm.datasets.bars_and_stripes().x_train
    stop = pgm.EarlyStopping(pgm.ExactLogLikelihood({"v": x}, every=5), patience=3, least=5.0)
    settings = {"callbacks": [stop], "rng": 0, "negative": pgm.PCD()}
    whole = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=100, **settings)
    assert whole.stopped
    assert whole.state["update"] == 15
    pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=12, checkpoint=tmp_path / "c", **settings)
    part = pgm.fit(
        pgm.rbm(16, 4, rng=0), {"v": x}, updates=100, checkpoint=tmp_path / "c", **settings
    )
    assert part.stopped == whole.stopped
    assert part.state["update"] == 15


def test_reconstruction_error_refuses_what_it_cannot_do_and_takes_inputs():
    rng = np.random.default_rng(0)
    drbm = pgm.drbm(3, 2, 3, hidden=pgm.Binary(), rng=0)
    data = {"x": rng.normal(size=(6, 3)), "y": rng.integers(0, 3, (6, 1))}
    q = pgm.infer(drbm, data).mean["h"]
    eta = q @ drbm.params["h-y.weight"] + drbm.params["y.bias"]
    back = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    truth = np.square(back - np.eye(3)[data["y"][:, 0]]).mean()
    np.testing.assert_allclose(
        pgm.ReconstructionError(data)(drbm, 0)["reconstruction_error"], truth, rtol=1e-9
    )
    for model in (pgm.sbn([4, 2], rng=0), pgm.boltzmann_machine(4, unit=pgm.Binary(), rng=0)):
        with pytest.raises(pgm.PgmError, match="undirected layers"):
            pgm.ReconstructionError({next(iter(model.structure.layers)): np.zeros((2, 4))})(
                model, 0
            )


def test_pseudo_likelihood_refuses_children_with_undirected_couplings():
    """p(a | u) holds the child's normaliser, too."""
    b = pgm.GraphBuilder()
    for name in "acu":
        b.layer(name, pgm.Binary(), 1)
    b.couple("a", "u", weight=[[0.7]])
    b.couple("u", "c", weight=[[1.2]])
    b.cause("a", "c", weight=[[2.0]])
    with pytest.raises(pgm.PgmError, match="layer 'c', a child of 'a', has some"):
        pgm.PseudoLikelihood({"a": [[1.0]], "u": [[1.0]]})(b.build(), 0)


def test_early_stopping_on_a_name_that_never_comes_is_told_of(caplog):
    x = pgm.datasets.bars_and_stripes(3).x_train
    for name, told in (("norm v.bais", True), ("norm v.bias", False)):
        caplog.clear()
        stop = pgm.EarlyStopping(pgm.WeightNorms(every=2), name=name)
        pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=4, callbacks=[stop], progress=False)
        warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        # So short a fit has a finding as well.
        assert [said for said in warned if "learning was still rising" not in said] == [
            f"EarlyStopping watched {name!r}, of which no callback said anything; did you mean "
            "norm v.bias?"
        ] * told

    # A user's callback may have any attributes.
    class Watching:
        watched = ("a", ["b"])

        def __call__(self, model, update):
            return None

    pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=1, callbacks=[Watching()], progress=False)


@pytest.mark.parametrize("rising", [True, False])
def test_early_stopping_counts_what_is_not_a_number_as_no_rise(rising):
    nan, sign = np.nan, 1 if rising else -1
    stop = pgm.EarlyStopping(lambda m, t: None, name="a", patience=2, rising=rising)
    for values, stops in (
        ([1, nan, 2, 3], False),
        ([1, 2, nan, nan], True),
        ([nan, nan, nan, 1], False),
        ([nan, nan, nan], True),
        ([3, nan, 2, 3], True),
    ):
        assert bool(stop.stops({"a": [(t, sign * v) for t, v in enumerate(values)]})) is stops, (
            values
        )


def test_the_error_of_a_mean_of_several_log_z():
    """Rows with inputs have a log Z each: the error of their mean is that of the mean of
    independent estimates.
    """
    rng, model = np.random.default_rng(0), pgm.drbm(3, 2, 4, hidden=pgm.Binary(), rng=0)
    model = model.with_params({k: 2 * rng.normal(size=v.shape) for k, v in model.params.items()})
    data = {"x": 2 * rng.normal(size=(6, 3)), "y": rng.integers(0, 3, (6, 1))}
    monitor = pgm.VariationalBound(data, log_z=pgm.AIS(chains=20, betas=8))
    each = (
        pgm.AIS(chains=20, betas=8)
        .run(model.given({"x": data["x"]}), ("log_z",), rng=0)
        .log_z_error
    )
    assert np.ptp(each) > 0.01
    np.testing.assert_allclose(
        monitor(model, 0)["bound_error"], np.sqrt(np.square(each).sum()) / 6, rtol=1e-9
    )
    runs = [
        pgm.VariationalBound(data, log_z=monitor.log_z, rng=seed)(model, 0) for seed in range(60)
    ]
    found = np.std([r["bound"] for r in runs]) / np.mean([r["bound_error"] for r in runs])
    assert 0.6 < found < 1.6


def test_monitors_take_frames():
    """Of all that look at data."""
    pd = extra("pandas")
    x, rng = np.random.default_rng(0).integers(0, 2, (6, 5)).astype(float), np.random.default_rng(1)
    model = pgm.rbm(5, 3, rng=0)
    model = model.with_params({k: rng.normal(size=v.shape) for k, v in model.params.items()})
    frame = pd.DataFrame(x, columns=pd.MultiIndex.from_product([["v"], range(5)]))
    two = lambda data: pgm.FreeEnergyGap(data, {"v": x[:2]})  # noqa: E731
    for make in (*MONITORS_OF_DATA.values(), pgm.AISLogLikelihood, two):
        assert make(frame)(model, 0) == make({"v": x})(model, 0)


@pytest.mark.parametrize(
    "monitor", [pgm.FlipRates(), pgm.FreeEnergyGap({"x": [[0.0, 1]]}, {"x": [[1.0, 1]]})]
)
def test_monitors_of_a_whole_model_refuse_inputs(monitor):
    """Rows of a conditional model have normalisers of their own, and chains cannot draw what is
    given.
    """
    with pytest.raises(
        pgm.PgmError, match=f"{type(monitor).__name__} needs a model of all its layers; layer 'x'"
    ):
        monitor(pgm.drbm(2, 2, 2, rng=0), 0)


def test_a_reason_to_stop_is_text_and_a_negative_phase_says_its_precision():
    x = pgm.datasets.bars_and_stripes().x_train

    class Stop:
        def __call__(self, model, update):
            return {"count": update}

        def stops(self, history):
            return history["count"][-1] == (3, 3.0)

    found = pgm.fit(pgm.rbm(16, 3, rng=0), {"v": x}, callbacks=[Stop()], updates=9)
    assert found.state["update"] == 3
    assert found.stopped == "Stop ended it"

    class Phase:
        def start(self, given, rng):
            raise AssertionError

    with pytest.raises(pgm.PgmError, match="with `start` and `precision`, not .*Phase"):
        pgm.fit(pgm.rbm(16, 3, rng=0), {"v": x}, negative=Phase(), updates=1)


@one_test_over("name", ["potentials zeros", "network zeros", "conditionals and couplings"])
def test_pseudo_likelihood_with_tables_against_enumeration(name, rtol=1e-9):
    """Of complete rows: log p(unit | rest) is log p(row) less log p(rest)."""
    m = next(m for m in TABLED if m.name == name)
    rng, total = np.random.default_rng(0), 0.0
    rows = [draw_row(m, rng, 1.0) for _ in range(4)]
    for row in rows:
        whole = Brute(m, row).log_z
        for x in m.layers:
            for i in range(x.size):
                rest = {n: [None if (n, j) == (x.name, i) else v for j, v in enumerate(values)]
                        for n, values in row.items()}  # fmt: skip
                total += whole - Brute(m, rest).log_z
    found = pgm.PseudoLikelihood(as_evidence(m, rows))(m.build(), 0)["pseudo_likelihood"]
    np.testing.assert_allclose(found, total / len(rows), rtol=rtol)


def test_reconstructions_know_no_tables():
    m = next(m for m in TABLED if m.name == "tables and couplings")
    with pytest.raises(pgm.PgmError, match=r"without tables, and this has 'v.0.,v.1..table'"):
        pgm.ReconstructionError({"v": [[0, 1, 1]]})(m.build(), 0)


@pytest.mark.parametrize("callbacks", ([], [lambda model, update: None]))
def test_the_history_has_nothing_that_nobody_asked_for(callbacks):
    x = {"v": np.eye(4)}
    f = pgm.fit(pgm.rbm(4, 2, rng=0), x, updates=25, callbacks=callbacks, progress=False)
    assert f.history == {} and "weight_norm" not in repr(f)
    f = pgm.fit(
        f.model, x, updates=25, callbacks=[pgm.ReconstructionError(x, every=20)], progress=False
    )
    assert list(f.history) == ["reconstruction_error"] and "reconstruction_error: " in repr(f)


@pytest.mark.parametrize("conditional", [True, False])
def test_names_in_the_history_are_those_of_variables(conditional):
    """Layers that hold variables are storage, which no user declared."""
    b = pgm.GraphBuilder()
    names = ("rain", "wet", "size", "cold")
    for name, states in zip(names, (2, ("no", "yes"), 3, ("no", "yes")), strict=True):
        b.variable(name, states=states)
    b.layer("h", pgm.Binary(), 2)
    (b.conditional if conditional else lambda c, p, x: b.table((*p, c), x))(
        "size", ("rain", "wet"), np.full((2, 2, 3), 1 / 3)
    )
    for name in ("rain", "wet", "cold"):
        (b.conditional if conditional else lambda c, p, x: b.table((*p, c), x))(
            name, (), [0.4, 0.6]
        )
    model = b.build()
    rates = pgm.FlipRates(chains=5, sweeps=2)(model, 0)
    assert list(rates) == ["flips h", *(f"flips {name}" for name in names)]
    assert all(0 <= rate <= 1 for rate in rates.values())
    norms = set(pgm.WeightNorms()(model, 0))
    assert not any(name in said for said in norms for name in model.structure.names.storage)
    assert all((f"norm {name}.bias" in norms) is not conditional for name in names)
    data = {"rain": [0, 1], "wet": ["no", "yes"], "size": [0, 2], "cold": ["no", "no"]}
    callbacks = [pgm.WeightNorms(every=1), pgm.FlipRates(every=1, chains=2, sweeps=1)]
    fit = pgm.fit(
        model, data, updates=1, callbacks=callbacks, negative=pgm.CD(), progress=False, rng=0
    )
    assert set(fit.history) == {*norms, *rates}
    assert not any(name in repr(fit) for name in model.structure.names.storage)
