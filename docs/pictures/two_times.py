"""The picture of the bound named `two times`: a greedy V-schedule, cut at the two times of its proof."""

from __future__ import annotations

from matplotlib.figure import Figure

from tightpipe import Instance, Memory, solve
from tightpipe.drawing.gantt import gantt_figure
from tightpipe.explain.two_times_proof import prove_by_two_times
from tightpipe.model.metrics import cost

_CUT = {"color": "black", "linewidth": 1.1, "linestyle": (0, (4, 2)), "zorder": 5}


def two_times_figure() -> Figure:
    """Return the chart of a schedule that meets the bound, with both times, and the work before and after."""
    instance = Instance.uniform(
        devices=4, microbatches=8, forward=14, backward=12, weight=8, comm=2, memory=Memory(10, -6, -4, 80)
    )
    schedule = solve(instance, "greedy-v").schedule
    assert schedule is not None
    times = prove_by_two_times(instance).times
    assert cost(schedule) == times.cost, "the picture is to show a schedule that meets the bound"
    begin = int(schedule.start[schedule.order.rows(times.frame)].min())
    first, second = begin + times.first_backward, begin + times.cost - times.after_last_forward
    figure = gantt_figure([("greedy V-schedule", schedule)])
    axes = figure.axes[0]
    for tick, name in ((first, "t₁"), (second, "t₂")):
        axes.axvline(tick, **_CUT)
        axes.annotate(name, (tick, 1), (0, 2), ("data", "axes fraction"), "offset points", ha="center")
    between = times.work - times.before - times.held
    parts = (
        (begin, first, f"F's: at most {times.before}"),
        (first, second, f"work of device {times.worker}   the rest: {between}"),
        (second, begin + times.cost, f"B's and W's: at most {times.held}"),
    )
    axes.set_xlabel("")  # its place is taken by the texts on the three parts
    for left, right, text in parts:
        place = ((left + right) / 2, 0)
        axes.annotate(text, place, (0, -25), ("data", "axes fraction"), "offset points", ha="center")
    return figure
