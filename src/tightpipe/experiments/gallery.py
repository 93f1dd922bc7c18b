"""The gallery has Gantt charts of all heuristics and of repeating blocks, for the same model and devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tightpipe.heuristics import HEURISTICS

from .. import drawing
from ..base.errors import InputError, NoScheduleError
from ..base.sources import engine_version
from ..drawing.style import check_target
from ..model.costs import Memory
from ..model.instance import Instance
from ..model.schedule import Schedule
from ..registry.methods import Method, all_methods, find_method, is_heuristic
from ..registry.solve import solve

DEVICES, MICROBATCHES = 4, 8
# memory limits in multiples of p activations of a stage; in the V, 2 p of these are the memory of 1F1B
_FACTORS = {"zb-auto": (1, 2), "list": (2, 4), "due-date": (3,), "greedy-v": (2,), "block": (1, 1.25)}
_BLOCK = "block"  # the only method of the gallery that searches; its search ends within seconds here
_EFFORT = 20.0  # effort of this search in counted seconds, so that every run draws the same picture
# for a device's whole share of the model: ticks of each of F, B and W, and memory that an F adds
_TICKS, _ACTIVATION = 12, 12


def gallery(only: Sequence[str] | None = None) -> list[tuple[str, Schedule]]:
    """Return pairs of a label and a schedule: one pair for each method and each memory limit shown for it.

    The methods are heuristics, and the method ``block``, which finds schedules of repeating blocks. Raise an
    InputError if a name is neither that of a heuristic nor ``block``. Raise a NoScheduleError if a heuristic
    that is not tightpipe's own has no schedule for the gallery's instance.

    - `only`: names of heuristics, or ``module:function`` for one of your own, and ``block``, in the sequence
      in which they are drawn. None stands for all of `HEURISTICS` in their sequence, and then ``block``.
    """
    names = [*HEURISTICS, _BLOCK] if only is None else [_family(name) for name in only]
    return [pair for name in names for pair in _drawn(find_method(name))]


def draw_gallery(path: str | Path, only: Sequence[str] | None = None) -> None:
    """Draw the Gantt charts of `gallery`, one beneath the other, to a PNG, SVG or PDF file."""
    check_target(path)
    drawing.draw_gantt(gallery(only), path=path, engine=engine_version())


def _family(name: str) -> str:
    if (
        name != _BLOCK
        and not is_heuristic(name)
        and (":" not in name or find_method(name).kind != "heuristic")
    ):
        known = [method.name for method in all_methods().values() if method.kind == "heuristic"]
        raise InputError(f"must be heuristics, of {', '.join(known)}, or {_BLOCK}", key="only", value=name)
    return name


def _drawn(method: Method) -> Iterator[tuple[str, Schedule]]:
    placement = "v" if "v" in method.placements else method.placements[0]
    for label, limit in _limits(method.name):
        # without a warm start: else V-Min's schedule, where it is optimal, would be drawn as the block's
        instance = _instance(placement, limit)
        result = solve(
            instance,
            method.name,
            effort=None if method.kind == "heuristic" else _EFFORT,
            workers=1,
            warm_start=None,
        )
        if result.schedule is None:  # cannot happen with tightpipe's own heuristics
            raise NoScheduleError(f"{method.name}: {result.reason}")
        yield label, result.schedule


def _limits(method: str) -> list[tuple[str, float | None]]:
    """Return a label and a memory limit for each chart of a method: one chart per limit in `_FACTORS`.

    A limit is a multiple of p activations of a stage, p being the number of devices. A method that is not in
    `_FACTORS` has one chart without a limit, which is None.
    """
    if method not in _FACTORS:
        return [(method, None)]
    return [(f"{method}, {factor}p of memory", factor) for factor in _FACTORS[method]]


def _instance(placement: str, factor: float | None) -> Instance:
    """Return an instance in which each device's share of the model is split evenly over its stages.

    The memory limit of a device is `factor` times p activations of a stage; None is no limit.
    """
    chunks = Instance.uniform(
        devices=DEVICES, microbatches=MICROBATCHES, forward=1, backward=1, weight=1, placement=placement
    ).placement.stages_per_device
    ticks, activation = _TICKS // chunks, _ACTIVATION // chunks
    most = None if factor is None else int(factor * DEVICES * activation)
    return Instance.uniform(
        devices=DEVICES,
        microbatches=MICROBATCHES,
        forward=ticks,
        backward=ticks,
        weight=ticks,
        placement=placement,
        memory=Memory(activation, -activation // 2, -activation // 2, most),
    )
