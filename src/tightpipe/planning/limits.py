"""What limits a plan: where the time of the slowest device goes, and the memory of the fullest one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..explain import DeviceTime, Explanation, Phase, Reason
from .plan import Plan

_MESSAGES = (Reason.COMMUNICATION, Reason.LINK)


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that a step's time or a device's memory goes to.

    Parameters
    ----------
    name
        What it is, e.g. ``computation``.
    device
        The device: for times the slowest one, for memory the fullest one.
    amount
        Ticks of a step, or bytes.
    of
        The ticks of a whole step, or the size of the device's memory in bytes.
    """

    name: str
    device: int
    amount: int
    of: int

    @property
    def share(self) -> float:
        """`amount` as a share of `of`."""
        return self.amount / self.of

    def to_dict(self) -> dict[str, Any]:
        """Return the limit as plain data for JSON."""
        return {**asdict(self), "share": self.share}


def limits(plan: Plan, explained: Explanation) -> list[Limit]:
    """Return what limits a plan, times before memory, each from the largest share on.

    The slowest device is the one whose time is the cost of a step; of several, the one that computes longest.
    Its computation and its idle time in warm-up, steady state and cool-down together are the step. The idle
    time for messages and that because memory is full are parts of these.

    Parameters
    ----------
    plan
        A plan with a schedule.
    explained
        The explanation of its schedule.
    """
    slowest = max(explained.devices, key=lambda device: (device.charged, device.busy))
    times = [Limit(name, slowest.device, ticks, plan.cost or 1) for name, ticks in _times(slowest)]
    used = [
        Limit("memory", device, memory.peak, memory.limit)
        for device, memory in enumerate(plan.memory or ())
        if memory.limit
    ]
    fullest = sorted(used, key=lambda limit: -limit.share)[:1]
    return [*sorted(times, key=lambda limit: -limit.share), *fullest]


def _times(device: DeviceTime) -> Iterator[tuple[str, int]]:
    yield "computation", device.busy
    yield "idle in warm-up and cool-down", sum(device.by_phase[p] for p in (Phase.WARM_UP, Phase.COOL_DOWN))
    yield "idle in between", device.by_phase[Phase.STEADY]
    yield "idle for messages", sum(device.by_reason[reason] for reason in _MESSAGES)
    yield "idle as memory is full", device.by_reason[Reason.MEMORY]
