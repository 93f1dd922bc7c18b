"""Annealing of dispatching rules, compiled: changes of their weights and sequences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.kernels.compiled import compiled

from .dispatch_kernel import dispatch
from .lines import FEATURES, WAITING, DispatchState, Weights
from .random_kernel import GeneratorState, draw, draw_normal
from .shape_kernel import Shapes, lay_out, reshape
from .words import EventGraph

_EVERYWHERE = 0.8  # share of the changes of sequences that are the same at all visits
_NEAR = 6  # places by which others change a sequence


class TuneNumbers(NamedTuple):
    """The parameters of `RuleParams` that a change of weights reads."""

    most_changed: int
    smallest: float
    largest: float
    reorders: float


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
    sequences: Ints,
    shapes: Shapes,
    numbers: TuneNumbers,
) -> tuple[float, float]:
    """Try changes of weights and sequences at one temperature; return the costs `cost` and `best` after them.

    - `warmth`: temperature in ticks: a change that raises the cost by this much is taken with probability
      1/e.
    - `cost`, `best`: the cost of the present weights, and the least so far, in ticks; `np.inf` at first.
    - `weights`: present weights, best so far and a working copy, shape (3, R, FEATURES), where R is the
      largest number of lines on one device. All three are changed in place.
    - `sequences`: the sequences of the microbatches of these rules, shape (3, V, n), (3, 1, n) or (3, 0, 0).
    - `shapes`: the shapes of these sequences; where they have one, it is what changes.
    """
    now, kept, other = weights[0], weights[1], weights[2]
    for _ in range(moves):
        _copy(now, other)
        _copy_sequences(sequences[0], sequences[2])
        _copy_shape(shapes.numbers, 0, 2)
        if sequences.shape[2] > 1 and draw(random) < numbers.reorders:
            if len(shapes.rising) > 0:
                reshape(random, shapes.numbers[2])
                lay_out(shapes.rising, shapes.numbers[2], sequences[2])
            else:
                _reorder(random, sequences[2])
        else:
            _change(random, other, numbers)
        enough = cost - warmth * np.log(1.0 - draw(random))
        new = dispatch(graph, state, other, sequences[2], enough)
        if new == np.inf:
            continue
        cost = new
        _copy(other, now)
        _copy_sequences(sequences[2], sequences[0])
        _copy_shape(shapes.numbers, 2, 0)
        if cost < best:
            best = cost
            _copy(now, kept)
            _copy_sequences(sequences[0], sequences[1])
            _copy_shape(shapes.numbers, 0, 1)
    return cost, best


@compiled
def _reorder(random: GeneratorState, sequences: Ints) -> None:
    """Exchange two microbatches, or move one to the place of another.

    The change is one of all visits, or of those from one on or up to one, where the two are then near.
    """
    visits, n = sequences.shape
    visit, first, last, which = int(draw(random) * visits), 0, visits - 1, draw(random)
    i, j, exchange = int(draw(random) * n), int(draw(random) * n), draw(random) < 0.5
    if which >= _EVERYWHERE:
        j = min(max(i + int((2.0 * draw(random) - 1.0) * _NEAR), 0), n - 1)
        if which < (1.0 + _EVERYWHERE) / 2:
            first = visit
        else:
            last = visit
    moved, other = sequences[visit, i], sequences[visit, j]
    for k in range(first, last + 1):
        _move(sequences[k], moved, other, exchange)


@compiled
def _move(sequence: Ints, moved: int, other: int, exchange: bool) -> None:
    """Exchange two microbatches of a sequence, or move the first one to the place of the second."""
    i, j = 0, 0
    for k in range(len(sequence)):
        i = k if sequence[k] == moved else i
        j = k if sequence[k] == other else j
    if exchange:
        sequence[i] = other
    else:
        step = 1 if i < j else -1
        for k in range(i, j, step):
            sequence[k] = sequence[k + step]
    sequence[j] = moved


@compiled
def _change(random: GeneratorState, weights: Weights, numbers: TuneNumbers) -> None:
    """Add random numbers to some random weights; those of ticks are scaled, so that they stay above 0."""
    size = numbers.smallest * (numbers.largest / numbers.smallest) ** draw(random)
    for _ in range(1 + int(draw(random) * numbers.most_changed)):
        role, feature = int(draw(random) * len(weights)), int(draw(random) * FEATURES)
        step = size * draw_normal(random)
        if feature >= WAITING:
            weights[role, feature] *= np.exp(step)
        else:
            weights[role, feature] += step


@compiled
def _copy(old: Weights, new: Weights) -> None:
    for role in range(len(old)):
        for feature in range(FEATURES):
            new[role, feature] = old[role, feature]


@compiled
def _copy_sequences(old: Ints, new: Ints) -> None:
    for visit in range(len(old)):
        for k in range(old.shape[1]):
            new[visit, k] = old[visit, k]


@compiled
def _copy_shape(shapes: Floats, old: int, new: int) -> None:
    for k in range(shapes.shape[1]):
        shapes[new, k] = shapes[old, k]
