"""The *plain* model: start times and intervals of operations, whose memory CP-SAT tracks as reservoirs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost as cost_of
from tightpipe.model.operation import COPIES, Operation, OpKind
from tightpipe.model.schedule import Order, Schedule
from tightpipe.model.simulate import retime

from .plain_variables import Naming, Variables, ends_stage, gradient_at, receiver, together

Change = tuple[cp_model.LinearExprT, int, cp_model.LiteralT]  # when memory changes, by how much, and whether


class Constraints:
    """Adds the constraints, one method a family; with `fifo`, microbatches of a class run in sequence."""

    def __init__(
        self, model: cp_model.CpModel, instance: Instance, variables: Variables, *, fifo: bool
    ) -> None:
        self.model, self.instance, self.fifo = model, instance, fifo
        self.variables, self.start = variables, variables.start

    def add_constraints(self) -> None:
        """Add the constraints of all families."""
        self.ready()
        self.forward_dependency()
        self.backward_dependency()
        self.slices()
        self.weight_dependency()
        self.pairs()
        self.copies()
        self.flushes()
        self.busy_links()
        self.no_overlap()
        self.memory()
        if self.fifo:
            self.first_in_first_out()
        elif self.variables.copies.made:
            self.names()

    def ready(self) -> None:
        """Require that no F starts before its stage is ready."""
        step = self.instance.barrier
        for op, start in self.start.items() if step is not None else ():
            if op.kind is OpKind.F:
                self.model.add(start >= step.ready[op.stage])  # type: ignore[union-attr, index]

    def forward_dependency(self) -> None:
        """Require that F follows the F of the previous stage, after communication."""
        for m in range(self.instance.units):
            for s in range(1, self.instance.stages):
                self._follows(Operation(OpKind.F, s - 1, m), Operation(OpKind.F, s, m))

    def backward_dependency(self) -> None:
        """Require that B, or W without B, follows the B of the next stage; at the last stage the F there."""
        last = self.instance.stages - 1
        for m in range(self.instance.units):
            for s in range(last + 1):
                after = gradient_at(self.instance, s, m)
                if after is not None:
                    before = Operation(OpKind.B, s + 1, m) if s < last else Operation(OpKind.F, s, m)
                    self._follows(before, after)

    def slices(self) -> None:
        """Require that F follows F of the slice before it, and B, or W without B, follows that after it."""
        k = self.instance.slice_count
        for m, s in product(range(self.instance.units), range(self.instance.stages)):
            if m % k:
                self._follows(Operation(OpKind.F, s, m - 1), Operation(OpKind.F, s, m))
                before, after = (gradient_at(self.instance, s, unit) for unit in (m, m - 1))
                if before is not None and after is not None:
                    self._follows(before, after)

    def weight_dependency(self) -> None:
        """Require that W follows its own B, or ends with it if the two are fused."""
        for op, start in self.start.items():
            backward = op._replace(kind=OpKind.B)
            if op.kind is not OpKind.W or backward not in self.start:
                continue
            ended, alone = self.variables.end[backward], self.variables.joint.alone.get(op)
            if alone is None:
                self.model.add(start >= ended)
            else:
                self.model.add(start >= ended).only_enforce_if(alone)
                self.model.add(self.variables.end[op] == ended).only_enforce_if(~alone)

    def pairs(self) -> None:
        """Require that an F and a backward that run as a pair start together."""
        for (f, b), literal in self.variables.joint.pairs.items():
            self.model.add(self.start[f] == self.start[b]).only_enforce_if(literal)

    def copies(self) -> None:
        """Require that a copy out follows its F, a copy back that copy, and the backward the copy back.

        A device runs one copy at a time, in each direction or in both together.
        """
        copies, v = self.variables.copies, self.variables
        for f, made in copies.made.items():
            out, back = (f._replace(kind=kind) for kind in COPIES)
            backward = gradient_at(self.instance, f.stage, f.microbatch)
            assert backward is not None
            starts = copies.start[out], copies.start[back], v.start[backward]
            ends = v.end[f], copies.end[out], copies.end[back]
            for ended, start in zip(ends, starts, strict=True):
                self.model.add(start >= ended).only_enforce_if(made)
            for start in starts[:2]:
                self.model.add(start == 0).only_enforce_if(~made)
        for intervals in copies.engines.values():
            self.model.add_no_overlap(intervals)

    def flushes(self) -> None:
        """Require that a device ends all operations of an iteration before it starts the next."""
        iterations = self.instance.iterations if self.instance.flush else 1
        for device, k in product(range(self.instance.devices), range(1, iterations)):
            flushed = self.model.new_int_var(0, self.variables.latest, f"flush{device}.{k}")
            for op in self._on(device):
                if self.instance.iteration(op.microbatch) < k:
                    self.model.add(self.variables.end[op] <= flushed)
                elif op.kind is OpKind.F:  # what comes after the F's of an iteration waits for them
                    self.model.add(self.start[op] >= flushed)

    def busy_links(self) -> None:
        """Require that messages on one link leave in the sequence of the operations that send them.

        They leave at least one link occupancy apart. A message leaves no earlier than its operation ends, and
        the receiving operation starts after the message has arrived. Of a pair, that of the F leaves first.
        """
        departure = self.variables.departure
        for op, leaves in departure.items():
            self.model.add(leaves >= self.variables.end[op])
            after = receiver(self.instance, op)
            assert after is not None
            self.model.add(self.start[after] >= leaves + self._comm(op, after))
        for (first, second), literal in self.variables.precedes.items():
            paired = self.variables.joint.pairs.get((first, second))
            if paired is not None:
                self.model.add_implication(paired, literal)
            self._leave_in_turn(first, second, literal, paired)
            self._leave_in_turn(second, first, ~literal)

    def no_overlap(self) -> None:
        """Require that a device runs one operation at a time."""
        for device in range(self.instance.devices):
            self.model.add_no_overlap(self.variables.intervals[device])

    def memory(self) -> None:
        """Require that the memory of a device is within its limit at every time."""
        for device in range(self.instance.devices):
            limit = self.instance.memory_limit(device)
            if limit is None:
                continue
            changes = [*self._changes_on(device), *self._copied_on(device)]
            if not changes:
                continue
            times, deltas, there = zip(*changes, strict=True)
            # below this number memory never falls; CP-SAT asks for it
            least = sum(min(0, delta) for delta in deltas)
            if self.variables.copies.made:
                self.model.add_reservoir_constraint_with_active(times, deltas, there, least, limit)
            else:  # the other form would add a variable that is true
                self.model.add_reservoir_constraint(times, deltas, least, limit)

    def first_in_first_out(self) -> None:
        """Require that, for every kind and stage, the microbatches of one class run in sequence.

        A W that is fused may overtake others. Where there are copies, this leaves out schedules, and what is
        cheapest may be among them.
        """
        alone = self.variables.joint.alone
        before: dict[tuple[OpKind, int, int], Operation] = {}  # the microbatch before, of the same class
        for op in self.start:
            queue = op.kind, op.stage, self.instance.mb_class(op.microbatch)
            first, before[queue] = before.get(queue), op
            if first is not None:
                row = self.model.add(self.start[op] >= self.variables.end[first])
                if op.kind is OpKind.W and op in alone:
                    row.only_enforce_if(alone[first], alone[op])

    def names(self) -> None:
        """Name the units of each class so that few overtake others, where they may have copies."""
        Naming(self.model, self.instance, self.variables).add()

    def _follows(self, first: Operation, second: Operation) -> None:
        self.model.add(self.start[second] >= self.variables.end[first] + self._comm(first, second))

    def _comm(self, first: Operation, second: Operation) -> int:
        return self.instance.comm(
            self.instance.device(first.stage, first.microbatch),
            self.instance.device(second.stage, second.microbatch),
        )

    def _leave_in_turn(
        self,
        first: Operation,
        second: Operation,
        literal: cp_model.LiteralT,
        paired: cp_model.IntVar | None = None,
    ) -> None:
        departure = self.variables.departure
        busy = self.instance.costs.link_occupancy
        self.model.add(departure[second] >= departure[first] + busy).only_enforce_if(literal)
        row = self.model.add(self.start[second] >= self.variables.end[first])
        row.only_enforce_if(literal, *([] if paired is None else [~paired]))

    def _on(self, device: int) -> list[Operation]:
        return [op for op in self.start if self.instance.device(op.stage, op.microbatch) == device]

    def _changes_on(self, device: int) -> Iterator[Change]:
        """Yield what operations change: F at its start, and at its end if it frees; B and W at their end."""
        for op in self._on(device):
            start, end = self.start[op], self.variables.end[op]
            delta, mb_class = self.instance.memory_of(op), self.instance.mb_class(op.microbatch)
            passing = self.instance.memory_while_running(op.stage, mb_class) if op.kind is OpKind.F else 0
            changes = [(start if op.kind is OpKind.F else end, delta), (start, passing), (end, -passing)]
            yield from ((time, change, True) for time, change in changes if change)

    def _copied_on(self, device: int) -> Iterator[Change]:
        """Yield what copies change: one out at its end, one back at its start."""
        copies = self.variables.copies
        for f, made in copies.made.items():
            if self.instance.device(f.stage, f.microbatch) == device:
                out, back = (f._replace(kind=kind) for kind in COPIES)
                yield copies.end[out], self.instance.memory_of(out), made
                yield copies.start[back], self.instance.memory_of(back), made


def bound_spans(
    model: cp_model.CpModel, instance: Instance, variables: Variables, cost: cp_model.LinearExprT
) -> None:
    """Require that the makespan, or the span of every device, is at most `cost`.

    Constraints on F's and on the last operation of each microbatch at each stage are enough, because a device
    begins with an F and ends with such an operation. The makespan counts from time 0. Where a step takes more
    than its operations, a device also reduces its stages, one at a time, and then runs its optimizer.
    """
    step = instance.barrier
    for op, start in variables.start.items():
        device = instance.device(op.stage, op.microbatch)
        if op.kind is OpKind.F:
            model.add(variables.begin[device] <= start)
        after = 0 if step is None else step.optimizer[device]  # type: ignore[index]
        if ends_stage(instance, op):
            model.add(variables.end[op] + after - variables.begin[device] <= cost)
    if instance.whole:
        for begin in variables.begin:
            model.add(begin == 0)
    if step is not None:
        for device in range(instance.devices):
            _add_reductions(model, instance, variables, device, cost)


def _add_reductions(
    model: cp_model.CpModel, instance: Instance, variables: Variables, device: int, cost: cp_model.LinearExprT
) -> None:
    step = instance.barrier
    assert step is not None
    intervals = []
    for stage in instance.placement.stages_on(device):
        ticks, after = step.reduce[stage], step.optimizer[device]  # type: ignore[index]
        if ticks == 0:
            continue
        begin = model.new_int_var(0, variables.latest, f"reduce{stage}.{device}")
        for op, end in variables.end.items():
            mine = op.stage == stage and instance.device(stage, op.microbatch) == device
            if mine and ends_stage(instance, op):
                model.add(begin >= end)
        model.add(begin + ticks + after <= cost)
        intervals.append(model.new_fixed_size_interval_var(begin, ticks, f"reduction{stage}.{device}"))
    model.add_no_overlap(intervals)


def _latest(instance: Instance, horizon: int) -> int:
    """Return a time by which all devices have ended in some cheapest schedule; see `PlainModel`."""
    if instance.has_backward(0, 0):
        return 2 * horizon
    messages = 2 * instance.stages * instance.units
    comm: Any = instance.costs.comm
    wait: int = max(map(max, comm)) + messages * instance.costs.link_occupancy
    return instance.devices * (horizon + wait)


class PlainModel:
    """A CP-SAT model whose solutions are the schedules of cost at most a horizon; it minimises the cost.

    If each device has a span of its own, no time needs to exceed twice the horizon. The device that starts
    first ends within one horizon. Its last B of a microbatch follows the F's of that microbatch on all other
    devices. So every device starts within the first horizon, and ends within the second.

    If stage 0 has no backward, devices may start later. But those that all start later than all others end,
    and their messages arrive, can run everything earlier. So p horizons, and p - 1 times the longest wait for
    messages, are enough.
    """

    def __init__(self, instance: Instance, horizon: int, lower_bound: int, *, fifo: bool) -> None:
        self.instance, self.horizon = instance, horizon
        self.model = cp_model.CpModel()
        self.with_precedences = True
        self.presolved = instance.offload is not None
        latest = horizon if instance.whole else _latest(instance, horizon)
        self.variables = Variables(self.model, instance, latest)
        Constraints(self.model, instance, self.variables, fifo=fifo).add_constraints()
        self.cost = self.model.new_int_var(lower_bound, horizon, "cost")
        bound_spans(self.model, instance, self.variables, self.cost)
        self.model.minimize(self.cost)

    @property
    def decisions(self) -> list[cp_model.IntVar]:
        """The variables of the start times, and of whether there are copies."""
        copies = self.variables.copies
        return [*self.variables.start.values(), *copies.start.values(), *copies.made.values()]

    def add_hint(self, schedule: Schedule, cost: int) -> None:
        """Hint a complete schedule, and its cost in ticks."""
        origin = 0 if self.instance.barrier else int(schedule.start.min())
        joint = self.variables.joint
        times, ends = (schedule.start - origin).tolist(), (schedule.end - origin).tolist()
        runs, copies = schedule.order.to_slots(), self.variables.copies
        for device in range(self.instance.devices):
            begin = 0 if self.instance.whole else times[int(schedule.order.offsets[device])]
            self.model.add_hint(self.variables.begin[device], begin)
        operations = [op for device in schedule.order.to_lists() for op in device]
        for op, time, end in zip(operations, times, ends, strict=True):
            self._hint_operation(op, time, end)
        paired = {(f, bw[0]._replace(kind=OpKind.B)) for mine in runs for f, *bw in mine if bw}
        fused = {op._replace(kind=OpKind.B) for op in operations if op.kind is OpKind.BW}
        for pair, literal in joint.pairs.items():
            self.model.add_hint(literal, pair in paired)
        for b, literal in joint.fused.items():
            self.model.add_hint(literal, b in fused - {b for _, b in paired})
        there = set(operations)
        for f, literal in copies.made.items():
            self.model.add_hint(literal, f._replace(kind=OpKind.O) in there)
        for op in copies.start.keys() - there:
            self.model.add_hint(copies.start[op], 0)
        self._hint_links(schedule, origin)
        self.model.add_hint(self.cost, cost)

    def _hint_operation(self, op: Operation, start: int, end: int) -> None:
        if op.kind is OpKind.BW:
            weight = op._replace(kind=OpKind.W)
            self.model.add_hint(self.variables.start[weight], end - self.instance.duration_of(weight))
            op = op._replace(kind=OpKind.B)
        starts = self.variables.start if op in self.variables.start else self.variables.copies.start
        self.model.add_hint(starts[op], start)

    def _hint_links(self, schedule: Schedule, origin: int) -> None:
        v, busy = self.variables, self.instance.costs.link_occupancy
        operations = [op for device in schedule.order.to_lists() for op in device]
        names = [op._replace(kind=OpKind.B) if op.kind is OpKind.BW else op for op in operations]
        end = dict(zip(names, (schedule.end - origin).tolist(), strict=True))
        for link in v.links:
            leaves = -busy
            for op in sorted(link, key=end.__getitem__):  # of a pair, the F first
                leaves = max(end[op], leaves + busy)
                self.model.add_hint(v.departure[op], leaves)
        for (first, second), literal in (v.precedes | v.turns).items():
            self.model.add_hint(literal, end[first] <= end[second])

    def order(self, values: list[int]) -> Order:
        """Return the order of the operations and copies, given the values of `decisions`.

        An operation that takes memory stands where it starts, and one that frees memory where it ends. At one
        time the latter come first.
        """
        v, rest = self.variables, iter(values)
        decided = v.start, v.copies.start, v.copies.made
        at, copied, made = [{op: next(rest) for op in each} for each in decided]
        partner = {b: f for f, b in v.joint.pairs if at[f] == at[b]}
        devices: list[list[tuple[Any, ...]]] = [[] for _ in range(self.instance.devices)]
        for op, time in at.items():
            b = op._replace(kind=OpKind.B)
            if op in partner.values() or (op.kind is OpKind.W and self._is_fused(b, at, partner)):
                continue
            run: tuple[Operation, ...] = (op,)
            if op.kind is OpKind.B and self._is_fused(op, at, partner):
                bw = op._replace(kind=OpKind.BW)
                run = (partner[op], bw) if op in partner else (bw,)
            devices[self.instance.device(op.stage, op.microbatch)].append(self._event(run, time))
        for op, time in copied.items():
            if made[op._replace(kind=OpKind.F)]:
                devices[self.instance.device(op.stage, op.microbatch)].append(self._event((op,), time))
        return Order.from_slots([[run for *_, run in sorted(device)] for device in devices])

    def schedule(self, values: list[int]) -> Schedule:
        """Return the schedule of a solution, with the best times that are known for its order.

        An order cannot say that a copy back begins while a pair runs, or an F that frees memory at its end.
        """
        v, order = self.variables, self.order(values)
        best = retime(self.instance, order)
        if not order.has_copies:
            return best
        at = dict(zip([*v.start, *v.copies.start], values, strict=False))
        operations = [op for device in order.to_lists() for op in device]
        start = [at[op._replace(kind=OpKind.B) if op.kind is OpKind.BW else op] for op in operations]
        took = [self.instance.duration_of(op) for op in operations]
        for row in np.flatnonzero(order.pairs).tolist():
            took[row : row + 2] = [together(self.instance, *operations[row : row + 2])] * 2
        end = np.add(start, took)
        return min(best, Schedule(self.instance, order, np.array(start), end), key=cost_of)

    def _event(self, run: tuple[Operation, ...], start: int) -> tuple[int, int, OpKind, int, Any]:
        """Return when a run takes or frees memory, its place among those of that time, and the run.

        At one time, those that free memory come first. Then come those of empty stages, which take no time,
        in the sequence in which those of a microbatch wait for each other.
        """
        kind, stage, _ = run[0]
        takes, ticks = kind in (OpKind.F, OpKind.L), self.instance.duration_of(run[0])
        place = 1 if not ticks and len(run) == 1 else 2 if takes else 0
        along = 0 if place != 1 else stage if kind is OpKind.F else -stage
        return start if takes else start + ticks, place, kind if place == 1 else OpKind.F, along, run

    def _is_fused(self, b: Operation, at: dict[Operation, int], paired: dict[Operation, Operation]) -> bool:
        """Return whether a B runs as a BW: in a pair, or as its W starts before the B alone could end."""
        if b in paired or b not in self.variables.joint.fused:
            return b in paired
        return at[b._replace(kind=OpKind.W)] < at[b] + self.instance.duration_of(b)
