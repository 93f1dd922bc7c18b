"""A member that is made of others, which work one after another."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from ..outcome import FINISHED, End, Ended, Outcome, Worked
from .worker import Begin, Member, Worker

Begins = Generator[Begin, Ended, None]


class Sequence:
    """Members that work one after another.

    Each begins when the one before it has ended; after a signal none begins any more. The sequence ends as
    the first of its members did that ended early. That a member does not suit the instance is no such end,
    because the others do its work.

    Parameters
    ----------
    begins
        Yields what begins each member when the one before it has ended, and is sent how that one ended. So it
        can choose the next one by what has come of the earlier ones.
    """

    def __init__(self, begins: Begins) -> None:
        self._begins = begins
        self._member: Member | None = None
        self._last: Ended | None = None
        self._ended = FINISHED

    def step(self, worker: Worker) -> Outcome:
        """Take a step of the present member."""
        if self._member is None:
            try:
                begin = self._begins.send(self._last)  # type: ignore[arg-type]  # None begins a generator
            except StopIteration:
                return self._ended
            self._member = begin(worker)
        outcome = self._member.step(worker)
        if not isinstance(outcome, Ended):
            return outcome
        self._member, self._last = None, outcome
        if outcome.stopped:
            return outcome
        if outcome.end is not End.UNSUITED and not self._ended.early:
            self._ended = outcome
        return Worked()


def in_sequence(*begins: Begin) -> Begin:
    """Return what makes a `Sequence` of members."""
    return lambda _: Sequence(each_of(begins))


def each_of(begins: Iterable[Begin]) -> Begins:
    """Yield what begins the members of a sequence, however each of them ends."""
    for begin in begins:  # noqa: UP028  # an iterator of a list takes nothing that is sent to it
        yield begin
