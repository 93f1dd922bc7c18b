"""How data-parallel pipelines share the state of parameters, and what a device holds whole of it for a while.

Between steps, a device holds its part of the state that is shared. In a step, a stage needs its parameters
whole: they are *gathered* before it first computes, or again and again. Its gradients are added up over the
microbatches, and are whole from its first W until they have been reduced over the pipelines.

Where few stages stay gathered, the order of operations decides how often PyTorch gathers each. Before each
operation of a device, it gathers the stages that the device needs next, `Sharding.resident` different ones,
and gives up all others. Because it gathers ahead, it may gather more often than would be needed: with two
stages at once and the sequence 0, 1, 2, 0, stage 0 makes room for stage 2 before stage 1 runs, and four
gathers do what three could.

The schedule of a plan waits for the first gather of each stage only, as a part of `Step.ready`. But gathers
and reductions of a device run one after another, on its data-parallel stream. So a step takes at least as
long as these of any device together (`candidate.exchange_ticks`), and the cost of a plan is no less.

References
----------
Rajbhandari, Rasley, Ruwase, He: ZeRO: memory optimizations toward training trillion parameter models, SC 2020
(arXiv:1910.02054), stages 1 to 3; NVIDIA, Megatron Core, "Distributed Optimizer": bytes per parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from ..base.errors import InputError, check_choice, check_int
from ..base.files import check_keys
from ..export.model_split import RESIDENT
from ..model.placement import Placement
from ..model.schedule import Schedule
from .units import Tick, decimal, exact


@dataclass(frozen=True, slots=True)
class Sharding:
    """What a device holds whole, for a while in each step, of state that pipelines share."""

    gathered: Fraction = Fraction(0)  #: bytes per parameter of a stage while it is gathered
    #: bytes of the gradient of a parameter, from the first W of its stage until it is reduced
    gradient: Fraction = Fraction(0)
    resident: int = RESIDENT  #: the most stages of a device that are gathered at once, at least 1

    def gradient_bytes(self, trained: int) -> int:
        """Return the bytes of the gradients of so many parameters until they are reduced, rounded up."""
        return ceil(trained * self.gradient)

    def gathers_again(self, stages: int) -> bool:
        """Return whether a device with so many stages has to gather some of them more than once in a step."""
        return bool(self.gathered) and stages > self.resident

    def is_pytorchs(self, stages: int) -> bool:
        """Return whether PyTorch keeps as many of a device's stages gathered, which has no setting for it."""
        return min(self.resident, stages) == min(RESIDENT, stages)

    def most_gathered(self, stages: Iterable[int]) -> int:
        """Return the most bytes gathered at once on a device, given the parameters of each of its stages."""
        return sum(ceil(each * self.gathered) for each in sorted(stages, reverse=True)[: self.resident])

    def least_bytes(self, parameters: int, trained: int, stages: int) -> Fraction:
        """Return the fewest bytes that devices with `stages` stages each hold whole, summed over all of them.

        On each device, the stages with most parameters have at least their number's share of its parameters.
        """
        share = Fraction(min(self.resident, stages), stages)
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
    resident = check_int("cluster.resident", table.get("resident", RESIDENT), 1)
    if "resident" in table and not (gathered or "gathered" in KINDS[asked]):
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
    return entries | ({"resident": sharding.resident} if sharding.gathered else {})


def gathers_of(stages: Sequence[int], resident: int) -> Counter[int]:
    """Return how often a device gathers each stage in a step, as PyTorch's pipelines do.

    Before each operation, those stages are gathered that the device needs next, `resident` different ones.

    - `stages`: the stage of each operation of the device, in sequence.
    - `resident`: how many stages stay gathered at once.
    """
    found, needed, after = Counter[int](), list[int](), set[int]()
    for stage in reversed(stages):
        # `needed` has the stages of later operations, those of the next ones first
        needed = [stage, *(other for other in needed if other != stage)]
        now = set(needed[:resident])
        found.update(after - now)
        after = now
    found.update(after)
    return found


def gathers_in(sharding: Sharding, schedule: Schedule) -> list[int] | None:
    """Return how often a step gathers each stage; None if pipelines do not share parameters."""
    order, found = schedule.order, Counter[int]()
    if not sharding.gathered:
        return None
    for device in range(order.devices):
        found.update(gathers_of(order.operations[order.rows(device), 1].tolist(), sharding.resident))
    return [found[stage] for stage in range(schedule.instance.stages)]


def gathered_text(
    sharding: Sharding, placement: Placement, counts: Sequence[int], ticks: Sequence[int], tick: Tick
) -> str:
    """Return in words how many stages stay gathered, and what it takes to gather some of them again.

    `counts` says how often a step gathers each stage, and `ticks` how long a gather of it takes.
    """
    stages = placement.stages_per_device
    told = (
        "fsdp_reshard_after_forward: never" if sharding.is_pytorchs(stages) else f"PyTorch keeps {RESIDENT}"
    )
    if not sharding.gathers_again(stages):
        return f"all of {stages} stage(s) of a device, once in a step ({told})"
    again = max(
        sum((counts[s] - 1) * ticks[s] for s in placement.stages_on(device))
        for device in range(placement.devices)
    )
    took = f" ({tick.time_of(again)} {tick.unit} of a device)" if again else ""
    return (
        f"{sharding.resident} of {stages} stages of a device at once ({told}), {sum(counts)} gathers a step, "
        f"{sum(counts) - len(counts)} of them again{took}: in the cost only as far as exchanges alone "
        "take longer than the schedule"
    )
