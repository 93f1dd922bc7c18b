"""Types of the arrays that compiled loops and their callers share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Records = NDArray[np.void]  # elements with named fields, which are read as attributes
