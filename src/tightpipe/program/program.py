"""A program says all that each device does, in sequence: its operations and its communication."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from ..core.instance import Instance
from ..core.operation import Operation
from ..core.schedule import Order
from .node import Node


@dataclass(frozen=True, slots=True)
class Program:
    """The sequence of nodes that each device runs.

    Parameters
    ----------
    instance
        The instance whose operations the program runs.
    devices
        The nodes of each device, in sequence.
    """

    instance: Instance
    devices: tuple[tuple[Node, ...], ...]

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, nodes)) for nodes in self.devices)

    @property
    def sha256(self) -> str:
        """SHA-256 hash of the program's text form.

        The text has one line per device, with a word ``<TYPE>.<chunk>.<microbatch>.<rollback>`` per node.
        """
        return hashlib.sha256(str(self).encode()).hexdigest()

    @property
    def order(self) -> Order:
        """The sequence of operations on each device, without communication."""
        return Order.from_slots([list(_slots(nodes)) for nodes in self.devices])


def _slots(nodes: tuple[Node, ...]) -> Iterator[list[Operation]]:
    together: list[Operation] = []
    for node in nodes:
        if not node.type.is_compute:
            continue
        together.append(node.operation)
        if not node.joined:
            yield together
            together = []
