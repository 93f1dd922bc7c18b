"""What papers have, as presets: their settings and tables, the realistic suite, and a gallery of charts."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tightpipe.heuristics import HEURISTICS

from .. import drawing
from ..base.errors import InputError, NoScheduleError, check_choice
from ..base.sources import engine_version
from ..base.tables import LatexTable, csv_text
from ..drawing.style import check_target
from ..model.costs import Memory
from ..model.instance import Instance
from ..model.placement import PLACEMENTS, Placement
from ..model.schedule import Schedule
from ..params.budget import Allowance
from ..registry.methods import Method, all_methods, find_method, is_heuristic
from ..registry.solve import solve
from ..settings import Setting, load_realistic, load_settings, load_table5
from .axes import Change, named_change, parse_memory, parse_objective
from .experiment import Entry, Experiment, Problem, conditions, file_problem, setting_problem
from .grid import combine
from .task import Task

_LINEAR = {"1F1B": ("1f1b", None), "ZB-H1": ("zb-h1", None), "ZB-H2": ("zb-h2", None)}
_TABLE_5: dict[str, tuple[str, int | None]] = {**_LINEAR, "ZB-1p": ("zb-auto", 1), "ZB-2p": ("zb-auto", 2)}
_DIGITS = 4  # decimals that the paper prints


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a published table: the bubble rate in the paper, and that of our `method` there."""

    table: int
    model: str
    p: int
    n: int
    column: str
    method: str
    published: float
    ours: float
    engine: str

    @property
    def difference(self) -> float:
        """Our bubble rate less the published one, at the paper's number of decimals."""
        return round(self.ours - self.published, _DIGITS)


def table_cells(number: int) -> list[Cell]:
    """Return all cells of table 5 or 8, with our bubble rates computed anew."""
    return list(_table_5() if number == 5 else _table_8())


def _table_5() -> Iterator[Cell]:
    for row in load_table5():
        for column, published in row.published.items():
            if column == "1F1B-I":
                yield _cell(5, row.setting, column, "interleaved-1f1b", published, _interleaved(row.setting))
            else:
                method, times_p = _TABLE_5[column]
                yield _cell(5, row.setting, column, method, published, row.instance(times_p))


def _table_8() -> Iterator[Cell]:
    """Yield the cells of table 8.

    In the columns ZB-V and 1F1B-I a device has two stages, each with the published times. In the other
    columns it has one stage with twice these times.
    """
    text = files("tightpipe.settings").joinpath("zero_bubble_table8.toml").read_text(encoding="utf-8")
    for name, published in tomllib.loads(text).items():
        setting = load_settings()[name]
        for column, rate in published.items():
            if column == "ZB-V":
                yield _cell(8, setting, column, "greedy-v", rate, setting.instance())
            elif column == "1F1B-I":
                yield _cell(8, setting, column, "interleaved-1f1b", rate, _chunks(setting, 2, setting.comm))
            else:
                whole_stages = setting.with_times(2, placement="linear")
                yield _cell(8, setting, column, _LINEAR[column][0], rate, whole_stages)


def _cell(
    table: int, setting: Setting, column: str, method: str, published: float, instance: Instance
) -> Cell:
    rate = solve(instance, method).bubble_rate
    assert rate is not None  # these methods fit within the memory limits of all these instances
    p, n = setting.devices, setting.microbatches
    return Cell(table, setting.model, p, n, column, method, published, round(rate, _DIGITS), engine_version())


def _interleaved(setting: Setting) -> Instance:
    """Return an instance with a stage for each layer; embedding and head count as one layer each.

    In the setting, a device has one stage of v layers; in the instance, v stages of one layer. A tick of the
    instance is 1/v of one of the setting, so that all times stay whole numbers.
    """
    chunks = (setting.layers + 2) // setting.devices
    return _chunks(setting, chunks, chunks * setting.comm)


def _chunks(setting: Setting, chunks: int, comm: int) -> Instance:
    return setting.with_times(comm=comm, placement="loop", chunks=chunks)


