"""docs/index.md leads from a question to every command and its page."""

from __future__ import annotations

import click
import pytest
from helpers.documents import ROOT
from helpers.every_command import commands
from helpers.markdown_tables import codes, tables

from tightpipe.cli import cli

PAGE = (ROOT / "docs/index.md").read_text()
QUESTIONS = tables(PAGE)[0][1:]
COMMANDS = cli.list_commands(click.Context(cli))


NAMED = {name for row in QUESTIONS for name in codes(row[1]) if name.startswith("tightpipe ")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_question_leads_to_every_command(command: str) -> None:
    assert any(f"{name} ".startswith(f"tightpipe {command} ") for name in NAMED)


def test_the_table_names_no_command_that_is_not_there() -> None:
    known = tuple(f"tightpipe {command} " for command in (*commands(), *COMMANDS))
    assert all(f"{name} ".startswith(known) for name in NAMED)
