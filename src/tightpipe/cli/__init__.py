"""The command line; `main` turns every failure into one line on stderr and an exit status."""

from __future__ import annotations

import sys

import click

from ..base.errors import InputError, NegativeError, StandardOutputError, printable
from ..base.interruption import ended_by_signals
from ..terminal import delivered_output, dependable_streams
from .common import cli
from .group import Stopped, stopped_by

__all__ = ["cli", "main"]

_READER_LEFT = 141
"""Exit status where the reader of a pipe wants no more: 128 plus SIGPIPE, as of any program in a shell."""


def main() -> None:
    """Run the command line and exit; every failure becomes one line on stderr and an exit status."""
    with dependable_streams():
        status, message = _outcome()
        if message:
            print(f"tightpipe: {printable(message)}", file=sys.stderr)
    sys.exit(status)


def _outcome() -> tuple[int, str]:
    try:
        with ended_by_signals(), delivered_output():
            return cli.main(prog_name="tightpipe", standalone_mode=False) or 0, ""
    except StandardOutputError as error:
        return (_READER_LEFT, "") if error.reader_left else (2, str(error))
    except Stopped as stop:
        return stop.status, stop.message
    except click.ClickException as error:
        return 2, " ".join(error.format_message().split())
    except InputError as error:
        return 2, str(error)
    except NegativeError as error:
        return 1, str(error)
    except (KeyboardInterrupt, click.Abort) as stop:  # the signal came before or after the command itself
        early = stopped_by(stop.__cause__ or stop)  # click turns any KeyboardInterrupt into an Abort
        return early.status, early.message
