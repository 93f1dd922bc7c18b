"""Parameters of the searches for lower bounds and for plans, of propagation, and of the exact solvers."""

from __future__ import annotations

from dataclasses import dataclass

from .parameters import Parameters, amount, count, entries, fraction


@dataclass(frozen=True, slots=True)
class BoundParams(Parameters):
    """The searches for lower bounds that run one after another, each on one target after another.

    The first and the least distance from the bound to a target are shares of the initial difference between
    cost and bound. The distance doubles after each refuted target, and halves after each that stays open.

    - `energetic`, `shaving`, `prefixes`, `refutation`: share of the time left when the search begins, in
      this sequence of the searches.
    - `shaving_first`, `shaving_last`: distance of the first target of shaving from the bound, and the least
      one.
    - `shaving_target`: share of the time left that one target of shaving gets.
    - `shaving_thorough`: items per supposition of shaving; more thorough sweeps take longer than they are
      worth.
    - `prefix_search`: share of the time left that one search over prefixes gets.
    - `refutation_first`, `refutation_last`: distance of the first target of CP-SAT from the bound, and the
      least one.
    - `refutation_target`: share of the time left that one target of CP-SAT gets.
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
    """Searches over prefixes of a few devices: which sets of devices are asked about, and for how long.

    The gap is that between bound and cost when the questions begin.

    - `little`: share of the gap by which a device more has to raise what the best set proves.
    - `failures`: searches that may end early one after another before no more sets are tried.
    - `first_target`: share of the way to the best cost, from the bound or from what the best set proves, if
      that is more. It gives the first target of a set of devices.
    - `farther`: factor of this share after each target that the set refutes; and the part, 1 by this number,
      of the way to a target that a search has left open, for the next one.
    - `futile`: factor of the prefixes of the best set of a size. Once `failures` searches since that set
      have kept more and proven no more, no more sets of this size are tried.
    - `small`: number of devices up to which all together are tried whatever fewer of them have refuted.
    - `begin_anew`: share of the gap. With less left, the questions begin anew and compare sets more
      precisely.
    - `shortest`: seconds that one search gets at least.
    - `unlimited`: seconds that count as left for one search in a solve without any limit.
    - `pace`: prefixes that a usual machine keeps per second.
    - `slice`: prefixes that are extended between two looks at the time.
    - `room`: rows that the table of the next prefixes has at first, per row of the last one.
    - `least_room`: rows that it has at least.
    - `most_bytes`: the most bytes of a table, of which there are two at a time, or of the record of their
      parents.
    """

    little: float = fraction(1 / 32)
    failures: int = count(3)
    first_target: float = fraction(1 / 16, above=True)
    farther: float = amount(4.0, 1.0, above=True)
    futile: int = count(100)
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

    - `slice`: items whose rules are applied between two looks at the time.
    - `first_steps`: items that the propagation of one supposition may work on in the first sweep of shaving.
    - `last_steps`: the most items that it may work on in the last sweep, where nothing else is said.
    - `thorough`: the same for windows from which CP-SAT or MILP starts.
    - `chunk`: items of one thread between two looks at the time in a sweep.
    - `little`: share of the open orders; a sweep that decides at most this is followed by a deeper one.
    - `deep`: the most predecessors, or followers, of an operation that a rule looks at. On 24 devices with
      192 microbatches, looking at all of them takes 15 times as long and decides 0.02 % more.
    - `most_queues`: queues of a device beyond which windows are not shaved and no search uses them for a
      bound.
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

    - `gap_left`: a new model is worth its time if no more than this share of the gap is left.
    - `windows`: share of the time left for narrowing windows before the cost is minimised.
    - `target_windows`: share of the time left for narrowing windows before a target is decided.
    - `build`: share of the time left that building a model may take.
    - `effort_to_minimise`: effort for each model that minimises, before targets are decided.
    - `minimise_per_second`: effort per second of a short time limit, of which minimising takes most.
    - `effort_per_target`: effort for each of the first targets; doubled later.
    - `much_idle`: share of the horizon. CP-SAT reasons about precedences if the busiest device may idle
      longer.
    - `with_precedences`: factor by which deterministic time runs faster with reasoning about precedences.
    - `probing`: deterministic time for probing at some restarts; CP-SAT's default is 1.
    - `seconds_per_operation`: seconds to build the plain model, per operation.
    - `seconds_per_order`: seconds to build the lattice model, per order that the windows leave open.
    - `most_orders`: number of open orders beyond which no lattice model is built. The largest model that was
      searched to the end in ten minutes had 94,433 (6.2B-8x64).
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

    - `near`: share of the gap by which the first target of each effort lies above the bound.
    - `little`: share of the gap. The effort is raised when the least open target is no further above the
      bound.
    - `long`: share of the time left for the first target of each effort.
    - `short`: share of the time left for every other target.
    - `shortest`: seconds that a target gets at least.
    - `last`: share of the gap at the beginning. With no more left, the first target is 1 tick below the cost.
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

    - `seconds_per_binary`: seconds to build the rows of one binary and to pass them to HiGHS.
    - `windows_seconds`: limit for the windows; with more time a large instance would still be too large.
    - `share`: largest share of the remaining time that windows, or building the model, may take.
    - `most_megabytes`: estimated memory of a model, in 2**20 bytes, beyond which it is not built.
    """

    seconds_per_binary: float = amount(2e-4)
    windows_seconds: float = amount(10.0)
    share: float = fraction(0.5, above=True)
    most_megabytes: int = count(4096)


