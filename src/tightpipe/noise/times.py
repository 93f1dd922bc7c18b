"""The random times of one block of samples, in arrays that models of noise change."""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..core.errors import InputError
from ..core.graph_arrays import arrays_of, input_of
from ..core.instance import Instance
from ..core.operation import OpKind
from ..kernels.arrays import Bools, Floats

BLOCK = 32
"""Number of samples in a block; the samples of a block are drawn and simulated at once."""


class Times(NamedTuple):
    """The ticks that each operation and each message takes in every sample of a block.

    The instance has S stages, n microbatches and p devices; K is `BLOCK`. Kinds are F, B and W: a fused
    backward takes as long as its B and its W. Times belong to operations and not to places in an order, so an
    operation takes the same time in every schedule of the instance.
    """

    duration: Floats  # (3, S, n, K) of each F, B and W
    lag: Floats  # (2, S, n, K) of the message that each F and B waits for; 0 where it waits for none
    moment: Floats  # (p, K) begin of each device's stall: share of its planned span, or of the makespan
    stall: Floats  # (p, K) ticks for which each device then stands still; 0 for no stall


class NoiseModel(Protocol):
    """The protocol of a model of noise, whose ``str`` is the text that the option ``--noise`` takes."""

    def check(self, instance: Instance) -> None:
        """Raise an InputError if the model does not fit the instance."""

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Change the times of a block of samples in place, with random numbers from `random`."""


def planned_times(instance: Instance) -> Times:
    """Return times without noise for a block of samples."""
    graph = arrays_of(instance)
    shape = len(OpKind) - 1, instance.stages, instance.microbatches, BLOCK
    nodes = graph.nodes[graph.node[:, graph.mb_class]].transpose(0, 2, 1)
    waits, edges = input_of(graph, nodes[: OpKind.W])
    duration, lags = np.empty(shape), np.empty((2, *shape[1:]))
    duration[:], lags[:] = nodes["duration"][..., None], np.where(waits, edges["lag"], 0)[..., None]
    return Times(duration, lags, np.zeros((instance.devices, BLOCK)), np.zeros((instance.devices, BLOCK)))


def devices_of(instance: Instance) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the device that runs each stage for each microbatch, shape (S, n)."""
    graph = arrays_of(instance)
    devices: np.ndarray[tuple[int, int], np.dtype[np.int64]] = graph.nodes["device"][
        graph.node[OpKind.F, graph.mb_class].T
    ]
    return devices


def messages_on(instance: Instance, sender: int, receiver: int) -> Bools:
    """Return whether each F and B waits for a message from one device to another, shape (2, S, n)."""
    devices = devices_of(instance)
    found = np.zeros((2, *devices.shape), np.bool_)
    crosses = (devices[:-1] == sender) & (devices[1:] == receiver)
    back = (devices[1:] == sender) & (devices[:-1] == receiver)
    found[OpKind.F, 1:], found[OpKind.B, :-1] = crosses, back
    return found


def check_number(key: str, value: Any, low: float, high: float, *, above: bool = False) -> None:
    """Raise an error unless a value is a finite number from `low` to `high`, or above `low` if `above`.

    Raises
    ------
    InputError
        If the value is not such a number; the message names `key`, the value and the range.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not number or not low <= value <= high or (above and value == low):
        interval = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        raise InputError(f"must be a number {interval}", key=key, value=value)


def check_device(instance: Instance, key: str, device: int) -> None:
    """Raise an error if the instance has no device with the number `device`.

    Raises
    ------
    InputError
        If `device` is below 0, or not below the number of devices.
    """
    if not 0 <= device < instance.devices:
        raise InputError(f"the instance has devices 0..{instance.devices - 1}", key=key, value=device)
