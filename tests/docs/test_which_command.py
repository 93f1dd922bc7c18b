"""docs/which-command.md answers for every command, and leads to the answers."""

from __future__ import annotations

import re

import click
import pytest
from documents import ROOT
from every_command import commands
from markdown_tables import codes, tables

from tightpipe.cli import cli

PAGE = (ROOT / "docs/which-command.md").read_text()
QUESTIONS = tables(PAGE)[0][1:]
COMMANDS = cli.list_commands(click.Context(cli))


def heading_ids() -> set[str]:
    """The names by which links reach the page's headings."""
    titles = re.findall(r"^## (.*)$", PAGE, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


NAMED = {name for row in QUESTIONS for name in codes(row[1]) if name.startswith("tightpipe ")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_question_leads_to_every_command(command: str) -> None:
    assert any(f"{name} ".startswith(f"tightpipe {command} ") for name in NAMED)


def test_the_table_names_no_command_that_is_not_there() -> None:
    known = tuple(f"tightpipe {command} " for command in (*commands(), *COMMANDS))
    assert all(f"{name} ".startswith(known) for name in NAMED)


def test_answers_on_the_page_are_reached_by_their_headings_and_none_is_left_out() -> None:
    reached = {anchor for row in QUESTIONS for anchor in re.findall(r"\(#([^)]+)\)", row[2])}
    assert reached == heading_ids()
