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
