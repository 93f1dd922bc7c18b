"""The variables of the lattice model: the starts and the ends of items, beside their literals."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from tightpipe.model.operation import FUSED, PAIRED, SINGLE, OpKind
from tightpipe.model.schedule import Order, Schedule

from ..queues import Queues, Tokens, order_of_tokens, tokens_of, turns
from ..windows import Windows
from .lattice_orders import Joint, Orders, holds


class Variables(Orders):
    """The variables of the lattice model, and linear expressions that several constraints need.

    - `start`: the start of each item.
    - `end`: when the device of each item is free again, or has gone on to the rest of a joint operation.
    - `result`: when what waits for each item may start.
    - `joint`: what runs jointly.
    - `idle`: ticks that each device may idle if a schedule costs the horizon and items take their cut times.
    - `frame`: for each device, the start of its frame, which is a variable or 0.
    - `links`: the links on which a message may have to wait, as in `Queues.links`.
    - `departure`: for each item that sends over one of the links, the time at which its message leaves.
    - `reduction`: for each device with several stages to reduce, the start of each reduction, its ticks, and
      the queues whose items come before it.
    """

    def __init__(self, model: cp_model.CpModel, queues: Queues, windows: Windows) -> None:
        super().__init__(model, queues, windows)
        self._problem, self.idle = queues, windows.arrays.idle.tolist()
        self.start = self._starts(model)
        self.joint = Joint(model, self)
        self.joint.add_starts(self.start)
        self._later: list[tuple[cp_model.IntVar, int, list[tuple[cp_model.BoolVarT, int]]]] = []
        self.end, self.result = [], []
        for i in range(self.first[-1]):
            modes = self.joint.modes.get(i, [])
            end = result = self._plus(model, i, [(mode.literal, mode.size) for mode in modes])
            if any(mode.size != mode.end for mode in modes):
                result = self._plus(model, i, [(mode.literal, mode.end) for mode in modes])
            self.end.append(end)
            self.result.append(result)
        self._open_frames: dict[int, cp_model.IntVar] = {}
        self.frame = [self._frame(model, device) for device in range(len(self.on))]
        self.links = queues.links()
        self.occupancy = queues.instance.costs.link_occupancy
        self.departure = self._departures(model)
        self.reduction = self._reductions(model)

    @property
    def decisions(self) -> list[cp_model.LinearExpr]:
        """The variables and literals from whose values `order` reads a solution."""
        return [*self.start, *self.joint.literals]

    def order(self, values: list[int]) -> Order:
        """Return the order of a solution, given the values of `decisions`."""
        joint, start, literals = self.joint, values[: self.first[-1]], values[self.first[-1] :]
        read = iter(literals)
        alone = {i: next(read) for i in joint.modes}
        fused = {b for b, value in zip(joint.fused, read, strict=False) if value}
        paired = {f: b for (f, b), value in zip(joint.pair, read, strict=True) if value}
        word, joined, offsets, turn = list[int](), list[int](), [0], turns(self._problem)
        for on in self.on:
            # start, the turn among those of that start, item, and whether it leads a joint operation
            runs: list[tuple[int, int, int, int]] = []
            for i in (i for q in on for i in self.items(q)):
                if alone.get(i, True):
                    runs.append((start[i], turn[joint.queue[i]], i, SINGLE))
                elif i in fused or i in paired:
                    runs.append((start[i], 0, i, FUSED if i in fused else PAIRED))
            for *_, i, how in sorted(runs):
                backward = paired[i] if how == PAIRED else i
                chain = [i] if how == PAIRED else []
                word += [joint.queue[j] for j in (*chain, backward)]
                joined += [PAIRED] * len(chain)
                if how != SINGLE:
                    word.append(joint.weight[joint.queue[backward]])
                    joined.append(FUSED)
                joined.append(SINGLE)
            offsets.append(len(word))
        return order_of_tokens(self._problem, Tokens(np.array(word), np.array(joined), np.array(offsets)))

    def add_hint(self, model: cp_model.CpModel, schedule: Schedule) -> None:
        """Hint the value that each variable has in a schedule whose queues run first in, first out."""
        place, start, backwards, forwards = self._items_of(schedule)
        origin = 0 if schedule.instance.barrier else self.windows.origin(start)
        start = [time - origin for time in start]
        values = self.joint.hint(backwards, forwards)
        for i, var in enumerate(self.start):
            model.add_hint(var, start[i])
        for var, i, after in self._later:
            model.add_hint(var, start[i] + next(ticks for one, ticks in after if holds(one, values)))
        self.hint_orders(model, place)
        for device, frame in self._open_frames.items():
            model.add_hint(frame, min(start[self.first[q]] for q in self.on[device]))
        for link in self.links:
            leaves = -self.windows.horizon
            sent = [(self._ends(i, start, values), i) for q, _, _ in link for i in self.items(q)]
            for end, i in sorted(sent):
                leaves = max(end, leaves + self.occupancy)
                model.add_hint(self.departure[i], leaves)
        for reductions in self.reduction.values():
            free, last = 0, {q: self.first[q + 1] - 1 for _, _, ends in reductions for q in ends}
            ready = [max(self._ends(last[q], start, values) for q in ends) for _, _, ends in reductions]
            for begin, (var, ticks, _) in sorted(zip(ready, reductions, strict=True), key=lambda one: one[0]):
                model.add_hint(var, max(begin, free))
                free = max(begin, free) + ticks

    def _reductions(self, model: cp_model.CpModel) -> dict[int, list[tuple[cp_model.IntVar, int, list[int]]]]:
        step = self._problem.instance.barrier
        if step is None:
            return {}
        found, ends = {}, self.windows.arrays.graph.queues["ends"].tolist()
        for device, on in enumerate(self.on):
            stages = sorted({ends[q] for q in on} - {-1})
            if len(stages) > 1:  # of a single one, the window of the last item knows
                found[device] = [
                    (
                        model.new_int_var(0, self.windows.horizon, f"reduce{s}.{device}"),
                        step.reduce[s],  # type: ignore[index]
                        [q for q in on if ends[q] == s],
                    )
                    for s in stages
                ]
        return found

    def _ends(self, i: int, start: list[int], values: dict[int, bool]) -> int:
        """Return when the result of an item is there, given the values of the literals."""
        alone = self.queues[self.joint.queue[i]].duration
        modes = self.joint.modes.get(i, [])
        return start[i] + next((mode.end for mode in modes if holds(mode.literal, values)), alone)

    def _items_of(self, schedule: Schedule) -> tuple[list[int], list[int], dict[int, int], dict[int, int]]:
        """Return position and start of each item, the W of each joint B, and the F of each B in a pair."""
        joint, order = self.joint, schedule.order
        word, joined, _ = tokens_of(self._problem, order)
        place = np.argsort(word, kind="stable")
        row = np.repeat(np.arange(len(order)), np.where(order.operations[:, 0] == OpKind.BW, 2, 1)).tolist()
        how, items, begin = joined.tolist(), np.argsort(place).tolist(), schedule.start.tolist()
        start, backwards, forwards = [0] * len(items), dict[int, int](), dict[int, int]()
        time, last = 0, -1  # when the item before ends, in its slot
        for t, i in enumerate(items):
            if row[t] == last or (row[t] > 0 and row[t] == last + 1 and order.pairs[last]):
                start[i] = time
            else:
                start[i] = begin[row[t]]
            size, last = self.queues[joint.queue[i]].duration, row[t]
            if how[t] == PAIRED and (items[t + 1], joint.queue[i]) in joint.paired:
                forwards[items[t + 1]], size = i, joint.cut[joint.queue[i]]
            elif how[t] == FUSED and (i in joint.fused or i in forwards):
                backwards[i] = items[t + 1]
                own = joint.paired[i, joint.queue[forwards[i]]] if i in forwards else joint.fused[i]
                size = next(mode.size for mode in joint.modes[i] if mode.literal is own)
            time = start[i] + size
        return place.tolist(), start, backwards, forwards

    def _starts(self, model: cp_model.CpModel) -> list[cp_model.IntVar]:
        """Return a variable for the start of each item; times count from the start of the anchor's frame."""
        earliest, latest = self.windows.earliest.tolist(), self.windows.latest.tolist()
        return [
            model.new_int_var(earliest[i], latest[i], f"s{q}.{i - self.first[q]}")
            for q in range(len(self.queues))
            for i in self.items(q)
        ]

    def _plus(
        self, model: cp_model.CpModel, i: int, ticks: list[tuple[cp_model.BoolVarT, int]]
    ) -> cp_model.LinearExprT:
        """Return the start of an item plus what each of its modes takes; a variable where these differ."""
        start, alone = self.start[i], self.queues[self.joint.queue[i]].duration
        least, most = (choice((t for _, t in ticks), default=alone) for choice in (min, max))
        if least == most:
            return start + least
        low, high = start.proto.domain
        var = model.new_int_var(low + least, high + most, f"after{i}")
        model.add(var >= start + least)
        for literal, t in ticks:
            if t > least:
                model.add(var >= start + t).only_enforce_if(literal)
        self._later.append((var, i, ticks))
        return var

    def _frame(self, model: cp_model.CpModel, device: int) -> cp_model.IntVar | int:
        """Return when the frame of `device` starts, in ticks or as a variable.

        For `makespan` that is 0. For `device_span` the frame starts with the first F of the device. A new
        variable is needed only if the windows leave open which queue has that F.
        """
        if not self.windows.floating:
            return 0
        heads = [q for q in self.on[device] if self.queues[q].kind is OpKind.F]
        for x in heads:
            if all(self.precedes(x, 0, y, 0) is True for y in heads if y != x):
                return self.start[self.first[x]]
        earliest, latest = (int(frames[device]) for frames in self.windows.frames)
        return self._open_frames.setdefault(device, model.new_int_var(earliest, latest, f"frame{device}"))

    def _departures(self, model: cp_model.CpModel) -> dict[int, cp_model.IntVar]:
        """Return, by sending item, a variable for the departure of each message on the links in `links`."""
        return {
            i: model.new_int_var(
                self.start[i].proto.domain[0],
                self.start[j].proto.domain[1] - lag,
                f"d{q}.{i - self.first[q]}",
            )
            for link in self.links
            for q, r, lag in link
            for i, j in zip(self.items(q), self.items(r), strict=True)
        }
