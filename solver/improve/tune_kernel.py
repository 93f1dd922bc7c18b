"""Simulated annealing over the weights of a dispatching rule, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.compiled import compiled

from .dispatch_kernel import FEATURES, WAITING, Weights, dispatch
from .dispatch_state import DispatchState
from .draws_kernel import GeneratorState, draw, draw_normal
from .event_graph import EventGraph


class TuneNumbers(NamedTuple):
    """The parameters of `RuleParams` that a change of weights reads."""

    most_changed: int
    smallest: float
    largest: float


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
    numbers: TuneNumbers,
) -> tuple[float, float]:
    """Try changes of the weights at one temperature.

    Parameters
    ----------
    graph
        The event graph of the instance.
    state
        The arrays that a run of a rule works in.
    random
        State of the random number generator.
    moves
        Number of changes to try.
    warmth
        Temperature in ticks: a change that raises the cost by this much is taken with probability 1/e.
    cost, best
        The cost of the present weights, and the least cost so far, in ticks; both `np.inf` at first.
    weights
        The present weights, the best weights so far, and a working copy, shape (3, R, FEATURES), where R is
        the largest number of queues on one device. All three are changed in place.
    numbers
        The parameters of a change.

    Returns
    -------
    cost, best
        The same two costs after the last change was tried.
    """
    now, kept, other = weights[0], weights[1], weights[2]
    for _ in range(moves):
        _copy(now, other)
        _change(random, other, numbers)
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
def _change(random: GeneratorState, weights: Weights, numbers: TuneNumbers) -> None:
    """Add random numbers to some random weights; a weight of waiting is scaled, so that it stays above 0."""
    size = numbers.smallest * (numbers.largest / numbers.smallest) ** draw(random)
    for _ in range(1 + int(draw(random) * numbers.most_changed)):
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
