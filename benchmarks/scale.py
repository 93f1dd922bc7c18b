"""Measure what schedules of growing size cost: processor time for each operation, and memory.

``python benchmarks/scale.py`` writes results/scale.csv, with a line for each size and each task, and the
table results/scale.md. The costs are those of the setting 28.3B-32x256, with stages that differ by up to
10 %, in a V placement with memory for 2p activations. Each line has a process of its own, whose compiled
loops are loaded before the clock starts. The same command continues a run that was interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from growing_table import CONDITIONS, conditions, conditions_text, fill, open_tables, run_script

from tightpipe import Instance, Schedule, retime, simulate, solve, validate
from tightpipe.base.files import write_text
from tightpipe.base.tables import markdown_text
from tightpipe.explain import explain
from tightpipe.heuristics.greedy_v import greedy_v_order
from tightpipe.heuristics.list_schedule import list_order
from tightpipe.kernels.compiled import ensure_compiled
from tightpipe.settings.instances import load_settings

TABLE = Path(__file__).parents[1] / "results/scale.csv"
SIZES = ((8, 64), (16, 128), (32, 256), (64, 512), (128, 1024))
"""Devices and microbatches: each size has four times as many operations as the one before."""
SEARCH = "improve"
COLUMNS = (
    *("devices", "microbatches", "operations", "task", "seconds", "wall", "megabytes"),
    *("time_limit", "start", "cost", "bound", *CONDITIONS),
)
"""The columns of results/scale.csv.

`seconds` are of processor time, `megabytes` the peak memory of the process. From `time_limit` on, what only a
search has: its limit, the first and the last cost in ticks, and the bound.
"""
_SETTING = "28.3B-32x256"
_UNEVEN = 11  # stages take 95 to 105 % of the setting's times, in a pattern that repeats


def instance_of(devices: int, microbatches: int) -> Instance:
    """Return the setting on so many devices, with stages that differ and memory for 2p activations."""
    scaled = replace(load_settings()[_SETTING], devices=devices, microbatches=microbatches)
    percent = [95 + 7 * stage % _UNEVEN for stage in range(2 * devices)]
    times: dict[str, Any] = {
        key: [getattr(scaled, key) * share // 100 for share in percent]
        for key in ("forward", "backward", "weight")
    }
    return Instance.uniform(
        devices=devices, microbatches=microbatches, comm=scaled.comm, memory=scaled.memory(0), **times
    )


TASKS: Mapping[str, Callable[[Schedule], object]] = {
    "greedy-v": lambda schedule: greedy_v_order(schedule.instance),
    "list": lambda schedule: list_order(schedule.instance),
    "simulate": lambda schedule: simulate(schedule.instance, schedule.order),
    "retime": lambda schedule: retime(schedule.instance, schedule.order),
    "validate": lambda schedule: validate(schedule.instance, schedule),
    "explain": explain,
}
"""What is measured without a search, for a schedule of the greedy."""


def _improve(instance: Instance, time_limit: float) -> dict[str, object]:
    """Return the columns of a search on one thread."""
    result = solve(instance, SEARCH, time_limit=time_limit, workers=1)
    first = next(entry.cost for entry in result.log if entry.cost is not None)
    return {"time_limit": time_limit, "start": first, "cost": result.cost, "bound": result.bound}


def measured(time_limit: float, place: tuple[int, int, str]) -> dict[str, Any]:
    """Return the line of one size and one task; a search has `time_limit` seconds."""
    devices, microbatches, task = place
    instance = instance_of(devices, microbatches)
    ensure_compiled()
    if task == SEARCH:
        run: Callable[[], object] = partial(_improve, instance, time_limit)
    else:
        run = partial(TASKS[task], simulate(instance, greedy_v_order(instance)))
    wall, begun = perf_counter(), process_time()
    found = run()
    seconds, wall = process_time() - begun, perf_counter() - wall
    return {
        **{"devices": devices, "microbatches": microbatches},
        **{"operations": 3 * instance.stages * microbatches, "task": task},
        **{"seconds": f"{seconds:.4f}", "wall": f"{wall:.2f}", "megabytes": _peak()},
        **(found if isinstance(found, dict) else {}),
        **conditions(),
    }


def _peak() -> int:
    """Return the peak memory of this process so far, in MB."""
    import resource  # not on Windows, where the module is imported by a test

    unit = 1 if sys.platform == "darwin" else 1024  # bytes of the system's number
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 1_000_000


def _key(line: Mapping[str, str]) -> tuple[int, int, str]:
    return int(line["devices"]), int(line["microbatches"]), line["task"]


def table(lines: Sequence[Mapping[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the table: a row for each size, a column for each task."""
    found = {_key(line): line for line in lines}
    sizes = list(dict.fromkeys(key[:2] for key in found))
    head = ["size", "operations", *TASKS, "memory", f"{SEARCH}: gap before", "after", "time"]
    rows = []
    for p, n in sizes:
        mine = {task: found[p, n, task] for task in (*TASKS, SEARCH)}
        search, count = mine[SEARCH], int(mine[SEARCH]["operations"])
        most = max(int(line["megabytes"]) for line in mine.values())
        gaps = [f"{1 - int(search['bound']) / int(search[key]):.2%}" for key in ("start", "cost")]
        each = [_cost(float(mine[task]["seconds"]), count) for task in TASKS]
        rows.append([f"{p}x{n}", f"{count:,}", *each, f"{most} MB", *gaps, f"{float(search['wall']):.1f} s"])
    return head, rows


def _cost(seconds: float, operations: int) -> str:
    return f"{seconds:.2f} s, {seconds / operations * 1e6:.2g}"


def page(lines: Sequence[Mapping[str, str]]) -> str:
    """Return the table in Markdown, and how it was measured."""
    head, rows = table(lines)
    limits = {f"{float(line['time_limit']):g}" for line in lines if line["time_limit"]}
    said = (
        "Processor seconds, and microseconds for each operation. Memory: the largest peak of all processes "
        f"of a row. The search had {' and '.join(sorted(limits))} s and one thread; its time is wall time."
    )
    return f"{markdown_text(head, rows, head)}\n\n{said}\n\n{conditions_text(lines)}.\n"


def main() -> None:
    """Measure what the table lacks, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds of each search")
    parser.add_argument("--largest", type=int, default=128, help="most devices")
    parser.add_argument("--extend", action="store_true", help="keep the lines of a finished run")
    parser.add_argument("-o", "--output", type=Path, default=TABLE)
    asked = parser.parse_args()
    sizes = [size for size in SIZES if size[0] <= asked.largest]
    places = [(*size, task) for size, task in product(sizes, (*TASKS, SEARCH))]
    ensure_compiled()
    with open_tables({asked.output: COLUMNS}, (asked.time_limit, asked.largest), asked.extend):
        line_of = partial(measured, asked.time_limit)
        lines = fill(asked.output, COLUMNS, places, _key, line_of, 1, lines_of_a_process=1)
    text = page(lines)
    write_text(asked.output.with_suffix(".md"), text)
    print(text, end="")


if __name__ == "__main__":
    run_script(main)
