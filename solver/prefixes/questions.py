"""The choice of the devices and of the target for the next search over prefixes.

A search over few devices is quick and says little; each further device makes it many times as long. So the
searches begin with each device alone. The device that refutes the largest cost is then joined by each of the
others in turn, the best pair by each of the rest, and so on. Since only the best set of each size counts, a
set is first asked about a cost a little above the largest cost that a set has refuted before. Most sets leave
that cost open, and are not asked again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tightpipe.core.params.proof import PrefixParams

from .search import PrefixSearch

Devices = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """The question whether some devices can do all of their work at a cost of at most a target.

    Parameters
    ----------
    devices
        Numbers of these devices, each once.
    target
        The target in ticks.
    """

    devices: Devices
    target: int


class Questions:
    """Chooses which `Question` to ask next, from the answers to the earlier questions.

    An answer says that the devices have no schedule within the target, that they have one, or that this
    could not be found out.

    Parameters
    ----------
    devices
        The number of devices of the instance.
    bound, cost
        The proven bound and the cost of the best known schedule, in ticks.
    params
        How precisely sets of devices are compared, and when they grow.
    """

    def __init__(self, devices: int, bound: int, cost: int, params: PrefixParams) -> None:
        self._devices, self._params = devices, params
        self._little = max(1, int((cost - bound) * params.little))
        self._refuted = max(0, 2 * bound - cost)  # the largest target that a set has refuted, or a start
        self._best: Devices | None = None  # the set of the present size that has refuted it
        self._waiting = self._sets(())
        self._open: int | None = None  # the least target that the first of these has left open
        self._failures = 0
        self._tried_all = devices == 1

    def next(self, bound: int, cost: int) -> Question | None:
        """Return the next question; None if no set of devices is left that could refute more.

        Parameters
        ----------
        bound, cost
            The proven bound and the cost of the best known schedule, in ticks, as they are now.
        """
        while self._waiting or self._grow():
            devices = self._waiting[0]
            whole = len(devices) == self._devices
            low = max(bound - 1, self._refuted) if whole else self._refuted
            high = cost if self._open is None else min(self._open, cost)
            if high - low > (1 if whole or self._open is None else self._little):
                return Question(devices, self._target(devices, low, high))
            self._drop()
        return None

    def learn(self, question: Question, answer: PrefixSearch) -> None:
        """Take note of the answer to the last question."""
        if answer.bound is not None and answer.bound > question.target:
            self._refuted, self._best, self._failures = question.target, question.devices, 0
            return
        self._open = question.target
        self._failures = 0 if answer.bound is not None else self._failures + 1
        whole = len(question.devices) == self._devices
        if answer.bound is None if whole else self._best != question.devices:
            self._drop()
        if self._failures == self._params.failures:
            self._waiting.clear()

    def _target(self, devices: Devices, low: int, high: int) -> int:
        """Return a target above `low`, which is refuted, and below `high`, which is open.

        All devices together are asked about the largest possible target first, because their answer to it is
        final. A set that has refuted something is asked about a target in the lower part of what is open,
        because one device more closes a small part of the gap only.
        """
        if self._open is None and len(devices) == self._devices:
            return high - 1
        if self._best != devices and len(devices) < self._devices:
            return min(high - 1, low + self._little)
        return low + max(1, (high - low) // self._params.part)

    def _drop(self) -> None:
        self._waiting.pop(0)
        self._open = None

    def _grow(self) -> bool:
        """Choose the sets of devices to ask about next, and return whether there are any.

        These are the sets with one device more than the best set. If there is no best set, the set of all
        devices may take their place: on few devices, and once.
        """
        if self._failures >= self._params.failures:
            return False
        if self._best is not None:
            self._waiting, self._best = self._sets(self._best), None
        elif self._devices <= self._params.small and not self._tried_all:
            self._waiting = [tuple(range(self._devices))]
        self._tried_all |= any(len(devices) == self._devices for devices in self._waiting)
        return bool(self._waiting)

    def _sets(self, devices: Devices) -> list[Devices]:
        return [(*devices, d) for d in reversed(range(self._devices)) if d not in devices]
