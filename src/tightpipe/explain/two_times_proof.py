"""The proof of the bound `two times` for one instance, written out in words and numbers.

Every statement can be checked with a pocket calculator from the times of the operations, the messages and the
memory limit. `docs/theorem.md` has the proof for all instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tightpipe.solver.bounds.formulas import TwoTimes, two_times
from tightpipe.solver.bounds.formulas.paths import paths_of
from tightpipe.solver.bounds.formulas.ramps import most_forwards

from ..base.errors import InputError
from ..model.instance import Instance
from ..model.operation import OpKind
from ..model.placement import Route


@dataclass(frozen=True, slots=True)
class Run:
    """Operations of one kind and one microbatch on consecutive stages, in the sequence in which they run."""

    kind: str  #: ``F``, ``B``, or ``BW`` for a B and the W after it
    #: stages of the first and of the last operation
    first: int
    last: int
    ticks: int  #: sum of the least ticks that each of these operations takes

    def __str__(self) -> str:
        name = "B and W" if self.kind == "BW" else self.kind
        count = abs(self.last - self.first) + 1
        if count == 1:
            return f"{name} of stage {self.first}: {self.ticks}"
        return f"{count} {name}'s, of stages {self.first} to {self.last}: {self.ticks}"


@dataclass(frozen=True, slots=True)
class Path:
    """A path: operations of one microbatch that have to run one after another, and messages between them."""

    runs: tuple[Run, ...]  #: the operations in sequence
    messages: int  #: number of messages between devices
    message_ticks: int  #: sum of their ticks

    @property
    def ticks(self) -> int:
        """Length of the path in ticks."""
        return sum(run.ticks for run in self.runs) + self.message_ticks

    def __str__(self) -> str:
        parts = [str(run) for run in self.runs]
        return "; ".join(
            [*parts, f"{self.messages} messages: {self.message_ticks}"] if self.messages else parts
        )


@dataclass(frozen=True, slots=True)
class TwoTimesProof:
    """The bound `two times` of one instance, with the two paths that it follows from.

    The worker is the device whose work the bound counts. The frame is the interval, as long as the cost, in
    which all operations of the device `times.frame` lie; if `times.frame` is None, those of all devices.
    """

    instance: Instance
    times: TwoTimes  #: the numbers of the bound, with its worker and its frame
    until_backward: Path  #: the path from the start of the frame to the worker's first B
    after_forward: Path  #: the path from the end of the worker's last F to the end of the frame

    @property
    def follows(self) -> bool:
        """Whether the bound is larger than the work of its worker; this work alone is a bound of the cost."""
        return self.times.cost > self.times.work

    def to_dict(self) -> dict[str, Any]:
        """Return the bound, its numbers and its paths as plain data for JSON."""
        paths = {"until_backward": self.until_backward, "after_forward": self.after_forward}
        shown = {name: {**asdict(path), "ticks": path.ticks} for name, path in paths.items()}
        return {"bound": self.times.cost, **asdict(self.times), **shown}

    def __str__(self) -> str:
        return "\n".join(self._steps() if self.follows else self._nothing_follows())

    def _nothing_follows(self) -> list[str]:
        times = self.times
        return [
            f"cost >= {times.cost}: the work of device {times.worker}. The two times add nothing here: "
            f"{times.before} ticks of work may be done before its first B, and {times.held} after its last F."
        ]

    def _steps(self) -> list[str]:
        times, target = self.times, self.times.cost - 1
        worker, last = f"device {times.worker}", target - times.after_last_forward
        limit = self.instance.memory_limit(times.worker)
        frame = "all devices" if times.frame is None else f"device {times.frame}"
        between = times.work - times.before - times.held
        return [
            f"cost >= {times.cost}, by the work of {worker} between two times of the span of {frame}",
            "",
            f"Suppose that a schedule costs {target} ticks. Then {frame} runs all its operations from a "
            f"tick 0 to tick {target}.",
            f"1. No B starts on {worker} before t1 = {times.first_backward}. The same microbatch runs before "
            f"it, from tick 0 on: {self.until_backward}.",
            f"2. All F's of {worker} have ended by t2 = {target} - {times.after_last_forward} = {last}. The "
            f"same microbatch runs after each of them, until tick {target}: {self.after_forward}.",
            f"3. Until t1 {worker} runs only F's{self._least_of_forwards()}",
            f"4. From t2 on it runs only B's and W's of microbatches that it holds at t2. What fits into "
            f"its limit of {limit} leaves at most {times.held} ticks to do.",
            f"5. It works {times.work} ticks in all. So at least {times.work} - {times.before} - "
            f"{times.held} = {between} ticks of work lie between t1 and t2, which are only {last} - "
            f"{times.first_backward} = {last - times.first_backward} ticks apart. That is impossible.",
        ]

    def _least_of_forwards(self) -> str:
        """Return the end of the sentence that says what limits the work before t1: memory or time."""
        times = self.times
        if times.before < most_forwards(self.instance, times.worker):
            begin = times.first_backward - times.before
            return f". The first of them starts at tick {begin} or later: that leaves {times.before} ticks."
        limit = self.instance.memory_limit(times.worker)
        return (
            f", which free no memory. F's that fit into its limit of {limit} together take at most "
            f"{times.before} ticks."
        )


def prove_by_two_times(instance: Instance) -> TwoTimesProof:
    """Return the bound `two times` of an instance, and the paths that it follows from.

    Raise an InputError if microbatches differ or are cut into slices, activations may leave, a stage lacks B
    or W, or a fused backward takes less than both, for which the proof has no words. Raise an AssertionError
    if a path is not as long as the bound says, which is a fault of this program.
    """
    instance.refuse_slices("the proof by hand")
    if instance.offload is not None:
        rule = "the proof by hand knows no copies, which free memory"
        raise InputError(rule, key="offload", value=instance.offload.memory)
    if not instance.alike:
        rule = "the proof by hand needs microbatches that are alike"
        raise InputError(rule, key="classes", value=len(instance.class_counts))
    if not instance.complete:
        rule = "the proof by hand needs a B and a W at every stage"
        raise InputError(rule, key="backward, weight", value=0)
    if instance.fusing_saves:
        rule = "the proof by hand knows no fused backward that takes less than its B and W"
        raise InputError(rule, key="fused", value=min(instance.class_costs[0].duration[OpKind.BW]))
    times = two_times(instance)
    first = _shortest(instance, lambda c: _until_backward(instance, times, c))
    second = _shortest(instance, lambda c: _after_forward(instance, times, c))
    if (first.ticks, second.ticks) != (times.first_backward, times.after_last_forward):
        raise AssertionError(f"the paths take {first.ticks} and {second.ticks} ticks, which is not {times}")
    return TwoTimesProof(instance, times, first, second)


def _shortest(instance: Instance, path_of: Callable[[int], Path]) -> Path:
    """Return the shortest of the paths of the classes of microbatches."""
    return min(map(path_of, range(len(instance.class_counts))), key=lambda path: path.ticks)


def _until_backward(instance: Instance, times: TwoTimes, mb_class: int) -> Path:
    """Return the path of a microbatch from its first F in the frame to its first B on the worker.

    The first F in the frame is at the first stage on device `times.frame`, or at stage 0 if that is None. The
    path ends where the B starts.
    """
    route = instance.class_routes[mb_class]
    first = 0 if times.frame is None else route.index(times.frame)
    backward = _step_of_backward(instance, _highest(route, times.worker))
    return _path(instance, mb_class, range(first, backward), range(first, backward))


def _after_forward(instance: Instance, times: TwoTimes, mb_class: int) -> Path:
    """Return the longest path of a microbatch from the end of its last F on the worker to the end of a W.

    The W is one on device `times.frame`, or on any device if that is None.
    """
    route = instance.class_routes[mb_class]
    forward = _highest(route, times.worker)
    ends = [_step_of_backward(instance, s) for s, d in enumerate(route) if times.frame in (None, d)]
    paths = [_path(instance, mb_class, range(forward + 1, e), range(forward, e), e) for e in ends]
    return max(paths, key=lambda path: path.ticks)


def _highest(route: Route, device: int) -> int:
    return max(stage for stage, d in enumerate(route) if d == device)


def _step_of_backward(instance: Instance, stage: int) -> int:
    """Return the number of the B at `stage` among the steps: F's by ascending stage, then B's back."""
    return 2 * instance.stages - 1 - stage


def _path(
    instance: Instance, mb_class: int, steps: range, hops: range, with_weight: int | None = None
) -> Path:
    """Return the path over some steps of a microbatch, which are numbered as in `_step_of_backward`.

    The messages after the steps `hops` belong to the path. If `with_weight` is not None, the B of that number
    and the W after it end the path.
    """
    count = instance.stages
    stage = [*range(count), *reversed(range(count))]
    forwards = [stage[step] for step in steps if step < count]
    backwards = [stage[step] for step in steps if step >= count]
    ends = [] if with_weight is None else [stage[with_weight]]
    found = [
        _run(instance, mb_class, kind, stages)
        for kind, stages in ((OpKind.F, forwards), (OpKind.B, backwards), (OpKind.BW, ends))
        if stages
    ]
    route = instance.class_routes[mb_class]
    pairs = [(route[stage[step]], route[stage[step + 1]]) for step in hops]
    sent = [instance.comm(sender, receiver) for sender, receiver in pairs if sender != receiver]
    return Path(tuple(found), len(sent), sum(sent))


def _run(instance: Instance, mb_class: int, kind: OpKind, stages: list[int]) -> Run:
    paths = paths_of(instance)
    least = {OpKind.F: paths.forward, OpKind.B: paths.backward, OpKind.BW: paths.both}[kind][mb_class]
    ticks = sum(int(least[stage]) for stage in stages)
    return Run(kind.name, stages[0], stages[-1], ticks)
