"""Settings that cannot mean anything, states and checkpoints of other fits: refused in words."""

import functools
import os

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm

X = np.random.default_rng(0).integers(0, 2, (20, 4)).astype(float)
BARS = pgm.datasets.bars_and_stripes().x_train


def learned(model=None, **settings):
    return pgm.fit(
        model or pgm.rbm(4, 2, rng=0), {"v": X}, **{"updates": 3, "progress": False, **settings}
    )


def ask(method=None, **settings):
    want = ("log_z",) if isinstance(method, pgm.AIS) else ("marginals",)
    return pgm.infer(pgm.rbm(4, 2, rng=0), want=want, method=method, **settings)


@one_test_over(
    "make, words",
    [
        (lambda: pgm.CD(0), "CD: k must be an integer of at least 1, not 0"),
        (lambda: pgm.PCD(1.5), "PCD: k"),
        (lambda: pgm.PCD(chains=0), "PCD: chains"),
        (lambda: pgm.PCD(True), "PCD: k"),
        (lambda: pgm.PT(0), "PT: temperatures"),
        (lambda: pgm.PT(2, 0), "PT: k"),
        (lambda: pgm.FastPCD(decay=2), "FastPCD: decay must be a finite number from 0 to 1, not 2"),
        (lambda: pgm.FastPCD(rate=-1), "FastPCD: rate"),
        (lambda: pgm.TransSAP(every=0), "TransSAP: every"),
        (lambda: pgm.AdaptiveSAP(steps=0), "AdaptiveSAP: steps"),
        (lambda: pgm.CAST(swap_every=0), "CAST: swap_every"),
        (lambda: pgm.SGD(-1), "SGD: rate must be a finite number of at least 0, not -1"),
        (lambda: pgm.SGD("fast"), "SGD: rate"),
        (
            lambda: pgm.SGD(momentum=1),
            "SGD: momentum must be a finite number of at least 0 and below 1, not 1",
        ),
        (lambda: pgm.SGD(l1=np.inf), "SGD: l1"),
        (lambda: pgm.Adam(beta2=1.0), "Adam: beta2"),
        (lambda: pgm.AdaMax(weight_decay=-1), "AdaMax: weight_decay"),
        (lambda: pgm.Centered(follow=2), "Centered: follow"),
        (lambda: pgm.harmonic(1, 0), "harmonic: b"),
        (lambda: pgm.linear_decay(-1, 5), "linear_decay: rate"),
        (
            lambda: pgm.linear_decay(1, 0),
            "linear_decay: updates must be an integer of at least 1, not 0",
        ),
        (
            lambda: pgm.linear_decay(1, 5, 0.5),
            "linear_decay: rise must be an integer of at least 0, not 0.5",
        ),
        (lambda: pgm.WeightNorms(every=0), "WeightNorms: every"),
        (lambda: pgm.EarlyStopping(pgm.WeightNorms(), patience=0), "EarlyStopping: patience"),
        (lambda: pgm.EarlyStopping(pgm.WeightNorms(), least=np.nan), "EarlyStopping: least"),
        (
            lambda: pgm.SGD(momentum=lambda t: 0.5),
            "SGD: momentum must be a finite number of at least 0 and below 1, not <function",
        ),
        (
            lambda: pgm.Adam(weight_decay=pgm.harmonic(1, 2)),
            "Adam: weight_decay must be a finite number",
        ),
        (lambda: pgm.FastPCD(decay=lambda t: 0.5), "FastPCD: decay must be a finite number"),
        (lambda: pgm.Centered(follow=lambda t: 0.5), "Centered: follow must be a finite number"),
        (lambda: pgm.SGD(pgm.harmonic), "SGD: rate must be an instance such as harmonic(...)"),
        (lambda: pgm.Centered(pgm.SGD), "Centered: optimizer must be an instance such as SGD(...)"),
        (lambda: pgm.Averaged(0.1), "Averaged: optimizer must be one such as pgm.Adam(), not 0.1"),
        (
            lambda: pgm.Averaged(follow="x"),
            "Averaged: follow must be a finite number from 0 to 1, not 'x'",
        ),
        (
            lambda: pgm.GrowingBlend("a", 1),
            "GrowingBlend: begin must be an integer of at least 0, not 'a'",
        ),
        (lambda: pgm.GrowingBlend(5, 3), "GrowingBlend: end must be at least begin, 5, not 3"),
        (
            lambda: pgm.CAST(gamma=10),
            "CAST: gamma must be a schedule such as OneOverT(initial=2.4), where 2.4",
        ),
        (lambda: pgm.AdaptiveSAP(gamma=10), "AdaptiveSAP: gamma"),
        (
            lambda: pgm.SimulatedTempering(gamma=pgm.OneOverT),
            "SimulatedTempering: gamma must be an instance such as",
        ),
        (lambda: pgm.WangLandau(len, 3, gamma=None), "WangLandau: gamma"),
        (lambda: pgm.rbm(2, 2, rng="a"), "rng must be an integer"),
        (lambda: pgm.infer(pgm.rbm(2, 2, rng=0), want="samples", rng=-1), "rng must be an integer"),
        (lambda: pgm.MCMC(thin=0), "MCMC: thin"),
        (lambda: pgm.MCMC(warmup=-1), "MCMC: warmup must be an integer of at least 0"),
        (lambda: pgm.ParallelTempering(rungs=0), "ParallelTempering: rungs"),
        (lambda: pgm.SimulatedTempering(draws=0), "SimulatedTempering: draws"),
        (lambda: pgm.TemperedTransitions(chains=0), "TemperedTransitions: chains"),
        (lambda: pgm.AIS(chains=0), "AIS: chains"),
        (lambda: pgm.Linear(0), "Linear: count"),
        (lambda: pgm.WangLandau(len, 0), "WangLandau: bins"),
        (
            lambda: pgm.Exact(max_bits="a"),
            "Exact: max_bits must be a number of at least 0, or math.inf, not 'a'",
        ),
        (lambda: pgm.Forward(below=np.nan), "Forward: below"),
        (lambda: pgm.MCMC(rhat_limit=None), "MCMC: rhat_limit"),
        (lambda: pgm.ParallelTempering(rhat_limit="x"), "ParallelTempering: rhat_limit"),
        (lambda: pgm.SimulatedTempering(rhat_limit=-1), "SimulatedTempering: rhat_limit"),
        (lambda: pgm.TemperedTransitions(rhat_limit=None), "TemperedTransitions: rhat_limit"),
        (lambda: pgm.WangLandau(len, 3, rhat_limit=None), "WangLandau: rhat_limit"),
        (lambda: pgm.Auto(max_work="a"), "Auto: max_work"),
        (
            lambda: pgm.Auto(candidates=pgm.MCMC()),
            "Auto: candidates must be a tuple of methods, not MCMC(",
        ),
        (lambda: pgm.Auto(candidates=()), "Auto: candidates must be a tuple"),
        (lambda: pgm.Auto(candidates=(pgm.MCMC,)), "method must be an instance such as MCMC(...)"),
        (
            lambda: pgm.MeanField(precision=int),
            "MeanField: precision must be np.float64 or np.float32",
        ),
        (
            lambda: ask(pgm.AIS(betas=5.0)),
            "betas must be numbers in [0, 1] that reach 1, or a schedule, not 5.0",
        ),
        (
            lambda: ask(pgm.AIS(reference=[0.0])),
            "reference must map layer names to arrays, not an array (1,): no layer is so wide",
        ),
        (lambda: ask(pgm.AIS(reference={"x": [0.0]})), "reference: layer 'x'"),
        (
            lambda: ask(pgm.AIS(reference={"v": [0.0]})),
            "reference: layer 'v' has shape (1,), expected (4,)",
        ),
        (
            lambda: ask(pgm.AIS(reference={"v": [0, np.nan, 0, 0]})),
            "reference: layer 'v', index 1 is nan, expected a finite",
        ),
        (
            lambda: ask(pgm.MCMC(), state=[1]),
            "MCMC: state must be the `state` of another result, not list",
        ),
        (
            lambda: ask(pgm.MCMC(), state={"v": np.zeros((4, 4))}),
            "layer 'h' has shape (0,), expected (rows * chains, width) = (4, 2)",
        ),
        (
            lambda: ask(pgm.MCMC(), state={"v": np.full((4, 4), np.nan), "h": np.zeros((4, 2))}),
            "not a value of Binary()",
        ),
        (
            lambda: ask(pgm.MeanField(), state=3),
            "MeanField: state must be the state of another result, not int",
        ),
        (lambda: ask(soft={"v": np.zeros((0, 4))}), "soft: layer 'v' has no rows"),
        (
            lambda: pgm.base_rates(pgm.rbm(4, 2, rng=0), {"v": np.full((9, 4), 255)}),
            "data: layer 'v', row 0, index 0 is 255, expected a ",
        ),
    ],
)
def test_settings_without_a_meaning(make, words):
    with pytest.raises(pgm.PgmError) as error:
        make()
    assert words in str(error.value)


