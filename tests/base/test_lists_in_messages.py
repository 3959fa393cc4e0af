"""Messages and plans stay a line however many layers a model has."""

import pytest
from chains_of_units import of_layers
from extras import extra

import pgmengine as pgm
from pgmengine.base.errors import listed


def test_three_names_are_shown_and_the_others_counted():
    assert listed([]) == "" and listed(["a", "b", "c"]) == "a, b, c"
    assert listed(["a", "b", "c", "d"], " and ") == "a and b and c ... and 1 more"


@pytest.mark.parametrize("count", [3, 200])
def test_plans_of_many_layers_list_three(count):
    model = of_layers(count)
    for plan in pgm.explain(model, {f"x{count - 1}": [1]}).plans:
        assert len(f"{plan}") < 300
    why = pgm.MCMC().plan(model.given({f"x{count - 1}": [1]}), ("marginals",)).why
    slow = sorted(f"x{i}" for i in range(count - 1))
    shown = ", ".join(map(repr, slow[:3])) + (f" ... and {count - 4} more" if count > 4 else "")
    assert why.endswith(f"unit by unit in {shown}")


def test_refusals_of_many_layers_list_three():
    model = of_layers(200)
    with pytest.raises(pgm.PgmError, match=r"are x0, x1, x2 ... and 197 more; did you mean 'x17"):
        pgm.infer(model, {"xx17": [1]})
    with pytest.raises(pgm.PgmError, match=r"are x0.bias, x1.bias, x2.bias ... and 396 more"):
        model.with_params({"y.bias": [0.0]})
    extra("matplotlib")
    with pytest.raises(pgm.PgmError, match=r"are x0->x1, x1->x2, x2->x3 ... and 196 more"):
        pgm.plots.receptive_fields(model, "y->x1", (1, 1))
