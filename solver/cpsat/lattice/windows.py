"""What a horizon decides: time windows and orders that hold in every schedule of cost at most T.

A *frame* is a set of devices whose operations all lie in an interval of length T: each device for
`device_span`, all devices together for `makespan`. Frames float against each other, so a time is known
only relative to a frame: ``head[e, i]`` is the least distance from the start of frame e to the start of
item i, ``tail[e, i]`` the least distance from the end of item i to the end of frame e. Either may be
negative, where another frame has to be passed through: the end of a frame lies at most T after its start.

Items are the elements of the queues, numbered queue after queue. ``before[i, y]`` elements of the y-th
queue of the item's device surely precede item i, and those from ``after[i, y]`` on surely follow it;
what lies between is undecided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tightpipe.instance import Objective
from tightpipe.operation import OpKind

from ...clock import Clock
from ...queues import Queues
from .propagate import CHANGED, CONTRADICTION, NEVER, propagate

Ints = NDArray[np.int64]
TOO_LARGE = "the model is too large to be built and searched within the time limit"
_SECONDS_PER_STEP = 1e-6  # measured, for one frame, item, and item before it on its device
_SECONDS_PER_ORDER = 1e-4  # building and presolving one order boolean


class Net(NamedTuple):
    """The queues as arrays; Q queues, p devices, at most M queues on one device."""

    first: Ints  # (Q + 1,) item of each queue's first element
    duration: Ints  # (Q,)
    delta: Ints  # (Q,)
    device: Ints  # (Q,)
    slot: Ints  # (Q,) position of the queue among those of its device
    members: Ints  # (p, M) queues of each device, -1 where there are fewer
    edges: Ints  # (E, 3) queue, queue that waits for it, lag
    sources: Ints  # (Q, M) for W queues the B queues that fill them, else -1
    limit: Ints  # (p,) memory limit, -1 where there is none
    frame: Ints  # (p,) frame of each device


@dataclass(frozen=True, slots=True)
class Windows:
    """What holds in every schedule of cost at most `horizon`.

    Parameters
    ----------
    horizon
        T, in ticks.
    feasible
        False when it is proven that no schedule has such a cost; the arrays mean nothing then.
    head, tail
        Shape (frames, items).
    before, after
        Shape (items, M).
    """

    horizon: int
    net: Net
    feasible: bool
    head: Ints
    tail: Ints
    before: Ints
    after: Ints

    @property
    def undecided(self) -> int:
        """Number of pairs of items whose order is open."""
        return int((self.after - self.before).clip(0).sum() - len(self.before)) // 2


def net_of(queues: Queues) -> Net:
    """Return the arrays of `queues`."""
    instance = queues.instance
    on = [queues.on(d) for d in range(instance.devices)]
    width = max(map(len, on))
    slot = [on[queue.device].index(q) for q, queue in enumerate(queues.queues)]
    sources = [
        queues.backwards_of(q) if queue.kind is OpKind.W else [] for q, queue in enumerate(queues.queues)
    ]
    limits = [instance.memory_limit(d) for d in range(instance.devices)]
    one_frame = instance.objective is Objective.MAKESPAN
    return Net(
        first=np.cumsum([0, *(queue.count for queue in queues.queues)]),
        duration=np.array([queue.duration for queue in queues.queues]),
        delta=np.array([queue.delta for queue in queues.queues]),
        device=np.array([queue.device for queue in queues.queues]),
        slot=np.array(slot),
        members=_padded(on, width),
        edges=np.array(queues.precedences()),
        sources=_padded(sources, width),
        limit=np.array([-1 if limit is None else limit for limit in limits]),
        frame=np.zeros(instance.devices, np.int64) if one_frame else np.arange(instance.devices),
    )


def windows_of(queues: Queues, horizon: int, clock: Clock | None = None) -> Windows:
    """Propagate the rules of the model under ``cost <= horizon`` until nothing more follows or time is up."""
    net = net_of(queues)
    items, frames = int(net.first[-1]), int(net.frame.max()) + 1
    head = np.full((frames, items), NEVER, np.int64)
    tail = np.full((frames, items), NEVER, np.int64)
    before, after = _open_orders(net)
    state = CHANGED
    while state == CHANGED and (clock is None or clock.left > 0):
        state = propagate(net, horizon, head, tail, before, after)
    return Windows(horizon, net, state != CONTRADICTION, head, tail, before, after)


def windows_pay(queues: Queues, seconds: float) -> bool:
    """Whether `windows_of` is expected to end within `seconds`."""
    instance = queues.instance
    frames = 1 if instance.objective is Objective.MAKESPAN else instance.devices
    items = sum(queue.count for queue in queues.queues)
    return frames * items * items / instance.devices * _SECONDS_PER_STEP < seconds


def model_pays(windows: Windows, seconds: float) -> bool:
    """Whether the model of these windows is expected to be built and presolved within `seconds`."""
    return windows.undecided * _SECONDS_PER_ORDER < seconds


def _open_orders(net: Net) -> tuple[Ints, Ints]:
    """Return orders in which only the sequence within each queue is decided."""
    count = np.diff(net.first)
    queue_of = np.repeat(np.arange(len(count)), count)
    on_device = net.members[net.device[queue_of]]
    before = np.zeros(on_device.shape, np.int64)
    after = np.where(on_device >= 0, count[on_device], 0)
    items = np.arange(len(queue_of))
    rank = items - net.first[queue_of]
    before[items, net.slot[queue_of]] = rank
    after[items, net.slot[queue_of]] = rank + 1
    return before, after


def _padded(rows: list[list[int]], width: int) -> Ints:
    return np.array([row + [-1] * (width - len(row)) for row in rows])
