"""The figures of a schedule's costs in random samples: mean, deviation, 95th percentile and worst."""

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
        The mean of the costs.
    deviation
        The standard deviation of the costs (with n - 1 in the denominator); 0 for a single sample.
    p95
        The 95th percentile of the costs, with linear interpolation between two samples.
    worst
        The largest cost.
    """

    mean: float
    deviation: float
    p95: float
    worst: float

    @classmethod
    def of(cls, costs: Floats) -> Distribution:
        """Return the figures of `costs`, which has at least one entry."""
        deviation = float(costs.std(ddof=1)) if len(costs) > 1 else 0.0
        return cls(float(costs.mean()), deviation, float(np.quantile(costs, QUANTILE)), float(costs.max()))
