"""Maximum likelihood of small networks with noisy gates, by enumeration, without the package.

A network is a plain dictionary:

    states   variable -> number of its states, in the order of the columns of rows
    tables   variable -> (parents, array (states of parents ..., states)), distributions along the
             last axis
    gates    variable -> {"kind", "parents", "contributions", "leak"}

A gate has for each parent the distribution of its contribution, (states of the parent, states of
the child), and the distribution of its leak, (states of the child,). The child is

    or, max   the largest of the contributions and of the leak
    min       the smallest of them
    and       the larger one of the leak and of the smallest contribution.

Numbers that are exactly 0 stay 0: a parent in a state that causes nothing, a leak that causes
nothing, and a contribution that is certain. All other numbers are free. A row is an integer for
each variable, -1 where it is missing; a hidden variable is missing in every row.

The likelihood of a row is the sum over all joint states of the network that agree with it.
`maximum` climbs it by L-BFGS from several starts, with logits of the free numbers. The slope is the
expected slope of the log of each conditional given the row, and that of a conditional comes from
complex steps, exact to rounding.
"""

import copy
import itertools

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

# Logits are at most so large: a number that tends to 0 ends at about e^-30.
LARGEST_LOGIT = 30.0
# The size of complex steps, whose square vanishes beside 1.
STEP = 1e-30


def conditional(gate):
    """The table of a gate, (states of parents ..., states of the child)."""
    contributions, leak = gate["contributions"], np.asarray(gate["leak"])
    count, n = len(leak), len(contributions)
    whole = np.ones((1,) * n + (count,))
    for axis, one in enumerate(contributions):
        below = _cumulative(np.asarray(one), gate["kind"])
        shape = [1] * n + [count]
        shape[axis] = len(below)
        whole = whole * below.reshape(shape)
    if gate["kind"] == "and":
        # p(on) = leak + (1 - leak) p(all conditions are met)
        on = leak[1] + leak[0] * whole[..., 1]
        return np.stack([leak[0] * (1.0 - whole[..., 1]), on], axis=-1)
    whole = whole * _cumulative(leak, gate["kind"])
    zero = np.zeros_like(whole[..., :1])
    if gate["kind"] == "min":
        return whole - np.concatenate([whole[..., 1:], zero], axis=-1)
    return whole - np.concatenate([zero, whole[..., :-1]], axis=-1)


def _cumulative(p, kind):
    """p(at most each state), or for min and and p(at least each state), along the last axis."""
    if kind in ("min", "and"):
        return np.cumsum(p[..., ::-1], axis=-1)[..., ::-1]
    return np.cumsum(p, axis=-1)


def families(network):
    """The conditionals of all variables: variable -> (parents, table)."""
    found = dict(network["tables"])
    for name, gate in network["gates"].items():
        found[name] = (gate["parents"], conditional(gate))
    return {name: found[name] for name in network["states"]}


def joint_states(network):
    """All joint states, (joint states, variables)."""
    return np.array(list(itertools.product(*map(range, network["states"].values()))))


def log_joint(network, states):
    """The log probability of complete states (n, variables)."""
    at = {name: column for name, column in zip(network["states"], states.T)}
    total = np.zeros(len(states))
    with np.errstate(divide="ignore"):
        for name, (parents, table) in families(network).items():
            total += np.log(table[tuple(at[p] for p in (*parents, name))])
    return total


def log_likelihood(network, rows):
    """log p of what each row observes, (rows,)."""
    return Likelihood(network, rows).of_rows(network)


class Likelihood:
    """The likelihood of rows, as a function of the numbers of a network."""

    def __init__(self, network, rows):
        rows = np.asarray(rows)
        assert rows.ndim == 2 and rows.shape[1] == len(network["states"])
        different, self.which = np.unique(rows, axis=0, return_inverse=True)
        self.which = self.which.ravel()
        self.weights = np.bincount(self.which, minlength=len(different))
        self.states = joint_states(network)
        # Whether each joint state agrees with each of the different rows.
        agrees = (different[:, None] < 0) | (different[:, None] == self.states[None])
        # Products with a sparse matrix take no threads.
        self.agrees = sp.csr_array(agrees.all(axis=2).astype(np.float64))
        self.place = {name: i for i, name in enumerate(network["states"])}

    def of_rows(self, network):
        """log p of each row."""
        p = np.exp(log_joint(network, self.states))
        with np.errstate(divide="ignore"):
            return np.log(self.agrees @ p)[self.which]

    def value_and_counts(self, network):
        """The mean log p of a row, and the expected counts of each conditional, per row."""
        p = np.exp(log_joint(network, self.states))
        each = self.agrees @ p
        share = self.weights / self.weights.sum()
        posterior = (self.agrees.T @ (share / each)) * p
        counts = {}
        for name, (parents, table) in families(network).items():
            counts[name] = np.zeros(table.shape)
            index = tuple(self.states[:, self.place[v]] for v in (*parents, name))
            np.add.at(counts[name], index, posterior)
        return float(share @ np.log(each)), counts


