"""What several commands share: the group and its groups, common options, and functions for output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from ..base.errors import InfeasibleError, InputError, printable
from ..base.files import check_writable, is_standard_output
from ..base.interruption import exit_status, reason_of, was_stopped
from ..base.sources import engine_version
from ..model import metrics
from ..model.result import Progress, objective_text
from ..model.schedule import Schedule
from ..model.schedule_file import ScheduleFile, faults, load_schedule
from ..params.budget import Allowance
from ..params.solve_params import DEFAULTS, SolveParams, load_params
from ..terminal import ProgressBar, show_json, show_pairs
from .group import COSTS, PAPER, PROGRAM, SECTIONS, LazyGroup

Command = TypeVar("Command", bound=Callable[..., Any])
Found = TypeVar("Found")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")

output_option = click.option(
    "-o", "--output", required=True, metavar="FILE", help="File to write; - for standard output."
)

params_option = click.option(
    "--params",
    metavar="FILE",
    callback=lambda context, option, path: DEFAULTS if path is None else load_params(path),
    help="Parameters of the searches (TOML), as `tightpipe methods --params` shows them.",
)


def latex_options(command: Command) -> Command:
    """Add the options of a command that can also write its table as LaTeX, for a paper."""
    caption = click.option(
        "--caption", help="Caption of the table that --latex writes. [default: what the columns mean]"
    )
    latex = click.option(
        "--latex",
        metavar="FILE",
        help="Also write the table as LaTeX: booktabs, best of each row in bold, label tab:<file's name>.",
    )
    return latex(caption(command))


def check_latex(latex: str | None, caption: str | None) -> None:
    """Raise an InputError if the LaTeX file cannot be written, or if a caption is given without a file."""
    if latex is not None:
        check_writable(latex)
    elif caption is not None:
        raise InputError("is that of the table that --latex writes", key="caption", value=caption)


_LIMITS = {
    "max_memory": click.option(
        "--max-memory", type=float, metavar="GB", help="Memory at which CP-SAT and MILP end their search."
    ),
    "effort": click.option(
        "--effort",
        type=float,
        help="Seconds of work, counted in place of a time limit: the same result in every run with one "
        "worker.",
    ),
    "params": params_option,
    "seed": click.option("--seed", type=int, default=0, show_default=True, help="Seed of random choices."),
    "workers": click.option("--workers", type=int, help="Threads. [default: all usable cores]"),
}
"""The options of a search beside its time limit, by the field of `Allowance` that each of them sets."""


def search_options(
    time_limit: float, *without: str, text: str = "Seconds per solve."
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a search, and passes them on as one `Allowance`."""
    options = {name: option for name, option in _LIMITS.items() if name not in without}
    options["time_limit"] = click.option(
        "--time-limit", type=float, default=time_limit, show_default=True, help=text
    )

    def add(command: Command) -> Command:
        @wraps(command)
        def called(**values: Any) -> Any:
            limits = {name: values.pop(name) for name in options}
            return command(**values, allowance=Allowance(**limits))

        for option in options.values():
            called = option(called)
        return cast("Command", called)

    return add


def say_other_engines(rows: Mapping[str, int], kept: Path) -> None:
    """Say on stderr how many rows come from other engines and so do not count, and that `kept` has them."""
    others = {engine: count for engine, count in rows.items() if engine != engine_version()}
    if others:
        said = ", ".join(f"{count} row(s) of engine {engine}" for engine, count in others.items())
        print(f"engine {engine_version()} does not count {said}, kept in {kept}", file=sys.stderr)


