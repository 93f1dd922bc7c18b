"""Tables of benchmarks: a run that was interrupted goes on, and one that has finished begins anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
from growing_table import (  # noqa: E402  # in no package
    append,
    lines_of,
    open_table,
    open_tables,
    run_script,
)

from tightpipe.base.errors import InputError, StoppedError  # noqa: E402
from tightpipe.base.sources import engine_version  # noqa: E402

COLUMNS = ("number", "engine")


def run(
    folder: Path, lines: int, *, seconds: int = 1, extend: bool = False, killed: bool = False
) -> list[int]:
    """Run a benchmark with two tables, which have lines by number, and return the numbers that it computes."""
    first, second = folder / "first.csv", folder / "second.csv"
    computed = []
    with open_tables({first: COLUMNS, second: COLUMNS}, (seconds,), extend):
        for path in (first, second):
            there = {int(line["number"]) for line in lines_of(path)}
            todo = [number for number in range(lines) if number not in there]
            made = ([{"number": number, "engine": engine_version()}] for number in todo)
            for number, _ in zip(todo, append(path, COLUMNS, made), strict=True):
                computed.append(number)
                if killed and path == second:
                    raise KeyboardInterrupt
    return computed


def test_a_finished_run_begins_anew_and_keeps_its_lines_aside(tmp_path: Path) -> None:
    assert run(tmp_path, 2) == [0, 1, 0, 1]
    assert run(tmp_path, 2) == [0, 1, 0, 1]
    assert lines_of(tmp_path / "second.csv") == lines_of(tmp_path / "second.csv.bak")


def test_the_same_run_goes_on_in_all_tables_where_it_was_interrupted(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 2, killed=True)
    assert run(tmp_path, 2) == [1]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 2, killed=True)
    assert run(tmp_path, 2, seconds=2) == [0, 1, 0, 1]


def test_a_run_that_extends_keeps_the_lines_of_a_finished_one(tmp_path: Path) -> None:
    run(tmp_path, 2)
    assert run(tmp_path, 3, extend=True) == [2, 2]
    assert len(lines_of(tmp_path / "first.csv")) == 3


def test_a_group_of_lines_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"

    def group(*numbers: int) -> Iterator[dict[str, object]]:
        for number in numbers:
            if number < 0:
                raise KeyboardInterrupt
            yield {"number": number, "engine": engine_version()}

    def fill() -> None:
        with open_tables({path: COLUMNS}, (), False):
            for _ in append(path, COLUMNS, (group(0, 1), group(2, -1))):
                assert [line["number"] for line in lines_of(path)] == ["0", "1"]

    with pytest.raises(KeyboardInterrupt):
        fill()
    assert [line["number"] for line in lines_of(path)] == ["0", "1"]


def test_a_full_disk_leaves_whole_groups(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")  # limits of files are of POSIX
    path = tmp_path / "table.csv"
    groups = [[{"number": number, "engine": engine_version()}] * 100 for number in range(2)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_tables({path: COLUMNS}, (), False):
        written = append(path, COLUMNS, groups)
        next(written)
        whole = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 50, limits[1]))
        try:
            with pytest.raises(StoppedError, match="cannot be written"):
                next(written)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.stat().st_size == whole


def test_a_table_of_this_engine_with_other_columns_is_refused_and_one_of_another_begins_anew(
    tmp_path: Path,
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"number,seed,engine\n1,0,{engine_version()}\n")
    with pytest.raises(InputError, match=r"table\.csv: has other columns than this script writes"):
        open_table(path, COLUMNS)
    path.write_text("number,seed,engine\n1,0,0.1.0\n")
    open_table(path, COLUMNS)
    assert path.read_text() == "number,engine\n"
    assert path.with_name("table.csv.bak").read_text() == "number,seed,engine\n1,0,0.1.0\n"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (InputError("must be even", key="--seconds", value=3), 2, "script.py: --seconds = 3: must be even"),
        (StoppedError("failed: noise"), 1, "script.py: failed: noise"),
        (KeyboardInterrupt(), 130, "script.py: interrupted; the same command continues"),
    ],
)
def test_a_script_ends_in_one_line(
    error: BaseException,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["benchmarks/script.py"])
    with pytest.raises(SystemExit) as ended:
        run_script(fail)
    assert ended.value.code == status
    assert capsys.readouterr().err == f"{said}\n"
