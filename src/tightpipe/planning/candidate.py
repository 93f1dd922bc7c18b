"""A candidate says where the model is cut, where the stages run and which layers are recomputed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ..core.errors import InputError
from ..core.instance import Costs, Instance, Memory
from ..core.placement import Placement
from .layered_model import Layer
from .problem import PlanningProblem


@dataclass(frozen=True, slots=True)
class Candidate:
    """All of a plan but the schedule.

    Parameters
    ----------
    placement
        Which device runs which stage.
    cuts
        One number more than there are stages: stage `s` has the layers from `cuts[s]` up to, not including,
        `cuts[s + 1]`. The first number is 0 and the last one the number of layers.
    recomputed
        For each stage the indices of its recomputed layers, ascending.
    """

    placement: Placement
    cuts: tuple[int, ...]
    recomputed: tuple[tuple[int, ...], ...]

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """The first layer of each stage and the first layer after it."""
        return tuple(pairwise(self.cuts))


@dataclass(frozen=True, slots=True)
class StageNumbers:
    """The ticks and bytes of one stage for one microbatch.

    F, B and W run for `forward`, `backward` and `weight` ticks. F takes `held` bytes, of which W frees
    `freed_by_weight` and B the rest. B takes `transient` more bytes while it recomputes, as many as its
    largest recomputed layer needs. The static state of the stage has `static` bytes, and the message to the
    next stage `output` bytes.
    """

    forward: int
    backward: int
    weight: int
    held: int
    freed_by_weight: int
    transient: int
    static: int
    output: int


def stage_numbers(
    problem: PlanningProblem, first: int, end: int, recomputed: tuple[int, ...]
) -> StageNumbers:
    """Return the ticks and bytes of a stage with the layers `first` to `end - 1`.

    The layers whose indices in the model are in `recomputed` are recomputed.
    """
    layers = problem.model.layers
    stage, again = layers[first:end], [layers[index] for index in recomputed]
    return StageNumbers(
        forward=sum(layer.forward for layer in stage),
        backward=sum(layer.backward for layer in stage) + sum(layer.forward for layer in again),
        weight=sum(layer.weight for layer in stage),
        held=sum(layer.activation for layer in stage) - sum(map(_saved, again)),
        freed_by_weight=sum(layer.weight_activation for layer in stage),
        transient=max(map(_saved, again), default=0),
        static=problem.cluster.static_bytes(sum(layer.parameters for layer in stage)),
        output=stage[-1].output or 0,
    )


def _saved(layer: Layer) -> int:
    return layer.activation - layer.kept


def numbers_of(problem: PlanningProblem, candidate: Candidate) -> tuple[StageNumbers, ...]:
    """Return the ticks and bytes of each stage of a candidate."""
    parts = zip(candidate.stages, candidate.recomputed, strict=True)
    return tuple(stage_numbers(problem, *layers, recomputed) for layers, recomputed in parts)


def static_of(placement: Placement, stages: tuple[StageNumbers, ...], device: int) -> int:
    """Return the bytes of static state of a device, summed over its stages."""
    return sum(stages[stage].static for stage in placement.stages_on(device))


def transient_of(placement: Placement, stages: tuple[StageNumbers, ...], device: int) -> int:
    """Return the transient bytes of a device: the most of any of its stages, since one B runs at a time."""
    return max((stages[stage].transient for stage in placement.stages_on(device)), default=0)


def held_apart(problem: PlanningProblem, placement: Placement, stages: tuple[StageNumbers, ...]) -> list[int]:
    """Return, for each device, the bytes that activations cannot use.

    These bytes are the sum of the device's static state, the reserve and the device's transient bytes.
    """
    return [
        problem.cluster.reserve
        + transient_of(placement, stages, device)
        + static_of(placement, stages, device)
        for device in range(placement.devices)
    ]


def instance_of(problem: PlanningProblem, candidate: Candidate) -> Instance:
    """Return the scheduling problem that a candidate leaves open.

    Memory is in bytes. The limit of a device is its memory less its static state, `Cluster.reserve` and its
    transient bytes (`StageNumbers`). The message time between two devices is the time of the longest message
    between them.

    Raises
    ------
    InputError
        If F, B or W of a stage takes no time without recomputation, or a device has no memory for one
        activation.
    """
    for first, end in candidate.stages:
        if not problem.model.is_complete(first, end):
            rule = f"a stage of layers {first} to {end - 1} has no F, no B or no W that takes time"
            raise InputError(rule, key="layers", value=[first, end])
    stages, placement = numbers_of(problem, candidate), candidate.placement
    return Instance(
        placement,
        problem.batch.microbatches,
        Costs(
            [stage.forward for stage in stages],
            [stage.backward for stage in stages],
            [stage.weight for stage in stages],
            comm_matrix(problem, placement, [stage.output for stage in stages]),
        ),
        None if problem.cluster.memory is None else memory_of(problem, placement, stages),
        problem.space.objective,
    )


def memory_of(problem: PlanningProblem, placement: Placement, stages: tuple[StageNumbers, ...]) -> Memory:
    """Return the bytes that F, B and W of each stage take or free, and the devices' limits, if any."""
    sizes = problem.cluster.memory_of(placement.devices)
    apart = held_apart(problem, placement, stages)
    return Memory(
        [stage.held for stage in stages],
        [stage.freed_by_weight - stage.held for stage in stages],
        [-stage.freed_by_weight for stage in stages],
        None if sizes is None else [size - taken for size, taken in zip(sizes, apart, strict=True)],
    )


def comm_matrix(problem: PlanningProblem, placement: Placement, outputs: list[int]) -> list[list[int]]:
    """Return the time of the longest message from each device to each other one, in ticks.

    `outputs` has the bytes of each stage's output, which goes to the next stage. The gradient of this output,
    which is equally large, comes back.
    """
    size: dict[tuple[int, int], int] = {}
    for route in placement.routes:
        for output, (sender, receiver) in zip(outputs, pairwise(route), strict=False):
            for pair in ((sender, receiver), (receiver, sender)):
                size[pair] = max(output, size.get(pair, 0))
    p, ticks = placement.devices, problem.cluster.comm_ticks
    return [[ticks(a, b, size.get((a, b), 0)) for b in range(p)] for a in range(p)]
