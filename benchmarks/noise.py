"""Measure how noise changes the costs of schedules.

``python benchmarks/noise.py`` writes results/noise.csv and docs/pictures/noise.png.
For each setting and each coefficient of variation of jitter there is one line per schedule: 1F1B on a linear
placement, and on a V placement V-ZB, V-Half and the method `best`. Both placements have the same model, with
the same work for each device. The memory limit of all schedules is the peak of 1F1B; the column `memory` has
the peak of a schedule divided by that limit.

The script writes all lines of a setting at once, and the same command continues a run that was interrupted;
``--extend`` keeps the settings of a finished one, too. ``--speed`` prints how long 1,000 samples take.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

from growing_table import CONDITIONS, append, conditions, lines_of, open_tables, run_script
from matplotlib.figure import Figure

from tightpipe import Instance, Schedule, solve
from tightpipe.drawing import palette
from tightpipe.drawing.style import draw_points, legend, marker_look, nested_sizes, panels
from tightpipe.kernels.compiled import ensure_compiled
from tightpipe.model.metrics import cost, peak_memory
from tightpipe.noise import Jitter, Noisy, run_noisy
from tightpipe.settings.instances import load_settings

ROOT = Path(__file__).parents[1]
RESULTS, PICTURE = ROOT / "results/noise.csv", ROOT / "docs/pictures/noise.png"
SETTINGS = ("1.5B-8x32", "6.2B-16x48", "14.6B-24x72")
JITTER = (0.05, 0.1, 0.2)
SEED = 9  # of the noise; searches have the default
COLUMNS = (
    *("setting", "jitter", "schedule", "memory", "planned", "mean", "deviation", "p95", "worst", "busy"),
    *("time_limit", "samples", "seed", *CONDITIONS),
)
"""The columns of results/noise.csv.

The columns from `planned` to `busy` are times, divided by the largest planned work of a device. So a cost of
1 is that of a schedule without any bubble. `time_limit` is that of each search, in seconds on all cores.
"""
_SPEED = ((8, 32), (32, 256))


def scheduled(instance: Instance, method: str, seconds: float | None = None) -> Schedule:
    """Return the schedule of a method; `seconds` is the time limit of a search."""
    schedule = solve(instance, method, time_limit=seconds).schedule
    assert schedule is not None, method
    return schedule


def measure(name: str, seconds: float, samples: int) -> Iterator[dict[str, object]]:
    """Yield all lines of a setting.

    `seconds` is the time limit of each search, `samples` the number of sampled runs of each schedule.
    """
    setting = load_settings()[name]
    linear, wide = setting.instance(placement="linear"), setting.instance()
    plain = {method: scheduled(wide, method, seconds) for method in ("v-zb", "v-half", "best")}
    one = scheduled(linear, "1f1b")
    for variation in JITTER:
        models = (Jitter(variation),)
        drawn = {"models": models, "samples": samples, "seed": SEED}
        runs = dict(zip(plain, run_noisy(list(plain.values()), **drawn), strict=True))
        runs = {"1f1b": run_noisy([one], **drawn)[0], **runs}
        for schedule, noisy in runs.items():
            yield {
                **{"setting": name, "jitter": variation, "schedule": schedule, **_figures(noisy, one)},
                **{"time_limit": seconds, "samples": samples, "seed": SEED, **conditions()},
            }


def _figures(noisy: Noisy, one: Schedule) -> dict[str, object]:
    instance = noisy.schedule.instance
    unit = max(instance.work(device) for device in range(instance.devices))
    found = noisy.distribution
    ticks = {key: getattr(found, key) for key in ("mean", "deviation", "p95", "worst")}
    costs = {"planned": cost(noisy.schedule), **ticks, "busy": float(noisy.busy.mean())}
    memory = peak_memory(noisy.schedule).max() / peak_memory(one).max()
    shares = {key: f"{ticks / unit:.4f}" for key, ticks in costs.items()}
    return {"memory": f"{memory:.2f}", **shares}


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Draw the 95th percentile of each schedule's cost against jitter, with one panel for each setting.

    At jitter 0 stands the planned cost.
    """

    def figure() -> Figure:
        drawn, axes = panels(list(dict.fromkeys(row["setting"] for row in rows)))
        names = list(dict.fromkeys(row["schedule"] for row in rows))
        looks = palette.series(names)
        handles = {}
        for panel in axes:
            for name, size in zip(names, nested_sizes(len(names)), strict=True):
                mine = [r for r in rows if (r["setting"], r["schedule"]) == (panel.get_title(), name)]
                x = [0.0, *(float(row["jitter"]) for row in mine)]
                y = [float(mine[0]["planned"]), *(float(row["p95"]) for row in mine)]
                (handles[name],) = panel.plot(
                    x, y, label=name, linewidth=0.8, **marker_look(looks[name], size)
                )
            panel.set_xticks([0.0, *JITTER], ["0 %", *(f"{100 * v:g} %" for v in JITTER)])
            panel.set_xlabel("jitter; at 0 % the planned cost")
        axes[0].set_ylabel("95th percentile of cost / planned work")
        legend(drawn, list(handles.values()))
        return drawn

    draw_points(rows, path, figure)


def print_speed() -> None:
    """Print how long 1,000 samples of jitter take on all cores."""
    ensure_compiled()
    for devices, microbatches in _SPEED:
        instance = Instance.uniform(
            devices=devices, microbatches=microbatches, forward=100, backward=110, weight=90, comm=5
        )
        schedule = scheduled(instance, "v-half")
        begun = perf_counter()
        run_noisy([schedule], (Jitter(0.1),), samples=1000)
        print(f"{devices} x {microbatches}: {perf_counter() - begun:.2f} s for 1,000 samples")


def main() -> None:
    """Measure the settings, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("results/noise"), help="path without a suffix")
    parser.add_argument("--settings", nargs="+", default=SETTINGS)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each search")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--extend", action="store_true", help="keep the settings that the file has")
    parser.add_argument("--speed", action="store_true", help="measure the simulator alone")
    arguments = parser.parse_args()
    if arguments.speed:
        print_speed()
        return
    path = arguments.output.with_suffix(".csv")
    run = (arguments.settings, arguments.seconds, arguments.samples)
    with open_tables({path: COLUMNS}, run, arguments.extend):
        done = {row["setting"] for row in lines_of(path)}
        todo = (name for name in arguments.settings if name not in done)
        groups = (measure(name, arguments.seconds, arguments.samples) for name in todo)
        for _ in append(path, COLUMNS, groups):
            pass
        draw(lines_of(path), PICTURE if path.resolve() == RESULTS else path.with_suffix(".png"))


if __name__ == "__main__":
    run_script(main)