def test_states_may_be_lists():
    state = {"v": [[0, 1, 1, 0]], "h": [[0, 1]]}
    assert ask(pgm.MCMC(chains=1, draws=5, warmup=0), state=state).mean["v"].shape == (4,)


def test_settings_that_mean_something():
    """Numbers of numpy, a rate of 0, schedules whatever they say, tempered transitions alone: none
    of them raises.
    """
    assert pgm.PCD(np.int64(2), chains=np.int32(3)).k == 2 and pgm.SGD(np.float32(0.5)).rate == 0.5
    for optimizer in (pgm.SGD(0.0), pgm.SGD(lambda t: -0.1)):
        before = pgm.rbm(4, 2, rng=0).params["v-h.weight"]
        moved = np.abs(learned(optimizer=optimizer).model.params["v-h.weight"] - before).max()
        assert bool(moved) is callable(optimizer.rate)
    for negative in (pgm.TransSAP(k=0), pgm.PT(1), pgm.FastPCD(decay=1)):
        assert learned(negative=negative).state["update"] == 3


@one_test_over(
    "settings, words",
    [
        ({"negative": "pcd"}, "negative must be a negative phase such as pgm.PCD(), with"),
        ({"positive": "x"}, "positive must be an inference method such as"),
        ({"optimizer": 0.1}, "optimizer must be one such as pgm.Adam(), not 0.1"),
        ({"negative": pgm.PCD(kernel=pgm.Gibbs)}, "an instance such as Gibbs(...)"),
        ({"batch_size": 2.5}, "batch_size must be an integer of at least 1, not 2.5"),
        ({"batch_size": None}, "batch_size"),
        ({"updates": -3}, "updates must be an integer of at least 0, not -3"),
        ({"updates": None, "epochs": 1.5}, "epochs"),
        ({"callbacks": pgm.WeightNorms()}, "callbacks must be a list"),
        ({"callbacks": [pgm.WeightNorms]}, "an instance such as WeightNorms(...)"),
        ({"callbacks": [3]}, "a callback is called as"),
        ({"given": "v"}, "given must be a sequence of layers or variables such as ('v',)"),
        ({"state": 3}, "state must be the `state` of an earlier fit, not 3"),
        ({"checkpoint": 3}, "checkpoint must be a path, not 3"),
        ({"rng": "a"}, "rng must be an integer of at least 0, None or a numpy Generator, not 'a'"),
        ({"rng": -1}, "rng must be an integer of at least 0"),
        (
            {"optimizer": pgm.SGD(lambda t: "a")},
            "update 1: the schedule of the rate returned 'a', expected a number",
        ),
        (
            {"negative": pgm.FastPCD(rate=lambda t: None)},
            "update 1: the schedule of the rate returned None, expected a number",
        ),
        (
            {"callbacks": [pgm.ExactLogLikelihood({"v": X}), pgm.ExactLogLikelihood({"v": X[:3]})]},
            "two callbacks say 'log_likelihood'",
        ),
    ],
)
def test_what_fit_refuses(settings, words):
    with pytest.raises(pgm.PgmError) as error:
        learned(**settings)
    assert words in str(error.value)


