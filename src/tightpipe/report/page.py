"""A report is rendered as one HTML file, which contains its style, its scripts and its data."""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from ..drawing import palette
from ..drawing.lanes import WHOLE, lane_count, lane_noun, lanes, length_names, shown_ticks
from ..explain import SENTENCES, Explanation, Idle, Phase, Reason, arrivals, explain, legs
from ..kernels.arrays import Ints
from ..model import metrics
from ..model.graph_arrays import deltas_of, passing_of
from ..model.instance import Instance
from ..model.microbatches import lengths
from ..model.operation import COMPUTES, Operation
from ..model.schedule import Schedule
from ..model.simulate import memory_during
from .sources import Entry, Report, split_columns

_ALIGNMENT = 8  # bytes; a typed array of JavaScript starts at a multiple of its element's size
_EXACT = 2**53  # larger integers may not be exact as JavaScript numbers
_JAVASCRIPT = {"f8": "Float64Array", "i4": "Int32Array", "u2": "Uint16Array", "u1": "Uint8Array"}


@dataclass(frozen=True, slots=True)
class Blob:
    """Compressed arrays as text."""

    #: for each array its name, its JavaScript type, its first byte in the data, and its number of elements
    layout: tuple[tuple[str, str, int, int], ...]
    data: str  #: the bytes of all arrays, each padded to a multiple of 8, compressed by zlib, in base64


def pack(arrays: Mapping[str, tuple[str, NDArray[Any]]]) -> Blob:
    """Return arrays in compressed form."""
    layout, parts, offset = [], [], 0
    for name, (kind, values) in arrays.items():
        stored = values.astype(f"<{kind}")
        if (stored.astype(np.int64) != values).any() or (np.abs(values) > _EXACT).any():
            raise OverflowError(f"{name} has numbers that {kind} does not hold")
        layout.append((name, _JAVASCRIPT[kind], offset, len(values)))
        content = stored.tobytes()
        parts.append(content + bytes(-len(content) % _ALIGNMENT))
        offset += len(parts[-1])
    return Blob(tuple(layout), b64encode(zlib.compress(b"".join(parts), level=9)).decode())


_LONGEST = 12  # number of idle intervals in the table of the page

Typed = tuple[str, NDArray[Any]]


def chart(entry: Entry, found: Explanation) -> tuple[dict[str, Any], Blob]:
    """Return what the page shows of a schedule: data for JSON with the layout of the arrays, and the arrays.

    Starts are stored as differences to the operation before, and sources as differences to an operation's own
    index: most of these repeat, and therefore compress well.
    """
    found.schedule.refuse_copies("the page of a report")
    blob = pack({**_operations(found), **_idle(found)})
    return {**_numbers(entry, found), "explanation": _explanation(found), "layout": blob.layout}, blob


def _numbers(entry: Entry, found: Explanation) -> dict[str, Any]:
    schedule, instance = found.schedule, found.schedule.instance
    instance.refuse_slices("the page of a report")
    cost = metrics.cost(schedule)
    return {
        "label": entry.label,
        "cost": cost,
        "bubbleRate": metrics.bubble_rate(schedule),
        "bound": entry.bound,
        "gap": None if entry.bound is None else (cost - entry.bound) / cost,
        "shown": shown_ticks([schedule], WHOLE),
        "offsets": schedule.order.offsets.tolist(),
        "lanes": lane_count(instance.placement),
        "laneNoun": lane_noun([instance.placement]),
        **_lengths(instance),
        "limit": [instance.memory_limit(d) for d in range(instance.devices)],
    }


def _lengths(instance: Instance) -> dict[str, Any]:
    """Return what shows how long microbatches are: places in rising order, colours, and legend."""
    groups = lengths(instance)
    places = {m: place for place, group in enumerate(groups) for m in group}
    several = range(len(groups)) if len(groups) > 1 else ()
    return {
        "length": [places[m] for m in range(instance.units)] if several else [],
        "lengthColours": [palette.length_colour(k, len(groups)) for k in several],
        "lengthTicks": [instance.class_costs[instance.mb_class(groups[k][0])].work for k in several],
        "lengthNames": [(place, f"{name}: {t:,} ticks") for place, name, t in length_names(instance)],
    }


def _operations(found: Explanation) -> dict[str, Typed]:
    """Return the arrays with one number per operation, and ``critical``, the critical path.

    ``linkWait`` has the ticks for which the input of an operation waits for a busy link, and ``transfer`` the
    ticks for which it is under way. ``ready`` has the tick at which the stage of an F is ready, or 0.
    ``sourceStep`` has the index of the operation that the input comes from, less the operation's own index,
    or 0 if there is none; see `Arrivals`. ``critical`` has the indices of the path's operations in the
    schedule's order.
    """
    schedule = found.schedule
    kind, stage, microbatch = schedule.order.operations.T
    inputs = arrivals(schedule)
    rows = np.arange(len(kind))
    return {
        "startStep": ("f8", np.diff(schedule.start, prepend=0)),
        "duration": ("f8", schedule.end - schedule.start),
        "linkWait": ("f8", inputs.left - inputs.ended),
        "transfer": ("f8", inputs.arrived - inputs.left),
        "ready": ("f8", inputs.ready),
        "sourceStep": ("i4", np.where(inputs.source < 0, 0, inputs.source - rows)),
        "microbatch": ("i4", microbatch),
        "stage": ("i4", stage),
        "kind": ("u1", kind),
        "lane": ("i4", lanes(schedule)),
        "joined": ("u1", schedule.order.pairs),
        "critical": ("i4", _rows(found, [step.operation for step in found.critical if step.runs])),
        **(_memory(schedule) if schedule.instance.memory else {}),
    }


