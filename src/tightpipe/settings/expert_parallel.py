"""How long a forward and a backward with experts take together, if the network works beside the GPU.

A layer with expert parallelism computes attention, sends every token to its experts (dispatch), computes the
experts, and brings the results back (combine). Alone, a forward keeps the GPU waiting while tokens travel. As
a pair with the backward of another microbatch, as in DualPipe and in the combined 1F1B of Megatron-Core, one
computes while the tokens of the other travel. Both are chains of parts, each on the GPU or on the network,
and neither machine serves two at a time. How to interleave two chains in the least time is a job shop of two
jobs.

References
----------
S. B. Akers, "A graphical approach to production scheduling problems", Operations Research 4, 1956; that two
jobs take polynomial time: P. Brucker, "An efficient algorithm for the job-shop problem with two jobs",
Computing 40, 1988. Pairs: DeepSeek-AI, arXiv:2412.19437, section 3.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from itertools import zip_longest
from typing import Any

from ..base.errors import InputError, about_entry, check_int
from ..base.files import check_keys

Chain = tuple[tuple[str, int], ...]
"""The parts of a forward or backward in sequence: the machine (`gpu` or `network`) and the ticks of each."""


@dataclass(frozen=True, slots=True)
class ExpertCosts:
    """Ticks of the four parts of a layer, forward or backward."""

    attention: int  #: ticks on the GPU
    dispatch: int  #: ticks on the network, 0 for a W
    experts: int  #: ticks on the GPU
    combine: int  #: ticks on the network, 0 for a W; in a backward, its gradient travels first

    def __post_init__(self) -> None:
        for each in fields(self):
            check_int(each.name, getattr(self, each.name), 0)

    def forward(self) -> Chain:
        """Return the chain of a forward with these costs."""
        names = ("attention", "dispatch", "experts", "combine")
        return tuple((_MACHINE[name], getattr(self, name)) for name in names if getattr(self, name))

    def backward(self) -> Chain:
        """Return the chain of a backward with these costs."""
        return tuple(reversed(self.forward()))

    def with_weight(self, weight: ExpertCosts) -> ExpertCosts:
        """Return the costs of a BW, for those of a B and of its W."""
        return ExpertCosts(*(getattr(self, each.name) + getattr(weight, each.name) for each in fields(self)))

    @property
    def ticks(self) -> int:
        """The ticks of all parts one after another."""
        return sum(ticks for _, ticks in self.forward())

    @property
    def computing(self) -> int:
        """The ticks of the parts on the GPU."""
        return self.attention + self.experts


_MACHINE = {"attention": "gpu", "dispatch": "network", "experts": "gpu", "combine": "network"}


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """Ticks of the parts of a layer's F, B and W."""

    forward: ExpertCosts
    backward: ExpertCosts
    weight: ExpertCosts

    def __post_init__(self) -> None:
        for each in fields(self):
            costs = getattr(self, each.name)
            if costs.ticks and not costs.computing:
                rule = "must compute in attention or experts: no operation is on the network alone"
                raise InputError(rule, key=each.name, value=asdict(costs))

    @classmethod
    def from_tables(cls, data: Any, where: str) -> ExpertLayer:
        """Return the layer that a table of a file, whose name is `where`, describes."""
        check_keys(data, tuple(each.name for each in fields(cls)), (), where)
        parts = tuple(part.name for part in fields(ExpertCosts))
        for key, value in data.items():
            check_keys(value, parts, (), f"{where}.{key}")
            for part in parts:
                check_int(f"{where}.{key}.{part}", value[part], 0)
        with about_entry(where):
            return cls(**{key: ExpertCosts(**value) for key, value in data.items()})

    def chains(self) -> tuple[Chain, Chain]:
        """Return the chains of the layer's F and of its BW."""
        return self.forward.forward(), self.backward.with_weight(self.weight).backward()


@lru_cache(maxsize=4096)
def ticks_together(one: Chain, other: Chain) -> int:
    """Return the least ticks in which two chains end that start together.

    Draw the progress of one chain to the right and that of the other upwards. A schedule is a path from one
    corner of the rectangle to the other; where both run, it goes diagonally. It must not cross the inside of
    a block, which is where both chains would use the same machine. So from a point a shortest path goes on
    diagonally until it meets a block, and passes that block at its right lower corner, where `one` comes
    first, or at its left upper corner, where `other` does. Only these corners have to be looked at.
    """
    right, up = sum(ticks for _, ticks in one), sum(ticks for _, ticks in other)
    blocks = sorted(
        (x, y, x + a, y + b)
        for x, (machine, a) in _placed(one)
        for y, (same, b) in _placed(other)
        if machine == same
    )

    @cache
    def left(x: int, y: int) -> int:
        met = [_ticks_until(x, y, block) for block in blocks]
        first = min((ticks, block) for ticks, block in [*zip(met, blocks, strict=True), (right + up, _NONE)])
        if first[0] >= min(right - x, up - y):
            return max(right - x, up - y)
        x0, y0, x1, y1 = first[1]
        corners = [(a, b) for a, b in ((x1, y0), (x0, y1)) if a >= x and b >= y]
        return min(max(a - x, b - y) + left(a, b) for a, b in corners)

    return left(0, 0)


_NONE = (0, 0, 0, 0)


def _placed(chain: Chain) -> list[tuple[int, tuple[str, int]]]:
    """Return the parts of a chain, each with the ticks before it."""
    before = 0
    found = []
    for part in chain:
        found.append((before, part))
        before += part[1]
    return found


def _ticks_until(x: int, y: int, block: tuple[int, int, int, int]) -> int:
    """Return after how many ticks a diagonal from a point enters a block; a large number if it never does."""
    x0, y0, x1, y1 = block
    ticks = max(x0 - x, y0 - y, 0)
    inside = x + ticks < x1 and y + ticks < y1
    return ticks if inside else 2**62


def pair_ticks(
    forward: Sequence[ExpertCosts], backward: Sequence[ExpertCosts], weight: Sequence[ExpertCosts]
) -> list[list[int]]:
    """Return the entry `pairs` of an instance: the ticks of the F of each stage with the BW of each stage.

    The costs are those of each stage, for its F, its B and its W. In a BW each part of a B comes with that of
    W. Raise an InputError if there are not as many costs for backwards as for forwards.
    """
    for key, given in (("backward", backward), ("weight", weight)):
        if len(given) != len(forward):
            rule = f"must have one entry for each of the {len(forward)} stages"
            raise InputError(rule, key=key, value=len(given))
    both = [b.with_weight(w).backward() for b, w in zip(backward, weight, strict=True)]
    return [[ticks_together(f.forward(), bw) for bw in both] for f in forward]


def ticks_in_turn(forwards: Sequence[Chain], backwards: Sequence[Chain]) -> int:
    """Return the ticks of an F of several layers with a BW of several layers, as Megatron-Core runs them.

    The first layer of the F runs together with the last one of the BW, the second with the last but one, and
    so on. Where one of the two has more layers, these run alone. `backwards` has the chains of the BW's
    layers in the sequence of the layers.
    """
    return sum(ticks_together(*pair) for pair in zip_longest(forwards, reversed(backwards), fillvalue=()))
