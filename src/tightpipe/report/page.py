"""A report is rendered as one HTML file, which contains its style, its scripts and its data."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..core.operation import OpKind
from ..drawing import palette
from ..explain import SENTENCES, Explanation, Phase, Reason, explain
from .chart import chart
from .columns import split_columns
from .entry import Entry, Report

Finished = Callable[[Entry], None]
_ASSETS = files(__package__).joinpath("assets")


def render(report: Report, *, relax: bool = True, finished: Finished | None = None) -> str:
    """Return the page of a report as HTML.

    Parameters
    ----------
    report
        Content of the page; its schedules must be valid.
    relax
        Whether to run heuristics under weaker constraints, to show the costs that these would allow.
    finished
        Function that is called with each entry that has a schedule, once the schedule has been explained.
    """
    columns, same = split_columns(report.entries)
    charts: list[dict[str, Any]] = []
    blobs: list[str] = []
    places: dict[int, int] = {}  # the number of an entry's chart, by the number of the entry
    for number, entry in enumerate(report.entries):
        if entry.schedule is not None:
            numbers, blob = chart(entry, _explain(entry, relax))
            places[number] = len(charts)
            charts.append(numbers)
            blobs.append(blob.data)
            if finished is not None:
                finished(entry)
    data = {
        "columns": [{"key": c.key, "title": c.title, "kind": c.kind} for c in columns],
        "rows": [[entry.values.get(c.key) for c in columns] for entry in report.entries],
        "stacks": _stacks(report.entries, places),
        "charts": charts,
        **_vocabulary(max((c["lanes"] for c in charts), default=1)),
    }
    template = Environment(
        loader=PackageLoader("tightpipe.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("page.html")
    return template.render(
        report=report,
        same=same,
        data=data,
        blobs=blobs,
        style=_styles(),
        modules=_modules(),
    )


def _explain(entry: Entry, relax: bool) -> Explanation:
    assert entry.schedule is not None
    return explain(entry.schedule, entry.method, relax=relax)


def _stacks(entries: Sequence[Entry], places: dict[int, int]) -> list[list[int]]:
    """Return for each entry the numbers of the charts that are drawn beneath each other, from the top.

    For a reference, these are its own chart and that of the cheapest entry of its problem that is no
    reference. For another entry with a problem, they are the chart of the problem's cheapest reference and
    its own. For an entry without a problem, they are its own chart and those of all other entries. For an
    entry without a schedule there are none.
    """
    drawn = [number for number in range(len(entries)) if number in places]

    def best(problem: str, reference: bool) -> int | None:
        rivals = [n for n in drawn if (entries[n].problem, entries[n].reference) == (problem, reference)]
        return min(rivals, key=lambda n: int(entries[n].values["cost"] or 0), default=None)

    stacks: list[list[int]] = []
    for number, entry in enumerate(entries):
        if number not in places:
            stacks.append([])
        elif not entry.problem:
            stacks.append([places[number], *(places[n] for n in drawn if n != number)])
        else:
            rival = best(entry.problem, not entry.reference)
            pair = (number, rival) if entry.reference else (rival, number)
            stacks.append([places[n] for n in pair if n is not None])
    return stacks


def _vocabulary(lanes: int) -> dict[str, Any]:
    """Return the names and the colours that the page uses; the colours are those of the figures.

    `lanes` is the largest number of lanes of a device in any chart. Each kind of operation has a shade of its
    colour for each lane.
    """
    shades = [[palette.shade(kind, lane, lanes) for lane in range(lanes)] for kind in OpKind]
    return {
        "kinds": [kind.name for kind in OpKind],
        "colours": shades,
        "inks": [[palette.text_colour(colour) for colour in row] for row in shades],
        "hatched": [kind in palette.HATCHED for kind in OpKind],
        "idle": palette.IDLE,
        **_surfaces(),
        "reasons": [{"name": r, "sentence": SENTENCES[r], "colour": palette.REASONS[r]} for r in Reason],
        "phases": [str(phase) for phase in Phase],
    }


def _surfaces() -> dict[str, str]:
    """Return the colours of texts and areas, by the names that scripts and style sheets use."""
    return {
        "ink": palette.INK,
        "soft": palette.SOFT,
        "line": palette.LINE,
        "ground": palette.GROUND,
        "paper": palette.PAPER,
        "accent": palette.ACCENT,
        "chosen": palette.CHOSEN,
    }


def _text(name: str) -> str:
    return _ASSETS.joinpath(name).read_text(encoding="utf-8")


def _names(suffix: str) -> list[str]:
    return sorted(path.name for path in _ASSETS.iterdir() if path.name.endswith(suffix))


def _styles() -> str:
    colours = "".join(f"  --{name}: {colour};\n" for name, colour in _surfaces().items())
    return "\n".join([f":root {{\n{colours}}}", *map(_text, _names(".css"))])


def _modules() -> dict[str, str]:
    """Return the scripts by module name as data URIs, so that they can import each other within one file."""
    return {
        name.removesuffix(".js"): f"data:text/javascript;base64,{b64encode(_text(name).encode()).decode()}"
        for name in _names(".js")
    }
