"""Valid schedules of the heuristics, from which other methods start their search."""

from __future__ import annotations

from collections.abc import Iterator

from tightpipe.heuristics import HEURISTICS, Heuristic

from ..core.accepted_order import accepted
from ..core.errors import HeuristicError, InfeasibleError, InputError, NoScheduleError
from ..core.instance import Instance
from ..core.metrics import cost
from ..core.retime import retime
from ..core.schedule import Order, Schedule
from ..core.validate import validate
from .installed import heuristic_at, installed_heuristics, warn
from .own_heuristic import OwnHeuristic, as_heuristic

WarmStart = Schedule | str | OwnHeuristic | None


def warm_starts(instance: Instance) -> list[tuple[str, Schedule]]:
    """Return the name and a validated schedule of each heuristic that fits the instance, cheapest first."""
    return sorted(_heuristic_schedules(instance), key=lambda pair: cost(pair[1]))


def _heuristic_schedules(instance: Instance) -> Iterator[tuple[str, Schedule]]:
    for heuristic in _fitting(instance).values():
        schedule = _start_of(instance, heuristic)
        if schedule is not None:
            yield heuristic.name, schedule


def _fitting(instance: Instance) -> dict[str, Heuristic]:
    """Return, by name, the heuristics for the instance's placement, including installed ones."""
    installed = {name: found.heuristic for name, found in installed_heuristics().items()}
    known = {**HEURISTICS, **installed}
    return {name: h for name, h in known.items() if instance.placement.name in h.placements}


def _start_of(instance: Instance, heuristic: Heuristic) -> Schedule | None:
    """Return a heuristic's schedule; None if the heuristic finds no schedule.

    A heuristic that is not tightpipe's own may fail with an error. The result is then None as well.
    """
    try:
        return schedule_of(instance, heuristic)
    except NoScheduleError:
        return None
    except HeuristicError as error:
        warn(f"no warm start: {error}")
        return None
    except (InputError, InfeasibleError):  # tightpipe's own heuristics have no reason to raise these
        if _is_ours(heuristic):
            raise
        return None


def requested_starts(instance: Instance, warm_start: WarmStart) -> Iterator[Schedule]:
    """Yield the schedules that `warm_start` asks for, as they are found; the cheapest is the warm start."""
    if warm_start == "best":
        yield from (schedule for _, schedule in _heuristic_schedules(instance))
    elif warm_start is not None:
        yield _resolve(instance, warm_start)


def _resolve(instance: Instance, warm_start: Schedule | str | OwnHeuristic) -> Schedule:
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
    heuristic = _find(instance, warm_start)
    try:
        return schedule_of(instance, heuristic)
    except NoScheduleError as error:
        raise InputError(str(error), key="warm_start", value=heuristic.name) from None


def _find(instance: Instance, warm_start: str | OwnHeuristic) -> Heuristic:
    if not isinstance(warm_start, str):
        return as_heuristic(warm_start, key="warm_start")
    fitting = _fitting(instance)
    if warm_start not in fitting and ":" in warm_start:
        return heuristic_at(warm_start).heuristic
    if warm_start not in fitting:
        rule = f"must be best or a heuristic for placement {instance.placement.name}: {', '.join(fitting)}"
        raise InputError(rule, key="warm_start", value=warm_start)
    return fitting[warm_start]


def schedule_of(instance: Instance, heuristic: Heuristic) -> Schedule:
    """Return the schedule of a heuristic's order, after the validator has accepted it.

    Raises
    ------
    NoScheduleError, InfeasibleError
        If the heuristic finds no schedule for the instance, or if the instance has no schedule at all.
    HeuristicError
        If a heuristic that is not tightpipe's own returns no order or an invalid order, or if a heuristic of
        an installed package raises an exception that is not one of tightpipe's.
    """
    order = heuristic.order(instance)
    if _is_ours(heuristic):
        return _validated(instance, order)
    try:
        return accepted(instance, order)
    except InputError as error:
        raise HeuristicError(error.rule, heuristic.name) from None


def _is_ours(heuristic: Heuristic) -> bool:
    return HEURISTICS.get(heuristic.name) is heuristic


def _validated(instance: Instance, order: Order) -> Schedule:
    schedule = retime(instance, order)
    violations = validate(instance, schedule)
    if violations:
        raise AssertionError(f"a method returned an invalid schedule, please report: {violations[0]}")
    return schedule
