"""Parameters of the heuristics, of the searches for schedules, and of the method `best`."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import InputError
from .parameters import Parameters, amount, check_rises, count, entries, fraction, rows


@dataclass(frozen=True, slots=True)
class BestParams(Parameters):
    """The method `best`: which searches run, in which sequence and for how long.

    A pair is a pair of operations that share a device.

    - `energetic`: share of the time that the energetic bound may take before any search.
    - `quick`: share of the time that a first improvement may take. It lowers the cost that the proofs begin
      with. It is left out where it would need more than this share.
    - `quick_pace`: seconds of this first improvement per pair.
    - `scarce`: share of the bound. Where cost - bound is larger, memory counts as scarce.
    - `few`: number of devices up to which searches over prefixes succeed where memory is scarce: beams find
      cheaper schedules, and the proofs keep the share `hope`.
    - `hope`: share of the time that the proofs get while neither proofs nor search close any of the gap.
    - `provable`: number of pairs beyond which CP-SAT refutes ever less, so that the proofs get a smaller
      share.
    - `beams`: share of the time of the search for schedules that beam searches may take.
    - `blocks`: share of the time of the search for schedules that repeating blocks may take.
    - `quick_prefixes`, `prefixes`: share of the time of the proofs for all searches over prefixes, in a first
      and in a second round.
    - `quick_search`, `prefix_search`: share of the time of the proofs for one search over prefixes, in a
      first and in a second round.
    - `shaving_pace`: seconds per pair to narrow windows for CP-SAT, which does not look at the effort.
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

    - `nothing_moves`: share of the gap. While less is closed, the time is shared about as `best.hope` says.
    - `memory`: share of the time of a solve in which a side's earlier progress loses weight by a factor e.
    - `least`: share of the threads' time that each side gets, however much of the gap the other one closes.
    - `hopeless`: the same for proofs that are hoped to pay less than `least`, as `best` says of large
      instances whose memory is scarce.
    - `half`: share of a single thread's time that the proofs get at most.
    - `forgets`: seconds in place of the share `memory`, where neither time nor effort is limited.
    """

    nothing_moves: float = fraction(0.02, above=True)
    memory: float = fraction(0.15)
    least: float = fraction(0.15)
    hopeless: float = fraction(0.05)
    half: float = fraction(0.5)
    forgets: float = amount(60.0, above=True)

    def __post_init__(self) -> None:
        Parameters.__post_init__(self)
        check_rises("hopeless", self.hopeless, self.least, "least")
        check_rises("least", self.least, self.half, "half")
        if self.least > 0.5:
            raise InputError("must be at most 0.5, because each side gets it", key="least", value=self.least)


@dataclass(frozen=True, slots=True)
class RuleParams(Parameters):
    """The first phase of `improve`: annealing of dispatching rules, several at once.

    The unit of the temperatures is the mean duration of an operation.

    - `share`: share of the search that goes to dispatching rules.
    - `alone`: where microbatches differ, and the whole search has time for fewer moves of annealing for each
      item than this, rules get all of it.
    - `starts`: number of rules that are annealed at first in such a search, of which only the better half
      goes on again and again.
    - `warm`: first temperature.
    - `cooling`: factor by which the temperature falls.
    - `run_per_move`: number of moves of annealing that take as long as one run of a rule.
    - `population`: the most rules that are annealed at once, if there are no more threads than that.
    - `runs`: least number of runs that each of these rules should get.
    - `pace`: items times runs that a usual machine manages per second on one thread.
    - `generations`: number of parts of the phase. The worst rules are replaced before each of them but the
      first.
    - `replaced`: share of the rules that are replaced by copies of the best ones.
    - `most_changed`: the most weights of a rule that are changed at once.
    - `smallest`, `largest`: the standard deviation of a change is drawn log-uniformly between these two.
    - `reorders`: share of the changes that exchange or move microbatches, where these differ.
    - `tries`: number of random shapes of sequences that let others pass the longest microbatch; rules begin
      with the best.
    - `shaped`: share of the phase in which such shapes are changed, and not single microbatches.
    - `offers`: number of runs between two schedules that are made of rules, and checked.
    - `trial`: share of the phase after which rules go on only where one may still win.
    - `behind`: share of the incumbent's cost. No rule wins any more where the best one costs more above it.
    """

    share: float = fraction(0.25)
    alone: float = amount(10.0)
    starts: int = count(2)
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
    tries: int = count(20)
    shaped: float = fraction(0.4)
    offers: int = count(400)
    trial: float = fraction(0.25)
    behind: float = amount(0.02)

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

    - `rounds`: share of the annealing that each round gets. Each round starts from the best sequences so far.
      The first round is cold, and also measures how many moves the time allows.
    - `cold`: first temperature of the first round.
    - `warm`: factor for the first temperature of a later round.
    - `warmest`: largest first temperature of a later round.
    - `calmer`: factor for the first temperature of all further rounds after a later round has found nothing.
    - `cooling`: factor by which the temperature falls in a round.
    - `converged`: moves per item after which annealing has converged.
    - `share_if_converged`: share of the remaining search for annealing if it converges; large neighbourhoods
      get the rest.
    - `share_if_joint`: the same where operations may run jointly: annealing then ends in deep local optima,
      from which neighbourhoods lead.
    - `moves_per_item`: moves per item of the whole search if neither time nor effort is limited.
    - `work_per_batch`: items times moves of a batch. Between two batches the search looks at the time.
    - `least_batch`: the fewest moves of a batch.
    - `seconds_per_batch`: seconds that a batch takes on a usual machine; effort is counted by them.
    - `reach`: the most positions by which a near move shifts an operation.
    - `go_on`: probability that a near move shifts the operation by one position more.
    - `far`: probability of a far move.
    - `farthest`: the most positions by which a far move shifts an operation.
    - `joins`: share of the moves that join or part operations, where that changes anything.
    - `searched`: positions that are looked at for an operation to join.
    - `begins`: share of the moves that change when a device begins, if the objective is `device_span`.
    - `passes`: share of the moves that let one microbatch pass another on several devices, where these
      differ.
    - `trips`: share of the moves that let something leave its device and come back, or keep it there after
      all.
    """

    rounds: tuple[float, ...] = entries(0.1, 0.3, 0.3, 0.3, most=1, above=True)
    cold: float = amount(0.01)
    warm: float = amount(0.0045)
    warmest: float = amount(0.2)
    calmer: float = fraction(0.4, above=True)
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

    - `share`: share of the remaining search for annealing a folded schedule, if the schedule can be folded.
    - `periods`: numbers of microbatches of each route in a period, tried in this sequence.
    - `kept`: periods that the folded schedule keeps. With only one or two, warm-up and cool-down have little
      room.
    - `largest`: share of the microbatches. A folded schedule that keeps more is not worth the search.
    - `worth`: share of the cost. A schedule that can be folded is annealed first where it costs at most so
      much more than one of a rule that cannot.
    """

    share: float = fraction(0.7)
    periods: tuple[int, ...] = entries(1, 2, 3, 4, least=1, whole=True)
    kept: int = count(5)
    largest: float = fraction(0.8)
    worth: float = fraction(0.03)


@dataclass(frozen=True, slots=True)
class NeighbourhoodParams(Parameters):
    """The last phase of `improve`: CP-SAT searches large neighbourhoods of the best schedule.

    - `first`: share of the schedule's time that the first neighbourhood covers if it has all devices.
    - `effort`: limit for one neighbourhood, in CP-SAT's deterministic time; 0.03 takes about a second.
    - `grow`, `shrink`: factors for the share after a neighbourhood was, or was not, searched in full.
    - `narrow`: probability that a neighbourhood has a random number of the devices, and not all of them.
    - `most_joint`: most operations of an instance with joint operations whose neighbourhoods are searched.
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

    - `share`: share of the time of the method `block` for blocks; the rest improves the best schedule so far.
    - `patience`: factor of the time after which blocks last gave a cheaper schedule. The search goes on until
      then, even beyond its share.
    - `most`: share of the time of a search that blocks take at most, however long they gain.
    - `copies`: numbers of microbatches of each route in the blocks that are searched for, the most promising
      first.
    - `rounds`: rounds of questions, each with twice the effort of the one before.
    - `first_effort`: effort of each question in the first round, as a multiple of the least effort that finds
      blocks.
    - `fewest_periods`: least number of periods that a schedule must have room for.
    - `effort_per_pair`: least effort to find a block, per pair of operations of a device.
    - `effort_to_settle`: effort of each question of the first attempt to prove that a period is the least
      one.
    - `periods`: most periods that a sweep asks for besides the largest one.
    - `shift`: by which a sweep is shifted from the one before, as a share of the distance of two periods.
    - `few`: number of devices up to which questions begin at the bound although a block is known. With more,
      questions near the bound have no answers in the time there is, and once a block is known, only numbers
      of microbatches are asked for of which one is.
    - `step`: share of the way from the best period to the bound; the first question from a known block asks
      for half of it to all of it.
    - `least_step`: share of the period. Smaller steps are not asked for.
    - `least_equal`: least number of equal periods of a schedule from which its block is taken as a start.
    - `grown_from`: number of devices of a V, or a few more, for which blocks are searched that grow to all;
      at least 2 `grown_copies` + 2, or none grow.
    - `grown_copies`: number of microbatches in these blocks, one of `copies`.
    - `grown_slack`: factor of the best period. The first of these blocks may have a period so much longer.
    """

    share: float = fraction(0.35)
    patience: float = amount(2.0)
    most: float = fraction(0.6)
    copies: tuple[int, ...] = entries(2, 1, 3, 4, least=1, whole=True)
    rounds: int = count(6, 0)
    first_effort: float = amount(1.0, above=True)
    fewest_periods: int = count(2)
    effort_per_pair: float = amount(1e-4, above=True)
    effort_to_settle: float = amount(0.2, above=True)
    periods: int = count(4)
    shift: float = fraction((5**0.5 - 1) / 2)
    few: int = count(8, 0)
    step: float = fraction(0.25)
    least_step: float = fraction(0.005)
    least_equal: int = count(2)
    grown_from: int = count(16)
    grown_copies: int = count(2)
    grown_slack: float = amount(1.1, 1.0)


@dataclass(frozen=True, slots=True)
class BeamParams(Parameters):
    """Beam searches over prefixes, each wider than the last one.

    - `widths`: number of prefixes that are extended after each operation, for one search after another.
    - `longer`: how many times as long as the search before it a search is supposed to take. It begins only if
      that is left.
    - `waiting`: weight of the time that microbatches wait, beside the time that devices idle.
    - `pace`: prefixes that a usual machine makes per second.
    - `batch`: least number of prefixes that are made between two looks at the time.
    """

    widths: tuple[int, ...] = entries(300, 1_000, 3_000, 10_000, least=1, whole=True)
    longer: float = amount(4.0)
    waiting: float = amount(0.5)
    pace: float = amount(5e5, above=True)
    batch: int = count(100_000)


@dataclass(frozen=True, slots=True)
class StartParams(Parameters):
    """The heuristics from whose schedules a search starts.

    - `share`: share of the time of a search that heuristics may take before it begins.
    - `least`: seconds that they may take however short the time is.
    - `short`: seconds on a usual machine; a heuristic that takes no longer always runs to its end.
    - `checking`: seconds per operation to retime and validate a schedule on a usual machine.
    - `copying`: seconds per operation to plan what leaves at the times of a schedule, likewise.
    """

    share: float = fraction(0.5)
    least: float = amount(0.5)
    short: float = amount(0.1)
    checking: float = amount(1.2e-6)
    copying: float = amount(3e-5)


@dataclass(frozen=True, slots=True)
class ListParams(Parameters):
    """The heuristic `list`: list scheduling by each of several priority rules.

    - `rules`: one row for each rule: alternate, deepest forward and deepest backward, each 0 or 1, then
      reserve, overrun and patience, as `heuristics.list_kernel.Rule` explains them. In tests with instances
      of all placements and limits, the best of these twelve rules cost at most 2 % more than the best of all
      216 combinations.
    - `fusing`: where fused backwards save time, every rule runs once with each row: delay and backlog, as
      `heuristics.list_state_kernel.Fusing` explains them.
    - `retimed`: number of orders of least simulated cost that are compared by their exact cost.
    - `slice`: operations between two looks at the clock, about a tenth of a second.
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

    - `rules`: one row per rule: pace, wait, overrun and reserve, as `heuristics.list_schedule.DueDateRule`
      says. Chosen one after the other out of 315 combinations, each as the one that most lowers the mean cost
      of the best rule so far on 69 instances: the realistic suite, and nine published settings at 1.25p to
      3p.
    - `fusing`: as in `ListParams`.
    - `retimed`: number of orders of least simulated cost that are compared by their exact cost.
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

    - `family_work`: operations that the runs of each step of `v-min`, `v-half` and `v-zb` may place.
    - `adaptive_work`: the same for `v-adaptive`.
    - `order_work`: the same for the runs that keep the F's and B's of one order.
    - `retimed`: number of orders of least simulated cost that `v-adaptive` compares by their exact cost.
    - `least_runs`: runs of a step, whatever their work.
    - `short`: microbatches per device in the first runs.
    - `kept`: number of blocks that run under many settings.
    - `passes`: how often each number of a setting is chosen anew.
    - `splits`: most devices at which the offset between the passes on a way down may change.
    - `delays`, `backlogs`, `overruns`, `tails`, `patiences`, `paces`, `reserves`, `waits`: the values of this
      number of a setting that are tried.
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

    - `most_sizes`: if more group sizes are possible, only some of them are tried.
    - `retimed`: number of orders of least simulated cost that are compared by their exact cost.
    """

    most_sizes: int = count(64)
    retimed: int = count(2)


@dataclass(frozen=True, slots=True)
class ModuloParams(Parameters):
    """The heuristic `modulo`: the periods that are tried.

    - `first_step`: share by which the second period tried is longer than the first one. It doubles with each
      further one.
    - `halvings`: bisections between the last period that was too short and the first one that was not.
    - `copies`: numbers of microbatches of each class in a period that are tried besides one.
    - `tries`: shares of the period at which several copies begin.
    """

    first_step: float = amount(0.01, above=True)
    halvings: int = count(5, 0)
    copies: tuple[int, ...] = entries(2, 3, least=2, whole=True)
    tries: int = count(200)
