"""Log Z as a function in torch: gradients, batches, answers, and log densities."""

import numpy as np
import pytest
from bridged_models import CASES, case, free, random_states
from extras import extra
from loops import one_test_over
from tiny import MODELS

import pgmengine as pgm

torch = extra("torch")


def tensor(x, **kind):
    return torch.tensor(np.asarray(x, dtype=float), dtype=torch.float64, **kind)


def log_z(*given, **named):
    return pgm.torch.log_z(*given, **named)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_derivatives(name):
    """Of soft evidence and parameters, in every row."""
    model, evidence, soft, params = case(name)

    def function(*numbers):
        some = dict(zip(soft, numbers, strict=False))
        own = zip(params, numbers[len(soft) :], strict=True)
        own = {key: free(model, key, x, tensor) for key, x in own}
        return log_z(model, evidence, soft=some, params=own)

    start = [np.nan_to_num(x, neginf=0.0) for x in (*soft.values(), *params.values())]
    assert torch.autograd.gradcheck(function, [tensor(x, requires_grad=True) for x in start])


def test_rows_and_interventions_are_those_of_infer():
    model, soft = pgm.read(pgm.datasets.asia()), tensor([[0.0, 1], [2, 0]])
    evidence, do = {"xray": ["yes", "no"]}, {"smoke": "yes"}
    r = pgm.infer(model, evidence, ("log_z",), soft={"lung": soft.numpy()}, do=do)
    found = log_z(model, evidence, soft={"lung": soft}, do=do)
    assert found.shape == (2,) and found.tolist() == r.log_z.tolist()
    assert log_z(model, evidence).dtype is torch.float64


def test_evidence_in_tensors_is_taken_without_a_gradient():
    model, seen = pgm.rbm(3, 2, rng=0), tensor([[1, np.nan, 0]])
    expected = pgm.infer(model, {"v": seen.numpy()}, ("log_z",)).log_z
    assert log_z(model, {"v": seen}).tolist() == expected.tolist()
    with pytest.raises(pgm.PgmError, match="evidence: 'v' requires a gradient, which only soft"):
        log_z(model, {"v": seen.requires_grad_()})


def test_precision_is_the_one_of_the_first_tensor():
    field = torch.zeros(3, requires_grad=True)
    found = log_z(pgm.rbm(3, 2, rng=0), soft={"v": field})
    found.sum().backward()
    assert found.dtype is field.grad.dtype is torch.float32


def test_one_question_for_each_pass(monkeypatch):
    from pgmengine.apps.bridges import bridged_question as shared

    asked = []
    ask = shared.BridgedQuestion.ask
    monkeypatch.setattr(
        shared.BridgedQuestion,
        "ask",
        lambda self, arrays, want, *more, **named: (
            asked.append(want) or ask(self, arrays, want, *more, **named)
        ),
    )
    model, evidence, soft, params = case("boltzmann")
    given = [tensor(x, requires_grad=True) for x in (soft["h"], params["v-h.weight"])]
    found = log_z(model, evidence, soft={"h": given[0]}, params={"v-h.weight": given[1]})
    assert asked == [("log_z",)]
    found.sum().backward()
    assert asked[1:] == [("marginals", "gradient")]
    frozen = log_z(model, evidence, soft={"h": given[0]}, params={"v-h.weight": given[1].detach()})
    frozen.sum().backward()
    assert asked[3:] == [("marginals",)]


def test_second_derivatives_are_refused():
    field = tensor(np.zeros(3), requires_grad=True)
    found = log_z(pgm.rbm(3, 2, rng=0), soft={"v": field})
    (slope,) = torch.autograd.grad(found.sum(), field, create_graph=True)
    with pytest.raises(pgm.PgmError, match="log_z has no second derivatives"):
        slope.sum().backward()


def test_answers_are_those_of_infer_and_have_no_gradient():
    model, evidence, soft, _ = case("network")
    given = {name: tensor(x, requires_grad=True) for name, x in soft.items()}
    method = pgm.Exact(draws=7)
    want = ("marginals", "samples")
    found = pgm.torch.infer(model, evidence, want, soft=given, method=method, rng=0)
    r = pgm.infer(model, evidence, want, soft=soft, method=method, rng=0)
    assert sorted(found.prob) == sorted(model.variables)
    for answer in ("mean", "prob", "samples"):
        for name, x in getattr(found, answer).items():
            np.testing.assert_array_equal(x.detach().numpy(), getattr(r, answer)[name])
    assert not found.samples["lung"].requires_grad
    with pytest.raises(pgm.PgmError, match="marginals have no gradient in torch and JAX: only"):
        found.prob["lung"].sum().backward()
    assert pgm.torch.infer(model).samples == {} and found.result.kind == "exact"


