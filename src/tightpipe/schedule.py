"""Order and Schedule: what runs on each device in which sequence, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .instance import Instance
from .operation import Operation, OpKind

Ints = NDArray[np.int64]


def _frozen(values: object, *shape: int) -> Ints:
    array = np.ascontiguousarray(np.array(values, dtype=np.int64).reshape(shape))
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False, slots=True)
class Order:
    """For each device the sequence of its operations.

    Parameters
    ----------
    operations
        Read-only array of shape (N, 3): kind, stage and microbatch of each operation, the devices
        one after another.
    offsets
        Read-only array of shape (devices + 1,): device d owns rows ``offsets[d]:offsets[d + 1]``.
    """

    operations: Ints
    offsets: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "operations", _frozen(self.operations, -1, 3))
        object.__setattr__(self, "offsets", _frozen(self.offsets, -1))

    @classmethod
    def from_lists(cls, devices: Sequence[Iterable[Sequence[int]]]) -> Order:
        """Build an order from one iterable of (kind, stage, microbatch) per device."""
        rows = [list(device) for device in devices]
        flat = [tuple(op) for device in rows for op in device]
        return cls(np.array(flat, dtype=np.int64), np.cumsum([0, *map(len, rows)]))

    @classmethod
    def parse(cls, text: str) -> Order:
        """Read the text form: one line per device, operations separated by spaces.

        Raises
        ------
        InputError
            If a word is not an operation.
        """
        return cls.from_lists(
            [[Operation.parse(word) for word in line.split()] for line in text.splitlines()]
        )

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, device)) for device in self.to_lists())

    def __len__(self) -> int:
        return len(self.operations)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Order):
            return NotImplemented
        return np.array_equal(self.operations, other.operations) and np.array_equal(
            self.offsets, other.offsets
        )

    def __hash__(self) -> int:
        return hash((self.operations.tobytes(), self.offsets.tobytes()))

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.offsets) - 1

    def rows(self, device: int) -> slice:
        """Rows of `operations` (and of a schedule's times) that belong to `device`."""
        return slice(int(self.offsets[device]), int(self.offsets[device + 1]))

    def to_lists(self) -> list[list[Operation]]:
        """Return the operations of each device."""
        flat = [Operation(OpKind(k), s, m) for k, s, m in self.operations.tolist()]
        return [flat[self.rows(d)] for d in range(self.devices)]


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """An order with times, in ticks.

    Nothing is checked here: `tightpipe.validate` says whether a schedule is valid.

    Parameters
    ----------
    instance
        The problem that the schedule is for.
    order
        The operations.
    start, end
        Read-only arrays of shape (N,), one time per row of ``order.operations``.
    """

    instance: Instance
    order: Order
    start: Ints
    end: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", _frozen(self.start, len(self.order)))
        object.__setattr__(self, "end", _frozen(self.end, len(self.order)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        times = np.array_equal(self.start, other.start) and np.array_equal(self.end, other.end)
        return times and self.instance == other.instance and self.order == other.order

    def __hash__(self) -> int:
        return hash((self.order, self.start.tobytes(), self.end.tobytes()))
