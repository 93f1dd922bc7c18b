"""Schedules under noise: what their orders cost in random samples, and where their delays come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..base.cores import usable_cores
from ..base.errors import InputError, check_int
from ..kernels.arrays import Floats, Ints
from ..model.costs import Objective
from ..model.graph_arrays import arrays_of, nodes_of
from ..model.instance import Instance
from ..model.metrics import charged_windows, cost
from ..model.operation import OpKind
from ..model.row_graph_kernel import RowGraph, row_graph_of
from ..model.schedule import Order, Schedule
from ..model.simulate import simulation_of
from .models import BLOCK, NoiseModel, Times, planned_times
from .sample_kernel import Criticality, Draws, SampleState, run_samples, trace_critical

Found = tuple[Floats, Floats, Criticality]
"""The cost and the largest busy time in each sample, in ticks, and the `Criticality` of all samples."""


class OrderRun:
    """An order that `run` times in one block of samples after another, and what `add` has summed of them."""

    def __init__(self, schedule: Schedule) -> None:
        instance, order = schedule.instance, schedule.order
        self.schedule, self.instance = schedule, instance
        self.ends = [_last_rows(order, device) for device in range(order.devices)]
        # for `device_span` a device is busy with the iteration before until its first start in the schedule
        free = np.zeros(order.devices, np.int64)
        self.release = free if instance.whole else schedule.start[order.offsets[:-1]]
        planned, sequence = simulation_of(instance, order).run_in_sequence(self.release)
        self.graph = row_graph_of(instance, order)
        self.draws = _draws_of(instance, order, self.graph, sequence)
        self.planned = cost(planned)
        begin, end = charged_windows(planned)
        self.begin, self.span = begin.astype(np.float64), (end - begin).astype(np.float64)
        self.costs: list[Floats] = []
        self.busy: list[Floats] = []
        self.passed = nothing_passed(len(order))

    def run(self, times: Times, samples: int) -> Found:
        """Return costs, largest busy times and `Criticality` of the first `samples` samples of a block."""
        graph, draws, release, state = self.graph, self.draws, self.release, _new_state(self.graph)
        durations, lags = flat(times.duration), flat(times.lag)
        moment = self.begin[:, None] + times.moment * self.span[:, None]
        run_samples(graph, draws, durations, lags, moment, times.stall, release, state)
        costs, last = self._costs(state)
        found = nothing_passed(len(graph.home))
        trace_critical(graph, draws, lags, release, last[:samples], state, found)
        return costs[:samples], self._busy(durations)[:samples], found

    def add(self, block: Found) -> None:
        """Keep what `run` has returned for a block."""
        costs, busy, passed = block
        self.costs.append(costs)
        self.busy.append(busy)
        for total, more in zip(self.passed, passed, strict=True):
            total += more

    def noisy(self) -> Noisy:
        """Return what is known after all blocks."""
        costs, busy = np.concatenate(self.costs), np.concatenate(self.busy)
        shares = (total / len(costs) for total in self.passed)
        return Noisy(self.schedule, self.planned, costs, busy, *shares)

    def _costs(self, state: SampleState) -> tuple[Floats, Ints]:
        """Return the cost in each sample, and the row with which its critical path ends."""
        ended = state.end[self.graph.last]
        done = ended if self.instance.whole else ended - state.first
        last = np.repeat(self.graph.last[:, None], done.shape[1], axis=1)
        if self.instance.barrier is not None:
            self._reduce(state, done, last)
        device, sample = done.argmax(axis=0), np.arange(done.shape[1])
        begin = state.first.min(axis=0) if self.instance.objective is Objective.MAKESPAN else 0.0
        return done[device, sample] - begin, last[device, sample]

    def _reduce(self, state: SampleState, done: Floats, last: Ints) -> None:
        """Add to `done` what devices do after their operations, and set the rows for which that waits.

        Noise does not change the times of reductions, of the optimizer and of parameters.
        """
        step: Any = self.instance.barrier
        for device, (stages, rows) in enumerate(self.ends):
            ended, ticks = state.end[rows], np.array(step.reduce)[stages]
            free, since, sample = np.zeros(done.shape[1]), last[device], np.arange(done.shape[1])
            for stage in np.argsort(ended, axis=0, kind="stable"):  # the next one to be reduced, by sample
                begin, takes = ended[stage, sample], ticks[stage]
                since = np.where((begin >= free) & (takes > 0), rows[stage], since)
                free = np.where(takes > 0, np.maximum(free, begin) + takes, free)
            last[device] = np.where(free > done[device], since, last[device])
            done[device] = np.maximum(free, done[device]) + step.optimizer[device]

    def _busy(self, durations: Floats) -> Floats:
        """Return the largest busy time of a device in each sample, without stalls, in ticks."""
        first, second = self.draws.part.T
        computing = self.draws.scale * self.schedule.order.computes
        took = (durations[first] + durations[second]) * computing[:, None]
        busy: Floats = np.add.reduceat(took, self.graph.first)
        return np.asarray(busy.max(axis=0))


def _last_rows(order: Order, device: int) -> tuple[Ints, Ints]:
    """Return the stages of a device, and the row of the last operation of each."""
    rows = order.rows(device)
    stages, backwards = np.unique(order.operations[rows, 1][::-1], return_index=True)
    return stages, rows.stop - 1 - backwards


def _draws_of(instance: Instance, order: Order, graph: RowGraph, sequence: Ints) -> Draws:
    """Return which of the random times in a block the operations of an order take.

    Under noise a pair or a BW takes its planned ticks times the ratio of its random to its planned durations.
    A copy takes its planned ticks.
    """
    kind, stage, unit = order.operations.T
    size, place = instance.stages * instance.units, stage * instance.units + unit
    one, nothing = 3 * size, 3 * size + 1
    first = np.where(order.computes, np.where(kind == OpKind.BW, OpKind.B, kind) * size + place, one)
    second = np.where(kind == OpKind.BW, OpKind.W * size + place, nothing)
    lag = (np.where(kind == OpKind.F, 0, size) + place)[graph.after]
    return Draws(
        part=np.ascontiguousarray(np.stack([first, second], axis=1)),
        scale=graph.ticks / np.where(order.computes, np.maximum(_apart(instance, order), 1), 1),
        lag=np.where(graph.message, lag, 2 * size + 1),
        sequence=sequence,
    )


def _apart(instance: Instance, order: Order) -> Floats:
    """Return the ticks of each operation one by one: the sum over a pair, and over the B and W of a BW."""
    graph, node = arrays_of(instance), nodes_of(instance, order)
    apart = graph.nodes["duration"][node].astype(np.float64)
    (fused,) = np.nonzero(order.operations[:, 0] == OpKind.BW)
    there = graph.nodes[node[fused]]
    apart[fused] += graph.nodes["duration"][graph.node[OpKind.W, there["mb_class"], there["stage"]]]
    first = np.flatnonzero(order.pairs)
    apart[first] = apart[first + 1] = apart[first] + apart[first + 1]
    return apart


def nothing_passed(rows: int) -> Criticality:
    """Return an all-zero `Criticality` for an order with `rows` operations; samples are then added to it."""
    return Criticality(*(np.zeros(rows) for _ in Criticality._fields))


def flat(values: Floats) -> Floats:
    """Return times as rows of K samples: one for each operation or message, one of ones, and one of zeros."""
    rows = values.reshape(-1, values.shape[-1])
    return np.concatenate([rows, np.ones((1, rows.shape[1])), np.zeros((1, rows.shape[1]))])


def _new_state(graph: RowGraph) -> SampleState:
    """Return new arrays in which the simulator keeps the times of an order in one block of samples."""
    end, first = np.zeros((len(graph.home), BLOCK)), np.zeros((len(graph.first), BLOCK))
    return SampleState(end, end.copy() if graph.occupancy else end, first, np.zeros(BLOCK))


QUANTILE = 0.95


@dataclass(frozen=True, slots=True)
class Distribution:
    """Figures of the costs of a schedule in random samples, in ticks."""

    mean: float  #: the mean of the costs
    #: the standard deviation of the costs (with n - 1 in the denominator); 0 for a single sample
    deviation: float
    p95: float  #: the 95th percentile of the costs, with linear interpolation between two samples
    worst: float  #: the largest cost

    @classmethod
    def of(cls, costs: Floats) -> Distribution:
        """Return the figures of `costs`, which has at least one entry."""
        deviation = float(costs.std(ddof=1)) if len(costs) > 1 else 0.0
        return cls(float(costs.mean()), deviation, float(np.quantile(costs, QUANTILE)), float(costs.max()))


MOST_SAMPLES = 10**6


@dataclass(frozen=True, eq=False, slots=True)
class Noisy:
    """A schedule's costs under noise, and how often each of its operations lies on the critical path."""

    schedule: Schedule  #: the schedule, whose order stays as it is in every sample
    planned: int  #: what the schedule's order costs without noise, in ticks
    costs: Floats  #: what the order costs in each sample, in ticks, shape (samples,)
    #: the largest busy time of a device in each sample, in ticks, shape (samples,): no order that fuses and
    #: pairs the same operations costs less in this sample
    busy: Floats
    #: share of the samples in which the critical path goes through each operation, shape (N,), in the
    #: sequence of the order's rows
    critical: Floats
    #: ticks that each operation adds to the critical path, as a mean over all samples, shape (N,). In a
    #: sample, an operation on the path adds the ticks from when it could start to its end, less its planned
    #: ticks. That is negative for an operation that takes less than planned. An operation that is not on the
    #: path adds 0. Of a pair, the first row has the ticks that the whole pair adds, and the second has 0.
    delay: Floats
    #: the same as `critical` and `delay` for the message that each operation waits for; 0 where there is none
    message_critical: Floats
    message_delay: Floats

    @property
    def distribution(self) -> Distribution:
        """Mean, standard deviation, 95th percentile and largest of `costs`, in ticks."""
        return Distribution.of(self.costs)