@pytest.mark.parametrize("tiny", MODELS, ids=repr)
def test_log_density_is_the_one_of_the_model(tiny):
    """So are its derivatives, where the formulas of the model have them."""
    model = tiny.build()
    x = random_states(model)
    own = {
        k: tensor(v, requires_grad=True) for k, v in model.params.items() if type(v) is np.ndarray
    }
    found = pgm.torch.log_density(model, {n: tensor(v) for n, v in x.items()}, own)
    expected = model.log_density(x)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-10, atol=1e-10)
    single = pgm.torch.log_density(model, {n: tensor(v).float() for n, v in x.items()})
    assert single.dtype is torch.float32
    if "large" not in tiny.name:
        np.testing.assert_allclose(single.numpy(), expected, rtol=2e-4, atol=2e-4)
    if np.isfinite(expected).all() and own:
        found.sum().backward()
        check_slopes(model, x, own)


def check_slopes(model, x, own):
    """Derivatives in parameters against those of the model.

    Numbers that are no parameters, such as the diagonal inside a layer, have the slope 0 there.
    """
    slopes = model.in_parameters(model.gradient(model.given(x).evidence.values))
    lateral = {f"{c.key}.weight" for c in model.structure.undirected if c.lateral}
    for key, value in own.items():
        found = value.grad.numpy() * (2 if key in lateral else 1)
        found = found if model.structure.parameters[key].is_table else found * (slopes[key] != 0)
        np.testing.assert_allclose(found, slopes[key], rtol=1e-8, atol=1e-8)


def test_log_density_is_differentiable_twice_and_in_states():
    model = pgm.rbm(3, 2, visible=pgm.Gaussian(), rng=0)
    h = tensor([[1, 0], [0, 1]])
    x = tensor(np.random.default_rng(0).normal(size=(2, 3)), requires_grad=True)
    f = lambda x: pgm.torch.log_density(model, {"v": x, "h": h})  # noqa: E731
    assert torch.autograd.gradcheck(f, x) and torch.autograd.gradgradcheck(f, x)


def test_labels_in_integers():
    model = pgm.rbm(2, 1, visible=pgm.Categorical(3), rng=0)
    x = {"v": torch.tensor([[0, 2], [1, 1]]), "h": torch.tensor([[0], [1]])}
    expected = model.log_density({n: v.numpy() for n, v in x.items()})
    np.testing.assert_allclose(pgm.torch.log_density(model, x).numpy(), expected)


CALLS = {
    "log_z": lambda m: pgm.torch.log_z(m).detach().numpy(),
    "infer": lambda m: pgm.torch.infer(m).mean["v"].detach().numpy(),
    "log_density": lambda m: pgm.torch.log_density(
        m, {"v": torch.zeros(1, 3), "h": torch.zeros(1, 2)}
    ).numpy(),
}


@one_test_over("name", CALLS)
def test_a_fit_is_taken_and_nothing_else_by_chance(name):
    f = pgm.fit(pgm.rbm(3, 2, rng=0), {"v": np.eye(3)}, updates=3, progress=False)
    np.testing.assert_array_equal(CALLS[name](f), CALLS[name](f.model))
    with pytest.raises(pgm.PgmError, match="model must be a Model or a Fit, not Target"):
        CALLS[name](f.model.given())


WRONG_STATES = [
    (np.zeros((2, 3)), "states must map names to arrays, not ndarray"),
    ({"v": [[0, 0, 0]]}, "states: 'v' is a list, expected an array of numbers of torch, JAX"),
    ({"v": np.array([["a"] * 3])}, "states: 'v' is no array of numbers: "),
    ({"v": np.zeros((1, 3))}, "states need a value for every unit; layer 'h', index 0 has none"),
]


@one_test_over("states, message", WRONG_STATES)
def test_wrong_states_are_named(states, message):
    with pytest.raises(pgm.PgmError) as said:
        pgm.torch.log_density(pgm.rbm(3, 2, rng=0), states)
    assert message in str(said.value)
