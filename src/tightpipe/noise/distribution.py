"""The figures of a sample of costs: what a schedule costs on average, mostly, and at worst."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels.arrays import Floats

QUANTILE = 0.95


@dataclass(frozen=True, slots=True)
class Distribution:
    """Figures of the costs of a schedule in random samples, in ticks.

    Parameters
    ----------
    mean
        The mean.
    deviation
        The standard deviation of the costs (with n - 1 in the denominator); 0 for a single sample.
    p95
        The 95th percentile, between two samples by linear interpolation.
    worst
        The largest cost.
    """

    mean: float
    deviation: float
    p95: float
    worst: float

    @classmethod
    def of(cls, costs: Floats) -> Distribution:
        """Return the figures of at least one cost."""
        deviation = float(costs.std(ddof=1)) if len(costs) > 1 else 0.0
        return cls(float(costs.mean()), deviation, float(np.quantile(costs, QUANTILE)), float(costs.max()))
