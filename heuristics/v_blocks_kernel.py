"""Compiled loops that repeat, reorder and run the building blocks of V schedules at real costs.

**To repeat and to reorder a block**, time is counted in time units, of which an F, a B and a W take one each.
A table says which pass each device runs in each time unit. The passes are numbered along the V: 0 and 1 are F
of the lower and F of the upper stage, 2 and 3 are the backward of the upper and of the lower stage, and
`WEIGHT` is a W of either stage. On a device, passes with the same number run in the sequence of the
microbatches, so the table does not store the microbatch. Memory is counted in activations of one stage: an F
takes one, and a W or a fused backward frees one.

**To run the result at real costs**, it becomes a *plan*, which gives each device the sequence of all but its
last F's and B's. A plan was made for simpler costs, e.g. for equal durations of F, B and W. At real costs two
things are decided anew. A W runs where the device would idle long enough, or where the next F of the plan
needs memory. And where its plan ends, a device chooses among its operations by due dates (`list_kernel`), and
may wait for one that is due early.

References
----------
Squeezing and reordering: Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362,
section 3.3.
"""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled, compiled_with_arrays
from tightpipe.model.operation import OpKind

from .list_kernel import DueDates, decide, due_date
from .list_state_kernel import NEVER, State, may_start, next_to_decide, oldest_pending, start_operation

PERIOD = 6  #: time units from one microbatch to the next: two F's, two B's and two W's
WEIGHT = 4
_SECOND_HALF = 5  # second time unit of a fused backward
_IDLE = -1
_PASSES = 4


@compiled_with_arrays
def reordered(block: Ints, microbatches: int, backward: int, steady: bool) -> Ints:
    """Return the table of passes after reordering, shape (devices, time units).

    In the table, -1 means idle, and 5 is the second time unit of a fused backward. The `block` has the time
    units at which the passes of the first microbatch start, shape (4, devices); `backward` is 2 where a
    backward is fused with its W, else 1. If `steady`, as in the authors' runtime, passes stay where the
    repeated block has them from the end of the first microbatch until the last one begins, or to the end if
    that is before. Otherwise passes move at all times.
    """
    table = _repeated(block, microbatches, backward)
    if backward == 1:
        _place_weights(table, np.zeros(len(table), np.int64))
    stay = block[_PASSES - 1, 0] if steady else table.shape[1]
    last = block[0, 0] + PERIOD * (microbatches - 1)
    _pull_forward(table, microbatches, backward, stay, last if last > stay else table.shape[1])
    if backward == 1:
        last = _last_forwards(table)
        _drop_weights(table, last)
        _pull_backwards(table, microbatches, last)
        _place_weights(table, last)
    return table


@compiled_with_arrays
def steady_peak(block: Ints, backward: int) -> int:
    """Return the most activations that a device holds while the block, as in `reordered`, is repeated."""
    lifetime = _largest(block) // PERIOD + 2
    table = _repeated(block, 2 * lifetime, backward)
    if backward == 1:
        _place_weights(table, np.zeros(len(table), np.int64))
    return _largest(_memory(table, backward))


@compiled_with_arrays
def _largest(table: Ints) -> int:  # the method of an array takes longer to compile
    largest = table[0, 0]
    for row in table:
        for value in row:
            largest = max(largest, value)
    return int(largest)


@compiled_with_arrays
def _repeated(block: Ints, microbatches: int, backward: int) -> Ints:
    devices = block.shape[1]
    # At the end there is room for all W's of a device, because they may all run after its last B.
    horizon = _largest(block) + PERIOD * microbatches + 2 * microbatches + 2
    table = np.full((devices, horizon), _IDLE, np.int64)
    for which in range(_PASSES):
        for device in range(devices):
            for m in range(microbatches):
                time = block[which, device] + PERIOD * m
                table[device, time] = which
                if which >= 2 and backward == 2:
                    table[device, time + 1] = _SECOND_HALF
    return table


@compiled_with_arrays
def _place_weights(table: Ints, after: Ints) -> None:
    """Place pending W's into the idle time units of each device that are later than `after[device]`."""
    for device in range(len(table)):
        due = 0
        for time in range(table.shape[1]):
            if table[device, time] in (2, 3):
                due += 1
            elif table[device, time] == WEIGHT:
                due -= 1
            elif table[device, time] == _IDLE and due > 0 and time > after[device]:
                table[device, time] = WEIGHT
                due -= 1


@compiled_with_arrays
def _drop_weights(table: Ints, after: Ints) -> None:
    for device in range(len(table)):
        for time in range(after[device] + 1, table.shape[1]):
            if table[device, time] == WEIGHT:
                table[device, time] = _IDLE


