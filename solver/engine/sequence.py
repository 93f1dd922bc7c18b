"""A member that is made of others, which work one after another."""

from __future__ import annotations

from collections.abc import Iterator

from ..outcome import FINISHED, End, Ended, Outcome, Worked
from .worker import Begin, Member, Worker


class Sequence:
    """Members that work one after another.

    Each begins when the one before it has ended; after a signal none begins any more. The sequence ends as
    the first of its members did that ended early. That a member does not suit the instance is no such end,
    because the others do its work.

    Parameters
    ----------
    begins
        Make the members, each when the one before it has ended. The next one is asked for only then, so a
        generator can choose it by what has come of the earlier ones.
    """

    def __init__(self, begins: Iterator[Begin]) -> None:
        self._begins = begins
        self._member: Member | None = None
        self._ended = FINISHED

    def step(self, worker: Worker) -> Outcome:
        """Take a step of the present member."""
        if self._member is None:
            begin = next(self._begins, None)
            if begin is None:
                return self._ended
            self._member = begin(worker)
        outcome = self._member.step(worker)
        if not isinstance(outcome, Ended):
            return outcome
        self._member = None
        if outcome.stopped:
            return outcome
        if outcome.end is not End.UNSUITED and not self._ended.early:
            self._ended = outcome
        return Worked()


def in_sequence(*begins: Begin) -> Begin:
    """Return what makes a `Sequence` of members."""
    return lambda _: Sequence(iter(begins))
