"""A measurement: what the traces of a run say about its schedule, its costs and its idle time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError, check_int
from ..model import metrics
from ..model.costs import Costs
from ..model.costs import Step as Around
from ..model.instance import Instance
from ..model.microbatches import renumbered, sequence_at_the_end, with_times
from ..model.operation import COMPUTES, OpKind
from ..model.placement import PLACEMENTS, Placement
from ..model.schedule import Order, Schedule
from ..model.schedule_file import MEASURED, faults
from .accounts import Account, Cost, accounts_of, costs_of, message_times, planned_times
from .recordings import read_recordings, reader_of
from .tracks import Track, tracks_of
from .training_steps import Step, aligned, edges, microbatches_of, steps_of

TOLERANCE = 50.0
"""Default of the parameter `tolerance` of `measure`, in microseconds."""

_MICRO = 1000
_WAITS = (
    "ranges include the waits for their inputs: an operation is taken to start when its input was computed, "
    "so that the time of the message counts as computing"
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the traces of a run say about its schedule, its costs and its idle time.

    One tick of the schedule and of the instance is a microsecond. All other times but `offsets` are in
    microseconds, too.
    """

    schedule: Schedule  #: the measured step: starts and ends as they were, in an instance of median durations
    instance: Instance  #: with median costs and usual times of messages of all steps, to solve and plan with
    plan: Schedule | None  #: what was to be run, its microbatches numbered as in the traces; None if unknown
    sources: tuple[str, ...]  #: name of the trace of each device
    steps: int  #: number of whole training steps in the traces
    step: int  #: number of the measured one, from 0
    offsets: tuple[int, ...]  #: nanoseconds by which the clock of each device was put forward, to align them
    costs: tuple[Cost, ...]  #: of each kind of operation at each stage, over all steps
    accounts: tuple[Account, ...]  #: how long each device was busy in the measured step, and idle, by cause
    #: a sentence on each stretch of the traces that is left out, because it is no whole training step, and on
    #: each piece of information that the traces lack, with the assumption made instead
    warnings: tuple[str, ...]

    @property
    def cost(self) -> int:
        """Cost of the measured step, in microseconds."""
        return metrics.cost(self.schedule)

    @property
    def bubble_rate(self) -> float:
        """Bubble rate of the measured step: its bubble as a share of its cost."""
        return metrics.bubble_rate(self.schedule)

    @property
    def deviation(self) -> str | None:
        """A sentence on the first operation that differs from the plan; None without a plan.

        Operations are compared device by device; the sentence is empty if none differs.
        """
        if self.plan is None:
            return None
        lists = zip(self.schedule.order.to_lists(), self.plan.order.to_lists(), strict=True)
        for device, (ran, planned) in enumerate(lists):
            for number, (a, b) in enumerate(zip(ran, planned, strict=False)):
                if a != b:
                    return f"device {device} ran {a} as its operation {number}, where the schedule has {b}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain data for JSON."""
        plan = self.plan
        return {
            "sources": list(self.sources),
            "steps": self.steps,
            "step": self.step,
            "placement": self.schedule.instance.placement.name,
            "objective": str(self.schedule.instance.objective),
            "cost": self.cost,
            "costs": metrics.costs(self.schedule),
            "bubble_rate": self.bubble_rate,
            "planned_cost": None if plan is None else metrics.cost(plan),
            "planned_costs": None if plan is None else metrics.costs(plan),
            "planned_bubble_rate": None if plan is None else metrics.bubble_rate(plan),
            "deviation": self.deviation,
            "clock_offsets_ns": list(self.offsets),
            "devices": [account.to_dict() for account in self.accounts],
            "operations": [cost.to_dict() for cost in self.costs],
            "comm": [list(row) for row in self.instance.costs.comm],  # type: ignore[union-attr]
            "warnings": list(self.warnings),
        }


