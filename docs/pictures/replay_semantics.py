"""A picture of what sends and receives wait for: one schedule with three semantics and two message orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tightpipe import Instance, OpKind, Schedule, solve
from tightpipe.drawing import palette, style
from tightpipe.program import MessageOrder, Semantics, lower, replay
from tightpipe.program.program import Message, Node
from tightpipe.program.replay import Replay

SEMANTICS = (Semantics.ASYNCHRONOUS, Semantics.BUFFERED, Semantics.BLOCKING)
ORDERS = (MessageOrder.EARLY_RECEIVES, MessageOrder.IN_ORDER)
_ROW = 0.3  # half of a bar's height, in rows
_WAITS = {"SEND": ("#D80100", "at a send"), "RECV": ("#0D7394", "at a receive")}
_BOTH = {OpKind.F: "F", OpKind.BW: "BW"}


def example() -> Schedule:
    """Return 1F1B on two devices and four microbatches, with messages that take 4 ticks."""
    instance = Instance.uniform(
        devices=2, microbatches=4, forward=10, backward=12, weight=8, comm=4, placement="linear"
    )
    schedule = solve(instance, "1f1b").schedule
    assert schedule is not None
    return schedule


def semantics_figure() -> Figure:
    """Return the figure with a row for each semantics and a column for each message order."""
    figure = Figure(figsize=(style.WIDTH, 4.1), layout="constrained")
    grid = figure.subplots(len(SEMANTICS), len(ORDERS), sharex=True, sharey=True)
    schedule = example()
    for row, semantics in zip(grid, SEMANTICS, strict=True):
        for axes, order in zip(row, ORDERS, strict=True):
            run = replay(lower(schedule, order=order, validation=False), semantics)
            _draw_run(axes, run, semantics)
            axes.set_title(f"{semantics}, {order}", loc="left", fontweight="bold", pad=3)
            axes.set_title(f"cost {run.cost}", loc="right", pad=3)
    for axes in grid[-1]:
        axes.set_xlabel("time (ticks)", labelpad=2)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=5)
    return figure


class _Step(NamedTuple):
    node: Node
    start: int
    end: int


def _steps(run: Replay) -> Iterator[_Step]:
    for nodes, starts, ends in zip(run.program.devices, run.start, run.end, strict=True):
        yield from map(_Step, nodes, starts, ends)


def _draw_run(axes: Axes, run: Replay, semantics: Semantics) -> None:
    axes.set_ylim(1.5, -0.5)
    axes.set_yticks([0, 1], ["device 0", "device 1"])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    for step in _steps(run):
        if step.node.type.is_compute:
            _draw_operation(axes, step)
        elif step.end > step.start:
            colour, _ = _WAITS[step.node.type.action]
            _bar(axes, step, facecolor="none", edgecolor=colour, hatch="////////")
    for message, (departs, arrives) in _transfers(run, semantics).items():
        away = _ROW if message.sender < message.receiver else -_ROW
        ends = (message.sender + away, message.receiver - away)
        axes.annotate(
            "", (arrives, ends[1]), (departs, ends[0]), arrowprops={"arrowstyle": "->", "linewidth": 0.7}
        )


def _draw_operation(axes: Axes, step: _Step) -> None:
    kind = step.node.operation.kind
    colour = palette.shade(kind, 0, 1)
    _bar(axes, step, facecolor=colour, edgecolor=palette.PAPER)
    middle, text = (step.start + step.end) / 2, f"{_BOTH[kind]}{step.node.microbatch}"
    look = {"color": palette.text_colour(colour), "fontsize": style.SMALLEST_NAMED + 0.7}
    axes.text(middle, step.node.device, text, ha="center", va="center_baseline", **look)


def _bar(axes: Axes, step: _Step, **look: object) -> None:
    axes.barh(step.node.device, step.end - step.start, 2 * _ROW, left=step.start, linewidth=0.5, **look)


def _transfers(run: Replay, semantics: Semantics) -> dict[Message, tuple[int, int]]:
    """Return when each message leaves and arrives.

    With buffered semantics a message leaves when it is sent, otherwise when its receive is issued as well.
    """
    issued: dict[Message, list[int]] = {}
    for step in _steps(run):
        if step.node.type.action == "SEND" or (
            step.node.type.action == "RECV" and semantics is not Semantics.BUFFERED
        ):
            issued.setdefault(step.node.message, []).append(step.start)
    comm = run.program.instance.comm
    return {
        message: (max(times), max(times) + comm(message.sender, message.receiver))
        for message, times in issued.items()
    }


def _legend() -> list[Patch]:
    kinds = [Patch(facecolor=palette.shade(kind, 0, 1), label=name) for kind, name in _BOTH.items()]
    waits = [
        Patch(facecolor="none", edgecolor=colour, hatch="////////", label=f"the device stands still {where}")
        for colour, where in _WAITS.values()
    ]
    return [*kinds, *waits, Patch(facecolor="none", label="→ a message")]
