"""The memory of a device in a plan, by use: static state, activations, recomputation, reserve."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..core.metrics import peak_memory
from ..core.schedule import Schedule
from .candidate import Candidate, memory_of, numbers_of, static_of, transient_of
from .problem import PlanningProblem


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of one device in bytes.

    Parameters
    ----------
    static
        Weights, gradients and optimizer state.
    activations
        The most bytes that the activations of all microbatches take at one time.
    transient
        The bytes that recomputation takes while a B runs, for the recomputed layer that needs most.
    reserve
        Memory that a plan may not use.
    limit
        The size of the memory; None where memory does not matter.
    """

    static: int
    activations: int
    transient: int
    reserve: int
    limit: int | None

    @property
    def peak(self) -> int:
        """The sum of static state, activations, transient bytes and reserve."""
        return self.static + self.activations + self.transient + self.reserve


def device_memories(
    problem: PlanningProblem, candidate: Candidate, schedule: Schedule
) -> tuple[DeviceMemory, ...]:
    """Return the memory of each device in a schedule of a candidate.

    Activations are counted even if the cluster has no memory limit. The schedule's instance then says nothing
    about memory.
    """
    stages, placement = numbers_of(problem, candidate), candidate.placement
    counting = replace(schedule.instance, memory=memory_of(problem, placement, stages))
    activations = peak_memory(replace(schedule, instance=counting)).tolist()
    limits = problem.cluster.memory_of(placement.devices) or (None,) * placement.devices
    return tuple(
        DeviceMemory(
            static=static_of(placement, stages, device),
            activations=activations[device],
            transient=transient_of(placement, stages, device),
            reserve=problem.cluster.reserve,
            limit=limits[device],
        )
        for device in range(placement.devices)
    )
