"""What limits a plan: how much time or memory each use takes, on the device where it takes the most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ..explain import DeviceTime, Explanation, Phase, Reason
from .plan import Plan


@dataclass(frozen=True, slots=True)
class Limit:
    """One use of the time of a training step, or of memory, on the device where it is largest.

    Parameters
    ----------
    name
        Name of the use, e.g. ``computation``.
    device
        The device.
    amount
        Ticks or bytes that the use takes.
    of
        The ticks of a whole training step, or the size of the device's memory in bytes.
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
    """Return the limits of a plan, the largest share first.

    Memory is among them only if the cluster has a memory limit. The same idle time may count for two limits,
    e.g. if a device waits for memory in its warm-up.

    Parameters
    ----------
    plan
        A plan with a schedule.
    explained
        The explanation of its schedule.
    """
    found = [
        max((Limit(name, d.device, ticks(d), plan.cost or 1) for d in explained.devices), key=_share)
        for name, ticks in _TIMES.items()
    ]
    used = [
        Limit("memory", device, memory.peak, memory.limit)
        for device, memory in enumerate(plan.memory or ())
        if memory.limit
    ]
    return sorted([*found, *sorted(used, key=_share)[-1:]], key=_share, reverse=True)


def _share(limit: Limit) -> float:
    return limit.share


_TIMES: dict[str, Callable[[DeviceTime], int]] = {
    "computation": lambda device: device.busy,
    "idle in warm-up and cool-down": lambda device: (
        device.by_phase[Phase.WARM_UP] + device.by_phase[Phase.COOL_DOWN]
    ),
    "idle for messages": lambda device: (
        device.by_reason[Reason.COMMUNICATION] + device.by_reason[Reason.LINK]
    ),
    "idle as memory is full": lambda device: device.by_reason[Reason.MEMORY],
}
"""The uses of a device's time, each with a function that returns the ticks of the use."""