def _memory(schedule: Schedule) -> dict[str, Typed]:
    """Return what a device holds while each operation runs, and what the operation takes at its start."""
    instance, order = schedule.instance, schedule.order
    takes = np.maximum(deltas_of(instance, order), 0) + passing_of(instance, order)
    return {"held": ("f8", memory_during(schedule)), "takes": ("f8", takes)}


def _rows(found: Explanation, operations: list[Operation | None]) -> Ints:
    """Return the index of each operation in the schedule's order; -1 for None."""
    order = found.schedule.order
    where = np.full((len(COMPUTES), found.schedule.instance.stages, found.schedule.instance.units), -1)
    where[tuple(order.operations.T)] = np.arange(len(order))
    return np.array([-1 if op is None else where[op] for op in operations], np.int64)


def _idle(found: Explanation) -> dict[str, Typed]:
    """Return the arrays of idle intervals, sorted by device, and where those of each device begin."""
    reasons, phases = list(Reason), list(Phase)
    first = np.cumsum([0, *np.bincount([i.device for i in found.idle], minlength=len(found.devices))])
    named = {f"idle{key.capitalize()}": key for key in ("next", "awaits", "ready", "frees")}
    return {
        "idleOffsets": ("i4", first),
        "idleStart": ("f8", np.array([i.start for i in found.idle], np.int64)),
        "idleTicks": ("f8", np.array([i.ticks for i in found.idle], np.int64)),
        "idleReason": ("u1", np.array([reasons.index(i.reason) for i in found.idle], np.int64)),
        "idlePhase": ("u1", np.array([phases.index(i.phase) for i in found.idle], np.int64)),
        **{name: ("i4", _rows(found, [getattr(i, key) for i in found.idle])) for name, key in named.items()},
    }


def _explanation(found: Explanation) -> dict[str, Any]:
    """Return the content of the tables beneath a chart."""
    longest = sorted(found.idle, key=lambda i: -i.ticks)[:_LONGEST]
    keys = ("start", "ticks", "computing", "messages", "step", "late", "devices")
    path = [
        {key: getattr(leg, key) for key in keys} | {"operations": str(leg)} for leg in legs(found.critical)
    ]
    return {
        "devices": [device.to_dict() for device in found.devices],
        "intervals": len(found.idle),
        "longest": [_interval(i) for i in longest],
        "path": path,
        "relaxations": [r.to_dict() for r in found.relaxations],
    }


def _interval(idle: Idle) -> dict[str, Any]:
    times = {"device": idle.device, "start": idle.start, "ticks": idle.ticks}
    return {**times, "phase": str(idle.phase), "reason": str(idle.reason), "text": str(idle)}


Finished = Callable[[Entry], None]
_ASSETS = files(__package__).joinpath("assets")


def render(report: Report, *, relax: bool = True, finished: Finished | None = None) -> str:
    """Return the page of a report, whose schedules are valid, as HTML.

    If `relax`, heuristics run under weaker constraints, to show the costs that these would allow. `finished`
    is called with each entry that has a schedule, once the schedule has been explained.
    """
    columns, same = split_columns(report.entries)
    charts: list[dict[str, Any]] = []
    blobs: list[str] = []
    places: dict[int, int] = {}  # the number of an entry's chart, by the number of the entry
    for number, entry in enumerate(report.entries):
        if entry.schedule is not None:
            numbers, blob = chart(entry, explain(entry.schedule, entry.method, relax=relax))
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
        report=report, same=same, data=data, blobs=blobs, style=_styles(), modules=_modules()
    )


def _stacks(entries: Sequence[Entry], places: dict[int, int]) -> list[list[int]]:
    """Return for each entry the numbers of the charts that are drawn beneath each other, from the top.

    A reference has its own chart and that of the cheapest entry of its problem that is no reference. Another
    entry with a problem has the chart of the problem's cheapest reference and its own, one without a problem
    its own and those of all other entries, and one without a schedule none.
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


def _vocabulary(most_lanes: int) -> dict[str, Any]:
    """Return the names and the colours that the page uses; the colours are those of the figures."""
    shades = [[palette.shade(kind, lane, most_lanes) for lane in range(most_lanes)] for kind in COMPUTES]
    return {
        "kinds": [kind.name for kind in COMPUTES],
        "colours": shades,
        "inks": [[palette.text_colour(colour) for colour in row] for row in shades],
        "hatched": [kind in palette.HATCHED for kind in COMPUTES],
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
