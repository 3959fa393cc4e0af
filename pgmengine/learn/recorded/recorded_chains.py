"""Operations of the chains of a model phase: sweeps, draws of single layers, and their states."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.base.work.threads import parts
from pgmengine.engine.chains import Chains
from pgmengine.engine.kernels import Kernel
from pgmengine.engine.layerwise import CompiledChains, beyond_single
from pgmengine.engine.packed import MIN_UPDATES_A_THREAD, panels, stride_of
from pgmengine.learn.recorded.recorder import CHAINS, NotCompiled, Recorder
from pgmengine.learn.steps.schedules import GrowingBlend, Scheduled
from pgmengine.model.couplings import MIN_PRODUCTS_A_THREAD

# The most sweeps of an update; after as many sweeps, chains compute their inputs anew.
MAX_SWEEPS = 512


class RecordedChains:
    """Chains that the operations of a recorder move; NotCompiled for chains that they cannot move.

    Parameters
    ----------
    recorder : takes the operations, and the kernel.
    chains : the chains.
    kernel : their kernel, or a schedule.
    all_rows : whether the chains have values of their own, (rows, width), because more of them
        move than the gradient needs. By default their values are those of the recorder, of which
        an update moves as many as it has chains.
    single : parameters in single precision at which the chains move; those of the model by default.

    Attributes
    ----------
    values : layer -> values of the chains.
    """

    def __init__(
        self,
        recorder: Recorder,
        chains: Chains,
        kernel: Scheduled[Kernel],
        all_rows: bool = False,
        single: Mapping[str, Array] | None = None,
    ) -> None:
        if type(chains) is not CompiledChains or chains.by_unit:
            raise NotCompiled("the chains visit one unit at a time, or are those of the reference")
        if set(chains.moving) != set(recorder.structure.layers):
            raise NotCompiled("some layers of the chains do not move")
        recorder.take_kernel(kernel, is_compiled(kernel))
        self.recorder, self.chains = recorder, chains
        self.single = recorder.single if single is None else single
        self.rows = chains.target.rows if all_rows else 0
        now = chains.values(dtype=np.float32)
        self.values: States = {n: v.copy() for n, v in now.items()} if all_rows else recorder.values
        for name, value in now.items():
            self.values[name][: len(value)] = value

    def sweep_once(self, key: int, number: int = 0, anew: Collection[str] = ()) -> None:
        """Make sweep `number`, in which each field is a product; see Chains.sweep_once.

        `key` is the number of a key, or -1 to go on with the key before.
        """
        for name in self.chains.order:
            self._fill_field(name)
            self.draw(name, key, number, name in anew)
            key = -1

    def _fill_field(self, name: str) -> None:
        recorder, field, rows = self.recorder, self._field(name), self.rows
        width, stride = recorder.structure.layers[name].width, field.shape[1]
        bias = self.single[f"{name}.bias"]
        recorder.add(
            "start_field", span=CHAINS, m=width, a=bias, out=field, apart=stride, rows=rows
        )
        for c, other in recorder.structure.meetings[name]:
            recorder.add_product(c, name, CHAINS, self.values[other], field, self.single, rows=rows)
        if self.chains.endless:
            recorder.add(
                "check_field",
                lambda update: beyond_single(name),
                span=CHAINS,
                apart=stride,
                out=field,
                rows=rows,
            )

    def _field(self, name: str) -> Array:
        found = self.chains.inputs[name][0]
        assert found is not None
        return found

    def draw(
        self, name: str, key: int, number: int, anew: bool = False, forget: bool = False
    ) -> None:
        """Draw a layer from its field in sweep `number`.

        `anew` draws by Gibbs sampling, and `forget` sets the states to the first value before, so
        that the draws do not depend on them.
        """
        finite = self.recorder.structure.layers[name].unit.support is not None
        state = self.chains.arrays[name]
        self.recorder.add(
            "draw",
            turned=forget and finite,
            m=state.shape[1],
            to_states=state if finite else None,
            layer=self.chains.place[name],
            key=key,
            first=number,
            anew=anew,
            chains=self.chains.routine,
            rows=self.rows,
            parts=self.parts(1),
        )
        self._take_values(name)

    def sweeps(self, count: int, key: int) -> None:
        """Make sweeps that follow the changes of units; see Chains.sweep."""
        if count > MAX_SWEEPS:
            raise NotCompiled(f"{count} sweeps of an update")
        recorder, chains = self.recorder, self.chains
        self.take_biases()
        for i, (source, name, c, arrow, at_once) in enumerate(chains.links):
            weight = self.single[f"{c.key}.weight"]
            n, m = weight.shape if name == c.b else weight.shape[::-1]
            stride = stride_of(recorder.structure.layers[name])
            packed = panels(weight if name == c.b else weight.T, stride)
            ends = chains.place[source], chains.place[name]
            chains.routine.link(i, *ends, arrow, at_once, packed, None, None, None)
            recorder.add(
                "pack",
                turned=name != c.b,
                n=n,
                m=m,
                tile=packed.shape[2],
                a=weight,
                out=packed,
                parts=parts(n * m / 2, MIN_PRODUCTS_A_THREAD),
            )
        recorder.add(
            "sweep",
            key=key,
            sweeps=count,
            chains=chains.routine,
            rows=self.rows,
            parts=self.parts(count),
        )
        for name in chains.order:
            self._take_values(name)

    def parts(self, sweeps: int) -> int:
        """Return the number of threads for some sweeps."""
        work = sweeps * self.chains.target.rows * self.chains.units
        return parts(work, MIN_UPDATES_A_THREAD / 2)

    def take_states(self, name: str) -> None:
        """Put the mini-batch into the states of a layer with data."""
        layer, kept = self.recorder.structure.layers[name], self.chains.arrays[name]
        data = self.recorder.target.evidence.values[name]
        states = np.zeros((len(data), kept.shape[1]), dtype=kept.dtype)
        states[:, : layer.size] = data if layer.unit.support is None else layer.states(data)
        bytes_ = states.view(np.uint8)
        to = kept.view(np.uint8)
        self.recorder.add("take_states", m=bytes_.shape[1], states=bytes_, to_states=to)
        # Other layers with data may be its neighbours.
        self._take_values(name)

    def take_field(self, name: str, eta: Array) -> None:
        """Put natural parameters of the rows of the mini-batch into the fields of the chains."""
        field = self._field(name)
        self.recorder.add("copy_rows", m=eta.shape[1], a=eta, out=field, apart=field.shape[1])

    def take_biases(self) -> None:
        """Give the chains the biases of an update, which sweeps and log densities read."""
        for name, bias in self.chains.biases.items():
            own = self.single[f"{name}.bias"].reshape(-1)
            self.recorder.add("combine", m=own.size, a=own, b=own, out=bias)

    def _take_values(self, name: str) -> None:
        """Copy the values of the states of a layer."""
        place, out = self.chains.place[name], self.values[name]
        routine = self.chains.routine
        self.recorder.add("values", layer=place, chains=routine, out=out, rows=self.rows)


def is_compiled(kernel: Scheduled[Kernel]) -> bool:
    """Return whether compiled code has the transitions of a kernel, or of all of a schedule.

    A schedule of a user's own could return a kernel that the reference engine runs as written.
    """
    if callable(kernel):
        return type(kernel) is GrowingBlend
    return "flip_share" in vars(type(kernel))
