"""Every schedule family on one page: 4 devices, 8 microbatches, the same model for all."""

from __future__ import annotations

from pathlib import Path

from .. import drawing
from ..core.instance import Instance, Memory
from ..core.schedule import Schedule
from ..solving.methods import METHODS
from ..solving.solve import solve

DEVICES, MICROBATCHES = 4, 8
_FACTORS = {"zb-auto": (1, 2), "list": (2, 4), "greedy-v": (2,)}  # 2p in the V is the memory of 1F1B
_TICKS, _ACTIVATION = 12, 12  # F, B and W of a device's whole share of the model, and its activation


def gallery() -> list[tuple[str, Schedule]]:
    """Return a label and a schedule for every heuristic, in the order in which they are listed."""
    drawn = []
    for method in METHODS.values():
        if method.kind == "heuristic":
            placement = "v" if "v" in method.placements else method.placements[0]
            for label, limit in _limits(method.name):
                schedule = solve(_instance(placement, limit), method.name).schedule
                assert schedule is not None  # the limits are ones at which each family has a schedule
                drawn.append((label, schedule))
    return drawn


def draw_gallery(path: str | Path) -> None:
    """Draw the page; the suffix says whether as PNG, SVG or PDF.

    Raises
    ------
    InputError
        If the suffix is another, or the file cannot be written.
    """
    drawing.draw_gantt(gallery(), path=path)


def _limits(method: str) -> list[tuple[str, int | None]]:
    """Return labels and limits in p activations of a stage; some families adapt to the limit."""
    if method not in _FACTORS:
        return [(method, None)]
    return [(f"{method}, {factor}p of memory", factor) for factor in _FACTORS[method]]


def _instance(placement: str, factor: int | None) -> Instance:
    """Split each device's share of the model evenly over its stages."""
    chunks = Instance.uniform(
        devices=DEVICES, microbatches=MICROBATCHES, forward=1, backward=1, weight=1, placement=placement
    ).placement.stages_per_device
    ticks, activation = _TICKS // chunks, _ACTIVATION // chunks
    most = None if factor is None else factor * DEVICES * activation
    return Instance.uniform(
        devices=DEVICES,
        microbatches=MICROBATCHES,
        forward=ticks,
        backward=ticks,
        weight=ticks,
        placement=placement,
        memory=Memory(activation, -activation // 2, -activation // 2, most),
    )
