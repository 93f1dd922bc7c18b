"""An order as words: the microbatches of a stage come in sequence, so that most need no number.

A device's order is one text with a word for each slot. A word is an operation without its microbatch, such as
``F3``, where the microbatch follows the one of the operation of this kind and stage before it, and the first
is 0. Any other microbatch is written, as in ``F3.7``, and the next word counts on from it. Operations that
share a slot are joined by ``+``. An order has no times, because `retime` gives the cheapest ones. The words
of many orders are alike, so that they compress well: to a fortieth of the compressed files of schedules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..core.errors import InputError
from ..core.instance import Instance
from ..core.operation import Operation
from ..core.schedule import Order, parse_slot


def words_of(order: Order) -> list[str]:
    """Return the words of an order, one text per device."""
    return [_device_words(slots) for slots in order.to_slots()]


def _device_words(slots: Sequence[Sequence[Operation]]) -> str:
    following: Counter[str] = Counter()
    words = []
    for slot in slots:
        parts = []
        for operation in slot:
            name, _, _ = str(operation).partition(".")
            parts.append(name if following[name] == operation.microbatch else str(operation))
            following[name] = operation.microbatch + 1
        words.append("+".join(parts))
    return " ".join(words)


def order_of(words: Any, instance: Instance) -> Order:
    """Return the order that words describe.

    Raises
    ------
    InputError
        If the words are not a list of one text per device of the instance, or if a word is no slot.
    """
    fits = isinstance(words, list) and len(words) == instance.devices
    if not fits or not all(isinstance(text, str) for text in words):
        raise InputError(f"must be a list of {instance.devices} texts", key="order", value=words)
    return Order.from_slots([list(map(parse_slot, _numbered(text))) for text in words])


def _numbered(text: str) -> list[str]:
    """Return the words of a device with every microbatch written."""
    following: Counter[str] = Counter()
    numbered = []
    for word in text.split():
        parts = []
        for part in word.split("+"):
            name, _, microbatch = part.partition(".")
            number = microbatch or str(following[name])
            following[name] = int(number) + 1 if number.isdecimal() else 0
            parts.append(f"{name}.{number}")
        numbered.append("+".join(parts))
    return numbered
