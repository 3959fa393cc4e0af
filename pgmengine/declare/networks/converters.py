"""Models of other libraries in memory: pgmpy, pyAgrum and dimod.

The libraries are not imported: only attributes of their objects are used. Arrays are copied,
because arrays of pyAgrum are freed with their model, and arrays of pgmpy may change. Models of
pgmpy and pyAgrum become a Network. A dimod model becomes a layer with a bilinear coupling, whose
weights follow from its energy.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.networks.tabular import Conditional, Network, Table
from pgmengine.model.names.variables import free_name
from pgmengine.units import Binary, Spin, Unit

if TYPE_CHECKING:
    from pgmengine.declare.builder import GraphBuilder

# The unit type of each kind of variable of dimod.
UNITS_OF_DIMOD: dict[str, Unit] = {"BINARY": Binary(), "SPIN": Spin()}


def network_from_pgmpy(model: object) -> Network:
    """Return the network of a pgmpy model with tables.

    Parameters
    ----------
    model : a DiscreteBayesianNetwork (BayesianNetwork in earlier versions), or a
        DiscreteMarkovNetwork, MarkovNetwork or FactorGraph. Names of variables and states become
        text.

    Raises
    ------
    PgmError
        For other objects, variables without a table, and tables of one variable with different
        states.
    """
    source: Any = model
    _check_no_class(model, "from_pgmpy")
    if callable(getattr(source, "get_cpds", None)):
        factors = list(source.get_cpds())
        directed = True
    elif callable(getattr(source, "get_factors", None)):
        factors = list(source.get_factors())
        directed = False
    else:
        raise PgmError(
            f"from_pgmpy takes a Bayesian or Markov network of pgmpy, not {_kind(model)}"
        )
    nodes = list(getattr(source, "get_variable_nodes", source.nodes)())
    scopes = [_attribute(f, "variables", "a table of the pgmpy model") for f in factors]
    states = _states_of_pgmpy(nodes, factors, scopes, directed)
    number = {node: i for i, node in enumerate(nodes)}
    arrays = [_array_of_pgmpy(f, scope, states) for f, scope in zip(factors, scopes, strict=True)]
    numbered = [tuple(number[x] for x in scope) for scope in scopes]
    names = tuple(map(str, nodes))
    labels = tuple(tuple(map(str, states[node])) for node in nodes)
    if not directed:
        return Network(names, labels, (), tuple(map(Table, numbered, arrays)))
    return Network(names, labels, tuple(map(_child_last, numbered, arrays)))


def _states_of_pgmpy(
    nodes: Sequence[Hashable],
    factors: Iterable[Any],
    scopes: Iterable[Sequence[Hashable]],
    directed: bool,
) -> dict[Hashable, list[Hashable]]:
    """Return the states of each variable, as in its own table, or else in the first with it."""
    states: dict[Hashable, list[Hashable]] = {}
    for factor, scope in zip(factors, scopes, strict=True):
        # The first variable of a conditional is the child.
        for k, name in enumerate(scope[:1] if directed else scope):
            states.setdefault(name, _state_names(factor, k, name))
    for node in nodes:
        if node not in states:
            raise PgmError(f"variable {node!r} of the pgmpy model has no table; add one to it")
    for scope in scopes:
        for name in scope:
            if name not in states or name not in nodes:
                raise PgmError(f"{name!r} has a table, but is no variable of the pgmpy model")
    return states


def _state_names(factor: Any, axis: int, name: Hashable) -> list[Hashable]:
    """Return the names of the states along an axis of a table of pgmpy."""
    given = getattr(factor, "state_names", None) or {}
    return list(given.get(name, range(np.shape(factor.values)[axis])))


def _array_of_pgmpy(
    factor: Any, scope: Sequence[Hashable], states: Mapping[Hashable, list[Hashable]]
) -> Array:
    """Return the values of a table of pgmpy, each axis in the order of the variable's states."""
    values = np.array(factor.values)
    for axis, name in enumerate(scope):
        own = _state_names(factor, axis, name)
        if len(own) != len(states[name]) or set(own) != set(states[name]):
            raise PgmError(
                f"variable {name!r} has the states {own!r} in one table of the pgmpy model, and "
                f"{states[name]!r} in another one"
            )
        if own != states[name]:
            values = np.take(values, [own.index(state) for state in states[name]], axis)
    return values


