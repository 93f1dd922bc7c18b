"""How data-parallel pipelines share the state of parameters, and what a device holds whole of it for a while.

Between steps, a device holds its part of the state that is shared. In a step, a stage needs its parameters
whole: they are *gathered* before it first computes, or again and again. Its gradients are added up over the
microbatches, and are whole from its first W until they have been reduced over the pipelines.

How many stages of a device stay gathered is a decision of the plan, unless `Sharding.resident` names it: more
of them take memory, fewer are gathered again and again, which `gathers` times.

References
----------
Rajbhandari, Rasley, Ruwase, He: ZeRO: memory optimizations toward training trillion parameter models, SC 2020
(arXiv:1910.02054), stages 1 to 3; NVIDIA, Megatron Core, "Distributed Optimizer": bytes per parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from ..base.errors import InputError, check_choice, check_int
from ..base.files import check_keys
from ..export.model_split import RESIDENT
from .units import decimal, exact


@dataclass(frozen=True, slots=True)
class Sharding:
    """What a device holds whole, for a while in each step, of state that pipelines share."""

    gathered: Fraction = Fraction(0)  #: bytes per parameter of a stage while it is gathered
    #: bytes of the gradient of a parameter, from the first W of its stage until it is reduced
    gradient: Fraction = Fraction(0)
    #: the most stages of a device that are gathered at once, at least 1; None leaves it to the plan
    resident: int | None = None

    def gradient_bytes(self, trained: int) -> int:
        """Return the bytes of the gradients of so many parameters until they are reduced, rounded up."""
        return ceil(trained * self.gradient)

    def gathers_again(self, stages: int) -> bool:
        """Return whether a device with so many stages has to gather some of them more than once in a step."""
        return bool(self.gathered) and stages > self.kept(stages)

    def kept(self, stages: int) -> int:
        """Return how many stages stay gathered on a device with so many; all of them if that is open."""
        return stages if self.resident is None else min(self.resident, stages)

    def is_pytorchs(self, stages: int) -> bool:
        """Return whether PyTorch keeps as many of a device's stages gathered, which has no setting for it."""
        return self.kept(stages) == min(RESIDENT, stages)

    def most_gathered(self, stages: Iterable[int]) -> int:
        """Return the most bytes gathered at once on a device, given the parameters of each of its stages."""
        return sum(ceil(each * self.gathered) for each in sorted(stages, reverse=True)[: self.resident])

    def least_bytes(self, parameters: int, trained: int, stages: int) -> Fraction:
        """Return the fewest bytes that devices with `stages` stages each hold whole, summed over all of them.

        On each device, the stages with most parameters have at least their number's share of its parameters.
        """
        share = Fraction(self.kept(stages), stages)
        return parameters * self.gathered * share + trained * self.gradient


NOT_SHARED = Sharding()


class State(NamedTuple):
    """The state of parameters, in bytes per parameter."""

    held: Fraction  #: what each device always holds: what is replicated, and its part of what is shared
    sharding: Sharding  #: what it holds whole for a while
    exchanged: Fraction  #: of a parameter that pipelines gather because each has updated its share only


_PARTS = ("replicated", "sharded", "gathered", "gradient")
KINDS: dict[str, dict[str, int]] = {
    "none": {"replicated": 18},
    "optimizer": {"replicated": 6, "sharded": 12},
    "gradients": {"replicated": 2, "sharded": 16, "gradient": 4},
    "parameters": {"sharded": 16, "gathered": 2, "gradient": 4},
}
"""The usual bytes per parameter of each kind of sharding, in mixed precision with Adam.

A parameter computes in 2 bytes, its gradient is added up in 4, and the optimizer has 12: the parameter in 32
bits and two moments. What is sharded of `gradients` and `parameters` includes 4 of the reduced gradient.
"""
_COMPUTES = Fraction(2)  # bytes of a parameter that computes


def state_from_table(table: dict[str, Any], data_parallel: int) -> State:
    """Return the state of parameters that a cluster's table describes, for `data_parallel` pipelines.

    A plain number of `bytes_per_parameter` is divided by `data_parallel`. In a table, only the entry
    `sharded` is divided. A single pipeline shares nothing, whatever `sharding` is.
    """
    asked = check_choice("cluster.sharding", table.get("sharding", "none"), *KINDS)
    kind = asked if data_parallel > 1 else "none"
    key, usual = "cluster.bytes_per_parameter", KINDS[kind] if "sharding" in table else {}
    given = table.get("bytes_per_parameter", {} if usual else 0)
    if isinstance(given, dict):
        check_keys(given, (), _PARTS, key)
        parts = {name: exact(f"{key}.{name}", value) for name, value in (usual | given).items()}
    elif usual:
        rule = f"needs a table beside cluster.sharding, of {', '.join(_PARTS)}"
        raise InputError(rule, key=key, value=given)
    else:
        parts = {"sharded": exact(key, given)}
    replicated, sharded, gathered, gradient = (parts.get(name, Fraction(0)) for name in _PARTS)
    exchanged = gathered or (Fraction(0) if kind == "none" else _COMPUTES)
    resident = check_int("cluster.resident", table["resident"], 1) if "resident" in table else None
    if resident is not None and not (gathered or "gathered" in KINDS[asked]):
        rule = "needs cluster.sharding = 'parameters' beside it: else no parameters are gathered"
        raise InputError(rule, key="cluster.resident", value=resident)
    sharding = Sharding(gathered, gradient, resident) if gathered or gradient else NOT_SHARED
    return State(replicated + sharded / data_parallel, sharding, exchanged)


def table_of_state(sharded: Fraction, sharding: Sharding) -> dict[str, Any]:
    """Return the entries of a cluster's table from which `state_from_table` makes the same state.

    `sharded` has the bytes that each device always holds, times the number of pipelines.
    """
    if sharding == NOT_SHARED:
        return {"bytes_per_parameter": decimal(sharded)}
    parts = {"sharded": sharded, "gathered": sharding.gathered, "gradient": sharding.gradient}
    entries: dict[str, Any] = {"bytes_per_parameter": {name: decimal(part) for name, part in parts.items()}}
    named = sharding.gathered and sharding.resident is not None
    return entries | ({"resident": sharding.resident} if named else {})
