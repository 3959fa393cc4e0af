"""The oracle of learned gates: its likelihood by the package's inference, its slopes and maxima."""

import gate_oracle
import numpy as np
import pytest

import pgmengine as pgm

GATES = {"or": pgm.noisy_or, "and": pgm.noisy_and, "max": pgm.noisy_max, "min": pgm.noisy_min}


def built(network):
    """The network as a model of the package."""
    b = pgm.GraphBuilder()
    for name, states in network["states"].items():
        b.variable(name, states=states)
    for name, (parents, table) in network["tables"].items():
        b.conditional(name, parents, table)
    for name, gate in network["gates"].items():
        each, leak = gate_oracle.declared(gate)
        b.conditional(name, gate["parents"], GATES[gate["kind"]](each, leak=leak))
    return b.build()


def example(kind, seed, rows):
    rng = np.random.default_rng(seed)
    if kind == "dina":
        return gate_oracle.random_dina_network(rng, skills=2, items=4, missing=0.1, rows=rows)
    return gate_oracle.random_gate_network(rng, kind, children=2, missing=0.1, rows=rows)


@pytest.mark.parametrize("kind", [*GATES, "dina"])
def test_likelihood_slope_and_maximum(kind):
    network, rows = example(kind, 5, 40)
    evidence = {
        name: np.where(column < 0, np.nan, column)
        for name, column in zip(network["states"], rows.T, strict=True)
    }
    expected = pgm.infer(built(network), evidence, want=("log_z",)).log_z
    np.testing.assert_allclose(gate_oracle.log_likelihood(network, rows), expected, atol=1e-10)

    negative, logits = gate_oracle.objective(network, rows, pseudocount=0.5)
    at = np.random.default_rng(1).normal(0, 1, logits.size)
    slope, step = negative(at)[1], 1e-5
    for i, direction in enumerate(np.eye(logits.size)):
        sides = [negative(at + sign * step * direction)[0] for sign in (1, -1)]
        assert abs((sides[0] - sides[1]) / (2 * step) - slope[i]) < 1e-7

    found = gate_oracle.maximum(network, rows, starts=1)
    assert found["log_likelihood"] > gate_oracle.log_likelihood(network, rows).mean()
    for place in gate_oracle.distributions(network):
        before, after = (
            np.asarray(gate_oracle._array(n, place))[place[3]] for n in (network, found["network"])
        )
        np.testing.assert_array_equal(before == 0, after == 0)
        assert abs(after.sum() - 1.0) < 1e-12


def test_one_cause_by_hand():
    """Complete rows of a noisy-or of one cause: two proportions."""
    rng = np.random.default_rng(2)
    network = {
        "states": {"c": 2, "e": 2},
        "tables": {"c": ((), np.array([0.5, 0.5]))},
        "gates": {
            "e": {
                "kind": "or",
                "parents": ("c",),
                "contributions": [np.array([[1.0, 0.0], [0.4, 0.6]])],
                "leak": np.array([0.9, 0.1]),
            }
        },
        "hidden": (),
    }
    rows = gate_oracle.drawn(rng, network, 500)
    found = gate_oracle.maximum(network, rows, starts=2)["network"]["gates"]["e"]
    off = [1.0 - rows[rows[:, 0] == c, 1].mean() for c in (0, 1)]
    assert abs(found["leak"][0] - off[0]) < 1e-6
    assert abs(found["contributions"][0][1, 0] - off[1] / off[0]) < 1e-6
