"""The command ``report``."""

from __future__ import annotations

from pathlib import Path

import click

from ..core.errors import InputError
from ..core.files import STANDARD, check_writable, write_text
from ..core.printable import printable
from ..terminal.console import show_json
from ..terminal.progress_bar import progress_bar
from .common import cli, json_option, summary_beside, valid_schedule


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
    with progress_bar(drawn, None) as bar:
        page = render(report, relax=not no_relax, finished=lambda entry: bar.finish(entry.label, None))
    write_text(target, page)
    rows, size = len(report.entries), len(page.encode())
    with summary_beside(target):
        if as_json:
            show_json({"output": target, "rows": rows, "schedules": drawn, "bytes": size})
        else:
            print(f"{printable(target)}: {rows} rows, {drawn} schedules, {size / 1e6:.1f} MB")
