"""An Order says what runs on each device in which sequence, and a Schedule also says when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import InputError
from ..kernels.arrays import Bools, Ints
from .instance import Instance
from .operation import FUSED, PAIRED, Operation, OpKind, operation_text

if TYPE_CHECKING:
    import pandas as pd


_KINDS = tuple(OpKind)  # _KINDS[number] takes a third of the time that OpKind(number) takes


def _frozen(values: object, *shape: int) -> Ints:
    array = np.ascontiguousarray(np.array(values, dtype=np.int64).reshape(shape))
    array.flags.writeable = False
    return array


def _integer_rows(operations: Sequence[tuple[object, ...]]) -> Ints:
    try:
        rows = np.array(operations) if operations else np.zeros((0, 3), np.int64)
    except ValueError:
        rows = np.zeros(0)  # the operations are not of one length
    if rows.dtype.kind != "i" or rows.shape[1:] != (3,):
        wrong = next((op for op in operations if np.array(op).dtype.kind != "i" or len(op) != 3), None)
        rule = "must be three integers of at most 64 bits: kind, stage and microbatch"
        raise InputError(rule, key="operation", value=wrong)
    return rows.astype(np.int64)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Order:
    """The sequence of operations on each device, without times.

    The sequence of a device consists of slots. A slot holds one operation, or an F and a B or BW that start
    together, end together and compute at the same time, as in DualPipe.

    Where an instance has `offload`, copies are slots as well. The sequence is that in which operations take
    and give memory: what takes memory waits for all rows before it that give memory. Beside that, a device
    computes, copies out and copies back at the same time, each in sequence.

    Parameters
    ----------
    operations
        Read-only array of shape (N, 3): kind, stage and microbatch of each operation. The rows of device 0
        come first, then those of device 1, and so on.
    offsets
        Read-only array of shape (devices + 1,): device d owns the rows ``offsets[d]:offsets[d + 1]``.
    joined
        Read-only array of shape (N,): 1 where an operation shares a slot with the operation of the next row,
        else 0. None means that every slot holds one operation.
    """

    operations: Ints
    offsets: Ints
    joined: Ints | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "operations", _frozen(self.operations, -1, 3))
        object.__setattr__(self, "offsets", _frozen(self.offsets, -1))
        joined = np.zeros(len(self.operations)) if self.joined is None else self.joined
        object.__setattr__(self, "joined", _frozen(joined, len(self.operations)))

    @classmethod
    def from_lists(cls, devices: Sequence[Iterable[Sequence[int]]]) -> Order:
        """Return the order whose operations are given as (kind, stage, microbatch), one iterable per device.

        Raises
        ------
        InputError
            If an operation is not three integers.
        """
        rows = [list(device) for device in devices]
        flat = [tuple(op) for device in rows for op in device]
        return cls(_integer_rows(flat), np.cumsum([0, *map(len, rows)]))

    @classmethod
    def from_slots(cls, devices: Sequence[Iterable[Sequence[Sequence[int]]]]) -> Order:
        """Return the order whose slots are given in sequence, one iterable of slots per device.

        A slot is a sequence of one operation, or of two that run together. An operation is given as (kind,
        stage, microbatch). Whether two operations may share a slot is not checked.

        Raises
        ------
        InputError
            If an operation is not three integers.
        """
        slots = [[list(slot) for slot in device] for device in devices]
        joined = [k + 1 < len(slot) for device in slots for slot in device for k in range(len(slot))]
        lists = [[op for slot in device for op in slot] for device in slots]
        plain = cls.from_lists(lists)
        return cls(plain.operations, plain.offsets, np.array(joined, dtype=np.int64))

    @classmethod
    def from_tokens(cls, operations: Ints, joined: Ints, offsets: Ints) -> Order:
        """Return the order of operations F, B and W, of which some run jointly.

        Parameters
        ----------
        operations
            Kind, stage and microbatch of each F, B and W, device after device, shape (N, 3).
        joined
            How each operation runs with the next one, shape (N,): `SINGLE` if it does not; `FUSED` at a B
            before its W, which become a BW; `PAIRED` at an F before such a B, with which it shares a slot.
        offsets
            Device d has the operations offsets[d] to offsets[d + 1] - 1, shape (devices + 1,).
        """
        kept = np.append(True, joined[:-1] != FUSED)  # a W that is fused stands in the BW
        rows = operations.copy()
        rows[joined == FUSED, 0] = OpKind.BW
        before = np.concatenate([[0], np.cumsum(kept)])
        return cls(rows[kept], before[offsets], (joined == PAIRED)[kept])

    @classmethod
    def parse(cls, text: str, slices: int = 0) -> Order:
        """Return the order of a text with one line per device and a space between slots.

        A slot is written as an operation, e.g. ``F0.0``, or as a pair, e.g. ``F0.0+BW1.2``. Where
        microbatches are cut into `slices`, an operation has the number of its slice, e.g. ``F0.0.1``.

        Raises
        ------
        InputError
            If a part of the text is not a slot.
        """
        lines = [line.split() for line in text.splitlines()]
        return cls.from_slots([[parse_slot(word, slices) for word in line] for line in lines])

    def text(self, slices: int = 0) -> str:
        """Return the text that `parse` reads; an order does not know the number of slices."""
        return "\n".join(" ".join(slot_text(slot, slices) for slot in device) for device in self.to_slots())

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Order of {len(self)} operations on {self.devices} devices>"

    def __len__(self) -> int:
        return len(self.operations)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Order):
            return NotImplemented
        fields = ("operations", "offsets", "pairs")
        return all(np.array_equal(getattr(self, f), getattr(other, f)) for f in fields)

    def __hash__(self) -> int:
        return hash((self.operations.tobytes(), self.offsets.tobytes(), self.pairs.tobytes()))

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.offsets) - 1

    @property
    def pairs(self) -> Ints:
        """The array `joined`, which is never None once the order is made."""
        assert self.joined is not None
        return self.joined

    @property
    def computes(self) -> Bools:
        """Whether each row computes, shape (N,), and is no copy."""
        kind = self.operations[:, 0]
        return np.asarray((kind != OpKind.O) & (kind != OpKind.L))

    @property
    def has_copies(self) -> bool:
        """Whether the order has copies."""
        return not self.computes.all()

    def part(self, kept: Bools) -> Order:
        """Return the order of the rows that are kept, of a pair both or none."""
        before = np.concatenate([[0], np.cumsum(kept)])
        return Order(self.operations[kept], before[self.offsets], self.pairs[kept])

    def without_copies(self) -> Order:
        """Return the order of what the devices compute."""
        return self.part(self.computes) if self.has_copies else self

    def rows(self, device: int) -> slice:
        """Return the rows of `operations`, and of a schedule's times, that belong to `device`."""
        return slice(int(self.offsets[device]), int(self.offsets[device + 1]))

    def operation_at(self, row: int) -> Operation:
        """Return the operation of a row."""
        kind, stage, microbatch = self.operations[row].tolist()
        return Operation(OpKind(kind), stage, microbatch)

    def to_lists(self) -> list[list[Operation]]:
        """Return the operations of each device, in sequence."""
        flat = [Operation(_KINDS[k], s, m) for k, s, m in self.operations.tolist()]
        return [flat[self.rows(d)] for d in range(self.devices)]

    def to_slots(self) -> list[list[tuple[Operation, ...]]]:
        """Return the slots of each device, in sequence; a slot is a tuple of one or two operations."""
        slots = []
        for device, operations in enumerate(self.to_lists()):
            mine: list[tuple[Operation, ...]] = []
            together: tuple[Operation, ...] = ()
            for op, joins in zip(operations, self.pairs[self.rows(device)].tolist(), strict=True):
                together = (*together, op)
                if not joins:
                    mine.append(together)
                    together = ()
            slots.append(mine)
        return slots