@click.group(cls=LazyGroup, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tightpipe", prog_name="tightpipe")
def cli() -> None:
    """Find pipeline-parallel training schedules and prove how good they are.

    Exit status: 0 success; 1 the answer is no (invalid schedule, infeasible instance); 2 bad input, or output
    that cannot be written; 130 ended by Ctrl-C and 143 by SIGTERM, also where solve has written its best
    schedule so far; 141 the reader of a pipe has left.

    The name - stands for standard input, and as the file of -o for standard output.
    """


def refuse_beside(context: click.Context, option: str, allowed: Iterable[str]) -> None:
    """Raise an InputError if an option is given that is not `allowed` beside `option`, e.g. ``--status``."""
    for key in set(context.params) - set(allowed):
        if context.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            raise InputError(f"does not go with {option}", key=f"--{key.replace('_', '-')}")


def refuse_given(rule: str, **options: Any) -> None:
    """Raise an InputError with this rule if one of these options is given, which is otherwise None."""
    for key, value in options.items():
        if value is not None:
            raise InputError(rule, key=key, value=value)


def numbers(key: str, text: str, example: str) -> list[int]:
    """Return the numbers that the text of an option lists, with commas between them."""
    items = [item.strip() for item in text.split(",")]
    if not all(item.isdecimal() and len(item) < 12 for item in items):
        raise InputError(f"must be numbers with commas between them, e.g. {example}", key=key, value=text)
    return list(map(int, items))


def ticks(value: int | None) -> str | None:
    """Return a number of ticks or bytes as tables show it; None stays None."""
    return None if value is None else f"{value:,}"


def show(data: dict[str, Any], as_json: bool) -> None:
    """Print a command's result on stdout, as one JSON object or as one line for each pair."""
    if as_json:
        show_json(data)
    else:
        show_pairs(data)


def show_params(params: SolveParams) -> None:
    """Print which parameters are not the defaults, below a table; nothing if all are."""
    if text := params.changed_text():
        print(f"\nparameters: {text}")


def collect(
    count: int,
    each: float | None,
    search: Callable[[Callable[[str], Progress]], Iterator[Found]],
    said: Callable[[Found], str | None],
) -> tuple[list[Found], KeyboardInterrupt | None]:
    """Return what `count` searches of `each` so many seconds find, and the signal that ended them early.

    `search` is called with the progress bar's `begin`. `said` returns the line of stderr about what a search
    has found, or None for what comes without a search.
    """
    found: list[Found] = []
    left = count
    with ProgressBar(count, each and each * count) as bar:
        try:
            for one in search(bar.begin):
                found.append(one)
                if text := said(one):
                    left -= 1
                    bar.finish(text, each and each * left)
        except KeyboardInterrupt as stop:
            reason_of(stop)  # notes that it was caught, so that the signal does not come again
            return found, stop
    return found, None


def exit_stopped(stop: KeyboardInterrupt) -> None:
    """End the running command with the exit status of the signal, after what was found has been shown."""
    click.get_current_context().exit(exit_status(reason_of(stop)))


def exit_after_search(reason: str, schedule: object) -> None:
    """End the running command: 0 with a schedule, 1 without, or the status of the signal that stopped it."""
    status = exit_status(reason) if was_stopped(reason) else int(schedule is None)
    click.get_current_context().exit(status)


def summary_beside(output: str | None) -> AbstractContextManager[object]:
    """Return a context in which a command's summary goes to stderr if its output takes stdout."""
    taken = output is not None and is_standard_output(output)
    return redirect_stdout(sys.stderr) if taken else nullcontext()


def valid_schedule(path: str) -> ScheduleFile:
    content = load_schedule(path)
    violations = faults(content.schedule, content.method)
    if violations:
        raise InfeasibleError(f"{printable(path)}: the schedule is invalid: {violations[0]}")
    return content


def objective_entries(schedule: Schedule, as_json: bool) -> dict[str, Any]:
    """Return the entries of an answer that name the objective, with what the others would cost."""
    if as_json:
        return {"objective": str(schedule.instance.objective), "costs": metrics.costs(schedule)}
    return {"objective": objective_text(schedule)}


def warn(warnings: Sequence[str], as_json: bool) -> dict[str, list[str]]:
    """Print warnings on stderr, and return the entry for them in the JSON object; {} without --json."""
    for text in warnings:
        print(f"tightpipe: warning: {text}", file=sys.stderr)
    return {"warnings": list(warnings)} if as_json else {}


@cli.group("costs", cls=LazyGroup, sections={"Commands": COSTS})
def costs() -> None:
    """Write the costs that an instance or a model needs: measured or computed."""


@cli.group("program", cls=LazyGroup, sections={"Commands": PROGRAM})
def program() -> None:
    """Replay programs, also under noise, reorder them, and import schedules.

    `tightpipe lower` makes the program of a schedule.
    """


@cli.group("paper", cls=LazyGroup, sections={"Commands": PAPER})
def paper() -> None:
    """Make tables and figures like those of the papers."""
