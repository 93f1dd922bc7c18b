"""Sequences that let others pass the longest microbatch, as a few numbers that a search can change; compiled.

While the longest microbatch is away, its device has little to do: memory holds only some others that began
before it, or begin after it. Those that pass it as a whole need no memory at either end. So long ones begin
before it, behind a few short ones, and the rest pass, a part of them at one visit on its way up and the
others at one on its way down; a few short ones may be last. A *shape* says how many do what, and at which
visits. A change of one number moves many microbatches, so that a search of a few hundred runs finds a good
shape, where exchanges of two microbatches would hardly leave the first one.
"""

from __future__ import annotations

from typing import NamedTuple

from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.kernels.compiled import compiled

from .random_kernel import GeneratorState, draw, draw_normal

SHAPE = 8
"""How many numbers a shape has, each from 0 to 1.

In sequence: the visits on the way up and down at which the longest one is passed; the share of long ones that
begin before it; the shares of short ones that are first and last; the share of the rest that pass on the way
up; how many of the rest run by falling length, and whether these are the first or the last ones.
"""
_STEP = 0.15  # standard deviation of a small change of a number


class Shapes(NamedTuple):
    """The shapes of the present rule, of the best rule and of a working copy, in which `tune` tries changes.

    - `rising`: the microbatches by rising work, shape (n,); empty where sequences have no shape.
    - `numbers`: the shapes, (3, SHAPE).
    """

    rising: Ints
    numbers: Floats


@compiled
def reshape(random: GeneratorState, shape: Floats) -> None:
    """Change one number of a shape: draw it anew, or change it a little."""
    k = int(draw(random) * len(shape))
    if draw(random) < 0.5:
        shape[k] = draw(random)
    else:
        shape[k] = min(max(shape[k] + _STEP * draw_normal(random), 0.0), 1.0)


@compiled
def lay_out(rising: Ints, shape: Floats, sequences: Ints) -> None:
    """Write the sequence of each visit, shape (V, n), that has a shape."""
    visits, others = len(sequences), len(rising) - 1
    up = 1 + int(shape[0] * (visits // 2 - 1))
    down = visits // 2 + int(shape[1] * (visits // 2))
    long = int(others * (0.1 + 0.5 * shape[2]))
    short = min(others - long, int(others * shape[3] / 5))
    last = min(others - long - short, int(others * shape[4] / 4))
    passing, least = others - long - short - last, short + last
    half, falling = int(passing * shape[5]), int(passing * shape[6])
    for visit in range(visits):
        ahead = short + long + (0 if visit < up else half if visit < down else passing)
        for k in range(others):
            i = k - short - long  # place among the rest
            if k < short:
                m = rising[k]
            elif i < 0:
                m = rising[others + i]
            elif i >= passing:
                m = rising[least - 1 - (i - passing)]
            elif shape[7] < 0.5:
                m = rising[least + (falling - 1 - i if i < falling else i)]
            else:
                m = rising[least + (i + falling if i < passing - falling else passing - 1 - i)]
            sequences[visit, k if k < ahead else k + 1] = m
        sequences[visit, ahead] = rising[others]
