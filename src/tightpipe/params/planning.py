"""Parameters of the search for plans."""

from __future__ import annotations

from dataclasses import dataclass

from .parameters import Parameters, amount, count, entries, fraction


@dataclass(frozen=True, slots=True)
class PlanParams(Parameters):
    """The search for plans: how the time is shared, and which candidates are looked at.

    Parameters
    ----------
    bounding
        Share of the time in which the candidates of all configurations are bounded.
    bounding_least
        Seconds that bounds before or after the search may take however short the time is.
    first_slice
        Share of the time limit for a candidate's first solve; each solve doubles the time.
    shortest_slice
        Least seconds for the first solve.
    unlimited_slice
        Seconds for the first solve if there is no time limit.
    rush
        Seconds to look for a candidate when time is up and there is no plan.
    lull
        Share of the time so far after which proofs that have not raised the bound become rarer.
    rare
        Time for such proofs, as a multiple of that for finding cheaper plans.
    varying
        Time for trying neighbours, as a multiple of the time that solvers have just taken.
    relaxed
        Share of the time that may go to relaxed candidates, whose devices are far from their limits.
    cap
        Cap on the bounds of relaxed candidates, as a multiple of the least bound.
    held
        How much longer than necessary microbatches of relaxed candidates are supposed to hold memory, tried
        in this sequence. Measured: at 1 schedules are 3 % dearer, and at 2 bounds are.
    middles
        Number of layers at which the second half of the stages of a relaxed candidate may begin, those
        nearest to even work.
    hope
        Share of its cost by which the first of all searches is supposed to lower it.
    change
        Share of its cost by which a candidate counts as dearer for each solve it has had.
    most_neighbours
        Neighbours of one candidate that are drawn in one go; some may be drawn repeatedly.
    recomputed
        Shares of the layers of each stage, or of the stages, that first variants of a candidate recompute.
    slacks
        First caps on the bound of candidates in tables, as multiples of a device's mean work.
    listed
        The most partitions of a configuration that are listed one by one.
    longest
        Most work of a stage that is looked at where partitions are too many to list, as a multiple of the
        mean work of a device.
    shifts
        Layers by which a cut is shifted at a time, until one microbatch fits the memory of every device.
    load_power
        Power of the shares of time and of memory in the load of a device. The larger it is, the more the
        most loaded devices of a relaxed candidate count.
    evenness
        Weight of the roughness of a relaxed candidate, by which equally loaded ones have even stages.
    recomputing
        Share of the neighbours that recompute another layer, where a layer could also be moved.
    most_looped
        Number of layers from which the later stages of a device are joined in the placement `loop`. Below it,
        there is a table for each layer at which the second half of the stages may begin.
    tied
        Beginnings of candidates that are lengthened until one of those with the least bound is completed.
    most_bits
        The most bits by which the sums of sets of layers are listed for a bound; more take over a second.
    remainders
        Entries of a table that are filled between two looks at the time, at first.
    seconds_per_look
        Seconds between two looks at the time, to which the number of these entries adapts.
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
    relaxed: float = fraction(0.4)
    cap: float = amount(1.1, 1.0)
    held: tuple[float, ...] = entries(1.5, 1.6, 1.4, 1.0, least=1)
    middles: int = count(5)
    hope: float = fraction(0.05)
    change: float = amount(0.001)
    most_neighbours: int = count(200)
    recomputed: tuple[float, ...] = entries(0.25, 0.5, 0.75, 1.0, most=1, above=True)
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
