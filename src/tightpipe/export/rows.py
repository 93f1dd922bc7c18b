"""An order is built from the rows of a file, which has one row per operation."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.errors import InputError
from ..core.operation import Operation
from ..core.schedule import Order, check_slot


def order_of_rows(rows: Iterable[tuple[int, Operation, bool]]) -> Order:
    """Return the order that the rows of a file describe.

    A row holds a device, an operation, and whether this operation runs together with that of the row before.
    The rows of a device come in the sequence in which it runs their operations.

    Raises
    ------
    InputError
        If the devices do not come one after another from 0 on, or two operations are joined that cannot run
        together.
    """
    devices: list[list[list[Operation]]] = []
    for device, operation, together in rows:
        if device == len(devices):
            devices.append([])
        if device < 0 or device != len(devices) - 1:
            raise InputError("the devices must come one after another from 0", key="device", value=device)
        if together and devices[device]:
            devices[device][-1].append(operation)
            check_slot(devices[device][-1])
        else:
            devices[device].append([operation])
    return Order.from_slots(devices)
