"""Windows of consecutive operations that may be whole steps overlap; those after idle time are chosen.

Operations may form a step in several ways. Where a last device runs F0 B0 F1 B1 again and again, F1 B1 F0 B0
is also all of a step. But between two steps the pipeline runs empty and fills again, which takes longer than
any wait within a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate


def chosen_windows(begins: Sequence[int | None], idle: Sequence[int]) -> list[tuple[int, int]]:
    """Return begin and end of the chosen windows, of which none overlap.

    They have the most idle time before them in sum, and of several such choices the most windows.

    Parameters
    ----------
    begins
        For each number of operations from 0 on, the begin of the window that ends behind so many operations;
        None if there is no such window.
    idle
        Idle time before each operation.
    """
    best = [(0, 0)]  # idle time and number of the windows chosen among so many operations
    last: list[int | None] = [None]  # begin of the window that is chosen with this end
    for begin in begins[1:]:
        best.append(best[-1])
        last.append(None)
        if begin is not None:
            waited, number = best[begin]
            step = waited + idle[begin], number + 1
            if step > best[-1]:
                best[-1], last[-1] = step, begin
    windows = []
    end = len(last) - 1
    while end:
        begin = last[end]
        if begin is not None:
            windows.append((begin, end))
        end = end - 1 if begin is None else begin
    return windows[::-1]


def idle_before(times: Iterable[tuple[int, int]]) -> list[int]:
    """Return the time before each interval in which none of the earlier ones lasted; 0 for the first."""
    starts, ends = zip(*times, strict=True)
    return [0, *(max(0, start - end) for end, start in zip(accumulate(ends, max), starts[1:], strict=False))]
