"""The commands ``plot``, ``paper gallery`` and ``report``."""

from __future__ import annotations

from pathlib import Path

import click

from .. import drawing
from ..base.errors import InputError, printable
from ..base.files import STANDARD, check_writable, write_text
from ..experiments.presets import draw_gallery
from ..terminal import ProgressBar, show_json
from .common import cli, json_option, paper, summary_beside, valid_schedule


@cli.command("plot")
@click.argument("schedules", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="PICTURE",
    help="File to write: .png, .svg or .pdf; - for a PNG on standard output.",
)
@click.option("--memory", is_flag=True, help="Add the memory of each device as a second panel.")
@click.option("--text", is_flag=True, help="Draw as text on stdout, one line per device.")
@click.option("--from", "start", type=int, metavar="TICK", help="First tick to show.")
@click.option("--to", "end", type=int, metavar="TICK", help="Last tick to show.")
@click.option("--width", type=float, metavar="INCHES", help="Width of the picture. [default: 7]")
@click.option("--scale", type=click.IntRange(1), help="Ticks per character of --text.")
@json_option
def _plot(
    schedules: tuple[str, ...],
    output: str | None,
    memory: bool,
    text: bool,
    start: int | None,
    end: int | None,
    width: float | None,
    scale: int | None,
    as_json: bool,
) -> None:
    """Draw the schedule files SCHEDULES; several share one time axis.

    With --from and --to, only the time between these two ticks is drawn, as large as it fits.
    """
    if not text and output is None:
        raise InputError("give a picture with -o, or --text to draw on stdout")
    if output is None and width is not None:
        raise InputError("is that of a picture, which -o names", key="width", value=width)
    drawn = [(path, valid_schedule(path)) for path in schedules]
    window = (start, end)
    pictures = [drawing.draw_text(c.schedule, scale=scale, window=window) for _, c in drawn] if text else []
    if output is not None:
        check_writable(output)
        labels = [(content.method or printable(Path(path).stem), content.schedule) for path, content in drawn]
        bounds = [content.bound for _, content in drawn]
        drawing.draw_gantt(labels, path=output, memory=memory, bounds=bounds, window=window, width=width)
    with summary_beside(output):
        if as_json:
            show_json({"output": output, "text": pictures or None})
        elif text:
            print("\n\n".join(pictures))


@paper.command("gallery")
@click.option("-o", "--output", default="gallery.png", show_default=True, metavar="PICTURE")
@click.option(
    "--only", metavar="NAMES", help="Heuristics to draw, e.g. 1f1b,greedy-v, or block. [default: all of them]"
)
@json_option
def _gallery(output: str, only: str | None, as_json: bool) -> None:
    """Draw every schedule family at 4 devices and 8 microbatches on one page."""
    check_writable(output)
    draw_gallery(output, None if only is None else [name.strip() for name in only.split(",")])
    if as_json:
        with summary_beside(output):
            show_json({"output": output})


@cli.command("report")
@click.argument("paths", nargs=-1, required=True)
@click.option("-o", "--output", metavar="PAGE", help="HTML file to write. [default: FOLDER/report.html]")
@click.option("--no-relax", is_flag=True, help="Do not compute what weaker constraints would give.")
@json_option
def _report(paths: tuple[str, ...], output: str | None, no_relax: bool, as_json: bool) -> None:
    """Write one HTML page about the study in the folder PATHS, or about the schedule files PATHS.

    The page has a table that sorts and filters, the figures, and for each row its schedule to zoom and
    pan, beneath the heuristic's, with an explanation. It needs no network.
    """
    from ..report import render, report_of_files, report_of_study  # imported late: loads the plotting library

    for path in paths:
        if path != STANDARD and not Path(path).exists():
            raise InputError("no such file or folder", source=path)
    folders = [path for path in paths if Path(path).is_dir()]
    if folders and len(paths) > 1:
        raise InputError("give one folder of a study, or schedule files", key="paths", value=folders[0])
    if not folders and output is None:
        rule = "give the page to write with -o; only in a study's folder it has a place of its own"
        raise InputError(rule, key="output", value=None)
    target = output or str(Path(paths[0]) / "report.html")
    check_writable(target)
    if folders:
        report = report_of_study(Path(paths[0]))
    else:
        report = report_of_files([(path, valid_schedule(path)) for path in paths])
    drawn = sum(entry.schedule is not None for entry in report.entries)
    with ProgressBar(drawn, None) as bar:
        page = render(report, relax=not no_relax, finished=lambda entry: bar.finish(entry.label, None))
    write_text(target, page)
    rows, size = len(report.entries), len(page.encode())
    with summary_beside(target):
        if as_json:
            show_json({"output": target, "rows": rows, "schedules": drawn, "bytes": size})
        else:
            print(f"{printable(target)}: {rows} rows, {drawn} schedules, {size / 1e6:.1f} MB")
