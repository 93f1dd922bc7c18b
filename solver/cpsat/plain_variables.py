"""The variables of the plain model: starts and intervals of operations, and which run as one."""

from __future__ import annotations

from itertools import combinations, product

from ortools.sat.python import cp_model

from tightpipe.model.instance import Instance
from tightpipe.model.operation import COPIES, Operation, OpKind

KINDS = (OpKind.F, OpKind.B, OpKind.W)


def operations_of(instance: Instance) -> list[Operation]:
    """Return every F, B and W of an instance."""
    named = (Operation(*one) for one in product(KINDS, range(instance.stages), range(instance.units)))
    return [op for op in named if _exists(instance, op)]


def _exists(instance: Instance, op: Operation) -> bool:
    return instance.has(op.kind, op.stage, instance.mb_class(op.microbatch))


def ends_stage(instance: Instance, op: Operation) -> bool:
    """Return whether an operation is the last one of its microbatch at its stage."""
    later = map(OpKind, range(op.kind + 1, OpKind.BW))
    return not any(_exists(instance, op._replace(kind=kind)) for kind in later)


def gradient_at(instance: Instance, stage: int, microbatch: int) -> Operation | None:
    """Return the operation that waits for the gradient at a stage: B, or W without B; None without both."""
    both = (Operation(kind, stage, microbatch) for kind in (OpKind.B, OpKind.W))
    return next((op for op in both if _exists(instance, op)), None)


def receiver(instance: Instance, op: Operation) -> Operation | None:
    """Return the operation on another device that receives a message of `op`, None if `op` sends none."""
    stage = op.stage + 1 if op.kind is OpKind.F else op.stage - 1
    if op.kind is OpKind.W or not 0 <= stage < instance.stages:
        return None
    apart = instance.device(stage, op.microbatch) != instance.device(op.stage, op.microbatch)
    if not apart:
        return None
    is_forward = op.kind is OpKind.F
    return op._replace(stage=stage) if is_forward else gradient_at(instance, stage, op.microbatch)


class Joint:
    """Which operations run as one.

    A B may be fused with its W where that is shorter than one after the other. An F may run together with the
    fused backward of another microbatch, as a pair, on a device that has a time for pairs. (An F and a
    backward of one microbatch wait for each other.)

    - `fused`: for each B that may be fused in no pair, whether it is.
    - `pairs`: for each F and each B of its device that may run as a pair, whether they do.
    - `alone`: for each F, B and W that may run jointly, whether it runs alone. A B and its W share the
      literal.
    """

    def __init__(self, model: cp_model.CpModel, instance: Instance) -> None:
        self.fused: dict[Operation, cp_model.IntVar] = {}
        self.pairs: dict[tuple[Operation, Operation], cp_model.IntVar] = {}
        self.alone: dict[Operation, cp_model.IntVar] = {}
        joined: dict[Operation, list[cp_model.IntVar]] = {}
        for f, b in _possible_pairs(instance):
            self.pairs[f, b] = literal = model.new_bool_var(f"{f}+{b}")
            joined.setdefault(f, []).append(literal)
            joined.setdefault(b, []).append(literal)
        for op in operations_of(instance):
            if op.kind is OpKind.B and instance.fusing_saves_at(op.stage, instance.mb_class(op.microbatch)):
                self.fused[op] = literal = model.new_bool_var(f"fused{op}")
                joined.setdefault(op, []).append(literal)
        for op, literals in joined.items():
            self.alone[op] = model.new_bool_var(f"alone{op}")
            model.add_exactly_one(self.alone[op], *literals)
            if op.kind is OpKind.B:
                self.alone[op._replace(kind=OpKind.W)] = self.alone[op]

    def longer(self, instance: Instance, op: Operation) -> cp_model.LinearExpr:
        """Return by how many ticks an F or B takes longer than alone; negative if it takes less."""
        took = instance.duration_of(op)
        terms: list[cp_model.LinearExpr] = []
        if op in self.fused:
            terms.append((instance.duration_of(op._replace(kind=OpKind.BW)) - took) * self.fused[op])
        terms += [
            (together(instance, *pair) - took) * literal for pair, literal in self.pairs.items() if op in pair
        ]
        return cp_model.LinearExpr.sum(terms)


def _possible_pairs(instance: Instance) -> list[tuple[Operation, Operation]]:
    found = []
    for device in range(instance.devices if instance.has_pairs else 0):
        held = [op for op in operations_of(instance) if instance.device(op.stage, op.microbatch) == device]
        forward = [op for op in held if op.kind is OpKind.F]
        backward = [
            op for op in held if op.kind is OpKind.B and _exists(instance, op._replace(kind=OpKind.W))
        ]
        found += [(f, b) for f, b in product(forward, backward) if f.microbatch != b.microbatch]
    return found


