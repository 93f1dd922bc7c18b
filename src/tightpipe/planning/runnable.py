"""Candidates that a framework can be told: Megatron-LM recomputes in one kind, as much of every stage.

Of cuts that are found with other recomputation, this takes the least recomputation that Megatron-LM knows and
that fits: `--recompute-method block` with a number of blocks, or all blocks. Bounds are those of all ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..export.layouts import FULL
from ..export.model_split import BLOCK, MTP, part_of
from .candidate import Candidate, bytes_lacking
from .problem import RUNTIMES, PlanningProblem


def runnable(problem: PlanningProblem, candidate: Candidate) -> tuple[Candidate, ...]:
    """Return the candidates with the same cuts that the runtime can be told, one for each kind at most."""
    if not RUNTIMES[problem.space.runtime].one_kind or not any(candidate.recomputed):
        return (candidate,)
    found = (_least(problem, candidate, kind) for kind in problem.space.recompute)
    return tuple(dict.fromkeys(filter(None, found)))


def _least(problem: PlanningProblem, candidate: Candidate, kind: str) -> Candidate | None:
    """Return the candidate that recomputes fewest blocks of each stage in a kind and fits, if any."""
    ways = (replace(candidate, recomputed=way) for way in _ways(problem, candidate, kind))
    return next((way for way in ways if not any(bytes_lacking(problem, way))), None)


def _ways(
    problem: PlanningProblem, candidate: Candidate, kind: str
) -> Iterator[tuple[tuple[tuple[int, str], ...], ...]]:
    """Yield what Megatron-LM can recompute in a kind: nothing, then some blocks of each stage, all blocks."""
    layers = problem.model.layers
    parts = [part_of(layer.name, layer.kind) for layer in layers]
    yield ((),) * len(candidate.stages)
    for number in range(1, max(end - first for first, end in candidate.stages)) if kind == FULL else ():
        blocks = [[i for i in range(*stage) if parts[i] == BLOCK] for stage in candidate.stages]
        if all(layers[i].effects((kind,)) for stage in blocks for i in stage[:number]):
            yield tuple(tuple((i, kind) for i in stage[:number]) for stage in blocks)
    every = [[i for i in range(*stage) if parts[i] in (BLOCK, MTP)] for stage in candidate.stages]
    if all(layers[i].effects((kind,)) for stage in every for i in stage):
        yield tuple(tuple((i, kind) for i in stage) for stage in every)
