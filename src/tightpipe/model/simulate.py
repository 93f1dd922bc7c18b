"""Start times of an order: the earliest ones, and those that are optimal for the instance's objective."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.errors import DeadlockError, InputError, plain
from ..kernels.arrays import Ints
from .graph_arrays import arrays_of, deltas_of, passing_of
from .instance import Instance
from .operation import OpKind
from .row_graph_kernel import (
    RowTimes,
    blocking,
    earliest_row_times,
    lacking_operation,
    row_graph_of,
    row_paths_from,
)
from .schedule import Order, Schedule
from .simulate_kernel import NO_PATH, Run, earliest_times, new_run, paths_from, traffic_of

if TYPE_CHECKING:
    import pandas as pd


_TOGETHER = 16  # devices whose paths are found in one pass; more would take much memory at a time


def simulate(instance: Instance, order: Order, release: ArrayLike | None = None) -> Schedule:
    """Return the schedule that starts every operation as early as its device and its predecessors allow.

    Copies start as early as their engines, and memory in the sequence of the order, allow.

    Parameters
    ----------
    instance
        The problem; the order's operations must be its operations.
    order
        The sequence of operations on each device.
    release
        Earliest start of each device's first operation, in ticks: one integer per device, as a sequence or
        an array. None means 0 everywhere.

    Returns
    -------
    Schedule
        The unique schedule with the smallest start times.

    Raises
    ------
    DeadlockError
        If operations wait for each other; the message names them.
    InputError
        If the order has another number of devices than the instance, an operation that the instance does not
        have, an operation twice, or a slot whose two operations cannot run together; or if `release` is not
        one integer per device.
    """
    earliest = _release_times(release, instance.devices)
    return simulation_of(instance, order).run(earliest)


class Simulation:
    """An order that is ready to run several times, with different releases; errors as in `simulate`."""

    def __init__(self, instance: Instance, order: Order) -> None:
        _check_devices_and_pairs(instance, order)
        self._instance, self._order, self._graph = instance, order, arrays_of(instance)
        self._prepare()

    def run(self, release: Ints) -> Schedule:
        """Return the schedule of least starts from `release` on; raise a DeadlockError with the circle."""
        return self._run(release)[0]

    def run_in_sequence(self, release: Ints) -> tuple[Schedule, Ints]:
        """Return the schedule of `run`, and the first row of each slot in the sequence of their starts.

        In this sequence each slot comes after those that it waits for.
        """
        schedule, sequence = self._run(release)
        return schedule, sequence[np.argsort(schedule.start[sequence], kind="stable")]

    def _run(self, release: Ints) -> tuple[Schedule, Ints]:
        """Return the schedule of `run`, and the first row of each slot as they were timed one by one."""
        done, slots, times = self._time(release)
        if done < len(self._order):
            raise DeadlockError(_describe_deadlock(self._instance, self._order, times.start))
        return Schedule(self._instance, self._order, times.start, times.end), times.sequence[:slots]

    def _prepare(self) -> None:
        self._run_of_items = new_run(self._graph, self._order)

    def _time(self, release: Ints) -> tuple[int, int, Run | RowTimes]:
        """Return the numbers of rows and of slots that can run, and their times."""
        order, run = self._order, self._run_of_items
        return *earliest_times(self._graph, order.offsets, order.pairs, release, run), run

    def longest_paths(self, sequence: Ints) -> tuple[Ints, Ints]:
        """Return the longest paths from the first start of each device to all first starts and last ends.

        Both are in ticks, shape (devices, devices) each; `NO_PATH` where there is no path. In `sequence` each
        slot comes after those that it waits for.
        """
        p = self._order.devices
        found = self._paths(sequence)
        to_first, to_last = (np.concatenate(part).reshape(p, p) for part in zip(*found, strict=True))
        for paths in (to_first, to_last):
            paths[paths < 0] = NO_PATH
        return to_first, to_last

    def _paths(self, sequence: Ints) -> list[tuple[Ints, Ints]]:
        order, p, run = self._order, self._order.devices, self._run_of_items
        traffic = traffic_of(self._graph, order.offsets, order.pairs, run, sequence)
        rest = self._graph, order.offsets, order.pairs, run, sequence, traffic
        return [paths_from(source, min(_TOGETHER, p - source), *rest) for source in range(0, p, _TOGETHER)]


class _CopySimulation(Simulation):
    """An order with copies that is ready to run several times."""

    def _prepare(self) -> None:
        self._rows = row_graph_of(self._instance, self._order)

    def _time(self, release: Ints) -> tuple[int, int, Run | RowTimes]:
        times = RowTimes(*(np.empty(len(self._order), np.int64) for _ in RowTimes._fields))
        return *earliest_row_times(self._rows, release, times), times

    def _paths(self, sequence: Ints) -> list[tuple[Ints, Ints]]:
        return [row_paths_from(source, self._rows, sequence) for source in range(self._order.devices)]


def simulation_of(instance: Instance, order: Order) -> Simulation:
    """Return an order that is ready to run several times; it raises an InputError as in `simulate`."""
    with_copies = instance.offload is not None and order.has_copies
    return (_CopySimulation if with_copies else Simulation)(instance, order)


def memory_trace(instance: Instance, order: Order) -> NDArray[np.int64]:
    """Return the memory that a device holds while it runs each of its operations, shape (N,).

    The array has one entry, in the instance's unit of memory, for each row of the order. An F takes memory
    from its start on, and a B or W frees memory at its end, so the largest entry of a device is its peak. The
    memory depends only on the order, not on the times. A copy out frees memory like a B, and a copy back
    takes memory like an F.
    """
    delta = deltas_of(instance, order)
    during = passing_of(instance, order)
    for device in range(order.devices):
        rows = order.rows(device)
        after = np.cumsum(delta[rows])
        during[rows] += after - np.minimum(delta[rows], 0)
    return during


def memory_events(schedule: Schedule, devices: Iterable[int] | None = None) -> Iterator[tuple[Ints, Ints]]:
    """Yield for each device times in ticks, and the memory that it holds from each of them until the next.

    The times ascend. At equal times what gives memory comes first, so that the last entry counts.
    """
    instance, order = schedule.instance, schedule.order
    delta, passing = deltas_of(instance, order), passing_of(instance, order)
    at = np.where(delta > 0, schedule.start, schedule.end)
    for device in range(order.devices) if devices is None else devices:
        rows = order.rows(device)
        change = np.concatenate([delta[rows], passing[rows], -passing[rows]])
        times = np.concatenate([at[rows], schedule.start[rows], schedule.end[rows]])
        events = np.lexsort((change, times))
        yield times[events], np.cumsum(change[events])


def memory_during(schedule: Schedule) -> NDArray[np.int64]:
    """Return the most memory that a device holds while each operation of a schedule runs, shape (N,).

    Without copies that is the `memory_trace` of its order, whatever the times. Copies may end or begin while
    an operation runs.
    """
    order, found = schedule.order, np.zeros(len(schedule.order), np.int64)
    if schedule.instance.offload is None or not order.has_copies:
        return memory_trace(schedule.instance, order)
    for device, (times, held) in enumerate(memory_events(schedule)):
        rows = order.rows(device)
        found[rows] = most_held(times, held, schedule.start[rows], schedule.end[rows])
    return found


def most_held(times: Ints, held: Ints, since: Ints, until: Ints) -> Ints:
    """Return the most memory within each of several intervals, for the events that `memory_events` yields."""
    first = np.searchsorted(times, since, "right") - 1  # the last event until the interval begins
    last = np.searchsorted(times, until)
    found = np.maximum.reduceat(np.append(held, 0), np.stack([first, last], axis=1).ravel())[::2]
    return np.asarray(found)


def _release_times(release: ArrayLike | None, devices: int) -> Ints:
    if release is None:
        return np.zeros(devices, np.int64)
    times = np.asarray(release)
    if times.shape != (devices,) or times.dtype.kind not in "iu":
        rule = f"must be one integer per device: {devices}"
        raise InputError(rule, key="release", value=plain(release))
    return times.astype(np.int64)


def _check_devices_and_pairs(instance: Instance, order: Order) -> None:
    if order.devices != instance.devices:
        raise InputError(f"the order has {order.devices} devices, the instance {instance.devices}")
    if not order.pairs.any():
        return
    first = np.flatnonzero(order.pairs)
    second = np.minimum(first + 1, len(order) - 1)
    kinds = order.operations[:, 0]
    fits = (kinds[first] == OpKind.F) & np.isin(kinds[second], (OpKind.B, OpKind.BW))
    fits &= ~np.isin(first + 1, order.offsets)  # the next row belongs to the next device
    if not fits.all():
        rule = "runs together with the next operation of its device, which must be a B or BW after an F"
        raise InputError(rule, value=instance.name(order.operation_at(int(first[~fits][0]))))


def _describe_deadlock(instance: Instance, order: Order, start: Ints) -> str:
    """Return a sentence that says which operations wait for each other in a circle.

    The search goes from a blocked operation to one that blocks it, until an operation repeats. If it meets an
    operation that no device runs, the sentence names that operation instead.
    """

    def name(row: int) -> str:
        return instance.name(order.operation_at(row))

    graph, seen = row_graph_of(instance, order), list[int]()
    here = int(np.flatnonzero(start < 0)[0])
    while here not in seen:
        seen.append(here)
        if graph.head[here] != here:  # the second operation of a pair waits for the first
            here = int(graph.head[here])
            continue
        wait = blocking(graph, here, start)
        before, after = int(graph.before[wait]), int(graph.after[wait])
        if not 0 <= before < len(order):
            lacking = lacking_operation(instance, order, before, after)
            return f"{name(after)} waits for {instance.name(lacking)}, which no device runs"
        here = before
    cycle = [*seen[seen.index(here) :], here]
    return "operations wait for each other: " + " waits for ".join(map(name, cycle))


def retime(instance: Instance, order: Order) -> Schedule:
    """Return the schedule of least cost that runs the given order.

    For `makespan` and `step` the earliest start times are optimal. For `device_span` it can be better that a
    device begins later than it could: this shortens the device's span, unless its last end moves by as many
    ticks. Among the optimal start times, the earliest are returned.

    Raises
    ------
    DeadlockError, InputError
        As in `simulate`.

    Notes
    -----
    Let D[d, e] be the longest path from the start of the first operation of device d to the end of the last
    operation of device e, and let x[d] be the start time of the first operation of device d. All spans are at
    most T if and only if x[e] >= x[d] + D[d, e] - T for all d and e. This system of difference constraints
    has a solution exactly when no cycle has a mean weight above T in the complete graph on the devices with
    loops, where the edge from d to e has the weight D[d, e]. The least integer T is thus the largest mean
    weight of a cycle, rounded up (Karp 1978).
    """
    simulation = simulation_of(instance, order)
    earliest, sequence = simulation.run_in_sequence(np.zeros(instance.devices, np.int64))
    if not np.diff(order.offsets).all():
        raise InputError("the order has a device that runs nothing")
    if instance.whole:
        return earliest
    least = _begin_distances(simulation, sequence)
    return simulation.run(_least_potential(least, np.minimum.reduceat(earliest.start, order.offsets[:-1])))


def begin_distances(instance: Instance, order: Order) -> Ints:
    """Return lower bounds on the time between the begins of devices in all cheapest schedules of an order.

    The result is in ticks, shape (devices, devices): device e begins at least entry [d, e] ticks after d.
    The entry is negative where e may begin before d, and 0 on the diagonal. The objective must be
    `device_span`, and every device must run something. Raise a DeadlockError or an InputError as in
    `simulate`.
    """
    simulation = simulation_of(instance, order)
    _, sequence = simulation.run_in_sequence(np.zeros(instance.devices, np.int64))
    return _begin_distances(simulation, sequence)


def _begin_distances(simulation: Simulation, sequence: Ints) -> Ints:
    to_first, to_last = simulation.longest_paths(sequence)
    least = np.maximum(to_first, to_last - _largest_cycle_mean(to_last))
    np.fill_diagonal(least, 0)
    return least


def _largest_cycle_mean(weight: NDArray[np.int64]) -> int:
    """Return the largest mean weight of a cycle in ticks, rounded up (Karp 1978)."""
    p = len(weight)
    walks = np.zeros((p + 1, p), np.int64)  # walks[k, v]: heaviest walk of k edges that ends at v
    for k in range(p):
        walks[k + 1] = np.maximum((walks[k][:, None] + weight).max(axis=0), NO_PATH)
    lengths = np.arange(p, 0, -1)
    means = -((walks[:p] - walks[p]) // lengths[:, None])  # ceil of (walks[p] - walks[k]) / (p - k)
    return int(means.min(axis=0).max())


def _least_potential(weight: NDArray[np.int64], floor: NDArray[np.int64]) -> Ints:
    """Return the least vector x >= floor with x[e] >= x[d] + weight[d, e] for all d and e, in ticks."""
    x = floor
    for _ in range(len(weight) + 1):
        x = np.maximum(floor, (x[:, None] + weight).max(axis=0))
    return x


def frame_of(schedule: Schedule) -> pd.DataFrame:
    """Return a table with one row per operation, whose columns `Schedule.to_frame` describes."""
    import pandas as pd  # imported here because pandas takes longer to load than all of this package

    order, slices = schedule.order, schedule.instance.slice_count
    kind, stage, unit = order.operations.T
    return pd.DataFrame(
        {
            "device": np.repeat(np.arange(order.devices), np.diff(order.offsets)),
            "kind": [OpKind(k).name for k in kind.tolist()],
            "stage": stage,
            "microbatch": unit // slices,
            **({"slice": unit % slices} if schedule.instance.slices else {}),
            "start": schedule.start,
            "end": schedule.end,
            "memory": memory_during(schedule),
        }
    )
