"""The literals of the lattice model: open orders of items, and which items run jointly."""

from __future__ import annotations

from typing import NamedTuple

from ortools.sat.python import cp_model

from tightpipe.model.operation import OpKind

from ..queues import Queues
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