def distributions(network):
    """The places of all distributions: [(kind, variable, number or None, index of the row)]."""
    found = []
    for name, (_, table) in network["tables"].items():
        found += [("tables", name, None, i) for i in np.ndindex(table.shape[:-1])]
    for name, gate in network["gates"].items():
        for number, one in enumerate(gate["contributions"]):
            found += [("gates", name, number, (i,)) for i in range(len(one))]
        found.append(("leak", name, None, ()))
    return found


def _array(network, place):
    """The array that holds a distribution."""
    kind, name, number, _ = place
    if kind == "tables":
        return network["tables"][name][1]
    gate = network["gates"][name]
    return gate["leak"] if kind == "leak" else gate["contributions"][number]


class Logits:
    """The free numbers of a network as logits, the first number of a distribution having 0."""

    def __init__(self, network, fixed=()):
        self.network = network
        self.places = []
        for place in distributions(network):
            free = np.flatnonzero(np.asarray(_array(network, place))[place[3]] > 0)
            if len(free) > 1 and place[1] not in fixed:
                self.places.append((place, free))
        self.size = sum(len(free) - 1 for _, free in self.places)

    def of(self, network):
        """The logits (size,) of a network's numbers."""
        parts = []
        for place, free in self.places:
            logs = np.log(np.asarray(_array(network, place))[place[3]][free])
            parts.append(logs[1:] - logs[0])
        return np.concatenate([*parts, np.zeros(0)])

    def network_at(self, logits):
        """The network with the numbers of some logits."""
        out, at = copy.deepcopy(self.network), 0
        for place, free in self.places:
            own = logits[at : at + len(free) - 1]
            at += len(free) - 1
            _array(out, place)[(*place[3], free)] = _shares(own)
        return out


def _shares(logits):
    """The distribution of some logits after a first one of 0; they may be complex."""
    full = np.concatenate([np.zeros(1), logits])
    p = np.exp(full - full.real.max())
    return p / p.sum()


def slope(logits, at, network, counts, pseudocount=0.0):
    """The slope of sum(counts * log conditionals) along each logit.

    It is in closed form for tables, and by complex steps for gates.
    """
    out, first = np.zeros(logits.size), 0
    for place, free in logits.places:
        own = slice(first, first + len(free) - 1)
        first = own.stop
        kind, name, _, row = place
        if kind == "tables":
            found = counts[name][row][free]
            p = network["tables"][name][1][row][free]
            out[own] = found[1:] - found.sum() * p[1:]
        else:
            for i in range(own.start, own.stop):
                out[i] = _gate_slope(network["gates"][name], place, free, at[own], i - own.start,
                                     counts[name])  # fmt: skip
        p = np.asarray(_array(network, place))[row][free]
        out[own] += pseudocount * (1.0 - len(free) * p[1:])
    return out


def _gate_slope(gate, place, free, logits, number, counts):
    """The slope of sum(counts * log table) of a gate along one logit of one distribution."""
    moved = logits.astype(complex)
    moved[number] += 1j * STEP
    shares = _shares(moved)
    if place[0] == "leak":
        leak = np.array(gate["leak"], dtype=complex)
        leak[free] = shares
        table = conditional({**gate, "leak": leak})
    else:
        contributions = list(gate["contributions"])
        one = np.array(contributions[place[2]], dtype=complex)
        one[(*place[3], free)] = shares
        contributions[place[2]] = one
        table = conditional({**gate, "contributions": contributions})
    seen = counts > 0
    return float((counts[seen] * np.log(table[seen])).sum().imag / STEP)


def _log_numbers(network, logits):
    """The sum of the logs of all free numbers."""
    return sum(
        np.log(np.asarray(_array(network, place))[place[3]][free]).sum()
        for place, free in logits.places
    )


