"""Renew the files under results/, or list which of them the present engine has made.

The engine is the code that finds schedules and proves bounds. ``python benchmarks/renew.py`` runs, one after
another, the commands of all results that another engine made or that are missing or unfinished; then the
library of instances takes over what they have found. After Ctrl-C, the next call continues. ``--list`` prints
a table of all results and whether they are fresh. With names, only these results are renewed. A file names
its engine (`tightpipe.base.sources`) in its rows, its text or its metadata.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from growing_table import run_script
from PIL import Image

from tightpipe.base.errors import InputError, StoppedError
from tightpipe.base.sources import PLANNING, ROOMS, engine_version, planner_version
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.grid import tasks_of
from tightpipe.experiments.study import STORE, UNFINISHED, mark_of
from tightpipe.terminal import show_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
IGNORED = (".bak", ".sqlite", ".pdf", UNFINISHED)
"""Endings of files that commands leave under results/ and that git ignores, such as the store of a study."""
UNKNOWN = ""
"""The engine of a file or a row that names no engine."""
LIBRARY = "python benchmarks/library.py --time-limit 0"
"""The command that enters into the library what the studies have found, and searches for nothing further."""
CORES = 2
"""The number of cores for which the minutes of all results are meant."""


@dataclass(frozen=True, slots=True)
class Result:
    """Files under results/ that one command writes.

    Parameters
    ----------
    name
        Name of the result in the list and on the command line.
    command
        The command, which is run in the root of the repository. It continues an interrupted run of itself;
        only predictions, whose rounds belong together, begin anew.
    files
        Paths of the files that the command writes, relative to results/.
    minutes
        About the longest time in minutes that the command takes on `CORES` cores; None for a study that may
        use up the time limits of its experiment file.
    """

    name: str
    command: str
    files: tuple[str, ...]
    minutes: float | None

    @property
    def planned(self) -> float:
        """The minutes that the command takes; if they are not known, those of all time limits of a study."""
        if self.minutes is not None:
            return self.minutes
        path = ROOT / "experiments" / f"{self.name}.toml"
        study = load_experiment(path)
        seconds = sum(task.row.time_limit or 0.0 for task in tasks_of(study, path))
        return seconds * study.threads / CORES / 60


def _table(name: str, command: str, minutes: float, suffixes: Sequence[str] = ("csv", "md", "png")) -> Result:
    return Result(name, command, tuple(f"{name}.{suffix}" for suffix in suffixes), minutes)


def _study(name: str, figure: str, minutes: float | None = None) -> Result:
    files = ("experiment.toml", "environment.json", "rows.csv", "summary.md", "table.tex")
    drawn = (f"{figure}.{suffix}" for suffix in ("csv", "png"))
    paths = tuple(f"{name}/{file}" for file in (*files, *drawn))
    return Result(name, f"tightpipe sweep experiments/{name}.toml", paths, minutes)


_ALL = "tightpipe compare --settings all --workers 1"
_EXACT = "python benchmarks/exact.py"
LIST = (
    _table("table5", "tightpipe paper table 5", 0.1, ("csv",)),
    _table("table8", "tightpipe paper table 8", 0.1, ("csv",)),
    _table("paper_table", "tightpipe compare --workers 2", 0.5),
    _study("comm", "comm", 0.7),  # all of its searches end with a proof
    _study("experts", "equal-memory"),
    _table("exact_goals", f"{_EXACT} --set goals --time-limit 120", 2, ("csv", "md")),
    Result(
        "noise", "python benchmarks/noise.py --seconds 30", ("noise.csv", "../docs/pictures/noise.png"), 3
    ),
    _table("scale", "python benchmarks/scale.py --time-limit 20", 3, ("csv", "md")),
    _study("slices", "uneven"),
    _table("paper_table_long", f"{_ALL} --memory 2p --time-limit 600 -o results/paper_table_long.csv", 4),
    _table(
        "paper_table_3p",
        f"{_ALL} --memory 3p --time-limit 30 --at-once 2 -o results/paper_table_3p.csv",
        4,
    ),
    _table(
        "paper_table_makespan",
        f"{_ALL} --memory 2p --objective makespan --time-limit 60 --at-once 2"
        " -o results/paper_table_makespan.csv",
        4,
    ),
    _table("exact", f"{_EXACT} --workers 1 --time-limit 10 --at-once 2", 4),
    _table("periods", "python benchmarks/periods.py --seconds 12 --threads 2", 5, ("csv", "md")),
    Result("plans", "python benchmarks/plans.py --seconds 15 --workers 1", ("plans.csv",), 5),
    Result(
        "theorem",
        "python benchmarks/theorem.py --effort 0.1",
        (
            *("theorem/instances.csv", "theorem/observed.csv", "theorem/summary.md"),
            "../docs/pictures/theorem-map.png",
        ),
        9,
    ),
    _study("lengths", "uneven"),
    _table("parts", "python benchmarks/parts.py --time-limit 8 --at-once 2", 3, ("csv", "md")),
    _table("realistic", "tightpipe paper realistic --time-limit 15 --workers 1 --at-once 2", 8),
    Result(
        "predictions",
        "python benchmarks/predictions.py --output results/predictions.csv",
        ("predictions.csv",),
        12,
    ),
    Result("tuning", "python benchmarks/tune.py --effort 1.5", ("tuning.csv", "tuning.md"), 4.5),
    _study("frontier", "frontier", 19.6),  # most of its searches end with a proof
    _study("offload", "equal-memory"),
    _study("splitting", "discount"),
)
"""All results under results/, in the sequence in which they are renewed: roughly, the shortest first."""


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _of_csv(path: Path) -> set[str]:
    return {_of_row(row) for row in _rows(path)}


def _of_row(row: dict[str, str]) -> str:
    """Return the engine of a row; `UNKNOWN` if the row names none, or has not been solved yet."""
    return UNKNOWN if row.get("state") in ("pending", "running") else row.get("engine", UNKNOWN)


def _of_page(path: Path) -> set[str]:
    return set(re.findall(r"\btightpipe (\d\S+),", path.read_text(encoding="utf-8"))) or {UNKNOWN}


def _of_environment(path: Path) -> set[str]:
    return {json.loads(path.read_text(encoding="utf-8")).get("engine", UNKNOWN)}


def _of_picture(path: Path) -> set[str]:
    with Image.open(path) as picture:
        program, _, engine = str(picture.info.get("Software", "")).partition(" ")
    return {engine if program == "tightpipe" else UNKNOWN}


_READERS: dict[str, Callable[[Path], set[str]]] = {
    ".csv": _of_csv,
    ".md": _of_page,
    ".json": _of_environment,
    ".png": _of_picture,
}
"""For each suffix, the function that returns the engines that a file names.