class Copies:
    """The copies of what may leave a device, of which a schedule makes both or none.

    Whether it does is `made`, by F. Starts and ends are 0 and mean nothing where it does not.
    """

    def __init__(self, model: cp_model.CpModel, instance: Instance, latest: int) -> None:
        self.made: dict[Operation, cp_model.IntVar] = {}
        self.start: dict[Operation, cp_model.IntVar] = {}
        self.end: dict[Operation, cp_model.LinearExpr] = {}
        self.engines: dict[tuple[int, OpKind], list[cp_model.IntervalVar]] = {}
        duplex = instance.offload is not None and instance.offload.duplex
        for f in operations_of(instance):
            if f.kind is not OpKind.F or not instance.offloads(f.stage):
                continue
            self.made[f] = made = model.new_bool_var(f"copied{f}")
            for kind in COPIES:
                op = f._replace(kind=kind)
                took = instance.duration_of(op)
                start = self.start[op] = model.new_int_var(0, latest, f"s{op}")
                self.end[op] = start + took
                engine = instance.device(f.stage, f.microbatch), kind if duplex else OpKind.O
                interval = model.new_optional_fixed_size_interval_var(start, took, made, f"i{op}")
                self.engines.setdefault(engine, []).append(interval)


class Variables:
    """The variables of the plain model.

    There are variables for the start time and the interval of each operation, for which operations run as
    one (`Joint`), for copies (`Copies`), and for the time at which each device begins. For links on which
    messages may have to wait, there are also the time at which each message leaves and, for any two
    operations that send over such a link, whether the first runs before the second. Where there are copies
    and microbatches may overtake each other, there is also the sequence of their backwards.

    - `model`: the CP-SAT model that receives the variables.
    - `latest`: the model contains only schedules whose operations have all ended by this time, in ticks.
    """

    def __init__(self, model: cp_model.CpModel, instance: Instance, latest: int) -> None:
        self.latest = latest
        self.start: dict[Operation, cp_model.IntVar] = {}
        self.end: dict[Operation, cp_model.LinearExpr] = {}
        self.intervals: dict[int, list[cp_model.IntervalVar]] = {}  # of each device
        self.joint = Joint(model, instance)
        for op in operations_of(instance):
            self._add_intervals(model, instance, op)
        self._add_joint_intervals(model, instance)
        self.copies = Copies(model, instance, latest)
        self.turns: dict[tuple[Operation, Operation], cp_model.IntVar] = {}  # by the constraints of `names`
        self.links = _links(instance)
        self.departure = {op: model.new_int_var(0, latest, f"d{op}") for link in self.links for op in link}
        self.precedes = {
            pair: model.new_bool_var(f"o{pair[0]}<{pair[1]}")
            for link in self.links
            for pair in combinations(link, 2)
        }
        self.begin = [model.new_int_var(0, latest, f"begin{d}") for d in range(instance.devices)]

    def _add_intervals(self, model: cp_model.CpModel, instance: Instance, op: Operation) -> None:
        """Add the start and the end of an operation, and its interval for the case that it runs alone."""
        took, alone = instance.duration_of(op), self.joint.alone.get(op)
        # A W in a BW ends with it, and so starts before it if a BW is shorter than the W.
        early, least = (0, took) if alone is None else (-took, 0)
        start = self.start[op] = model.new_int_var(early, self.latest - least, f"s{op}")
        longer = 0 if op.kind is OpKind.W else self.joint.longer(instance, op)
        self.end[op] = start + took + longer
        if alone is None:
            interval = model.new_fixed_size_interval_var(start, took, f"i{op}")
        else:
            interval = model.new_optional_fixed_size_interval_var(start, took, alone, f"i{op}")
        self.intervals.setdefault(instance.device(op.stage, op.microbatch), []).append(interval)

    def _add_joint_intervals(self, model: cp_model.CpModel, instance: Instance) -> None:
        joint = self.joint
        fused = [
            (b, instance.duration_of(b._replace(kind=OpKind.BW)), literal)
            for b, literal in joint.fused.items()
        ]
        paired = [(f, together(instance, f, b), literal) for (f, b), literal in joint.pairs.items()]
        for op, took, literal in (*fused, *paired):
            interval = model.new_optional_fixed_size_interval_var(self.start[op], took, literal, f"j{op}")
            self.intervals[instance.device(op.stage, op.microbatch)].append(interval)


def together(instance: Instance, forward: Operation, backward: Operation) -> int:
    """Return the ticks of an F and a backward that run as a pair."""
    device = instance.device(forward.stage, forward.microbatch)
    ticks = instance.together(device, forward.stage, backward.stage)
    assert ticks is not None
    return ticks


def _links(instance: Instance) -> list[list[Operation]]:
    """Return the sending operations of each directed link on which a message may have to wait.

    It may if an operation is shorter than the link occupancy, alone or fused, or if two run as a pair, whose
    messages leave together.
    """
    found: dict[tuple[int, ...], list[Operation]] = {}
    for op in operations_of(instance):
        after = receiver(instance, op)
        if after is not None:
            link = tuple(instance.device(one.stage, op.microbatch) for one in (op, after))
            found.setdefault(link, []).append(op)
    busy = instance.costs.link_occupancy
    return [
        ops
        for ops in found.values()
        if (busy and instance.has_pairs and len({op.kind for op in ops}) > 1)
        or any(_shortest(instance, op) < busy for op in ops)
    ]


def _shortest(instance: Instance, op: Operation) -> int:
    """Return the least ticks of an operation: alone, or of a B fused with its W."""
    alone = instance.duration_of(op)
    fuses = op.kind is OpKind.B and instance.duration_of(op._replace(kind=OpKind.W)) > 0
    return min(alone, instance.duration_of(op._replace(kind=OpKind.BW))) if fuses else alone
