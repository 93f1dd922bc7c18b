"""docs/architecture.md: its drawing is that of the code, and what it calls refused is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.documents import ROOT
from helpers.markdown_tables import tables
from test_packaging import FLOORS

from tightpipe import InputError, Instance, Memory, solve
from tightpipe.model.costs import MicrobatchSlice, Offload, Step
from tightpipe.solver.bounds.relaxed import KNOWN
from tightpipe.solver.queues import is_modelled

PAGE = (ROOT / "docs/architecture.md").read_text()
RULE_TABLES = [rows for rows in tables(PAGE) if rows[0][0] == "rule"]
REFUSED = "refused"


def cells() -> Iterator[tuple[str, str, str]]:
    """Rule, column and text of each cell of the tables of rules."""
    for header, *rows in RULE_TABLES:
        for rule, *texts in rows:
            for column, text in zip(header[1:], texts, strict=True):
                yield rule, column, text


def test_the_drawing_shows_the_floors() -> None:
    (drawing,) = re.findall(r"```text\n(╔.*?)```", PAGE, flags=re.S)
    floors = [
        set(re.findall(r"^║ (\w+) ", floor, flags=re.M)) for floor in re.split(r"^╠.*\n", drawing, flags=re.M)
    ]
    assert floors == list(reversed(FLOORS))


def test_every_room_of_the_drawing_is_a_folder_or_a_file() -> None:
    places = [ROOT / "src/tightpipe", ROOT]
    for room in set().union(*FLOORS):
        assert any((place / room).is_dir() or (place / f"{room}.py").is_file() for place in places), room


INSTANCES: dict[str, dict[str, Any]] = {
    "F and backward may run as a pair": {"overlapped": 15},
    "a fused BW takes a time of its own": {"fused": 17},
    "flush between iterations": {"iterations": 2},
    "with the objective `step`, no F starts before its stage is ready": {
        "objective": "step",
        "step": Step(ready=5),
    },
    "F after F of the slice before, B after B of the slice behind": {"slices": [MicrobatchSlice()] * 2},
    "a busy link makes messages wait": {"link_occupancy": 11},
    "activations may be copied out and back": {"memory": Memory(2, -1, -1, 8), "offload": Offload(1, 3, 3)},
}
METHODS = {
    "list": "list",
    "dispatch": "improve",
    "annealing": "improve",
    "plain": "cpsat",
    "MILP": "milp",
    "block": "block",
}


def instance_with(rule: str) -> Instance:
    return Instance.uniform(devices=2, microbatches=4, forward=10, backward=12, weight=8, **INSTANCES[rule])


@pytest.mark.parametrize("rule", INSTANCES)
@pytest.mark.parametrize("column", METHODS)
def test_what_the_table_calls_refused_is_refused_and_nothing_else(rule: str, column: str) -> None:
    (text,) = (text for row, other, text in cells() if (row, other) == (rule, column))
    refused = False
    try:
        solve(instance_with(rule), METHODS[column], time_limit=0, workers=1)
    except InputError:
        refused = True
    assert refused == (text == REFUSED)


@pytest.mark.parametrize("rule", INSTANCES)
def test_bounds_are_asked_about_what_the_table_does_not_call_refused(rule: str) -> None:
    for row, column, text in cells():
        if row == rule and column in ("energetic", "prefixes"):
            assert is_modelled(instance_with(rule), *KNOWN) == (text != REFUSED), column


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`((?:src|solver|heuristics|tests|benchmarks)/[\w./-]*)`", PAGE))
    assert len(named) > 30
    assert {name for name in named if not (ROOT / name).exists()} == set()
