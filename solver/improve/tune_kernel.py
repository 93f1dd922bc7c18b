"""Simulated annealing over the weights of a dispatching rule, compiled."""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.compiled import compiled

from .dispatch_kernel import FEATURES, WAITING, Weights, dispatch
from .dispatch_state import DispatchState
from .draws_kernel import GeneratorState, draw, draw_normal
from .event_graph import EventGraph

_MOST = 3  # the most weights that are changed at once
# A change is normally distributed. The logarithm of its standard deviation is uniform between those of these:
_SMALLEST = 0.02
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
    graph
        The event graph of the instance.
    state
        The state in which rules run.
    random
        State of the random number generator.
    moves
        Number of changes to try.
    warmth
        Temperature in ticks: a change that costs so much more is taken with probability 1/e.
    cost, best
        The cost of the weights, and the least cost so far, in ticks; `np.inf` at first.
    weights
        Shape (3, R, FEATURES): the weights, the best weights so far, and a working copy. All three are
        changed in place.

    Returns
    -------
    cost, best
        The same two costs after the last change.
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
    """Change some random weights: add to each of them, but scale those of waiting, which stay above 0."""
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