Files with other suffixes are not read: each result has a file with one of these suffixes, too.
"""


def engines(result: Result) -> set[str]:
    """Return the engines that a result's files name; an empty set if there is no file."""
    there = [path for file in result.files if (path := RESULTS / file).exists()]
    return {engine for path in there for engine in _READERS.get(path.suffix, lambda _: set())(path)}


def asks_otherwise(result: Result) -> bool:
    """Return whether a result's command would run otherwise than the one that made its files.

    It may ask for another experiment, time limit or effort, or there is another planner for its plans.
    """
    for path in (RESULTS / file for file in result.files):
        if path.name == "experiment.toml" and path.exists():
            return path.read_bytes() != (ROOT / "experiments" / f"{path.parent.name}.toml").read_bytes()
    tables = [RESULTS / file for file in result.files if file.endswith(".csv") and (RESULTS / file).exists()]
    rows = [row for table in tables for row in _rows(table)]
    if any(row.get("planner", planner_version()) != planner_version() for row in rows):
        return True
    asked = re.search(r" --(time-limit|seconds|effort) (\S+)", result.command)
    if asked is None:
        return False
    texts = {row.get("effort" if asked[1] == "effort" else "time_limit") for row in rows} - {None, ""}
    made_with = sorted(float(text or 0) for text in texts)
    # some searches of a table have a multiple of the effort that was asked for
    return any(seconds != float(asked[2]) for seconds in made_with[: 1 if asked[1] == "effort" else None])


def state(result: Result, engine: str) -> str:
    """Return the state of a result for an engine.

    The state is ``fresh`` if all files exist and name this engine alone, ``missing`` if no file exists,
    ``unfinished`` if this engine made a part, or its command was interrupted, or asks for something else now,
    and otherwise ``stale``.
    """
    there = [(RESULTS / file).exists() for file in result.files]
    if not any(there):
        return "missing"
    named = engines(result)
    interrupted = any(mark_of(RESULTS / file).exists() for file in result.files)
    if all(there) and named == {engine} and not interrupted and not asks_otherwise(result):
        return "fresh"
    return "unfinished" if engine in named else "stale"


def strangers() -> list[str]:
    """Return the files under results/ that no command in the list writes, without those that git ignores."""
    known = {file for result in LIST for file in result.files}
    found = (path.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("*") if path.is_file())
    return sorted(file for file in found if file not in known and not file.endswith(IGNORED))


