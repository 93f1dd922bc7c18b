"""Relaxations: what a schedule would cost if one constraint were weaker, computed and not estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ..core.budget import Budget
from ..core.instance import Costs, Instance
from ..core.integers import LARGEST
from ..core.metrics import busy_times, cost, imbalance
from ..core.operation import OpKind
from ..core.params.solve_params import DEFAULTS, SolveParams
from ..core.retime import retime
from ..core.schedule import Schedule
from ..solving.methods import is_heuristic
from ..solving.solve import solve
from ..solving.starts import warm_starts

_PARTS = 1000  # most parts into which a tick is divided to count scaled durations


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A weaker constraint and the cost that it gives.

    Parameters
    ----------
    name
        Name of the weaker constraint.
    how
        How the cost was found: by new times for the same order, or by a heuristic that ran again.
    cost
        Cost under the weaker constraint in ticks; None if the heuristic has no schedule.
    saved
        Cost of the schedule minus `cost`, in ticks; negative where the heuristic is worse than the schedule,
        and None if `cost` is None.
    unrelaxed
        Cost that is found in the same way without the relaxation; None if the heuristic has no schedule.
    """

    name: str
    how: str
    cost: int | None
    saved: int | None
    unrelaxed: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the relaxation as plain data for JSON."""
        return {key: getattr(self, key) for key in ("name", "how", "cost", "saved", "unrelaxed")}


def relaxations(
    schedule: Schedule, method: str | None, params: SolveParams = DEFAULTS
) -> tuple[Relaxation, ...]:
    """Return the relaxations that apply to a valid schedule.

    With unchanged, half or no communication time and link occupancy, the same order gets new optimal times.
    Two other relaxations hardly help the same order: even work, where the durations on each device are scaled
    to the mean work of all devices, and memory for one more forward activation on each device. For these, the
    heuristic that made the schedule runs again. If no heuristic made the schedule, all heuristics run, and
    the best one counts.

    Parameters
    ----------
    schedule
        A valid schedule.
    method
        Name of the method that made the schedule, or None if it is unknown.
    params
        The numbers that tune the heuristics.
    """
    return tuple(_all(schedule, method, params))


def _all(schedule: Schedule, method: str | None, params: SolveParams) -> Iterator[Relaxation]:
    instance, now = schedule.instance, cost(schedule)
    again = cost(retime(instance, schedule.order))
    yield Relaxation("nothing", "same order re-timed", again, now - again, again)
    comm = instance.costs
    if comm.link_occupancy or any(map(any, comm.comm)):  # type: ignore[arg-type]  # expanded at birth
        for name, factor in (("half the communication", 2), ("no communication", 0)):
            value = cost(retime(_with_comm(instance, factor), schedule.order))
            yield Relaxation(name, "same order re-timed", value, now - value, again)
    even, parts = _with_even_work(instance, busy_times(schedule).tolist())
    how, run = _rerun(method, params)
    if even is not None:
        found = run(even)
        yield _anew("even work", how, now, None if found is None else -(-found // parts), run(instance))
    more = _with_an_activation_more(instance)
    if more is not None:
        yield _anew("memory +1 activation", how, now, run(more), run(instance))


def _anew(name: str, how: str, now: int, value: int | None, unrelaxed: int | None) -> Relaxation:
    return Relaxation(name, how, value, None if value is None else now - value, unrelaxed)


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

    The new instance counts in parts of a tick, so that rounding hardly changes short durations; the second
    value is how many parts a tick has. The instance is None if all devices work equally long already.
    """
    if not imbalance(busy):
        return None, 1
    costs, parts = instance.costs, max(1, min(_PARTS, LARGEST // max(busy)))
    scale = [parts * Fraction(sum(busy), len(busy) * ticks) for ticks in busy]
    at = instance.placement.routes[0]  # with a second route, both devices of a stage work equally long

    def scaled(ticks: Any, devices: Iterable[int]) -> list[int]:
        return [max(min(t, 1), round(t * scale[d])) for t, d in zip(ticks, devices, strict=True)]

    even = Costs(
        scaled(costs.forward, at),
        scaled(costs.backward, at),
        scaled(costs.weight, at),
        tuple(tuple(parts * ticks for ticks in row) for row in costs.comm),  # type: ignore[union-attr]
        None if costs.overlapped is None else scaled(costs.overlapped, range(instance.devices)),
        parts * costs.link_occupancy,
        None if costs.fused is None else scaled(costs.fused, at),
    )
    return replace(instance, costs=even), parts


def _with_an_activation_more(instance: Instance) -> Instance | None:
    """Return the instance with each limit raised by the device's largest activation; None without limits."""
    if instance.memory is None or instance.memory.limit is None:
        return None
    limits = []
    for device in range(instance.devices):
        held = instance.placement.stages_on(device)
        limit = instance.memory_limit(device)
        assert limit is not None
        limits.append(limit + max(instance.memory_delta(OpKind.F, stage) for stage in held))
    return replace(instance, memory=replace(instance.memory, limit=tuple(limits)))


def _rerun(method: str | None, params: SolveParams) -> tuple[str, Callable[[Instance], int | None]]:
    """Return a way to find a schedule of another instance, as a description and a function.

    The function returns the cost of that schedule in ticks, or None if it finds none.
    """
    if method is not None and is_heuristic(method):
        return f"{method} run anew", lambda instance: solve(instance, method, params=params).cost
    return "best of all heuristics", lambda instance: _best_heuristic(instance, params)


@lru_cache(maxsize=64)
def _best_heuristic(instance: Instance, params: SolveParams) -> int | None:
    """Return the cost of the best heuristic's schedule in ticks, or None if no heuristic has one.

    The result is cached because the schedules of a study share their instances.
    """
    found = warm_starts(instance, Budget(params=params))
    return cost(found[0][1]) if found else None
