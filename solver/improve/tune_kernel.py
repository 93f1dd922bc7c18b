"""Simulated annealing over the weights of a dispatching rule."""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.compiled import compiled

from .dispatch_kernel import FEATURES, WAITING, Weights, dispatch
from .dispatch_state import DispatchState
from .draws_kernel import GeneratorState, draw, draw_normal
from .event_graph import EventGraph

_MOST = 3  # weights that a move changes
_SMALLEST = 0.02  # a change is normal; its deviation is between these, evenly in its logarithm
_LARGEST = 2.0


@compiled
def tune(
    graph: EventGraph,
    state: DispatchState,
    random: GeneratorState,
    moves: int,
    warmth: float,
    cost: float,
    best: float,
    weights: Weights,
) -> tuple[float, float]:
    """Try changes of the weights at one temperature.

    Parameters
    ----------
    graph, state
        The problem, and room for runs.
    random
        State of the generator.
    moves
        Number of changes to try.
    warmth
        Temperature in ticks.
    cost, best
        Cost of the weights, and of the best so far; `np.inf` at first.
    weights
        The weights, those of the best so far, and room for others; shape (3, R, FEATURES).

    Returns
    -------
    cost, best
        As they are at the end.
    """
    now, kept, other = weights[0], weights[1], weights[2]
    for _ in range(moves):
        _copy(now, other)
        _change(random, other)
        enough = cost - warmth * np.log(1.0 - draw(random))
        new = dispatch(graph, state, other, enough)
        if new == np.inf:
            continue
        cost = new
        _copy(other, now)
        if cost < best:
            best = cost
            _copy(now, kept)
    return cost, best


@compiled
def _change(random: GeneratorState, weights: Weights) -> None:
    """Add to some weights; scale those of waiting, which stay above 0."""
    size = _SMALLEST * (_LARGEST / _SMALLEST) ** draw(random)
    for _ in range(1 + int(draw(random) * _MOST)):
        role, feature = int(draw(random) * len(weights)), int(draw(random) * FEATURES)
        step = size * draw_normal(random)
        if feature == WAITING:
            weights[role, feature] *= np.exp(step)
        else:
            weights[role, feature] += step


@compiled
def _copy(old: Weights, new: Weights) -> None:
    for role in range(len(old)):
        for feature in range(FEATURES):
            new[role, feature] = old[role, feature]
