"""Draw the pictures of the documentation: ``python docs/pictures/draw.py [--into FOLDER] [NAME ...]``.

Without names all of them are drawn, except for `demo.png`, which shows measurements of one machine and needs
the page of ``make demo``. `report.png` and `demo.png` are screenshots, for which Chromium and playwright must
be there (``make test-browser`` installs both).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from replay_semantics import semantics_figure
from two_times import two_times_figure

from tightpipe import Instance, Memory, Schedule, load_schedule, measure, save_schedule, solve
from tightpipe.drawing.bubble_charts import draw_frontier
from tightpipe.drawing.gantt import gantt_figure, side_by_side_figure
from tightpipe.drawing.style import paper_style, write_figure
from tightpipe.model.schedule_file import ScheduleFile
from tightpipe.report import render, report_of_files

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORDED = ROOT / "tests/data/traces"
CHROMIUM = "/usr/bin/chromium"
DPI = 160  # 1120 pixels: sharp on a page, and small


def schedule_of(method: str, instance: Instance) -> Schedule:
    """Return the schedule of a method that has one."""
    schedule = solve(instance, method).schedule
    assert schedule is not None
    return schedule


def draw_gantt_chart(path: Path) -> None:
    """Draw 1F1B and the greedy V-schedule of one model at equal memory.

    In the V a device holds two stages, each with half of the layers.
    """
    whole, half = (
        Instance.uniform(
            devices=4,
            microbatches=8,
            forward=10 * size,
            backward=12 * size,
            weight=8 * size,
            comm=1,
            placement=placement,
            memory=Memory(2 * size, -size, -size, 16),
        )
        for size, placement in ((2, "linear"), (1, "v"))
    )
    labelled = [
        ("1F1B", schedule_of("1f1b", whole)),
        ("greedy V-schedule", schedule_of("greedy-v", half)),
    ]
    write_figure(gantt_figure(labelled, memory=True), path, DPI)


def draw_semantics(path: Path) -> None:
    """Draw one schedule, replayed with each semantics of sends and receives and each message order."""
    with paper_style():
        figure = semantics_figure()
    write_figure(figure, path, DPI)


def draw_splitting(path: Path) -> None:
    """Draw two panels of the study of what splitting a backward is worth, from its results."""
    with (ROOT / "results/splitting/discount.csv").open(newline="") as file:
        points = [
            {"panel": row["panel"].partition(", ")[2], "method": row["method"], "x": float(row["x"]), **rates}
            for row in csv.DictReader(file)
            if row["panel"].startswith("1.5B-8x24, 8 x 24")
            for rates in [{key: float(row[key]) for key in ("bubble_rate", "bound_rate")}]
        ]
    draw_frontier(points, path, x_label="discount of a fused backward / %", looser=None)


def draw_two_times(path: Path) -> None:
    """Draw a schedule that meets the bound named `two times`, cut at these times."""
    with paper_style():
        figure = two_times_figure()
    write_figure(figure, path, DPI)


def draw_measured(path: Path) -> None:
    """Draw the planned and the measured schedule of a recorded run of 1F1B."""
    plan = load_schedule(RECORDED / "1f1b-schedule.json").schedule
    figure = side_by_side_figure(plan, measure(RECORDED / "1f1b", schedule=plan).schedule)
    write_figure(figure, path, DPI)


def draw_demo(path: Path) -> None:
    """Take a screenshot of the page that ``make demo`` has made on this machine."""
    page = ROOT / "demo/report.html"
    if not page.exists():
        raise SystemExit("demo/report.html is missing: run make demo first")
    screenshot(page, path, height=1355)  # all six charts


def draw_report(path: Path) -> None:
    """Take a screenshot of the report on four schedules of the tutorial's instance."""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(render(report_of_files(_saved(Path(folder)))), encoding="utf-8")
        screenshot(page, path)


def _saved(folder: Path) -> list[tuple[str, ScheduleFile]]:
    """Save the schedule of each method in `folder`; return the path and the content of each file."""
    instance = Instance.uniform(
        devices=3,
        microbatches=6,
        forward=[612, 598, 601, 599, 600, 640],
        backward=[655, 640, 643, 641, 642, 690],
        weight=[401, 397, 399, 398, 398, 430],
        comm=35,
        memory=Memory(96, -56, -40, limit=576),
    )
    files = []
    for method in ("greedy-v", "best", "list", "v-half"):
        result = solve(instance, method, time_limit=60)
        assert result.schedule is not None
        path = str(folder / f"{method}.json")
        save_schedule(result.schedule, path, method=method, bound=result.bound)
        files.append((path, load_schedule(path)))
    return files


def screenshot(page: Path, picture: Path, height: int = 900) -> None:
    """Open a page in Chromium and take a picture of its first `height` pixels."""
    from playwright.sync_api import sync_playwright  # here, because nothing else needs it

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1200, "height": height})
        opened.goto(page.as_uri())
        opened.locator("canvas").first.wait_for()
        opened.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        opened.screenshot(path=picture)
        browser.close()


PICTURES: dict[str, Callable[[Path], None]] = {
    "demo.png": draw_demo,
    "gantt.png": draw_gantt_chart,
    "measured.png": draw_measured,
    "replay.png": draw_semantics,
    "report.png": draw_report,
    "splitting.png": draw_splitting,
    "two-times.png": draw_two_times,
}
"""The function that draws each picture, by file name."""


def main() -> None:
    """Draw the pictures that the command line names; without names, all but `demo.png`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--into", type=Path, default=HERE, metavar="FOLDER")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(PICTURES)
    if unknown:
        parser.error(f"no picture is called {', '.join(sorted(unknown))}: there are {', '.join(PICTURES)}")
    for name in arguments.names or [name for name in PICTURES if name != "demo.png"]:
        PICTURES[name](arguments.into / name)


if __name__ == "__main__":
    main()
