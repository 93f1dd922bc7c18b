"""Instances from data files: the papers' settings and realistic ones; and with other lengths and slices."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from itertools import pairwise
from statistics import median_low
from types import MappingProxyType
from typing import Any

import numpy as np

from ..kernels.arrays import Floats
from ..model.costs import Memory, MicrobatchClass, MicrobatchSlice, Objective, PerStage
from ..model.instance import Instance
from ..model.microbatches import changed, with_times
from ..model.operation import OpKind
from ..model.placement import Placement


@dataclass(frozen=True, slots=True)
class Setting:
    """One profiled setting of the zero-bubble papers: a model on a number of devices.

    Memory is in bytes per token and group of layers.
    """

    name: str  #: name of the setting, e.g. ``1.5B-8x24`` for 8 devices and 24 microbatches
    model: str  #: name of the model by its size, e.g. ``1.5B``
    active: bool  #: whether the setting is one of the nine settings in the published column ZB-V
    #: numbers of devices and microbatches
    devices: int
    microbatches: int
    #: durations of F, B and W of one stage, in ticks of one microsecond
    forward: int
    backward: int
    weight: int
    comm: int  #: communication time between any two devices, in the same ticks
    #: hidden size, number of attention heads and sequence length of the model
    hidden: int
    heads: int
    seq: int
    layers: int  #: number of layers in the source of the data. No formula uses this number.

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
        self, m_offset: int = 0, objective: Objective | str = Objective.DEVICE_SPAN, placement: str = "v"
    ) -> Instance:
        """Return the setting as an instance, in any placement with one or two stages of a route per device.

        A microbatch is the same work for a device in every placement. It runs on a device either two stages
        with the times of the setting, or one stage with twice these times and activations. The memory limit
        does not depend on the placement; it is that of `memory`. Raise an InputError if the placement
        usually has more than two stages of a route per device.
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


def _rows(file: str, key: str) -> list[dict[str, Any]]:
    text = files(__package__).joinpath(file).read_text(encoding="utf-8")
    return list(tomllib.loads(text)[key])


@cache
def load_settings() -> dict[str, Setting]:
    """Return all 24 settings by name, in the sequence of the data file."""
    return {row["name"]: Setting(**row) for row in _rows("zero_bubble_v.toml", "setting")}


@dataclass(frozen=True, slots=True)
class Table5Row:
    """One row of the table: a model on a number of devices, with one stage on each.

    References
    ----------
    Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, Table 5.
    """

    setting: Setting  #: model, size and times
    published: Mapping[str, float]  #: published bubble rate by the name of the column, e.g. ``ZB-2p``

    def instance(self, times_p: int | None = None) -> Instance:
        """Return the row as an instance in the placement `linear`.

        The memory limit is `times_p` p forward activations, e.g. 1 for ZB-1p; None for no limit.
        """
        setting = self.setting
        memory = setting.memory(m_offset=0)
        limit = None if times_p is None else times_p * setting.devices * setting.forward_memory
        return setting.with_times(placement="linear", memory=replace(memory, limit=limit))


@cache
def load_table5() -> tuple[Table5Row, ...]:
    """Return the twelve rows, in the sequence of the paper."""
    return tuple(_row(**row) for row in _rows("zero_bubble_table5.toml", "row"))


def _row(*, published: dict[str, float], **numbers: int | str) -> Table5Row:
    name = f"{numbers['model']}-{numbers['devices']}x{numbers['microbatches']}"
    setting = Setting(name=name, active=False, **numbers)  # type: ignore[arg-type]  # as in the data file
    return Table5Row(setting, MappingProxyType(published))


_HELD, _FREED_BY_B, _FREED_BY_W = 74, 42, 32
_PER_CENT = 100


@dataclass(frozen=True, slots=True)
class Realistic:
    """One entry of ``realistic.toml``: the costs of an instance on the V placement."""

    name: str  #: name of the entry
    #: numbers of devices and microbatches
    devices: int
    microbatches: int
    #: durations of F, B and W of an ordinary stage, in ticks of 10 microseconds
    forward: int
    backward: int
    weight: int
    #: durations of the first and of the last stage, in per cent of those of an ordinary stage
    first: int
    last: int
    #: ticks of a message within a node, and of a message between nodes
    comm: int
    node_comm: int
    node_size: int  #: number of devices in a node
    #: memory limit as a number of forward activations of one stage: one number, or one per device
    activations: int | tuple[int, ...]

    def instance(self) -> Instance:
        """Return the entry as an instance on the V placement."""
        held = self.activations
        limits = [_HELD * each for each in ((held,) * self.devices if isinstance(held, int) else held)]
        return Instance.uniform(
            devices=self.devices,
            microbatches=self.microbatches,
            forward=self._per_stage(self.forward),
            backward=self._per_stage(self.backward),
            weight=self._per_stage(self.weight),
            comm=[[self._comm(a, b) for b in range(self.devices)] for a in range(self.devices)],
            memory=Memory(_HELD, -_FREED_BY_B, -_FREED_BY_W, limits),
        )

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
    found = {}
    for row in _rows("realistic.toml", "instance"):
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


