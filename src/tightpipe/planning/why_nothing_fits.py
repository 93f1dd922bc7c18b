"""The reason why no partition fits the memory, and what would help, in words for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from ..core.budget import UNLIMITED, Budget, TimeUpError
from ..core.errors import InputError
from .candidates_by_list import device_stages
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .partitions import least_excess, partitions_of
from .plan_text import layer_names
from .problem import PlanningProblem
from .search_space import configurations_of

_MOST_TIMES = 4  # the most devices that are tried, as a multiple of the cluster's largest number of devices


def why_nothing_fits(
    problem: PlanningProblem, configurations: list[Configuration], until: Budget = UNLIMITED
) -> str:
    """Return a line of text that says why no partition of the search space fits, and what would help.

    Raises
    ------
    TimeUpError
        If the time of `until` is up before the reason is known. What would help is then left out.
    """
    lacking = [(least_excess(found, until), found) for found in configurations]
    excess, best = min(lacking, key=lambda pair: pair[0])
    placement = best.placement
    where = f"{placement.devices} devices in placement {placement.name} with {placement.stages} stages"
    why = (
        f"no partition fits: even on {where}, the fullest device lacks {excess} bytes to hold one microbatch"
        f"{_which_device(best, excess, until)}"
    )
    return "; ".join((why, *_help(problem, until)))


def _which_device(configuration: Configuration, excess: int, until: Budget) -> str:
    """Return in words the fullest device and its layers, in a partition that lacks at most `excess` bytes.

    The text is empty if there are too many partitions to look at all of them and none is found, or if time is
    up.
    """
    problem, placement = configuration.problem, configuration.placement
    larger = replace(configuration, problem=_with_more_memory(problem, excess))
    try:
        candidate = partitions_of(larger, until).take(until)
    except TimeUpError:
        return ""
    if candidate is None:  # there are too many partitions to look at all of them
        return ""
    devices = device_stages(configuration, configuration.arrays())
    lacking = [device.excess(candidate.cuts) for device in devices]
    fullest = lacking.index(max(lacking))
    cuts, layers = candidate.cuts, problem.model.layers
    held = (layer_names(layers, cuts[s], cuts[s + 1]) for s in placement.stages_on(fullest))
    return f" (device {fullest} with {', '.join(held)})"


def _with_more_memory(problem: PlanningProblem, size: int) -> PlanningProblem:
    cluster = problem.cluster
    memory = (
        cluster.memory + size
        if isinstance(cluster.memory, int)
        else tuple(each + size for each in cluster.memory or ())
    )
    return replace(problem, cluster=replace(cluster, memory=memory))


def _help(problem: PlanningProblem, until: Budget) -> Iterator[str]:
    """Yield in words what would let a plan fit, recomputation or more devices, until time is up."""
    with suppress(TimeUpError):
        yield from _what_helps(problem, until)


def _what_helps(problem: PlanningProblem, until: Budget) -> Iterator[str]:
    if not problem.space.recompute and any(layer.recomputable for layer in problem.model.layers):
        lacking = _excess(replace(problem, space=replace(problem.space, recompute=True)), until)
        yield 'with recompute = "blocks" ' + ("it fits" if lacking == 0 else f"it lacks {lacking} bytes")
    most = problem.cluster.devices[-1]
    if isinstance(problem.cluster.memory, int) and not isinstance(problem.cluster.comm, tuple):
        for devices in range(most + 1, _MOST_TIMES * most + 1):
            if _excess(replace(problem, cluster=replace(problem.cluster, devices=(devices,))), until) == 0:
                yield f"it fits on {devices} devices"
                return


def _excess(problem: PlanningProblem, until: Budget) -> int:
    try:
        return min(least_excess(found, until) for found in configurations_of(problem))
    except InputError:  # more devices than layers
        return NEVER
