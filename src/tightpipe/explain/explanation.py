"""The explanation of a schedule's cost: idle times, critical path, and the cost without a constraint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import chain
from typing import Any

from ..base.errors import LARGEST, InputError
from ..model.instance import Instance
from ..model.metrics import bubble_rate, busiest, busy_times, charged_windows, cost, costs, imbalance
from ..model.microbatches import ClassTimes, changed, with_times
from ..model.operation import OpKind
from ..model.schedule import Schedule
from ..model.simulate import retime
from ..params.budget import Budget
from ..params.solve_params import DEFAULTS, SolveParams
from ..registry.methods import is_heuristic
from ..registry.solve import solve
from ..registry.starts import usual_seconds, warm_starts
from .critical import Step, critical_path
from .idle import Idle, Phase, Reason, arrivals, idle_times

_PATIENCE = 5.0  # most seconds that heuristics may take on a usual machine to answer one question anew
_PARTS = 1000  # most parts into which a tick is divided to count scaled durations


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A weaker constraint and the cost that it gives."""

    name: str  #: name of the weaker constraint
    how: str  #: how the cost was found: by new times for the same order, or by a heuristic that ran again
    #: cost under the weaker constraint in ticks; None if the heuristic has no schedule or was left out
    cost: int | None
    #: cost of the schedule minus `cost`, in ticks; negative where the heuristic is worse than the schedule,
    #: and None if `cost` is None
    saved: int | None
    #: cost that is found in the same way without the relaxation; None as for `cost`
    unrelaxed: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the relaxation as plain data for JSON."""
        return asdict(self)


def relaxations(
    schedule: Schedule, method: str | None, params: SolveParams = DEFAULTS
) -> Iterator[Relaxation]:
    """Yield the relaxations that apply to a valid schedule.

    With unchanged, half or no communication time and link occupancy, the same order gets new optimal times.
    Two other relaxations hardly help the same order: even work, where the durations on each device are scaled
    to the mean work of all devices, and memory for one more forward activation on each device. For these, the
    heuristic that made the schedule runs again. If no heuristic made the schedule, all heuristics run, and
    the best one counts. These two have no costs if the heuristics usually take longer than `_PATIENCE`.
    """
    instance, now = schedule.instance, cost(schedule)
    again = cost(retime(instance, schedule.order))
    yield Relaxation("nothing", "same order re-timed", again, now - again, again)
    comm = instance.costs
    if comm.link_occupancy or any(map(any, comm.comm)):  # type: ignore[arg-type]  # expanded at birth
        for name, factor in (("half the communication", 2), ("no communication", 0)):
            value = cost(retime(_with_comm(instance, factor), schedule.order))
            yield Relaxation(name, "same order re-timed", value, now - value, again)
    run: Callable[[Instance, SolveParams], int | None] = _best_heuristic
    how = "best of all heuristics"
    if method is not None and is_heuristic(method):
        run, how = partial(_cost_by, method), f"{method} run anew"
    takes = usual_seconds(instance, method, params)
    if takes > _PATIENCE:
        run, how = _not_run, f"left out: {how} would take about {takes:.0f} s"
    weaker = {
        "even work": _with_even_work(instance, busy_times(schedule).tolist()),
        "memory +1 activation": (_with_an_activation_more(instance), 1),
    }
    for name, (relaxed, parts) in weaker.items():
        if relaxed is not None:
            found = run(relaxed, params)
            ticks = None if found is None else -(-found // parts)
            saved = None if ticks is None else now - ticks
            yield Relaxation(name, how, ticks, saved, run(instance, params))


def _with_comm(instance: Instance, divisor: int) -> Instance:
    """Return the instance with all communication times and the link occupancy divided by `divisor`.

    Quotients are rounded down; a `divisor` of 0 gives 0.
    """

    def part(ticks: int) -> int:
        return ticks // divisor if divisor else 0

    costs = instance.costs
    comm = tuple(tuple(map(part, row)) for row in costs.comm)  # type: ignore[union-attr]  # expanded at birth
    occupancy = part(costs.link_occupancy)
    return replace(instance, costs=replace(costs, comm=comm, link_occupancy=occupancy))


def _with_even_work(instance: Instance, busy: Sequence[int]) -> tuple[Instance | None, int]:
    """Return the instance with the durations scaled so that each device works for the mean time of all.

    Messages, copies, reductions and the optimizer take as long as before. The new instance counts in parts of
    a tick, so that rounding hardly changes short durations; the second value is how many parts a tick has.
    The instance is None if all devices work equally long already.
    """
    if not imbalance(busy):
        return None, 1
    costs, step, offload = instance.costs, instance.step, instance.offload
    beside = [costs.link_occupancy, *chain(*costs.comm)]  # type: ignore[misc]  # expanded at birth
    beside += chain(step.ready, step.reduce, step.optimizer) if step else ()  # type: ignore[arg-type]
    beside += chain(offload.out, offload.back) if offload else ()  # type: ignore[arg-type]
    parts = max(1, min(_PARTS, LARGEST // max(*busy, *beside)))
    # a device whose stages are all empty has nothing to scale
    scale = [parts * Fraction(sum(busy), len(busy) * ticks) if ticks else Fraction(parts) for ticks in busy]

    def scaled(ticks: Any, devices: Iterable[int]) -> tuple[int, ...]:
        return tuple(max(min(t, 1), round(t * scale[d])) for t, d in zip(ticks, devices, strict=True))

    def grown(part: Any, *keys: str) -> Any:
        return part and replace(part, **{k: tuple(parts * ticks for ticks in getattr(part, k)) for k in keys})

    def times(mb_class: int) -> ClassTimes:
        # where microbatches are alike, both devices of a stage on two routes work equally long
        route = instance.class_routes[mb_class]
        return changed(instance.class_costs[mb_class].duration, lambda ticks: scaled(ticks, route))

    at = instance.placement.routes[0]
    even = replace(
        costs,
        comm=tuple(tuple(parts * ticks for ticks in row) for row in costs.comm),  # type: ignore[union-attr]
        overlapped=costs.overlapped and scaled(costs.overlapped, range(instance.devices)),
        pairs=costs.pairs and [scaled(row, [d] * len(at)) for d, row in zip(at, costs.pairs, strict=True)],  # type: ignore[arg-type]
        link_occupancy=parts * costs.link_occupancy,
    )
    step, offload = grown(step, "ready", "reduce", "optimizer"), grown(offload, "out", "back")
    return with_times(replace(instance, costs=even, step=step, offload=offload), times), parts


def _with_an_activation_more(instance: Instance) -> Instance | None:
    """Return the instance with each limit raised by the device's largest activation; None without limits."""
    if instance.memory is None or instance.memory.limit is None:
        return None
    costs, limits = instance.class_costs, []
    for device, limit in enumerate(instance.memory.limit):  # type: ignore[arg-type]  # expanded at birth
        held = instance.placement.stages_on(device)
        limits.append(limit + max(one.delta[OpKind.F][stage] for one in costs for stage in held))
    return replace(instance, memory=replace(instance.memory, limit=limits))


