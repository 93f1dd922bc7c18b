"""A slow simulator of noise in plain Python: one sample at a time, by dictionaries and recursion over the rules."""

from __future__ import annotations

from dataclasses import dataclass

from tightpipe import Operation, OpKind, Schedule
from tightpipe.model.costs import Objective
from tightpipe.model.metrics import cost
from tightpipe.noise import Times


@dataclass
class Sample:
    """The times of one sample: `times` is a block, of which sample `k` counts."""

    schedule: Schedule
    times: Times
    k: int

    def __post_init__(self) -> None:
        self.instance = self.schedule.instance
        self.start: dict[Operation, float] = {}
        self.end: dict[Operation, float] = {}
        self.left: dict[tuple[int, int], float] = {}
        self.arrived: dict[Operation, float] = {}
        self.sent: set[Operation] = set()
        self.run()

    def took(self, op: Operation) -> float:
        kinds = (OpKind.B, OpKind.W) if op.kind is OpKind.BW else (op.kind,)
        return sum(float(self.times.duration[kind, op.stage, op.microbatch, self.k]) for kind in kinds)

    def receiver(self, op: Operation) -> Operation | None:
        """The operation that waits for the result, whatever device it is on."""
        last = self.instance.stages - 1
        if op.kind is OpKind.F:
            return Operation(OpKind.F, op.stage + 1, op.microbatch) if op.stage < last else None
        if op.kind is OpKind.W or op.stage == 0:
            return None
        return Operation(OpKind.B, op.stage - 1, op.microbatch)

    def input_time(self, op: Operation) -> float | None:
        kind, stage, m = op
        if kind is OpKind.F and stage == 0:
            return 0.0
        if kind is OpKind.W:
            return self.end.get(Operation(OpKind.B, stage, m))
        if kind is not OpKind.F and stage == self.instance.stages - 1:
            return self.end.get(Operation(OpKind.F, stage, m))
        return self.arrived.get(Operation(OpKind.F if kind is OpKind.F else OpKind.B, stage, m))

    def ready(self, op: Operation) -> float:
        step = self.instance.step
        waits = self.instance.objective is Objective.STEP and step is not None and op.kind is OpKind.F
        return float(step.ready[op.stage]) if waits else 0.0  # type: ignore[index,union-attr]

    def length(self, slot: tuple[Operation, ...], device: int) -> float:
        total = sum(map(self.took, slot))
        given = self.instance.together(device, slot[0].stage, slot[-1].stage)
        if len(slot) == 2 and given is not None and slot[1].kind is OpKind.BW:
            total *= given / sum(self.instance.duration_of(op) for op in slot)
        return total

    def run(self) -> None:
        slots = self.schedule.order.to_slots()
        begins = [0.0] * len(slots)
        if self.instance.objective is Objective.DEVICE_SPAN:
            begins = [float(self.schedule.start[rows]) for rows in self.schedule.order.offsets[:-1]]
        self.stands = [self.stand(device) for device in range(len(slots))]
        free, heads, going = begins, [0] * len(slots), True
        while going:
            going = False
            for device, mine in enumerate(slots):
                while heads[device] < len(mine):
                    inputs = [self.input_time(op) for op in mine[heads[device]]]
                    if None in inputs:
                        break
                    late = [self.ready(op) for op in mine[heads[device]]]
                    start = max([free[device], *late, *(time for time in inputs if time is not None)])
                    free[device] = self.run_slot(device, mine[heads[device]], start)
                    heads[device], going = heads[device] + 1, True
        assert heads == [len(mine) for mine in slots]

    def stand(self, device: int) -> tuple[float, float]:
        rows = self.schedule.order.rows(device)
        spans = self.instance.objective is Objective.DEVICE_SPAN
        starts, ends = (times[rows] if spans else times for times in (self.schedule.start, self.schedule.end))
        begin, end = float(starts.min()), float(ends.max())
        if self.instance.objective is Objective.STEP:
            begin, end = 0.0, float(cost(self.schedule))
        moment = float(self.times.moment[device, self.k])
        return begin + moment * (end - begin), float(self.times.stall[device, self.k])

    def run_slot(self, device: int, slot: tuple[Operation, ...], start: float) -> float:
        moment, ticks = self.stands[device]
        length = self.length(slot, device)
        if moment <= start < moment + ticks:
            start = moment + ticks
        elif start < moment < start + length:
            length += ticks
        for op in slot:
            self.start[op], self.end[op] = start, start + length
            self.send(device, op, start + length)
        return start + length

    def send(self, device: int, op: Operation, now: float) -> None:
        receiver = self.receiver(op)
        if receiver is None:
            return
        there = self.instance.device(receiver.stage, receiver.microbatch)
        if there != device:
            busy = self.instance.costs.link_occupancy
            now = max(now, self.left.get((device, there), -float(busy)) + busy)
            self.left[device, there] = now
        self.arrived[receiver] = now + float(
            self.times.lag[receiver.kind, receiver.stage, receiver.microbatch, self.k]
        )

    @property
    def cost(self) -> float:
        if self.instance.objective is Objective.MAKESPAN:
            return max(self.end.values()) - min(self.start.values())
        if self.instance.objective is Objective.STEP:
            return max(map(self.done, range(self.instance.devices)))
        spans = []
        for device in self.schedule.order.to_lists():
            spans.append(max(self.end[op] for op in device) - min(self.start[op] for op in device))
        return max(spans)

    def done(self, device: int) -> float:
        """When a device has run its operations, reduced its stages one after another, and run its optimizer."""
        step, mine = self.instance.step, self.schedule.order.to_lists()[device]
        now = max(self.end[op] for op in mine)
        if step is None:
            return now
        ended = {
            stage: max(self.end[op] for op in mine if op.stage == stage)
            for stage in {op.stage for op in mine}
        }
        free = 0.0
        for stage in sorted(ended, key=lambda stage: ended[stage]):
            if step.reduce[stage]:  # type: ignore[index]
                free = max(free, ended[stage]) + step.reduce[stage]  # type: ignore[index]
        return max(now, free) + step.optimizer[device]  # type: ignore[index]
