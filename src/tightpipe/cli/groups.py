"""The groups of commands below the top one."""

from __future__ import annotations

from .common import cli
from .group import COSTS, PAPER, PROGRAM, LazyGroup


@cli.group("costs", cls=LazyGroup, sections={"Commands": COSTS})
def costs() -> None:
    """Write the costs that an instance or a model needs: measured or computed."""


@cli.group("program", cls=LazyGroup, sections={"Commands": PROGRAM})
def program() -> None:
    """Replay programs, also under noise, reorder them, and import schedules.

    `tightpipe lower` makes the program of a schedule.
    """


@cli.group("paper", cls=LazyGroup, sections={"Commands": PAPER})
def paper() -> None:
    """Make tables and figures like those of the papers."""
