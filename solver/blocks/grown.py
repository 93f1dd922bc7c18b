"""Blocks of many devices on a V, grown from blocks of fewer devices.

How long CP-SAT takes for a block depends on the number of devices. In the middle of a V they are all alike,
and a good block can repeat itself in space as it does in time: some devices farther on, all happens again as
before, but for a shift in time. So such a block is asked for on few devices, and grown to any number.

**The tie.** Let devices d and d + g of a *narrow* instance be in the same state: a microbatch on its way to
the last device, with its F's or with its B's, is at d + g exactly X ticks after it was at d, and on its way
back it is at d exactly Y ticks after it was at d + g, where X + Y is the period. So the two devices run the
same operations at the same places of the period, up to the shift X.

**The cell.** The devices d to d + g - 1 are a *cell*. Put r copies of it behind it. A microbatch then spends
X ticks in each copy on its way to the last device and Y on its way back, and all that follows is so much
later. All waits within a cell, and from cell to cell, are those of the narrow instance, at the same distance
in time. All operations of a device are later by the same time, but for whole periods, because X + Y is a
period. So no device runs two operations at a time.

**Memory.** On the way to the last device and back a microbatch spends X + Y, a period, in each copy, once
with its F's and once with its B's. So for each copy, devices before the copies hold the activations of their
lower stages two periods longer, those behind them the activations of both stages one period longer, and
those in the copies something between, two periods in sum. With K microbatches in a period these are 2K
activations. If a cell has g = 2K devices, each new device costs every device one activation, and the narrow
instance has so much less memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from tightpipe.model.costs import Costs, Memory, PerStage
from tightpipe.model.instance import Instance
from tightpipe.model.operation import Operation, OpKind
from tightpipe.model.placement import Placement
from tightpipe.params.budget import Budget
from tightpipe.params.search import BlockParams

from ..outcome import Ended
from .block import Block, Shape, period_bound
from .period_search import PeriodSearch
from .periodic_model import Tie
from .unroll import most_memory, shortened


@dataclass(frozen=True, slots=True)
class Growth:
    """How a block of a narrow instance, with few devices, grows to an instance with many."""

    instance: Instance
    narrow: Shape
    tie: Tie
    cells: int  #: number of copies of the cell that are put in

    def grown(self, block: Block) -> Block | None:
        """Return the block of all devices of least period with these sequences; None if memory is too scarce.

        The given block is one of the narrow instance, and has the tie.
        """
        shape, moved = Shape(self.instance, self.narrow.copies), [*self.moved(block)]
        start = {operation: block.start[source] + later for operation, source, later in moved}
        fused = frozenset(operation for operation, source, _ in moved if source in block.fused)
        found = shortened(Block(shape, block.period, start, fused), period_bound(shape))
        if found is None:
            return None
        fits = all(most_memory(found, d) <= most for d, most in enumerate(_limits(self.instance)))
        return found if fits else None

    def moved(self, block: Block) -> Iterator[tuple[Operation, Operation, int]]:
        """Yield each operation of all devices, the one that it repeats, and by how many ticks it is later."""
        first, other = (Operation(OpKind.F, d, 0) for d in (self.tie.device, self.tie.other))
        shift = block.start[other] - block.start[first]
        for operation in Shape(self.instance, self.narrow.copies).operations():
            source, passed = self._source(operation)
            yield operation, source, self._later(operation, passed, shift, block.period)

    def like(self, wide: Block) -> Block:
        """Return a block of all devices without the new ones, which need not be valid.

        A microbatch is earlier by what it spent from the first new device to the one behind the last.
        """
        narrow, last = self.narrow.instance, self.instance.stages - 1
        first, behind = self.tie.other, self.tie.other + self.cells * self._size
        ways = [(OpKind.F, first, behind), (OpKind.F, last - behind, last - first)]
        ways += [(OpKind.B, last - first, last - behind), (OpKind.B, behind, first)]
        start = {}
        for operation in self.narrow.operations():
            down, device = _goes_down(operation, narrow), _device(operation, narrow)
            farther = device >= first
            ran = ways[: 2 * (operation.kind is not OpKind.F) + (farther if down else 2 - farther)]
            spent = 0
            for kind, one, other in ran:
                begin, end = (Operation(kind, stage, operation.microbatch) for stage in (one, other))
                spent += wide.start[end] - wide.start[begin] if begin in wide.start else 0
            source = _on(device + farther * (behind - first), operation, narrow, self.instance)
            start[operation] = wide.start[source] - spent
        return Block(self.narrow, wide.period, start)

    @property
    def _size(self) -> int:
        return self.tie.other - self.tie.device

    def _source(self, operation: Operation) -> tuple[Operation, int]:
        """Return the operation of the narrow instance that one repeats, and how many new cells lie before it.

        Those before it are nearer to device 0.
        """
        device = _device(operation, self.instance)
        passed = min(max((device - self.tie.device) // self._size, 0), self.cells)
        return _on(device - passed * self._size, operation, self.instance, self.narrow.instance), passed

    def _later(self, operation: Operation, passed: int, there: int, period: int) -> int:
        """Return by how much later an operation starts than the one that it repeats, in ticks.

        A microbatch goes through all new cells, in `there` ticks each to the last device and in the rest of a
        period back, once with its F's and once with its B's. `passed` of the cells lie before the operation.
        """
        before = 0 if operation.kind is OpKind.F else self.cells * period
        if _goes_down(operation, self.instance):
            return before + passed * there
        return before + self.cells * there + (self.cells - passed) * (period - there)


def _device(operation: Operation, instance: Instance) -> int:
    """Return the device of a V that runs an operation."""
    return min(operation.stage, instance.stages - 1 - operation.stage)


def _on(device: int, operation: Operation, one: Instance, other: Instance) -> Operation:
    """Return the operation of `other` on a device of it, lower or upper stage as that of `one` is."""
    back = operation.stage >= one.devices
    return operation._replace(stage=other.stages - 1 - device if back else device)


def _goes_down(operation: Operation, instance: Instance) -> bool:
    """Return whether the microbatch of an operation is on its way to the last device of a V."""
    return (operation.stage < instance.devices) == (operation.kind is OpKind.F)


class GrownSearch:
    """The search for the least period of blocks that grow to all devices.

    It takes its first laps from the best block that is known of all devices, that of the search `wide`, and
    gives it each better one.
    """

    gallops = True

    def __init__(self, growth: Growth, wide: PeriodSearch) -> None:
        self._growth, self._wide, params = growth, wide, wide.params
        self._narrow = PeriodSearch(growth.narrow, None, params, growth.like(wide.block), growth.tie)
        self._known = False

    @property
    def ended(self) -> Ended:
        """How the last question ended."""
        return self._narrow.ended

    @property
    def least_effort(self) -> float:
        """That of all devices: with the tie, a question about few takes about as long."""
        return self._wide.least_effort

    def ask_round(
        self, limits: Callable[[], Budget], effort: float, below: Callable[[], Fraction]
    ) -> Iterator[Block | None]:
        """Ask as `PeriodSearch.ask_round` does; yield blocks of all devices that are better than any before.

        The first questions are for the best period of all devices and for a longer one, as a period that the
        narrow instance has is easier to shorten.
        """
        if self._wide.closed:
            return
        for factor in () if self._known else (1.0, self._wide.params.grown_slack):
            if limits().left <= 0:
                return
            narrow = self._narrow.ask(int(self._wide.block.period * factor), limits(), effort)
            self._known |= narrow is not None
            yield self._grown(narrow)
            if self._known or self.ended.early:
                break
        if self._known:
            yield from map(self._grown, self._narrow.ask_round(limits, effort, below))

    def _grown(self, narrow: Block | None) -> Block | None:
        wide = narrow and self._growth.grown(narrow)
        return wide if wide and self._wide.learn(wide) else None


def growth_of(instance: Instance, params: BlockParams) -> Growth | None:
    """Return how blocks of an instance are grown; None where they are not.

    They are grown if the instance has at least a cell more than `grown_from` devices on a V, of which those
    in the middle are alike, and memory limits that leave the narrow instance enough for a schedule.
    """
    p, size = instance.devices, 2 * params.grown_copies
    cells = (p - params.grown_from) // size
    first = (p - size * (cells + 1)) // 2
    if instance.placement.name != "v" or instance.memory_limit(0) is None or cells < 1 or first < 1:
        return None
    new = range(first + size, first + size * (cells + 1))
    narrow = _without(instance, new) if _alike(instance, range(first, new.stop + 1)) else None
    if narrow is None:
        return None
    return Growth(instance, Shape(narrow, params.grown_copies), Tie(first, first + size), cells)


def _alike(instance: Instance, devices: range) -> bool:
    """Return whether consecutive devices have the same costs, memory, limits and links."""
    last, limits = instance.stages - 1, _limits(instance)
    stages = [{(values[d], values[last - d]) for d in devices} for values in _per_stage(instance)]
    links = {(instance.comm(d, d + 1), instance.comm(d + 1, d)) for d in devices[:-1]}
    return len(links) == len({limits[d] for d in devices}) == 1 and all(len(each) == 1 for each in stages)


def _limits(instance: Instance) -> tuple[int, ...]:
    """Return the memory limit of each device, where there are limits."""
    assert instance.memory is not None
    return cast("tuple[int, ...]", instance.memory.limit)


def _per_stage(instance: Instance) -> list[PerStage]:
    """Return what stages cost, what they hold and, where it is given, what a BW costs."""
    costs, memory = instance.costs, instance.memory
    assert memory is not None
    given = [costs.forward, costs.backward, costs.weight, memory.forward, memory.backward, memory.weight]
    return cast("list[PerStage]", given if costs.fused is None else [*given, costs.fused])


def _without(instance: Instance, new: range) -> Instance | None:
    """Return the instance without the devices `new`; None if the memory that is left has no schedule.

    Each of these devices takes an activation on every other one.
    """
    last = instance.stages - 1
    kept = [d for d in range(instance.devices) if d not in new]
    stages = [*kept, *(last - d for d in reversed(kept))]
    each = ([values[s] for s in stages] for values in _per_stage(instance))
    forward, backward, weight, held, freed, left, *fused = each
    comm = [[0] * len(kept) for _ in kept]
    for i, d in enumerate(kept[1:]):
        comm[i][i + 1], comm[i + 1][i] = instance.comm(d - 1, d), instance.comm(d, d - 1)
    largest = [max(held[i], held[-1 - i]) for i in range(len(kept))]
    limit = [_limits(instance)[d] - len(new) * most for d, most in zip(kept, largest, strict=True)]
    if any(most < instance.smallest_limit(d) for d, most in zip(kept, limit, strict=True)):
        return None
    costs = Costs(forward, backward, weight, comm, fused=fused[0] if fused else None)
    memory = Memory(held, freed, left, limit)
    return Instance(Placement("v", len(kept)), instance.microbatches, costs, memory)
