"""Valid schedules of the heuristics, from which other methods start their search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import NamedTuple

from tightpipe.heuristics import HEURISTICS, SEQUENCES, Heuristic, known_heuristic
from tightpipe.heuristics.offloading import LEVELS, offloaded
from tightpipe.heuristics.registry import HeuristicError
from tightpipe.solver.engine.run import in_best_times, one_by_one, validated

from ..base.errors import InfeasibleError, InputError, NoScheduleError
from ..model.instance import Instance
from ..model.metrics import cost
from ..model.orders import accepted, order_of
from ..model.schedule import Order, Schedule
from ..model.simulate import retime
from ..model.validate import validate
from ..params.budget import UNLIMITED, Budget
from ..params.solve_params import DEFAULTS, SolveParams
from .own_heuristics import OwnHeuristic, as_heuristic, heuristic_at, installed_heuristics, warn

_ALL_LOOPS = ("times", *HEURISTICS)
OneStart = Schedule | str | OwnHeuristic | None
WarmStart = OneStart | tuple[OneStart, ...]


class Start(NamedTuple):
    """A validated schedule, and the heuristic from which it comes.

    Of several schedules that cost the same, the one whose heuristic has the least `place` in the list of all
    heuristics is taken, whichever was found first.
    """

    place: int
    name: str
    schedule: Schedule


def cheapest(starts: Iterable[Start]) -> Schedule | None:
    """Return the schedule of least cost, None if there is none."""
    best = min(starts, key=_by_cost, default=None)
    return None if best is None else best.schedule


def _by_cost(start: Start) -> tuple[int, int]:
    return cost(start.schedule), start.place


def warm_starts(instance: Instance, budget: Budget = UNLIMITED) -> list[tuple[str, Schedule]]:
    """Return the name and a validated schedule of each heuristic that fits the instance, cheapest first."""
    found = sorted(_heuristic_starts(instance, budget), key=_by_cost)
    return [(start.name, start.schedule) for start in found]


def _heuristic_starts(instance: Instance, budget: Budget) -> Iterator[Start]:
    fitting = _fitting(instance.placement.name)
    places = {name: place for place, name in enumerate(fitting)}
    clock = StartClock(instance, budget)
    for name, heuristic in sorted(fitting.items(), key=lambda item: clock.usual(item[1])):
        if (heuristic.mixes and not instance.fusing_saves) or (heuristic.slices and not instance.slices):
            continue  # its order is that of another heuristic
        if instance.differ and heuristic.sequences is not None and not heuristic.sorts:
            if not heuristic.baseline:
                continue  # an order made for microbatches that are alike costs much more than list schedules
            heuristic = replace(heuristic, sequences=tuple(SEQUENCES))
        if clock.has_time_for(heuristic):
            schedule = _start_of(instance, heuristic, clock)
            if schedule is not None:
                yield Start(places[name], name, schedule)


class StartClock:
    """Decides for which heuristics a search has time before it begins.

    Heuristics may take a share of the time that a search has, or a short time if that is longer. One that
    does not look at the clock begins only if the time left is as long as it will probably take, by the number
    of operations and by how fast earlier ones were. One that takes next to no time always runs to its end, so
    that a search of a small instance starts from the best of all heuristics however short its time is.
    """

    def __init__(self, instance: Instance, budget: Budget) -> None:
        self._operations, self._alike = 3 * instance.stages * instance.units, not instance.differ
        self._limits = 1 if instance.offload is None else LEVELS
        self._slowness = 1.0  # how many times as long as on a usual machine the last heuristic took
        self._params = budget.params.starts
        self._budget = budget.first_part(self._params.share, self._params.least)

    @property
    def _checking(self) -> float:
        """Seconds that it takes to retime and validate a schedule."""
        return self._slowness * self._params.checking * self._operations

    def usual(self, heuristic: Heuristic) -> float:
        """Return the seconds that a heuristic usually takes, and the check of its schedule."""
        times = self._limits * (1 if self._alike else len(heuristic.sequences or (1,)))
        copying = self._params.copying * self._operations if self._limits > 1 else 0.0
        return (
            times * (heuristic.seconds(self._operations) + copying) + self._params.checking * self._operations
        )

    @property
    def over(self) -> bool:
        """Whether the time for heuristics is up."""
        return self._budget.left <= self._checking

    def has_time_for(self, heuristic: Heuristic) -> bool:
        """Return whether the heuristic may begin."""
        needed = self._params.checking * self._operations if heuristic.timed else self.usual(heuristic)
        return self._is_short(heuristic) or self._budget.left > self._slowness * needed

    def _is_short(self, heuristic: Heuristic) -> bool:
        return self.usual(heuristic) <= self._params.short

    def schedule_of(self, instance: Instance, heuristic: Heuristic) -> Schedule:
        """Return the schedule of a heuristic, as `schedule_of` does, and measure how fast it was."""
        begun = perf_counter()
        if self._is_short(heuristic):  # its time says little, because its loops may have to be loaded
            return schedule_of(instance, heuristic, self._budget.unlimited())
        begin_checking = max(0.0, self._budget.left - self._checking)
        try:
            return schedule_of(instance, heuristic, self._budget.within(begin_checking))
        finally:
            if not heuristic.timed:
                self._slowness = max(1.0, (perf_counter() - begun) / self.usual(heuristic))


def usual_seconds(instance: Instance, method: str | None, params: SolveParams = DEFAULTS) -> float:
    """Return the seconds that a heuristic usually takes, or all that fit if `method` names none.

    This depends on the instance alone, and not on how fast the machine is.
    """
    clock = StartClock(instance, Budget(params=params))
    known = None if method is None else known_heuristic(method)
    heuristics = _fitting(instance.placement.name).values() if known is None else [known]
    return sum(map(clock.usual, heuristics))


def _fitting(placement: str) -> dict[str, Heuristic]:
    """Return, by name, the heuristics for a placement, including installed ones."""
    installed = {name: found.heuristic for name, found in installed_heuristics().items()}
    known = {**HEURISTICS, **installed}
    return {name: h for name, h in known.items() if placement in h.placements}


def _start_of(instance: Instance, heuristic: Heuristic, clock: StartClock) -> Schedule | None:
    """Return a heuristic's schedule; None if the heuristic finds no schedule."""
    try:
        return clock.schedule_of(instance, heuristic)
    except NoScheduleError:
        return None
    except HeuristicError as error:
        warn(f"no warm start: {error}")
        return None
    except (InputError, InfeasibleError):  # tightpipe's own heuristics have no reason to raise these
        if _is_ours(heuristic):
            raise
        return None


