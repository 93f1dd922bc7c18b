"""The bound `away`: what a device can do while a long microbatch is on its way through the other devices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Bools, Ints
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound

from .paths import Paths, paths_of

_LONGEST = 2  # gaps of a device that are looked at
_PRICES = 5  # of memory at either end of a gap that are tried


def away_bound(instance: Instance) -> Bound:
    """Bound the cost by the time that a device must idle while one long microbatch is at later stages.

    Notes
    -----
    Take a microbatch g and a stage s of a device, the worker. The *gap* begins when F of g at s has ended and
    ends when B of g at s starts. A path of operations of g lies between: F's at the stages after s, then B's
    down to the one after s. So the gap is at least as long as this path. No operation of the worker runs
    across either end of the gap, as the worker runs F and B of g there, and it holds the memory of g all the
    time. So what the others hold at either end fits into the *room*, which is the limit less that memory.

    At another microbatch and stage, the worker has F, B and W to run, each of them before, in or after the
    gap. What runs in the gap is one of these, with the memory that it holds at the begin and at the end:

    - nothing;
    - B and W, after an F before the gap: all that F takes at the begin;
    - W alone: what W frees at the begin; or B alone, with W after the gap: both;
    - F alone: all that F takes at the end;
    - F and B, or F, B and W: what W frees at the end, or nothing.

    In the last two cases, and if the stage is s, the microbatch *passes* g: its F comes after that of g, and
    its B before that of g. So on the path of g from F at s to B at s there are two operations o and o', one
    after the other, such that the microbatch runs o after g does, and o' before g does. Say that x is one of
    those that pass g between o and o'. Let them take a and a' ticks for the two. While g waits between o and
    o', these operations all run, each on the device on which g runs it. Those that run o no later than x
    run it before x has ended o, and the others run o' after that. So g waits for at least a + a' of x and the
    smaller of a and a' of each other one. Let the *toll* of a microbatch be the least time of any of its
    operations from F at s to B at s, and its *entry* the least, over all o and o', of the larger of a and a'.
    Then the gap is longer than the path by the tolls of all that pass and the largest entry among them. A
    microbatch of another route than g has a toll and an entry of 0.

    So the worker idles in the gap for at least the path and the largest entry, less the *value* of what runs
    in the gap: its work, less tolls. Some entry is the largest one, and none that pass have a larger one. The
    bound is the least over all entries, and that no microbatch passes. The value is bounded by prices: for
    any prices of memory at the begin and at the end of the gap, it is at most the price of the room at both
    and the sum, over all other microbatches and stages, of the largest value less the price of what is held.
    Where an F does not fit into the room, only W alone may be in the gap. Operations of g at later stages of
    the worker count as work in the gap.

    There are no pairs, as the worker runs one operation at a time.
    """
    begun, work = perf_counter(), works(instance)
    value, device, path = max(work), work.index(max(work)), 0
    gaps = [] if instance.has_pairs else _gaps(instance)
    if gaps:
        gap = max(gaps, key=lambda gap: gap.others + gap.roughly_idle)
        if gap.others + gap.idle > value:
            value, device, path = gap.others + gap.idle, gap.device, gap.path
    argument = (
        f"device {device} works {work[device]} ticks, and lacks work while a microbatch is away for "
        f"{path} ticks"
    )
    return Bound(value, "away", argument, perf_counter() - begun)


class _Forms(NamedTuple):
    """Ways in which the operations of a microbatch at a stage may lie around a gap, one row per kind of both.

    The columns are the ways that the docstring of `away_bound` lists, and in the last ones it passes.
    """

    number: Ints  # (K,) how many microbatches there are
    value: Ints  # (K, 7) work in the gap, less tolls
    begin: Ints  # (K, 7) memory held at the begin of the gap
    end: Ints  # (K, 7) memory held at its end
    entry: Ints  # (K,) what passing costs once


_FORWARD = 4  # the way in which F alone is in the gap
_NEEDS_ROOM = slice(2, 7)
_STAYS, _PASSES = slice(0, 5), slice(5, 7)


@dataclass(frozen=True, slots=True)
class _Gap:
    """A gap and what may run in it.

    - `device`: the worker.
    - `path`: the least ticks of the gap.
    - `others`: ticks of the cost beside the worker's idle time in the gap: its work, and what comes before
      it.
    - `own`: work of the microbatch that is away, on the worker in the gap.
    - `room`: what others can hold at either end.
    - `forms`: everything else that the worker runs.
    """

    device: int
    path: int
    others: int
    own: int
    room: int
    forms: _Forms

    @property
    def roughly_idle(self) -> float:
        """About the least idle time of the worker in the gap, in ticks."""
        begin, end = np.array(self._prices()).T
        return float(self._least(begin, end, 1))

    @property
    def idle(self) -> int:
        """The least idle time of the worker in the gap, in ticks."""
        ratios = [[price.as_integer_ratio() for price in pair] for pair in self._prices()]
        unit = max(per for pair in ratios for _, per in pair)  # all are powers of two
        begin, end = np.array([[n * (unit // per) for n, per in pair] for pair in ratios], object).T
        return -int(-self._least(begin, end, unit) // unit)

    def _least(self, begin: Any, end: Any, unit: int) -> Any:
        """Return the least idle time at some prices in parts (`unit`) of a tick; exact for Python's ints."""
        number, value, held, kept, entry = (each.astype(begin.dtype) for each in self.forms)
        net = unit * value - begin[:, None, None] * held - end[:, None, None] * kept
        stays = net[..., _STAYS].max(axis=2)
        gain = np.maximum(0, net[..., _PASSES].max(axis=2) - stays) * number
        order = np.argsort(self.forms.entry, kind="stable")
        most = np.concatenate([(stays * number).sum(axis=1)[:, None], gain[:, order]], axis=1).cumsum(axis=1)
        most = (most + ((begin + end) * self.room)[:, None]).min(axis=0)
        entries = unit * np.concatenate([[0], entry[order]])
        return (unit * (self.path - self.own) + entries - most).min()

    def _prices(self) -> list[tuple[float, float]]:
        """Return prices at the begin and the end."""
        return list(product(_prices(self.forms, self.forms.begin), _prices(self.forms, self.forms.end)))


