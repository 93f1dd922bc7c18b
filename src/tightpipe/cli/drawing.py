"""The commands ``plot`` and ``gallery``."""

from __future__ import annotations

from pathlib import Path

import click

from .. import drawing
from ..core.errors import InputError
from ..core.files import check_writable
from ..experiments.gallery import draw_gallery
from ..terminal.console import show_json
from .common import cli, json_option, summary_beside, valid_schedule


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
@click.option("--scale", type=click.IntRange(1), help="Ticks per character of --text.")
@json_option
def _plot(
    schedules: tuple[str, ...], output: str | None, memory: bool, text: bool, scale: int | None, as_json: bool
) -> None:
    """Draw the schedule files SCHEDULES; several share one time axis."""
    if not text and output is None:
        raise InputError("give a picture with -o, or --text to draw on stdout")
    drawn = [(path, valid_schedule(path)) for path in schedules]
    pictures = [drawing.draw_text(content.schedule, scale=scale) for _, content in drawn] if text else []
    if output is not None:
        check_writable(output)
        labels = [(content.method or Path(path).stem, content.schedule) for path, content in drawn]
        bounds = [content.bound for _, content in drawn]
        drawing.draw_gantt(labels, path=output, memory=memory, bounds=bounds)
    with summary_beside(output):
        if as_json:
            show_json({"output": output, "text": pictures or None})
        elif text:
            print("\n\n".join(pictures))


@cli.command("gallery")
@click.option("-o", "--output", default="results/gallery.png", show_default=True, metavar="PICTURE")
@json_option
def _gallery(output: str, as_json: bool) -> None:
    """Draw every schedule family at 4 devices and 8 microbatches on one page."""
    check_writable(output)
    draw_gallery(output)
    if as_json:
        with summary_beside(output):
            show_json({"output": output})
