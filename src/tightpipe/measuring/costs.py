"""Measured costs: how long operations take at each stage, and how much that varies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import Any

import numpy as np

from ..base.tables import csv_text
from ..model.instance import Instance
from ..model.microbatches import ClassTimes
from ..model.operation import Operation, OpKind
from .clocks import edges
from .training_steps import Step

_DIGITS = 4


def variation_table(costs: Sequence[Cost]) -> str:
    """Return a CSV table with the coefficient of variation of F, B and W at each stage.

    The coefficient of variation is the standard deviation of the times over their mean. Where microbatches
    differ, it is the root mean square of the coefficients of their classes. Where all backwards
    of a stage were fused, only the sum of B and W was measured. Then B and W count as two equal halves of the
    sum, as in the measured instance. The coefficient of each half is that of the sum times the square root of
    2: the noise model draws B and W independently, and only then does their sum vary as measured.
    """
    squares: defaultdict[tuple[int, OpKind], list[float]] = defaultdict(list)  # one for each operation
    for cost in costs:
        squares[cost.stage, cost.kind] += [(cost.deviation / cost.mean) ** 2] * cost.count
    measured = {key: sqrt(fmean(found)) for key, found in squares.items()}
    rows = []
    for stage in sorted({cost.stage for cost in costs}):
        half = sqrt(2) * measured.get((stage, OpKind.BW), 0.0)
        for kind in (OpKind.F, OpKind.B, OpKind.W):
            rows.append((stage, kind.name, round(measured.get((stage, kind), half), _DIGITS)))
    return csv_text(("stage", "kind", "variation"), rows)


_MICRO = 1000.0  # nanoseconds of a microsecond


@dataclass(frozen=True, slots=True)
class Cost:
    """How long the operations of one kind, stage and class took, over all steps, in microseconds.

    Parameters
    ----------
    kind, stage
        Kind and stage of the operations.
    count
        Number of the operations that ran.
    median, mean, deviation
        Median, mean and standard deviation of the times of the operations.
    p95, longest
        The 95th percentile of the times, and the longest time.
    slowest
        The operation that took longest.
    jitter
        Standard deviation of the logarithm of the times: the sigma of a lognormal distribution.
    mb_class
        Class of the microbatches; 0 where all are alike.
    """

    kind: OpKind
    stage: int
    count: int
    median: float
    mean: float
    deviation: float
    p95: float
    longest: float
    slowest: Operation
    jitter: float
    mb_class: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data for JSON."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return plain | {"kind": self.kind.name, "slowest": str(self.slowest)}


def costs_of(steps: Sequence[Step], plan: Instance | None = None) -> tuple[Cost, ...]:
    """Return the costs of each kind, stage and class that ran, sorted by stage, kind and class.

    The classes of microbatches are those of `plan`; without one, all are of class 0.
    """
    samples: dict[tuple[int, OpKind, int], list[tuple[float, Operation]]] = defaultdict(list)
    for step in steps:
        for ran in step:
            for operation, start, end, *_ in ran:
                mb_class = 0 if plan is None or plan.alike else plan.mb_class(operation.microbatch)
                key = operation.stage, operation.kind, mb_class
                samples[key].append(((end - start) / _MICRO, operation))
    return tuple(_cost(kind, stage, took, c) for (stage, kind, c), took in sorted(samples.items()))


def _cost(kind: OpKind, stage: int, took: list[tuple[float, Operation]], mb_class: int) -> Cost:
    times = np.array([time for time, _ in took])
    longest, slowest = max(took)
    middle, p95 = np.percentile(times, (50, 95)).tolist()
    jitter = float(np.log(np.maximum(times, 1 / _MICRO)).std())
    numbers = len(took), middle, float(times.mean()), float(times.std()), p95, longest
    return Cost(kind, stage, *numbers, slowest, jitter, mb_class)


def planned_times(costs: Sequence[Cost], stages: int, mb_class: int = 0) -> ClassTimes:
    """Return the measured times of a class in an instance with this number of stages.

    They are the median times, in ticks of one microsecond, and at least 1; 0 for a B or a W that a stage does
    not have. Where all backwards of a stage were fused, their time is divided equally between B and W, and
    where none was, a fused one counts as the two together.
    """
    took = {
        (cost.kind, cost.stage): max(1, round(cost.median)) for cost in costs if cost.mb_class == mb_class
    }
    columns = []
    for stage in range(stages):
        both = took.get((OpKind.BW, stage))
        half = 0 if both is None else max(1, both // 2)
        backward, weight = (took.get((kind, stage), half) for kind in (OpKind.B, OpKind.W))
        if both is not None and (OpKind.B, stage) not in took:
            weight = max(1, both - half)
        columns.append((took[OpKind.F, stage], backward, weight, both or max(1, backward + weight)))
    f, b, w, fused = zip(*columns, strict=True)
    return f, b, w, fused


def message_times(steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    """Return the median time of a message from each device (row) to each other (column), in microseconds.

    No trace records when a message arrives. But a device that was idle when a message was sent to it starts
    to compute as soon as the message arrives. The median is taken over these messages. Between two devices
    without such a message, the least time from the end of an operation to the use of its result is taken.
    """
    devices = len(steps[0])
    waited: dict[tuple[int, int], list[int]] = defaultdict(list)
    least: dict[tuple[int, int], int] = {}
    for step in steps:
        free = {b.operation: a.end for ran in step for a, b in pairwise(ran)}
        for sender, sent, receiver, used in edges(step):
            gap, link = used.start - sent.end, (sender, receiver)
            least[link] = min(gap, least.get(link, gap))
            if free.get(used.operation, sent.end) <= sent.end:
                waited[link].append(gap)
    typical = least | {link: float(np.median(gaps)) for link, gaps in waited.items()}
    return tuple(
        tuple(round(typical.get((i, j), 0) / _MICRO) if i != j else 0 for j in range(devices))
        for i in range(devices)
    )
