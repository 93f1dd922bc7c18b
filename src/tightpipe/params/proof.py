"""Parameters of the searches for lower bounds, of constraint propagation, and of the exact solvers."""

from __future__ import annotations

from dataclasses import dataclass

from .parameters import Parameters, amount, count, fraction


@dataclass(frozen=True, slots=True)
class BoundParams(Parameters):
    """The searches for lower bounds that run one after another, each on one target after another.

    The first and the least distance from the bound to a target are shares of the initial difference between
    cost and bound. The distance doubles after each refuted target, and halves after each that stays open.

    Parameters
    ----------
    energetic, shaving, prefixes, refutation
        Share of the time left when the search begins, in this sequence of the searches.
    shaving_first, shaving_last
        Distance of the first target of shaving from the bound, and the least one.
    shaving_target
        Share of the time left that one target of shaving gets.
    shaving_thorough
        Items per supposition of shaving; more thorough sweeps take longer than they are worth.
    prefix_search
        Share of the time left that one search over prefixes gets.
    refutation_first, refutation_last
        Distance of the first target of CP-SAT from the bound, and the least one.
    refutation_target
        Share of the time left that one target of CP-SAT gets.
    """

    energetic: float = fraction(0.2, above=True)
    shaving: float = fraction(0.3, above=True)
    prefixes: float = fraction(0.5, above=True)
    refutation: float = fraction(1.0, above=True)
    shaving_first: float = fraction(1 / 8)
    shaving_last: float = fraction(1 / 512)
    shaving_target: float = fraction(0.4, above=True)
    shaving_thorough: int = count(240)
    prefix_search: float = fraction(1 / 4, above=True)
    refutation_first: float = fraction(1 / 2)
    refutation_last: float = fraction(0.0)
    refutation_target: float = fraction(0.5, above=True)


@dataclass(frozen=True, slots=True)
class PrefixParams(Parameters):
    """Searches over prefixes of a few devices: which devices and targets are asked about, and for how long.

    The gap is that between bound and cost when the questions begin.

    Parameters
    ----------
    little
        Share of the gap: the precision to which sets of devices are compared.
    part
        A set of devices that has refuted a target is asked next about one that lies one part of this number
        above it, on the way to what is open.
    failures
        Searches that may end early one after another before no more sets of this size are tried.
    small
        Number of devices up to which all together are tried whatever fewer of them have refuted.
    begin_anew
        Share of the gap. With less left, the questions begin anew and compare sets more precisely.
    shortest
        Seconds that one search gets at least.
    unlimited
        Seconds that count as left for one search in a solve without any limit.
    pace
        Prefixes that a usual machine keeps per second.
    slice
        Prefixes that are extended between two looks at the time.
    room
        Rows that the table of the next prefixes has at first, per row of the last one.
    least_room
        Rows that it has at least.
    most_bytes
        The most bytes of a table, of which there are two at a time, or of the record of their parents.
    """

    little: float = fraction(1 / 32)
    part: int = count(3)
    failures: int = count(3)
    small: int = count(4, 0)
    begin_anew: float = fraction(1 / 4)
    shortest: float = amount(0.3)
    unlimited: float = amount(100.0)
    pace: float = amount(1e6, above=True)
    slice: int = count(5_000)
    room: int = count(4)
    least_room: int = count(2**12)
    most_bytes: int = count(4 * 10**8)


@dataclass(frozen=True, slots=True)
class WindowParams(Parameters):
    """Propagation and shaving of windows, the times and orders that operations may have under a cost.

    Parameters
    ----------
    slice
        Items whose rules are applied between two looks at the time.
    first_steps
        Items that the propagation of one supposition may work on in the first sweep of shaving.
    last_steps
        The most items that it may work on in the last sweep, where nothing else is said.
    thorough
        The same for windows from which CP-SAT or MILP starts.
    chunk
        Items of one thread between two looks at the time in a sweep.
    little
        Share of the open orders; a sweep that decides at most this is followed by a deeper one.
    deep
        The most predecessors, or followers, of an operation that a rule looks at. On 24 devices with 192
        microbatches, looking at all of them takes 15 times as long and decides 0.02 % more.
    most_queues
        Queues of a device beyond which windows are not shaved and no search uses them for a bound.
    """

    slice: int = count(20_000)
    first_steps: int = count(30)
    last_steps: int = count(2**14)
    thorough: int = count(60)
    chunk: int = count(128)
    little: float = fraction(0.01)
    deep: int = count(16, most=200)  # `certificates.derivation` looks at no more
    most_queues: int = count(64)


