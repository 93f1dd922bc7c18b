"""The suite of realistic instances, with recomputation, slow last stages, slow links or scarce memory."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from statistics import median_low

from ..core.instance import Instance, Memory
from ..core.operation import OpKind

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


_KINDS = ("forward", "backward", "weight")


def with_median_costs(instance: Instance) -> Instance:
    """Return the instance with one number for each of F, B, W, BW, communication and memory limit.

    F, B, W and BW each take the median of their durations at all stages. A message between any two devices
    takes the median of the times from each device to the next. Of two numbers in the middle, the median is
    the smaller one. Every device has the smallest of the memory limits. Where stages have unequal
    activations, the limits stay as they are, since the smallest limit might be too small for the activation
    of some stage.
    """
    kinds = _KINDS if instance.costs.fused is None else (*_KINDS, "fused")
    times = {kind: median_low(getattr(instance.costs, kind)) for kind in kinds}
    neighbours = [instance.comm(device, device + 1) for device in range(instance.devices - 1)]
    comm = median_low(neighbours) if neighbours else instance.costs.comm
    costs = replace(instance.costs, comm=comm, **times)
    return replace(instance, costs=costs, memory=_with_smallest_limit(instance))


def _with_smallest_limit(instance: Instance) -> Memory | None:
    limits = [instance.memory_limit(device) for device in range(instance.devices)]
    known = [limit for limit in limits if limit is not None]
    activations = {instance.memory_delta(OpKind.F, stage) for stage in range(instance.stages)}
    if instance.memory is None or not known or len(activations) > 1:
        return instance.memory
    return replace(instance.memory, limit=min(known))
