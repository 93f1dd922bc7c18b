"""The compiled loop that finds when each message of a schedule leaves over its link."""

from __future__ import annotations

import numpy as np

from ..core.simulate_kernel import departure
from ..kernels.arrays import Ints
from ..kernels.compiled import compiled_with_arrays

NOTHING = -1
"""In place of a row: there is no such operation."""


@compiled_with_arrays
def departures(end: Ints, offsets: Ints, receiver: Ints, occupancy: int) -> Ints:
    """Return when the result of each operation leaves its device, in ticks, shape (N,).

    `receiver` holds the device that each operation sends its result to, or a negative number.
    """
    devices = len(offsets) - 1
    left = end.copy()
    for device in range(devices):
        last = np.full(devices, -occupancy, np.int64)
        for i in range(offsets[device], offsets[device + 1]):
            left[i] = departure(end[i], receiver[i], last, occupancy)
    return left
