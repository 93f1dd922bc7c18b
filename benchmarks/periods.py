"""Measure the least periods of repeating blocks at several memory limits, and the periods of heuristics.

``python benchmarks/periods.py`` writes results/periods.csv and docs/pictures/periods.png and, when all is
measured, results/periods.md with the table of docs/blocks.md. That page explains table and picture. The costs
are those of the setting 1.5B-8x24. The CSV file has one line for each number of devices, memory limit and
number of microbatches in a block. The same command continues a run that was interrupted; ``--extend`` keeps
the lines of a finished one, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from growing_table import CONDITIONS, append, conditions, conditions_text, lines_of, open_tables, run_script
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tightpipe import Instance, Schedule, solve
from tightpipe.base.files import write_text
from tightpipe.base.tables import markdown_text
from tightpipe.drawing import palette
from tightpipe.drawing.style import WIDTH, draw_points, legend, line_look, marker_look, paper_style
from tightpipe.model.metrics import cost
from tightpipe.params.budget import Budget
from tightpipe.settings.instances import load_settings
from tightpipe.solver.blocks import Block, Shape, repeated, search_period, steady_block

ROOT = Path(__file__).parents[1]
RESULTS, PICTURE = ROOT / "results", ROOT / "docs/pictures/periods.png"
DEVICES = (4, 8, 16, 32)
MEMORY = (0.75, 1.0, 1.25, 1.5, 2.0)  # limits in p activations of a stage
COPIES = (1, 2)  # numbers of microbatches in a block, K
HEURISTICS = ("v-min", "v-half", "v-zb", "list")
COLUMNS = (
    "devices",
    "memory",
    "copies",
    "period",
    "bound",
    *HEURISTICS,
    "time_limit",
    "threads",
    *CONDITIONS,
)
_SETTING = "1.5B-8x24"


def instance_of(devices: int, memory: float, microbatches: int) -> Instance:
    """Return the setting's model on `devices` devices; the memory limit is in p activations of a stage."""
    setting = load_settings()[_SETTING]
    limit = int(memory * devices * setting.forward_memory)
    scaled = replace(setting, devices=devices, microbatches=microbatches)
    return scaled.with_times(memory=replace(setting.memory(0), limit=limit))


def work(instance: Instance) -> float:
    """Return the largest work of a device for one microbatch, in ticks."""
    return max(instance.work(device) for device in range(instance.devices)) / instance.microbatches


def own_period(instance: Instance, method: str) -> float | None:
    """Return how many ticks a further microbatch adds to a heuristic's cost, divided by `work(instance)`.

    The costs at 4p and 6p microbatches are compared. Return None if the heuristic has no schedule for one of
    these numbers.
    """
    p = instance.devices
    few, many = (_schedule(replace(instance, microbatches=n), method) for n in (4 * p, 6 * p))
    if few is None or many is None:
        return None
    return (cost(many) - cost(few)) / (2 * p) / work(instance)


def _schedule(instance: Instance, method: str) -> Schedule | None:
    return solve(instance, method).schedule


def measure(
    devices: int, memory: float, seconds: float, threads: int, known: dict[int, Block]
) -> Iterator[dict[str, object]]:
    """Yield the lines of one memory limit, one for each number of microbatches in a block.

    Periods are divided by the work of the block's microbatches. The search starts from the best known block:
    one of a heuristic's schedule, or one that was found for fewer microbatches or a smaller limit.

    Parameters
    ----------
    devices, memory
        Number of devices, p, and the memory limit in p activations of a stage.
    seconds, threads
        Time limit and threads of the search for each period.
    known
        The latest block for each number of microbatches in a block; it is updated.
    """
    instance = instance_of(devices, memory, devices)
    own = {name: own_period(instance, name) for name in HEURISTICS}
    for copies in COPIES:
        shape = Shape(instance, copies)
        starts = [*_starts(instance, copies), *_repeated(known, copies)]
        start = min(starts, key=lambda block: block.period, default=None)
        if start is not None:
            start = Block(shape, start.period, start.start)
        found = search_period(shape, Budget(threads=threads).within(seconds), start)
        known[copies], unit = found.block, copies * work(instance)
        values = {"period": found.block.period / unit, "bound": found.bound / unit, **own}
        rounded = {key: "" if value is None else f"{value:.4f}" for key, value in values.items()}
        place = {"devices": devices, "memory": memory, "copies": copies}
        yield {**place, **rounded, "time_limit": seconds, "threads": threads, **conditions()}


