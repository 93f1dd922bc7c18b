"""The clocks of the devices are aligned by the messages between them.

A message cannot arrive before it was sent. If the clock of device a is put forward by o[a], each message from
a to b demands o[a] - o[b] <= (when b starts to compute with it) - (when a has computed it), each time by the
device's own clock. These difference constraints have a solution exactly when no cycle of devices has a
negative sum. If all o = 0 satisfy the constraints, the clocks are kept. Otherwise o[0] is 0, and messages in
both directions bound every other offset from both sides. The middle of the bounds is taken, as NTP does; an
offset without two bounds is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..base.errors import InputError
from ..kernels.arrays import Ints
from ..model.operation import Operation, OpKind
from .tracks import Timed
from .training_steps import Step

_FAR = 1 << 61  # nanoseconds; stands for no constraint, and the sum of two of them fits an int64


def aligned(
    steps: Sequence[Step], sources: Sequence[str], tolerance: int
) -> tuple[list[Step], tuple[int, ...]]:
    """Return the steps with times by one clock, and the offset by which each device's clock was put forward.

    An offset is in nanoseconds; a negative one puts the clock back.

    In the returned steps, no operation starts before its input was computed or before its device is free. An
    operation that starts earlier by the aligned clocks gets the earliest start that obeys this rule: either
    its recorded time began with the wait for its input, or the recorded times are slightly wrong. Raise an
    InputError if no offsets satisfy the messages within the tolerance, or two operations of a device overlap
    by more than the tolerance.

    - `steps`: training steps, each device by its own clock.
    - `sources`: name of each device's trace, for errors.
    - `tolerance`: nanoseconds by which a message may seem to arrive before it was sent.
    """
    offsets = _offsets(_slack(steps), sources, tolerance)
    return [_settled(step, offsets, sources, tolerance) for step in steps], offsets


def inputs_of(operation: Operation, stages: int) -> tuple[Operation, ...]:
    """Return the operations that may make the input of `operation`; none for an F of stage 0.

    For a B or BW before the last stage there are two: the B and the BW of the next stage, which runs only one
    of them. In all other cases there is one.
    """
    kind, stage, microbatch = operation
    if kind is OpKind.F:
        return (Operation(OpKind.F, stage - 1, microbatch),) if stage else ()
    if kind is OpKind.W:
        return (Operation(OpKind.B, stage, microbatch),)
    if stage == stages - 1:
        return (Operation(OpKind.F, stage, microbatch),)
    return tuple(Operation(kind, stage + 1, microbatch) for kind in (OpKind.B, OpKind.BW))


def edges(step: Step) -> Iterator[tuple[int, Timed, int, Timed]]:
    """Yield the device of the sender, the sender, the device of the receiver, and the receiver of each input.

    The sender is the operation that made an input, and the receiver the one that needs it; both may run on
    the same device. Receivers come sorted by their ends. So, if the clocks are aligned, an operation comes as
    a receiver before it comes as a sender.
    """
    homes = {timed.operation: (device, timed) for device, ran in enumerate(step) for timed in ran}
    stages = 1 + max(operation.stage for operation in homes)
    for device, timed in sorted(homes.values(), key=lambda home: home[1].end):
        inputs = inputs_of(timed.operation, stages)
        if timed.operation.kind is OpKind.W and inputs[0] not in homes:  # its stage has no B
            inputs = inputs_of(inputs[0], stages)
        for operation in inputs:
            if operation in homes:
                yield *homes[operation], device, timed


def _slack(steps: Sequence[Step]) -> Ints:
    """Return the least time from the end of an operation to the use of its result, shape (devices, devices).

    Rows stand for the sending device and columns for the receiving one. Times are in nanoseconds; without a
    message, the entry is `_FAR`. If the recorded time of an operation begins with the wait for its input, its
    end counts as the use, because the input may have come at any time until then.
    """
    slack = np.full((len(steps[0]), len(steps[0])), _FAR, np.int64)
    for step in steps:
        for sender, sent, receiver, used in edges(step):
            by = used.end if used.waits else used.start
            slack[sender, receiver] = min(slack[sender, receiver], by - sent.end)
    return slack


def _offsets(slack: Ints, sources: Sequence[str], tolerance: int) -> tuple[int, ...]:
    apart = ~np.eye(len(slack), dtype=bool)
    if (slack[apart] >= -tolerance).all():
        return (0,) * len(slack)
    least = np.where(slack < _FAR, slack + tolerance, _FAR)
    np.fill_diagonal(least, 0)
    for middle in range(len(least)):  # the shortest paths (Floyd and Warshall)
        least = np.minimum(least, np.clip(least[:, middle, None] + least[middle], -_FAR, _FAR))
    if (np.diag(least) < 0).any():
        raise _unaligned(slack, sources, tolerance)
    bounded = (least[0] < _FAR) & (least[:, 0] < _FAR)
    middle_of = (least[:, 0] - least[0]) // 2
    return tuple(np.where(bounded, middle_of, 0).tolist())


def _unaligned(slack: Ints, sources: Sequence[str], tolerance: int) -> InputError:
    """Return the error that names the two devices whose messages contradict each other most."""
    both = slack + slack.T
    np.fill_diagonal(both, _FAR)
    a, b = divmod(int(np.argmin(both)), len(both))
    early = int(both[a, b])
    if early >= -2 * tolerance:  # only a longer cycle of devices has a contradiction
        a, b = divmod(int(np.argmin(slack)), len(slack))
        early = int(slack[a, b])
    return InputError(
        f"the clocks of {sources[a]} and {sources[b]} cannot be aligned: whatever their offset, a message "
        f"arrives {-early / 1000:,.1f} us before it was sent (the tolerance is {tolerance / 1000:g} us); "
        "are the traces of the same steps?"
    )


def _settled(step: Step, offsets: tuple[int, ...], sources: Sequence[str], tolerance: int) -> Step:
    """Return a step by one clock, in which no operation starts before its input and its device are ready."""
    moved = tuple(
        tuple(timed._replace(start=timed.start + o, end=timed.end + o) for timed in ran)
        for ran, o in zip(step, offsets, strict=True)
    )
    ready = _ready_times(moved)
    settled: list[tuple[Timed, ...]] = []
    for ran, source in zip(moved, sources, strict=True):
        before: list[Timed] = []
        for timed in ran:
            free = before[-1].end if before else timed.start
            if not timed.waits and free - timed.start > tolerance:
                both = f"{before[-1].operation} and {timed.operation}"
                rule = f"{both} overlap by {(free - timed.start) / 1000:,.1f} us"
                raise InputError(f"{rule}; a device runs one operation at a time", source=source)
            start = max(timed.start, free, ready.get(timed.operation, timed.start))
            before.append(timed._replace(start=start, end=max(start, timed.end)))
        settled.append(tuple(before))
    return tuple(settled)


def _ready_times(step: Step) -> dict[Operation, int]:
    """Return when the input of each operation was computed, in nanoseconds."""
    ends: dict[Operation, int] = {}
    ready: dict[Operation, int] = {}
    for _, sent, _, used in edges(step):
        ready[used.operation] = ends.get(sent.operation, sent.end)
        ends[used.operation] = max(used.end, ready[used.operation])
    return ready
