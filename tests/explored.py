"""Models for tests of the explorer, and random clicks with a record of what they should do."""

import numpy as np

import pgmengine as pgm


def hmm(steps=7):
    b = pgm.GraphBuilder()
    state = b.variable("state", states=("good", "worn"), shape=steps)
    sound = b.variable("sound", states=("quiet", "loud", "silent"), shape=steps)
    b.conditional(state[0], (), [0.9, 0.1])
    b.conditional(state[1:], (state[:-1],), [[0.9, 0.1], [0.1, 0.9]])
    b.conditional(sound, (state,), [[0.7, 0.2, 0.1], [0.3, 0.6, 0.1]])
    return b.build()


def lattice():
    b = pgm.GraphBuilder()
    s = b.variable("s", states=2, shape=(3, 4))
    b.table((s[1:], s[:-1]), [[2.0, 1.0], [1.0, 2.0]])
    b.table((s[:, 1:], s[:, :-1]), [[2.0, 1.0], [1.0, 2.0]])
    return b.build()


def spins():
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Spin(), 5, bias=np.linspace(-0.5, 0.5, 5))
    b.layer("c", pgm.Categorical(3), 2)
    b.couple("s", "c")
    return b.build(rng=1)


# Name -> a function that makes the model anew.
MODELS = {
    "asia": lambda: pgm.read(pgm.datasets.asia()),
    "hidden Markov model": hmm,
    "lattice": lattice,
    "restricted Boltzmann machine": lambda: pgm.rbm(9, 4, rng=0),
    "spins": spins,
    "belief net": lambda: pgm.sbn([5, 3], rng=0),
}


class Clicks:
    """Random actions on units by (layer, unit), and what is then given, with undo and redo."""

    def __init__(self, model, seed):
        self.model, self.rng = model, np.random.default_rng(seed)
        self.layers = list(model.structure.layers.values())
        self.past, self.given, self.future = [], {}, []

    def unit(self):
        number = int(self.rng.integers(len(self.layers)))
        layer = self.layers[number]
        unit = int(self.rng.integers(layer.size))
        return f"{number},{unit}", int(self.rng.integers(len(layer.unit.support)))

    def next(self, directed):
        """The next action, after it is recorded."""
        kinds = ["set", "set", "set", "set", "release", "undo", "redo", "clear", "do"]
        kind = kinds[int(self.rng.integers(len(kinds) - (not directed)))]
        at, state = self.unit()
        if kind == "undo":
            if self.past:
                self.future.append(self.given)
                self.given = self.past.pop()
            return {"kind": kind}
        if kind == "redo":
            if self.future:
                self.past.append(self.given)
                self.given = self.future.pop()
            return {"kind": kind}
        after = {n: value for n, value in self.given.items() if n != at and kind != "clear"}
        if kind in ("set", "do") and self.given.get(at) != (kind, state):
            after[at] = (kind, state)
        if after != self.given:
            self.past.append(self.given)
            self.given, self.future = after, []
        if kind == "clear":
            return {"kind": kind}
        if kind == "release":
            return {"kind": kind, "at": [at]}
        return {"kind": "set", "at": [at], "state": state, "do": kind == "do", "toggle": True}

    def fresh(self, make):
        """The answer of `infer` about a model made anew, or the message of its error."""
        model = make()
        parts = {"set": {}, "do": {}}
        for at, (kind, state) in self.given.items():
            number, unit = map(int, at.split(","))
            layer = self.layers[number]
            values = parts[kind].setdefault(layer.name, np.full(layer.size, None, dtype=object))
            named = layer.state_names or range(99)
            plain = layer.state_names is None and layer.unit.width == 1
            values[unit] = layer.unit.support[state] if plain else named[state]
        shaped = [
            {
                key: value
                for name, values in part.items()
                for key, value in named_values(model, name, values)
            }
            for part in parts.values()
        ]
        want = ("marginals", "log_prob")
        try:
            return pgm.infer(model, shaped[0], want, do=shaped[1] or None, rng=0)
        except pgm.PgmError as error:
            return str(error)


def named_values(model, name, values):
    """Pairs (name, value) as evidence: variables by their names, layers whole."""
    layer = model.structure.layers[name]
    if layer.holds_variables or layer.is_variable:
        return [(layer.labels[i], v) for i, v in enumerate(values) if v is not None]
    return [(name, values.reshape(layer.grid).tolist())]


def numbers(result, model):
    """Place -> probabilities of the states, of a result."""
    out = {}
    for number, name in enumerate(model.structure.layers):
        prob = np.asarray(result.raw("prob")[name])
        for unit, p in enumerate(prob.reshape(-1, prob.shape[-1])):
            out[f"{number},{unit}"] = p
    return out