def measure(
    *traces: str | Path,
    schedule: Schedule | None = None,
    patterns: Sequence[str] = (),
    microbatches: int | None = None,
    step: int | None = None,
    tolerance: float = TOLERANCE,
) -> Measurement:
    """Measure a run of a pipeline by the traces of its processes.

    Parameters
    ----------
    traces
        Files, or folders with files, of all ranks of one pipeline: traces of PyTorch's profiler (JSON, also
        compressed by gzip), or reports of Nsight Systems that were exported as SQLite.
    schedule
        The schedule that was to be run. The traces are compared with it, and it supplies what they lack:
        stages, number and classes of microbatches, memory limits and objective. Its microbatches are numbered
        as in a file that was exported for PyTorch. None if it is not known.
    patterns
        How the ranges of operations are named, each as ``<F|B|W|BW|COMM>:<regular expression>`` with the
        named groups `stage` or `chunk`, and `microbatch`; COMM is for messages. Without patterns, names are
        read as ``tightpipe <operation>`` or PyTorch's ``PP:<action>``.
    microbatches
        Number of microbatches of a step. It is needed only if the names of ranges have no microbatch and
        there is no schedule.
    step
        Number of the whole training step that becomes the measured schedule, from 0; None takes the last.
    tolerance
        Microseconds, at least 0, by which a message may seem to arrive before it was sent.

    Raises
    ------
    InputError
        If a trace is damaged, is incomplete or does not fit the schedule, or if the clocks of two traces
        cannot be aligned; the message names the file and says what would be right.
    """
    if not 0 <= tolerance < 1e9:
        raise InputError("must be a number of microseconds, at least 0", key="tolerance", value=tolerance)
    if microbatches is not None:
        check_int("microbatches", microbatches, 1)
    read = reader_of(patterns)
    if schedule is not None:
        schedule.refuse_copies("a measured run")
        schedule = renumbered(schedule, sequence_at_the_end(schedule))
    plan = None if schedule is None else schedule.instance
    tracks = tracks_of(read_recordings(traces, read), read, plan, microbatches)
    if plan is not None:
        check_plan(tracks, plan)
    placement = placement_of(tracks) if plan is None else plan.placement
    sources = tuple(track.source for track in tracks)
    whole, left_out = steps_of(tracks)
    steps, offsets = aligned(whole, sources, round(tolerance * _MICRO))
    steps = [tuple(track.named(ran) for track, ran in zip(tracks, step, strict=True)) for step in steps]
    number = check_int("step", len(steps) - 1 if step is None else step, 0, len(steps) - 1)
    costs = costs_of(steps, plan)
    instance = measured_instance(steps, costs, placement, plan)
    measured = measured_schedule(steps[number], instance)
    accounts = accounts_of(measured, message_stretches(steps[number], tracks, offsets))
    return Measurement(
        measured,
        instance,
        schedule,
        sources,
        len(steps),
        number,
        offsets,
        costs,
        accounts,
        (*left_out, *_warnings(steps[0], instance)),
    )


def _warnings(step: Step, instance: Instance) -> list[str]:
    found = []
    if any(timed.waits for ran in step for timed in ran):
        found.append(_WAITS)
    if instance.memory is None:
        found.append("traces have no memory: the instance has memory null, as if devices had no limit")
    if instance.step is not None:
        found.append(
            "traces do not time what surrounds the operations: the ready times of stages, reductions and"
            " optimizer are the schedule's, whose ticks count as microseconds"
        )
    return found


def placement_of(tracks: Sequence[Track]) -> Placement:
    """Return the placement in which each device holds the stages of its track."""
    devices, held = len(tracks), [track.stages for track in tracks]
    for name in PLACEMENTS:
        try:
            placement = Placement(name, devices, len(held[0]))
        except InputError:
            continue  # this placement does not allow these numbers of devices and stages
        if [placement.stages_on(device) for device in range(devices)] == held:
            return placement
    raise InputError(
        f"the stages of the devices fit none of {', '.join(PLACEMENTS)}",
        key="stages",
        value=list(map(list, held)),
    )


