"""The explanation of a schedule's cost: idle times, critical path and relaxations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..core.metrics import bubble_rate, busiest, busy_times, charged_windows, cost, imbalance
from ..core.params.solve_params import DEFAULTS, SolveParams
from ..core.schedule import Schedule
from .arrivals import arrivals
from .critical import Step, critical_path
from .idle import Idle, Reason, idle_times
from .phases import Phase
from .relax import Relaxation, relaxations


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """How a device spends the time that the objective charges to it; all times are in ticks.

    The charged time is the span of the device for `device_span`. For `makespan` it is the time from the first
    start to the last end over all devices. `by_phase` has the idle time in each phase, and `by_reason` the
    idle time for each reason.
    """

    device: int
    charged: int  #: busy and idle time together
    busy: int
    idle: int
    by_phase: dict[Phase, int]
    by_reason: dict[Reason, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the times as plain data for JSON."""
        times = {key: getattr(self, key) for key in ("device", "charged", "busy", "idle")}
        phases = {str(key): ticks for key, ticks in self.by_phase.items()}
        return {**times, "phases": phases, "reasons": {str(k): ticks for k, ticks in self.by_reason.items()}}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the time of a schedule goes.

    Parameters
    ----------
    schedule
        The schedule that is explained.
    devices
        Busy and idle time of each device.
    idle
        All intervals in which a device is idle while the objective charges its time.
    critical
        The critical path; the lengths of its steps sum to the cost.
    relaxations
        Costs under weaker constraints; empty if they were not computed.
    """

    schedule: Schedule
    devices: tuple[DeviceTime, ...]
    idle: tuple[Idle, ...]
    critical: tuple[Step, ...]
    relaxations: tuple[Relaxation, ...]

    @property
    def busy(self) -> list[int]:
        """Busy time of each device in ticks."""
        return [device.busy for device in self.devices]

    @property
    def uneven(self) -> str:
        """A sentence on the devices with the largest work and on what even work could save.

        The sentence is empty if all devices work equally long.
        """
        largest, mean = max(self.busy), sum(self.busy) / len(self.busy)
        if largest == mean:
            return ""
        names = ", ".join(map(str, busiest(self.busy)))
        who = f"device {names} works" if "," not in names else f"devices {names} work"
        return (
            f"{who} {largest:,}, {imbalance(self.busy):.1%} above the mean of {mean:,.0f}; the bubble counts "
            f"from the largest work: if work were even, up to {largest - mean:,.0f} more could be saved"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data for JSON, without the schedule."""
        numbers = {
            "cost": cost(self.schedule),
            "bubble_rate": bubble_rate(self.schedule),
            "imbalance": imbalance(self.busy),
            "busiest": busiest(self.busy),
        }
        lists = {key: getattr(self, key) for key in ("devices", "idle", "critical", "relaxations")}
        return numbers | {key: [entry.to_dict() for entry in entries] for key, entries in lists.items()}


def explain(
    schedule: Schedule, method: str | None = None, *, relax: bool = True, params: SolveParams = DEFAULTS
) -> Explanation:
    """Return an explanation of a valid schedule.

    Parameters
    ----------
    schedule
        The schedule; it must be valid by `tightpipe.validate`.
    method
        Name of the method that made the schedule. If it is a heuristic, the relaxations run it again;
        otherwise they run all heuristics.
    relax
        Whether to compute the relaxations, which takes time, because heuristics have to run.
    params
        The numbers that tune these heuristics.
    """
    inputs = arrivals(schedule)
    idle = tuple(idle_times(schedule, inputs))
    weaker = relaxations(schedule, method, params) if relax else ()
    return Explanation(schedule, _devices(schedule, idle), idle, critical_path(schedule, inputs), weaker)


def _devices(schedule: Schedule, idle: Iterable[Idle]) -> tuple[DeviceTime, ...]:
    by_device: list[list[Idle]] = [[] for _ in range(schedule.order.devices)]
    for interval in idle:
        by_device[interval.device].append(interval)
    opens, closes = charged_windows(schedule)
    charged, busy = (closes - opens).tolist(), busy_times(schedule).tolist()
    return tuple(
        DeviceTime(
            device,
            charged[device],
            busy[device],
            sum(i.ticks for i in mine),
            {phase: sum(i.ticks for i in mine if i.phase is phase) for phase in Phase},
            {reason: sum(i.ticks for i in mine if i.reason is reason) for reason in Reason},
        )
        for device, mine in enumerate(by_device)
    )