def test_blends_grow_from_begin_to_end():
    for begin, end, shares in (
        (2, 4, [0, 0, 0, 0.5, 1, 1]),
        (3, 3, [0, 0, 0, 1, 1, 1]),
        (0, 0, [1] * 6),
    ):
        assert [pgm.GrowingBlend(begin, end)(t).alpha for t in range(6)] == shares


def test_nothing_given_is_none_too():
    one, two = (learned(given=given).model.params["v-h.weight"] for given in (None, ()))
    np.testing.assert_array_equal(one, two)


def test_a_monitor_may_also_stop():
    monitor = pgm.ExactLogLikelihood({"v": X}, every=1)
    assert (
        len(
            learned(callbacks=[monitor, pgm.EarlyStopping(monitor)]).history["log_likelihood"][
                "value"
            ]
        )
        == 4
    )


@one_test_over(
    "of, to, words",
    [
        (
            {"model": pgm.rbm(4, 1, rng=0), "optimizer": pgm.Adam()},
            {"optimizer": pgm.Adam()},
            "'optimizer/m/h.bias' has shape (1,), expected (2,)",
        ),
        ({"model": pgm.rbm(4, 1, rng=0)}, {}, "'optimizer/offset/h' has shape (1,), expected (2,)"),
        (
            {"negative": pgm.PCD(chains=5)},
            {"negative": pgm.PCD(chains=9)},
            "'negative/v' has shape (5, 4), expected (9, 4)",
        ),
        (
            {"optimizer": pgm.Centered(pgm.Adam()), "negative": pgm.PCD()},
            {"optimizer": pgm.Centered(pgm.AdaMax()), "negative": pgm.PCD()},
            "Centered(Adam) and PCD, this one has Centered(AdaMax) and PCD",
        ),
        ({"rng": np.random.Generator(np.random.MT19937(0))}, {}, "a fit with other random numbers"),
    ],
)
def test_states_of_other_fits(of, to, words):
    state = learned(**of).state
    with pytest.raises(pgm.PgmError) as error:
        learned(**to, state=state)
    assert words in str(error.value)


