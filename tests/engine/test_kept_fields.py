"""Fields that are kept: only of values that cannot change."""

import numpy as np

import pgmengine as pgm
from pgmengine.engine.packed import packed


def test_fields_are_kept_of_values_that_cannot_change_alone():
    rng = np.random.default_rng(0)
    model = pgm.rbm(20, 3, rng=0)
    one, c = packed(model), model.structure.couplings[0]
    weight = model.params["v-h.weight"]
    x = rng.normal(size=(4, 20)).astype(np.float32)
    view = x[:]
    view.flags.writeable = False
    for values in (x, view):
        for scale in (1, 2):
            x *= scale
            field = np.ones((4, 3), dtype=np.float32)
            one.add_product(c, "h", values, field)
            np.testing.assert_allclose(field, 1 + x @ weight, atol=1e-5)
    assert not one.fields
    x.flags.writeable = False
    for _ in range(2):
        field = np.ones((4, 3), dtype=np.float32)
        one.add_product(c, "h", x, field)
        np.testing.assert_allclose(field, 1 + x @ weight, atol=1e-5)
    assert one.fields["v-h", "h"][0] is x
    other = (2 * x).astype(np.float32)
    other.flags.writeable = False
    field = np.zeros((4, 3), dtype=np.float32)
    one.add_product(c, "h", other, field)
    np.testing.assert_allclose(field, 2 * x @ weight, atol=1e-5)