def run_noisy(
    schedules: Sequence[Schedule],
    models: Sequence[NoiseModel],
    *,
    samples: int = 1000,
    seed: int = 0,
    workers: int | None = None,
) -> list[Noisy]:
    """Run schedules of one instance under the same random samples; return what each of them takes.

    Parameters
    ----------
    schedules
        At least one valid schedule; all of the same instance. Only their orders and first starts are used.
        Where the objective is `device_span`, no device begins before its first operation does in the
        schedule; else all devices may begin at time 0. Every operation starts as early as it then can, and
        so does every copy, whose planned ticks stay; where a device stalls, its copies stand still too.
    models
        The models of noise, which change the planned times one after another.
    samples
        Number of samples, 1 to 10^6.
    seed
        Seed, 0 to 2^31 - 1. With the same seed, an operation takes the same time in every schedule of the
        instance, and the samples of a shorter run are the first samples of a longer one.
    workers
        Number of threads, 1 to 1024; None takes as many as there are cores. The result is the same for
        any number.

    Raises
    ------
    InputError
        If a number is out of range, if schedules belong to different instances, or if a model does not fit
        the instance.
    """
    check_int("samples", samples, 1, MOST_SAMPLES)
    check_int("seed", seed, 0, 2**31 - 1)
    threads = check_int("workers", usable_cores() if workers is None else workers, 1, 1024)
    instance = schedules[0].instance
    if any(schedule.instance != instance for schedule in schedules):
        raise InputError("schedules must be of the same instance, to run under the same noise")
    for model in models:
        model.check(instance)
    runs = [OrderRun(schedule) for schedule in schedules]
    run_block = partial(_run_block, runs, partial(draw_times, instance, models, seed), samples)
    blocks = -(-samples // BLOCK)
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, blocks, threads):  # few at once, as the times of a block take much memory
            for found in pool.map(run_block, range(first, min(first + threads, blocks))):
                for run, block in zip(runs, found, strict=True):
                    run.add(block)
    return [run.noisy() for run in runs]


def draw_times(instance: Instance, models: Sequence[NoiseModel], seed: int, block: int) -> Times:
    """Return the times of one block of samples.

    Models change the planned times one after another. Each block and each place in `models` has a generator
    of random numbers of its own.
    """
    times = planned_times(instance)
    for index, model in enumerate(models):
        model.apply(instance, times, np.random.default_rng([seed, block, index]))
    return times


def _run_block(
    runs: Sequence[OrderRun], draw: Callable[[int], Times], samples: int, block: int
) -> list[Found]:
    times = draw(block)
    return [run.run(times, min(BLOCK, samples - block * BLOCK)) for run in runs]