def objective(network, rows, pseudocount=0.0, fixed=()):
    """(function of logits -> (minus the objective, minus its slope), Logits)."""
    likelihood, logits = Likelihood(network, rows), Logits(network, fixed)
    count = len(rows)

    def negative(at):
        now = logits.network_at(at)
        value, counts = likelihood.value_and_counts(now)
        if pseudocount:
            value += pseudocount / count * _log_numbers(now, logits)
        return -value, -slope(logits, at, now, counts, pseudocount / count)

    return negative, logits


def maximum(network, rows, starts=6, rng=None, pseudocount=0.0, fixed=()):
    """The largest log-likelihood over the free numbers of a network.

    Parameters
    ----------
    network : gives the form, the zeros, and the first start.
    rows : (rows, variables).
    starts : the numbers of the network, and starts - 1 random ones.
    rng : of the random starts; default_rng(0) if it is left out.
    pseudocount : is added to the objective times the log of each free number, divided by the
        number of rows.
    fixed : variables whose numbers stay as they are.

    Returns
    -------
    {"log_likelihood": mean log p of a row, "objective": the same with pseudocounts,
     "network": the network there, "values": the objective that each start has reached, descending,
     "slope": the largest derivative at the end}
    """
    rng = np.random.default_rng(0) if rng is None else rng
    negative, logits = objective(network, rows, pseudocount, fixed)
    found = []
    for start in range(starts):
        begin = logits.of(network) if start == 0 else rng.normal(0, 1.5, logits.size)
        if not logits.size:
            found.append((negative(begin)[0], begin, 0.0))
            break
        # Products of a few numbers are slower on several threads.
        with threadpool_limits(limits=1, user_api="blas"):
            ended = minimize(
                negative,
                np.clip(begin, -LARGEST_LOGIT, LARGEST_LOGIT),
                jac=True,
                method="L-BFGS-B",
                bounds=[(-LARGEST_LOGIT, LARGEST_LOGIT)] * logits.size,
                options={
                    "maxiter": 5000,
                    "maxfun": 20000,
                    "ftol": 1e-15,
                    "gtol": 1e-9,
                    "maxcor": 30,
                },
            )
        found.append((float(ended.fun), ended.x, float(np.abs(ended.jac).max())))
    found.sort(key=lambda one: one[0])
    value, at, largest = found[0]
    best = logits.network_at(at)
    return {
        "log_likelihood": float(log_likelihood(best, rows).mean()),
        "objective": -value,
        "network": best,
        "values": [-one[0] for one in found],
        "slope": largest,
    }


def declared(gate):
    """The arguments of noisy_or, noisy_and, noisy_max or noisy_min: (list for parents, leak)."""
    contributions, leak = gate["contributions"], np.asarray(gate["leak"])
    if gate["kind"] in ("or", "and"):
        return [np.asarray(one)[:, 1].tolist() for one in contributions], float(leak[1])
    return [np.asarray(one).tolist() for one in contributions], leak.tolist()


def random_gate_network(
    rng, kind, causes=3, hidden=1, missing=0.0, children=3, rows=400, leak=True
):
    """A random network of causes and of children that are gates, and rows drawn from it.

    Parameters
    ----------
    kind : "or", "and", "max" or "min".
    causes : the number of causes, each with two or three states. About half of the causes after
        the first one depend on an earlier cause.
    hidden : the number of causes that no row observes: the last ones.
    missing : the share of missing cells among the observed variables.
    children : the number of gates. Each has two causes or more; a hidden cause belongs to all.
    rows : the number of rows.
    leak : whether gates have a leak.

    Returns
    -------
    (network, rows (rows, variables)), rows with -1 where a cell is missing.
    """
    states, tables, gates = {}, {}, {}
    for i in range(causes):
        name = f"c{i}"
        states[name] = int(rng.integers(2, 4))
        above = (f"c{rng.integers(i)}",) if i and rng.random() < 0.5 else ()
        shape = tuple(states[p] for p in above)
        tables[name] = (above, rng.dirichlet(np.full(states[name], 3.0), size=shape))
    unseen = [f"c{i}" for i in range(causes - hidden, causes)]
    for j in range(children):
        name = f"e{j}"
        count = 2 if kind in ("or", "and") else 3
        states[name] = count
        parents = [f"c{i}" for i in range(causes) if f"c{i}" in unseen or rng.random() < 0.7]
        for i in range(causes):
            if len(parents) < min(2, causes) and f"c{i}" not in parents:
                parents.append(f"c{i}")
        parents.sort()
        gates[name] = {
            "kind": kind,
            "parents": tuple(parents),
            "contributions": [_contribution(rng, kind, states[p], count) for p in parents],
            "leak": _leak(rng, kind, count, leak),
        }
    network = {"states": states, "tables": tables, "gates": gates, "hidden": tuple(unseen)}
    return network, drawn(rng, network, rows, missing)


