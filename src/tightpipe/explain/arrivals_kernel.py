"""The compiled loop that finds when each message of a schedule leaves over its link."""

from __future__ import annotations

import numpy as np

from ..core.simulate_kernel import departure
from ..kernels.arrays import Ints
from ..kernels.compiled import compiled_with_arrays


@compiled_with_arrays
def departures(end: Ints, offsets: Ints, receiver: Ints, occupancy: int) -> Ints:
    """Return when the result of each operation leaves its device, in ticks, shape (N,).

    `end` holds the end of each operation in ticks, and `receiver` the device that it sends its result to, or
    a negative number if no other device needs the result. The rows of device d begin at `offsets[d]`;
    `occupancy` is the link occupancy in ticks.
    """
    devices = len(offsets) - 1
    left = end.copy()
    for device in range(devices):
        last = np.full(devices, -occupancy, np.int64)
        for i in range(offsets[device], offsets[device + 1]):
            left[i] = departure(end[i], receiver[i], last, occupancy)
    return left
