"""An order that is ready to run in blocks of samples, and the arrays that its compiled simulator needs."""

from __future__ import annotations

import numpy as np

from ..core.metrics import charged_windows, cost
from ..core.schedule import Schedule
from ..core.simulate import simulate
from ..kernels.arrays import Floats, Ints
from .order_graph import OrderGraph, order_graph_of
from .sample_kernel import Criticality, SampleState, costs_of, run_samples, trace_critical
from .times import BLOCK, Times

Found = tuple[Floats, Floats, Criticality]
"""The cost and the largest busy time in each sample, in ticks, and the `Criticality` of all samples."""


class OrderRun:
    """The order of a schedule, prepared so that `run` can time it in one block of samples after another."""

    def __init__(self, schedule: Schedule) -> None:
        self.graph: OrderGraph = order_graph_of(schedule.instance, schedule.order)
        self.spans = not schedule.instance.whole
        self.release = begins_of(schedule)
        planned = simulate(schedule.instance, schedule.order, self.release)
        self.planned = cost(planned)
        begin, end = charged_windows(planned)
        self.begin, self.span = begin.astype(np.float64), (end - begin).astype(np.float64)
        self.word: Ints = np.arange(len(schedule.order))

    def run(self, times: Times, samples: int) -> Found:
        """Return costs, largest busy times and `Criticality` of the first `samples` samples of a block."""
        state, durations, lags = sample_state(self.graph), flat(times.duration), flat(times.lag)
        moment = self.begin[:, None] + times.moment * self.span[:, None]
        ran = run_samples(*(self.graph, self.word, durations, lags, moment, times.stall, self.release, state))
        assert ran == len(self.word), "the simulator has run this order without a deadlock"
        costs, found = np.empty(BLOCK), nothing_passed(len(self.word))
        costs_of(state, self.spans, costs)
        trace_critical(self.graph, self.word, lags, self.release, self.spans, samples, state, found)
        return costs[:samples], self._busy(durations)[:samples], found

    def _busy(self, durations: Floats) -> Floats:
        """Return the largest busy time of a device in each sample, without stalls, in ticks."""
        took = (durations[self.graph.part[:, 0]] + durations[self.graph.part[:, 1]]) * self.graph.scale[
            :, None
        ]
        busy: Floats = np.add.reduceat(took, self.graph.offsets[:-1])
        return np.asarray(busy.max(axis=0))


def nothing_passed(rows: int) -> Criticality:
    """Return an all-zero `Criticality` for an order with `rows` operations; samples are then added to it."""
    return Criticality(*(np.zeros(rows) for _ in Criticality._fields))


def begins_of(schedule: Schedule) -> Ints:
    """Return the tick before which each device does not begin under noise, shape (p,).

    For `device_span` that is the start of its first operation in the schedule, because until then the device
    is taken to be busy with the previous iteration. For `makespan` it is 0: all devices are free at once.
    """
    if schedule.instance.whole:
        return np.zeros(schedule.order.devices, np.int64)
    return schedule.start[schedule.order.offsets[:-1]]


def flat(values: Floats) -> Floats:
    """Return times as rows of K samples, one row for each operation or message, and a last row of zeros."""
    rows = values.reshape(-1, values.shape[-1])
    return np.concatenate([rows, np.zeros((1, values.shape[-1]))])


def sample_state(graph: OrderGraph) -> SampleState:
    """Return new arrays in which the simulator keeps the times of an order in one block of samples."""
    rows, devices = len(graph.home), len(graph.offsets) - 1
    end = np.zeros((rows + 1, BLOCK))
    return SampleState(
        end=end,
        sent=end.copy() if graph.occupancy else end,
        free=np.zeros((devices, BLOCK)),
        first=np.zeros((devices, BLOCK)),
        ran=np.zeros(rows + 1, np.bool_),
        head=np.zeros(devices, np.int64),
        before=np.zeros(rows, np.int64),
        sent_before=np.zeros(rows, np.int64),
        last=np.zeros(graph.links, np.int64),
    )
