"""A *repeating block*: start times for a few microbatches, which repeat themselves period after period.

A block has K microbatches of each route and a period of T ticks. An operation that starts at s in the block
has a *repetition* that starts at s + iT for every integer i. Together the repetitions form an endless
schedule, in which on average one microbatch of each route starts every T / K ticks. The block is valid if the
endless schedule is: no device runs two operations at a time, every operation waits for what it depends on,
and memory stays within the limit. The operations of a (kind, stage, route) run first in, first out. This
loses nothing, because microbatches of one route are alike and can be renamed, as in `queues`.

A block may fuse some backwards. It then has the B and the W of a BW as the two *parts* of it: the W starts at
the end of the B, the two take as long as the BW together, and other successors of the B wait until both have
ended. A BW may overtake W's that wait, as in `queues`.

Operations of one microbatch usually start in different periods of the endless schedule: between the F and the
B of a microbatch, a device runs operations of others. The *lap* of an operation says by how many periods its
start lies behind the first period, and its *residue* where in a period it starts: start = residue + T * lap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from tightpipe.model.graph import Node, graph_of
from tightpipe.model.instance import Instance
from tightpipe.model.operation import Operation, OpKind

KINDS = (OpKind.F, OpKind.B, OpKind.W)


@dataclass(frozen=True, slots=True)
class Wait:
    """One operation of a microbatch waits for another one."""

    before: Operation  #: the operation that is waited for
    after: Operation  #: the one that waits
    lag: int  #: least ticks from start to start: communication and the `Shape.least` ticks of the former


@dataclass(frozen=True, slots=True)
class Shape:
    """The operations of a block, with the instance that they belong to.

    The microbatches are numbered route after route: microbatch m takes route m // copies.
    The number of microbatches of the instance does not matter, and `copies`, K, is at least 1.
    """

    instance: Instance
    copies: int
    _nodes: dict[tuple[OpKind, int, int], Node] = field(init=False, repr=False, compare=False)
    _joint: bool = field(init=False, repr=False, compare=False)
    _on: tuple[tuple[Operation, ...], ...] = field(init=False, repr=False, compare=False)  # of each device

    def __post_init__(self) -> None:
        nodes = {(node.kind, node.mb_class, node.stage): node for node in graph_of(self.instance).nodes}
        object.__setattr__(self, "_nodes", nodes)
        object.__setattr__(self, "_joint", self.instance.fusing_saves)
        on: list[list[Operation]] = [[] for _ in range(self.instance.devices)]
        for operation in self.operations():
            on[self.device(operation)].append(operation)
        object.__setattr__(self, "_on", tuple(map(tuple, on)))

    @property
    def microbatches(self) -> int:
        """Number of microbatches of all routes."""
        return self.copies * len(self.instance.placement.routes)

    def route(self, microbatch: int) -> int:
        """Return the route that a microbatch of the block takes."""
        return microbatch // self.copies

    def device(self, operation: Operation) -> int:
        """Return the device that runs the operation."""
        return self._node(operation).device

    def duration(self, operation: Operation) -> int:
        """Return the ticks that the operation takes alone."""
        return self._node(operation).duration

    def fused(self, operation: Operation) -> int:
        """Return the ticks of the BW that a B or a W may be part of; 0 where a BW would save no time.

        A BW of a single tick has no two parts, and so is in no block.
        """
        if operation.kind is OpKind.F or not self._joint:
            return 0
        pair = [operation._replace(kind=kind) for kind in (OpKind.B, OpKind.W)]
        if any((op.kind, self.route(op.microbatch), op.stage) not in self._nodes for op in pair):
            return 0
        ticks = self._node(pair[0]).fused
        return ticks if 1 < ticks < sum(map(self.duration, pair)) else 0

    def least(self, operation: Operation) -> int:
        """Return the least ticks that the operation takes, alone or as a part of a BW."""
        alone, fused = self.duration(operation), self.fused(operation)
        if not fused:
            return alone
        if operation.kind is OpKind.B:
            return min(alone, fused - 1)
        return min(alone, fused - self.least(operation._replace(kind=OpKind.B)))

    def part(self, operation: Operation) -> int:
        """Return the ticks that a B or a W takes as a part of a BW."""
        if operation.kind is OpKind.B:
            return self.least(operation)
        return self.fused(operation) - self.least(operation._replace(kind=OpKind.B))

    def delta(self, operation: Operation) -> int:
        """Return the memory that the operation adds; negative where it frees memory."""
        return self._node(operation).delta

    def passing(self, operation: Operation) -> int:
        """Return the memory that the operation takes at its start and frees at its end."""
        return self._node(operation).passing

    def operations(self) -> list[Operation]:
        """Return all operations, those of one (kind, stage, route) next to each other."""
        routes = range(len(self.instance.placement.routes))
        return [
            operation
            for r in routes
            for kind in KINDS
            for stage in range(self.instance.stages)
            for operation in self.queue(kind, stage, r)
        ]

    def queue(self, kind: OpKind, stage: int, route: int) -> list[Operation]:
        """Return the operations of a (kind, stage, route) in the sequence in which they run."""
        if (kind, route, stage) not in self._nodes:
            return []
        first = route * self.copies
        return [Operation(kind, stage, m) for m in range(first, first + self.copies)]

    def queues(self) -> list[list[Operation]]:
        """Return the operations of each (kind, stage, route), one list for each."""
        operations = self.operations()
        return [operations[i : i + self.copies] for i in range(0, len(operations), self.copies)]

    def on(self, device: int) -> tuple[Operation, ...]:
        """Return the operations that `device` runs."""
        return self._on[device]

    def waits(self, microbatch: int) -> Iterator[Wait]:
        """Yield the waits of a microbatch's operations: first along the model, then of each W for its B."""
        graph, mb_class = graph_of(self.instance), self.route(microbatch)
        found = (edge for edge in graph.edges if graph.nodes[edge.after].mb_class == mb_class)
        for edge in sorted(found, key=lambda edge: self._place(graph.nodes[edge.after])):
            before, after = (
                Operation(node.kind, node.stage, microbatch)
                for node in (graph.nodes[edge.before], graph.nodes[edge.after])
            )
            yield Wait(before, after, self.least(before) + edge.lag)

    def _node(self, operation: Operation) -> Node:
        return self._nodes[operation.kind, self.route(operation.microbatch), operation.stage]

    def _place(self, node: Node) -> tuple[bool, int]:
        """Return where an operation stands among those of its microbatch: F's, B's back along them, W's."""
        stages = self.instance.stages
        backwards = node.kind is OpKind.B
        return node.kind is OpKind.W, 2 * stages - 1 - node.stage if backwards else node.stage


