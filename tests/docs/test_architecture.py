"""docs/architecture.md: its drawing, its words and its table of rules are those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT
from markdown_tables import codes, tables
from test_packaging import FLOORS

from tightpipe import InputError, Instance, solve
from tightpipe.core.instance import Step
from tightpipe.core.validate import RULES
from tightpipe.solver.modelled import is_modelled

PAGE = (ROOT / "docs/architecture.md").read_text()
TABLES = tables(PAGE)
(WORDS,) = (rows[1:] for rows in TABLES if rows[0][0] == "word")
FILES = {row[0]: codes(row[1]) for rows in TABLES if rows[0][0] == "column" for row in rows[1:]}
RULE_TABLES = [rows for rows in TABLES if rows[0][0] == "rule"]
NOTHING, REFUSED = "-", "refused"


def cells() -> Iterator[tuple[str, str, str]]:
    """Rule, column and text of each cell of the tables of rules."""
    for header, *rows in RULE_TABLES:
        for rule, *texts in rows:
            for column, text in zip(header[1:], texts, strict=True):
                yield rule, column, text


def files_of(place: str) -> list[Path]:
    path = ROOT / place
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def functions_of(column: str) -> list[str]:
    """The names of all functions and methods in the files of a column, as often as they are there."""
    trees = [ast.parse(path.read_text()) for place in FILES[column] for path in files_of(place)]
    return [node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


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


@pytest.mark.parametrize("row", WORDS, ids=lambda row: row[0].strip("*"))
def test_a_word_is_used_where_the_page_says(row: list[str]) -> None:
    word, _, where = row
    (place,) = codes(where)
    pattern = re.sub("[- ]", "[- _]?", word.strip("*"))
    texts = [path.read_text() for path in files_of(place)]
    assert any(re.search(pattern, text, flags=re.I) for text in texts), place


@pytest.mark.parametrize("row", [row for row in WORDS if "`solver/" in row[2]], ids=lambda row: row[0])
def test_a_word_of_the_solver_is_explained_where_the_page_says_and_nowhere_else(row: list[str]) -> None:
    word, _, where = row
    emphasised = re.compile(rf"(?<!\*)\*{word.strip('*')}s?\*(?!\*)", flags=re.I)
    explaining = [path for path in (ROOT / "solver").rglob("*.py") if emphasised.search(path.read_text())]
    assert [path.relative_to(ROOT).as_posix() for path in explaining] == codes(where)


def test_no_word_is_explained_twice() -> None:
    words = [word for word, *_ in WORDS]
    assert len(words) == len(set(words))


def test_the_tables_have_the_same_rows() -> None:
    first, *others = [[row[0] for row in rows[1:]] for rows in RULE_TABLES]
    assert others == [first, first]


def test_the_columns_are_those_whose_files_are_listed() -> None:
    assert [column for rows in RULE_TABLES for column in rows[0][1:]] == list(FILES)


def test_every_function_of_the_table_is_in_the_files_of_its_column() -> None:
    known = {column: functions_of(column) for column in FILES}
    wrong = [
        f"{column}, {rule}: {name}"
        for rule, column, text in cells()
        for name in codes(text)
        if known[column].count(name) != 1
    ]
    assert wrong == []


def test_a_cell_names_functions_or_says_why_there_are_none() -> None:
    for rule, column, text in cells():
        assert codes(text) or text in (NOTHING, REFUSED), f"{column}, {rule}: {text}"


def test_every_rule_of_the_validator_has_a_row() -> None:
    named = {name for _, column, text in cells() if column == "validator" for name in codes(text)}
    assert named == set(RULES)


def families(path: str, method: str) -> set[str]:
    """The methods that a method of this name calls on itself: the families that a model lists."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == method:
            called = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
            return {func.attr for func in called if isinstance(func, ast.Attribute)}
    raise AssertionError(f"no {method} in {path}")


@pytest.mark.parametrize(
    ("column", "path", "method"),
    [
        ("lattice", "solver/cpsat/lattice/constraints.py", "add_constraints"),
        ("plain", "solver/cpsat/plain/constraints.py", "add_constraints"),
        ("MILP", "solver/milp/constraints.py", "add_constraints"),
        ("block", "solver/cpsat/periodic/constraints.py", "add_constraints"),
    ],
)
def test_every_family_of_constraints_stands_in_the_table(column: str, path: str, method: str) -> None:
    named = {name for _, other, text in cells() if other == column for name in codes(text)}
    assert families(path, method) <= named


def test_every_kind_of_fluid_row_stands_in_the_table() -> None:
    named = {name for _, column, text in cells() if column == "fluid" for name in codes(text)}
    assert {name for name in functions_of("fluid") if name.startswith("_add_")} <= named


INSTANCES: dict[str, dict[str, Any]] = {
    "F and backward may run as a pair": {"overlapped": 15},
    "a fused BW takes a time of its own": {"fused": 17},
    "flush between iterations": {"iterations": 2},
    "with the objective `step`, no F starts before its stage is ready": {
        "objective": "step",
        "step": Step(ready=5),
    },
    "a busy link makes messages wait": {"link_occupancy": 11},
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
        if row == rule and column in ("windows", "energetic", "fluid", "prefixes"):
            assert is_modelled(instance_with(rule)) == (text != REFUSED), column
