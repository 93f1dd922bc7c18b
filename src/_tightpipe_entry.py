"""The function behind the installed command `tightpipe` answers signals before its slow imports begin.

This module lies beside the package, because to import a module of a package is to load the package first.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

_REASONS = {signal.SIGINT: b"interrupted", signal.SIGTERM: b"terminated"}


def main() -> None:
    """Run the command line; before it has begun, and after it is done, a signal ends the process at once."""
    for number in _REASONS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # a shell has background jobs ignore Ctrl-C
            signal.signal(number, _end)
    from tightpipe.cli import main as run

    run()


def _end(number: int, _: object) -> NoReturn:
    os.write(2, b"tightpipe: " + _REASONS[signal.Signals(number)] + b"; nothing has begun\n")
    os._exit(128 + number)