def show_list(engine: str) -> None:
    """Print a table of all results and the time that they take, and the files under results/ of no result.

    A line of the table has the state of a result, and the engines other than `engine` that its files name.
    """
    minutes = [result.planned for result in LIST]
    lines = [
        (r.name, state(r, engine), _made_by(r, engine), f"{planned:.3g} min", r.command)
        for r, planned in zip(LIST, minutes, strict=True)
    ]
    show_table(["result", "state", "made by", "takes about", "command"], lines)
    print(f"all of them take about {sum(minutes):.0f} min on {CORES} cores")
    print(f"engine {engine}; a result is stale if the sources of the engine have changed since it was made")
    for file in strangers():
        print(f"stranger: results/{file}, which no command in this list writes")


def _made_by(result: Result, engine: str) -> str | None:
    others = sorted(engines(result) - {engine})
    return ", ".join(other or "unnamed" for other in others) or None


def renew(results: Sequence[Result], engine: str) -> None:
    """Run the commands of results one after another, and enter what they have found into the library.

    Raises
    ------
    InputError
        If sources of the engine or the planner are not committed, as then nobody could find the code of the
        results later.
    StoppedError
        If a command fails (after all others have run), or if these sources have changed when a command ends
        (without running the others).
    """
    edited, code = _uncommitted(), _code_now()
    if edited:
        raise InputError("commit these sources first", key="sources", value=", ".join(edited))
    failed, minutes = [], [result.planned for result in results]
    print(f"about {sum(minutes):.3g} min in all", file=sys.stderr, flush=True)
    for number, (result, planned) in enumerate(zip(results, minutes, strict=True), 1):
        said = f"[{number}/{len(results)}] {result.name}, about {planned:.3g} min: {result.command}"
        print(said, file=sys.stderr, flush=True)
        _forget_other_engines(result, engine)
        if _run(result.command) != 0:
            failed.append(result.name)
        if _code_now() != code:
            raise StoppedError(f"the sources changed while {result.name} was measured")
    print(f"library: {LIBRARY}", file=sys.stderr, flush=True)
    if _run(LIBRARY) != 0:
        failed.append("library")
    if failed:
        raise StoppedError(f"failed: {', '.join(failed)}")


def _uncommitted() -> list[str]:
    """Return the sources of the engine and the planner that differ from the last commit."""
    top = ("heuristics", "solver")
    folders = (room if room in top else f"src/tightpipe/{room}" for room in (*ROOMS, *PLANNING))
    command = ["git", "-C", str(ROOT), "status", "--porcelain", "--", *folders]
    listed = subprocess.run(command, capture_output=True, text=True).stdout
    return [line[3:] for line in listed.splitlines()]


def _forget_other_engines(result: Result, engine: str) -> None:
    """Remove the SQLite store of a stale study, which would otherwise keep the rows of every engine."""
    if state(result, engine) == "stale":
        for file in result.files:
            for store in ((RESULTS / file).with_name(STORE), (RESULTS / file).with_suffix(".sqlite")):
                store.unlink(missing_ok=True)


def _run(command: str) -> int:
    """Run a command and return its exit status; if Ctrl-C or SIGTERM ends it, end this process too."""
    program, *words = shlex.split(command)
    process = subprocess.Popen([str(Path(sys.executable).with_name(program)), *words], cwd=ROOT)
    try:
        status = process.wait()
    except KeyboardInterrupt:
        process.wait()  # Ctrl-C has reached the command too, which saves its finished part before it ends
        raise
    if status < 0 or status in (130, 143):  # ended by a signal
        raise KeyboardInterrupt
    return status


def _code_now() -> tuple[str, str]:
    """Return the names of the engine and the planner whose sources are there now."""
    for version in (engine_version, planner_version):
        version.cache_clear()
    return engine_version(), planner_version()


def chosen(names: Sequence[str], engine: str) -> Iterator[Result]:
    """Yield the named results or, without names, all that are not fresh.

    Raises
    ------
    InputError
        If no result has one of these names.
    """
    known = {result.name: result for result in LIST}
    for name in names:
        if name not in known:
            raise InputError(f"must be of {', '.join(known)}", key="name", value=name)
    for result in LIST:
        if result.name in names or (not names and state(result, engine) != "fresh"):
            yield result


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "list_only", is_flag=True, help="Say what is fresh, stale or missing, and stop.")
def main(names: tuple[str, ...], list_only: bool) -> None:
    """Renew the results NAMES; without names, all that the present engine has not made."""
    if list_only:
        return show_list(engine_version())
    renew(list(chosen(names, engine_version())), engine_version())
    print("done; benchmarks/renew.py --list says what there is", file=sys.stderr)


if __name__ == "__main__":
    run_script(partial(main, standalone_mode=False))