def _neutral(kind, count):
    """The contribution that changes nothing: the last state for min, the first one otherwise."""
    return np.eye(count)[count - 1 if kind == "min" else 0]


def _contribution(rng, kind, parent, count):
    """The contributions of a parent: in its state 0 it causes, or meets, nothing."""
    table = rng.dirichlet(np.full(count, 1.5), size=parent)
    table[0] = _neutral(kind, count)
    return table


def _leak(rng, kind, count, leak):
    """The distribution of a leak, most of it on the state that changes nothing."""
    neutral = _neutral(kind, count)
    if not leak:
        return neutral
    return 0.85 * neutral + 0.15 * rng.dirichlet(np.full(count, 2.0))


def random_dina_network(rng, skills=3, items=8, missing=0.0, rows=400):
    """Items of a DINA test: p(right) is 1 - slip with all skills that the item needs, else guess.

    Skills s0, s1, ... are independent and hidden. An item is an and of its skills with a leak: the
    guess is the leak, and 1 - slip = leak + (1 - leak) * p with the number p of its first skill;
    the numbers of the other skills are certain, and stay so.

    Returns
    -------
    (network, rows (rows, variables)), as random_gate_network returns them.
    """
    states = {f"s{i}": 2 for i in range(skills)}
    tables = {}
    for i in range(skills):
        p = rng.uniform(0.35, 0.65)
        tables[f"s{i}"] = ((), np.array([1.0 - p, p]))
    gates = {}
    for j in range(items):
        # Each skill has an item that needs it alone.
        needs = (
            [j]
            if j < skills
            else sorted(
                rng.choice(skills, size=int(rng.integers(1, skills + 1)), replace=False).tolist()
            )
        )
        guess, slip = rng.uniform(0.05, 0.3), rng.uniform(0.05, 0.25)
        p = (1.0 - slip - guess) / (1.0 - guess)
        first, other = np.array([[1.0, 0.0], [1.0 - p, p]]), np.array([[1.0, 0.0], [0.0, 1.0]])
        name = f"y{j}"
        states[name] = 2
        gates[name] = {
            "kind": "and",
            "parents": tuple(f"s{i}" for i in needs),
            "contributions": [first if n == 0 else other.copy() for n in range(len(needs))],
            "leak": np.array([1.0 - guess, guess]),
        }
    network = {"states": states, "tables": tables, "gates": gates}
    network["hidden"] = tuple(name for name in states if name.startswith("s"))
    return network, drawn(rng, network, rows, missing)


def guess_and_slip(gate):
    """The guess and the slip of an item."""
    met = np.prod([np.asarray(one)[1, 1] for one in gate["contributions"]])
    guess = float(gate["leak"][1])
    return guess, float((1.0 - guess) * (1.0 - met))


def drawn(rng, network, rows, missing=0.0):
    """Rows (rows, variables) drawn from a network, -1 where hidden or missing."""
    names = list(network["states"])
    out = np.zeros((rows, len(names)), dtype=np.int64)
    for i, name in enumerate(names):
        parents, table = families(network)[name]
        p = table[tuple(out[:, names.index(v)] for v in parents)]
        p = np.broadcast_to(p, (rows, table.shape[-1]))
        below = rng.random(rows)[:, None] > np.cumsum(p, axis=1)[:, :-1]
        out[:, i] = below.sum(axis=1)
    out[rng.random(out.shape) < missing] = -1
    for name in network["hidden"]:
        out[:, names.index(name)] = -1
    return out


def perturbed(rng, network):
    """The network with other free numbers: a start of learning, with the same zeros."""
    other = copy.deepcopy(network)
    for place in distributions(other):
        own = np.asarray(_array(other, place))[place[3]]
        free = own > 0
        if free.sum() > 1:
            new = np.zeros(len(own))
            new[free] = rng.dirichlet(np.full(int(free.sum()), 4.0))
            _array(other, place)[place[3]] = new
    return other
