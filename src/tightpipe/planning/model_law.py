"""Layers whose costs are laws in the lengths of sequences, and the slices into which sequences are cut.

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
from math import ceil
from typing import Any

from ..base.errors import InputError
from ..model.law import Law
from .layered_model import Layer, Model, Recomputation

TIMES = ("forward", "backward", "weight")
BYTES = ("activation", "weight_activation", "output")
_OF_KINDS = (*BYTES, "transient")
EQUAL = {"tokens": (), "forward": ("forward",), "all": TIMES}
"""What may be equal in all slices: their tokens, the time of F, or that of F, B and W together. For each, the
laws that are summed; none stands for the tokens."""
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
    """Return the model whose layers cost what their laws say at so many tokens and squares.

    Times that are not 0 throughout are rounded to whole ticks, at least 1, and bytes are rounded up. Raise an
    InputError if a law gives a time of 0 or less, or fewer than 0 bytes.
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