FIELDS = ("table", "model", "p", "n", "column", "method", "published", "ours", "difference", "engine")


def to_csv(cells: Sequence[Cell]) -> str:
    """Return the cells as CSV, with a header and one line per cell."""
    return csv_text(FIELDS, [[getattr(cell, field) for field in FIELDS] for cell in cells])


def _all_three(cell: Cell) -> str:
    return f"{cell.published:.4f} {cell.ours:.4f} {cell.difference:+.4f}"


def _ours(cell: Cell) -> str:
    return f"{cell.ours:.4f}" + (f" ({cell.difference:+.4f})" if cell.difference else "")


def wide(
    cells: Sequence[Cell], text: Callable[[Cell], str] = _all_three
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the paper's table; a cell has both rates and their difference, or `text`."""
    columns = dict.fromkeys(cell.column for cell in cells)
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for cell in cells:
        rows.setdefault((cell.model, str(cell.p), str(cell.n)), {})[cell.column] = text(cell)
    body = [[*place, *(found[column] for column in columns)] for place, found in rows.items()]
    return ["model", "p", "n", *columns], body


def latex_table(cells: Sequence[Cell], caption: str | None) -> LatexTable:
    """Return the table for a paper: our bubble rates, and their differences to the published ones."""
    head, body = wide(cells, _ours)
    said = (
        f"Table {cells[0].table} of arXiv:2401.10241, computed anew: bubble rate = (cost - work) / cost; in "
        "brackets what is more or less than published."
    )
    return LatexTable(head, body, head[3:], 1, caption or said)


FITTING = tuple(name for name in PLACEMENTS if name != "wave")
"""The placements that a setting can have: not a wave, in which a device has four stages instead of two."""


def published_instance(
    name: str, *, memory: str = "2p", placement: str = "v", objective: str = "device_span"
) -> Instance:
    """Return a setting of the papers as an instance.

    `memory` is written as in an experiment file, and `placement` is one of `FITTING`, in each of which a
    device holds the same layers. Raise an InputError if a name or a value is unknown.
    """
    known = load_settings()
    check_choice("setting", name, *known)
    check_choice("placement", placement, *FITTING)
    instance = known[name].instance(placement=placement)
    limit = _memory(memory)
    return named_change("objective", parse_objective, objective).apply(limit.apply(instance))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The choices that hold for all problems of a comparison."""

    memory: tuple[str, ...]  #: limits as in an experiment file, e.g. ``2p`` or ``own``
    methods: tuple[str, ...]
    objective: str  #: ``own`` leaves each instance its own
    allowance: Allowance  #: of each solve


def tasks_of_settings(settings: Sequence[Setting], comparison: Comparison) -> list[Task]:
    """Return the solves on published settings, in the sequence in which they run."""
    return _plan([setting_problem(setting) for setting in settings], comparison)


def tasks_of_files(paths: Sequence[str], comparison: Comparison) -> list[Task]:
    """Return the solves on instance files; each instance is named after its file without the suffix."""
    problems: dict[str, Problem] = {}
    for path in paths:
        name = Path(path).stem
        if name in problems:
            rule = f"another file is called {name!r} too, by which rows are told apart: rename one"
            raise InputError(rule, key="instances", value=path)
        problems[name] = file_problem(path, name)
    return _plan(list(problems.values()), comparison)


def _plan(problems: Sequence[Problem], comparison: Comparison) -> list[Task]:
    return combine(
        Experiment(
            problems=tuple(problems),
            memory=tuple(map(_memory, comparison.memory)),
            objectives=(parse_objective(comparison.objective),),
            methods=tuple(map(Entry, comparison.methods)),
            **conditions(comparison.allowance),
        )
    )


def _memory(text: str) -> Change:
    return named_change("memory", parse_memory, int(text) if text.isdecimal() else text)


def tasks_of_realistic(names: Iterable[str], allowance: Allowance) -> list[Task]:
    """Return the solves on instances with recomputation, slow stages, slow links or scarce memory.

    The first one on each is that of `greedy-v` with the median of the costs of all stages in place of each
    stage's own costs; its order is then timed with the true costs.
    """
    tasks = []
    for name in names:
        problem = Problem(name, load_realistic()[name].instance())
        for methods, costs in (
            (("greedy-v",), ("median", "true")),
            (("cpsat", "improve", "best"), ("true",)),
        ):
            entries = tuple(map(Entry, methods))
            grid = Experiment(
                (problem,), entries, costs=costs, keep_equal_costs=True, **conditions(allowance)
            )
            tasks += combine(grid)
    return tasks


DEVICES, MICROBATCHES = 4, 8
# memory limits in multiples of p activations of a stage; in the V, 2 p of these are the memory of 1F1B
_FACTORS = {"zb-auto": (1, 2), "list": (2, 4), "due-date": (3,), "greedy-v": (2,), "block": (1, 1.25)}
_BLOCK = "block"  # the only method of the gallery that searches; its search ends within seconds here
_EFFORT = 20.0  # effort of this search in counted seconds, so that every run draws the same picture
# for a device's whole share of the model: ticks of each of F, B and W, and memory that an F adds
_TICKS, _ACTIVATION = 12, 12


def gallery(only: Sequence[str] | None = None) -> list[tuple[str, Schedule]]:
    """Return pairs of a label and a schedule: one pair for each method and each memory limit shown for it.

    `only` has names of heuristics, or ``module:function`` for one of your own, and ``block``, the method of
    repeating blocks; None stands for all of `HEURISTICS`, and then ``block``.
    """
    names = [*HEURISTICS, _BLOCK] if only is None else [_family(name) for name in only]
    return [pair for name in names for pair in _drawn(find_method(name))]


def draw_gallery(path: str | Path, only: Sequence[str] | None = None) -> None:
    """Draw the Gantt charts of `gallery`, one beneath the other, to a PNG, SVG or PDF file."""
    check_target(path)
    drawing.draw_gantt(gallery(only), path=path, engine=engine_version())


def _family(name: str) -> str:
    if (
        name != _BLOCK
        and not is_heuristic(name)
        and (":" not in name or find_method(name).kind != "heuristic")
    ):
        known = [method.name for method in all_methods().values() if method.kind == "heuristic"]
        raise InputError(f"must be heuristics, of {', '.join(known)}, or {_BLOCK}", key="only", value=name)
    return name


def _drawn(method: Method) -> Iterator[tuple[str, Schedule]]:
    placement = "v" if "v" in method.placements else method.placements[0]
    for label, limit in _limits(method.name):
        # without a warm start: else V-Min's schedule, where it is optimal, would be drawn as the block's
        instance = _instance(placement, limit)
        result = solve(
            instance,
            method.name,
            effort=None if method.kind == "heuristic" else _EFFORT,
            workers=1,
            warm_start=None,
        )
        if result.schedule is None:  # cannot happen with tightpipe's own heuristics
            raise NoScheduleError(f"{method.name}: {result.reason}")
        yield label, result.schedule


def _limits(method: str) -> list[tuple[str, float | None]]:
    """Return a label and a memory limit for each chart of a method: one chart per limit in `_FACTORS`."""
    if method not in _FACTORS:
        return [(method, None)]
    return [(f"{method}, {factor}p of memory", factor) for factor in _FACTORS[method]]


def _instance(placement: str, factor: float | None) -> Instance:
    """Return an instance in which each device's share of the model is split evenly over its stages."""
    chunks = Placement(placement, DEVICES).stages_per_device
    ticks, activation = _TICKS // chunks, _ACTIVATION // chunks
    most = None if factor is None else int(factor * DEVICES * activation)
    return Instance.uniform(
        devices=DEVICES,
        microbatches=MICROBATCHES,
        forward=ticks,
        backward=ticks,
        weight=ticks,
        placement=placement,
        memory=Memory(activation, -activation // 2, -activation // 2, most),
    )
