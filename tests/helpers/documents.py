"""Documents and notebooks run as tests. Of documents, their code blocks, one after another in an empty folder.

``python`` blocks share one namespace. The lines of ``sh`` blocks are commands of tightpipe, or targets of
make, which are not run but must be there; ``pip install -e .`` makes the folder's package known as pip would.
``console`` blocks have commands behind ``$``, and what is
printed must be the lines that follow (``...`` stands for anything). A block with a title is written to
a file of that name. What stands behind ``<!-- skip: next -->`` is not run.
"""

from __future__ import annotations

import ast
import doctest
import json
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sybil import Document, Example, Region
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

from helpers.command_line import call
from helpers.packages import importable, install_project

ROOT = Path(__file__).parents[2]
_TITLED = re.compile(r'\w+ title="(?P<title>[^"]+)"\n')
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_document(path: Path) -> int:
    """Run all blocks of a document in the working folder; return how many there were."""
    parsers = (
        PythonCodeBlockParser(),
        CodeBlockParser("sh", _run_commands),
        CodeBlockParser("console", _compare_output),
        _files,
        SkipParser(),
    )
    document = Document.parse(str(path), *parsers)
    examples = list(document.examples())
    with importable(Path.cwd()):
        for example in examples:
            example.evaluate()
    return len(examples)


def run_notebook(path: Path, *, torch: bool = False) -> int:
    """Run the code of a notebook in the working folder, show the value of each cell, and return how many ran.

    Cells with the tag ``torch`` run only if asked for.
    """
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    cells = [cell for cell in cells if torch or "torch" not in cell["metadata"].get("tags", ())]
    names: dict[str, Any] = {}
    for cell in cells:
        *statements, last = ast.parse("".join(cell["source"])).body
        if not isinstance(last, ast.Expr):
            statements.append(last)
        exec(compile(ast.Module(statements, []), path.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
            show = getattr(value, "_repr_html_", value.__repr__)
            assert show()
    return len(cells)


def _files(document: Document) -> Iterable[Region]:
    for region in RawFencedCodeBlockLexer(_TITLED)(document):
        region.parsed, region.evaluator = region.lexemes["source"], _write
        yield region


def _write(example: Example) -> None:
    path = Path(example.region.lexemes["title"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(example.parsed))


def _run_commands(example: Example) -> str | None:
    text = str(example.parsed).replace("\\\n", " ")
    for line in text.splitlines():
        match shlex.split(line, comments=True):
            case []:
                pass
            case ["make", target, *_]:
                makefile = (ROOT / "Makefile").read_text()
                assert re.search(rf"^{re.escape(target)}:", makefile, flags=re.M), f"no make {target}"
            case ["pip", "install", "-e", "."]:
                install_project(Path.cwd())
            case ["tightpipe", *words]:
                done = call(*words)
                assert done.returncode == 0, f"{line}: {done.stderr}"
            case _:
                return f"{line} is no command of tightpipe"
    return None


def _compare_output(example: Example) -> str | None:
    _, *steps = re.split(r"^\$ ", example.parsed, flags=re.M)
    for step in steps:
        line, _, expected = step.partition("\n")
        program, *words = shlex.split(line)
        assert program == "tightpipe", f"{line} is no command of tightpipe"
        done = call(*words)
        printed = done.stdout + done.stderr
        if not doctest.OutputChecker().check_output(expected, printed, _OPTIONS):
            return f"{line} printed\n{printed}\nnot\n{expected}"
    return None
