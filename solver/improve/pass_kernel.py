"""A move of annealing where microbatches differ: one passes another on several devices at once, compiled.

A short microbatch that waits behind a long one gains little if it passes on one device, because it is then
late on the next one. So a move lets it pass at a range of visits (`words.Visits`), from one on or up to one.
All times are computed again, since the words of most devices change.
"""

from __future__ import annotations

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled
from tightpipe.model.operation import FUSED, PAIRED, SINGLE

from .engines_kernel import in_sequence
from .paths_kernel import compute_all, cost_of, load_mirror, set_ticks
from .positions_kernel import allowed, relabel
from .random_kernel import GeneratorState, draw
from .words import EventGraph, Words

_NEAR = 4  # how many items of a visit a move may let an item pass there


@compiled
def let_pass(
    graph: EventGraph,
    words: Words,
    mirror_graph: EventGraph,
    mirror: Words,
    random: GeneratorState,
    cost: int,
    enough: float,
) -> int:
    """Let a random microbatch pass another unless the cost would then exceed `enough`; return the cost.

    At each visit of a range where the first one runs before the second, the two change places, and so do
    their W's; or the first one moves right behind the second.
    """
    i = int(draw(random) * len(words.item))
    visit = graph.visits.visit[words.item[i]]
    j = _behind(graph, words, i, 1 + int(draw(random) * draw(random) * _NEAR)) if visit >= 0 else -1
    if j < 0:
        return cost
    first, last = _range(random, visit, len(graph.visits.item))
    for k in range(len(words.item)):
        words.kept[0, k], words.kept[1, k], words.kept[2, k] = words.item[k], words.end[k], words.sent[k]
    before, behind = graph.visits.microbatch[words.item[i]], graph.visits.microbatch[words.item[j]]
    exchange = graph.joint or draw(random) < 0.5
    if _change(graph, words, before, behind, first, last, exchange) and compute_all(graph, words):
        new = cost_of(graph, words)
        if new <= enough:
            load_mirror(graph, words, mirror_graph, mirror)
            return new
    for k in range(len(words.item)):
        words.item[k], words.end[k], words.sent[k] = words.kept[0, k], words.kept[1, k], words.kept[2, k]
        words.place[words.item[k]] = k
    if graph.joint:
        set_ticks(graph, words, 0, len(words.item) - 1)
    return cost


@compiled
def _behind(graph: EventGraph, words: Words, i: int, places: int) -> int:
    """Return where the item stands that is so many places behind among those of its visit; -1 if none."""
    visit = graph.visits.visit[words.item[i]]
    for j in range(i + 1, graph.highest[i] + 1):
        if graph.visits.visit[words.item[j]] == visit:
            places -= 1
            if places == 0:
                return j
    return -1


@compiled
def _range(random: GeneratorState, visit: int, visits: int) -> tuple[int, int]:
    """Return the first and the last visit of a random range that begins or ends with `visit`."""
    whole, rest = draw(random) < 0.5, draw(random)
    if draw(random) < 0.5:
        return visit, visits - 1 if whole else visit + int(rest * (visits - visit))
    return 0 if whole else int(rest * (visit + 1)), visit


@compiled
def _change(
    graph: EventGraph, words: Words, before: int, behind: int, first: int, last: int, exchange: bool
) -> bool:
    """Let one microbatch pass another at a range of visits; return whether the words may then run."""
    low, high, visits = words.wanted, words.head, graph.visits
    for device in range(len(low)):
        low[device], high[device] = len(words.item), -1
    for visit in range(first, last + 1):
        x, y = visits.item[visit, before], visits.item[visit, behind]
        if x < 0 or y < 0 or graph.arrays.items[x].home != graph.arrays.items[y].home:
            continue
        device, i, j = graph.arrays.items[x].home, words.place[x], words.place[y]
        if not _may_pass(graph, words, i, j):
            continue
        _put(words, i, j, exchange)
        low[device], high[device] = min(low[device], i), max(high[device], j)
        if not exchange:
            continue
        fused = words.joined[i] == FUSED
        if fused:
            i, j = i + 1, j + 1
        else:
            v, w = visits.weight[visit, before], visits.weight[visit, behind]
            i, j = (words.place[v], words.place[w]) if v >= 0 and w >= 0 else (0, -1)
        if fused or (j >= 0 and _may_pass(graph, words, i, j)):
            _put(words, i, j, True)
            low[device], high[device] = min(low[device], i), max(high[device], j)
    return _settle(graph, words, low, high)


@compiled
def _settle(graph: EventGraph, words: Words, low: Ints, high: Ints) -> bool:
    """Return whether something has changed, and the words may run, after the changes of each device."""
    changed = False
    for device in range(len(low)):
        if high[device] >= 0:
            if not allowed(graph, words, device, graph.offsets[device + 1] - 1):
                return False
            relabel(graph, words, low[device], high[device])
            if graph.copies and not in_sequence(graph, words, device, low[device], high[device]):
                return False
            changed = True
    return changed


@compiled
def _may_pass(graph: EventGraph, words: Words, i: int, j: int) -> bool:
    """Return whether the items at two positions may change places: the first one there must run first.

    Items that run together with others may not, unless both are B's, each with its W.
    """
    may = i < j and graph.lowest[i] == graph.lowest[j] and words.joined[i] == words.joined[j] != PAIRED
    for k in (i, j):
        may = may and (k == graph.lowest[k] or words.joined[k - 1] == SINGLE)
    return bool(may)


@compiled
def _put(words: Words, i: int, j: int, exchange: bool) -> None:
    """Exchange the items at positions `i` < `j`, or move the first one behind the second."""
    moved = words.item[i]
    if exchange:
        words.item[i] = words.item[j]
        words.place[words.item[i]] = i
    else:
        for k in range(i, j):
            words.item[k] = words.item[k + 1]
            words.place[words.item[k]] = k
    words.item[j] = moved
    words.place[moved] = j
