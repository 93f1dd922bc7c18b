"""Upper bounds on the work that fits into a memory limit, by linear relaxation of a knapsack problem."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import gcd


@dataclass(frozen=True, slots=True)
class Choice:
    """Identical things, each of which may be taken at most once, and then in one of several forms.

    Parameters
    ----------
    count
        Number of things.
    forms
        Each form as (memory, work in ticks).
    """

    count: int
    forms: tuple[tuple[int, int], ...]


def most_work(choices: list[Choice], limit: int | None) -> int:
    """Return an upper bound on the work, in ticks, of the things that fit into the memory `limit` together.

    The bound is the value of the linear relaxation, with the limit rounded down to a multiple of the greatest
    common divisor of all memories. It is exact if all forms need the same memory.

    Parameters
    ----------
    choices
        The things that can be taken. Memory and work of every form are at least 0.
    limit
        The memory limit; None for no limit.
    """
    if limit is None:
        return sum(c.count * max(work for _, work in c.forms) for c in choices)
    unit = gcd(*(memory for c in choices for memory, _ in c.forms)) or 1
    room, total = Fraction(limit // unit * unit), Fraction(0)
    steps = [(memory, work, c.count) for c in choices for memory, work in _increments(c.forms)]
    for memory, work, count in sorted(steps, key=_density, reverse=True):
        taken = Fraction(count) if memory == 0 else min(Fraction(count), room / memory)
        room -= taken * memory
        total += taken * work
    return int(total)


def _density(step: tuple[int, int, int]) -> tuple[bool, Fraction]:
    memory, work, _ = step
    return (memory == 0, Fraction(work, memory or 1))


def _increments(forms: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Return the edges of the upper concave hull of (0, 0) and the forms, steepest first.

    An edge is given as the (memory, work) that it adds.
    """
    hull: list[tuple[int, int]] = [(0, 0)]
    for memory, work in sorted(forms, key=lambda form: (form[0], -form[1])):
        if work <= hull[-1][1]:
            continue
        while len(hull) > 1 and _left_of(hull[-2], hull[-1], (memory, work)):
            hull.pop()
        hull.append((memory, work))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(hull)]


def _left_of(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Return whether b lies on or below the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])
