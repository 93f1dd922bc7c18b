"""Layers whose costs are laws in the lengths of sequences, slices of sequences, and steps of sampled lengths.

Token number t of a sequence attends to t tokens. So the scores of the first P tokens take time in proportion
to P^2, and those of a slice of x tokens that ends with token P in proportion to P^2 - (P - x)^2. A slice
therefore costs what the law ``fixed + tokens T + squares Q`` says at its own tokens and so many squares; all
slices together have the tokens and the squares of the whole sequence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil, log
from typing import Any

import numpy as np

from ..base.errors import InputError, check_int, check_number, is_list
from ..base.files import check_keys
from ..model.law import MOST_TOKENS, Law, Microbatch, microbatches_of, squares_of
from .layered_model import Layer, Model, Recomputation

TIMES = ("forward", "backward", "weight")
BYTES = ("activation", "weight_activation", "output", "offload")
_OF_KINDS = (*BYTES, "transient")
EQUAL = {"tokens": (), "forward": ("forward",), "all": TIMES}
"""What may be equal in all slices: their tokens, the time of F, or that of F, B and W together. For each, the
laws that are summed; none stands for the tokens."""
NOTHING = "nothing"
"""What is equal in slices whose lengths a search may change, from all those of `EQUAL`."""
MOST_SLICES = 1024
_EXACT = 1e-6  # bytes that rounding errors of a law may add


@dataclass(frozen=True, slots=True)
class LayerLaw:
    """A layer, and laws of its times in ticks and of its bytes, by the keys of `Layer`.

    `layer` has what does not depend on lengths: name, kind and parameters. `kinds` has the kinds of
    recomputation by name, each with the laws of its ticks and bytes, by the keys of `Recomputation`.
    """

    layer: Layer
    laws: tuple[tuple[str, Law], ...]
    kinds: tuple[tuple[str, tuple[tuple[str, Law], ...]], ...] = ()

    def at(self, tokens: float, squares: float, index: int) -> Layer:
        """Return the layer at so many tokens and squares; `index` is its number in the model, for errors."""
        where = f"layers[{index}] ({self.layer.name})"
        values = _at(self.laws, tokens, squares, where)
        values["recompute"] = tuple(
            Recomputation(name, **_at(laws, tokens, squares, f"{where} {name}")) for name, laws in self.kinds
        )
        try:
            return replace(self.layer, **values)
        except InputError as error:
            raise InputError(error.rule, key=f"{where} {error.key}", value=error.value) from None

    def least_ticks(self, tokens: int, squares: int, count: int) -> int:
        """Return a lower bound on the ticks of F, B and W of a microbatch in `count` slices of any lengths.

        The tokens and the squares of the slices add up to those of the microbatch, `tokens` and `squares`.
        Of a backward that may be fused, each coefficient counts in whichever way it is smaller, as tokens and
        squares are at least 0. Each of the three times of a slice is rounded down by at most half a tick.
        """
        laws = dict(self.laws)
        forward, backward, weight = (laws.get(key, Law()) for key in TIMES)
        apart = backward + weight
        fused = laws.get("fused", apart) if backward and weight else apart
        least = Law(
            *map(min, zip(*((one.fixed, one.tokens, one.squares) for one in (apart, fused)), strict=True))
        )
        law = forward + least
        whole = law.fixed * count + law.tokens * tokens + law.squares * squares
        return max(0, ceil(whole - len(TIMES) * count / 2 - _EXACT))


def _at(laws: Iterable[tuple[str, Law]], tokens: float, squares: float, where: str) -> dict[str, Any]:
    """Return the ticks and the bytes that laws say, by their keys."""
    values: dict[str, Any] = {}
    for key, law in laws:
        value, times = law.at(tokens, squares), key not in _OF_KINDS
        if value < 0 or (times and law and value == 0):
            rule = f"must be {'above 0' if times else '0 or more'}: the law at {tokens:g} tokens"
            raise InputError(rule, key=f"{where} {key}", value=value)
        values[key] = (max(1, round(value)) if law else 0) if times else ceil(value - _EXACT)
    return values


@dataclass(frozen=True, slots=True)
class ModelLaw:
    """The layers of a model as laws, the first one first."""

    layers: tuple[LayerLaw, ...]

    def slices(self, tokens: int, rows: int, count: int, equal: str) -> tuple[int, ...]:
        """Return the lengths of slices of sequences of `tokens`, for which one of `EQUAL` is about equal.

        The first P tokens of each of the `rows` sequences take c P + q P^2, whatever the slices. So a slice
        ends where that first reaches its share of the whole. Every slice has at least one token.
        """
        laws = [law for layer in self.layers for key, law in layer.laws if key in EQUAL[equal]]
        c, q = rows * sum(law.tokens for law in laws), rows * sum(law.squares for law in laws)
        if not c and not q:
            c = 1.0
        whole = c * tokens + q * tokens**2
        ends = [0]
        for i in range(1, count + 1):
            at = bisect_left(range(tokens), whole * i / count, key=lambda end: c * end + q * end**2)
            ends.append(min(max(at, ends[-1] + 1), tokens - count + i))
        return tuple(b - a for a, b in pairwise(ends))


@lru_cache(maxsize=256)
def model_at(law: ModelLaw, tokens: float, squares: float) -> Model:
    """Return the model at so many tokens and squares; an InputError says where a law gives no valid cost.

    Times that are not 0 throughout are rounded to whole ticks, at least 1, and bytes are rounded up.
    """
    known: dict[LayerLaw, Layer] = {}
    for index, layer in enumerate(law.layers):
        if layer not in known:
            known[layer] = layer.at(tokens, squares, index)
    return Model(tuple(known[layer] for layer in law.layers))


def slices_at(law: ModelLaw, lengths: Sequence[int], rows: int) -> tuple[Model, ...]:
    """Return the model at each slice of a microbatch of `rows` sequences, given the slices' lengths."""
    ends = pairwise(accumulate(lengths, initial=0))
    return tuple(model_at(law, rows * (b - a), rows * (b**2 - a**2)) for a, b in ends)


