"""What training frameworks can run: their methods, placements, objectives and numbers of microbatches.

A search space that names a runtime holds only plans that this runtime runs as they are, with its own schedule
or with a schedule that it reads from a file.

- **Megatron-LM** runs 1F1B on one stage per device and interleaved 1F1B on several, with fused backwards, and
  combined 1F1B if it is told to overlap the communication of experts. With several stages per device it needs
  at least two devices, and as many microbatches as devices. Its optimizer steps when all devices have ended,
  since the norm of the gradients is one of all.
- **The zero-bubble runtime** walks lists of F, B and W of any order, one operation after another, with one
  stage per device or two in a V.
- **PyTorch** runs any order of a placement in which each stage has one device. It has no B at stage 0, for
  which nobody waits: the W there computes all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tightpipe.heuristics import HEURISTICS
from tightpipe.heuristics.family import one_f_one_b_order
from tightpipe.heuristics.interleaved import group_sizes, interleaved_order

from ..base.errors import InputError
from ..model.costs import Objective
from ..model.instance import Instance
from ..model.orders import order_of
from ..model.placement import Placement
from ..model.schedule import Schedule
from ..model.simulate import retime

SOLVER = "best"
"""The method that may schedule a candidate after the heuristics."""
SCHEDULING = (*HEURISTICS, SOLVER)
"""The methods that may schedule a candidate."""
_COMBINED = ("1f1b-overlap", "interleaved-overlap")
_IN_PAIRS = (*_COMBINED, "dualpipe", "dualpipe-v")


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a framework can run.

    Parameters
    ----------
    name
        The name for people.
    placements
        Names of the placements.
    methods
        Names of the methods whose schedules it runs.
    objectives
        What a step of it may cost.
    optional
        Names of methods whose schedules it runs if it is told to; a search space has to name them.
    groups
        Whether several stages on a device take turns for groups of microbatches, of at least as many as there
        are devices.
    joins_first
        Whether stage 0 has no B of its own, because its W computes both gradients.
    """

    name: str
    placements: tuple[str, ...] = ("v", "linear", "loop", "wave")
    methods: tuple[str, ...] = SCHEDULING
    objectives: tuple[Objective, ...] = tuple(Objective)
    optional: tuple[str, ...] = ()
    groups: bool = False
    joins_first: bool = False

    def runs(self, placement: Placement, microbatches: int) -> bool:
        """Return whether it runs so many microbatches in a placement."""
        few = microbatches < placement.devices or placement.devices == 1
        return not (self.groups and placement.stages_per_device > 1 and few)


RUNTIMES = {
    "any": Runtime("any runtime"),
    "torch": Runtime("PyTorch", joins_first=True),
    "megatron": Runtime(
        "Megatron-LM",
        ("linear", "loop"),
        ("1f1b", "interleaved-1f1b"),
        (Objective.STEP,),
        _COMBINED,
        groups=True,
    ),
    "zero-bubble": Runtime(
        "the zero-bubble runtime",
        ("v", "linear"),
        tuple(name for name in SCHEDULING if name not in _IN_PAIRS),
    ),
}
"""What a search space may name as its `runtime`."""


def megatron_schedule(instance: Instance, group: int | None = None) -> Schedule:
    """Return the schedule that Megatron-LM runs by itself: 1F1B, or interleaved 1F1B with several stages.

    Parameters
    ----------
    instance
        The problem, which says nothing else about the schedule.
    group
        Microbatches of a group, if several stages take turns; None for the fewest that Megatron-LM accepts,
        because more of them take more memory.

    Raises
    ------
    InputError, NoScheduleError
        If it has no schedule for the placement or the number of microbatches, or the schedule takes more
        memory than there is.
    """
    placement, megatron = instance.placement, RUNTIMES["megatron"]
    if placement.name not in megatron.placements:
        rule = f"Megatron-LM runs {' and '.join(megatron.placements)}"
        raise InputError(rule, key="placement", value=placement.name)
    if not megatron.runs(placement, instance.microbatches):
        rule = "Megatron-LM needs two devices, and as many microbatches, to run several stages on each"
        raise InputError(rule, key="microbatches", value=instance.microbatches)
    if placement.stages_per_device == 1:
        linear = replace(instance, placement=Placement("linear", instance.devices))
        return replace(retime(linear, order_of(linear, one_f_one_b_order)), instance=instance)
    size = group or group_sizes(instance.devices, instance.microbatches)[0]
    return retime(instance, order_of(instance, partial(interleaved_order, group=size)))
