"""The types of the arrays that compiled loops take and return."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Records = NDArray[np.void]  # elements with named fields, which are read as attributes


def record(*names: str) -> np.dtype[np.void]:
    """Return the type of a record that has one integer for each of these names."""
    return np.dtype([(name, np.int64) for name in names])
