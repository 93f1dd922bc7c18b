"""What a schedule would cost if one constraint were weaker: computed, not estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ..core.instance import Costs, Instance
from ..core.integers import LARGEST
from ..core.metrics import busy_times, cost, imbalance
from ..core.operation import OpKind
from ..core.retime import retime
from ..core.schedule import Schedule
from ..solving.methods import is_heuristic
from ..solving.solve import solve
from ..solving.starts import warm_starts

_PARTS = 1000  # of a tick, in which durations of even work are counted


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A weaker constraint and the cost that it gives.

    Parameters
    ----------
    name
        What is weaker.
    how
        How the cost was found: the same order re-timed, or which heuristic ran anew.
    cost
        In ticks; None if the heuristic has no schedule.
    saved
        Cost of the schedule - `cost`; negative where the heuristic is worse than the schedule is.
    unrelaxed
        What the same way of finding a cost gives without the relaxation; None if nothing.
    """

    name: str
    how: str
    cost: int | None
    saved: int | None
    unrelaxed: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {key: getattr(self, key) for key in ("name", "how", "cost", "saved", "unrelaxed")}


def relaxations(schedule: Schedule, method: str | None) -> tuple[Relaxation, ...]:
    """Return the relaxations that apply to a valid schedule.

    Half and no communication (and link occupancy) keep the order and give it its optimal times. Even work,
    each device's durations scaled to the mean work of all, and one forward activation more on each device
    are of little use to the same order; so the heuristic runs anew that made the schedule, or where none
    did, all heuristics, of which the best is taken.

    Parameters
    ----------
    schedule
        A valid schedule.
    method
        Name of the method that made it, or None.
    """
    return tuple(_all(schedule, method))


def _all(schedule: Schedule, method: str | None) -> Iterator[Relaxation]:
    instance, now = schedule.instance, cost(schedule)
    again = cost(retime(instance, schedule.order))
    yield Relaxation("nothing", "same order re-timed", again, now - again, again)
    comm = instance.costs
    if comm.link_occupancy or any(map(any, comm.comm)):  # type: ignore[arg-type]  # expanded at birth
        for name, factor in (("half the communication", 2), ("no communication", 0)):
            value = cost(retime(_with_comm(instance, factor), schedule.order))
            yield Relaxation(name, "same order re-timed", value, now - value, again)
    even, parts = _with_even_work(instance, busy_times(schedule).tolist())
    how, run = _rerun(method)
    if even is not None:
        found = run(even)
        yield _anew("even work", how, now, None if found is None else -(-found // parts), run(instance))
    more = _with_an_activation_more(instance)
    if more is not None:
        yield _anew("memory +1 activation", how, now, run(more), run(instance))


def _anew(name: str, how: str, now: int, value: int | None, unrelaxed: int | None) -> Relaxation:
    return Relaxation(name, how, value, None if value is None else now - value, unrelaxed)


def _with_comm(instance: Instance, divisor: int) -> Instance:
    """Divide all communication times, rounded down; a divisor of 0 sets them to 0."""

    def part(ticks: int) -> int:
        return ticks // divisor if divisor else 0

    costs = instance.costs
    comm = tuple(tuple(map(part, row)) for row in costs.comm)  # type: ignore[union-attr]  # expanded at birth
    occupancy = part(costs.link_occupancy)
    return replace(instance, costs=replace(costs, comm=comm, link_occupancy=occupancy))


def _with_even_work(instance: Instance, busy: Sequence[int]) -> tuple[Instance | None, int]:
    """Scale each device's durations so that all work as long as the mean; None if they do so already.

    The instance counts in parts of a tick, so that short durations are scaled as well: with it comes how
    many of them are a tick.
    """
    if not imbalance(busy):
        return None, 1
    costs, parts = instance.costs, max(1, min(_PARTS, LARGEST // max(busy)))
    scale = [parts * Fraction(sum(busy), len(busy) * ticks) for ticks in busy]
    at = instance.placement.routes[0]  # a second route's stages lie on devices of equal work

    def scaled(ticks: Any, devices: Iterable[int]) -> list[int]:
        return [max(1, round(t * scale[d])) for t, d in zip(ticks, devices, strict=True)]

    even = Costs(
        scaled(costs.forward, at),
        scaled(costs.backward, at),
        scaled(costs.weight, at),
        tuple(tuple(parts * ticks for ticks in row) for row in costs.comm),  # type: ignore[union-attr]
        None if costs.overlapped is None else scaled(costs.overlapped, range(instance.devices)),
        parts * costs.link_occupancy,
    )
    return replace(instance, costs=even), parts


def _with_an_activation_more(instance: Instance) -> Instance | None:
    """Raise each device's limit by its largest forward activation; None if there are no limits."""
    if instance.memory is None or instance.memory.limit is None:
        return None
    limits = []
    for device in range(instance.devices):
        held = instance.placement.stages_on(device)
        limit = instance.memory_limit(device)
        assert limit is not None
        limits.append(limit + max(instance.memory_delta(OpKind.F, stage) for stage in held))
    return replace(instance, memory=replace(instance.memory, limit=tuple(limits)))


def _rerun(method: str | None) -> tuple[str, Callable[[Instance], int | None]]:
    """Return how to find a schedule of another instance: a description and a function to its cost."""
    if method is not None and is_heuristic(method):
        return f"{method} run anew", lambda instance: solve(instance, method).cost
    return "best of all heuristics", _best_heuristic


@lru_cache(maxsize=64)
def _best_heuristic(instance: Instance) -> int | None:
    """Cost of the best heuristic; cached, as the schedules of a study share their instances."""
    found = warm_starts(instance)
    return cost(found[0][1]) if found else None
