"""Valid schedules of the heuristics, from which other methods start their search."""

from __future__ import annotations

from collections.abc import Iterator

from tightpipe.heuristics import HEURISTICS

from ..core.errors import InputError, NoScheduleError
from ..core.instance import Instance
from ..core.metrics import cost
from ..core.retime import retime
from ..core.schedule import Order, Schedule
from ..core.validate import validate

WarmStart = Schedule | str | None


def warm_starts(instance: Instance) -> list[tuple[str, Schedule]]:
    """Return the name and a validated schedule of each heuristic that fits the instance, cheapest first."""
    return sorted(_heuristic_schedules(instance), key=lambda pair: cost(pair[1]))


def _heuristic_schedules(instance: Instance) -> Iterator[tuple[str, Schedule]]:
    for heuristic in HEURISTICS.values():
        if instance.placement.name not in heuristic.placements:
            continue
        try:
            schedule = validated(instance, heuristic.order(instance))
        except NoScheduleError:
            continue
        yield heuristic.name, schedule


def requested_starts(instance: Instance, warm_start: WarmStart) -> Iterator[Schedule]:
    """Yield the schedules that `warm_start` asks for, as they are found; the cheapest is the warm start."""
    if warm_start == "best":
        yield from (schedule for _, schedule in _heuristic_schedules(instance))
    elif warm_start is not None:
        yield _resolve(instance, warm_start)


def _resolve(instance: Instance, warm_start: Schedule | str) -> Schedule:
    """Return the valid schedule that a `warm_start` argument gives or names.

    Raises
    ------
    InputError
        If the schedule is invalid, or the heuristic does not exist or has no schedule for the instance.
    """
    if isinstance(warm_start, Schedule):
        violations = validate(instance, warm_start)
        if violations:
            raise InputError(f"is not valid for this instance: {violations[0]}", key="warm_start")
        return warm_start
    heuristic = HEURISTICS.get(warm_start)
    if heuristic is None or instance.placement.name not in heuristic.placements:
        fitting = [h.name for h in HEURISTICS.values() if instance.placement.name in h.placements]
        rule = f"must be best or a heuristic for placement {instance.placement.name}: {', '.join(fitting)}"
        raise InputError(rule, key="warm_start", value=warm_start)
    try:
        return validated(instance, heuristic.order(instance))
    except NoScheduleError as error:
        raise InputError(str(error), key="warm_start", value=warm_start) from None


def validated(instance: Instance, order: Order) -> Schedule:
    """Return the schedule of least cost that runs a method's order, after the validator has accepted it."""
    schedule = retime(instance, order)
    violations = validate(instance, schedule)
    if violations:
        raise AssertionError(f"a method returned an invalid schedule, please report: {violations[0]}")
    return schedule
