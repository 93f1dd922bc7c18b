"""A schedule as a table of pandas, with one row per operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .operation import OpKind
from .schedule import Schedule
from .simulate import memory_trace

if TYPE_CHECKING:
    import pandas as pd


def frame_of(schedule: Schedule) -> pd.DataFrame:
    """Return a table with one row per operation, whose columns `Schedule.to_frame` describes."""
    import pandas as pd  # imported here because pandas takes longer to load than all of this package

    order = schedule.order
    kind, stage, microbatch = order.operations.T
    return pd.DataFrame(
        {
            "device": np.repeat(np.arange(order.devices), np.diff(order.offsets)),
            "kind": [OpKind(k).name for k in kind.tolist()],
            "stage": stage,
            "microbatch": microbatch,
            "start": schedule.start,
            "end": schedule.end,
            "memory": memory_trace(schedule.instance, order),
        }
    )
