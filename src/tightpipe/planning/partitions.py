"""The candidates of a configuration: by ascending bounds, or without bounds of all partitions.

- Simple candidates (`seeds`) recompute much, in simple patterns; the search goes on to their neighbours.
- A relaxed candidate (`relaxed_candidate`) has devices that are far from their limits, for which cheap
  schedules are easiest to find.
- A candidate is found at once (`Rushed`) where all others would take too long. Cuts that divide the work
  evenly, or the memory, are shifted layer by layer until one microbatch fits every device. Then as few layers
  as possible are recomputed. This finds no candidate in rare cases where one fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Protocol

import numpy as np

from ..kernels.arrays import Ints
from ..params.budget import UNLIMITED, Budget, TimeUpError
from .candidate import Candidate, bytes_lacking
from .candidates_by_list import (
    Listed,
    Unlisted,
    all_cuts,
    even_cuts,
    is_allowed,
    least_work,
    tightest_in_list,
)
from .candidates_by_table import (
    SCRATCH,
    Tabled,
    Way,
    candidates_of,
    fill_all,
    kind_of,
    middles,
    simplified,
    start_of,
    tightest_in_tables,
)
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .load_kernel import Relaxing, least_loaded
from .model_arrays import least_held, least_state
from .problem import PlanningProblem


class Partitions(Protocol):
    """The candidates of a configuration, in ascending order of their bounds."""

    @property
    def configuration(self) -> Configuration:
        """The configuration to which the candidates belong."""

    @property
    def bound(self) -> int:
        """A lower bound, in ticks, of the cost of all candidates not yet taken; `NEVER` if none is left."""

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return the next candidate; None if none is left, or if the others are too many to look at."""


