"""Records: their file, their status, and how hard an instance was."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from helpers.small_library import INSTANCE, claim, files, proof_of, small_library

from tightpipe.base.errors import ContradictionError
from tightpipe.library import Difficulty, Record, State
from tightpipe.library.record import markdown, record_from_dict
from tightpipe.model.metrics import cost as cost_of

RECORD = Record("small", "tests", "a test", INSTANCE, claim(250, "list"), claim(244))


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        replace(RECORD, cost=None),
        replace(RECORD, bound=claim(250), certified=True, searched=3.5),
        replace(RECORD, cost=replace(claim(250), engine=None, seconds=None)),
    ],
)
def test_a_record_comes_back_from_its_file(record: Record) -> None:
    assert record_from_dict(json.loads(json.dumps(record.to_file()))) == record


def test_the_same_library_is_the_same_bytes_at_any_time(tmp_path: Path) -> None:
    first, second = (small_library(tmp_path / name) for name in "ab")
    assert files(first) == files(second)


@pytest.mark.parametrize(
    ("cost", "certified", "state"),
    [(None, True, "open"), (245, True, "open"), (244, True, "closed"), (244, False, "closed (trusted)")],
)
def test_the_status_follows_from_cost_bound_and_certificate(
    cost: int | None, certified: bool, state: str
) -> None:
    record = replace(RECORD, cost=None if cost is None else claim(cost), certified=certified)
    assert record.state.value == state
    assert (record.difficulty is Difficulty.OPEN) == (state == "open")


def test_no_record_has_a_bound_above_its_cost() -> None:
    """Else a wrong proof would look like optimality."""
    with pytest.raises(ContradictionError, match="small: a schedule costs 250, below the bound 251"):
        replace(RECORD, bound=claim(251))
    with pytest.raises(ContradictionError, match="small: a schedule costs 243, below the bound 244"):
        record_from_dict(RECORD.to_file() | {"cost": asdict(claim(243))})


@pytest.mark.parametrize(
    ("cost", "bound", "difficulty"),
    [
        (5.0, 5.0, "easy"),
        (5.0, 5.1, "medium"),
        (300.0, 300.0, "medium"),
        (300.0, 300.1, "hard"),
        (None, 0.1, "hard"),
        (0.1, None, "hard"),
    ],
)
def test_the_difficulty_follows_from_the_time_that_both_took(
    cost: float | None, bound: float | None, difficulty: str
) -> None:
    claims = replace(claim(244), seconds=cost), replace(claim(244), seconds=bound)
    assert Record("a", "b", "c", INSTANCE, *claims).difficulty.value == difficulty


def test_a_library_knows_its_instances_by_content(tmp_path: Path) -> None:
    library = small_library(tmp_path)
    assert library.find(INSTANCE) == library.record("small")
    assert library.find(replace(INSTANCE, microbatches=5)) is None


def test_putting_a_record_keeps_the_schedule_and_the_certificate_that_it_counts_on(tmp_path: Path) -> None:
    library = small_library(tmp_path, cost="cpsat")
    record = replace(library.record("small"), bound=claim(246), certified=True)
    library.put(record, certificate=proof_of(246))
    library.put(replace(record, searched=9.0))
    schedule = library.schedule("small")
    assert schedule is not None
    assert cost_of(schedule) == 246
    assert library.certificate("small") == proof_of(246)
    assert library.record("small").state is State.CLOSED
    library.put(replace(record, bound=claim(245), certified=False))
    assert library.certificate("small") is None


def test_the_page_has_open_problems_first_and_everything_after_them() -> None:
    closed = replace(RECORD, id="shut", bound=claim(250))
    opened, everything = markdown([RECORD, closed]).split("## All instances")
    assert "| small " in opened
    assert "| shut " not in opened
    assert "| small " in everything
    assert "| shut " in everything
