"""Compiled loops are compiled ahead of time by a use of them on tiny inputs.

Loops come in *groups*: what one heuristic calls, or one method, or one search for bounds. The uses are calls
of real methods, so the loops are compiled for the argument types that real solves use. A loop of several
groups is compiled by the first of them. `EXERCISES` has the use of each group by name; each one imports what
it needs when it is called, so that nobody imports more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tightpipe.heuristics import HEURISTICS

from .base.interruption import raise_again
from .model.costs import Memory, Objective, Offload
from .model.instance import Instance
from .model.metrics import cost
from .model.operation import Operation, OpKind
from .model.result import ignore
from .model.schedule import Order, Schedule
from .model.simulate import retime
from .params.budget import UNLIMITED

if TYPE_CHECKING:
    from tightpipe.solver.engine.run import Search

_LEAST = 246  # ticks: the bound to certify for the tiny V instance; the proof has to suppose orders (shaving)
_SECONDS = 60.0  # more than any search takes here
# heuristics that let operations overlap where that saves time
_MAKE_PAIRS = ("list", "due-date", "adaptive-1f1b")


def _times() -> None:
    """Find the best times of an order, and of one with pairs of operations that overlap."""
    _start()
    _heuristic("dualpipe")


def _copies() -> None:
    """Find the best times of an order with copies of activations."""
    lists = _start().order.to_lists()
    lists[0][1:1] = [Operation(OpKind.O, 0, 0), Operation(OpKind.L, 0, 0)]
    retime(replace(_hard(), offload=Offload(1, 1, 1)), Order.from_lists(lists))


def _heuristic(name: str) -> None:
    from .registry.starts import schedule_of

    if name in ("due-date", "mixed"):
        from tightpipe.heuristics.both_ends import idle_free_order

        idle_free_order(_tiny("v", 40))

    for placement in HEURISTICS[name].placements:
        saved = 1 if HEURISTICS[name].mixes else 0
        schedule_of(_tiny(placement, 16, saved=saved), HEURISTICS[name])
        if name in ("v-beat", "mixed"):  # mixed packs ends like v-beat
            schedule_of(_with_ends_to_pack(placement), HEURISTICS[name])
        if name in _MAKE_PAIRS or HEURISTICS[name].mixes:
            schedule_of(_tiny(placement, 16, overlapped=20), HEURISTICS[name])


def _improve(saved: int = 0) -> None:
    """Run the local search, from one microbatch after another; fused backwards save so many ticks.

    If Ctrl-C ends it, it returns a result that says so; the exception is then raised again.
    """
    from tightpipe.solver.improve import improve
    from tightpipe.solver.improve.shape_kernel import SHAPE, lay_out

    raise_again(improve(_tiny("v", 8, saved=saved), UNLIMITED).reason)
    lay_out(np.arange(2), np.zeros(SHAPE), np.zeros((2, 2), np.int64))  # where one of them takes long


def _bound(search: Callable[[], Search]) -> None:
    search()(_hard(), cost(_start()), UNLIMITED.within(_SECONDS), 0, ignore)


def _energetic() -> Search:
    from tightpipe.solver.bounds.destructive import energetic_bound

    return energetic_bound


def _shaving() -> Search:
    from tightpipe.solver.bounds.destructive import shaving_bound

    return shaving_bound


def _prefixes() -> None:
    """Search prefixes without and with pairs."""
    from tightpipe.solver.bounds.destructive import prefix_bound
    from tightpipe.solver.prefixes import search_prefixes, start_windows

    _bound(lambda: prefix_bound)
    paired = _tiny("v", 8, overlapped=20)
    search_prefixes(paired, start_windows(paired, 2 * _LEAST), (0, 1), UNLIMITED.within(_SECONDS), 1_000)


def _certify() -> None:
    from .certificates import certify

    certify(_hard(), _LEAST)


def _explain() -> None:
    from .explain import explain

    explain(_start(), relax=False)


def _noise() -> None:
    from .noise.noisy import run_noisy

    run_noisy([_start()], ())


def _plan() -> None:
    """Run the loops that enumerate the partitions of a model and find relaxed candidates, on a tiny model.

    There are different loops for devices with one stage, for devices with a stage from each end of the model
    (`v`), and for devices with a stage from each half of the model (`loop`). Another loop serves placements
    whose partitions are all listed, such as `linear` with two chunks.
    """
    from .planning import Batch, Cluster, Layer, Model, PlanningProblem, SearchSpace
    from .planning.configuration import configurations_of
    from .planning.device_bound_kernel import NEVER
    from .planning.partitions import least_excess, partitions_of, relaxed_candidate

    layer = Layer("layer", 10, 12, 8, activation=2, weight_activation=1)
    space = SearchSpace(("linear", "v", "loop"), chunks=(1, 2))
    problem = PlanningProblem(Model((layer,) * 5), Cluster((2,), memory=16, comm=1), Batch(4), space)
    for configuration in configurations_of(problem):
        least_excess(configuration)
        partitions = partitions_of(configuration)
        while partitions.take() is not None:
            pass
        relaxed_candidate(configuration, NEVER, 1.5)


EXERCISES: dict[str, Callable[[], None]] = {
    "times": _times,
    "copies": _copies,
    **{name: partial(_heuristic, name) for name in HEURISTICS},
    "improve": _improve,
    "improve wide": partial(_improve, 1),
    "energetic bound": partial(_bound, _energetic),
    "shaving": partial(_bound, _shaving),
    "prefixes": _prefixes,
    "certify": _certify,
    "explain": _explain,
    "noise": _noise,
    "plan": _plan,
}
"""For each group of loops, by name, a function that runs these loops."""


def _tiny(placement: str, limit: int, overlapped: int | None = None, saved: int = 0) -> Instance:
    """Return an instance in which a fused backward takes `saved` ticks less than its B and its W."""
    return Instance.uniform(
        devices=2,
        microbatches=4,
        forward=10,
        backward=12,
        weight=8,
        comm=1,
        placement=placement,
        memory=Memory(2, -1, -1, limit),
        overlapped=overlapped,
        fused=20 - saved,
    )


def _with_ends_to_pack(placement: str) -> Instance:
    """Return an instance of a makespan in which no theorem says how devices end."""
    times = Instance.uniform(
        devices=2, microbatches=4, forward=21, backward=10, weight=14, comm=6, placement=placement, fused=24
    )
    return replace(times, memory=Memory(2, -1, -1, 16), objective=Objective.MAKESPAN)


def _hard() -> Instance:
    """Return an instance with an optimum above its bounds by formulas, so that searches have work to do."""
    return _tiny("v", 8)


def _start() -> Schedule:
    from tightpipe.solver.engine.run import one_by_one

    return retime(_hard(), one_by_one(_hard()))
