"""Checkpoints: everything that a fit needs to go on, in one .safetensors file.

The arrays of the file are the parameters and the snapshot of the fit. Its metadata hold the mark of
the fit, the state of the random numbers, the history, and the scores that findings compare. A
checksum covers everything. The file is always replaced as a whole.

The mark is the settings of a fit as JSON, which distinguish it from other fits. It depends on the
types, fields and values of settings, and on the module and qualified name of functions and classes.
It does not depend on byte code, which changes with the version of Python, nor on any values that a
function reads.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.files import CHECKSUM_ENTRY, clear_parts, read_tensors, writable, write_tensors
from pgmengine.base.types import Array
from pgmengine.declare.declaration import declaration_of
from pgmengine.declare.model import Model
from pgmengine.declare.terms.stored_terms import NUMBERS, UNITS, term_tensors
from pgmengine.model.weights import numbers, pattern

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from pgmengine.learn.monitoring.findings import Watch
    from pgmengine.learn.monitoring.history import History
    from pgmengine.learn.run import Run

CHECKPOINT_FORMAT = "pgmengine-checkpoint-4"

# The part of the full name of a type of pgmengine that names its modules.
MODULE_PATH = re.compile(r'"pgmengine\.(?:[a-z_]+\.)+')
# The previous format, whose checksum did not cover dtypes.
FORMAT_OF_OLD_CHECKSUM = "pgmengine-checkpoint-3"

JSON: TypeAlias = "None | bool | int | float | str | list[JSON] | dict[str, JSON]"
Notes = dict[str, Any]
RANDOM_TYPES = (np.random.Generator, np.random.BitGenerator, np.random.RandomState)

log = logging.getLogger(__name__)


class Saver:
    """Writer of checkpoints, at an interval in seconds and at the end.

    A failure is logged. The fit goes on, and tries again at the next interval. A failure of the
    last attempt is reported.
    """

    def __init__(self, path: str | Path, mark: Mapping[str, JSON], every: float) -> None:
        self.path, self.mark, self.every, self.last = path, mark, every, time.monotonic()
        self.place = place_of(path)
        # The number of failures, and the reason if the last attempt failed.
        self.failed, self.why = 0, ""

    def resume(self, run: Run, history: History, watch: Watch) -> bool:
        """Go on from the checkpoint; return whether there is one."""
        found = read(self.path, self.mark)
        if found is None:
            return False
        log.info("going on from %s", self.path)
        arrays, notes = found
        run.set_params(arrays)
        run.load({**arrays, "rng": notes["rng"], "by": notes["by"]})
        history.values = notes["history"]
        watch.resume(notes["scores"])
        return True

    def now_and_then(self, run: Run, history: History, watch: Watch) -> None:
        """Write the checkpoint if the last one is old enough."""
        if time.monotonic() - self.last > self.every:
            self._write(run, history, watch)

    def at_the_end(self, run: Run, history: History, watch: Watch) -> str:
        """Write the last update; return the reason why that failed, or an empty string."""
        self._write(run, history, watch)
        if self.why:
            said = f"the checkpoint {self.path} could not be written at the end ({self.why})"
            log.warning("%s: save the model and the state of this Fit elsewhere", said)
            return said
        if self.failed:
            log.warning(
                "the checkpoint %s is whole; it could not be written %d times before",
                self.path,
                self.failed,
            )
        return ""

    def _write(self, run: Run, history: History, watch: Watch) -> None:
        """Write the checkpoint, or log the reason for which it cannot be written."""
        try:
            state = run.state()
            notes = {
                "rng": state.pop("rng"),
                "by": state.pop("by"),
                "history": history.values,
                "scores": watch.scores,
            }
            # The parameters are written below, by their own names.
            del state["parameters"]
            write(self.place, self.mark, {**run.params(), **state}, notes)
            self.why = ""
        except (OSError, MemoryError, PgmError) as error:
            self.failed, self.why = self.failed + 1, str(error) or type(error).__name__
            log.warning(
                "update %d: the checkpoint %s could not be written (%s); learning goes on, and "
                "tries again in %g seconds or at the end",
                run.count,
                self.path,
                self.why,
                self.every,
            )
        self.last = time.monotonic()


def place_of(path: str | Path) -> Path:
    """Return the path of a checkpoint, symbolic links followed; PgmError if it is unusable."""
    place = writable(path)
    if not place.parent.is_dir():
        raise PgmError(f"checkpoint: there is no folder {place.parent}")
    return place


def write(
    path: Path, mark: Mapping[str, JSON], arrays: Mapping[str, Array], notes: Mapping[str, Any]
) -> None:
    """Replace the checkpoint as a whole."""
    tensors = {name: np.asarray(value) for name, value in arrays.items()}
    text = json.dumps({"mark": mark, "notes": notes}, default=_plain)
    write_tensors(path, tensors, {"format": CHECKPOINT_FORMAT, "text": text})


def read(path: str | Path, mark: Mapping[str, JSON]) -> tuple[dict[str, Array], Notes] | None:
    """Return the arrays and notes of a checkpoint, None if there is none.

    PgmError if it is damaged, or belongs to a fit with another mark.
    """
    place = place_of(path)
    clear_parts(place)
    if not place.exists():
        return None
    try:
        arrays, metadata = read_tensors(place)
    except PgmError as error:
        raise PgmError(f"checkpoint: not a readable checkpoint: {error}") from None
    form, text = metadata.get("format"), metadata.get("text", "")
    if form not in (CHECKPOINT_FORMAT, FORMAT_OF_OLD_CHECKSUM):
        raise PgmError(
            f"{path}: not a checkpoint of pgmengine (format {form!r}, expected "
            f"{CHECKPOINT_FORMAT!r})"
        )
    if not (
        CHECKSUM_ENTRY in metadata
        if form == CHECKPOINT_FORMAT
        else metadata.get("sum") == _old_sum(text, arrays)
    ):
        _damaged(path, "it is damaged")
    theirs, notes = _parsed(path, text)
    wanted = json.loads(json.dumps(dict(mark), default=_plain))
    other = [name for name in wanted if theirs.get(name) != wanted[name]]
    if other:
        raise PgmError(
            f"{path}: belongs to another fit, which differs in {', '.join(other)}; give another "
            "path, or remove it to start again"
        )
    return arrays, notes


def _damaged(path: str | Path, why: str) -> NoReturn:
    raise PgmError(f"{path}: not a readable checkpoint: {why}; remove it to start again") from None


def _parsed(path: str | Path, text: str) -> tuple[dict[str, JSON], Notes]:
    """Return the mark of the fit, and the notes that learning goes on from."""
    try:
        found = json.loads(text)
        notes = found["notes"]
        # Older versions wrote the modules as well.
        mark = dict(json.loads(MODULE_PATH.sub('"pgmengine.', json.dumps(found["mark"]))))
        history = {
            name: [(int(u), v if isinstance(v, list) else float(v)) for u, v in pairs]
            for name, pairs in notes["history"].items()
        }
        # Checkpoints of earlier versions have no scores.
        scores = {
            int(update): np.array([float(v) for v in values])
            for update, values in notes.get("scores", {}).items()
        }
        rng, by = dict(notes["rng"]), str(notes["by"])
        return mark, {"rng": rng, "by": by, "history": history, "scores": scores}
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        _damaged(path, f"its notes are damaged ({type(error).__name__}: {error})")


def _old_sum(text: str, arrays: Mapping[str, Array]) -> str:
    """Return the checksum of the previous format, which covers everything but dtypes."""
    found = zlib.crc32(text.encode())
    for name in sorted(arrays):
        found = zlib.crc32(
            arrays[name].tobytes(), zlib.crc32(f"{name}{arrays[name].shape}".encode(), found)
        )
    return f"{found:08x}"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else repr(value)


def mark_of(
    model: Model, data: Mapping[str, ArrayLike], settings: Mapping[str, object]
) -> dict[str, JSON]:
    """Return the mark of a fit, which a checkpoint must share with the fit that resumes from it."""
    return {
        "model": digest(json.dumps(declaration_of(model))),
        "parameters": parameters_digest(model),
        "data": {name: list(np.shape(value)) for name, value in data.items()},
        **{name: described(value) for name, value in settings.items()},
    }


def parameters_digest(model: Model) -> str:
    """Return a digest of the parameters, the patterns of sparse ones, and the units of tables."""
    units = term_tensors(model.structure)
    found = hashlib.sha256(units[UNITS["tables"]].tobytes())
    if any(t.which is not None for t in model.structure.tables):
        found.update(units[NUMBERS["tables"]].tobytes())
    for t in model.structure.shared:
        found.update(t.index.tobytes() + t.numbers.tobytes())
    for name, value in model.params.items():
        found.update(name.encode() + numbers(value).tobytes() + pattern(value))
    return found.hexdigest()[:16]


def described(value: object, inside: bool = False) -> JSON:
    """Return a setting as JSON, the same in every process.

    If an object is an attribute (`inside`) of another one that is not a dataclass, only its type
    counts: it may change in use, and may refer back to the other object.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return described(value.item())
    if isinstance(value, np.ndarray):
        content = repr(value.tolist()) if value.dtype.hasobject else value.tobytes()
        return [list(value.shape), digest(content)]
    if isinstance(value, Mapping):
        return {str(name): described(v, inside) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [described(v, inside) for v in value]
    if isinstance(value, RANDOM_TYPES):
        return _random(value)
    if isinstance(value, partial):
        return [described(v, inside) for v in (value.func, value.args, value.keywords)]
    if isinstance(value, MethodType):
        return [_name(value.__func__), described(value.__self__, inside)]
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return _name(value)
    return _object(value, inside)


def _object(value: object, inside: bool) -> JSON:
    """Return the type of an object, and its fields or attributes."""
    out: dict[str, JSON] = {"type": _name(type(value))}
    if is_dataclass(value):
        return out | {f.name: described(getattr(value, f.name), inside) for f in fields(value)}
    if inside:
        return out
    if hasattr(value, "__dict__"):
        return out | {name: described(v, inside=True) for name, v in vars(value).items()}
    # The default repr has the address of the object, which differs between processes.
    return out | ({} if type(value).__repr__ is object.__repr__ else {"value": repr(value)})


def _random(value: np.random.Generator | np.random.BitGenerator | np.random.RandomState) -> str:
    """Return a digest of the state of random numbers."""
    if isinstance(value, np.random.RandomState):
        return digest(repr(value.get_state(legacy=False)))
    bits = value.bit_generator if isinstance(value, np.random.Generator) else value
    return digest(json.dumps(bits.state, default=np.ndarray.tolist))


def _name(value: Callable[..., object]) -> str:
    """Return the name of a type or function, without modules of pgmengine: these may change."""
    module = value.__module__
    return f"{'pgmengine' if module.startswith('pgmengine.') else module}.{value.__qualname__}"


def digest(content: str | bytes) -> str:
    """Return a short digest of contents."""
    whole = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(whole).hexdigest()[:16]
