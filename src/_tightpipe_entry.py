"""The function behind the installed command `tightpipe` answers signals before its slow imports begin.

This module lies beside the package, because to import a module of a package is to load the package first.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import NoReturn

_REASONS = {signal.SIGINT: b"interrupted", signal.SIGTERM: b"terminated"}


def main() -> None:
    """Run the command line; before it has begun, and after it is done, a signal ends the process at once."""
    _hold_standard_streams()
    for number in _REASONS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # a shell has background jobs ignore Ctrl-C
            signal.signal(number, _end)
    from tightpipe.cli import main as run

    run()


def _hold_standard_streams() -> None:
    """Open the null device for each standard stream that the caller has closed.

    Else a file that is opened later would get the number of the stream, and whatever is printed would be
    written into that file. Standard output is opened for reading, so that a write still fails.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, mode)  # gets the lowest free number, which is that of the stream
            os.set_inheritable(opened, True)


def _end(number: int, _: object) -> NoReturn:
    with suppress(OSError):  # standard error may be full
        os.write(2, b"tightpipe: " + _REASONS[signal.Signals(number)] + b"\n")
    os._exit(128 + number)
