"""The couplings of a declaration: between whole layers, and between units in many places."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from numpy.typing import ArrayLike

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Weight
from pgmengine.declare.handles import Units, check_scope
from pgmengine.declare.shared.declared_term import DeclaredTerm, Places
from pgmengine.declare.validate import check_parameter
from pgmengine.model.containers import as_floats
from pgmengine.model.couplings import Arrow, Coupling, Lateral, Pair
from pgmengine.model.layer import Layer
from pgmengine.model.names.unit_names import Member
from pgmengine.model.weights import is_sparse


@dataclass(eq=False)
class Couples:
    """The part of a GraphBuilder that declares couplings, and biases that many places share."""

    layers: list[Layer] = field(default_factory=list)
    couplings: list[Coupling] = field(default_factory=list)
    # The weight of each coupling; None = drawn by build.
    weights: list[Weight | None] = field(default_factory=list)
    # Couplings and biases that many places share.
    shared: list[Places] = field(default_factory=list)

    def couple(
        self,
        a: Member | Units,
        b: Member | Units,
        weight: Weight | None = None,
        name: str | None = None,
    ) -> None:
        """Couple two layers, or units in many places: the log density gains x_a W x_b.

        Names of two layers couple all units of one with all units of the other. A layer that is
        coupled with itself gains x S x / 2, S symmetric with a zero diagonal.

        Handles, such as those of `layer` and `variable`, broadcast together as in numpy, and couple
        the two units at each place. All places share the weight, as one parameter. Places inside a
        layer are pairs of different units; pairs that are coupled several times add up.

        Parameters
        ----------
        a, b : the names of two layers; or handles such as s[1:], also as text.
        weight : of two layers (width of a, width of b), dense or a scipy sparse array. Of places a
            number, or (k_a, k_b) for units with several components, such as Categorical(k); leading
            axes, which broadcast to the places, give them weights of their own. None = drawn by
            build.
        name : the name of the parameter of places; couplings of one name share it. None = the name
            is made from the handles, such as "s[1:]-s[:-1].weight".

        Raises
        ------
        PgmError for a name beside two layers, and for weights of places that are no numbers or
        sparse.
        `build` checks the rest.

        >>> import numpy as np
        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> s = b.layer("s", pgm.Spin(), (20, 20))
        >>> b.couple(s[1:], s[:-1], 0.3, name="vertical")
        >>> b.couple(s[:, 1:], s[:, :-1], 0.3, name="horizontal")
        >>> lattice = b.build()
        >>> lattice.params["vertical"]
        array(0.3)
        >>> pgm.infer(lattice, want=("log_z",)).log_z.round(3)
        array([314.068])

        A convolutional RBM shares a filter of 5 x 5 weights over all windows of an image:

        >>> b = pgm.GraphBuilder()
        >>> v = b.layer("v", pgm.Binary(), (28, 28))
        >>> h = b.layer("h", pgm.Binary(), (24, 24))
        >>> i, j, k, l = np.ogrid[:24, :24, :5, :5]
        >>> b.couple(v[i + k, j + l], h[:, :, None, None], np.zeros((5, 5)), name="filter")
        >>> b.build().params["filter"].shape
        (5, 5)
        """
        if self._places(a, b):
            self._share((a, b), weight, name)
            return
        self._check_unnamed(a, b, name)
        self.couplings.append(Lateral(cast(str, a)) if a == b else Pair(cast(str, a), cast(str, b)))
        self.weights.append(weight)

    def cause(
        self,
        parent: Member | Units,
        child: Member | Units,
        weight: Weight | None = None,
        name: str | None = None,
    ) -> None:
        """Add arrows parent -> child: the children's input gains x_parent J.

        A Binary child is 1 with the probability sigmoid(input), and the mean of a Gaussian(sigma)
        child is sigma**2 times its input: divide means by sigma**2. Use `conditional` to give the
        distribution of a variable as a table; arrows between two variables need a weight. Handles
        broadcast together, and share the weight over their places, as in `couple`.

        With handles, a weight with a row for each state of the parent is the whole input that a
        child gets from it, such as the mean of each state. The layer of such children learns no
        bias of its own; `bias` adds one.

        Parameters
        ----------
        parent, child : names of layers, or of variables; or handles such as z[1:], also as text.
        weight : (width of the parent, width of the child), dense or a scipy sparse array; of places
            as in `couple`, so that a parent with three states has one number for each state, (3, 1)
            above a Binary or Gaussian child. A parent with two states has rows for both, (2, 1), or
            one number for what its second state adds, (). None = drawn by build.
        name : the name of the parameter of places, as in `couple`.

        Raises
        ------
        PgmError for a name beside two layers, and for weights of places that are no numbers or
        sparse.
        `build` checks the rest.

        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> z = b.layer("z", pgm.Binary(), 10)
        >>> b.cause(z[:-1], z[1:], 1.5, name="step")
        >>> b.build().params["step"]
        array(1.5)

        A Gaussian observation has the mean -1, 0 or 2 and the standard deviation 0.5:

        >>> import numpy as np
        >>> b = pgm.GraphBuilder()
        >>> z = b.variable("z", states=3)
        >>> x = b.layer("x", pgm.Gaussian(sigma=0.5), 1)
        >>> b.conditional(z, (), [0.2, 0.3, 0.5])
        >>> b.cause(z, x[0], np.array([[-1.0], [0.0], [2.0]]) / 0.5**2)
        >>> pgm.infer(b.build(), {"z": 2}).mean["x"]
        array([2.])
        """
        if self._places(parent, child):
            self._share((parent, child), weight, name, directed=True)
            return
        self._check_unnamed(parent, child, name)
        self.couplings.append(Arrow(cast(str, parent), cast(str, child)))
        self.weights.append(weight)

    def bias(
        self, units: Member | Units, value: ArrayLike | None = None, name: str | None = None
    ) -> None:
        """Add a bias that many places share: the log density gains value * x_i at each place.

        It is added to the biases that a layer has of its own. Arrays of variables have no others.
        For units with arrows into them it is added to their input.

        Parameters
        ----------
        units : a handle such as s[1:], also as text, or a single unit.
        value : a number, or (k,) for units with k components, such as Categorical(k); leading axes,
            which broadcast to the places, give them values of their own. None = 0.
        name : the name of the parameter; biases of one name share it. None = the name is made from
            the handle, such as "s[1:].bias".

        Raises
        ------
        PgmError for values that are no numbers. `build` checks the rest.

        >>> import pgmengine as pgm
        >>> b = pgm.GraphBuilder()
        >>> s = b.variable("s", states=2, shape=(3, 3))
        >>> b.bias(s, 0.5, name="field")
        >>> round(pgm.infer(b.build()).marginal("s[0,0]")[1], 4)
        0.6225
        """
        self._share((units,), value, name)

    def _places(self, *ends: object) -> bool:
        """Whether the ends of a coupling are units in places, and not two whole layers."""
        layers = {layer.name for layer in self.layers}
        return any(
            isinstance(end, (Units, tuple))
            or (isinstance(end, str) and "[" in end[1:] and end[-1] == "]" and end not in layers)
            for end in ends
        )

    def _share(
        self,
        scope: tuple[Member | Units, ...],
        values: object,
        name: str | None,
        directed: bool = False,
    ) -> None:
        """Add a shared coupling, arrow or bias."""
        check_scope(scope, self, "the units")
        one = DeclaredTerm(scope, None, check_parameter(name), directed)
        if is_sparse(values) and len(scope) == 2:
            raise PgmError(
                f"{one.what}: the weight is a sparse matrix, which joins two whole layers; give "
                "their names in place of handles"
            )
        if values is not None:
            one = replace(one, values=as_floats(values, one.what))
        self.shared.append(one)

    @staticmethod
    def _check_unnamed(a: object, b: object, name: str | None) -> None:
        """PgmError for a name of a weight that joins two whole layers."""
        if name is not None:
            raise PgmError(
                f"the coupling of {a!r} and {b!r} has the name {name!r}: only weights that places "
                "share have names; give handles in place of names of layers"
            )
