"""The command line; `main` turns every failure into one line on stderr and an exit status."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from ..errors import DeadlockError, InfeasibleError, InputError, NoScheduleError, RunError, StoppedError
from .common import cli

__all__ = ["cli", "main"]

_INTERRUPTED = 130


def _fail(message: str, status: int) -> NoReturn:
    print(f"tightpipe: {message}", file=sys.stderr)
    sys.exit(status)


def main() -> None:
    """Run the command line; every failure is one line on stderr and an exit status."""
    try:
        sys.exit(cli.main(prog_name="tightpipe", standalone_mode=False))
    except click.ClickException as error:
        _fail(" ".join(error.format_message().split()), 2)
    except InputError as error:
        _fail(str(error), 2)
    except (InfeasibleError, NoScheduleError, DeadlockError, RunError) as error:
        _fail(str(error), 1)
    except StoppedError as error:
        _fail(f"{error}; what was finished is kept, the same command continues", 1)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; what was finished is kept, the same command continues", _INTERRUPTED)
