"""A signal is sent again if Python has swallowed the exception by which the signal ends a command."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..core.interruption import Terminated

_LATER = 1.1  # seconds; `ended_by_signals` ignores a signal within a second of another one


@contextmanager
def swallowed_signals_come_again() -> Iterator[None]:
    """Send each signal again whose exception Python has swallowed, as long as the `with` block runs.

    A signal raises its exception in whatever code the main thread runs at that moment. If that code is a
    destructor or a callback of a weak reference, Python reports the exception as unraisable and goes on. The
    command would then run on although it was told to end. Therefore the signal is sent to the main thread
    once more, a little over a second later. Other unraisable exceptions are reported as before.
    """
    before = sys.unraisablehook

    def report(swallowed: sys.UnraisableHookArgs) -> None:
        if not issubclass(swallowed.exc_type, KeyboardInterrupt):
            before(swallowed)
            return
        number = signal.SIGTERM if issubclass(swallowed.exc_type, Terminated) else signal.SIGINT
        timer = threading.Timer(_LATER, _send, (number,))
        timer.daemon = True  # a command that has ended meanwhile does not wait for it
        timer.start()

    sys.unraisablehook = report
    try:
        yield
    finally:
        sys.unraisablehook = before


def _send(number: signal.Signals) -> None:
    """Send a signal to the main thread; where single threads take no signals, to the whole process."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, number)
    else:
        signal.raise_signal(number)
