"""The installed command: it answers Ctrl-C from its first moment, before what takes long is loaded.

It lies beside the package, since to import a module of the package is to load the package first.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

_MESSAGE = b"tightpipe: interrupted; what was finished is kept, the same command continues\n"
_SHOW_CURSOR = b"\x1b[?25h"  # which a progress bar hides
_INTERRUPTED = 130
# an import cut short leaves halves of modules behind, and what imports them fails in other ways; loops are
# compiled and loaded from within callbacks, where exceptions are printed and forgotten
_LOADING = ("importlib", "_frozen_importlib", "tightpipe.kernels")


def main() -> None:
    """Run the command line; Ctrl-C while it loads ends the process at once, as nothing has begun."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        from tightpipe.cli import main as run

        run()
    except KeyboardInterrupt:
        _end()
    finally:
        signal.signal(signal.SIGINT, _end)  # the interpreter's own end is all that is left


def _interrupt(_: int, frame: FrameType | None) -> None:
    if _is_loading(frame):
        _end()
    raise KeyboardInterrupt


def _is_loading(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_LOADING):
            return True
        frame = frame.f_back
    return False


def _end(*_: object) -> NoReturn:
    os.write(2, _SHOW_CURSOR + _MESSAGE if os.isatty(2) else _MESSAGE)
    os._exit(_INTERRUPTED)