def scaled(value, t):
    return value / (t + 1)


def steady(t):
    return 0.1


def halved(t):
    return 0.1 if t < 2 else 0.05


@one_test_over(
    "one, other",
    [
        (steady, halved),
        (functools.partial(scaled, 0.1), functools.partial(scaled, 0.5)),
        (pgm.harmonic(1, 10), pgm.harmonic(1, 20)),
        (pgm.harmonic(1, 10), pgm.linear_decay(0.1, 100)),
    ],
)
def test_a_checkpoint_knows_its_schedule(tmp_path, one, other):
    path = tmp_path / "c.safetensors"
    learned(optimizer=pgm.SGD(one), checkpoint=path)
    assert learned(optimizer=pgm.SGD(one), checkpoint=path, updates=5).state["update"] == 5
    with pytest.raises(pgm.PgmError, match="differs in optimizer"):
        learned(optimizer=pgm.SGD(other), checkpoint=path, updates=7)
    path.unlink()


def test_a_checkpoint_knows_functions_by_their_names_alone(tmp_path, monkeypatch):
    """Another version of Python compiles them to other code, and is no reason to start again."""
    path = tmp_path / "c.safetensors"
    learned(optimizer=pgm.SGD(steady), checkpoint=path)
    monkeypatch.setattr(steady, "__code__", halved.__code__)
    assert learned(optimizer=pgm.SGD(steady), checkpoint=path, updates=5).state["update"] == 5


class Plain:
    """A kernel of a plain class."""

    def __init__(self, by):
        self.by = by

    def transition(self, prob, current):
        return prob


class Rising(Plain):
    """A schedule of one."""

    def __call__(self, t):
        return self.by * t


def test_a_checkpoint_knows_objects_by_what_they_hold(tmp_path):
    """Objects are not identified by their place in memory, which differs in the next process."""
    path = tmp_path / "c.safetensors"
    for make in (
        lambda by: {"optimizer": pgm.SGD(Rising(by))},
        lambda by: {"optimizer": pgm.SGD(Rising(by).__call__)},
        lambda by: {"negative": pgm.PCD(kernel=Plain(by))},
        lambda by: {"rng": np.random.PCG64(int(by * 10))},
        lambda by: {"rng": np.random.SeedSequence(int(by * 10))},
    ):
        path.unlink(missing_ok=True)
        learned(checkpoint=path, **make(0.1))
        assert learned(checkpoint=path, updates=5, **make(0.1)).state["update"] == 5
        with pytest.raises(pgm.PgmError, match="differs in"):
            learned(checkpoint=path, updates=7, **make(0.2))


