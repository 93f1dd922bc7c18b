"""Small work that calls every compiled loop, with the types of all calls: what is compiled ahead of time."""

from __future__ import annotations

from .core.instance import Instance, Memory
from .core.interruption import raise_again
from .core.metrics import cost
from .core.options import Options
from .core.placement import PLACEMENTS
from .explain import explain
from .solving.bound_searches import bound_searches
from .solving.methods import find_method
from .solving.starts import warm_starts


def exercise() -> None:
    """Run every heuristic, CP-SAT, improvement, each bound by search and an explanation once.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C, which solvers answer with a result.
    """
    for placement in PLACEMENTS:
        warm_starts(_tiny(placement, 16))
    # its best formula is below its optimum, so that no search ends before it has begun
    tiny = _tiny("v", 8)
    for method, options in (("cpsat", Options(60.0, workers=1)), ("improve", Options(workers=1))):
        raise_again(find_method(method).load()(tiny, options, "best").reason)
    start = warm_starts(tiny)[0][1]
    for search, _ in bound_searches():
        search(tiny, cost(start), Options(60.0, workers=1), 0)
    explain(start, relax=False)


def _tiny(placement: str, limit: int) -> Instance:
    return Instance.uniform(
        devices=2,
        microbatches=4,
        forward=10,
        backward=12,
        weight=8,
        comm=1,
        placement=placement,
        memory=Memory(2, -1, -1, limit),
    )
