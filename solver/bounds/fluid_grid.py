"""Grids of time for the fluid bound: fine at both ends, coarse where a schedule repeats itself."""

from __future__ import annotations

from dataclasses import dataclass

from tightpipe.operation import OpKind

from ..queues import Queues
from ..windows import Windows


@dataclass(frozen=True, slots=True)
class Grid:
    """Times in units of the mean duration of a forward or backward and its message.

    Parameters
    ----------
    step
        Between two times within the zones.
    zone
        Length of the fine part at either end, per device.
    coarse
        Between two times outside of the zones.
    """

    step: float
    zone: float
    coarse: float

    def times(self, queues: Queues, windows: Windows) -> list[int]:
        """Return the times, in ticks, from the start of the first frame to the end of the last."""
        soonest, latest = windows.frames
        begin, end = int(soonest.min()), int(latest.max()) + windows.horizon
        unit = _unit(queues)
        step, coarse = max(1, round(self.step * unit)), max(1, round(self.coarse * unit))
        fine = round(self.zone * queues.instance.devices * unit)
        if end - begin <= 2 * fine:
            return [*range(begin, end, step), end]
        ends = {*range(begin, begin + fine, step), *range(end, end - fine, -step)}
        return sorted({*ends, *range(begin + fine, end - fine, coarse)})


COARSE = (Grid(6.4, 2, 25.6), Grid(6.4, 2, 12.8), Grid(6.4, 99, 6.4))
"""Take seconds, the last one minutes at 32 x 256, and refute most of what can be from 24 devices on."""

# which one refutes a target is a matter of phases, and the fine ones take minutes at 16 devices: coarse ones
# come first, and of each step the grid whose size does not grow with the microbatches
GRIDS = (
    Grid(1.65, 4, 5),
    Grid(2.2, 4, 2.2),
    Grid(1.65, 4, 1.65),
    Grid(1.9, 4, 1.9),
    Grid(1.0, 4, 5),
    Grid(1.0, 4, 1.0),
    Grid(0.5, 4, 5),
    Grid(0.5, 4, 0.5),
)


def _unit(queues: Queues) -> float:
    """Return the mean time from the start of an F or B to that of the next stage's."""
    instance = queues.instance
    stages = range(instance.stages)
    kinds = OpKind.F, OpKind.B
    work = sum(instance.duration(kind, s) for kind in kinds for s in stages)
    lags = sum(lag for _, _, lag in queues.precedences())
    return (work + lags) / (len(kinds) * instance.stages)