@dataclass(frozen=True, slots=True)
class PlanParams(Parameters):
    """The search for plans: how the time is shared, and which candidates are looked at.

    - `bounding`: share of the time in which the candidates of all configurations are bounded.
    - `bounding_least`: seconds that bounds before or after the search may take however short the time is.
    - `first_slice`: share of the time limit for a candidate's first solve; each solve doubles the time.
    - `shortest_slice`: least seconds for the first solve.
    - `unlimited_slice`: seconds for the first solve if there is no time limit.
    - `rush`: seconds to look for a candidate when time is up and there is no plan.
    - `lull`: share of the time so far after which proofs that have not raised the bound become rarer.
    - `rare`: time for such proofs, as a multiple of that for finding cheaper plans.
    - `varying`: time for trying neighbours, as a multiple of the time that solvers have just taken.
    - `relaxed`: share of all time that may go to relaxed candidates, whose devices are far from their limits.
    - `tight`, `cap`: caps on the bounds of relaxed candidates, as multiples of the least bound. Loads are
      measured at a cost of the second one. Measured: below 1.003 schedules are 0.5 % cheaper than below 1.1.
    - `behind`: share by which relaxed candidates of a placement may cost more than the best plan until no
      further ones are tried.
    - `long`: share of the time left for a search once all relaxed candidates have had a short one.
    - `held`: how much longer than necessary microbatches of relaxed candidates are supposed to hold memory,
      tried in this sequence. Measured: at 1 schedules are 3 % dearer, and at 2 bounds are.
    - `middles`: number of layers at which the second half of the stages of a relaxed candidate may begin,
      those nearest to even work.
    - `hope`: share of its cost by which the first of all searches is supposed to lower it.
    - `change`: share of its cost by which a candidate counts as dearer for each solve it has had.
    - `most_neighbours`: neighbours of one candidate that are drawn in one go; some may be drawn repeatedly.
    - `recomputed`: shares of the layers of each stage, or of the stages, that first variants of a candidate
      recompute.
    - `seeding`: share of the time for these variants. With two kinds of recomputation and four placements
      there are 56, and heuristics take up to a second for each with 16 devices and 64 microbatches.
    - `far`, `evening`: where memory has a limit, candidates with even cuts are looked at first, for at most
      this share of the time (the second one), until a plan costs no more than this multiple of the bound (the
      first one).
    - `slacks`: first caps on the bound of candidates in tables, as multiples of a device's mean work.
    - `listed`: the most partitions of a configuration that are listed one by one.
    - `longest`: most work of a stage that is looked at where partitions are too many to list, as a multiple
      of the mean work of a device.
    - `shifts`: layers by which a cut is shifted at a time, until one microbatch fits the memory of every
      device.
    - `load_power`: power of the shares of time and of memory in the load of a device. The larger it is, the
      more the most loaded devices of a relaxed candidate count.
    - `evenness`: weight of the roughness of a relaxed candidate, by which equally loaded ones have even
      stages.
    - `recomputing`: share of the neighbours that recompute another layer, where a layer could also be moved.
    - `most_looped`: number of layers from which the later stages of a device are joined in the placement
      `loop`. Below it, there is a table for each layer at which the second half of the stages may begin.
    - `tied`: beginnings of candidates that are lengthened until one of those with the least bound is
      completed.
    - `most_bits`: the most bits by which the sums of sets of layers are listed for a bound; more take over a
      second.
    - `remainders`: entries of a table that are filled between two looks at the time, at first.
    - `seconds_per_look`: seconds between two looks at the time, to which the number of these entries adapts.
    """

    bounding: float = fraction(0.5)
    bounding_least: float = amount(0.5)
    first_slice: float = fraction(0.01)
    shortest_slice: float = amount(0.2, above=True)
    unlimited_slice: float = amount(5.0, above=True)
    rush: float = amount(0.5)
    lull: float = fraction(0.25)
    rare: float = amount(0.2)
    varying: float = amount(0.3)
    relaxed: float = fraction(0.3)
    tight: float = amount(1.003, 1.0)
    cap: float = amount(1.1, 1.0)
    behind: float = fraction(0.05)
    long: float = fraction(0.5)
    held: tuple[float, ...] = entries(1.4, 1.5, 1.6, 1.0, least=1)
    middles: int = count(5)
    hope: float = fraction(0.05)
    change: float = amount(0.001)
    most_neighbours: int = count(200)
    recomputed: tuple[float, ...] = entries(0.25, 0.5, 0.75, 1.0, most=1, above=True)
    seeding: float = fraction(0.1)
    far: float = amount(1.25, 1.0)
    evening: float = fraction(0.3)
    slacks: tuple[float, ...] = entries(1.02, 1.05, 1.1, 1.2, 1.5, 2.0, least=1)
    listed: int = count(50_000)
    longest: float = amount(2.0, 1.0)
    shifts: tuple[int, ...] = entries(8, 4, 2, 1, least=1, whole=True)
    load_power: int = count(8)
    evenness: float = amount(5e-6)
    recomputing: float = fraction(0.5)
    most_looped: int = count(160, 0)
    tied: int = count(500)
    most_bits: int = count(5 * 10**9, 0)
    remainders: int = count(512)
    seconds_per_look: float = amount(0.05)
