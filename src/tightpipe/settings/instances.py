"""Instances from data files: the profiled settings of the papers, and a suite of realistic instances."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from statistics import median_low
from types import MappingProxyType
from typing import Any

from ..model.costs import Memory, Objective, PerStage
from ..model.instance import Instance
from ..model.microbatches import changed, with_times
from ..model.operation import OpKind
from ..model.placement import Placement


@dataclass(frozen=True, slots=True)
class Setting:
    """One profiled setting of the zero-bubble papers: a model on a number of devices.

    Memory is in bytes per token and group of layers.

    Parameters
    ----------
    name
        Name of the setting, e.g. ``1.5B-8x24`` for 8 devices and 24 microbatches.
    model
        Name of the model by its size, e.g. ``1.5B``.
    active
        Whether the setting is one of the nine settings in the published column ZB-V.
    devices, microbatches
        Numbers of devices and microbatches.
    forward, backward, weight
        Durations of F, B and W of one stage, in ticks of one microsecond.
    comm
        Communication time between any two devices, in the same ticks.
    hidden, heads, seq
        Hidden size, number of attention heads and sequence length of the model.
    layers
        Number of layers in the source of the data. No formula uses this number.
    """

    name: str
    model: str
    active: bool
    devices: int
    microbatches: int
    forward: int
    backward: int
    weight: int
    comm: int
    hidden: int
    heads: int
    seq: int
    layers: int

    @property
    def forward_memory(self) -> int:
        """Memory that one F takes: 34 hidden + 5 heads seq (arXiv:2401.10241, section 2)."""
        return 34 * self.hidden + 5 * self.heads * self.seq

    @property
    def weight_memory(self) -> int:
        """Memory that one W frees, as a negative number: -32 hidden."""
        return -32 * self.hidden

    @property
    def _backward_memory(self) -> int:
        return -self.forward_memory - self.weight_memory

    def memory(self, m_offset: int) -> Memory:
        """Return the memory of the setting, with a limit of ``2 devices + m_offset`` forward activations."""
        limit = self.forward_memory * (2 * self.devices + m_offset)
        return Memory(self.forward_memory, self._backward_memory, self.weight_memory, limit)

    def instance(
        self,
        m_offset: int = 0,
        objective: Objective | str = Objective.DEVICE_SPAN,
        placement: str = "v",
    ) -> Instance:
        """Return the setting as an instance, in any placement with one or two stages of a route per device.

        A microbatch is the same work for a device in every placement. It runs on a device either two stages
        with the times of the setting, or one stage with twice these times and activations. The memory limit
        does not depend on the placement.

        Parameters
        ----------
        m_offset
            The memory limit is ``2 devices + m_offset`` forward activations of the setting, as in `memory`.
        objective
            The objective of the instance.
        placement
            Name of the placement, which gets its usual number of stages per device.

        Raises
        ------
        InputError
            If the placement has more than two stages of a route per device.
        """
        whole = 2 // Placement(placement, self.devices).stages_per_device
        f, b, w = (
            whole * delta for delta in (self.forward_memory, self._backward_memory, self.weight_memory)
        )
        memory = Memory(f, b, w, self.memory(m_offset).limit)
        return self.with_times(whole, placement=placement, memory=memory, objective=objective)

    def with_times(self, factor: int = 1, **entries: Any) -> Instance:
        """Return an instance whose stages take `factor` times as long as in the setting.

        `entries` are further arguments of `Instance.uniform`. Among them, `comm` replaces the setting's
        communication time.
        """
        return Instance.uniform(
            devices=self.devices,
            microbatches=self.microbatches,
            forward=factor * self.forward,
            backward=factor * self.backward,
            weight=factor * self.weight,
            **{"comm": self.comm} | entries,
        )


@cache
def load_settings() -> dict[str, Setting]:
    """Return all 24 settings by name, in the sequence of the data file."""
    text = files(__package__).joinpath("zero_bubble_v.toml").read_text(encoding="utf-8")
    rows = [Setting(**row) for row in tomllib.loads(text)["setting"]]
    return {row.name: row for row in rows}


@dataclass(frozen=True, slots=True)
class Table5Row:
    """One row of the table: a model on a number of devices, with one stage on each.

    Parameters
    ----------
    setting
        Model, size and times.
    published
        Published bubble rate by the name of the column, e.g. ``ZB-2p``.

    References
    ----------
    Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, Table 5.
    """

    setting: Setting
    published: Mapping[str, float]

    def instance(self, times_p: int | None = None) -> Instance:
        """Return the row as an instance in the placement `linear`.

        Parameters
        ----------
        times_p
            Memory limit in multiples of p forward activations, e.g. 1 for ZB-1p and 2 for ZB-2p; None for no
            limit.
        """
        setting = self.setting
        memory = setting.memory(m_offset=0)
        limit = None if times_p is None else times_p * setting.devices * setting.forward_memory
        return setting.with_times(placement="linear", memory=replace(memory, limit=limit))


@cache
def load_table5() -> tuple[Table5Row, ...]:
    """Return the twelve rows, in the sequence of the paper."""
    text = files(__package__).joinpath("zero_bubble_table5.toml").read_text(encoding="utf-8")
    return tuple(_row(**row) for row in tomllib.loads(text)["row"])


def _row(*, published: dict[str, float], **numbers: int | str) -> Table5Row:
    name = f"{numbers['model']}-{numbers['devices']}x{numbers['microbatches']}"
    setting = Setting(name=name, active=False, **numbers)  # type: ignore[arg-type]  # as in the data file
    return Table5Row(setting, MappingProxyType(published))


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


def with_median_costs(instance: Instance) -> Instance:
    """Return the instance with one number for each of F, B, W, BW, communication and memory limit.

    F, B, W and BW each take the median of their durations at all stages. A message between any two devices
    takes the median of the times from each device to the next. Of two numbers in the middle, the median is
    the smaller one. Every device has the smallest of the memory limits. Where stages have unequal
    activations, the limits stay as they are, since the smallest limit might be too small for the activation
    of some stage.
    """

    def medians(ticks: PerStage) -> PerStage:
        return (median_low(ticks),) * instance.stages

    neighbours = [instance.comm(device, device + 1) for device in range(instance.devices - 1)]
    comm = median_low(neighbours) if neighbours else instance.costs.comm
    costs, memory = replace(instance.costs, comm=comm), _with_smallest_limit(instance)
    even = replace(instance, costs=costs, memory=memory)
    return with_times(even, lambda c: changed(even.class_costs[c].duration, medians))


def _with_smallest_limit(instance: Instance) -> Memory | None:
    limits = [instance.memory_limit(device) for device in range(instance.devices)]
    known = [limit for limit in limits if limit is not None]
    activations = {delta for one in instance.class_costs for delta in one.delta[OpKind.F]}
    if instance.memory is None or not known or len(activations) > 1:
        return instance.memory
    return replace(instance.memory, limit=min(known))
