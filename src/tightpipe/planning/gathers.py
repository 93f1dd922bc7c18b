"""Gathers of parameters beside a schedule: which there are, when they run, and what a step then takes.

Where pipelines share parameters and fewer stages of a device stay gathered than it has, PyTorch gathers
stages again and again. Its rule: before each operation of a device, those stages are gathered that the device
needs next, `resident` different ones, and all others are given up. So a stage is gathered for an operation
unless fewer than `resident` other stages have run since its last one, and the gather begins when the
operation ends that gives its place up: the last one of the stage that is given up.

Exchanges of a device, gathers and the reductions of gradients, run one after another on its data-parallel
stream, in the sequence in which they are issued: after an operation first the reduction of its stage, if that
was the last one, then the gather. Operations go on beside them. As everywhere in this model, messages between
the devices of a pipeline and exchanges between pipelines do not slow each other.

**Bounds.** Gathers only make operations and reductions wait longer. A schedule with gathers is a schedule of
the instance without later ones (`Step.ready` has the first gathers, which are issued in the sequence of the
stages, as the first microbatch meets them), and costs no less. So every lower bound for that instance is
one for the schedule with gathers.

**More residency is never slower for the same order.** With `resident` one larger, a subset of the gathers is
left, in the same sequence, and each is issued after the same operation or an earlier one. What stands before
a gather is then a part of what stood there, issued no later, so by induction the gather ends no later, and so
do the operations that need it. The stream as a whole ends no later either, though a reduction may now stand
behind a gather that it preceded. So all stages stay gathered where memory has no limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..base.errors import InputError
from ..model.metrics import cost
from ..model.row_graph_kernel import RowTimes, Waits, earliest_row_times, row_graph_of
from ..model.schedule import Order, Schedule
from ..model.validate import validate
from .candidate import Candidate, gather_ticks, gathers_again, numbers_of, resolved
from .problem import PlanningProblem


class Gather(NamedTuple):
    """A gather of a stage, whose operations are counted along their device."""

    stage: int
    after: int  #: the operation after whose end it is issued; -1 for the begin of the step
    use: int  #: the first operation that needs it


def gathers_of(stages: Sequence[int], resident: int) -> list[Gather]:
    """Return the gathers of a device in a step in the sequence in which they are issued.

    - `stages`: the stage of each operation of the device, in sequence.
    - `resident`: how many stages stay gathered at once, at least 1.
    """
    found, needed, later, use = list[Gather](), list[int](), list[int](), dict[int, int]()
    for i in reversed(range(len(stages))):
        # `needed` has the stages of the operations from this one on, those of the next ones first
        needed = [stages[i], *(other for other in needed if other != stages[i])]
        now = needed[:resident]
        found += [Gather(stage, i, use[stage]) for stage in reversed(later) if stage not in now]
        use[stages[i]], later = i, now
    found += [Gather(stage, -1, use[stage]) for stage in reversed(later)]
    return found[::-1]


def gather_counts(problem: PlanningProblem, candidate: Candidate, order: Order) -> list[int] | None:
    """Return how often a step gathers each stage; None if pipelines do not share parameters."""
    sharding, found = resolved(problem, candidate).cluster.sharding, [0] * candidate.placement.stages
    if not sharding.gathered:
        return None
    for device in range(order.devices):
        _, stages = _operations(order, device)
        for gather in gathers_of(stages, sharding.kept(candidate.placement.stages_per_device)):
            found[gather.stage] += 1
    return found


def with_gathers(problem: PlanningProblem, candidate: Candidate, schedule: Schedule) -> Schedule:
    """Return the schedule in which the same order runs as early as its gathers let it.

    It is the given one where no stage is gathered again, or nothing says how long that takes: the first
    gathers are a part of the instance.

    Raises
    ------
    InputError
        If an F and a backward run together, which may need one more stage, or the schedule was invalid.
    """
    devices = _exchanges(problem, candidate, schedule)
    if not devices:
        return schedule
    instance, order, waits = schedule.instance, schedule.order, list[tuple[int, int, int]]()
    ready = np.zeros(len(order), np.int64)
    for exchanges in devices:
        for k, own in enumerate(exchanges):
            lag, issued = 0, -1
            for j in range(k, -1, -1) if own.use >= 0 else ():
                other = exchanges[j]
                if 0 <= other.use <= issued:  # it has ended when the next is issued, which does not wait
                    break
                lag, issued = lag + other.ticks, other.after
                if issued >= 0:
                    waits.append((own.use, issued, lag))
                else:
                    ready[own.use] = lag
    after, before, lags = np.array(waits, np.int64).reshape(-1, 3).T
    graph = row_graph_of(instance, order, [Waits(after, before, lags, np.zeros(len(after), np.bool_))])
    graph = graph._replace(ready=np.maximum(graph.ready, ready))
    times = RowTimes(*(np.empty(len(order), np.int64) for _ in RowTimes._fields))
    earliest_row_times(graph, np.zeros(order.devices, np.int64), times)
    found = replace(schedule, start=times.start, end=times.end)
    for violation in validate(instance, found):
        raise InputError(f"is invalid with its gathers: {violation}", key="schedule")
    return found


def step_ticks(problem: PlanningProblem, candidate: Candidate, schedule: Schedule) -> int:
    """Return the ticks of a step with all its exchanges: the cost of a plan.

    Every device has ended its operations, its exchanges and its optimizer. This replays the streams beside
    the times of the schedule, without the waits of `with_gathers`.

    Raises
    ------
    InputError
        If an operation starts before its stage is gathered, or as in `with_gathers`.
    """
    found, step, start, end = cost(schedule), schedule.instance.step, schedule.start, schedule.end
    for device, exchanges in enumerate(_exchanges(problem, candidate, schedule)):
        free = 0
        for exchange in exchanges:
            issued = int(end[exchange.after]) if exchange.after >= 0 else 0
            free = max(free, issued) + exchange.ticks
            if exchange.use >= 0 and start[exchange.use] < free:
                name = schedule.instance.name(schedule.order.operation_at(exchange.use))
                raise InputError(f"{name} starts before its stage is gathered, at {free}", key="schedule")
        found = max(found, free + (step.optimizer[device] if step else 0))  # type: ignore[index]
    return found


class _Exchange(NamedTuple):
    """An exchange on the stream of a device; its operations are rows of the order."""

    after: int  #: the row after whose end it is issued; -1 for the begin of the step
    use: int  #: the first row that needs it; -1 for a reduction
    ticks: int


def _exchanges(problem: PlanningProblem, candidate: Candidate, schedule: Schedule) -> list[list[_Exchange]]:
    """Return the exchanges of each device as they are issued; none where the instance has all that matter."""
    order, step, each = schedule.order, schedule.instance.barrier, candidate.placement.stages_per_device
    if step is None or not gathers_again(problem, candidate):
        return []
    kept = resolved(problem, candidate).cluster.sharding.kept(each)
    if order.pairs.any():
        raise InputError("runs pairs of operations, which may need a stage more at once", key="schedule")
    takes = [gather_ticks(problem, stage) for stage in numbers_of(problem, candidate)]
    return [
        list(_issued(order, device, kept, takes, step.reduce))  # type: ignore[arg-type]
        for device in range(order.devices)
    ]


def _issued(
    order: Order, device: int, resident: int, gather: Sequence[int], reduce: Sequence[int]
) -> Iterator[_Exchange]:
    rows, stages = _operations(order, device)
    last = {stage: i for i, stage in enumerate(stages)}
    gathers = [(each.after, 1, each.use, gather[each.stage]) for each in gathers_of(stages, resident)]
    reductions = [(i, 0, -1, reduce[stage]) for stage, i in last.items() if reduce[stage]]
    for after, _, use, ticks in sorted(gathers + reductions):
        yield _Exchange(rows[after] if after >= 0 else -1, rows[use] if use >= 0 else -1, ticks)


def _operations(order: Order, device: int) -> tuple[list[int], list[int]]:
    """Return the rows of what a device computes, and their stages: copies need no parameters."""
    rows = np.arange(len(order))[order.rows(device)]
    rows = rows[order.computes[rows]]
    return rows.tolist(), order.operations[rows, 1].tolist()
