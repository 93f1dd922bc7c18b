"""The profiled settings of the zero-bubble papers, the instances that they stand for, and their table 5."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from ..core.instance import Instance, Memory, Objective
from ..core.placement import Placement


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
