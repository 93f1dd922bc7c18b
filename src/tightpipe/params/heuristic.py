"""Parameters of the heuristics, and of the time that heuristics get as warm starts."""

from __future__ import annotations

from dataclasses import dataclass

from .parameters import Parameters, amount, count, entries, fraction, rows


@dataclass(frozen=True, slots=True)
class StartParams(Parameters):
    """The heuristics from whose schedules a search starts.

    Parameters
    ----------
    share
        Share of the time of a search that heuristics may take before it begins.
    least
        Seconds that they may take however short the time is.
    short
        Seconds on a usual machine; a heuristic that takes no longer always runs to its end.
    checking
        Seconds per operation to retime and validate a schedule on a usual machine.
    """

    share: float = fraction(0.5)
    least: float = amount(0.5)
    short: float = amount(0.1)
    checking: float = amount(1.2e-6)


@dataclass(frozen=True, slots=True)
class ListParams(Parameters):
    """The heuristic `list`: list scheduling by each of several priority rules.

    Parameters
    ----------
    rules
        One row for each rule: alternate, deepest forward and deepest backward, each 0 or 1, then reserve,
        overrun and patience, as `heuristics.list_kernel.Rule` explains them. In tests with instances of all
        placements and limits, the best of these twelve rules cost at most 2 % more than the best of all 216
        combinations.
    fusing
        Where fused backwards save time, every rule runs once with each row: delay and backlog, as
        `heuristics.list_state_kernel.Fusing` explains them.
    retimed
        Number of orders of least simulated cost that are compared by their exact cost.
    slice
        Operations between two looks at the clock, about a tenth of a second.
    """

    rules: tuple[tuple[float, ...], ...] = rows(
        (1, 1, 1, 1.0, 0.5, 0.0),
        (1, 1, 0, 0.0, 0.5, 0.5),
        (0, 1, 0, 0.5, 0.0, 0.5),
        (1, 1, 1, 0.5, 0.0, 0.0),
        (0, 1, 1, 0.0, 0.5, 0.0),
        (0, 1, 0, 1.0, 0.0, 0.5),
        (0, 1, 0, 0.5, 0.5, 0.5),
        (1, 1, 1, 0.0, 0.0, 0.5),
        (0, 1, 0, 0.5, 0.0, 0.0),
        (0, 0, 0, 1.0, 0.0, 0.0),
        (0, 1, 0, 0.0, 1.0, 0.0),
        (1, 1, 0, 1.0, 0.5, 0.0),
    )
    fusing: tuple[tuple[float, ...], ...] = rows((0.9, 1.0), (0.0, 1.0), (0.9, 2.0), (0.5, 2.0))
    retimed: int = count(2)
    slice: int = count(50_000)


@dataclass(frozen=True, slots=True)
class DueDateParams(Parameters):
    """The heuristic `due-date`: list scheduling by due dates, by each of several rules.

    Parameters
    ----------
    rules
        One row per rule: pace, wait, overrun and reserve, as `heuristics.list_schedule.DueDateRule` says.
        Chosen one after the other out of 315 combinations, each as the one that most lowers the mean cost of
        the best rule so far on 69 instances: the realistic suite, and nine published settings at 1.25p to 3p.
    fusing
        As in `ListParams`.
    retimed
        Number of orders of least simulated cost that are compared by their exact cost.
    """

    rules: tuple[tuple[float, ...], ...] = rows(
        (1.0, 0.3, 0.25, 1.0),
        (1.0, 1.0, 0.25, 1.0),
        (1.0, 0.5, 0.25, 0.0),
        (1.0, 0.3, 0.75, 1.0),
        (1.5, 0.3, 0.25, 1.0),
        (3.0, 0.5, 0.25, 0.5),
        (1.0, 0.15, 0.25, 1.0),
        (1.5, 0.15, 0.25, 1.0),
        (1.5, 1.0, 0.25, 1.0),
        (1.5, 0.5, 0.25, 1.0),
        (1.0, 1.0, 0.5, 1.0),
        (1.5, 0.0, 0.25, 1.0),
        (1.2, 0.3, 0.5, 0.0),
        (0.5, 0.3, 0.25, 1.0),
        (0.7, 0.3, 0.25, 1.0),
        (1.0, 0.15, 0.75, 1.0),
        (1.5, 0.15, 0.5, 1.0),
        (0.7, 0.15, 0.5, 0.0),
    )
    fusing: tuple[tuple[float, ...], ...] = rows((0.5, 2.0), (0.0, 1.0), (0.9, 1.0))
    retimed: int = count(4)


@dataclass(frozen=True, slots=True)
class VBlockParams(Parameters):
    """The heuristics `v-adaptive`, `v-min`, `v-half` and `v-zb`: building blocks run at real costs.

    Each number of a plan's setting is chosen among some values, one number after the other in the sequence
    delay, backlog, overrun, weights, tail, patience, pace, reserve, wait. `heuristics.block_runs.Setting`
    explains them. Where fused backwards save time, orders of other heuristics run in the same way.

    Parameters
    ----------
    family_work
        Operations that the runs of each step of `v-min`, `v-half` and `v-zb` may place.
    adaptive_work
        The same for `v-adaptive`.
    order_work
        The same for the runs that keep the F's and B's of one order.
    retimed
        Number of orders of least simulated cost that `v-adaptive` compares by their exact cost.
    least_runs
        Runs of a step, whatever their work.
    short
        Microbatches per device in the first runs.
    kept
        Number of blocks that run under many settings.
    passes
        How often each number of a setting is chosen anew.
    splits
        Most devices at which the offset between the passes on a way down may change.
    delays, backlogs, overruns, tails, patiences, paces, reserves, waits
        The values of this number of a setting that are tried.
    """

    family_work: int = count(200_000)
    adaptive_work: int = count(1_000_000)
    order_work: int = count(200_000)
    retimed: int = count(3)
    least_runs: int = count(3)
    short: int = count(3)
    kept: int = count(6)
    passes: int = count(2, 0)
    splits: int = count(3, 0)
    delays: tuple[float, ...] = entries(0.0, 0.3, 0.5, 0.75, 0.9, 1.0, most=1)
    backlogs: tuple[float, ...] = entries(0.0, 1.0, 2.0)
    overruns: tuple[float, ...] = entries(0.0, 0.25, 0.5, 0.75, most=1)
    tails: tuple[int, ...] = entries(0, 1, 2, 3, 4, 6, whole=True)
    patiences: tuple[float, ...] = entries(0.0, 0.5, 1.0)
    paces: tuple[float, ...] = entries(1.0, 1.5, 3.0)
    reserves: tuple[float, ...] = entries(0.0, 1.0, most=1)
    waits: tuple[float, ...] = entries(0.3, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class InterleavedParams(Parameters):
    """The heuristics `interleaved-1f1b` and `interleaved-overlap`, where several group sizes are possible.

    Parameters
    ----------
    most_sizes
        If more group sizes are possible, only some of them are tried.
    retimed
        Number of orders of least simulated cost that are compared by their exact cost.
    """

    most_sizes: int = count(64)
    retimed: int = count(2)


@dataclass(frozen=True, slots=True)
class ModuloParams(Parameters):
    """The heuristic `modulo`: the periods that are tried.

    Parameters
    ----------
    first_step
        Share by which the second period tried is longer than the first one. It doubles with each further one.
    halvings
        Bisections between the last period that was too short and the first one that was not.
    """

    first_step: float = amount(0.01, above=True)
    halvings: int = count(5, 0)
