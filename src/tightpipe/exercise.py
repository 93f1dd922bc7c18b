"""The function `exercise` calls every compiled loop on tiny inputs, and so compiles all loops ahead of time.

The calls come from real methods, so the loops are compiled for the argument types that real solves use.
"""

from __future__ import annotations

from dataclasses import replace

from .certificates import certify
from .core.budget import UNLIMITED
from .core.instance import Instance, Memory
from .core.interruption import raise_again
from .core.metrics import cost
from .core.placement import PLACEMENTS
from .core.progress import ignore
from .explain import explain
from .noise.noisy import run_noisy
from .planning import Batch, Cluster, Layer, Model, PlanningProblem, SearchSpace
from .planning.device_bound_kernel import NEVER
from .planning.incomplete_cuts import incomplete_bound
from .planning.partitions import least_excess, partitions_of
from .planning.relaxed_candidates import relaxed_candidate
from .planning.search_space import configurations_of
from .solving.methods import find_method
from .solving.starts import warm_starts

_LEAST = 246  # ticks: the bound to certify for the tiny V instance; the proof has to suppose orders (shaving)


def exercise() -> None:
    """Run heuristics, searches, bounds, `certify`, `explain`, noise and partitions once, on tiny inputs.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C is pressed. A solver catches this exception and returns a result with the reason
        `interrupted`; `exercise` then raises the exception again.
    """
    for placement in PLACEMENTS:
        warm_starts(_tiny(placement, 16))
    # the optimum of this instance is above its bounds by formulas; else a search would have nothing to do
    tiny = _tiny("v", 8)
    for method, budget in (("cpsat", UNLIMITED.within(60.0)), ("improve", UNLIMITED)):
        raise_again(find_method(method).load()(tiny, budget, "best", ignore).reason)
    start = warm_starts(tiny)[0][1]
    from tightpipe.solver.bound import bound_searches

    for search, _ in bound_searches():
        search(tiny, cost(start), UNLIMITED.within(60.0), 0, ignore)
    certify(tiny, _LEAST)
    explain(start, relax=False)
    run_noisy([start], ())
    _cut_a_model()


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


def _cut_a_model() -> None:
    """Run the loops that enumerate the partitions of a model and find relaxed candidates, on a tiny model.

    There are different loops for devices with one stage, for devices with a stage from each end of the model
    (`v`), and for devices with a stage from each half of the model (`loop`). Another loop serves placements
    whose partitions are all listed, such as `linear` with two chunks.
    """
    layer = Layer("layer", 10, 12, 8, activation=2, weight_activation=1)
    layers = (replace(layer, weight=0), *(layer,) * 4)  # a layer without W makes cuts that are only bounded
    space = SearchSpace(("linear", "v", "loop"), chunks=(1, 2))
    problem = PlanningProblem(Model(layers), Cluster((2,), memory=16, comm=1), Batch(4), space)
    for configuration in configurations_of(problem):
        least_excess(configuration)
        incomplete_bound([configuration], NEVER)
        partitions = partitions_of(configuration)
        while partitions.take() is not None:
            pass
        relaxed_candidate(configuration, NEVER, 1.5)
