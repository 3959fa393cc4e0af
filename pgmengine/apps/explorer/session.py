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

from collections.abc import Callable, Mapping
from typing import Any

from pgmengine.apps.explorer.answered import MAX_ANSWER_SECONDS, Answered, answered, wanted
from pgmengine.apps.explorer.edits import observed, released, softly_observed
from pgmengine.apps.explorer.exploration import Given, arguments, given_of
from pgmengine.apps.explorer.messages import list_of
from pgmengine.apps.explorer.reasons import reasons
from pgmengine.apps.explorer.replies import evidence_listed, foot_line, picture, units_shown
from pgmengine.apps.explorer.scenes import first_focus, is_large, scene_around
from pgmengine.apps.explorer.undo import History
from pgmengine.base.checks import LARGEST_WHOLE
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import LayerValues
from pgmengine.base.work.cache import Cache
from pgmengine.declare.model import Model
from pgmengine.declare.pictures.scene import Scene
from pgmengine.declare.pictures.sketch import sketch
from pgmengine.model.headline import headline_parts

# Answers that are remembered.
MAX_ANSWERS = 64


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
        self.ground, self.history = Given(inputs), History(start)
        self.want = wanted(model, self.ground)
        self.answers: Cache[Answered] = Cache(most=MAX_ANSWERS)
        self.sketch = sketch(self.structure)
        self.scene = self._scene(first_focus(self.sketch))
        self._sent: Scene | None = None

    @property
    def given(self) -> Given:
        """The present evidence, interventions and soft evidence."""
        return self.history.now

    def reply(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Apply the actions of a message, and return the reply as a JSON object.

        It never raises: errors are in the reply in words, beside the state, which can be undone.
        """
        refused = ""
        if not isinstance(message, Mapping):
            message = {"actions": message}
        try:
            for action in list_of(message.get("actions", []), "actions"):
                self._apply(action)
        except PgmError as error:
            refused = str(error)
        seq = message.get("seq")
        known = type(seq) is int and abs(seq) <= LARGEST_WHOLE
        out: dict[str, Any] = {"seq": seq if known else None, "refused": refused}
        if message.get("hello"):
            self._sent = None
            out |= {"title": headline_parts(self.structure, self.model.params)[0]}
            out |= {"names": [n.name for n in self.sketch.nodes], "large": is_large(self.sketch)}
        if self._sent is not self.scene:
            self._sent = self.scene
            out["scene"] = picture(self.structure, self.scene)
        if message.get("why") is not None:
            out["why"] = reasons(self.model, self.given, message["why"])
        return out | self._state()

    def answer(self, given: Given | None = None) -> Answered:
        """Return the answer for what is given, now by default; it is remembered."""
        asked = self.given if given is None else given
        return self.answers.recall(asked.key, lambda: answered(self.model, asked, self.want))

    def code(self) -> str:
        """Return a line of Python that gives the answer now shown."""
        parts = ["model", arguments(self.structure, self.given).code(), f"want={self.want!r}"]
        result = self.answer().result
        if result is None or result.kind != "exact":
            parts += ["rng=0", f"seconds={MAX_ANSWER_SECONDS:g}"]
        return f"pgm.infer({', '.join(parts)})"

    def _apply(self, action: Any) -> None:
        """Apply one action; PgmError if it is not an action."""
        s, history = self.structure, self.history
        kinds: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "set": lambda a: history.step(observed(s, self.given, a)),
            "soft": lambda a: history.step(softly_observed(s, self.given, a, self.answer)),
            "release": lambda a: history.step(released(s, self.given, a)),
            "clear": lambda a: history.step(self.ground),
            "undo": lambda a: history.undo(),
            "redo": lambda a: history.redo(),
            "focus": self._focus,
        }
        kind = action.get("kind") if isinstance(action, Mapping) else None
        if not isinstance(kind, str) or kind not in kinds:
            raise PgmError(f"the explorer was sent {told(action)}, which is no action")
        kinds[kind](action)

    def _focus(self, action: Mapping[str, Any]) -> None:
        """Draw the neighbourhood of a node of a large model."""
        names, name = [n.name for n in self.sketch.nodes], action.get("name")
        if not isinstance(name, str) or name not in names:
            raise PgmError(f"there is no variable {told(name)}")
        if is_large(self.sketch):
            self.scene = self._scene(names.index(name))

    def _scene(self, focus: int) -> Scene:
        return scene_around(self.structure, self.sketch, focus, self.given)

    def _state(self) -> dict[str, Any]:
        """Return evidence and answer for the front end."""
        now, prior = self.answer(), self.answer(self.ground)
        units: list[dict[str, Any]] = []
        if now.result is not None:
            units = units_shown(self.structure, self.scene, now, prior)
        return {
            "given": evidence_listed(self.structure, self.given, self.ground),
            "undo": self.history.can_undo,
            "redo": self.history.can_redo,
            "code": self.code(),
            "error": now.error,
            "units": units,
            "foot": foot_line(now),
        }
