"""Random settings of the V placement on which the theorem of docs/theorem.md is tried out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tightpipe import Instance, Memory
from tightpipe.heuristics.v_beat import Times, meets_bound

_MOST_DEVICES = 16
_ACTIVATION = 100  # memory that an F adds on its device


@dataclass(frozen=True, slots=True)
class Case:
    """A setting with equal stages.

    Parameters
    ----------
    devices, microbatches
        Number of devices, p, and number of microbatches, n.
    times
        Ticks of an F, a B, a W and a message.
    held
        Percent of an activation that a pending W holds.
    quarters
        The memory limit in quarters of p activations: 8 stands for 2p.
    """

    devices: int
    microbatches: int
    times: Times
    held: int
    quarters: int

    @property
    def instance(self) -> Instance:
        """The instance, with an activation of 100 and the objective `device_span`."""
        p, times = self.devices, self.times
        memory = Memory(
            _ACTIVATION, self.held - _ACTIVATION, -self.held, self.quarters * p * _ACTIVATION // 4
        )
        return Instance.uniform(
            devices=p,
            microbatches=self.microbatches,
            forward=times.forward,
            backward=times.backward,
            weight=times.weight,
            comm=times.comm,
            placement="v",
            memory=memory,
        )

    @property
    def work(self) -> int:
        """The work of each device, in ticks."""
        times = self.times
        return 2 * self.microbatches * (times.forward + times.backward + times.weight)

    @property
    def formula(self) -> int:
        """The lower bound of the cost at 2p activations by the first theorem, at least the work, in ticks."""
        p, f, b, w, c = self.devices, *self.costs
        return self.work + max(0, (p - 1) * (f + 4 * c + max(f, b + 2 * c)) - (2 * p - 1) * w)

    @property
    def costs(self) -> tuple[int, int, int, int]:
        """The times f, b, w and c of an F, a B, a W and a message, in ticks."""
        times = self.times
        return times.forward, times.backward, times.weight, times.comm

    @property
    def promised(self) -> bool:
        """Whether the second theorem says that V-Beat meets the formula."""
        return self.quarters == 8 and meets_bound(self.devices, self.microbatches, self.times)

    @property
    def observed(self) -> bool:
        """Whether the setting lies where the greedy V-schedule was observed to meet the formula at 2p.

        The conditions are b <= f, c <= f, c <= b + w and 2w <= b + 2c; the memory limit is not considered.
        """
        f, b, w, c = self.costs
        return b <= f and c <= min(f, b + w) and 2 * w <= b + 2 * c


def draw(quarters: int, number: int, wanted: Callable[[Case], bool] = lambda _: True) -> Case:
    """Return random setting `number` at a memory limit in quarters of p activations, the same in every run.

    In units of f, which is 200 to 2000 ticks, b lies between 0.5 and 1.4, w between 0.05 and 1.2, and c
    between 0 and 0.5, more often near 0. There are 2 to 16 devices and p + 1 to 6p microbatches, and a
    pending W holds at least the share w / (b + w) of an activation, and less than all of it. A setting is
    drawn again if it is not `wanted`, or if the formula at 2p activations is no more than the work.
    """
    rng = random.Random(f"{quarters} {number}")
    while True:
        case = _draw(rng, quarters)
        if case.formula > case.work and wanted(case):
            return case


def _draw(rng: random.Random, quarters: int) -> Case:
    p, f = rng.randint(2, _MOST_DEVICES), rng.randint(200, 2000)
    b, w, c = (
        round(f * rng.uniform(0.5, 1.4)),
        round(f * rng.uniform(0.05, 1.2)),
        round(f * rng.random() ** 2 / 2),
    )
    least = -(-_ACTIVATION * w // (b + w))
    held = rng.randint(least, _ACTIVATION - 1)
    return Case(p, rng.randint(p + 1, 6 * p), Times(f, b, w, c), held, quarters)
