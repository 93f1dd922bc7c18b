"""The suite of realistic instances, with recomputation, slow last stages, slow links or scarce memory."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..core.instance import Instance, Memory

_HELD, _FREED_BY_B, _FREED_BY_W = 74, 42, 32
_PER_CENT = 100


@dataclass(frozen=True, slots=True)
class Realistic:
    """One entry of ``realistic.toml``: the costs of an instance on the V placement.

    Parameters
    ----------
    name
        Name of the entry.
    devices, microbatches
        Numbers of devices and microbatches.
    forward, backward, weight
        Durations of F, B and W of an ordinary stage, in ticks of 10 microseconds.
    first, last
        Durations of the first and of the last stage, in per cent of those of an ordinary stage.
    comm, node_comm
        Ticks of a message within a node, and of a message between nodes.
    node_size
        Number of devices in a node.
    activations
        Memory limit as a number of forward activations of one stage: one number, or one per device.
    """

    name: str
    devices: int
    microbatches: int
    forward: int
    backward: int
    weight: int
    first: int
    last: int
    comm: int
    node_comm: int
    node_size: int
    activations: int | tuple[int, ...]

    def instance(self) -> Instance:
        """Return the entry as an instance on the V placement."""
        return Instance.uniform(
            devices=self.devices,
            microbatches=self.microbatches,
            forward=self._per_stage(self.forward),
            backward=self._per_stage(self.backward),
            weight=self._per_stage(self.weight),
            comm=[[self._comm(a, b) for b in range(self.devices)] for a in range(self.devices)],
            memory=Memory(_HELD, -_FREED_BY_B, -_FREED_BY_W, [_HELD * held for held in self._held]),
        )

    @property
    def _held(self) -> tuple[int, ...]:
        held = self.activations
        return (held,) * self.devices if isinstance(held, int) else held

    def _per_stage(self, ticks: int) -> list[int]:
        ordinary = [ticks] * (2 * self.devices - 2)
        return [ticks * self.first // _PER_CENT, *ordinary, ticks * self.last // _PER_CENT]

    def _comm(self, sender: int, receiver: int) -> int:
        if sender == receiver:
            return 0
        same_node = sender // self.node_size == receiver // self.node_size
        return self.comm if same_node else self.node_comm


@cache
def load_realistic() -> dict[str, Realistic]:
    """Return the instances of the suite by name, in the sequence of the file."""
    text = files(__package__).joinpath("realistic.toml").read_text(encoding="utf-8")
    found = {}
    for row in tomllib.loads(text)["instance"]:
        held = row.pop("activations")
        found[row["name"]] = Realistic(**row, activations=held if isinstance(held, int) else tuple(held))
    return found