@compiled_with_arrays
def _last_forwards(table: Ints) -> Ints:
    last = np.zeros(len(table), np.int64)
    for device in range(len(table)):
        for time in range(table.shape[1]):
            if table[device, time] in (0, 1):
                last[device] = time
    return last


@compiled_with_arrays
def _pull_forward(table: Ints, microbatches: int, backward: int, stay: int, until: int) -> None:
    """Move each pass to the earliest idle time unit that its predecessors and the peak memory allow.

    Passes from time unit `stay` to time unit `until` do not move.
    """
    devices, horizon = table.shape
    memory, takes = _memory(table, backward), _memory_taken(backward)
    peak = _largest(memory)
    end = np.zeros((_PASSES, devices, microbatches), np.int64)
    count = np.zeros((_PASSES + 1, devices), np.int64)
    backwards = np.zeros((devices, 2 * microbatches), np.int64)  # time units of B's that have moved, sorted
    last_weight = np.full(devices, -1)
    for time in range(horizon):
        for device in range(devices):
            which = table[device, time]
            if which in (_IDLE, _SECOND_HALF):
                continue
            m = count[which, device]
            count[which, device] += 1
            length = backward if which in (2, 3) else 1
            if stay <= time <= until:
                to = time
            elif which == WEIGHT:
                # W number m comes after B number m and after W number m - 1
                due = max(backwards[device, m], last_weight[device]) + 1
                to = _earliest(table, device, due, time, length)
            elif which < 2:
                to = _earliest_within(table, memory, device, _ready(end, which, device, m), time, peak)
            else:
                to = _earliest(table, device, _ready(end, which, device, m), time, length)
            _move(table, device, time, to, length)
            for moved in range(to, time):  # an assignment to a slice takes seconds to compile
                memory[device, moved] += takes[which]
            if which in (2, 3):
                _insert(backwards[device], count[2, device] + count[3, device] - 1, to)
            if which == WEIGHT:
                last_weight[device] = to
            else:
                end[which, device, m] = to + length


@compiled_with_arrays
def _pull_backwards(table: Ints, microbatches: int, after: Ints) -> None:
    """Move the B's after each device's last F, where memory cannot rise, to the earliest idle time units."""
    devices, horizon = table.shape
    end = np.zeros((_PASSES, devices, microbatches), np.int64)
    count = np.zeros((_PASSES, devices), np.int64)
    for time in range(horizon):
        for device in range(devices):
            which = table[device, time]
            if which in (_IDLE, WEIGHT):
                continue
            m = count[which, device]
            count[which, device] += 1
            to = time
            if which >= 2 and time > after[device]:
                ready = max(_ready(end, which, device, m), after[device] + 1)
                to = _earliest(table, device, ready, time, 1)
                _move(table, device, time, to, 1)
            end[which, device, m] = to + 1


@compiled_with_arrays
def _memory_taken(backward: int) -> Ints:
    """Return the activations that each pass number adds; the last two are `WEIGHT` and `_SECOND_HALF`."""
    return np.array([1, 1, 0, 0, -1, 0]) if backward == 1 else np.array([1, 1, -1, -1, 0, 0])


@compiled_with_arrays
def _memory(table: Ints, backward: int) -> Ints:
    """Return how many activations each device holds in each time unit, shape (devices, time units)."""
    takes = _memory_taken(backward)
    memory = np.zeros_like(table)
    for device in range(len(table)):
        held = 0
        for time in range(table.shape[1]):
            if table[device, time] != _IDLE:
                held += takes[table[device, time]]
            memory[device, time] = held
    return memory


@compiled_with_arrays
def _ready(end: Ints, which: int, device: int, m: int) -> int:
    """Return the earliest start of pass `which` of microbatch `m` on a device.

    The pass starts after its predecessor, and after the same pass of microbatch `m` - 1. `end` has the
    ends of the passes that have been moved so far, shape (4, devices, microbatches).
    """
    devices = end.shape[1]
    ready = end[which, device, m - 1] if m > 0 else 0
    down = which in (0, 2)
    before = device - 1 if down else device + 1
    if 0 <= before < devices:
        ready = max(ready, end[which, before, m])
    elif which > 0:
        ready = max(ready, end[which - 1, device, m])  # the way along the V turns at this device
    return int(ready)


@compiled_with_arrays
def _insert(times: Ints, count: int, time: int) -> None:
    """Insert a time unit into the first `count` entries of `times`, which are sorted."""
    while count > 0 and times[count - 1] > time:
        times[count] = times[count - 1]
        count -= 1
    times[count] = time


@compiled_with_arrays
def _earliest(table: Ints, device: int, ready: int, time: int, length: int) -> int:
    """Return the earliest time unit from `ready` on to which a pass of this length at `time` can move."""
    for to in range(ready, time):
        if table[device, to] == _IDLE and (length == 1 or to + 1 == time or table[device, to + 1] == _IDLE):
            return to
    return time


