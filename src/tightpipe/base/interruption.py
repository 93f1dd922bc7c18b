"""A signal may end work early: Ctrl-C, or SIGTERM from a batch system that wants its machine back.

Both signals raise a KeyboardInterrupt in the main thread, so both end work in the same way: the best schedule
so far is written and shown. The two differ in the reason that a result gives and in the exit status. The
exit status is 128 plus the number of the signal, as a shell reports for a program that a signal has ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import FrameType
from typing import NoReturn

INTERRUPTED = "interrupted"
"""`Result.reason` of a solve that Ctrl-C ended early."""
TERMINATED = "terminated"
"""`Result.reason` of a solve that SIGTERM ended early."""


class Terminated(KeyboardInterrupt):
    """Exception that SIGTERM raises; code that saves its work at Ctrl-C also saves it at SIGTERM."""


_EXCEPTIONS = {INTERRUPTED: KeyboardInterrupt, TERMINATED: Terminated}
_SIGNALS = {INTERRUPTED: signal.SIGINT, TERMINATED: signal.SIGTERM}
_REASONS: dict[int, str] = {number: reason for reason, number in _SIGNALS.items()}
_ECHO = 1.0  # seconds in which a second signal is ignored: a parent process may pass Ctrl-C on
_FRAGILE = ("numba", "llvmlite", "importlib", "_frozen_importlib")  # the compiler, and imports
_PREPARING = "tightpipe.exercise"
_SHOW_CURSOR = b"\x1b[?25h"  # makes a terminal show the cursor again, which a progress bar has hidden
_LATER = 0.01  # seconds until a signal is sent again
_UNCAUGHT = 5.0  # seconds after which a signal comes again if foreign code has swallowed its exception
_uncaught: list[threading.Timer] = []  # one for each exception of a signal that nothing has caught yet
_PATIENCE = 5.0  # seconds for which a signal waits at most; an import or loading compiled loops takes less


def reason_of(stop: BaseException) -> str:
    """Return the reason that a result gives when this exception, which was caught, has ended its solve."""
    _note_caught()
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def was_stopped(reason: str) -> bool:
    """Return whether the reason of a result says that a signal ended the work, so no more work may follow."""
    return reason in _EXCEPTIONS


def raise_again(reason: str) -> None:
    """Raise the exception of the signal that a result's reason names; do nothing if it names none."""
    if was_stopped(reason):
        raise _EXCEPTIONS[reason]


def exit_status(reason: str) -> int:
    """Return the exit status of a command that a signal ended: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + _SIGNALS[reason]


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise a KeyboardInterrupt in the main thread until the block ends.

    The exception comes in whatever code the main thread runs. If that is a destructor or a callback of a weak
    reference, Python swallows the exception and reports it as unraisable. That report is left out, as the
    signal comes again.
    """
    listener, before = _Listener(), sys.unraisablehook

    def report(swallowed: sys.UnraisableHookArgs) -> None:
        if not issubclass(swallowed.exc_type, KeyboardInterrupt):
            before(swallowed)

    sys.unraisablehook = report
    try:
        with _handled_by(listener):
            yield
    finally:
        sys.unraisablehook = before
        _note_caught()
        listener.raise_waiting()


class _Listener:
    """A signal handler that raises an exception, except where an exception would do harm.

    It ignores a signal within a second after an exception was raised: another one would hit the code that
    saves the best schedule. An exception within an import would leave half a module behind; within the
    compiler of the inner loops it would break tables that are still needed to time the schedules, or a
    destructor would swallow it. There the handler sends the signal again a little later, and raises the
    exception after `_PATIENCE` seconds at the latest, or when the block ends. While `tightpipe.exercise`
    compiles all inner loops, which takes minutes, there is no work to save yet, and a signal ends the process
    at once.
    """

    def __init__(self) -> None:
        self._raised = -inf
        self._waits_since: float | None = None
        self._waiting = ""
        self._again: threading.Timer | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._raised < _ECHO:
            return
        if _is_within(frame, _PREPARING):
            _end(number)
        self._waits_since = now if self._waits_since is None else self._waits_since
        if _is_within(frame, *_FRAGILE) and now - self._waits_since < _PATIENCE:
            self._waiting = _REASONS[number]
            self._again = threading.Timer(_LATER, _send_again, (number,))
            self._again.start()
            return
        self._raised, self._waits_since, self._waiting = now, None, ""
        again = threading.Timer(_UNCAUGHT, _send_again, (number,))  # foreign code may swallow the exception
        again.daemon = True
        again.start()
        _uncaught.append(again)
        raise_again(_REASONS[number])

    def raise_waiting(self) -> None:
        """Raise the exception of a signal that still waits, whose repetition nobody would handle any more."""
        if self._again is not None:
            self._again.cancel()
        raise_again(self._waiting)


def _note_caught() -> None:
    """Note that the exceptions of all signals so far have been caught: none of them comes again."""
    while _uncaught:
        _uncaught.pop().cancel()


def _send_again(number: int) -> None:
    """Send a signal to the main thread.

    Where the system cannot send a signal to one thread, Python calls the handler in the main thread instead.
    """
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, number)
    else:
        interrupt_main(signal.Signals(number))


def _is_within(frame: FrameType | None, *modules: str) -> bool:
    """Return whether the frame or one of its callers runs in one of the modules or in a submodule."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if any(name == module or name.startswith(f"{module}.") for module in modules):
            return True
        frame = frame.f_back
    return False


def _end(number: int) -> NoReturn:
    message = f"tightpipe: {_REASONS[number]} while inner loops were compiled; nothing has begun\n".encode()
    with suppress(OSError):  # standard error may be full or closed
        os.write(2, _SHOW_CURSOR + message if os.isatty(2) else message)
    os._exit(128 + number)


@contextmanager
def held_back() -> Iterator[None]:
    """Let a block finish: a signal that comes within the block raises its exception when the block ends.

    A second signal raises at once, because the block may hang, e.g. in a write to a pipe that nobody reads.
    """
    came: list[str] = []

    def remember(number: int, _: FrameType | None) -> None:
        came.append(_REASONS[number])
        if len(came) > 1:
            raise_again(came[-1])

    with _handled_by(remember):
        yield
    for reason in came:
        raise_again(reason)


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let `handler` handle Ctrl-C and SIGTERM until the block ends, and then restore the earlier handlers.

    A signal that the process ignores, as background jobs do, stays ignored. Only the main thread gets
    signals; in another one, this does nothing.
    """
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _REASONS}
    mine = [number for number in _REASONS if main and before[number] not in (signal.SIG_IGN, None)]
    try:
        for number in mine:
            signal.signal(number, handler)
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])