_MOST_STEPS = 1000
_MOST_SEQUENCES = 10**4  # of a step
_MOST_OF_ALL = 10**5
KEYS = ("lengths", "sequences", "tokens", "steps", "seed")
"""The keys of a batch whose steps are sampled."""


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Lengths whose logarithm is normal: their `median`, and the deviation `sigma` of the logarithm.

    Longer ones than `most` are cut to that, as sequences are in training.
    """

    median: float
    sigma: float
    most: int = MOST_TOKENS


@dataclass(frozen=True, slots=True)
class Sampling:
    """Training steps, each with sequences of random lengths, independent of each other."""

    lengths: tuple[int, ...] | LogNormal  #: the distribution, or lengths each of which is equally likely
    sequences: int  #: sequences of a step of one pipeline
    #: the most tokens of a microbatch, into which sequences are packed; None for microbatches of one
    tokens: int | None = None
    steps: int = 16  #: how many steps are sampled
    #: seed of the random numbers. They do not depend on a plan, so that all plans run the same batches.
    seed: int = 0

    @property
    def batches(self) -> tuple[tuple[Microbatch, ...], ...]:
        """The microbatches of each step."""
        return _batches(self)

    @property
    def mean(self) -> tuple[float, float, float]:
        """The mean number of microbatches of a step, and the mean tokens and squares of a microbatch."""
        points = self.points
        tokens, squares = (sum(values) / len(points) for values in zip(*points, strict=True))
        return len(points) / self.steps, tokens, squares

    @property
    def points(self) -> list[tuple[int, int]]:
        """The tokens and squares of each microbatch of each step."""
        return [(sum(one), squares_of(one)) for batch in self.batches for one in batch]

    def table(self) -> dict[str, Any]:
        """Return the entries of a batch in a model file."""
        lengths: Any = self.lengths
        if isinstance(lengths, LogNormal):
            lengths = {"median": lengths.median, "sigma": lengths.sigma, "most": lengths.most}
        room = {} if self.tokens is None else {"tokens": self.tokens}
        said = {"lengths": list(lengths) if isinstance(lengths, tuple) else lengths}
        return {**said, "sequences": self.sequences, **room, "steps": self.steps, "seed": self.seed}


@lru_cache(maxsize=4)
def _batches(sampling: Sampling) -> tuple[tuple[Microbatch, ...], ...]:
    rng, law, count = np.random.default_rng(sampling.seed), sampling.lengths, sampling.sequences
    found = []
    for _ in range(sampling.steps):
        if isinstance(law, LogNormal):
            drawn = np.clip(np.rint(rng.lognormal(log(law.median), law.sigma, count)), 1, law.most)
        else:
            drawn = rng.choice(np.array(law), count)
        found.append(microbatches_of(drawn.astype(np.int64).tolist(), sampling.tokens, "batch.lengths"))
    return tuple(found)


def sampling_from(table: dict[str, Any]) -> Sampling:
    """Return the sampling of a batch's table, of which only `KEYS` count."""
    if "sequences" not in table:
        raise InputError("missing key 'sequences' in batch: how many a step has")
    numbers = {
        key: check_int(f"batch.{key}", table[key], low, high)
        for key, low, high in (
            ("sequences", 1, _MOST_SEQUENCES),
            ("tokens", 1, MOST_TOKENS),
            ("steps", 1, _MOST_STEPS),
            ("seed", 0, 2**31 - 1),
        )
        if key in table
    }
    found = Sampling(_lengths(table["lengths"], numbers.get("tokens", MOST_TOKENS)), **numbers)
    if found.steps * found.sequences > _MOST_OF_ALL:
        most = _MOST_OF_ALL // found.sequences
        rule = f"must be at most {most}: all steps have at most {_MOST_OF_ALL} sequences"
        raise InputError(rule, key="batch.steps", value=found.steps)
    return found


def _lengths(value: Any, most: int) -> tuple[int, ...] | LogNormal:
    if isinstance(value, dict):
        check_keys(value, ("median", "sigma"), ("most",), "batch.lengths")
        limit = check_int("batch.lengths.most", value.get("most", most), 1, most)
        median = check_number("batch.lengths.median", value["median"], 1, most)
        sigma = check_number("batch.lengths.sigma", value["sigma"], 0, 10)
        return LogNormal(median, sigma, limit)
    if not is_list(value) or not value:
        rule = "must be a list of lengths, a CSV file of them, or { median = 600, sigma = 0.8 }"
        raise InputError(rule, key="batch.lengths", value=value)
    return tuple(check_int(f"batch.lengths[{i}]", one, 1, most) for i, one in enumerate(value))
