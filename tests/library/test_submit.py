"""What enters the library: only what verifies, and only what is better than what is known."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.small_library import (
    COSTS,
    FORMULA,
    OPTIMUM,
    files,
    no_proof,
    proof_of,
    schedule_of,
    small_library,
    unknown_schedule,
)

import tightpipe.library.folder as room
from tightpipe import InputError
from tightpipe.base.errors import ContradictionError
from tightpipe.library import Difficulty, Record, RefusedError, State, check_record, submit
from tightpipe.model.schedule_file import schedule_to_dict


def test_a_cheaper_schedule_enters_with_its_origin_and_the_old_one_goes(tmp_path: Path) -> None:
    library = small_library(tmp_path)
    record = submit(library, schedule_of("greedy-v"), by="Ada")
    assert record == library.record("small")
    assert record.cost is not None
    assert (record.cost.value, record.cost.method, record.cost.by) == (248, "greedy-v", "Ada")
    assert (record.cost.engine, record.cost.seconds) == (None, None)
    schedule = library.schedule("small")
    assert schedule is not None
    assert schedule_to_dict(schedule, method="greedy-v") == schedule_of("greedy-v")
    assert check_record(library, record) == "open, cost 248 verified, bound 244 trusted from formula"


def test_a_first_schedule_enters(tmp_path: Path) -> None:
    library = small_library(tmp_path, cost=None)
    assert library.record("small").state is State.OPEN
    assert library.record("small").gap is None
    record = submit(library, schedule_of("1f1b-v"), by="Ada")
    assert record.cost is not None
    assert record.cost.value == COSTS["1f1b-v"]


def test_a_schedule_and_a_certificate_close_an_instance(tmp_path: Path) -> None:
    library = small_library(tmp_path)
    assert submit(library, schedule_of("cpsat"), by="Ada", seconds=1).state is State.OPEN
    record = submit(library, proof_of(OPTIMUM), by="Emmy", seconds=1)
    assert (record.state, record.difficulty, record.gap) == (State.CLOSED, Difficulty.EASY, 0)
    assert (record.bound.method, record.bound.by) == ("certificate", "Emmy")
    assert check_record(library, record) == "closed, cost 246 verified, bound 246 verified"


def test_a_certificate_of_what_was_only_trusted_closes_an_instance(tmp_path: Path) -> None:
    library = small_library(tmp_path, cost="cpsat", bound=OPTIMUM)
    assert library.record("small").state is State.TRUSTED
    assert submit(library, proof_of(OPTIMUM), by="Emmy").state is State.CLOSED
    with pytest.raises(RefusedError, match="a bound of 246 is proven, this proves 246"):
        submit(library, proof_of(OPTIMUM), by="Emmy again")


def test_a_larger_proven_bound_replaces_a_smaller_one(tmp_path: Path) -> None:
    library = small_library(tmp_path)
    submit(library, proof_of(FORMULA), by="Emmy")
    assert library.certificate("small") == proof_of(FORMULA)
    submit(library, proof_of(OPTIMUM), by="Emmy")
    assert library.certificate("small") == proof_of(OPTIMUM)


def moved(content: dict[str, Any], ticks: int) -> dict[str, Any]:
    """The same schedule with its last operation on device 0 earlier by some ticks."""
    *_, (_, start, end) = content["devices"][0]
    content["devices"][0][-1][1:] = [start - ticks, end - ticks]
    return content


REFUSED = {
    "overlapping": (lambda: moved(schedule_of("cpsat"), 1), "the schedule is invalid: "),
    "worse": (lambda: schedule_of("modulo"), "a schedule of cost 248 is known, this costs 278"),
    "equal": (lambda: schedule_of("greedy-v"), "a schedule of cost 248 is known, this costs 248"),
    "unknown": (unknown_schedule, "the library has no such instance"),
    "trusted": (no_proof, "not verified: the bound 246 rests on 'cp-sat', which has no proof here"),
    "weaker": (lambda: proof_of(FORMULA - 1), "a bound of 244 is trusted from formula, this proves 243"),
    "too much": (lambda: proof_of(OPTIMUM) | {"bound": OPTIMUM + 1}, "not verified: "),
    "without steps": (
        lambda: proof_of(OPTIMUM) | {"proof": {"kind": "windows", "anchor": 0, "steps": []}},
        "not verified: the steps of the proof lead to no contradiction",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_verify_or_is_not_better_is_refused_and_changes_nothing(
    name: str, tmp_path: Path
) -> None:
    make, message = REFUSED[name]
    library = small_library(tmp_path, cost="greedy-v")
    before = files(library)
    with pytest.raises(RefusedError, match=message):
        submit(library, make(), by="Eve")
    assert files(library) == before


def test_no_certificate_with_a_step_changed_enters_with_more_than_the_optimum(tmp_path: Path) -> None:
    """A changed proof may prove as much as before, but what is false stays out."""
    library, draws, refused = small_library(tmp_path, cost=None), random.Random(0), 0
    for _ in range(200):
        content = proof_of(OPTIMUM)
        content["bound"] = OPTIMUM + draws.randint(1, 9)
        steps = content["proof"]["steps"]
        steps.insert(draws.randrange(len(steps)), steps.pop(draws.randrange(len(steps))))
        with suppress(RefusedError, InputError):
            submit(library, content, by="Eve")
            continue
        refused += 1
    assert refused == 200
    assert library.record("small").bound.value == FORMULA


def test_claims_of_a_schedule_file_count_nothing(tmp_path: Path) -> None:
    library = small_library(tmp_path)
    record = submit(library, schedule_of("greedy-v") | {"cost": 1, "bound": 248}, by="Ada")
    assert record.cost is not None
    assert (record.cost.value, record.bound.value, record.state) == (248, FORMULA, State.OPEN)


def test_the_instance_has_to_be_the_named_one(tmp_path: Path) -> None:
    library = small_library(tmp_path)
    with pytest.raises(RefusedError, match="this is about another instance than small"):
        submit(library, unknown_schedule(), by="Ada", id="small")
    with pytest.raises(InputError, match="id = 'large': the library has no instance of this name"):
        submit(library, schedule_of("greedy-v"), by="Ada", id="large")
    submit(library, schedule_of("greedy-v"), by="Ada", id="small")


def test_a_cost_below_a_bound_is_a_contradiction(tmp_path: Path) -> None:
    library = small_library(tmp_path / "a", cost="greedy-v", bound=247)
    with pytest.raises(ContradictionError, match="small: a schedule costs 246, below the bound 247"):
        submit(library, schedule_of("cpsat"), by="Ada")


def test_a_write_that_fails_leaves_the_old_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = small_library(tmp_path)
    before = files(library)

    def fail(path: Path, text: str) -> None:
        raise InputError("cannot be written: No space left on device", source=str(path))

    monkeypatch.setattr(room, "write_text", fail)
    with pytest.raises(InputError, match="No space left"):
        submit(library, schedule_of("greedy-v"), by="Ada")
    assert files(library) == before
    assert check_record(library, library.record("small")).startswith("open, cost 284 verified")
    monkeypatch.undo()
    submit(library, schedule_of("cpsat"), by="Ada")
    assert check_record(library, library.record("small")).startswith("open, cost 246 verified")


def test_a_schedule_that_begins_late_enters_with_the_cheapest_times_of_its_order(tmp_path: Path) -> None:
    library, late = small_library(tmp_path), schedule_of("greedy-v")
    for device in late["devices"]:
        device[-1][1:] = [time + 20 for time in device[-1][1:]]
    record = submit(library, late, by="Ada")
    assert record.cost is not None
    assert record.cost.value == COSTS["greedy-v"]
    assert check_record(library, record).startswith("open, cost 248 verified")


def test_of_several_at_once_the_cheapest_stays(tmp_path: Path) -> None:
    library = small_library(tmp_path)

    def enter(method: str) -> Record | None:
        with suppress(RefusedError):
            return submit(library, schedule_of(method), by=method)
        return None

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(enter, ("1f1b-v", "modulo", "greedy-v", "cpsat")))
    record = library.record("small")
    assert record.cost is not None
    assert (record.cost.value, record.cost.by) == (OPTIMUM, "cpsat")
    assert check_record(library, record).startswith("open, cost 246 verified")
