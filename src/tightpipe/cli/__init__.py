"""The command line; `main` turns every failure into one line on stderr and an exit status."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from ..core.errors import (
    ContradictionError,
    DeadlockError,
    InfeasibleError,
    InputError,
    NoScheduleError,
    RefusedError,
    RunError,
    StoppedError,
)
from ..core.interruption import ended_by_signals, exit_status, reason_of
from .common import cli
from .group import Stopped
from .swallowed_signals import swallowed_signals_come_again

__all__ = ["cli", "main"]

_NO = (InfeasibleError, NoScheduleError, DeadlockError, ContradictionError, RefusedError, RunError)
"""Errors that mean the answer is no; the exit status is 1."""


def _fail(message: str, status: int) -> NoReturn:
    print(f"tightpipe: {message}", file=sys.stderr)
    sys.exit(status)


def _fail_stopped(reason: str) -> NoReturn:
    _fail(f"{reason}; what was finished is kept, the same command continues", exit_status(reason))


def main() -> None:
    """Run the command line and exit; every failure becomes one line on stderr and an exit status."""
    try:
        with ended_by_signals(), swallowed_signals_come_again():
            status = cli.main(prog_name="tightpipe", standalone_mode=False)
        sys.exit(status)
    except Stopped as stop:
        _fail_stopped(stop.reason)
    except click.ClickException as error:
        _fail(" ".join(error.format_message().split()), 2)
    except InputError as error:
        _fail(str(error), 2)
    except _NO as error:
        _fail(str(error), 1)
    except StoppedError as error:
        _fail(f"{error}; what was finished is kept, the same command continues", 1)
    except (KeyboardInterrupt, click.Abort) as stop:  # the signal came before or after the command itself
        _fail_stopped(reason_of(stop.__cause__ or stop))  # click turns any KeyboardInterrupt into an Abort
