"""The variables of the plain model: starts and intervals of operations, which run as one, and their names.

Where copies make first in, first out a restriction, variables also say how units are *named*.

Units of a class run the same operations, and a schedule stays one if two of them swap their names at some
of their *stations*, as long as nothing begins too early. Stations are the F's and the backwards of all
stages, in the sequence in which a unit passes them; a W goes with its backward. Let two units swap their
names at all stations at which the one with the higher number comes first. Between neighbouring stations that
is fine: the first at one is then the first at the next, or nothing has changed (`tightpipe.model.graph`).
But copies tie the F of a unit to its backward at the same stage. Where one of these two has been swapped,
one unit, the *outer* one, ran its F first and its backward last. Now the first F has the first backward.

- If both units have copies there, the first copy out and the first copy back go with the first F, and the
  others with the second. Each copy back still follows its copy out: the first one follows a copy out, and so
  the first; and a copy back follows the last copy out, and so the last one does.
- If none has copies, or the inner unit alone, whose copies lie between the second F and the first backward,
  nothing else changes.
- If the outer unit alone has copies, they fit the second F and the last backward if O starts no earlier than
  the second F ends. They fit the first F and the first backward if L ends before the latter starts. If
  neither is so, the two units are *entangled* at the stage.

Take the names, of all in a cheapest schedule, with the fewest *inversions*: stations and pairs of units at
which the higher number comes first. A swap as above removes inversions at each station that it changes. So
it is impossible, or there is none: two units of a class run in sequence at all stations, or they are
entangled at some stage. Where they run in sequence, so do the copies that both have, by the first case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise, product

from ortools.sat.python import cp_model

from tightpipe.model.graph import graph_of
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
        self.links = list(_links(instance))
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


def _links(instance: Instance) -> Iterator[list[Operation]]:
    """Yield the sending operations of each directed link on which a message may have to wait."""
    graph = graph_of(instance)
    for link in graph.links:
        senders = {(graph.nodes[v].kind, graph.nodes[v].stage, graph.nodes[v].mb_class) for v, *_ in link}
        yield [
            op
            for op in operations_of(instance)
            if (op.kind, op.stage, instance.mb_class(op.microbatch)) in senders
        ]


_Turn = cp_model.LiteralT


@dataclass
class Naming:
    """Adds constraints on the names of the units of each class, of which some cheapest schedule keeps all.

    - `model`: the CP-SAT model that receives them.
    - `variables`: its variables, of which `turns` are added: whether the first of two operations runs first.
    """

    model: cp_model.CpModel
    instance: Instance
    variables: Variables

    @cached_property
    def first(self) -> int:
        """The first stage from which something may leave; 0 where microbatches are cut into slices."""
        offloading = (s for s in range(self.instance.stages) if self.instance.offloads(s))
        return next(offloading) if self._whole else 0

    @property
    def _whole(self) -> bool:
        return self.instance.slice_count == 1

    def add(self) -> None:
        """Add all constraints.

        Nothing but the sequence of its operations ties the F's of a unit up to stage `first`, its B's before
        that stage, and its W's to the others. So units may be named by the sequence of their F's at that
        stage; then the k-th F of an earlier stage may belong to the k-th F there, the k-th B of an earlier
        stage to the k-th B there, and the k-th single W of any stage to the k-th single B of its stage. Swaps
        of names, as above, leave that so. Where microbatches are cut into slices, only the first F of each
        names it, W's follow B's, and units may overtake each other anyhow.
        """
        alike: dict[int, list[int]] = {}
        for m in range(self.instance.units):
            alike.setdefault(self.instance.mb_class(m), []).append(m)
        for c, units in alike.items():
            named = range(self.first + 1) if self._whole or self.instance.class_slices[c] == 0 else ()
            for (m, n), s in product(pairwise(units), named):
                before, after = Operation(OpKind.F, s, m), Operation(OpKind.F, s, n)
                self.model.add(self.variables.start[after] >= self.variables.end[before])
            for m, n in combinations(units, 2):
                backward = self._backward_turns(m, n)
                if self._whole:
                    self._in_sequence_or_entangled(m, n, backward)

    def _backward_turns(self, m: int, n: int) -> dict[int, _Turn]:
        """Return for each stage whether the backward of unit m runs before that of n."""
        found: dict[int, _Turn] = {}
        for s in reversed(range(self.instance.stages)):
            a, b = (gradient_at(self.instance, s, unit) for unit in (m, n))
            if a is None or b is None:
                break
            found[s] = self._new_turn(a, b) if s >= self.first or not found else found[s + 1]
            self._in_turn(a, b, found[s])
        return found

    def _in_sequence_or_entangled(self, m: int, n: int, backward: dict[int, _Turn]) -> None:
        """Require that unit m runs before n at all stations, or that both are entangled at some stage."""
        sequence = self.model.new_bool_var(f"{m}<<{n}")
        forward: dict[int, _Turn] = dict.fromkeys(range(self.first + 1), True)
        for s in range(self.first + 1, self.instance.stages):
            a, b = Operation(OpKind.F, s, m), Operation(OpKind.F, s, n)
            forward[s] = self._new_turn(a, b)
            self._either_way(a, b, forward[s])
        for turn in (*forward.values(), *backward.values()):
            self.model.add_implication(sequence, turn)
        entangled: list[_Turn] = []
        for s in filter(self.instance.offloads, range(self.first, self.instance.stages)):
            entangled.append(self._entangled(s, (m, n), forward[s], backward[s]))
            if s > self.first:
                entangled.append(self._entangled(s, (n, m), _not(forward[s]), _not(backward[s])))
            self._copies_in_sequence(s, (m, n), sequence)
        self.model.add_bool_or(sequence, *entangled)

    def _entangled(self, s: int, units: tuple[int, int], forward: _Turn, backward: _Turn) -> _Turn:
        """Return a literal that implies that the first of two units is the outer one of two entangled at s.

        `forward` and `backward` say whether it runs its F, and its backward, first.
        """
        outer, inner = (Operation(OpKind.F, s, unit) for unit in units)
        v, gradient = self.variables, gradient_at(self.instance, s, units[1])
        assert gradient is not None
        literal = self.model.new_bool_var(f"{outer} around {inner}")
        for implied in (forward, _not(backward), v.copies.made[outer], ~v.copies.made[inner]):
            self.model.add_implication(literal, implied)
        out, back = (outer._replace(kind=kind) for kind in COPIES)
        self.model.add(v.copies.start[out] < v.end[inner]).only_enforce_if(literal)
        self.model.add(v.copies.end[back] > v.start[gradient]).only_enforce_if(literal)
        return literal

    def _copies_in_sequence(self, s: int, units: tuple[int, int], sequence: _Turn) -> None:
        """Require that two units that run in sequence copy in sequence if both have copies."""
        copies, (first, second) = self.variables.copies, (Operation(OpKind.F, s, unit) for unit in units)
        both = copies.made[first], copies.made[second]
        for kind in COPIES:
            ended, start = copies.end[first._replace(kind=kind)], copies.start[second._replace(kind=kind)]
            self.model.add(start >= ended).only_enforce_if(sequence, *both)

    def _in_turn(self, first: Operation, second: Operation, literal: _Turn) -> None:
        """Require that two backwards of a stage, and their single W's, run in the sequence of a literal."""
        alone = self.variables.joint.alone
        weights = first._replace(kind=OpKind.W), second._replace(kind=OpKind.W)
        self._either_way(first, second, literal)
        if first.kind is OpKind.B and weights[0] in self.variables.start:
            self._either_way(*weights, literal, *(alone[w] for w in weights if w in alone))

    def _new_turn(self, first: Operation, second: Operation) -> cp_model.IntVar:
        turn = self.variables.turns[first, second] = self.model.new_bool_var(f"{first}<{second}")
        return turn

    def _either_way(self, first: Operation, second: Operation, literal: _Turn, *when: _Turn) -> None:
        """Require that one of two operations ends before the other starts; the literal says which one."""
        v = self.variables
        for says, before, after in ((literal, first, second), (_not(literal), second, first)):
            self.model.add(v.start[after] >= v.end[before]).only_enforce_if(says, *when)


def _not(literal: _Turn) -> _Turn:
    return not literal if isinstance(literal, bool) else ~literal