SEED = 48
_LEAST, _MOST = 0.1, 10.0


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, float, int], Floats]] = {
    "normal": lambda rng, sigma, count: np.clip(rng.normal(1, sigma, count), _LEAST, _MOST),
    "lognormal": lambda rng, sigma, count: np.exp(rng.normal(0, sigma, count)),
}
"""Lengths as multiples of a usual one, before they are divided by their mean.

- `normal`: a normal distribution around 1, cut off at 0.1 and 10, as in the simulations of DynaPipe.
- `lognormal`: the logarithm is normal. Lengths of sequences in public sets for fine-tuning are of this kind.

References
----------
Jiang et al., "DynaPipe: Optimizing Multi-task Training through Dynamic Pipelines", arXiv:2311.10418.
"""


def relative_lengths(distribution: str, sigma: float, count: int) -> Floats:
    """Return the lengths of a batch as multiples of their mean, in the sequence in which they arrive."""
    lengths = DISTRIBUTIONS[distribution](np.random.default_rng(SEED), sigma, count)
    return np.asarray(lengths / lengths.mean())


def _memory(costs: Any, forward: list[int], backward: list[int], weight: list[int]) -> Memory:
    """Return the memory of stages: F takes what B and W free, or `forward` where there is neither."""
    each = zip(forward, backward, weight, costs.backward, costs.weight, strict=True)
    held = [-b - w if ticks_b + ticks_w else f for f, b, w, ticks_b, ticks_w in each]
    return Memory(held, backward, weight)


def with_lengths(instance: Instance, lengths: Sequence[float] | Floats) -> Instance:
    """Return the instance with microbatches that take so many times as long and as much memory as its own.

    Times are rounded to whole ticks, at least 1; limits stay. The microbatches of the instance are alike.
    """
    costs: Any = instance.costs
    memory: Any = instance.memory

    def times(ticks: Sequence[int], length: float) -> tuple[int, ...]:
        return tuple(t and max(1, round(t * length)) for t in ticks)

    def deltas(length: float) -> Memory:
        parts = (memory.forward, memory.backward, memory.weight)
        return _memory(costs, *([round(delta * length) for delta in part] for part in parts))

    def of(length: float) -> MicrobatchClass:
        return MicrobatchClass(
            1,
            times(costs.forward, length),
            times(costs.backward, length),
            times(costs.weight, length),
            fused=None if costs.fused is None else times(costs.fused, length),
            memory=None if memory is None else deltas(length),
        )

    return replace(instance, classes=[of(float(length)) for length in lengths])


def with_slices(instance: Instance, count: int) -> Instance:
    """Return the instance with microbatches that are cut into slices of equally many tokens.

    What F and B of a stage take longer than its W are the scores of attention, which go with the squares of
    the tokens up to the end of a slice; all else goes with the tokens. The slices of a microbatch add up to
    it, to the tick and to the unit, and a message takes its share of the time, rounded up. The microbatches
    of the instance are alike and whole.
    """
    if count == 1:
        return instance
    costs: Any = instance.costs
    memory: Any = instance.memory
    ends = [Fraction(end, count) for end in range(count + 1)]

    def parts(whole: Sequence[int], linear: Sequence[int]) -> list[list[int]]:
        done = [[round(a * e + (t - a) * e**2) for t, a in zip(whole, linear, strict=True)] for e in ends]
        return [[b - a for a, b in zip(*each, strict=True)] for each in pairwise(done)]

    def times(ticks: Sequence[int]) -> list[list[int]]:
        return parts(ticks, [min(t, w) if w else t for t, w in zip(ticks, costs.weight, strict=True)])

    each = zip(*(times(getattr(costs, key)) for key in ("forward", "backward", "weight")), strict=True)
    fused = (
        [None] * count
        if costs.fused is None
        else parts(costs.fused, [min(t, 2 * w) for t, w in zip(costs.fused, costs.weight, strict=True)])
    )
    held: Iterable[Memory | None] = [None] * count
    if memory is not None:
        deltas = (parts(delta, delta) for delta in (memory.forward, memory.backward, memory.weight))
        held = (_memory(costs, *one) for one in zip(*deltas, strict=True))
    slices = [
        MicrobatchSlice(forward, backward, weight, f, m)
        for (forward, backward, weight), f, m in zip(each, fused, held, strict=True)
    ]
    comm = [[-(-ticks // count) for ticks in row] for row in costs.comm]
    return replace(instance, costs=replace(costs, comm=comm), slices=slices)
