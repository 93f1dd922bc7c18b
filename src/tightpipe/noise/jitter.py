"""A model of noise: every operation takes more or less time than planned, independently of all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.errors import InputError
from ..core.instance import Instance
from .times import Times, check_number

_LARGEST = 10.0


@dataclass(frozen=True, slots=True)
class Jitter:
    r"""Each F, B and W takes its planned duration times a lognormal factor of its own, with mean 1.

    With the coefficient of variation $c$ (standard deviation over mean) the factor is
    $\exp(\sigma z - \sigma^2 / 2)$, where $\sigma^2 = \ln(1 + c^2)$ and $z$ is a standard normal number.
    Factors are above 0 and skewed to the right, as times of kernels are, and the mean work stays as planned.

    Parameters
    ----------
    variation
        The coefficient of variation of all operations, from 0 to 10; or three sequences with one number per
        stage, for F, for B and for W, as measured.
    name
        Origin of measured numbers, e.g. a file. The text of the model shows the origin, not the numbers.
    """

    variation: float | tuple[tuple[float, ...], ...]
    name: str = ""

    def __post_init__(self) -> None:
        rows = self.variation if isinstance(self.variation, tuple) else ((self.variation,),)
        for row in rows:
            for value in row:
                check_number("jitter", value, 0.0, _LARGEST)

    def __str__(self) -> str:
        return f"jitter:{self.name or self.variation}"

    def check(self, instance: Instance) -> None:
        """Raise an InputError if there are measured numbers and not one for each stage of the instance."""
        if isinstance(self.variation, tuple) and {len(row) for row in self.variation} != {instance.stages}:
            rule = f"has {len(self.variation[0])} stages, the instance {instance.stages}"
            raise InputError(rule, key="noise", value=str(self))

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Multiply each duration by a factor of its own."""
        sigma = np.sqrt(np.log1p(np.square(self.variation)))
        if sigma.ndim:
            sigma = sigma[:, :, None, None]
        factor = random.standard_normal(times.duration.shape)
        factor *= sigma
        factor -= sigma * sigma / 2
        np.exp(factor, out=factor)
        times.duration[:] *= factor
