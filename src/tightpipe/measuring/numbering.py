"""Microbatches are counted where the names of ranges do not number them.

At each stage, F and the backwards of a step are counted apart, from 0. So it must be known where a step
begins: a validation pass may have another number of microbatches, and a trace may begin within a step. A step
has as many F and backwards of each kind as it has microbatches, and at no time more backwards than F.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate

from ..core.operation import OpKind
from .windows import chosen_windows, idle_before

_INPUT, _WEIGHT = (OpKind.B, OpKind.BW), (OpKind.W, OpKind.BW)
"""The kinds of operations that compute the gradient of the input, and that of the weights."""


def microbatches_counted(
    kinds: Sequence[OpKind], times: Sequence[tuple[int, int]], microbatches: int
) -> list[int]:
    """Return the microbatch of each operation of a stage.

    Parameters
    ----------
    kinds
        Kinds of the operations, sorted by start.
    times
        Start and end of each operation.
    microbatches
        Number of microbatches of a training step. What is outside of whole steps is counted modulo this
        number.
    """
    found: list[int] = []
    for begin, end in chosen_windows(_begins(kinds, microbatches), idle_before(times)):
        found += _counted(kinds[len(found) : begin], microbatches)
        found += _counted(kinds[begin:end], microbatches)
    return found + _counted(kinds[len(found) :], microbatches)


def _counted(kinds: Iterable[OpKind], microbatches: int) -> list[int]:
    seen: dict[OpKind, int] = defaultdict(int)
    found = []
    for kind in kinds:
        found.append(seen[kind] % microbatches)
        seen[kind] += 1
    return found


def _begins(kinds: Sequence[OpKind], microbatches: int) -> list[int | None]:
    """Return where the step begins that ends behind each number of operations; None where there is none."""
    forwards, inputs, weights = (
        list(accumulate((kind in group for kind in kinds), initial=0))
        for group in ((OpKind.F,), _INPUT, _WEIGHT)
    )
    levels = [[f - other for f, other in zip(forwards, others, strict=True)] for others in (inputs, weights)]
    lower = [_next_lower(level) for level in levels]
    begin_of = {
        (f + i + w): begin for begin, (f, i, w) in enumerate(zip(forwards, inputs, weights, strict=True))
    }
    begins: list[int | None] = []
    for end, counts in enumerate(zip(forwards, inputs, weights, strict=True)):
        begin = begin_of.get(sum(counts) - 3 * microbatches)
        if begin is not None and (
            any(level[begin] != level[end] for level in levels) or any(then[begin] <= end for then in lower)
        ):
            begin = None
        begins.append(begin)
    return begins


def _next_lower(level: Sequence[int]) -> list[int]:
    """Return for each place the next one with a lower level; the length if there is none."""
    found = [len(level)] * len(level)
    waiting: list[int] = []
    for place, height in enumerate(level):
        while waiting and level[waiting[-1]] > height:
            found[waiting.pop()] = place
        waiting.append(place)
    return found
