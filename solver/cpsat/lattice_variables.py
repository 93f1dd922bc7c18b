"""The variables of the lattice model: orders that are open, joint operations, starts and ends of items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from tightpipe.model.operation import FUSED, PAIRED, SINGLE, OpKind
from tightpipe.model.schedule import Order, Schedule

from ..queues import Queues, Tokens, order_of_tokens, tokens_of, turns
from ..windows import Windows
from ..windows.window_state_kernel import pair_times, weight_queues
from ..windows.windows import OpenOrders

Literal = cp_model.BoolVarT | bool


class Mode(NamedTuple):
    """One way for an item to run: alone, or as a part of a joint operation."""

    literal: cp_model.BoolVarT  # whether it runs so
    size: int  # ticks that it takes then
    end: int  # ticks from its start until its result is there


class Orders(OpenOrders):
    """The booleans of the orders that the windows leave open; an order that they decide needs none."""

    def __init__(self, model: cp_model.CpModel, queues: Queues, windows: Windows) -> None:
        super().__init__(queues, windows)
        self._open = {
            (x, y, k): [model.new_bool_var(f"o{x}.{k}<{y}.{rank}") for rank in self.open_ranks(i, y)]
            for x, y in self.pairs()
            for k, i in enumerate(self.items(x))
        }

    def precedes(self, x: int, k: int, y: int, rank: int) -> Literal:
        """Return the literal "item k of queue x runs before item `rank` of y", or what the windows decide."""
        if x > y:
            literal = self.precedes(y, rank, x, k)
            return (not literal) if isinstance(literal, bool) else ~literal
        ranks = self.open_ranks(self.first[x] + k, y)
        if rank < ranks.start:
            return False
        if rank >= ranks.stop:
            return True
        return self._open[x, y, k][rank - ranks.start]

    def count_before(self, x: int, k: int, y: int) -> cp_model.LinearExpr | int:
        """Return the number of items of queue y that run before the item of rank k in queue x."""
        ranks = self.open_ranks(self.first[x] + k, y)
        return ranks.start + sum(self.precedes(y, rank, x, k) for rank in ranks)

    def next_ranks(self, x: int, k: int, y: int) -> dict[int, list[cp_model.BoolVarT]]:
        """Return which items of queue y may be the next one of a device's word after an item of queue x.

        The result has the ranks in y, and for each what has to hold: the item follows, the items of y before
        it do not, and neither precedes the next item of x.
        """
        found = {}
        ranks, count = self.open_ranks(self.first[x] + k, y), len(self.items(y))
        for rank in range(ranks.start, min(ranks.stop, count - 1) + 1):
            needs = [self.precedes(x, k, y, rank)]
            if rank > 0:
                needs.append(self.precedes(y, rank - 1, x, k))
            if k + 1 < len(self.items(x)):
                needs.append(self.precedes(y, rank, x, k + 1))
            if False not in [need for need in needs if isinstance(need, bool)]:
                found[rank] = [need for need in needs if not isinstance(need, bool)]
        return found

    def hint_orders(self, model: cp_model.CpModel, place: list[int]) -> None:
        """Hint the open orders of a schedule, given the position of each item in its device's word."""
        for (x, y, k), literals in self._open.items():
            i = self.first[x] + k
            for rank, literal in zip(self.open_ranks(i, y), literals, strict=True):
                model.add_hint(literal, place[i] < place[self.first[y] + rank])