def check_plan(tracks: Sequence[Track], plan: Instance) -> None:
    """Raise an InputError unless the tracks fit a run of the planned instance."""
    plan.refuse_slices("a measured run")
    if plan.iterations > 1:
        raise InputError("a schedule of one iteration is needed", key="iterations", value=plan.iterations)
    for stage, c in product(range(plan.stages), range(len(plan.class_counts))):
        if not plan.has_backward(stage, c):
            rule = "a backward is needed at every stage, this one has none"
            raise InputError(rule, key="stage", value=stage)
        if any(plan.has(kind, stage, c) != plan.has(kind, stage, 0) for kind in COMPUTES):
            rule = (
                "the same operations are needed for all microbatches, this one lacks some for a part of them"
            )
            raise InputError(rule, key="stage", value=stage)
    if len(tracks) != plan.devices:
        rule = f"the schedule has {plan.devices} devices; give one trace of each"
        raise InputError(rule, key="traces", value=len(tracks))
    for device, track in enumerate(tracks):
        held = plan.placement.stages_on(device)
        if track.stages != held:
            rule = f"the schedule has {_listed(held)} on device {device}"
            raise InputError(rule, key="stages", value=_listed(track.stages), source=track.source)
        microbatches = microbatches_of(track.operations)
        if microbatches != plan.microbatches:
            rule = f"the schedule has {plan.microbatches}"
            raise InputError(rule, key="microbatches", value=microbatches, source=track.source)


def _listed(stages: Sequence[int]) -> str:
    return ", ".join(map(str, stages))


def measured_instance(
    steps: Sequence[Step], costs: Sequence[Cost], placement: Placement, plan: Instance | None
) -> Instance:
    """Return the instance with the median costs of all steps; what traces lack is taken from the plan."""
    f, b, w, fused = planned_times(costs, placement.stages)
    medians = Costs(f, b, w, message_times(steps), fused=fused)
    microbatches = 1 + max(timed.operation.microbatch for ran in steps[0] for timed in ran)
    if plan is None:
        return Instance(placement, microbatches, medians)
    if plan.alike:
        return Instance(placement, microbatches, medians, plan.memory, plan.objective, step=plan.step)
    as_planned = replace(plan, costs=replace(plan.costs, comm=medians.comm, link_occupancy=0))
    return with_times(as_planned, partial(planned_times, costs, placement.stages))


def measured_schedule(step: Step, instance: Instance) -> Schedule:
    """Return the schedule of a step: its order and its measured times, counted from the first start.

    The schedule has the costs of `instance`, except that communication takes the shortest time measured in
    the step, and a stage is ready when its first F began, if that was sooner. It has the memory limits of
    `instance` only if it breaks no rule with them: a run may have held more memory than its limits allow.
    """
    begin = min(timed.start for ran in step for timed in ran)
    order = Order.from_lists([[timed.operation for timed in ran] for ran in step])
    times = np.array([(timed.start, timed.end) for ran in step for timed in ran]) - begin
    start, end = ((times + _MICRO // 2) // _MICRO).T
    least = replace(instance.costs, comm=_least_message_times(step, begin))
    around = _as_ready(instance, step, begin)
    schedule = Schedule(replace(instance, costs=least, step=around), order, start, end)
    if instance.memory is None or not faults(schedule, MEASURED):
        return schedule
    unlimited = replace(schedule.instance, memory=replace(instance.memory, limit=None))
    return Schedule(unlimited, order, start, end)


def _as_ready(instance: Instance, step: Step, begin: int) -> Around | None:
    if instance.step is None:
        return None
    ready = list(instance.step.ready)  # type: ignore[arg-type]  # expanded by the instance
    for timed in (timed for ran in step for timed in ran if timed.operation.kind is OpKind.F):
        stage = timed.operation.stage
        ready[stage] = min(ready[stage], _ticks(timed.start - begin))
    return replace(instance.step, ready=ready)


def message_stretches(
    step: Step, tracks: Sequence[Track], offsets: Sequence[int]
) -> list[list[tuple[int, int]]]:
    """Return the intervals in which each device sent or waited to receive, in all steps of its trace."""
    begin = min(timed.start for ran in step for timed in ran)
    return [
        [(_ticks(start + offset - begin), _ticks(end + offset - begin)) for start, end in track.messages]
        for track, offset in zip(tracks, offsets, strict=True)
    ]


def _ticks(nanoseconds: int) -> int:
    return (nanoseconds + _MICRO // 2) // _MICRO


def _least_message_times(step: Step, begin: int) -> list[list[int]]:
    """Return the shortest time from an operation's end to the use of its result, per sender and receiver."""
    devices = range(len(step))
    least: dict[tuple[int, int], int] = {}
    for sender, sent, receiver, used in edges(step):
        ended, started = _ticks(sent.end - begin), _ticks(used.start - begin)
        link = sender, receiver
        least[link] = min(started - ended, least.get(link, started - ended))
    return [[least.get((i, j), 0) if i != j else 0 for j in devices] for i in devices]