@compiled_with_arrays
def _earliest_within(table: Ints, memory: Ints, device: int, ready: int, time: int, peak: int) -> int:
    """Return the earliest idle time from `ready` on from which an F at `time` holds no more than `peak`."""
    to = time
    for candidate in range(time - 1, ready - 1, -1):
        if memory[device, candidate] >= peak:
            break
        if table[device, candidate] == _IDLE:
            to = candidate
    return to


@compiled_with_arrays
def _move(table: Ints, device: int, time: int, to: int, length: int) -> None:
    which = table[device, time]
    table[device, time] = _IDLE
    if length == 2:
        table[device, time + 1] = _IDLE
    table[device, to] = which
    if length == 2:
        table[device, to + 1] = _SECOND_HALF


_F, _W = int(OpKind.F), int(OpKind.W)


@compiled_with_arrays
def run_planned(state: State, plan: Ints, due: DueDates, patience: float) -> bool:
    """Run all operations of an instance with one class of microbatches, and return whether memory suffices.

    - `state`: the state before any operation has started, which is changed. Its devices run no pairs.
    - `plan`: kind and stage of F's and B's of each device in the sequence in which they run, shape (p, rows,
      2), kind -1 after the last. Of a kind and stage, microbatches run in sequence.
    - `due`: the due dates after the plan. By its `overrun` a W may delay each operation of the plan.
    - `patience`: after the plan, a device waits for an operation that is due before every ready one, if it
      arrives within this share of the ready one's duration.
    """
    devices = state.devices
    done = np.zeros(len(devices), np.int64)
    left = state.joined.size
    while left > 0:
        device = next_to_decide(devices)
        if devices[device].wake >= NEVER:
            return False
        planned = done[device] < plan.shape[1] and plan[device, done[device], 0] >= 0
        if planned and plan[device, done[device], 0] == _W:
            done[device] += 1
            stage = oldest_pending(state, device)
            if stage >= 0:
                left -= start_operation(state, _W, stage)
            continue
        if planned:
            kind, stage, resume = _planned(state, device, plan[device, done[device]], due.overrun)
        else:
            kind, stage, resume = _unplanned(state, device, due, patience)
        if stage >= 0:
            left -= start_operation(state, kind, stage)
            if planned and kind != _W:
                done[device] += 1
        elif resume <= devices[device].wake:
            return False
        else:
            devices[device].wake = resume
    return True


@compiled
def _planned(state: State, device: int, row: Ints, overrun: float) -> tuple[int, int, int]:
    """Return kind and stage of the operation that `device` starts now, where its plan goes on with `row`.

    If it starts none, the stage is -1, and the third number is the tick at which it decides again, or -1 if
    no W is left that could free the memory for the next F.
    """
    me, kind, stage = state.devices[device], row[0], row[1]
    if kind == _F and me.used + state.stages[stage].delta[_F] > me.limit:
        return _W, oldest_pending(state, device), -1
    return _or_weight(state, device, kind, stage, overrun)


@compiled
def _or_weight(state: State, device: int, kind: int, stage: int, overrun: float) -> tuple[int, int, int]:
    """Return the next operation of a kind and stage if it is ready, else a W that delays it little, if any.

    The result is as in `_planned`; the device decides again when the operation is ready.
    """
    me, ready = state.devices[device], state.stages[stage].ready[kind]
    if ready <= me.wake:
        return kind, stage, 0
    pending = oldest_pending(state, device)
    if pending >= 0:
        weight = state.stages[pending].duration[_W]
        if me.wake + weight - ready <= overrun * weight:
            return _W, pending, 0
    return _W, -1, ready


@compiled
def _unplanned(state: State, device: int, due: DueDates, patience: float) -> tuple[int, int, int]:
    """Return as in `_planned` what `device` starts, or does until a more urgent operation arrives."""
    kind, stage, resume = decide(state, device, due)
    if kind == _W or stage < 0:
        return kind, stage, resume
    now, stages, local = state.devices[device].wake, state.stages, state.local[device]
    until = now + patience * stages[stage].duration[kind]
    first_kind, first_stage = kind, stage
    earliest = due_date(state, kind, stage, due.last, due.pace)
    for i in range(len(local)):
        for other in range(2):
            if not now < stages[local[i]].ready[other] <= until:
                continue
            if other == _F and not may_start(state, local[i], due.reserve):
                continue
            date = due_date(state, other, local[i], due.last, due.pace)
            if date < earliest:
                first_kind, first_stage, earliest = other, local[i], date
    return _or_weight(state, device, first_kind, int(first_stage), due.overrun)
