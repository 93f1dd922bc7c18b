"""Models of noise in which a device, or the link from one device to another, is slow all the time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.errors import InputError
from ..core.instance import Instance
from ..kernels.arrays import Bools
from .times import Times, check_device, check_number, devices_of, messages_on

_LARGEST = 1000.0
_MOST_TICKS = 1e12


@dataclass(frozen=True, slots=True)
class SlowDevice:
    """All operations of one device take their durations times a factor, in every sample.

    Such a straggler is, for example, a GPU that is hot and has lowered its clock.

    Parameters
    ----------
    device
        Number of the device.
    factor
        Factor of the durations, above 0 and at most 1000; below 1 for a device that is faster than planned.
    """

    device: int
    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, 0.0, _LARGEST, above=True)

    def __str__(self) -> str:
        return f"slow-device:{self.device}:{self.factor:g}"

    def check(self, instance: Instance) -> None:
        """Raise an InputError if the instance has no device with the number `device`."""
        check_device(instance, f"noise = {str(self)!r}: device", self.device)

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Multiply the durations of the device's operations by the factor."""
        times.duration[:, devices_of(instance) == self.device] *= self.factor


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How a slow message differs from a planned one: it takes `factor` times as long, and `ticks` more.

    Parameters
    ----------
    factor
        Factor of the planned time, above 0 and at most 1000.
    ticks
        Ticks that are added, from 0 to 10^12.
    """

    factor: float = 1.0
    ticks: float = 0.0

    def __post_init__(self) -> None:
        check_number("factor", self.factor, 0.0, _LARGEST, above=True)
        check_number("ticks", self.ticks, 0.0, _MOST_TICKS)

    def __str__(self) -> str:
        return f"+{self.ticks:g}" if self.ticks else f"{self.factor:g}"


def slowed_messages(instance: Instance, model: object, link: tuple[int, int], slowdown: Slowdown) -> Bools:
    """Return, for each F and B, whether it waits for a message on a link that a noise model slows down.

    The link is a pair of the sending and the receiving device. The result has the shape (2, S, n) for S
    stages and n microbatches.

    Raises
    ------
    InputError
        If a device of the link is not in the instance, if no message goes from the first device to the
        second, or if the messages take 0 ticks and `slowdown` adds none. The error names `model`.
    """
    key = f"noise = {str(model)!r}"
    for device in link:
        check_device(instance, f"{key}: device", device)
    found = messages_on(instance, *link)
    if not found.any():
        raise InputError(f"no message goes from device {link[0]} to device {link[1]}", key=key)
    if instance.comm(*link) == 0 and not slowdown.ticks:
        raise InputError("messages of this link take 0 ticks; give the ticks to add, e.g. +100", key=key)
    return found


@dataclass(frozen=True, slots=True)
class SlowLink:
    """All messages from one device to another take longer, in every sample.

    PipeMorph studies such stragglers, which come from congestion, defects of network cards and switches, or
    an uneven topology: under a tight schedule even small delays of messages add idle time on all devices.
    CrossPipe studies links with large constant delays, between data centres.

    Parameters
    ----------
    sender, receiver
        Numbers of the device that sends and of the device that receives the messages.
    slowdown
        How much longer the messages take.

    References
    ----------
    T. Wu et al., "Attack of the Bubbles: Straggler-Resilient Pipeline Parallelism for Large Model Training"
    (PipeMorph), NSDI 2026, arXiv:2504.19232. T. Chen et al., "CrossPipe: Towards Optimal Pipeline Schedules
    for Cross-Datacenter Training", USENIX ATC 2025, arXiv:2507.00217.
    """

    sender: int
    receiver: int
    slowdown: Slowdown

    def __str__(self) -> str:
        return f"slow-link:{self.sender}:{self.receiver}:{self.slowdown}"

    def check(self, instance: Instance) -> None:
        """Raise an InputError if the link has no messages, or if they take 0 ticks and no ticks are added."""
        slowed_messages(instance, self, (self.sender, self.receiver), self.slowdown)

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Lengthen the messages of the link."""
        slow = slowed_messages(instance, self, (self.sender, self.receiver), self.slowdown)
        times.lag[slow] = times.lag[slow] * self.slowdown.factor + self.slowdown.ticks