def _prices(forms: _Forms, held: Ints) -> list[float]:
    """Return prices for the memory at one end, at which another way may become the best one."""
    inside = forms.value[:, -1:]
    some = (forms.value / np.maximum(held, 1), np.maximum(0, forms.value - inside) / np.maximum(held, 1))
    ratio = np.unique(np.concatenate([[0.0], *(each[held > 0] for each in some)]))
    return [float(ratio[i]) for i in np.linspace(0, len(ratio) - 1, min(len(ratio), _PRICES)).astype(int)]


def _gaps(instance: Instance) -> list[_Gap]:
    """Return the longest gaps of each device."""
    paths, work, last, found = paths_of(instance), works(instance), instance.stages - 1, []
    for device in range(instance.devices):
        mb_class, stage = np.argwhere(paths.route == device).T
        at = mb_class, stage
        forms = _forms_at(instance, mb_class, stage, instance.memory_limit(device) is not None)
        f_ends = paths.start[at] + paths.forward[at]
        away = paths.start[mb_class, 2 * last + 1 - stage] - f_ends
        head = int(paths.start[at].min()) if instance.whole else 0
        for k in np.argsort(-away, kind="stable")[:_LONGEST].tolist():
            mine, later = mb_class == mb_class[k], stage > stage[k]
            own = int(forms.value[mine & later, -1].sum())
            room = (instance.memory_limit(device) or 0) - int(forms.end[mine & ~later, _FORWARD].sum())
            costs = np.where(stage == stage[k], _passing(paths, mb_class, stage, k), 0)
            others = _around(forms, mine, costs, room)
            found.append(_Gap(device, int(away[k]), head + work[device], own, room, others))
    return found


def _forms_at(instance: Instance, mb_class: Ints, stage: Ints, limited: bool) -> _Forms:
    """Return the forms of the operations of these classes and stages, around any gap and without passing."""
    pairs = list(zip(mb_class.tolist(), stage.tolist(), strict=True))
    kinds = OpKind.F, OpKind.B, OpKind.W
    f, b, w = np.array([[instance.duration(kind, s, c) for c, s in pairs] for kind in kinds])
    taken, _, freed = np.array([[instance.memory_delta(kind, s, c) for c, s in pairs] for kind in kinds])
    nothing, held, pending = np.zeros_like(f), taken * limited, -freed * limited
    value = nothing, w, b, b + w, f, f + b, f + b + w
    begin = nothing, pending, held, held, nothing, nothing, nothing
    end = nothing, nothing, pending, nothing, held, pending, nothing
    number = np.array(instance.class_counts)[mb_class]
    in_gap, before, after = (np.stack(each, axis=1) for each in (value, begin, end))
    return _Forms(number, in_gap, before, after, nothing)


def _passing(paths: Paths, mb_class: Ints, stage: Ints, k: int) -> Ints:
    """Return the toll and the entry of each row where it passes the microbatch of row k, shape (2, K)."""
    c, s = mb_class[k], stage[k]
    ticks = np.concatenate([paths.forward[:, s:], paths.backward[:, : s - 1 if s else None : -1]], axis=1)
    costs = np.stack([ticks.min(axis=1), np.maximum(ticks[:, 1:], ticks[:, :-1]).min(axis=1)])
    return np.where((paths.route == paths.route[c]).all(axis=1), costs, 0)[:, mb_class]


def _around(forms: _Forms, mine: Bools, costs: Ints, room: int) -> _Forms:
    """Return the forms of others around a gap with this room, given which of them are of the same class."""
    value, begin, end = forms.value.copy(), forms.begin.copy(), forms.end.copy()
    value[:, _PASSES] = np.maximum(0, value[:, _PASSES] - costs[0][:, None])
    too_large = forms.end[:, _FORWARD] > room
    for each in (value, begin, end):
        each[too_large, _NEEDS_ROOM] = 0
    return _Forms(forms.number - mine, value, begin, end, costs[1])
