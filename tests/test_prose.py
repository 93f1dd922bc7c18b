"""Docstrings keep a few habits that can be checked; whether a stranger understands them, a reader must say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "heuristics", "solver", "src")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
QUESTIONS = ("Whether", "What", "How", "Where", "When", "Which", "Why", "Who")
RAISES = re.compile(r"^Raises\n-+\n(.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", re.MULTILINE | re.DOTALL)
TIME_UNITS = ("v_building_block.py", "v_reorder_kernel.py")  # where passes are placed in time units


def documented(path: Path) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)):
            text = ast.get_docstring(node)
            if text:
                yield node, text


def is_property(node: ast.AST) -> bool:
    names = {ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ())}
    return bool(names & {"property", "cached_property"})


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_function_says_in_the_imperative_what_it_does(path):
    for node, text in documented(path):
        if isinstance(node, FUNCTIONS) and not is_property(node):
            assert text.split()[0] not in QUESTIONS, f"{node.name}: {text.splitlines()[0]}"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_an_exception_says_when_it_is_raised(path):
    for _, text in documented(path):
        for section in RAISES.findall(text):
            first_lines = re.findall(r"^\S[^\n]*\n +(\S[^\n]*)", section, re.MULTILINE)
            assert first_lines, section
            for line in first_lines:
                assert line.startswith(("If ", "As in ")), line


@pytest.mark.parametrize("file", TIME_UNITS)
def test_a_slot_is_never_a_time_unit(file):
    assert not re.search(r"\bslots?\b", re.sub(r"slots=True", "", (ROOT / "heuristics" / file).read_text()))


def test_outside_of_orders_nothing_is_called_a_slot():
    folder = ROOT / "src" / "tightpipe"
    for path in (
        *(folder / "experiments").rglob("*.py"),
        folder / "cli" / "sweep_bar.py",
        folder / "cli" / "filling.py",
    ):
        assert not re.search(r"\bslots?\b", re.sub(r"slots=True", "", path.read_text())), name(path)


def test_only_a_batch_system_queues_solves():
    for path in (ROOT / "src" / "tightpipe" / "experiments").rglob("*.py"):
        for line in path.read_text().splitlines():
            if re.search(r"\bqueue(s|d)?\b", line, re.IGNORECASE):
                # one of its options, and the name of the standard library's module
                assert "SLURMCluster" in line or "from queue import" in line, f"{name(path)}: {line}"


@pytest.mark.parametrize("folder", ["solver", "benchmarks"])
def test_the_solver_has_no_slots(folder):
    for path in (ROOT / folder).rglob("*.py"):
        assert not re.search(r"\bslots?\b", re.sub(r"slots=True", "", path.read_text())), path


def test_in_heuristics_a_queue_is_first_in_first_out():
    for path in (ROOT / "heuristics").glob("*.py"):
        for line in path.read_text().splitlines():
            if re.search(r"\bqueues?\b", line, re.IGNORECASE):
                assert path.name == "list_schedule.py", f"{path.name}: {line}"  # its head defines the word
