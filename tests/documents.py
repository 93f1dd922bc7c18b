"""Documents run as tests: their code blocks, one after another in an empty folder.

``python`` blocks share one namespace. In ``console`` blocks every line is a command of tightpipe; where
the lines start with ``$``, what is printed must be the lines that follow (``...`` stands for anything).
A block with a title is written to a file of that name. ``sh`` blocks are not run, but the targets of
make that they name must be there.
"""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from command_line import call
from sybil import Document, Example, Region
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

ROOT = Path(__file__).parents[1]
_TITLED = re.compile(r'\w+ title="(?P<title>[^"]+)"\n')
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_document(path: Path) -> int:
    """Run all blocks of a document in the working folder; return how many there were."""
    parsers = (
        PythonCodeBlockParser(),
        CodeBlockParser("console", _run_commands),
        CodeBlockParser("sh", _check_targets),
        _files,
        SkipParser(),
    )
    document = Document.parse(str(path), *parsers)
    examples = list(document.examples())
    for example in examples:
        example.evaluate()
    return len(examples)


def _files(document: Document) -> Iterable[Region]:
    for region in RawFencedCodeBlockLexer(_TITLED)(document):
        region.parsed, region.evaluator = region.lexemes["source"], _write
        yield region


def _write(example: Example) -> None:
    path = Path(example.region.lexemes["title"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(example.parsed))


def _run_commands(example: Example) -> str | None:
    prompted = str(example.parsed).startswith("$ ")
    steps = re.split(r"^\$ ", example.parsed, flags=re.M)[1:] if prompted else example.parsed.splitlines()
    for step in steps:
        line, _, expected = step.partition("\n")
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "tightpipe", f"{line} is no command of tightpipe"
        done = call(*words[1:])
        printed = done.stdout + done.stderr
        if done.returncode and not expected:
            return f"{line} ended with {done.returncode}: {printed}"
        if expected and not doctest.OutputChecker().check_output(expected, printed, _OPTIONS):
            return f"{line} printed\n{printed}\nnot\n{expected}"
    return None


def _check_targets(example: Example) -> str | None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = re.findall(r"^make ([\w-]+)", example.parsed, flags=re.M)
    unknown = [name for name in named if name not in targets]
    return f"the Makefile has no {', '.join(unknown)}" if unknown else None
