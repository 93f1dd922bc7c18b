"""What comes of a step, as data: the member has worked, has nothing to do now, or has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from tightpipe.base.interruption import reason_of


class End(Enum):
    """Why a member works no more."""

    FINISHED = auto()  #: it has done all that it can do, or its limits are used up
    UNSUITED = auto()  #: it does not apply to the instance
    TOO_LARGE = auto()  #: its model is too large to be built and searched within the time limit
    CAPPED = auto()  #: its model does not fit under the cap on memory
    FAILED = auto()  #: the solver program behind it failed, or returned something invalid
    STOPPED = auto()  #: a signal ended the work, so that no more work may follow


@dataclass(frozen=True, slots=True)
class Worked:
    """The member can go on.

    - `effort`: the seconds that such a step takes on one thread of a usual machine, the same in every run.
      Without a deadline they replace the measured time, so that a solve with one thread is reproducible, and
      the effort limit counts them.
    """

    effort: float = 0.0


@dataclass(frozen=True, slots=True)
class Idle:
    """The member has nothing to do until another member has changed the goal."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The member works no more."""

    end: End = End.FINISHED  #: the kind of end
    text: str = ""  #: the reason that a result gives for it, in a sentence for people; empty for `FINISHED`

    @property
    def early(self) -> bool:
        """Whether the member has left work undone for another reason than that its limits are used up."""
        return self.end is not End.FINISHED

    @property
    def stopped(self) -> bool:
        """Whether a signal ended the work."""
        return self.end is End.STOPPED


Outcome = Worked | Idle | Ended

FINISHED = Ended()
TOO_LARGE = Ended(End.TOO_LARGE, "the model is too large to be built and searched within the time limit")


def stopped_by(stop: BaseException) -> Ended:
    """Return the end of a member whose work this exception of a signal has ended."""
    return Ended(End.STOPPED, reason_of(stop))


class ProgramError(Exception):
    """A solver program has failed; the text says which one, and how."""


FAILURES = (MemoryError, ProgramError)
"""Errors that end a member, and leave what has been found. Any other is a fault of this package."""


@contextmanager
def running(program: str, *failures: type[Exception]) -> Iterator[None]:
    """Turn the errors with which a solver program may fail within the block into a `ProgramError`."""
    try:
        yield
    except failures as error:
        raise ProgramError(f"{program} failed: {str(error) or type(error).__name__}") from error


class Threads(ThreadPoolExecutor):
    """Threads of a solver. That the system starts no more of them is a failure, and no fault of ours."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule a call in one of the threads."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            if "start new thread" not in str(error):
                raise
            raise ProgramError(f"no thread could be started: {error}") from error


def failed(error: Exception) -> Ended:
    """Return the end of a member by one of the `FAILURES`."""
    return Ended(End.FAILED, str(error) or "memory is used up")
