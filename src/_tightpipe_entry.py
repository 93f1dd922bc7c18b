"""The installed command: it answers signals from its first moment, before what takes long is loaded.

It lies beside the package, since to import a module of the package is to load the package first.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

_REASONS = {signal.SIGINT: b"interrupted", signal.SIGTERM: b"terminated"}


def main() -> None:
    """Run the command line; a signal before it has begun, or after it is done, ends the process at once."""
    for number in _REASONS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as a shell does for background jobs
            signal.signal(number, _end)
    from tightpipe.cli import main as run

    run()


def _end(number: int, _: object) -> NoReturn:
    os.write(2, b"tightpipe: " + _REASONS[signal.Signals(number)] + b"; nothing has begun\n")
    os._exit(128 + number)
