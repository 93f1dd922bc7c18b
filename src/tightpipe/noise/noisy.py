"""Schedules under noise: what their orders cost in random samples, and where their delays come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..core.errors import InputError
from ..core.instance import Instance
from ..core.integers import check_int
from ..core.schedule import Schedule
from ..kernels.arrays import Floats
from .order_run import Found, OrderRun, nothing_passed
from .times import BLOCK, NoiseModel, Times, planned_times

QUANTILE = 0.95


@dataclass(frozen=True, slots=True)
class Distribution:
    """Figures of the costs of a schedule in random samples, in ticks.

    Parameters
    ----------
    mean
        The mean of the costs.
    deviation
        The standard deviation of the costs (with n - 1 in the denominator); 0 for a single sample.
    p95
        The 95th percentile of the costs, with linear interpolation between two samples.
    worst
        The largest cost.
    """

    mean: float
    deviation: float
    p95: float
    worst: float

    @classmethod
    def of(cls, costs: Floats) -> Distribution:
        """Return the figures of `costs`, which has at least one entry."""
        deviation = float(costs.std(ddof=1)) if len(costs) > 1 else 0.0
        return cls(float(costs.mean()), deviation, float(np.quantile(costs, QUANTILE)), float(costs.max()))


MOST_SAMPLES = 10**6


@dataclass(frozen=True, eq=False, slots=True)
class Noisy:
    """A schedule's costs under noise, and how often each of its operations lies on the critical path.

    Parameters
    ----------
    schedule
        The schedule, whose order stays as it is in every sample.
    planned
        What the schedule's order costs without noise, in ticks.
    costs
        What the order costs in each sample, in ticks, shape (samples,).
    busy
        The largest busy time of a device in each sample, in ticks, shape (samples,): no order with the same
        pairs costs less in this sample.
    critical
        Share of the samples in which the critical path goes through each operation, shape (N,), in the
        sequence of the order's rows.
    delay
        Ticks that each operation adds to the critical path, as a mean over all samples, shape (N,). In a
        sample, an operation on the path adds the ticks from when it could start to its end, less its planned
        ticks. That is negative for an operation that takes less than planned. An operation that is not on the
        path adds 0. Of a pair, the first row has the ticks that the whole pair adds, and the second has 0.
    message_critical, message_delay
        The same as `critical` and `delay` for the message that each operation waits for; 0 where there is
        none.
    """

    schedule: Schedule
    planned: int
    costs: Floats
    busy: Floats
    critical: Floats
    delay: Floats
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
    """Run schedules of one instance under the same random samples.

    Parameters
    ----------
    schedules
        At least one valid schedule; all of the same instance. Only their orders and first starts are used.
        Where the objective is `device_span`, no device begins before its first operation does in the
        schedule; where it is `makespan`, all devices may begin at time 0. Every operation starts as early as
        it then can.
    models
        The models of noise, which change the planned times one after another.
    samples
        Number of samples, 1 to 10^6.
    seed
        Seed, 0 to 2^31 - 1. With the same seed, an operation takes the same time in every schedule of the
        instance, and the samples of a shorter run are the first samples of a longer one.
    workers
        Number of threads, 1 to 1024; None takes as many as the machine has cores. The result is the same for
        any number.

    Returns
    -------
    list of Noisy
        One for each schedule.

    Raises
    ------
    InputError
        If a number is out of range, if schedules belong to different instances, or if a model does not fit
        the instance.
    """
    check_int("samples", samples, 1, MOST_SAMPLES)
    check_int("seed", seed, 0, 2**31 - 1)
    threads = check_int("workers", (os.cpu_count() or 1) if workers is None else workers, 1, 1024)
    instance = schedules[0].instance
    if any(schedule.instance != instance for schedule in schedules):
        raise InputError("schedules must be of the same instance, to run under the same noise")
    if instance.barrier is not None:
        rule = "noise knows no ready, reduce and optimizer; leave them out, or take another objective"
        raise InputError(rule, key="step", value=instance.step)
    for model in models:
        model.check(instance)
    runs = [OrderRun(schedule) for schedule in schedules]
    sums = [_Sum(schedule, run.planned) for schedule, run in zip(schedules, runs, strict=True)]
    run_block = partial(_run_block, runs, partial(draw_times, instance, models, seed), samples)
    blocks = -(-samples // BLOCK)
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, blocks, threads):  # few at once, as the times of a block take much memory
            for found in pool.map(run_block, range(first, min(first + threads, blocks))):
                for total, block in zip(sums, found, strict=True):
                    total.add(block)
    return [total.noisy() for total in sums]


def draw_times(instance: Instance, models: Sequence[NoiseModel], seed: int, block: int) -> Times:
    """Return the times of one block of samples.

    Parameters
    ----------
    instance
        The problem.
    models
        The models of noise, which change the planned times one after another.
    seed
        Seed of the random numbers. Each block and each place in `models` has a generator of its own.
    block
        Index of the block, from 0; a block has `BLOCK` samples.
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


class _Sum:
    """What is known of one order after some blocks: costs, busy times and the sums of `Criticality`."""

    def __init__(self, schedule: Schedule, planned: int) -> None:
        self.schedule, self.planned = schedule, planned
        self.costs: list[Floats] = []
        self.busy: list[Floats] = []
        self.passed = nothing_passed(len(schedule.order))

    def add(self, block: Found) -> None:
        costs, busy, passed = block
        self.costs.append(costs)
        self.busy.append(busy)
        for total, more in zip(self.passed, passed, strict=True):
            total += more

    def noisy(self) -> Noisy:
        costs, busy = np.concatenate(self.costs), np.concatenate(self.busy)
        shares = (total / len(costs) for total in self.passed)
        return Noisy(self.schedule, self.planned, costs, busy, *shares)
