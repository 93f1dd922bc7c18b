"""The ways to recompute some layers of a stage, without those that are no better than another one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ..core.budget import UNLIMITED, Budget
from ..core.errors import InputError
from ..kernels.arrays import Ints
from .layered_model import Layer
from .problem import PlanningProblem

_MOST = 4096  # most ways for one stage


class Way(NamedTuple):
    """A way to recompute: which layers of a stage are recomputed, and the effect.

    B is longer by `extra` ticks, and takes `transient` more bytes while it recomputes. F takes `saved` bytes
    less. `layers` are the indices of the recomputed layers in the model.
    """

    extra: int
    saved: int
    transient: int
    layers: tuple[int, ...]


_PLAIN = Way(0, 0, 0, ())


class OptionSets:
    """The ways to recompute stages of one problem, kept for each number of layers that was asked for."""

    def __init__(self, problem: PlanningProblem) -> None:
        self.problem = problem
        self._known: dict[int, RecomputeOptions] = {}

    def up_to(self, longest: int, until: Budget = UNLIMITED) -> RecomputeOptions:
        """Return the ways to recompute every run of at most `longest` consecutive layers.

        They are computed at the first call with this number of layers, and kept for later calls.

        Raises
        ------
        TimeUpError
            If the time of `until` is up before all are computed.
        """
        if longest not in self._known:
            self._known[longest] = RecomputeOptions(self.problem, longest, until)
        return self._known[longest]


class RecomputeOptions:
    """The ways to recompute for every interval of consecutive layers, numbered one interval after another.

    A stage without a B recomputes nothing.

    Parameters
    ----------
    problem
        The model, and whether layers may be recomputed at all.
    longest
        Most layers of an interval; longer intervals get no ways.
    until
        When its time is up, the work is given up with a `TimeUpError`.

    Attributes
    ----------
    first
        The interval of the layers `i` to `j - 1` has the ways with the numbers from `first[i * (L + 1) + j]`
        up to, not including, the next entry of `first`, where L is the number of layers of the model.
    extra, saved, transient, layers
        The fields of `Way`, for each way.

    Raises
    ------
    InputError
        If so many layers differ that a stage could be recomputed in too many ways.
    """

    def __init__(self, problem: PlanningProblem, longest: int, until: Budget = UNLIMITED) -> None:
        count = len(problem.model.layers)
        ticks = [0, *accumulate(layer.backward for layer in problem.model.layers)]
        known: dict[tuple[int, int], list[Way]] = {}
        ways, first = [], [0]
        for start in range(count + 1):
            for end in range(count + 1):
                if start < end <= start + longest:
                    shorter = known.get((start, end - 1), [_PLAIN])
                    known[start, end] = _longer(problem, shorter, end - 1, until)
                    ways += known[start, end] if ticks[end] > ticks[start] else [_PLAIN]
                first.append(len(ways))
        self.first = np.array(first, np.int64)
        self.extra, self.saved, self.transient = (
            _column(ways, key) for key in ("extra", "saved", "transient")
        )
        self.layers = [way.layers for way in ways]

    def of(self, numbers: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        """Return the layers that each stage recomputes; `numbers` has the number of one way per stage."""
        return tuple(self.layers[number] for number in numbers)


def _column(ways: list[Way], key: str) -> Ints:
    return np.array([getattr(way, key) for way in ways], np.int64)


def _longer(problem: PlanningProblem, shorter: list[Way], index: int, until: Budget) -> list[Way]:
    """Return the ways of an interval that ends with layer `index`; `shorter` has those without the layer."""
    until.check()
    layer = problem.model.layers[index]
    if not (problem.space.recompute and layer.recomputable):
        return shorter
    found = _efficient([*shorter, *(_again(way, layer, index) for way in shorter)], until)
    if len(found) > _MOST:
        rule = f"layers up to {index} differ too much: a stage could be recomputed in more than {_MOST} ways"
        raise InputError(rule, key="search.recompute", value="blocks")
    return found


def _again(way: Way, layer: Layer, index: int) -> Way:
    saved = layer.activation - layer.kept
    longer, less = way.extra + layer.forward, way.saved + saved
    return Way(longer, less, max(way.transient, saved), (*way.layers, index))


def _efficient(ways: list[Way], until: Budget) -> list[Way]:
    """Return the ways without those that are no better than another one.

    A way is no better than another if it adds no fewer ticks, saves no more bytes and takes no fewer
    transient bytes. A schedule with such a way stays valid if the other way replaces it: B's may end earlier,
    and no more memory is needed.
    """
    kept: list[Way] = []
    most = -1  # the most bytes that a way kept so far saves
    for way in sorted(ways, key=lambda way: (way.extra, -way.saved, way.transient)):
        until.check()  # there may be thousands of ways, each of which is compared with all before it
        worse = (other.saved >= way.saved and other.transient <= way.transient for other in kept)
        if way.saved > most or not any(worse):
            kept.append(way)
            most = max(most, way.saved)
    return kept