@dataclass(frozen=True)
class NoPartitions:
    """A configuration without candidates."""

    configuration: Configuration
    bound: int = NEVER

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return None."""
        return None


def partitions_of(configuration: Configuration, until: Budget = UNLIMITED) -> Partitions:
    """Return the candidates of a configuration; `Rushed` if time is up before they are bounded."""
    try:
        return _bounded(configuration, until)
    except TimeUpError:
        return Rushed(configuration)


def _bounded(configuration: Configuration, until: Budget) -> Partitions:
    kind = kind_of(configuration, until.params.plan)
    if configuration.has_no_cuts or lacks_in_all(configuration):
        return NoPartitions(configuration)
    if configuration.slices:  # the bounds of devices are those of whole microbatches
        return Unlisted(configuration, until)
    limited = configuration.problem.cluster.memory is not None
    if kind is not None and limited and tightest_in_tables(configuration, kind, until, 1) is None:
        return NoPartitions(configuration)  # tables of bytes say so much sooner than those of ticks
    if kind is not None:
        return Tabled(configuration, kind, until)
    if configuration.partitions <= until.params.plan.listed:
        return Listed(configuration, _all_cuts(configuration), until)
    return Unlisted(configuration, until)


def _all_cuts(configuration: Configuration) -> Iterator[tuple[int, ...]]:
    stages, empty = configuration.placement.stages, configuration.may_be_empty
    return all_cuts(configuration.layers, stages, empty=empty)


def lacks_in_all(configuration: Configuration) -> int:
    """Return how many bytes all devices together lack for one microbatch, or all its slices, at least 0.

    If they lack any, no partition fits. Whatever is recomputed, each device has to hold at least the state of
    its layers (`least_state`) and what their F's take (`least_held`).
    """
    problem, chunks = configuration.problem, configuration.placement.stages_per_device
    sizes = problem.cluster.memory_of(configuration.placement.devices)
    if sizes is None:
        return 0
    held = sum(sum(least_held(problem, unit.layers)) for unit in configuration.units)
    state = sum(least_state(problem, layer, chunks) for layer in problem.model.layers)
    return max(0, held + ceil(state) - sum(size - problem.cluster.reserve for size in sizes))


def least_excess(configuration: Configuration, until: Budget = UNLIMITED, below: int = NEVER) -> int:
    """Return the fewest bytes, over all partitions, that the fullest device lacks to hold one microbatch.

    The result is `NEVER` if there are no partitions in which it lacks fewer than `below` bytes. It may be too
    high where `tightest` misses some.
    """
    devices = configuration.placement.devices
    candidate = (
        tightest(configuration, until, below) if lacks_in_all(configuration) < devices * below else None
    )
    excess = NEVER if candidate is None else max(bytes_lacking(configuration.problem, candidate))
    return excess if excess < below else NEVER


def tightest(configuration: Configuration, until: Budget = UNLIMITED, below: int = NEVER) -> Candidate | None:
    """Return the candidate whose fullest device lacks fewest bytes to hold one microbatch.

    Return None if there are no partitions, or if all lack at least `below` bytes. Where partitions are too
    many for tables or a list, only some are looked at.
    """
    kind = kind_of(configuration, until.params.plan)
    if configuration.has_no_cuts:
        return None
    if kind is not None and not configuration.slices:
        return tightest_in_tables(configuration, kind, until, below)
    if configuration.partitions <= until.params.plan.listed and not configuration.slices:
        return tightest_in_list(configuration, _all_cuts(configuration), until, below)
    return tightest_near_even(configuration, until)


def tightest_near_even(configuration: Configuration, until: Budget = UNLIMITED) -> Candidate | None:
    """Return a candidate like `tightest`, found at once: the best one near some even cuts."""
    shifted = (_shifted_to_fit(configuration, cuts, until) for cuts in _first_cuts(configuration))
    found = min(shifted, key=lambda one: max(one[1]), default=None)
    if found is None:
        return None
    cuts, lack = found
    return _with_counts(configuration, cuts, [NEVER if bytes_ else 0 for bytes_ in lack])


def seeds(problem: PlanningProblem, candidate: Candidate, shares: Sequence[float]) -> Iterator[Candidate]:
    """Yield candidates that have the same cuts and recompute much; none if nothing may be recomputed.

    In each kind, some recompute the first layers of each stage, and others all layers of the first stages,
    which hold the activations of a microbatch longest.
    """
    for kind in problem.space.recompute:
        able = [problem.model.recomputable(*stage, (kind,)) for stage in candidate.stages]
        for share in shares:
            yield replace(candidate, recomputed=tuple(some[: ceil(share * len(some))] for some in able))
        for share in shares[:-1]:
            whole = ceil(share * len(able))
            again = (some if s < whole else () for s, some in enumerate(able))
            yield replace(candidate, recomputed=tuple(again))


def relaxed_candidate(
    configuration: Configuration, cap: int, held: float, until: Budget = UNLIMITED, *, cost: int | None = None
) -> Candidate | None:
    """Return the candidate with the least sum of loads among those with bounds below `cap` ticks, if any.

    `load_kernel.load` says what the load of a device is, in a schedule that costs `cost` ticks, or as many as
    the cap, and for memory that is held `held` times as long as necessary. If the second half of the stages
    can begin at many layers, only some of them are tried. None also where `kind_of` returns None.
    """
    kind = kind_of(configuration, until.params.plan)
    if kind is None:
        return None
    configuration = simplified(configuration, kind)
    shape = configuration.placement.devices + 1, configuration.layers + 1, configuration.layers + 1
    arrays = configuration.arrays(cap, until)
    least, chosen = np.zeros(shape), np.zeros((*shape, 4), np.int64)
    scratch, best, ways = np.zeros(SCRATCH, np.int64), np.inf, list[Way]()
    params = until.params.plan
    relaxing = Relaxing(cap, cost or cap, held, params.load_power, params.evenness)
    for middle in _even_middles(configuration, kind, params.middles):
        tables = arrays.tables._replace(kind=kind, middle=middle)
        fill_all(configuration, until, partial(least_loaded, tables, relaxing, least, chosen, scratch))
        start = start_of(configuration, kind, middle)
        if least[0][start] < best:
            best, ways = least[0][start], list(_ways(chosen, *start))
    return next(candidates_of(configuration, kind, arrays.options, ways), None) if ways else None


def _ways(chosen: Ints, x: int, y: int) -> Iterator[Way]:
    """Yield what each device in turn takes from the remainder (x, y); `least_loaded` explains `chosen`."""
    for device in range(len(chosen) - 1):
        new_x, new_y, one, two = chosen[device, x, y].tolist()
        yield new_x, new_y, one, two
        x, y = new_x, new_y


def _even_middles(configuration: Configuration, kind: int, most: int) -> list[int]:
    """Return the numbers of `middles` with the most even work of the two halves, at most `most`."""
    done = np.cumsum([0, *configuration.ticks])
    return sorted(middles(configuration, kind), key=lambda m: abs(2 * int(done[m]) - int(done[-1])))[:most]


class Rushed:
    """A candidate of a configuration that is found at once, and a bound of all candidates by their work."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.bound = least_work(configuration)
        self._taken = False

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return a candidate at the first call, None at later calls or if none is found."""
        if self._taken:
            return None
        self._taken = True
        return rushed_candidate(self.configuration, until)


def rushed_candidate(configuration: Configuration, until: Budget = UNLIMITED) -> Candidate | None:
    """Return a candidate in which one microbatch fits every device, None if none is found in time."""
    return next(even_candidates(configuration, until), None)


def even_candidates(configuration: Configuration, until: Budget = UNLIMITED) -> Iterator[Candidate]:
    """Yield candidates with cuts near even ones.

    With each of these cuts, one recomputes as few layers as let one microbatch fit every device. The others
    recompute all, in one kind each, with which a B may need too much.
    """
    fitted = (_shifted_to_fit(configuration, cuts, until) for cuts in _first_cuts(configuration))
    for cuts in dict.fromkeys(cuts for cuts, lack in fitted if max(lack) == 0):
        least = _least_recomputed(configuration, cuts)
        yield least
        yield from seeds(configuration.problem, least, (1.0,))


def _first_cuts(configuration: Configuration) -> Iterator[tuple[int, ...]]:
    """Yield cuts with equal work, equal memory and equal numbers of layers; none if there are no cuts."""
    layers = configuration.problem.model.layers
    if configuration.has_no_cuts:
        return
    chunks = configuration.placement.stages_per_device
    state = [float(least_state(configuration.problem, layer, chunks)) for layer in layers]
    yield even_cuts(configuration, configuration.ticks)
    yield even_cuts(configuration, [s + layer.activation for s, layer in zip(state, layers, strict=True)])
    yield even_cuts(configuration, [1] * len(layers))


def _shifted_to_fit(
    configuration: Configuration, cuts: tuple[int, ...], until: Budget
) -> tuple[tuple[int, ...], list[int]]:
    """Return cuts near the given ones with which devices lack fewer bytes, and the bytes that each lacks."""
    lack = _lack(configuration, cuts)
    for step in until.params.plan.shifts:
        improved = max(lack) > 0
        while improved and until.left > 0:
            improved = False
            for moved in _shifted(configuration, cuts, step):
                now = _lack(configuration, moved)
                if sorted(now, reverse=True) < sorted(lack, reverse=True):
                    cuts, lack, improved = moved, now, max(now) > 0
                    break
    return cuts, lack


def _shifted(configuration: Configuration, cuts: tuple[int, ...], step: int) -> Iterator[tuple[int, ...]]:
    """Yield the cuts with one cut shifted by a number of layers, if both stages beside it stay possible."""
    model = configuration.problem.model
    for k in range(1, len(cuts) - 1):
        for shifted in (cuts[k] - step, cuts[k] + step):
            moved = (*cuts[:k], shifted, *cuts[k + 1 :])
            beside = pairwise(moved[k - 1 : k + 2])
            allowed = is_allowed(moved, empty=configuration.may_be_empty)
            if allowed and all(a == b or model.is_possible(a, b) for a, b in beside):
                yield moved


def _lack(configuration: Configuration, cuts: tuple[int, ...]) -> list[int]:
    """Return the bytes that each device lacks for one microbatch, without or with full recomputation."""
    ways = [_recomputing(configuration, cuts, 0)]
    if configuration.problem.space.recompute:
        ways.append(_recomputing(configuration, cuts, NEVER))
    lacking = (bytes_lacking(configuration.problem, way) for way in ways)
    return [min(each) for each in zip(*lacking, strict=True)]


def _recomputing(configuration: Configuration, cuts: tuple[int, ...], most: int) -> Candidate:
    """Return the candidate that recomputes the first layers of each stage that can be, at most `most`."""
    model, kinds = configuration.problem.model, configuration.problem.space.recompute
    able = (model.recomputable(*stage, kinds) for stage in pairwise(cuts))
    return configuration.candidate(cuts, tuple(stage[:most] for stage in able))


def _least_recomputed(configuration: Configuration, cuts: tuple[int, ...]) -> Candidate:
    """Return the candidate with these cuts that recomputes on each device as few layers as it needs.

    On each device one microbatch must fit without any recomputation, or if all layers are recomputed.
    """
    devices = range(configuration.placement.devices)
    lacks = _counted(configuration, cuts, [0 for _ in devices])
    low = [0 for _ in devices]
    high = [max(b - a for a, b in pairwise(cuts)) if lacks[device] else 0 for device in devices]
    while low != high:  # bisection, on all devices at once
        middle = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
        lacks = _counted(configuration, cuts, middle)
        for device in devices:
            if lacks[device] and low[device] < high[device]:
                low[device] = middle[device] + 1
            else:
                high[device] = middle[device]
    return _with_counts(configuration, cuts, high)


def _counted(configuration: Configuration, cuts: tuple[int, ...], counts: list[int]) -> list[int]:
    return bytes_lacking(configuration.problem, _with_counts(configuration, cuts, counts))


def _with_counts(configuration: Configuration, cuts: tuple[int, ...], counts: list[int]) -> Candidate:
    """Return the candidate in which each stage recomputes as many layers as `counts` has for its device."""
    every = _recomputing(configuration, cuts, NEVER).recomputed
    (route,) = configuration.placement.routes
    chosen = tuple(layers[: counts[device]] for layers, device in zip(every, route, strict=True))
    return configuration.candidate(cuts, chosen)
