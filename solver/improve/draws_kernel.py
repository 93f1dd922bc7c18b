"""Random numbers for compiled loops; the caller keeps the state of one generator for each thread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tightpipe.kernels.compiled import compiled

GeneratorState = NDArray[np.uint64]  # shape (1,), not 0


@compiled
def draw(random: GeneratorState) -> float:
    """Return a uniform random number in [0, 1) by Marsaglia's xorshift, and advance the generator."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return float(x >> np.uint64(11)) * 2.0**-53


@compiled
def draw_normal(random: GeneratorState) -> float:
    """Return a normal random number of mean 0 and variance 1 (Box and Muller 1958)."""
    return float(np.sqrt(-2.0 * np.log(1.0 - draw(random))) * np.cos(2.0 * np.pi * draw(random)))