@dataclass(frozen=True, slots=True)
class CpsatParams(Parameters):
    """The method `cpsat`: how long models are built, minimised and asked about targets.

    Effort is in CP-SAT's deterministic time, of which one unit takes about 30 seconds.

    Parameters
    ----------
    gap_left
        A new model is worth its time if no more than this share of the gap is left.
    windows
        Share of the time left for narrowing windows before the cost is minimised.
    target_windows
        Share of the time left for narrowing windows before a target is decided.
    build
        Share of the time left that building a model may take.
    effort_to_minimise
        Effort for each model that minimises, before targets are decided.
    minimise_per_second
        Effort per second of a short time limit, of which minimising takes most.
    effort_per_target
        Effort for each of the first targets; doubled later.
    much_idle
        Share of the horizon. CP-SAT reasons about precedences if the busiest device may idle longer.
    with_precedences
        Factor by which deterministic time runs faster with reasoning about precedences.
    probing
        Deterministic time for probing at some restarts; CP-SAT's default is 1.
    seconds_per_operation
        Seconds to build the plain model, per operation.
    seconds_per_order
        Seconds to build the lattice model, per order that the windows leave open.
    most_orders
        Number of open orders beyond which no lattice model is built. The largest model that was searched to
        the end in ten minutes had 94,433 (6.2B-8x64).
    """

    gap_left: float = fraction(0.5)
    windows: float = fraction(0.2, above=True)
    target_windows: float = fraction(0.3, above=True)
    build: float = fraction(0.5)
    effort_to_minimise: float = amount(0.4, above=True)
    minimise_per_second: float = amount(0.024, above=True)
    effort_per_target: float = amount(0.3, above=True)
    much_idle: float = amount(0.13)
    with_precedences: float = amount(6.0, above=True)
    probing: float = amount(0.03)
    seconds_per_operation: float = amount(5e-4)
    seconds_per_order: float = amount(1e-4)
    most_orders: int = count(300_000)


@dataclass(frozen=True, slots=True)
class TargetParams(Parameters):
    """The targets that CP-SAT decides between the bound and the cost.

    Parameters
    ----------
    near
        Share of the gap by which the first target of each effort lies above the bound.
    little
        Share of the gap. The effort is raised when the least open target is no further above the bound.
    long
        Share of the time left for the first target of each effort.
    short
        Share of the time left for every other target.
    shortest
        Seconds that a target gets at least.
    last
        Share of the gap at the beginning. With no more left, the first target is 1 tick below the cost.
    """

    near: float = fraction(0.9)
    little: float = fraction(1 / 8)
    long: float = fraction(1 / 2)
    short: float = fraction(1 / 6)
    shortest: float = amount(3.0, above=True)
    last: float = fraction(1 / 64)


@dataclass(frozen=True, slots=True)
class MilpParams(Parameters):
    """The method `milp`: how long windows and the model may take before the search.

    Parameters
    ----------
    seconds_per_binary
        Seconds to build the rows of one binary and to pass them to HiGHS.
    windows_seconds
        Limit for the windows; with more time a large instance would still be too large.
    share
        Largest share of the remaining time that windows, or building the model, may take.
    most_megabytes
        Estimated memory of a model, in 2**20 bytes, beyond which it is not built.
    """

    seconds_per_binary: float = amount(2e-4)
    windows_seconds: float = amount(10.0)
    share: float = fraction(0.5, above=True)
    most_megabytes: int = count(4096)