def parse_slot(text: str, slices: int = 0) -> tuple[Operation, ...]:
    """Return the slot of a text such as ``F0.0`` or ``F0.0+BW1.2``; `slices` as in `Operation.parse`.

    Raise an InputError if the text is neither an operation nor an F joined with a B or BW.
    """
    if "+" not in text:  # nearly all of them: a schedule file may have a million
        return (Operation.parse(text, slices),)
    return check_slot(Operation.parse(word, slices) for word in text.split("+"))


def check_slot(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return operations as one slot; raise an InputError unless it is one, or an F followed by a B or BW."""
    slot = tuple(operations)
    if len(slot) > 2 or (len(slot) == 2 and not is_pair(slot[0].kind, slot[1].kind)):
        rule = "only an F and a B or BW run together, written F0.0+BW1.2"
        raise InputError(rule, value=slot_text(slot))
    return slot


def slot_text(slot: Iterable[Operation], slices: int = 0) -> str:
    """Return the text form of a slot, e.g. ``F0.0`` or ``F0.0+BW1.2``; `slices` as in `Operation.parse`."""
    return "+".join(operation_text(*operation, slices) for operation in slot)


def is_pair(first: int, second: int) -> bool:
    """Return whether operations of these kinds, in this sequence, may share a slot."""
    return first == OpKind.F and second in (OpKind.B, OpKind.BW)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Schedule:
    """An order with the start and the end of each operation, in ticks.

    The class checks no rule of the model: `tightpipe.validate` says whether a schedule is valid.

    Parameters
    ----------
    instance
        The problem that the schedule is for.
    order
        The sequence of operations on each device.
    start, end
        Read-only arrays of shape (N,): one time in ticks for each row of ``order.operations``.
    """

    instance: Instance
    order: Order
    start: Ints
    end: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", _frozen(self.start, len(self.order)))
        object.__setattr__(self, "end", _frozen(self.end, len(self.order)))

    def __repr__(self) -> str:
        size, end = f"{self.order.devices}x{self.instance.microbatches}", self.end.max(initial=0)
        return (
            f"<Schedule {self.instance.placement.name} {size}: {len(self.order)} operations until tick {end}>"
        )

    def _repr_html_(self) -> str:
        """Return the Gantt chart as HTML, which a notebook shows."""
        from ..drawing import html_of  # imported late because drawing imports the model

        return html_of(self)

    def part(self, kept: Bools) -> Schedule:
        """Return the schedule of the rows that are kept, of a pair both or none."""
        return Schedule(self.instance, self.order.part(kept), self.start[kept], self.end[kept])

    def without_copies(self) -> Schedule:
        """Return what the devices compute, at the same times."""
        return self.part(self.order.computes) if self.order.has_copies else self

    def refuse_copies(self, what: str) -> None:
        """Raise an InputError if activations leave the devices, which `what` cannot do."""
        count = int((~self.order.computes).sum())
        if count:
            raise InputError(f"must be left out: {what} copies no activations", key="copies", value=count)

    def to_frame(self) -> pd.DataFrame:
        """Return the schedule as a table with one row per operation.

        Returns
        -------
        pandas.DataFrame
            The columns are `device`, `kind` (F, B, W, BW or, for copies, O or L), `stage`, `microbatch`,
            `slice` if microbatches are cut into slices, `start` and `end` in ticks, and `memory`, which is
            the most that the device holds while the operation runs, in the instance's unit. The rows are
            sorted by device, and within a device by the sequence of its operations.
        """
        from .simulate import frame_of  # imported here because it needs the simulator, which needs this file

        return frame_of(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        times = np.array_equal(self.start, other.start) and np.array_equal(self.end, other.end)
        return times and self.instance == other.instance and self.order == other.order

    def __hash__(self) -> int:
        return hash((self.order, self.start.tobytes(), self.end.tobytes()))