def test_a_checkpoint_knows_where_learning_went_on(tmp_path):
    path, first = tmp_path / "c.safetensors", learned()
    for updates in (5, 7):
        f = learned(first.model, state=first.state, checkpoint=path, updates=updates)
        assert f.state["update"] == updates
    with pytest.raises(pgm.PgmError, match="differs in state"):
        learned(first.model, checkpoint=path, updates=9)


def test_a_kernel_that_holds_itself_can_be_marked(tmp_path):
    class Held(Plain):
        def __init__(self):
            super().__init__(0.1)
            self.me, self.mine, self.all = self, self.transition, [self]

    for updates in (2, 4):
        f = learned(negative=pgm.PCD(kernel=Held()), checkpoint=tmp_path / "c", updates=updates)
    assert f.state["update"] == 4


def test_a_function_that_holds_itself_can_be_a_schedule(tmp_path):
    def rate(t):
        return 0.1 if t == 0 else rate(t - 1)

    for updates in (2, 4):
        f = learned(optimizer=pgm.SGD(rate), checkpoint=tmp_path / "c", updates=updates)
    assert f.state["update"] == 4


def test_a_checkpoint_stays_small_with_row_weights_and_knows_them(tmp_path):
    path, weights = tmp_path / "c.safetensors", np.arange(1.0, 21)
    learned(checkpoint=path)
    plain = path.stat().st_size
    path.unlink()
    learned(checkpoint=path, sample_weight=weights)
    assert path.stat().st_size < plain + 100
    assert learned(checkpoint=path, updates=5, sample_weight=list(weights)).state["update"] == 5
    with pytest.raises(pgm.PgmError, match="differs in sample_weight"):
        learned(checkpoint=path, updates=7, sample_weight=weights[::-1])


def test_a_checkpoint_leaves_the_files_of_others_alone(tmp_path):
    """Files that a killed process has left are removed. A young file may belong to a process that
    is writing, and another name to another fit.
    """
    kept = [tmp_path / name for name in ("fit.2.999.1.part", "fit.old.part", "fit.77.1.part")]
    left = tmp_path / "fit.999.1.part"
    for path in (left, *kept):
        path.write_bytes(b"x")
    for path in (left, *kept[:2]):
        os.utime(path, (0, 0))
    learned(checkpoint=tmp_path / "fit")
    assert not left.exists() and all(path.exists() for path in kept)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path, rng = tmp_path / "c.safetensors", np.random.default_rng(0)
    learned(checkpoint=path)
    whole = path.read_bytes()
    for _ in range(60):
        damaged, place = bytearray(whole), rng.integers(len(whole))
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(pgm.PgmError):
            learned(checkpoint=path)


def test_nothing_to_learn_is_refused():
    drbm, x = pgm.drbm(3, 2, 2, rng=0), np.zeros((4, 3))
    for model, data, given, why in (
        (pgm.rbm(16, 3, rng=0), {"v": BARS}, ("v",), "all layers with data are given"),
        (drbm, {"x": x}, ("x",), "all layers with data are given"),
        (drbm, {"x": x, "y": np.full((4, 1), np.nan)}, ("x",), "all layers with data are given"),
        (pgm.rbm(16, 3, rng=0), {"v": np.full((4, 16), np.nan)}, (), "no value is known"),
    ):
        with pytest.raises(pgm.PgmError, match=f"nothing to learn: {why}"):
            pgm.fit(model, data, given=given, updates=1)


def test_names_taken_twice_and_values_of_no_unit_are_named():
    with pytest.raises(pgm.PgmError, match="two callbacks say 'norm v.bias'"):
        pgm.fit(
            pgm.rbm(16, 3, rng=0),
            {"v": BARS},
            callbacks=[pgm.WeightNorms(), lambda model, update: {"norm v.bias": -7.0}],
            updates=1,
        )
    with pytest.raises(pgm.PgmError, match="data: layer 'v', row 1, index 0: 2.0 is not a value"):
        pgm.base_rate_start(pgm.rbm(2, 2, rng=0), {"v": [[0, 1], [2, 1]]})
