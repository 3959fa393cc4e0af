"""One exploration: evidence, its history, and the answers; the state machine of every front end.

A front end sends messages and shows replies; it keeps no evidence of its own. A message is a JSON
object with its number `seq`, a list of `actions`, and perhaps `hello` (send everything) or `why`
(the unit to explain). All actions of a message are applied in order, and the state at their end is
answered, so that a front end with one message under way, and the next actions collected, never
shows the answer of other evidence than it shows. The reply repeats `seq`.

    {"kind": "set", "at": ["0,3"], "state": 1, "do": false, "toggle": true}
    {"kind": "soft", "at": "0,3", "state": 1, "to": 0.8}   or "by": 0.5, in log-odds
    {"kind": "release", "at": ["0,3"]}, {"kind": "focus", "name": "lung"}
    {"kind": "undo"}, {"kind": "redo"}, {"kind": "clear"}

A place is "number of the layer,number of the unit". Answers come from `infer`, which prepares the
question of each evidence pattern once, with a memory of the last answers for undo.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.apps.explorer.given import Given, arguments, given_of, state_given, tilted
from pgmengine.base.display import plain
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, LayerValues
from pgmengine.base.work.cache import Cache
from pgmengine.declare.pictures.scene import Form, Scene, scene
from pgmengine.declare.pictures.sketch import sketch
from pgmengine.declare.pictures.svg import Values, svg
from pgmengine.declare.summary import headline
from pgmengine.evidence.names import Place
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.question.ask import infer
from pgmengine.infer.question.impact import impact
from pgmengine.infer.results.overview import values_drawn
from pgmengine.infer.results.result import Result
from pgmengine.model.model import Model

# The largest time of an answer, as plans estimate it, in seconds.
MAX_ANSWER_SECONDS = 10.0

# Nodes of a model that are all drawn. Of a larger one: the nodes around a variable that are enough,
# and the most of them and of given nodes.
MAX_NODES, ENOUGH_AROUND, MAX_AROUND, MAX_GIVEN = 60, 10, 30, 20

# Answers that are remembered, and the longest history, in steps.
MAX_ANSWERS, MAX_HISTORY = 64, 1000

# Observations that a list of reasons has at most.
MAX_REASONS = 64

# Probabilities that dragging a bar can reach, and log-odds beyond which a bar of a reason is full.
LOWEST, HIGHEST, FULL_LOG_ODDS = 0.001, 0.999, 6.0

# Decimals of log p(evidence) that are shown.
MAX_LOG_DECIMALS = 9


@dataclass(frozen=True, eq=False)
class Answered:
    """The answer for evidence, or the message of the error."""

    values: Values
    result: Result | None
    error: str = ""


class Session:
    """An exploration of one model.

    Parameters
    ----------
    model : the model.
    evidence : evidence at the start, as in `infer`, of one row.

    Raises
    ------
    PgmError if the evidence is unusable or has several rows.
    """

    def __init__(self, model: Model, evidence: LayerValues | None = None) -> None:
        self.model, self.structure = model, model.structure
        start = given_of(model, evidence)
        layers = self.structure.layers
        # Inputs have no distribution: they stay as they were given.
        inputs = {p: v for p, v in start.observed.items() if layers[p[0]].unit.observed_only}
        self.ground = Given(inputs)
        self.history, self.now = [start], 0
        exact = Exact().plan(model.given(*self._asked(self.ground)), ("marginals", "log_prob"))
        quick = exact.accepted and exact.seconds <= MAX_ANSWER_SECONDS
        self.want = ("marginals", "log_prob") if quick else ("marginals",)
        self.sketch = sketch(self.structure)
        self.numbers = list(layers)
        self.answers: Cache[Answered] = Cache(most=MAX_ANSWERS)
        self.large = len(self.sketch.nodes) > MAX_NODES
        self.scene = self._scene(self._first_focus())
        self._sent: Scene | None = None

    def _asked(self, given: Given) -> tuple[Any, Any, Any]:
        asked = arguments(self.structure, given)
        return asked.evidence, asked.soft, asked.do or None

    @property
    def given(self) -> Given:
        """The present evidence, interventions and soft evidence."""
        return self.history[self.now]

    def reply(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Apply the actions of a message, and return the reply as a JSON object.

        It never raises: errors are in the reply in words, beside the state, which can be undone.
        """
        refused = ""
        try:
            for action in _list(message.get("actions", []), "actions"):
                self._apply(action)
        except PgmError as error:
            refused = str(error)
        out: dict[str, Any] = {"seq": message.get("seq"), "refused": refused}
        if message.get("hello"):
            self._sent = None
            out |= {"title": headline(self.structure, self.model.params).partition(",")[0]}
            out |= {"names": [n.name for n in self.sketch.nodes], "large": self.large}
        if self._sent is not self.scene:
            self._sent = self.scene
            out["scene"] = self._picture()
        if message.get("why") is not None:
            out["why"] = self._why(message["why"])
        return out | self._state()

    def answer(self, given: Given | None = None) -> Answered:
        """Return the answer for what is given, now by default; it is remembered."""
        asked = self.given if given is None else given
        return self.answers.recall(asked.key, lambda: self._answered(asked))

    def _answered(self, given: Given) -> Answered:
        evidence, soft, do = self._asked(given)
        try:
            result = infer(
                self.model,
                evidence,
                self.want,
                soft=soft,
                do=do,
                rng=0,
                seconds=MAX_ANSWER_SECONDS,
                progress=False,
            )
        except PgmError as error:
            return Answered(Values(), None, str(error))
        except MemoryError:
            return Answered(Values(), None, "the answer needs more memory than is free")
        assert result.target is not None
        return Answered(values_drawn(result.target, result.answers), result)

    def code(self) -> str:
        """Return a line of Python that gives the answer now shown."""
        parts = ["model", arguments(self.structure, self.given).code(), f"want={self.want!r}"]
        result = self.answer().result
        if result is None or result.kind != "exact":
            parts += ["rng=0", f"seconds={MAX_ANSWER_SECONDS:g}"]
        return f"pgm.infer({', '.join(parts)})"

    # Actions

    def _apply(self, action: Any) -> None:
        """Apply one action; PgmError if it is none."""
        kinds: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "set": self._set,
            "soft": self._soft,
            "release": lambda a: self._step(self.given.without(self._places(a.get("at")))),
            "clear": lambda a: self._step(self.ground),
            "undo": lambda a: self._move(-1),
            "redo": lambda a: self._move(1),
            "focus": self._focus,
        }
        if not isinstance(action, Mapping) or action.get("kind") not in kinds:
            raise PgmError(f"the explorer was sent {action!r}, which is no action")
        kinds[action["kind"]](action)

    def _step(self, given: Given) -> None:
        """Make evidence the current one; what was undone before is forgotten."""
        if given.key != self.given.key:
            del self.history[self.now + 1 :]
            self.history = [*self.history, given][-MAX_HISTORY:]
            self.now = len(self.history) - 1

    def _move(self, by: int) -> None:
        """Undo or redo a step, if there is one."""
        self.now = min(max(self.now + by, 0), len(self.history) - 1)

    def _set(self, action: Mapping[str, Any]) -> None:
        """Observe units, or set them by do(); with `toggle` a state that is given is released."""
        places, done = self._places(action.get("at")), bool(action.get("do"))
        state = self._state_number(places[0], action.get("state"))
        for place in places[1:]:
            self._state_number(place, state)
        held = self.given.done if done else self.given.observed
        if action.get("toggle") and all(_same(held.get(place), state) for place in places):
            self._step(self.given.without(places))
        else:
            change = self.given.doing if done else self.given.observing
            self._step(change(places, state))

    def _soft(self, action: Mapping[str, Any]) -> None:
        """Give soft evidence that moves the probability of a state `to` a number, or `by` log-odds.

        The log-odds of the state change by the same amount as the log-likelihood of the state, so
        that a bar ends where it was dropped.
        """
        (place,) = self._places([action.get("at")])
        state = self._state_number(place, action.get("state"))
        free = Given(
            {p: v for p, v in self.given.observed.items() if p != place},
            {p: v for p, v in self.given.done.items() if p != place},
            self.given.soft,
        )
        answered, name = self.answer(free), self.structure.names.of(place)
        if answered.result is None:
            raise PgmError(f"soft evidence on {name!r} needs an answer first: {answered.error}")
        p = float(answered.values.prob[place[0]][place[1], state])
        if not 0 < p < 1:
            raise PgmError(
                f"soft evidence cannot change {name!r}: the probability of this state is {p:.4g}"
            )
        odds = math.log(p) - math.log1p(-p)
        if "to" in action:
            to = min(max(_number(action["to"], "to"), LOWEST), HIGHEST)
            change = math.log(to) - math.log1p(-to) - odds
        else:
            change = min(max(_number(action.get("by"), "by"), -10.0), 10.0)
        states = self.structure.state_counts[place[0]]
        before = free.soft.get(place, (1.0,) * states)
        self._step(free.weighing(place, tilted(before, state, change)))

    def _focus(self, action: Mapping[str, Any]) -> None:
        """Draw the neighbourhood of a node of a large model."""
        names = [n.name for n in self.sketch.nodes]
        if action.get("name") not in names:
            raise PgmError(f"there is no variable {plain(action.get('name'))!r}")
        if self.large:
            self.scene = self._scene(names.index(action["name"]))

    # Reading messages

    def _places(self, given: Any) -> list[Place]:
        """Return the places of a message; PgmError if there is none or one is unknown."""
        found = []
        for text in _list(given, "at"):
            layer, _, unit = str(text).partition(",")
            known = layer.isdecimal() and unit.isdecimal() and int(layer) < len(self.numbers)
            if not known or int(unit) >= self.structure.layers[self.numbers[int(layer)]].size:
                raise PgmError(f"the explorer was sent {text!r}, which is no place of a unit")
            found.append((self.numbers[int(layer)], int(unit)))
        if not found:
            raise PgmError("the explorer was sent an action without a unit")
        return found

    def _state_number(self, place: Place, state: Any) -> int:
        """Return the number of a state of a unit; PgmError if there is no such state."""
        count = self.structure.state_counts[place[0]]
        if type(state) is not int or not 0 <= state < count:
            name = self.structure.names.of(place)
            raise PgmError(
                f"the explorer was sent the state {state!r} of {name!r}, which has {count}"
            )
        if self.structure.layers[place[0]].unit.observed_only:
            raise PgmError(f"{self.structure.names.of(place)!r} is an input, and stays as it is")
        return state

    # Replies

    def _state(self) -> dict[str, Any]:
        """Return evidence and answer for the front end."""
        answered, prior = self.answer(), self.answer(self.ground)
        return {
            "given": self._given(),
            "undo": self.now > 0,
            "redo": self.now < len(self.history) - 1,
            "code": self.code(),
            "error": answered.error,
            "units": [] if answered.result is None else self._numbers(answered, prior),
            "foot": _foot(answered),
        }

    def _given(self) -> list[dict[str, Any]]:
        """Return what is given about each unit, with its name and in words."""
        out = []
        given = self.given
        for word, part in (("observed", given.observed), ("do", given.done), ("soft", given.soft)):
            for place, value in part.items():
                layer, name = self.structure.layers[place[0]], plain(self.structure.names.of(place))
                if isinstance(value, tuple):
                    shown = ", ".join(f"{x:g}" for x in value)
                    one: dict[str, Any] = {
                        "text": f"{name}: likelihoods {shown}",
                        "likelihoods": list(value),
                    }
                else:
                    text = f"{name} = {plain(state_given(layer, value))}"
                    state = value if isinstance(value, int) else None
                    one = {"text": f"do({text})" if word == "do" else text, "state": state}
                # Variables of one storage layer are listed by their own names.
                own = layer.holds_variables or layer.is_variable
                one["layer"] = name if own else plain(layer.name)
                one["fixed"] = place in self.ground.observed
                out.append({"at": self._at(place), "kind": word, **one})
        return out

    def _at(self, place: Place) -> str:
        return f"{self.numbers.index(place[0])},{place[1]}"

    def _numbers(self, answered: Answered, prior: Answered) -> list[dict[str, Any]]:
        """Return the numbers of every unit that is drawn."""
        out = []
        for node in self.scene.nodes:
            layer = self.numbers.index(node.layer)
            if node.form is Form.MEANS:
                mean = answered.values.mean[node.layer]
                scale = float(np.nanmax(np.abs(mean), initial=0.0)) or 1.0
                out += [
                    {"at": f"{layer},{u}", "mean": _json(mean[u]), "share": _json(mean[u] / scale)}
                    for u in node.units
                ]
                continue
            prob, before = answered.values.prob[node.layer], prior.values.prob.get(node.layer)
            for u in node.units:
                one: dict[str, Any] = {"at": f"{layer},{u}", "p": [_json(p) for p in prob[u]]}
                if before is not None:
                    one["prior"] = [_json(p) for p in before[u]]
                out.append(one)
        return out

    def _why(self, at: Any) -> dict[str, Any]:
        """Return the contributions of observations to a unit, for a list."""
        try:
            (place,) = self._places([at])
            given = len(self.given.observed) + len(self.given.soft)
            if given > MAX_REASONS:
                raise PgmError(
                    f"{given} units are given; reasons are listed for at most {MAX_REASONS}"
                )
            asked = arguments(self.structure, self.given)
            found = impact(
                self.model,
                asked.evidence,
                place,
                soft=asked.soft,
                do=asked.do or None,
                rng=0,
                seconds=MAX_ANSWER_SECONDS,
            )
        except PgmError as error:
            return {"at": at, "name": "", "error": str(error), "rows": []}
        states = [*found.after]
        # Two states have opposite log-odds; the second one is the state of a picture.
        shown = states[1:] if len(states) == 2 and not self._named(place) else states
        shown = states[:1] if len(states) == 2 and self._named(place) else shown
        rows = [
            {
                "text": str(one),
                "changes": [
                    {
                        "state": plain(s),
                        "removed": _signed(one.removed[s]),
                        "alone": _signed(one.alone[s]),
                    }
                    | {"share": min(max(one.removed[s] / FULL_LOG_ODDS, -1.0), 1.0)}
                    for s in shown
                ],
            }
            for one in found.contributions
        ]
        return {"at": at, "name": plain(found.name), "error": "", "kind": found.kind, "rows": rows}

    def _named(self, place: Place) -> bool:
        return self.structure.layers[place[0]].state_names is not None

    # The picture

    def _first_focus(self) -> int:
        """Return the node with the most neighbours that still fit in the picture."""
        if not self.large:
            return 0
        joined = [0] * len(self.sketch.nodes)
        for pair in (*self.sketch.arrows, *self.sketch.lines, *self.sketch.factors):
            for node in pair:
                joined[node] += 1
        return max(range(len(joined)), key=lambda i: (joined[i] <= MAX_AROUND // 2) * joined[i])

    def _scene(self, focus: int) -> Scene:
        """Return the picture of the model, or of the neighbourhood of a node and given nodes."""
        nodes = range(len(self.sketch.nodes))
        if not self.large:
            return scene(self.structure, self.sketch, nodes)
        given = self.given
        places = {*given.observed, *given.done, *given.soft}
        seen = [
            i
            for i in nodes
            if (self.sketch.nodes[i].layer.name, self.sketch.nodes[i].units[0]) in places
        ]
        around = self.sketch.near(focus, ENOUGH_AROUND, MAX_AROUND)
        return scene(self.structure, self.sketch, {*around, *seen[:MAX_GIVEN]})

    def _picture(self) -> dict[str, Any]:
        """Return the picture, with the names that a screen reader says."""
        nodes = [
            {
                "number": n.number,
                "name": n.name,
                "form": n.form.value,
                "columns": n.columns,
                "states": n.states,
                "units": {
                    self._at((n.layer, u)): name for u, name in zip(n.units, n.names, strict=True)
                },
            }
            for n in self.scene.nodes
        ]
        text = svg(self.structure, self.scene, Values())
        return {"svg": text, "nodes": nodes}


def _list(given: Any, what: str) -> list[Any]:
    """Return a list of a message; PgmError if it is none."""
    if not isinstance(given, list):
        raise PgmError(f"the explorer was sent {given!r} as {what}, expected a list")
    return given


def _number(given: Any, what: str) -> float:
    """Return a finite number of a message; PgmError if it is none."""
    if type(given) not in (int, float) or not math.isfinite(given):
        raise PgmError(f"the explorer was sent {given!r} as {what}, expected a number")
    return float(given)


def _same(held: Any, state: int) -> bool:
    return type(held) is int and held == state


def _json(x: Any) -> float | None:
    """Return a number for JSON, None where an answer was withheld."""
    return float(x) if math.isfinite(x) else None


def _signed(x: float) -> str:
    """Return a change of log-odds as text."""
    return f"{x:+.2f}".replace("inf", "∞").replace("-", "−")


def _foot(answered: Answered) -> dict[str, Any]:
    """Return guarantee, status, plan and log p(evidence) in words."""
    r = answered.result
    if r is None:
        return {"kind": "no answer", "good": False, "status": answered.error, "plan": "", "log": ""}
    log: Array | None = r.answers.get("log_prob")
    # Without evidence it is 0, up to the rounding of the two sums that are subtracted.
    number = 0.0 if log is None else round(float(log[0]), MAX_LOG_DECIMALS) + 0.0
    text = f"log p(evidence) = {number:.6g}" if log is not None else ""
    status = r.status.value if r.status.good or not r.warnings else r.warnings[0]
    return {
        "kind": r.kind,
        "good": r.status.good,
        "status": status,
        "plan": str(r.plan),
        "log": text,
    }