def _not_run(_: Instance, __: SolveParams) -> int | None:
    return None


@lru_cache(maxsize=64)
def _cost_by(method: str, instance: Instance, params: SolveParams) -> int | None:
    """Return the cost of one heuristic's schedule, as `_best_heuristic` does, and cached like it."""
    try:
        return solve(instance, method, params=params).cost
    except InputError:  # the heuristic does not take such instances, whatever the file says
        return None


@lru_cache(maxsize=64)
def _best_heuristic(instance: Instance, params: SolveParams) -> int | None:
    """Return the cost of the best heuristic's schedule in ticks, or None if no heuristic has one.

    The result is cached because the schedules of a study share their instances.
    """
    found = warm_starts(instance, Budget(params=params))
    return cost(found[0][1]) if found else None


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
        return {**times, "phases": self.by_phase, "reasons": self.by_reason}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the time of a schedule goes."""

    schedule: Schedule  #: the schedule that is explained
    devices: tuple[DeviceTime, ...]  #: busy and idle time of each device
    idle: tuple[Idle, ...]  #: all intervals in which a device is idle while the objective charges its time
    critical: tuple[Step, ...]  #: the critical path; the lengths of its steps sum to the cost
    relaxations: tuple[Relaxation, ...]  #: costs under weaker constraints; empty if they were not computed

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
            "objective": str(self.schedule.instance.objective),
            "costs": costs(self.schedule),
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
    weaker = tuple(relaxations(schedule, method, params)) if relax else ()
    return Explanation(schedule, _devices(schedule, idle), idle, critical_path(schedule, inputs), weaker)


def _devices(schedule: Schedule, idle: Iterable[Idle]) -> tuple[DeviceTime, ...]:
    phases: list[Counter[Phase]] = [Counter() for _ in range(schedule.order.devices)]
    reasons: list[Counter[Reason]] = [Counter() for _ in range(schedule.order.devices)]
    for interval in idle:
        phases[interval.device][interval.phase] += interval.ticks
        reasons[interval.device][interval.reason] += interval.ticks
    opens, closes = charged_windows(schedule)
    charged, busy = (closes - opens).tolist(), busy_times(schedule).tolist()
    return tuple(
        DeviceTime(
            *(device, charged[device], busy[device], phases[device].total()),
            {phase: phases[device][phase] for phase in Phase},
            {reason: reasons[device][reason] for reason in Reason},
        )
        for device in range(schedule.order.devices)
    )
