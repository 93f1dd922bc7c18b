"""The optimum of a small instance with every rule of the model, by a model of its own.

It has start times only: no queues, no windows, no bounds; microbatches may overtake each other. It knows what
the exact methods leave out: a BW in a time of its own, an F that runs together with a BW, stages without B or W,
what a step takes around its operations, copies of what may leave a device, and flushes between iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product

from ortools.sat.python import cp_model

from helpers.cases import serial_order
from tightpipe import Instance, Objective, Operation, Order, Schedule, retime, validate
from tightpipe.model.metrics import cost
from tightpipe.model.operation import COMPUTES, OpKind

F, B, W, BW = COMPUTES
O, L = OpKind.O, OpKind.L  # noqa: E741
Literal = cp_model.IntVar


def optimal_schedule(instance: Instance, seconds: float = 60) -> Schedule:
    """Return a cheapest schedule, validated and re-timed; fails where the model is not solved to the end."""
    built = _Model(instance)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(built.model)
    assert status == cp_model.OPTIMAL, solver.status_name(status)
    schedule = retime(instance, built.order(solver))
    assert validate(instance, schedule) == []
    assert cost(schedule) == round(solver.objective_value)
    return schedule


def least_below(instance: Instance, known: int, seconds: float) -> int | None:
    """Return the least cost found below `known`, and `known` if there is none; None if that stays open."""
    built = _Model(instance)
    built.model.add(built.cost < known)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(built.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        schedule = retime(instance, built.order(solver))
        assert validate(instance, schedule) == []
        return cost(schedule)
    return known if status == cp_model.INFEASIBLE else None


@dataclass
class _Model:
    instance: Instance
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    start: dict[Operation, cp_model.IntVar] = field(default_factory=dict)
    end: dict[Operation, cp_model.LinearExprT] = field(default_factory=dict)
    pair: dict[tuple[Operation, Operation], Literal] = field(default_factory=dict)
    fused: dict[Operation, Literal] = field(default_factory=dict)  # by B: whether it runs as a BW, in no pair
    copied: dict[Operation, Literal] = field(default_factory=dict)  # by F: whether what may leave does

    def __post_init__(self) -> None:
        instance = self.instance
        self.k = max(1, len(instance.slices))
        stages, units = range(instance.stages), range(instance.microbatches * self.k)
        named = product((F, B, W), stages, units)
        self.operations = [
            Operation(k, s, m) for k, s, m in named if instance.has(k, s, instance.mb_class(m))
        ]
        # some schedule costs no more than one microbatch after the other, and no device's frame is longer
        serial = retime(instance, serial_order(instance))
        copies = sum((*instance.offload.out, *instance.offload.back)) if instance.offload else 0
        self.most = cost(serial) + copies * instance.microbatches * self.k
        frames = max(2 * self.most, self.most + int(serial.end.max()))
        self.latest = frames if instance.objective is Objective.DEVICE_SPAN else self.most
        for op in self.operations:
            self.start[op] = self.model.new_int_var(0, self.latest, str(op))
        self._make_pairs()
        self._make_copies()
        for device in range(instance.devices):
            self._one_at_a_time(device)
            self._copies_one_at_a_time(device)
            self._memory(device)
            self._flushes(device)
        self._dependencies()
        self._name_microbatches()
        self._minimise()

    def on(self, device: int) -> list[Operation]:
        return [op for op in self.operations if self.instance.device(op.stage, op.microbatch) == device]

    def _duration(self, op: Operation) -> int:
        return self.instance.duration_of(op)

    def _make_pairs(self) -> None:
        instance = self.instance
        for device in range(instance.devices):
            held = self.on(device)
            for f, b in product(held, held) if instance.has_pairs else ():
                is_pair = (f.kind, b.kind) == (F, B) and f.microbatch // self.k != b.microbatch // self.k
                if is_pair and instance.duration_of(b._replace(kind=W)):
                    w, literal = Operation(W, b.stage, b.microbatch), self.model.new_bool_var(f"{f}+{b}")
                    self.pair[f, b] = literal
                    for other in (b, w):
                        self.model.add(self.start[other] == self.start[f]).only_enforce_if(literal)
        for op in self.operations:
            may_fuse = instance.costs.fused is not None or instance.classes or instance.slices
            if op.kind is B and may_fuse and instance.duration_of(op._replace(kind=W)):
                self.fused[op] = literal = self.model.new_bool_var(f"fused {op}")
                weight = self.start[op._replace(kind=W)]
                self.model.add(weight == self.start[op]).only_enforce_if(literal)
            paired, fused, own = self.paired(op), self.is_fused(op), self._duration(op)
            self.model.add(paired + fused <= 1)
            longer = [(self._together(*pair) - own) * pair_of for pair, pair_of in self.pairs_of(op)]
            backward = instance.duration_of(op._replace(kind=BW))
            self.end[op] = self.start[op] + own + sum(longer) + (backward - own) * fused

    def _together(self, f: Operation, b: Operation) -> int:
        costs = self.instance.costs
        if costs.pairs is not None:
            return costs.pairs[f.stage][b.stage]
        return costs.overlapped[self.instance.device(f.stage, f.microbatch)]

    def pairs_of(self, op: Operation) -> list[tuple[tuple[Operation, Operation], cp_model.IntVar]]:
        """The pairs that an operation may be in, with their literals; a W is in those of its B."""
        partner = Operation(B, op.stage, op.microbatch) if op.kind is W else op
        return [(pair, literal) for pair, literal in self.pair.items() if partner in pair]

    def is_fused(self, op: Operation) -> cp_model.LinearExprT:
        """1 for the B and the W of a BW that is in no pair."""
        return 0 if op.kind is F else self.fused.get(op._replace(kind=B), 0)

    def paired(self, op: Operation) -> cp_model.LinearExprT:
        """The number of pairs that an operation is in."""
        return sum(literal for _, literal in self.pairs_of(op))

    def _one_at_a_time(self, device: int) -> None:
        intervals = []
        for op in self.on(device):
            alone = self.model.new_bool_var(f"{op} alone")
            self.model.add(alone + self.paired(op) + self.is_fused(op) == 1)
            if op in self.fused:
                size = self.instance.duration_of(op._replace(kind=BW))
                fused = self.fused[op]
                intervals.append(
                    self.model.new_optional_fixed_size_interval_var(self.start[op], size, fused, "")
                )
            size = self._duration(op)
            intervals.append(self.model.new_optional_fixed_size_interval_var(self.start[op], size, alone, ""))
        for (f, b), literal in self.pair.items():
            if self.instance.device(f.stage, f.microbatch) == device:
                size = self._together(f, b)
                intervals.append(
                    self.model.new_optional_fixed_size_interval_var(self.start[f], size, literal, "")
                )
        self.model.add_no_overlap(intervals)

    def leaving(self, device: int) -> list[Operation]:
        """The F's of a device whose activations may leave."""
        return [f for f in self.on(device) if f in self.copied]

    def _make_copies(self) -> None:
        for f in [op for op in self.operations if op.kind is F and self.instance.offloads(op.stage)]:
            out, back = f._replace(kind=O), f._replace(kind=L)
            self.copied[f] = self.model.new_bool_var(f"{f} leaves")
            for copy in (out, back):
                self.start[copy] = self.model.new_int_var(0, self.latest, str(copy))
                self.end[copy] = self.start[copy] + self._duration(copy)
            waits = f._replace(kind=B if self._duration(f._replace(kind=B)) else W)
            for before, after in ((f, out), (out, back), (back, waits)):
                self.model.add(self.start[after] >= self.end[before]).only_enforce_if(self.copied[f])

    def _copies_one_at_a_time(self, device: int) -> None:
        offload = self.instance.offload
        for engine in ((O,), (L,)) if offload is None or offload.duplex else ((O, L),):
            copies = [
                (f._replace(kind=kind), self.copied[f]) for f in self.leaving(device) for kind in engine
            ]
            self.model.add_no_overlap(
                self.model.new_optional_fixed_size_interval_var(
                    self.start[copy], self._duration(copy), literal, ""
                )
                for copy, literal in copies
            )

    def _memory(self, device: int) -> None:
        limit = self.instance.memory_limit(device)
        if limit is None:
            return
        held = self.on(device)
        times = [self.start[op] if op.kind is F else self.end[op] for op in held]
        deltas = [self.instance.memory_of(op) for op in held]
        for op in held:
            passing = self.instance.memory_while_running(op.stage, self.instance.mb_class(op.microbatch))
            if op.kind is F and passing:
                times += [self.start[op], self.end[op]]
                deltas += [passing, -passing]
        present: list[cp_model.LiteralT] = [True] * len(times)
        for f in self.leaving(device):
            out, back = f._replace(kind=O), f._replace(kind=L)
            times += [self.end[out], self.start[back]]
            deltas += map(self.instance.memory_of, (out, back))
            present += [self.copied[f]] * 2
        least = sum(d for d in deltas if d < 0)
        self.model.add_reservoir_constraint_with_active(times, deltas, present, least, limit)

    def _flushes(self, device: int) -> None:
        instance = self.instance
        for k in range(1, instance.iterations if instance.flush else 0):
            flushed = self.model.new_int_var(0, self.latest, f"flush {device} {k}")
            for op in self.on(device):
                if instance.iteration(op.microbatch) < k:
                    self.model.add(self.end[op] <= flushed)
                else:
                    self.model.add(self.start[op] >= flushed)

    def _dependencies(self) -> None:
        last = self.instance.stages - 1
        for (kind, s, m), start in self.start.items():
            if kind is F and s > 0:
                self._after(start, Operation(F, s - 1, m), Operation(F, s, m))
            if kind is F and m % self.k > 0:
                self._after(start, Operation(F, s, m - 1), Operation(F, s, m))
            without_b = kind is W and not self.instance.duration_of(Operation(B, s, m))
            if kind is B or without_b:
                turn = Operation(F, last, m - m % self.k + self.k - 1)
                self._after(start, Operation(B, s + 1, m) if s < last else turn, Operation(kind, s, m))
                if m % self.k < self.k - 1:
                    self._after(start, Operation(kind, s, m + 1), Operation(kind, s, m))
            elif kind is W:  # one in a BW starts with its B
                alone, op = self.model.new_bool_var(""), Operation(W, s, m)
                self.model.add(alone + self.paired(op) + self.is_fused(op) == 1)
                self.model.add(start >= self.end[Operation(B, s, m)]).only_enforce_if(alone)

    def _after(self, start: cp_model.IntVar, before: Operation, op: Operation) -> None:
        here, there = (self.instance.device(o.stage, o.microbatch) for o in (before, op))
        self.model.add(start >= self.end[before] + self.instance.comm(here, there))

    def _name_microbatches(self) -> None:
        """Microbatches are alike if they have the same class as given, route and iteration.

        They are called by the sequence of their first F's.
        """
        alike: dict[tuple[int, int, int], list[cp_model.IntVar]] = {}
        given = [i for i, one in enumerate(self.instance.classes) for _ in range(one.count)]
        for m in range(self.instance.microbatches):
            own, first = given[m] if given else 0, m * self.k
            group = own, self.instance.route(first), self.instance.iteration(first)
            alike.setdefault(group, []).append(self.start[Operation(F, 0, first)])
        for starts in alike.values():
            for first, second in pairwise(starts):
                self.model.add(first <= second)

    def _minimise(self) -> None:
        least = self.cost = self.model.new_int_var(0, self.most, "cost")
        if self.instance.objective is Objective.STEP:
            for device in range(self.instance.devices):
                self.model.add(self._finished(device) <= least)
            self.model.minimize(least)
            return
        whole = self.instance.objective is Objective.MAKESPAN
        groups = [self.operations] if whole else [self.on(d) for d in range(self.instance.devices)]
        for group in groups:
            begin = self.model.new_int_var(0, self.latest, "")
            for op in group:
                self.model.add(begin <= self.start[op])
                self.model.add(self.end[op] <= begin + least)
        self.model.minimize(least)

    def _finished(self, device: int) -> cp_model.LinearExprT:
        """When the device has run its operations, reduced its stages one by one, and run its optimizer."""
        step, last = self.instance.step, self.model.new_int_var(0, 2 * self.most, "")
        if step is None:
            self.model.add_max_equality(last, [self.end[op] for op in self.on(device)])
            return last
        reductions = []
        for stage in {op.stage for op in self.on(device)}:
            begin, size = self.model.new_int_var(0, 2 * self.most, ""), step.reduce[stage]
            for op in self.on(device):
                if op.kind is F:
                    self.model.add(self.start[op] >= step.ready[op.stage])
                if op.stage == stage:
                    self.model.add(self.end[op] <= begin)
            reductions.append(self.model.new_fixed_size_interval_var(begin, size, ""))
            self.model.add(begin + size <= last)
        self.model.add_no_overlap(reductions)
        return last + step.optimizer[device]

    def order(self, solver: cp_model.CpSolver) -> Order:
        """The devices' sequences: a pair is an F and a BW."""
        partner = {f: b for (f, b), literal in self.pair.items() if solver.value(literal)}
        joined = {b for b, literal in self.fused.items() if solver.value(literal)}
        partner |= {b: b for b in joined}
        fused = {Operation(kind, b.stage, b.microbatch) for b in partner.values() for kind in (B, W)} - joined
        slots = []
        for device in range(self.instance.devices):
            leave = [f for f in self.leaving(device) if solver.value(self.copied[f])]
            copies = {f._replace(kind=kind) for f in leave for kind in (O, L)}
            mine = sorted((set(self.on(device)) - fused) | copies, key=partial(self._event, solver))
            slots.append([self._slot(op, partner.get(op)) for op in mine])
        return Order.from_slots(slots)

    def _event(self, solver: cp_model.CpSolver, op: Operation) -> tuple[int, ...]:
        """When an operation takes or gives memory; at one tick, what gives comes first.

        Then come those of empty stages, which take no time, in the sequence in which they wait for each other.
        """
        start, end, forward = solver.value(self.start[op]), solver.value(self.end[op]), op.kind in (F, L)
        takes = 1 if start == end else 2 if forward else 0
        along = op.stage if op.kind is F else -op.stage
        return start if forward else end, takes, start if takes != 1 else 0, op.kind, along, op.microbatch

    @staticmethod
    def _slot(op: Operation, b: Operation | None) -> tuple[Operation, ...]:
        if b is None:
            return (op,)
        backward = Operation(BW, b.stage, b.microbatch)
        return (backward,) if op == b else (op, backward)
