"""The search over prefixes, which finds a cost below which a few devices cannot do their work.

A search over few devices is quick and says little; each further device makes it many times as long. So the
searches begin with each device alone. The device that proves the largest cost is then joined by each of the
others in turn, the best pair by each of the rest, and so on. A search says exactly what its devices prove, up
to its target. The larger the target, the longer it takes, and may find no end. So a set is first asked about
a target close to the bound, and about larger ones as long as it refutes them. Where a search for a larger one
ends early, a target between the two is tried, and others as long as they are refuted.

A search over the prefixes of all devices also finds a schedule, unless it proves that none is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf

from tightpipe.model.graph import NO_LIMIT
from tightpipe.model.instance import Instance
from tightpipe.model.result import Proof
from tightpipe.model.schedule import Schedule
from tightpipe.params.budget import Budget
from tightpipe.params.proof import PrefixParams

from ..bounds.relaxed import is_searchable
from ..engine.portfolio import Worker
from ..engine.run import Incumbent
from ..outcome import FINISHED, End, Ended, Outcome, Worked
from ..queues import queues_of
from .few_devices import StartWindows, few_devices, is_whole, operations_of, start_windows
from .table_kernel import COMPLETE, rows_of
from .tables import Trail, first_table, latest_of, next_table


@dataclass(frozen=True, slots=True)
class PrefixSearch:
    """What a search over the prefixes of a few devices has found.

    If the bound is above the horizon, by one tick, the horizon is refuted.
    """

    bound: int | None  #: a proven bound of the cost in ticks; None if the search was ended early
    extended: int  #: number of prefixes that were kept, in proportion to the work of the search
    schedule: Schedule | None = None  #: a valid one, if the search over all devices has found one


def search_prefixes(
    instance: Instance,
    windows: StartWindows,
    devices: Sequence[int],
    budget: Budget,
    most: int,
    moot: Callable[[], bool] = lambda: False,
    floor: int = NO_LIMIT,
) -> PrefixSearch:
    """Search all prefixes of the schedules of a few devices that lie inside windows.

    Parameters
    ----------
    instance
        A problem for which `is_searchable` is true.
    windows
        Feasible windows of the instance; their horizon is the supposed cost T.
    devices
        Numbers of the devices, each once.
    budget
        Its deadline ends the search, and its cap on memory limits the tables.
    most
        The most prefixes that are kept. The search ends early if there are more.
    moot
        Called several times a second; the search ends when `moot` returns True, as the answer is of no use
        then.
    floor
        A proven bound of the cost in ticks. If the devices need more, the search says how much more, and not
        only whether they need more than T. By default it says only that.

    Returns
    -------
    PrefixSearch
        Its bound holds for every schedule of the instance.

    Notes
    -----
    Suppose that a schedule costs at most T, and runs every queue first in, first out, as some cheapest
    schedule does (`tightpipe.model.graph`). Between classes of microbatches nothing is supposed: each class
    has queues of its own, and the next F or B may be of any of them. Let the schedule's F's and B's on the
    devices be started one after another, in the sequence of their start times. After each of them the table
    holds a prefix with equally many operations of each queue, from which the rest of the schedule can follow
    at times that are no later:

    - A slice waits for that before it, or after it, at its stage, and so on its device: what has started says
      whether it has ended (`few_devices`).
    - The prefix says all that the rest depends on: what has started, and so the memory of each device; from
      when each device is free; how many W's it has pending, which are alike or count as alike whatever
      their class; and from when each microbatch of each class can go on.
    - Extending this prefix by the schedule's next operation is one of the ways that `extend` tries. It lies
      inside the windows, since the schedule does, and since the prefix is at most as late.
    - If the schedule runs fewer W's before the operation than would fit into the idle time before it, some of
      its later W's may as well run in that time. They free their memory earlier, and nothing else moves.
    - If an operation that takes no memory fits into that idle time, it may as well run there. This makes
      another schedule with the same prefix, in which the sum of the starts is smaller, so that it cannot be
      repeated forever.
    - Where a prefix is dropped because another one dominates it, the rest can follow the other one.
    - A BW and a pair start as one operation each, and end as one. A BW leaves no W pending, and the W's that
      others leave take the B's in sequence whatever is fused between them (`queues`). So the prefix need not
      say which backwards were fused.

    So a schedule that costs at most T leads to a prefix that has started everything, whose devices, begun at
    the largest starts of their frames, end no later than T. If there is none, every schedule costs at least
    T + 1. Otherwise every schedule costs at least the least cost that such a prefix allows. For at a lower
    cost the windows are no wider and the frames begin no later; the prefix of a schedule of that cost would
    lie in these windows, too.

    With a `floor`, starts say more about that cost. Let a schedule cost C <= T. Delay its operations by
    T - C, but not the first F of stage 0 if windows suppose that the anchor's frame begins with it
    (`HorizonArrays.opening`). They do where the anchor runs one class of microbatches in a frame of its own;
    then nothing comes before that F. So the delayed operations wait for each other as before, and this is a
    schedule as well, whose operations lie in frames of length T: of the anchor, or of all devices where
    they share one, the frame gets longer at its beginning, and the others move as a whole. Windows hold for
    it, and C is at least T plus the start of each delayed operation less the latest start of its item. A
    prefix keeps the largest of these values. It leaves out the first operation of each device.
    """
    problem = few_devices(windows, devices, floor)
    tables = [first_table(problem)]
    trail = Trail(queues_of(instance), problem) if is_whole(windows.graph, devices) else None
    extended = 0
    for _ in range(operations_of(problem)):
        following = next_table(problem, tables, most - extended, budget, moot)
        if following is None:
            return PrefixSearch(None, extended)
        tables = latest_of(problem, [*tables, following])
        extended += rows_of(following)
        if not any(map(rows_of, tables)):
            return PrefixSearch(problem.horizon + 1, extended)
        if trail is not None:
            trail.keep(following)
    bound = min(problem.horizon + 1, int(tables[-1].counter[COMPLETE]))
    if bound > problem.horizon:
        return PrefixSearch(bound, extended)
    return PrefixSearch(bound, extended, None if trail is None else trail.schedule(tables[-1]))


Devices = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """The question what some devices need to do all of their work, if that is at most a target."""

    devices: Devices  #: numbers of these devices, each once
    target: int  #: the target in ticks
    floor: int = NO_LIMIT  #: a proven bound in ticks; sets that need less are not told apart


class Questions:
    """Chooses which `Question` to ask next, from the answers to the earlier questions.

    `bound` and `cost` are the proven bound and the cost of the best known schedule when the questions begin.
    """

    def __init__(self, devices: int, bound: int, cost: int, params: PrefixParams) -> None:
        self._devices, self._params = devices, params
        self._little = max(1, int((cost - bound) * params.little))
        self._floor = self._proven = max(0, 2 * bound - cost)  # the second is what the best set proves
        self._bound, self._share = bound, params.first_target
        # of the first of the waiting sets: the largest target that it has refuted, and one that it left open
        self._refuted, self._open = 0, NO_LIMIT
        self._extended = 0  # prefixes of its searches so far
        self._best: Devices | None = None  # this set, if it is of the present size
        self._effort = 0  # prefixes of its searches
        self._alone: dict[int, int] = {}  # what single devices prove
        self._waiting = self._sets(())
        self._early = self._futile = 0  # searches of each kind, one after another
        self._tried_all = devices == 1

    def next(self, cost: int) -> Question | None:
        """Return the next question at the present cost; None if no set is left that may prove more."""
        if not self._waiting and not self._grow():
            return None
        target = self._least + ceil(self._share * (min(cost - 1, self._open) - self._least))
        return Question(self._waiting[0], target, self._floor)

    def learn(self, question: Question, answer: PrefixSearch) -> None:
        """Take note of the answer to the last question."""
        self._extended += answer.extended
        if self._goes_on(question.target, answer.bound):
            return
        bound, extended = answer.bound, self._extended
        if self._refuted:  # a larger target may say less, as its windows are wider
            bound = max(bound or 0, self._refuted + 1)
        self._extended = 0
        self._share, self._refuted, self._open = self._params.first_target, 0, NO_LIMIT
        self._waiting.pop(0)
        if bound is None:
            self._early += 1
            if self._early == self._params.failures:
                self._waiting.clear()
            return
        self._early = 0
        if len(question.devices) == 1:
            self._alone[question.devices[0]] = bound
        if bound >= self._proven + (self._little if self._best is None else 1):
            self._proven, self._best, self._effort = bound, question.devices, max(1, extended)
            self._futile = 0
        elif self._best is not None and extended > self._params.futile * self._effort:
            self._futile += 1
            if self._futile == self._params.failures:
                self._waiting.clear()

    @property
    def _least(self) -> int:
        """The target from which on the first of the waiting sets is asked."""
        return max(self._bound, self._proven, self._refuted)

    def _goes_on(self, target: int, bound: int | None) -> bool:
        """Take note of what a set proves, and return whether to ask it about another target."""
        if bound is None and self._open == NO_LIMIT:
            self._open, self._share = target, 1 / self._params.farther
        elif bound is not None and bound > target and self._share < 1:
            self._refuted = target
            if self._open == NO_LIMIT:
                self._share = min(1.0, self._share * self._params.farther)
        else:
            return False
        return self._share * (self._open - self._least) >= self._little

    def _grow(self) -> bool:
        """Choose the sets of devices to ask about next, and return whether there are any.

        These are the sets with one device more than the best set. If there is no best set, the set of all
        devices may take their place: on few devices, and once.
        """
        if self._early >= self._params.failures:
            return False
        if self._best is not None:
            self._waiting, self._best, self._futile = self._sets(self._best), None, 0
        elif self._devices <= self._params.small and not self._tried_all:
            self._waiting = [tuple(range(self._devices))]
        self._tried_all |= any(len(devices) == self._devices for devices in self._waiting)
        return bool(self._waiting)

    def _sets(self, devices: Devices) -> list[Devices]:
        """Return the sets with one device more, first those with the device that proves most by itself."""
        others = [d for d in reversed(range(self._devices)) if d not in devices]
        others.sort(key=lambda d: self._alone.get(d, 0), reverse=True)
        return [(*devices, d) for d in others]


def answer_to(
    instance: Instance,
    question: Question,
    budget: Budget,
    most: int,
    moot: Callable[[], bool] = lambda: False,
) -> tuple[PrefixSearch, Proof]:
    """Return the answer to a question, and the kind of proof behind its bound (as in `search_prefixes`)."""
    windows = start_windows(instance, question.target, budget)
    if not windows.feasible:
        return PrefixSearch(question.target + 1, 0), Proof.SHAVING
    return search_prefixes(
        instance, windows, question.devices, budget, most, moot, question.floor
    ), Proof.PREFIXES


_MANY = 10**9  # prefixes, more than any time limit allows


class PrefixProofs:
    """Asks one `Question` about a few devices after another, one a step, and tells the incumbent the answers.

    If every search has ended early, the instance has too many prefixes, and these proofs end as `UNSUITED`.

    - `share`: the share of the worker's time, 0 to 1, after which no further search begins.
    - `part`: the share of the worker's time, 0 to 1, that one search may take.
    """

    def __init__(
        self, instance: Instance, incumbent: Incumbent, share: float, part: float, worker: Worker
    ) -> None:
        self._instance, self._incumbent = instance, incumbent
        params = self._params = worker.whole.params.prefixes
        left = worker.expected if worker.whole.limited else params.unlimited
        self._end = worker.seconds + share * left if worker.whole.limited else inf
        self._seconds = max(params.shortest, part * left)
        self._answered: set[bool] = set()  # whether searches had an answer
        self._begin()

    def step(self, worker: Worker) -> Outcome:
        """Ask the next question."""
        known = self._incumbent
        if not is_searchable(self._instance):
            return Ended(End.UNSUITED)
        if known.closed or worker.budget.left <= 0 or worker.seconds >= self._end:
            return self._ended
        if known.cost - known.bound <= self._params.begin_anew * self._gap:
            self._begin()
        question = self._questions.next(known.cost)
        if question is None:
            return self._ended
        # A time limit ends a search at a deadline. Without one the number of prefixes is limited, so that the
        # search ends at the same prefix in every run.
        endless = worker.whole.endless
        budget = worker.budget if endless else worker.budget.within(self._seconds)
        most = int(self._params.pace * self._seconds) if endless else _MANY
        answer, proof = answer_to(self._instance, question, budget, most, lambda: known.closed)
        self._questions.learn(question, answer)
        self._answered.add(answer.bound is not None)
        known.offer(answer.schedule)
        known.prove(answer.bound, proof)
        return Worked((1 + answer.extended) / self._params.pace)

    @property
    def _ended(self) -> Ended:
        return Ended(End.UNSUITED) if self._answered == {False} else FINISHED

    def _begin(self) -> None:
        """Begin anew for the present gap: the smaller it is, the more precisely are sets compared."""
        bound, known = self._incumbent.bound, self._incumbent.cost
        self._gap = known - bound
        self._questions = Questions(self._instance.devices, bound, known, self._params)
