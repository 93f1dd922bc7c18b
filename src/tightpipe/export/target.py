"""An export target is a file format of another program; what its writers and readers share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..base.errors import InputError
from ..model.operation import Operation
from ..model.schedule import Order, Schedule, check_slot
from .model_split import ModelSplit

Written = TypeVar("Written", Schedule, ModelSplit)
"""What is written: a schedule, or the cut of a model."""
Read = TypeVar("Read", Order, ModelSplit)
"""What a file says: the order of a schedule, or the cut of a model."""


def unchanged(content: Any, **options: object) -> Any:
    """Return the content itself, for targets that prepare nothing."""
    return content


def as_numbered(schedule: Schedule) -> list[int]:
    """Return the microbatches of a schedule in the sequence of their numbers."""
    return list(range(schedule.instance.microbatches))


@dataclass(frozen=True)  # without slots, with which a generic class cannot be frozen
class Target(Generic[Written, Read]):
    """A file format of another program.

    - `name`: as given to `export` and on the command line.
    - `write`: function of what `prepare` returns and of options, which returns the text of the file. It
      raises an InputError if the other program cannot express the content.
    - `read`: function of the text of a file, which returns what it says.
    - `options`: names of the options that `prepare` and `write` take.
    - `prepare`: function of a schedule or a cut and of options, which returns what is written. It raises an
      InputError if the other program cannot run it.
    - `sequence`: function that returns the microbatches of a schedule in the sequence in which the file
      numbers them and the other program takes their data.
    """

    name: str
    write: Callable[..., str]
    read: Callable[[str], Read]
    options: tuple[str, ...] = ()
    prepare: Callable[..., Written] = unchanged
    sequence: Callable[[Schedule], list[int]] = as_numbered

    def check_options(self, options: Mapping[str, object]) -> None:
        """Raise an InputError if `options` has an option that the target does not take."""
        for name, value in options.items():
            if name not in self.options:
                taken = ", ".join(self.options) or "none"
                rule = f"{self.name} has no such option; it takes {taken}"
                raise InputError(rule, key=name, value=value)


ScheduleTarget = Target[Schedule, Order]
SplitTarget = Target[ModelSplit, ModelSplit]


def json_content(text: str) -> Any:
    """Return the content of a JSON text.

    Raise an InputError if the text is not JSON, nested too deeply, or has an integer of too many digits.
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
    The rows of a device come in the sequence in which it runs their operations. Raise an InputError if the
    devices do not come one after another from 0 on, or two operations are joined that cannot run together.
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