@dataclass(frozen=True, slots=True)
class Block:
    """A repeating block."""

    shape: Shape
    period: int  #: ticks T after which every operation repeats
    start: dict[Operation, int]  #: start of each operation in ticks, 0 for F0 of microbatch 0
    fused: frozenset[Operation] = frozenset()  #: the B's and the W's that are parts of BW's

    @property
    def pace(self) -> Fraction:
        """Average ticks from the start of one microbatch of a route to the start of the next."""
        return Fraction(self.period, self.shape.copies)

    def duration(self, operation: Operation) -> int:
        """Return the ticks that the operation takes, alone or as a part of a BW."""
        return self.shape.part(operation) if operation in self.fused else self.shape.duration(operation)

    def lag(self, wait: Wait) -> int:
        """Return the least ticks from the start of one operation to that of the one that waits for it."""
        after_end = wait.lag - self.shape.least(wait.before)
        own = wait.before._replace(kind=OpKind.W)
        if wait.before in self.fused and wait.after != own:
            return after_end + self.shape.fused(wait.before)
        return after_end + self.duration(wait.before)


def serial_block(shape: Shape) -> Block:
    """Return the block that runs one microbatch after another on each device, each W right after its B.

    The block is valid whenever the instance has a schedule, because a device holds one microbatch at a time.
    """
    start: dict[Operation, int] = {}
    split, free = Block(shape, 0, start), [0] * shape.instance.devices
    for m in range(shape.microbatches):
        waits = {wait.after: wait for wait in shape.waits(m)}
        for operation in _one_microbatch(shape, m):
            device, wait = shape.device(operation), waits.get(operation)
            ready = 0 if wait is None else start[wait.before] + split.lag(wait)
            start[operation] = max(free[device], ready)
            free[device] = start[operation] + shape.duration(operation)
    return Block(shape, max(free), {operation: start[operation] for operation in shape.operations()})


