"""Generators of random numbers for compiled loops."""

from __future__ import annotations

import numpy as np

from .draws_kernel import GeneratorState


def generator(seed: int) -> GeneratorState:
    """Return the first state of a generator for `draw`, from a seed of at least 0."""
    return np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)


def seeds_of(seed: int, count: int) -> list[int]:
    """Return the seeds of several generators in a solve with this seed."""
    return [seed * 1024 + k for k in range(count)]
