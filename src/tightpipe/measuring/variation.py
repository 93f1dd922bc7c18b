"""The table of how much measured times vary, which the noise model ``jitter:FILE.csv`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from ..core.operation import OpKind
from ..core.tables import csv_text
from .costs import Cost

_DIGITS = 4


def variation_table(costs: Sequence[Cost]) -> str:
    """Return a CSV table with the coefficient of variation of F, B and W at each stage.

    The coefficient of variation is the standard deviation of the times over their mean. Where all backwards
    of a stage were fused, only the sum of B and W was measured. Then B and W count as two equal halves of the
    sum, as in the measured instance. The coefficient of each half is that of the sum times the square root of
    2: the noise model draws B and W independently, and only then does their sum vary as measured.

    Parameters
    ----------
    costs
        The measured costs of F, and of B and W or of BW, for every stage from 0 on.
    """
    measured = {(cost.stage, cost.kind): cost.deviation / cost.mean for cost in costs}
    rows = []
    for stage in sorted({cost.stage for cost in costs}):
        half = sqrt(2) * measured.get((stage, OpKind.BW), 0.0)
        for kind in (OpKind.F, OpKind.B, OpKind.W):
            rows.append((stage, kind.name, round(measured.get((stage, kind), half), _DIGITS)))
    return csv_text(("stage", "kind", "variation"), rows)
