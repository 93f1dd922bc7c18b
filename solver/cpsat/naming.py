"""The names of units in the plain model, where copies make first in, first out a restriction.

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

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise, product

from ortools.sat.python import cp_model

from tightpipe.model.instance import Instance
from tightpipe.model.operation import COPIES, Operation, OpKind

from .plain_variables import Variables, gradient_at

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
