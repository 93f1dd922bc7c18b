"""A training step that ran becomes a schedule with measured times, in ticks of a microsecond.

The instance of the schedule has the median durations, because an instance has one duration for all
microbatches of a class; the operations of the schedule keep their own durations. The communication time from
one device to another is the shortest measured time from the end of an operation to the use of its result, so
that no operation starts before its input arrives. Where a message took longer, the rest counts as a late
start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from ..base.errors import InputError
from ..model.costs import Costs
from ..model.costs import Step as Around
from ..model.instance import Instance
from ..model.microbatches import with_times
from ..model.operation import OpKind
from ..model.placement import PLACEMENTS, Placement
from ..model.schedule import Order, Schedule
from ..model.schedule_file import MEASURED, faults
from .clocks import edges
from .costs import Cost, message_times, planned_times
from .tracks import Track
from .training_steps import Step, microbatches_of

_MICRO = 1000


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
    """Raise an InputError unless the tracks fit a run of the planned instance.

    Raise an InputError if devices, stages or microbatches differ, the plan has several iterations, or one of
    its stages has no backward, or not the same operations for all microbatches.
    """
    plan.refuse_slices("a measured run")
    if plan.iterations > 1:
        raise InputError("a schedule of one iteration is needed", key="iterations", value=plan.iterations)
    for stage, c in product(range(plan.stages), range(len(plan.class_counts))):
        if not plan.has_backward(stage, c):
            rule = "a backward is needed at every stage, this one has none"
            raise InputError(rule, key="stage", value=stage)
        if any(plan.has(kind, stage, c) != plan.has(kind, stage, 0) for kind in OpKind):
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
    """Return the instance with the median costs of all steps, to plan with.

    Memory, objective, and what a step takes beside the operations are taken from the plan, because traces do
    not have them. Without a plan, the `memory` of the instance is None and its objective is `device_span`.
    """
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
    """Return the intervals in which each device sent or waited to receive, in all steps of its trace.

    Times are in ticks, counted from the first start of `step`, as in `measured_schedule`. `offsets` are the
    nanoseconds by which the clocks of the devices were put forward.
    """
    begin = min(timed.start for ran in step for timed in ran)
    return [
        [(_ticks(start + offset - begin), _ticks(end + offset - begin)) for start, end in track.messages]
        for track, offset in zip(tracks, offsets, strict=True)
    ]


def _ticks(nanoseconds: int) -> int:
    return (nanoseconds + _MICRO // 2) // _MICRO


def _least_message_times(step: Step, begin: int) -> list[list[int]]:
    """Return the shortest time from an operation's end to the use of its result, per sender and receiver.

    Times are in ticks, to which ends and starts are rounded before they are subtracted.
    """
    devices = range(len(step))
    least: dict[tuple[int, int], int] = {}
    for sender, sent, receiver, used in edges(step):
        ended, started = _ticks(sent.end - begin), _ticks(used.start - begin)
        link = sender, receiver
        least[link] = min(started - ended, least.get(link, started - ended))
    return [[least.get((i, j), 0) if i != j else 0 for j in devices] for i in devices]
