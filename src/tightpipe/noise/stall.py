"""A model of noise: one device stands still once in every sample, at a random time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.instance import Instance
from .times import BLOCK, Times, check_device, check_number

_MOST_TICKS = 1e12


@dataclass(frozen=True, slots=True)
class Stall:
    """A device stands still for some time, as in a garbage collection, a page fault or a network timeout.

    The device stands still once in every sample, from a random moment that is uniform in its planned span, or
    in the planned makespan if that is the objective. An operation that runs at this moment goes on after the
    stall, and one that would start during the stall starts after it. A device that would wait during the
    whole stall loses nothing. The moment is drawn as a share of that interval, the same for every schedule.

    Parameters
    ----------
    device
        Number of the device; None for a random one in each sample.
    ticks
        Length of the stall in ticks, above 0 and at most 10^12.
    """

    device: int | None
    ticks: float

    def __post_init__(self) -> None:
        check_number("ticks", self.ticks, 0.0, _MOST_TICKS, above=True)

    def __str__(self) -> str:
        return f"stall:{'any' if self.device is None else self.device}:{self.ticks:g}"

    def check(self, instance: Instance) -> None:
        """Raise an InputError if the instance has no device with the number `device`."""
        if self.device is not None:
            check_device(instance, f"noise = {str(self)!r}: device", self.device)

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Draw which device stands still in each sample, and when, and write this to `times`."""
        devices = random.integers(instance.devices, size=BLOCK)
        if self.device is not None:
            devices[:] = self.device
        samples = np.arange(BLOCK)
        times.moment[devices, samples] = random.random(BLOCK)
        times.stall[devices, samples] = self.ticks
