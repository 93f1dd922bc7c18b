"""Parameters of the searches for schedules, and of the method `best`, which runs them beside the proofs."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import InputError
from .parameters import Parameters, amount, check_rises, count, entries, fraction


@dataclass(frozen=True, slots=True)
class BestParams(Parameters):
    """The method `best`: which searches run, in which sequence and for how long.

    A pair is a pair of operations that share a device.

    Parameters
    ----------
    energetic
        Share of the time that the energetic bound may take before any search.
    quick
        Share of the time that a first improvement may take. It lowers the cost that the proofs begin with. It
        is left out where it would need more than this share.
    quick_pace
        Seconds of this first improvement per pair.
    scarce
        Share of the bound. Where cost - bound is larger, memory counts as scarce.
    few
        Number of devices up to which the proofs keep the share `hope` where memory is scarce, because long
        searches over prefixes seldom prove anything on more devices.
    hope
        Share of the time that the proofs get while neither proofs nor search close any of the gap.
    provable
        Number of pairs beyond which CP-SAT refutes ever less, so that the proofs get a smaller share.
    beams
        Share of the time of the search for schedules that beam searches may take.
    blocks
        Share of the time of the search for schedules that repeating blocks may take.
    quick_prefixes, prefixes
        Share of the time of the proofs for all searches over prefixes, in a first and in a second round.
    quick_search, prefix_search
        Share of the time of the proofs for one search over prefixes, in a first and in a second round.
    shaving_pace
        Seconds per pair to narrow windows for CP-SAT, which does not look at the effort.
    """

    energetic: float = fraction(0.15)
    quick: float = fraction(0.1)
    quick_pace: float = amount(1e-4)
    scarce: float = amount(0.05)
    few: int = count(8, 0)
    hope: float = fraction(0.5)
    provable: int = count(40_000)
    beams: float = fraction(0.2)
    blocks: float = fraction(0.3)
    quick_prefixes: float = fraction(0.15)
    quick_search: float = fraction(0.01)
    prefixes: float = fraction(0.7)
    prefix_search: float = fraction(0.2)
    shaving_pace: float = amount(2e-5)


@dataclass(frozen=True, slots=True)
class SideParams(Parameters):
    """How the search for schedules and the proofs share the threads of a solve.

    Parameters
    ----------
    nothing_moves
        Share of the gap. While less is closed, the time is shared about as `best.hope` says.
    memory
        Share of the time of a solve in which a side's earlier progress loses weight by a factor e.
    least
        Share of the threads' time that each side gets, however much of the gap the other one closes.
    half
        Share of a single thread's time that the proofs get at most.
    forgets
        Seconds in place of the share `memory`, where neither time nor effort is limited.
    """

    nothing_moves: float = fraction(0.02, above=True)
    memory: float = fraction(0.15)
    least: float = fraction(0.15)
    half: float = fraction(0.5)
    forgets: float = amount(60.0, above=True)

    def __post_init__(self) -> None:
        Parameters.__post_init__(self)
        check_rises("least", self.least, self.half, "half")
        if self.least > 0.5:
            raise InputError("must be at most 0.5, because each side gets it", key="least", value=self.least)


@dataclass(frozen=True, slots=True)
class RuleParams(Parameters):
    """The first phase of `improve`: annealing of dispatching rules, several at once.

    The unit of the temperatures is the mean duration of an operation.

    Parameters
    ----------
    share
        Share of the search that goes to dispatching rules.
    warm
        First temperature.
    cooling
        Factor by which the temperature falls.
    run_per_move
        Number of moves of annealing that take as long as one run of a rule.
    population
        The most rules that are annealed at once, if there are no more threads than that.
    runs
        Least number of runs that each of these rules should get.
    pace
        Items times runs that a usual machine manages per second on one thread.
    generations
        Number of parts of the phase. The worst rules are replaced before each of them but the first.
    replaced
        Share of the rules that are replaced by copies of the best ones.
    most_changed
        The most weights of a rule that are changed at once.
    smallest, largest
        The standard deviation of a change is drawn log-uniformly between these two.
    reorders
        Share of the changes that exchange or move microbatches, where these differ.
    tries
        Number of random sequences that let others pass the longest microbatch; rules begin from the best.
    """

    share: float = fraction(0.25)
    warm: float = amount(0.5)
    cooling: float = amount(20.0, 1.0)
    run_per_move: int = count(4)
    population: int = count(8)
    runs: int = count(10_000)
    pace: float = amount(1e7)
    generations: int = count(16)
    replaced: float = fraction(0.25)
    most_changed: int = count(3)
    smallest: float = amount(0.02, above=True)
    largest: float = amount(2.0)
    reorders: float = fraction(0.5)
    tries: int = count(100, 0)

    def __post_init__(self) -> None:
        Parameters.__post_init__(self)
        check_rises("smallest", self.smallest, self.largest, "largest")


@dataclass(frozen=True, slots=True)
class AnnealParams(Parameters):
    """The main phase of `improve`: annealing of the sequences of operations.

    The unit of the temperatures is the mean duration of an operation. The first temperature of a round but
    the first is `warm` times the square root of the moves per item that the last round is expected to have,
    but at most `warmest`. Measured good temperatures: 0.02 at 65 moves per item, 0.1 at 650, and 0.2 from
    2000 on.

    Parameters
    ----------
    rounds
        Share of the annealing that each round gets. Each round starts from the best sequences so far. The
        first round is cold, and also measures how many moves the time allows.
    cold
        First temperature of the first round.
    warm
        Factor for the first temperature of a later round.
    warmest
        Largest first temperature of a later round.
    cooling
        Factor by which the temperature falls in a round.
    converged
        Moves per item after which annealing has converged.
    share_if_converged
        Share of the remaining search for annealing if it converges; large neighbourhoods get the rest.
    share_if_joint
        The same where operations may run jointly: annealing then ends in deep local optima, from which
        neighbourhoods lead.
    moves_per_item
        Moves per item of the whole search if neither time nor effort is limited.
    work_per_batch
        Items times moves of a batch. Between two batches the search looks at the time.
    least_batch
        The fewest moves of a batch.
    seconds_per_batch
        Seconds that a batch takes on a usual machine; effort is counted by them.
    reach
        The most positions by which a near move shifts an operation.
    go_on
        Probability that a near move shifts the operation by one position more.
    far
        Probability of a far move.
    farthest
        The most positions by which a far move shifts an operation.
    joins
        Share of the moves that join or part operations, where that changes anything.
    searched
        Positions that are looked at for an operation to join.
    begins
        Share of the moves that change when a device begins, if the objective is `device_span`.
    passes
        Share of the moves that let one microbatch pass another on several devices, where these differ.
    trips
        Share of the moves that let something leave its device and come back, or keep it there after all.
    """

    rounds: tuple[float, ...] = entries(0.1, 0.3, 0.3, 0.3, most=1, above=True)
    cold: float = amount(0.01)
    warm: float = amount(0.0045)
    warmest: float = amount(0.2)
    cooling: float = amount(20.0, 1.0)
    converged: int = count(2000, 0)
    share_if_converged: float = fraction(0.6)
    share_if_joint: float = fraction(0.2)
    moves_per_item: int = count(2000)
    work_per_batch: int = count(2_000_000)
    least_batch: int = count(8)
    seconds_per_batch: float = amount(0.05, above=True)
    reach: int = count(8)
    go_on: float = fraction(0.6)
    far: float = fraction(0.15)
    farthest: int = count(32)
    joins: float = fraction(0.25)
    searched: int = count(64)
    begins: float = fraction(0.02)
    passes: float = fraction(0.3)
    trips: float = fraction(0.2)

    def __post_init__(self) -> None:
        Parameters.__post_init__(self)
        if sum(self.rounds) > 1 + 1e-9:
            raise InputError("must be shares of at most 1 in sum", key="rounds", value=self.rounds)


@dataclass(frozen=True, slots=True)
class FoldParams(Parameters):
    """Annealing of a folded schedule: warm-up and cool-down with fewer microbatches.

    Parameters
    ----------
    share
        Share of the remaining search for annealing a folded schedule, if the schedule can be folded.
    periods
        Numbers of microbatches of each route in a period, tried in this sequence.
    kept
        Periods that the folded schedule keeps. With only one or two, warm-up and cool-down have little room.
    largest
        Share of the microbatches. A folded schedule that keeps more is not worth the search.
    """

    share: float = fraction(0.7)
    periods: tuple[int, ...] = entries(1, 2, 3, 4, least=1, whole=True)
    kept: int = count(5)
    largest: float = fraction(0.8)


@dataclass(frozen=True, slots=True)
class NeighbourhoodParams(Parameters):
    """The last phase of `improve`: CP-SAT searches large neighbourhoods of the best schedule.

    Parameters
    ----------
    first
        Share of the schedule's time that the first neighbourhood covers if it has all devices.
    effort
        Limit for one neighbourhood, in CP-SAT's deterministic time; 0.03 takes about a second.
    grow, shrink
        Factors for the share after a neighbourhood was, or was not, searched in full.
    narrow
        Probability that a neighbourhood has a random number of the devices, and not all of them.
    most_joint
        Most operations of an instance with joint operations whose neighbourhoods are searched.
    """

    first: float = fraction(0.25, above=True)
    effort: float = amount(0.03, above=True)
    grow: float = amount(1.1, 1.0)
    shrink: float = fraction(0.95, above=True)
    narrow: float = fraction(0.5)
    most_joint: int = count(500, 0)


@dataclass(frozen=True, slots=True)
class BlockParams(Parameters):
    """The method `block`: blocks of a few microbatches with the least period, found by CP-SAT.

    Effort is in CP-SAT's deterministic time.

    Parameters
    ----------
    share
        Share of the time of the method `block` for blocks; the rest improves the best schedule so far.
    copies
        Numbers of microbatches of each route in the blocks that are searched for, the most promising first.
    rounds
        Rounds of questions, each with twice the effort of the one before.
    first_effort
        Effort of each question in the first round, as a multiple of the least effort that finds blocks.
    fewest_periods
        Least number of periods that a schedule must have room for.
    effort_per_pair
        Least effort to find a block, per pair of operations of a device.
    effort_to_settle
        Effort of each question of the first attempt to prove that a period is the least one.
    periods
        Most periods that a sweep asks for besides the largest one.
    shift
        By which a sweep is shifted from the one before, as a share of the distance of two periods.
    least_equal
        Least number of equal periods of a schedule from which its block is taken as a start.
    """

    share: float = fraction(0.35)
    copies: tuple[int, ...] = entries(2, 1, 3, 4, least=1, whole=True)
    rounds: int = count(6, 0)
    first_effort: float = amount(1.0, above=True)
    fewest_periods: int = count(2)
    effort_per_pair: float = amount(1e-4, above=True)
    effort_to_settle: float = amount(0.2, above=True)
    periods: int = count(4)
    shift: float = fraction((5**0.5 - 1) / 2)
    least_equal: int = count(2)


@dataclass(frozen=True, slots=True)
class BeamParams(Parameters):
    """Beam searches over prefixes, each wider than the last one.

    Parameters
    ----------
    widths
        Number of prefixes that are extended after each operation, for one search after another.
    longer
        How many times as long as the search before it a search is supposed to take. It begins only if that is
        left.
    waiting
        Weight of the time that microbatches wait, beside the time that devices idle.
    pace
        Prefixes that a usual machine makes per second.
    batch
        Least number of prefixes that are made between two looks at the time.
    """

    widths: tuple[int, ...] = entries(300, 1_000, 3_000, 10_000, least=1, whole=True)
    longer: float = amount(4.0)
    waiting: float = amount(0.5)
    pace: float = amount(5e5, above=True)
    batch: int = count(100_000)
