"""Work that a signal ends early: Ctrl-C, or SIGTERM from a batch system that wants its machine back.

Both end work in the same way, with the best schedule so far written and told, because both raise a
KeyboardInterrupt in the main thread. What differs is the reason that a result gives and the exit status,
which is 128 plus the number of the signal, as a shell has it for a program that a signal has ended.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import FrameType
from typing import NoReturn

INTERRUPTED = "interrupted"
"""`Result.reason` of a solve that Ctrl-C ended early."""
TERMINATED = "terminated"
"""`Result.reason` of a solve that SIGTERM ended early."""


class Terminated(KeyboardInterrupt):
    """SIGTERM has asked to end; whatever keeps its work at Ctrl-C keeps it here."""


_EXCEPTIONS = {INTERRUPTED: KeyboardInterrupt, TERMINATED: Terminated}
_SIGNALS = {INTERRUPTED: signal.SIGINT, TERMINATED: signal.SIGTERM}
_REASONS: dict[int, str] = {number: reason for reason, number in _SIGNALS.items()}
_ECHO = 1.0  # seconds; programs that start others pass Ctrl-C on, so that it comes twice
_FRAGILE = ("numba", "llvmlite", "importlib", "_frozen_importlib")  # the compiler, and imports
_PREPARING = "tightpipe.exercise"
_SHOW_CURSOR = b"\x1b[?25h"  # which a progress bar hides
_LATER = 0.01  # seconds
_PATIENCE = 5.0  # seconds: to import a module and to load what is compiled takes less


def reason_of(stop: BaseException) -> str:
    """Return the reason that a result gives for having been ended by this exception."""
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def was_stopped(reason: str) -> bool:
    """Whether the reason of a result says that a signal ended the work: what comes next is not to begin."""
    return reason in _EXCEPTIONS


def raise_again(reason: str) -> None:
    """Raise the exception that a reason stands for, if it says that a signal ended the work."""
    if was_stopped(reason):
        raise _EXCEPTIONS[reason]


def exit_status(reason: str) -> int:
    """Return the exit status of a command that a signal ended: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + _SIGNALS[reason]


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise in the main thread until the block ends."""
    with _handled_by(_Listener()):
        yield


class _Listener:
    """A handler that raises, but not where that would do harm.

    Not within a second of another signal: it would hit the very code that keeps what was found. And not
    within an import, which would leave half a module behind, or within the compiler of the inner loops: its
    tables would be broken, while schedules are still to be timed by what it compiles, and its destructors
    drop exceptions. There the signal is sent again a little later. While all inner loops are compiled, which
    takes minutes, nothing has begun that could be kept: the process ends at once.
    """

    def __init__(self) -> None:
        self._raised = -inf
        self._waits_since: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._raised < _ECHO:
            return
        if _is_within(frame, _PREPARING):
            _end(number)
        self._waits_since = now if self._waits_since is None else self._waits_since
        if _is_within(frame, *_FRAGILE) and now - self._waits_since < _PATIENCE:
            threading.Timer(_LATER, _send_again, (number,)).start()
            return
        self._raised, self._waits_since = now, None
        raise_again(_REASONS[number])


def _send_again(number: int) -> None:
    """Send the main thread a signal, or call its handler there where threads have no signals of their own."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, number)
    else:
        interrupt_main(signal.Signals(number))


def _is_within(frame: FrameType | None, *modules: str) -> bool:
    """Whether the frame, or one that called it, runs in one of the modules or a module below it."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if any(name == module or name.startswith(f"{module}.") for module in modules):
            return True
        frame = frame.f_back
    return False


def _end(number: int) -> NoReturn:
    message = f"tightpipe: {_REASONS[number]} while inner loops were compiled; nothing has begun\n".encode()
    os.write(2, _SHOW_CURSOR + message if os.isatty(2) else message)
    os._exit(128 + number)


@contextmanager
def held_back() -> Iterator[None]:
    """Raise a signal when the block ends rather than within it, so that what is begun is finished.

    The second signal is raised at once: a pipe that nobody reads would hold the block up forever.
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
    """Handle both signals in this way, but those that are ignored, as a shell does for background jobs."""
    before = {number: signal.getsignal(number) for number in _REASONS}
    mine = [number for number in _REASONS if before[number] not in (signal.SIG_IGN, None)]
    try:
        for number in mine:
            signal.signal(number, handler)
        yield
    finally:
        for number in mine:
            signal.signal(number, before[number])
