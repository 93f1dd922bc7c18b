"""Batches of training steps that are sampled from a distribution of the lengths of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Any

import numpy as np

from ..base.data_files import check_keys
from ..base.errors import InputError, check_int, is_list
from ..model.law import MOST_TOKENS, Microbatch, microbatches_of, squares_of

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
    """Training steps, each with sequences of random lengths, independent of each other.

    - `lengths`: the distribution, or lengths each of which is equally likely.
    - `sequences`: sequences of a step of one pipeline.
    - `tokens`: the most tokens of a microbatch, into which sequences are packed; None for microbatches of
      one.
    - `steps`: how many steps are sampled.
    - `seed`: seed of the random numbers. They do not depend on a plan, so that all plans run the same
      batches.
    """

    lengths: tuple[int, ...] | LogNormal
    sequences: int
    tokens: int | None = None
    steps: int = 16
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
    """Return the sampling of a batch's table, of which only `KEYS` count.

    Raise an InputError if a value is wrong; the message names its key.
    """
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
        return LogNormal(_number("median", value, 1, most), _number("sigma", value, 0, 10), limit)
    if not is_list(value) or not value:
        rule = "must be a list of lengths, a CSV file of them, or { median = 600, sigma = 0.8 }"
        raise InputError(rule, key="batch.lengths", value=value)
    return tuple(check_int(f"batch.lengths[{i}]", one, 1, most) for i, one in enumerate(value))


def _number(key: str, table: dict[str, Any], low: float, high: float) -> float:
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InputError(f"must be a number from {low} to {high}", key=f"batch.lengths.{key}", value=value)
    return float(value)
