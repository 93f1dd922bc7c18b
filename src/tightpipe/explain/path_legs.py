"""The legs of a critical path: longer parts that consist of several steps, so that a person can read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise

from .critical import Link, Step

_LONG_STAY = 3  # at least this many consecutive operations on one device are a leg of their own


@dataclass(frozen=True, slots=True)
class Leg:
    """Consecutive steps of the critical path, which stay on one device or lead over several devices."""

    steps: tuple[Step, ...]

    @property
    def start(self) -> int:
        """When the leg starts, in ticks."""
        return self.steps[0].start

    @property
    def ticks(self) -> int:
        """Length of the leg in ticks."""
        return self.steps[-1].end - self.start

    @property
    def computing(self) -> int:
        """Ticks in which operations of the leg run."""
        return sum(step.ticks for step in self.steps if step.runs)

    @property
    def messages(self) -> int:
        """Ticks in which messages are on their way or wait for their link."""
        return sum(step.ticks for step in self.steps if step.link in (Link.LINK, Link.COMMUNICATION))

    @property
    def late(self) -> int:
        """Ticks in which no operation runs although the next one of the leg could have started."""
        return sum(step.ticks for step in self.steps if step.link is Link.LATE)

    @property
    def devices(self) -> str:
        """The devices at which the leg begins, turns and ends, e.g. ``0-7-0``.

        A leg turns where the numbers of its devices change from rising to falling, or from falling to rising.
        """
        path = [device for device, _ in groupby(step.device for step in self.steps)]
        ends = [False] + [(b - a) * (c - b) > 0 for (a, b), (_, c) in pairwise(pairwise(path))] + [False]
        return "-".join(str(d) for d, passes in zip(path, ends[: len(path)], strict=True) if not passes)

    def __str__(self) -> str:
        names = [str(step.operation) for step in self.steps if step.runs]
        if not names:
            return f"{'after' if self.messages else 'before'} {self.steps[0].operation}"
        return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)} operations)"


def legs(path: Iterable[Step]) -> tuple[Leg, ...]:
    """Return the legs of a critical path.

    At least `_LONG_STAY` consecutive operations on one device are a leg. All steps between two such legs
    together are a leg too, as are the steps before the first one and after the last one.
    """
    stays = [tuple(steps) for _, steps in groupby(path, key=lambda step: (step.runs, step.device))]
    cut: list[tuple[Step, ...]] = []
    joinable = False
    for steps in stays:
        long = steps[0].runs and len(steps) >= _LONG_STAY
        if joinable and not long:
            cut[-1] += steps
        else:
            cut.append(steps)
        joinable = not long
    return tuple(map(Leg, cut))
