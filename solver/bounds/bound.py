"""What a bound is: a number with its name and the argument that proves it."""

from __future__ import annotations

from dataclasses import dataclass

from tightpipe.result import Proof


@dataclass(frozen=True, slots=True)
class Bound:
    """A proven lower bound of the cost.

    Parameters
    ----------
    value
        In ticks: no schedule of the instance costs less.
    name
        Name of the bound.
    argument
        Why it holds here, in one line for people.
    seconds
        Wall time of its computation.
    proof
        What kind of argument it is.
    """

    value: int
    name: str
    argument: str
    seconds: float
    proof: Proof = Proof.FORMULA