def _one_microbatch(shape: Shape, microbatch: int) -> list[Operation]:
    """Return the operations of a microbatch: the F's, and then the B of each stage with its W."""
    stages = range(shape.instance.stages)
    up = [(OpKind.F, s) for s in stages]
    down = [(kind, s) for s in reversed(stages) for kind in (OpKind.B, OpKind.W)]
    route = shape.route(microbatch)
    return [Operation(kind, s, microbatch) for kind, s in (*up, *down) if shape.queue(kind, s, route)]


def repeated(block: Block, times: int) -> Block:
    """Return the block that consists of `times` periods of `block`, one after another.

    The result has `times` times as many microbatches of each route, and `times` times the period.
    """
    shape, copies = block.shape, block.shape.copies
    start, fused = {}, set()
    for operation, at in block.start.items():
        route, copy = divmod(operation.microbatch, copies)
        for i in range(times):
            again = operation._replace(microbatch=(route * times + i) * copies + copy)
            start[again] = at + i * block.period
            if operation in block.fused:
                fused.add(again)
    whole = Shape(shape.instance, times * copies)
    in_sequence = {operation: start[operation] for operation in whole.operations()}
    return Block(whole, times * block.period, in_sequence, frozenset(fused))


def period_bound(shape: Shape) -> int:
    """Return a lower bound of the period of every block of this shape, in ticks.

    Notes
    -----
    A device runs all its operations of a block within a period, so the period is at least their work.

    Take each activation that the device holds in the block, multiply its memory by the ticks for which it is
    held, and call the sum over all activations the *memory-time*. By Little's law, the average of the memory
    that the device holds is the memory-time divided by the period, and it is at most the limit. No activation
    is held for less time than the operations and messages from its F to the B or W that frees it take. This
    gives a least memory-time, and the period is at least this least memory-time divided by the limit.
    """
    devices = range(shape.instance.devices)
    works = [sum(map(shape.least, shape.on(device))) for device in devices]
    return max(*works, *(_by_memory(shape, device) for device in devices), 1)


def _by_memory(shape: Shape, device: int) -> int:
    limit = shape.instance.memory_limit(device)
    return 0 if not limit else -(-memory_time(shape, device) // limit)


def memory_time(shape: Shape, device: int) -> int:
    """Return the least memory-time of a block on a device (see `period_bound`), in memory times ticks.

    Each F holds, from its start on, what its B and its W free at their ends.
    """
    total = 0
    starts = {m: earliest_starts(shape, m) for m in range(shape.microbatches)}
    for operation in shape.on(device):
        if operation.kind is not OpKind.F:
            start = starts[operation.microbatch]
            begun = start[Operation(OpKind.F, operation.stage, operation.microbatch)]
            total -= shape.delta(operation) * (start[operation] + shape.least(operation) - begun)
    return total


def earliest_starts(shape: Shape, microbatch: int) -> dict[Operation, int]:
    """Return the earliest start of each operation of a microbatch, in ticks after its first F starts.

    Only the waits of `Shape.waits` count, not that a device runs one operation at a time.
    """
    start = {Operation(OpKind.F, 0, microbatch): 0}
    for wait in shape.waits(microbatch):
        start[wait.after] = start[wait.before] + wait.lag
    return start