def requested_starts(
    instance: Instance, warm_start: WarmStart, budget: Budget = UNLIMITED
) -> Iterator[Start]:
    """Yield the schedules that `warm_start` asks for, as they are found; the `cheapest` is the warm start.

    If `budget` has a deadline, heuristics take at most a share of the time left, or half a second if that is
    longer, and one that is asked for by its name and looks at the clock may have no schedule by then.
    """
    if isinstance(warm_start, tuple):
        for one in warm_start:
            yield from requested_starts(instance, one, budget)
    elif warm_start == "best":
        yield from _heuristic_starts(instance, budget)
    elif warm_start is not None:
        schedule = _resolve(instance, warm_start, StartClock(instance, budget))
        if schedule is not None:
            yield Start(0, "", schedule)


FUSING = "mixed"
"""The group of compiled loops by which heuristics decide which backwards to fuse: that of the heuristic."""


def loops_of_starts(instance: Instance, warm_start: WarmStart) -> tuple[str, ...]:
    """Return the groups of compiled loops with which `requested_starts` works on an instance."""
    fusing = (FUSING,) if instance.fusing_saves else ()
    copies = () if instance.offload is None else ("copies",)
    if isinstance(warm_start, tuple):
        return tuple(group for one in warm_start for group in loops_of_starts(instance, one))
    if warm_start == "best":
        return (*loops_of_all_starts(instance.placement.name, instance.fusing_saves), *copies)
    if isinstance(warm_start, str) and known_heuristic(warm_start) is not None:
        return ("times", warm_start.partition(":")[0], *fusing, *copies)
    if warm_start is None or isinstance(warm_start, Schedule):
        return ("times", *copies)
    return _ALL_LOOPS


def loops_of_all_starts(placement: str, fusing_saves: bool) -> tuple[str, ...]:
    """Return the groups of compiled loops of all heuristics that a search in this placement starts from."""
    starting = [one for one in _fitting(placement).values() if fusing_saves or not one.mixes]
    return ("times", *(group for heuristic in starting for group in loops_of_heuristic(heuristic)))


def loops_of_heuristic(heuristic: Heuristic) -> tuple[str, ...]:
    """Return the groups of compiled loops that a heuristic calls; a user's may call any of tightpipe's."""
    return (heuristic.name.partition(":")[0],) if _is_ours(heuristic) else _ALL_LOOPS


def _resolve(
    instance: Instance, warm_start: Schedule | str | OwnHeuristic, clock: StartClock
) -> Schedule | None:
    """Return the valid schedule that a `warm_start` argument gives or names; None if time was too short."""
    if isinstance(warm_start, Schedule):
        violations = validate(instance, warm_start)
        if violations:
            raise InputError(f"is not valid for this instance: {violations[0]}", key="warm_start")
        return in_best_times(instance, warm_start)
    heuristic = _find(instance, warm_start)
    try:
        return clock.schedule_of(instance, heuristic)
    except NoScheduleError as error:
        if heuristic.timed and clock.over:
            return None
        raise InputError(str(error), key="warm_start", value=heuristic.name) from None


def _find(instance: Instance, warm_start: str | OwnHeuristic) -> Heuristic:
    if not isinstance(warm_start, str):
        return as_heuristic(warm_start, key="warm_start")
    fitting, ours = _fitting(instance.placement.name), known_heuristic(warm_start)
    if ours is not None and instance.placement.name in ours.placements:
        return ours
    if warm_start not in fitting and ":" in warm_start:
        return heuristic_at(warm_start).heuristic
    if warm_start not in fitting:
        rule = f"must be best or a heuristic for placement {instance.placement.name}: {', '.join(fitting)}"
        raise InputError(rule, key="warm_start", value=warm_start)
    return fitting[warm_start]


def schedule_of(instance: Instance, heuristic: Heuristic, budget: Budget = UNLIMITED) -> Schedule:
    """Return the schedule of a heuristic's order, after the validator has accepted it.

    Raise a NoScheduleError or an InfeasibleError if the heuristic finds no schedule or there is none, and a
    HeuristicError if one that is not tightpipe's own returns no valid order or raises an unknown exception.
    """
    otherwise = one_by_one if heuristic.always else None

    def make(one: Instance) -> Order:
        order = partial(heuristic.order, budget=budget)
        return order_of(one, order, slices=heuristic.slices, otherwise=otherwise)

    resident = instance.offload is None
    order = make(instance) if resident else offloaded(instance, make, budget, heuristic.copies)
    if _is_ours(heuristic):
        return validated(retime(instance, order))
    try:
        return accepted(instance, order)
    except InputError as error:
        raise HeuristicError(error.rule, heuristic.name) from None


def _is_ours(heuristic: Heuristic) -> bool:
    known = known_heuristic(heuristic.name)
    return known is not None and known.make is heuristic.make