class Joint:
    """Which items run jointly: a B with the next W of its pool, and perhaps both behind an F, as a pair.

    In a joint operation a W takes its cut time (`with_cut_times`), so does an F, and the B between them
    takes the rest. So a joint operation is a sequence of items, and words, orders, memory and windows are
    those of single items. The W behind a fused B has the next rank of its pool, whatever waits there: joint
    operations take as many of the pool's W's as of its B's, and the other W's take the other B's in sequence
    (`queues`).

    - `model`: the CP-SAT model that receives the variables.
    - `orders`: the orders. Items are in one joint operation only if windows let them be neighbours.
    - `cut`: the cut time of each queue, in ticks.
    - `modes`: for each item that may be in a joint operation, its modes; in the first one it runs alone.
    - `fused`: for each B that may be fused in no pair, whether it is.
    - `paired`: for each item, and each queue with an item of which it may be in a pair, whether it is.
    - `match`: for each B and W that may be in one joint operation, whether they are.
    - `pair`: for each F and B that may be in one pair, whether they are.
    """

    def __init__(self, model: cp_model.CpModel, orders: Orders) -> None:
        graph = orders.windows.arrays.graph
        self._model, self._orders = model, orders
        self.cut: list[int] = graph.queues["duration"].tolist()
        self.queue: list[int] = graph.queue.tolist()
        self.modes: dict[int, list[Mode]] = {}
        self.fused: dict[int, cp_model.IntVar] = {}
        self.paired: dict[tuple[int, int], cp_model.IntVar] = {}
        self.match: dict[tuple[int, int], cp_model.IntVar] = {}
        self.pair: dict[tuple[int, int], cp_model.IntVar] = {}
        self._choices: dict[tuple[int, ...], list[cp_model.BoolVarT]] = {}  # one of each list is true
        ticks, fused = [queue.duration for queue in orders.queues], graph.queues["fused"].tolist()
        self.weight = weight_queues(graph)
        apart = {b: min(fused[b], ticks[b] + ticks[w]) for b, w in self.weight.items()}
        shorter = {b: fused[b] for b, w in self.weight.items() if fused[b] < ticks[b] + ticks[w]}
        pairs = {(f, b): t for (f, b), t in pair_times(graph).items() if t < ticks[f] + apart[b]}
        self._forwards = {b: [f for f, own in pairs if own == b] for _, b in pairs}
        joined = {b: self.weight[b] for b in {*shorter, *self._forwards}}
        for q in sorted({*joined, *joined.values(), *(f for f, _ in pairs)}):
            self._add_alone(q)
        for b, together in shorter.items():
            for i in orders.items(b):
                self.fused[i] = self._add_mode(i, together - self.cut[joined[b]], together)
        for (f, b), together in pairs.items():
            left = together - self.cut[f]
            for i in orders.items(f):
                self.paired[i, b] = self._add_mode(i, self.cut[f], together)
            for i in orders.items(b):
                self.paired[i, f] = self._add_mode(i, left - self.cut[joined[b]], left)
        for (i, q), literal in self.paired.items():
            self._choices[i, q] = [~literal]
        for b, w in joined.items():
            self._add_neighbours(b, w, self.match)
        for f, b in pairs:
            self._add_neighbours(f, b, self.pair)
        for choice in self._choices.values():
            model.add_exactly_one(choice)

    @property
    def literals(self) -> list[cp_model.BoolVarT]:
        """The literals whose values say what runs jointly, as `Variables.order` reads them."""
        alone = [modes[0].literal for modes in self.modes.values()]
        return [*alone, *self.fused.values(), *self.pair.values()]

    def behind(self, i: int) -> list[tuple[cp_model.IntVar, int]]:
        """Return how long before a B the F of its pair starts, with the literal that it has such a pair."""
        return [(self.paired[i, f], self.cut[f]) for f in self._forwards.get(self.queue[i], ())]

    def add_starts(self, start: list[cp_model.IntVar]) -> None:
        """Require that the items of a joint operation start one behind the other."""
        for (b, w), literal in self.match.items():
            for mode in self.modes[b][1:]:
                self._model.add(start[w] == start[b] + mode.size).only_enforce_if(literal, mode.literal)
        for (f, b), literal in self.pair.items():
            self._model.add(start[b] == start[f] + self.cut[self.queue[f]]).only_enforce_if(literal)

    def hint(self, backwards: dict[int, int], forwards: dict[int, int]) -> dict[int, bool]:
        """Hint the W of each joint B and the F of each B in a pair; return all literals' values by index."""
        pairs = {(f, b) for b, f in forwards.items()}
        partners = {(i, self.queue[j]) for f, b in pairs for i, j in ((f, b), (b, f))}
        joint = {*backwards, *backwards.values(), *forwards.values()}
        hints = [
            *((one, key in backwards.items()) for key, one in self.match.items()),
            *((one, key in pairs) for key, one in self.pair.items()),
            *((one, key in partners) for key, one in self.paired.items()),
            *((one, b in backwards and b not in forwards) for b, one in self.fused.items()),
            *((modes[0].literal, i not in joint) for i, modes in self.modes.items()),
        ]
        for literal, value in hints:
            self._model.add_hint(literal, value)
        return {literal.index: value for literal, value in hints}

    def _add_alone(self, q: int) -> None:
        ticks, is_weight = self._orders.queues[q].duration, self._orders.queues[q].kind is OpKind.W
        for i in self._orders.items(q):
            alone = self._model.new_bool_var(f"alone{i}")
            self.modes[i] = [Mode(alone, ticks, ticks)]
            self._choices[i,] = [alone]
            if is_weight:
                self.modes[i].append(Mode(~alone, self.cut[q], self.cut[q]))

    def _add_mode(self, i: int, size: int, end: int) -> cp_model.IntVar:
        literal = self._model.new_bool_var(f"joint{i}.{len(self.modes[i])}")
        self.modes[i].append(Mode(literal, size, end))
        self._choices[i,].append(literal)
        return literal

    def _add_neighbours(self, x: int, y: int, table: dict[tuple[int, int], cp_model.IntVar]) -> None:
        """Add to a table the literals of items of queue x and of queue y that run one behind the other."""
        is_weight = self._orders.queues[y].kind is OpKind.W
        for k, i in enumerate(self._orders.items(x)):
            chosen = self._choices.setdefault((i, y), [self.modes[i][0].literal])
            for rank, needs in self._orders.next_ranks(x, k, y).items():
                j = self._orders.first[y] + rank
                literal = table[i, j] = self._model.new_bool_var(f"next{i},{j}")
                chosen.append(literal)
                self._choices[(j,) if is_weight else (j, x)].append(literal)
                for need in needs:
                    self._model.add_implication(literal, need)


def holds(literal: cp_model.BoolVarT, values: dict[int, bool]) -> bool:
    """Return the value of a literal, given those of the variables by their indices."""
    return values[literal.index] if literal.index >= 0 else not values[-literal.index - 1]


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