def _starts(instance: Instance, copies: int) -> Iterator[Block]:
    """Yield the repeating blocks in the schedules of the heuristics, where there are any."""
    for name in HEURISTICS:
        schedule = _schedule(replace(instance, microbatches=6 * instance.devices), name)
        block = None if schedule is None else steady_block(schedule, copies)
        if block is not None:
            yield block


def _repeated(known: dict[int, Block], copies: int) -> Iterator[Block]:
    return (repeated(block, copies // few) for few, block in known.items() if copies % few == 0)


def markdown(rows: list[dict[str, str]]) -> str:
    """Return the rows as the table of docs/blocks.md."""
    head = ["devices", "memory", *(f"K = {copies}" for copies in COPIES), *HEURISTICS]
    lines = []
    for devices, memory in product(DEVICES, MEMORY):
        mine = [row for row in rows if (row["devices"], row["memory"]) == (str(devices), str(memory))]
        if mine:
            periods = [_interval(row) for row in mine]
            own = [mine[0][name] or "-" for name in HEURISTICS]
            lines.append([str(devices), f"{memory}p", *periods, *own])
    return markdown_text(head, lines, head)


def _interval(row: dict[str, str]) -> str:
    proven = row["bound"] == row["period"]
    return f"{row['period']} (least)" if proven else f"{row['bound']} to {row['period']}"


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Draw periods against the memory limit, with one panel for each number of devices."""

    def figure() -> Figure:
        with paper_style():
            drawn = Figure(figsize=(WIDTH, 2.4), layout="constrained")
            panels = drawn.subplots(1, len(DEVICES), sharey=True, squeeze=False)[0]
            for panel, devices in zip(panels, DEVICES, strict=True):
                _draw_panel(panel, [row for row in rows if row["devices"] == str(devices)])
                panel.set_title(f"{devices} devices")
                panel.set_xlabel("memory limit / p activations")
            panels[0].set_ylabel("period / work")
            panels[0].set_ylim(0.98, 2.0)
            legend(drawn, panels[0].get_legend_handles_labels()[0], "outside lower center")
            return drawn

    draw_points(rows, path, figure)


def _draw_panel(panel: Axes, rows: list[dict[str, str]]) -> None:
    looks = palette.series([*map(_block, COPIES), *HEURISTICS])
    for copies in COPIES:
        look = looks[_block(copies)]
        mine = [row for row in rows if row["copies"] == str(copies)]
        limits, periods, bounds = ([float(row[key]) for row in mine] for key in ("memory", "period", "bound"))
        panel.plot(limits, periods, label=_block(copies), **line_look(look), **_marker(look))
        panel.fill_between(limits, bounds, periods, color=look.colour, alpha=0.15, lw=0)
    first = [row for row in rows if row["copies"] == str(COPIES[0])]
    for name in HEURISTICS:
        points = [(float(row["memory"]), float(row[name])) for row in first if row[name]]
        look = looks[name]
        panel.plot(*zip(*points, strict=True), label=name, **line_look(look), **_marker(look))


def _block(copies: int) -> str:
    return f"block, K = {copies}"


def _marker(look: palette.Look) -> dict[str, Any]:
    return {key: value for key, value in marker_look(look).items() if key != "color"}


def main() -> None:
    """Measure the periods, and write the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each period")
    parser.add_argument("--threads", type=int, default=1, help="searches that race")
    parser.add_argument("--extend", action="store_true", help="keep the lines that the file has")
    arguments = parser.parse_args()
    path = RESULTS / "periods.csv"
    run = (arguments.seconds, arguments.threads)
    with open_tables({path: COLUMNS}, run, arguments.extend):
        _fill(path, arguments.seconds, arguments.threads)
        rows = lines_of(path)
        draw(rows, PICTURE)
        limits = "; ".join(
            dict.fromkeys(f"{row['threads']} threads, {row['time_limit']} s per period" for row in rows)
        )
        page = f"{markdown(rows)}\n\n{limits}; {conditions_text(rows)}.\n"
        write_text(path.with_suffix(".md"), page)
    print(page, end="")


def _fill(path: Path, seconds: float, threads: int) -> None:
    """Measure the lines that the file lacks; a run that goes on does not know the blocks of earlier lines."""
    done = {(row["devices"], row["memory"]) for row in lines_of(path)}
    known: dict[int, dict[int, Block]] = {devices: {} for devices in DEVICES}
    todo = (place for place in product(DEVICES, MEMORY) if tuple(map(str, place)) not in done)
    for _ in append(path, COLUMNS, (measure(p, m, seconds, threads, known[p]) for p, m in todo)):
        pass


if __name__ == "__main__":
    run_script(main)
