"""What readers of exported files share: the content of a JSON text, and an order from rows of operations."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from ..core.errors import InputError
from ..core.operation import Operation
from ..core.schedule import Order, check_slot


def json_content(text: str) -> Any:
    """Return the content of a JSON text.

    Raises
    ------
    InputError
        If the text is not JSON, nested too deeply, or has an integer of too many digits.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON, or truncated: {error.msg} at line {error.lineno}") from None
    except RecursionError:
        raise InputError("is nested too deeply") from None
    except ValueError:  # Python refuses to convert integers of more digits
        raise InputError(f"holds an integer of more than {sys.get_int_max_str_digits()} digits") from None


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