def _child_last(scope: tuple[int, ...], values: Array) -> Conditional:
    """Return the conditional of a table whose first axis is the child."""
    return Conditional(scope[0], scope[1:], np.moveaxis(values, 0, -1))


def network_from_pyagrum(model: object) -> Network:
    """Return the network of a pyAgrum model.

    Parameters
    ----------
    model : a BayesNet or a MarkovRandomField. The names of states are pyAgrum's labels.

    Raises
    ------
    PgmError
        For other objects, influence diagrams among them.
    """
    source: Any = model
    _check_no_class(model, "from_pyagrum")
    directed = hasattr(source, "cpt") and not hasattr(source, "utility")
    if not directed and not (hasattr(source, "factors") and hasattr(source, "factor")):
        raise PgmError(
            f"from_pyagrum takes a BayesNet or MarkovRandomField of pyAgrum, not {_kind(model)}"
        )
    nodes = sorted(source.nodes())
    variables = [source.variable(node) for node in nodes]
    names = tuple(variable.name() for variable in variables)
    states = tuple(tuple(variable.labels()) for variable in variables)
    number = {name: i for i, name in enumerate(names)}
    parts = [source.cpt(i) for i in nodes] if directed else map(source.factor, source.factors())
    scopes, arrays = [], []
    for part in parts:
        # The axes of tolist are in the reverse order of names.
        scopes.append(tuple(number[name] for name in part.names))
        # toarray returns uninitialised memory for a noisy-or and other nodes whose entries are
        # computed, and sometimes for a tensor that is made from such a node.
        arrays.append(np.array(part.tolist(), dtype=np.float64).T)
    if directed:
        return Network(names, states, tuple(map(_child_last, scopes, arrays)))
    return Network(names, states, (), tuple(map(Table, scopes, arrays)))


def add_quadratic(b: GraphBuilder, model: object, name: str) -> None:
    """Add the variables of a dimod model to a builder as one layer, coupled with itself.

    The log density is the negative energy without its constant: a bias is -h, and a weight is -J.
    The variables become the labels of the units.

    Parameters
    ----------
    b : the builder.
    model : a BinaryQuadraticModel of spins or of binary variables.
    name : the name of the layer, which gets a number behind it if a variable has this name.

    Raises
    ------
    PgmError
        For other objects, models without variables, and coefficients that are not finite.
    """
    import scipy.sparse as sp

    source: Any = model
    _check_no_class(model, "from_dimod")
    kind = getattr(getattr(source, "vartype", None), "name", None)
    if (
        kind not in UNITS_OF_DIMOD
        or not hasattr(source, "linear")
        or not hasattr(source, "quadratic")
    ):
        raise PgmError(f"from_dimod takes a BinaryQuadraticModel of dimod, not {_kind(model)}")
    labels = list(source.linear)
    if not labels:
        raise PgmError("from_dimod: the model has no variables, expected at least 1")
    number = {label: i for i, label in enumerate(labels)}
    bias = -np.array([float(source.linear[label]) for label in labels])
    name = free_name(name, labels)
    b.layer(name, UNITS_OF_DIMOD[kind], len(labels), bias=bias, labels=labels)
    pairs = [(number[u], number[v]) for u, v in source.quadratic]
    if not pairs:
        return
    weight = -np.array([float(x) for x in source.quadratic.values()])
    i, j = np.array(pairs).T
    whole = (np.r_[weight, weight], (np.r_[i, j], np.r_[j, i]))
    b.couple(name, name, weight=sp.csr_array(whole, shape=(len(labels), len(labels))))


def _attribute(thing: object, name: str, what: str) -> list[Hashable]:
    """Return an attribute as a list; raise PgmError if the object does not have it."""
    try:
        return list(getattr(thing, name))
    except (AttributeError, TypeError):
        raise PgmError(
            f"{what} is {_kind(thing)}, expected a table of discrete variables"
        ) from None


def _check_no_class(model: object, function: str) -> None:
    """Raise PgmError for a class in place of a model."""
    if isinstance(model, type):
        raise PgmError(
            f"{function} takes a model, not the class {model.__name__} itself; make a model of it"
        )


def _kind(thing: object) -> str:
    """Return the type of an object for messages."""
    return f"an object of type {type(thing).__name__}"
