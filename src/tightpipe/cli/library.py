"""The command ``library`` with its own commands ``list``, ``show``, ``check`` and ``submit``."""

from __future__ import annotations

import json

import click

from ..base.errors import InputError, printable
from ..base.files import STANDARD, check_writable, read_json, write_text
from ..library import Library, Record, RefusedError, State, check_record, default_library, submit
from ..library.record import COLUMNS, percent, row_of, widest_first
from ..model.schedule_file import save_schedule
from ..terminal import ProgressBar, show_json, show_pairs, show_table
from .common import cli, json_option, summary_beside

_library_option = click.option(
    "--library",
    metavar="DIR",
    callback=lambda context, option, folder: Library(default_library() if folder is None else folder),
    help="Folder of the library. [default: that of the repository, else library in the current folder]",
)


@cli.group("library")
def _group() -> None:
    """Keep the best schedule and bound known of each instance of the library, and who found them.

    Where there is a certificate that proves the bound, the library has it as well. Whoever finds a better
    schedule or bound submits it.
    """


@_group.command("list")
@click.option("--family", metavar="F", help="Only the instances of this family.")
@click.option("--status", type=click.Choice([state.value for state in State]), help="Only these instances.")
@_library_option
@json_option
def _list(family: str | None, status: str | None, library: Library, as_json: bool) -> None:
    """List the instances with cost, bound, status and who found the schedule.

    Open ones alone stand by their gap, the largest first.
    """
    records = _chosen(library.records(), family, status)
    if status == State.OPEN.value:
        records = widest_first(records)
    if as_json:
        show_json({"instances": [record.to_dict() for record in records]})
    else:
        show_table(COLUMNS, list(map(row_of, records)))


def _chosen(records: list[Record], family: str | None, status: str | None) -> list[Record]:
    families = sorted({record.family for record in records})
    if family not in (None, *families):
        raise InputError(f"must be of {', '.join(families)}", key="family", value=family)
    return [r for r in records if family in (None, r.family) and status in (None, r.state.value)]


@_group.command("show")
@click.argument("id")
@click.option("--schedule", metavar="FILE", help="Write the cheapest schedule into this file.")
@click.option("--certificate", metavar="FILE", help="Write the certificate of the bound into this file.")
@_library_option
@json_option
def _show(id: str, schedule: str | None, certificate: str | None, library: Library, as_json: bool) -> None:
    """Show all that is known about the instance ID, or write its schedule and certificate into files."""
    record = library.record(id)
    for path in (schedule, certificate):
        if path is not None:
            check_writable(path)
    if schedule is not None:
        _write_schedule(library, record, schedule)
    if certificate is not None:
        _write_certificate(library, record, certificate)
    file = str(library.path(record))
    with summary_beside(STANDARD if STANDARD in (schedule, certificate) else None):
        if as_json:
            show_json({**record.to_dict(), "gap": record.gap, "file": file})
        else:
            show_pairs({**_told(record), "file": file})


def _write_schedule(library: Library, record: Record, path: str) -> None:
    schedule = library.schedule(record.id)
    if schedule is None or record.cost is None:
        raise RefusedError(f"{record.id}: no schedule is known")
    save_schedule(schedule, path, method=record.cost.method, bound=record.bound.value)


def _write_certificate(library: Library, record: Record, path: str) -> None:
    content = library.certificate(record.id)
    if content is None:
        raise RefusedError(f"{record.id}: the bound {record.bound.value} has no certificate")
    write_text(path, json.dumps(content, separators=(",", ":")) + "\n")


def _told(record: Record) -> dict[str, object]:
    """Return what ``show`` prints about an instance, by key: its record without the instance itself."""
    known = record.to_dict()
    about = {key: known[key] for key in ("id", "family", "source", "status", "difficulty")}
    about["objective"] = str(record.instance.objective)
    for name in ("cost", "bound"):
        about |= {f"{name} {key}": value for key, value in (known[name] or {}).items()}
    return {**about, "gap": percent(record.gap), "certified": record.certified}


@_group.command("check")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@_library_option
@json_option
@click.pass_context
def _check(context: click.Context, ids: tuple[str, ...], library: Library, as_json: bool) -> None:
    """Verify again the schedules and certificates of the instances ID, or of all instances.

    The standalone checker of certificates verifies them. The exit status is 1 if anything fails.
    """
    names = [record.id for record in [library.record(id) for id in ids] or library.records()]
    failed = _failures(library, names)
    if as_json:
        show_json({"checked": len(names), "failed": failed})
    else:
        print(f"{len(names) - len(failed)} of {len(names)} instances verified")
    context.exit(1 if failed else 0)


def _failures(library: Library, names: list[str]) -> dict[str, str]:
    """Check the named instances, say on stderr how each check ends, and return the failures by name."""
    failed = {}
    with ProgressBar(len(names), None) as bar:
        for name in names:
            bar.begin(name)
            try:
                record = library.record(name)  # read only now, because another process may have improved it
                said = check_record(library, record)
            except (RefusedError, InputError) as error:
                said = failed[name] = str(error)
            bar.finish(f"{name}: {said}", None)
    return failed


@_group.command("submit")
@click.argument("file")
@click.option("--id", metavar="ID", help="The instance that FILE has to be about. [default: any]")
@click.option("--by", required=True, metavar="NAME", help="Who found it.")
@_library_option
@json_option
def _submit(file: str, id: str | None, by: str, library: Library, as_json: bool) -> None:
    """Enter the schedule or the certificate in FILE if it verifies and is better than what is known.

    The exit status is 1 if the file is not accepted; the reason is one line on stderr.
    """
    try:
        record = submit(library, read_json(file), by=by, id=id)
    except InputError as error:
        raise (error if error.source or error.key in ("id", "by") else error.at(file)) from None
    except RefusedError as error:
        raise RefusedError(f"{printable(file)}: {error}") from None
    if as_json:
        show_json(record.to_dict())
    else:
        cost = None if record.cost is None else record.cost.value
        print(f"accepted: {record.id} has cost {cost}, bound {record.bound.value}: {record.state}")
