"""A candidate says where the model is cut, where the stages run and which layers are recomputed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import cycle, pairwise, product
from math import ceil
from typing import Any

from ..base.errors import InputError, check_int
from ..model.costs import Costs, Memory, MicrobatchSlice, Objective, Offload, Step
from ..model.instance import Instance
from ..model.orders import torch_stage0_instance
from ..model.placement import Placement
from ..settings.expert_parallel import ticks_in_turn
from .cluster import FULL_SPEED, Speed
from .fixed_orders import ramps_of
from .layered_model import Recomputed
from .problem import RUNTIMES, PlanningProblem, Runtime


@dataclass(frozen=True, slots=True)
class Candidate:
    """All of a plan but the schedule."""

    placement: Placement  #: which device runs which stage
    #: one number more than there are stages: stage `s` has the layers from `cuts[s]` up to, not including,
    #: `cuts[s + 1]`. The first number is 0 and the last one the number of layers.
    cuts: tuple[int, ...]
    recomputed: tuple[Recomputed, ...]  #: for each stage its recomputed layers
    #: the tokens of each slice into which the sequences of a microbatch are cut; () for whole microbatches
    slices: tuple[int, ...] = ()
    #: how many stages of a device stay gathered; None where pipelines do not share parameters
    resident: int | None = None

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """The first layer of each stage and the first layer after it."""
        return tuple(pairwise(self.cuts))


def resolved(problem: PlanningProblem, candidate: Candidate) -> PlanningProblem:
    """Return the problem in which as many stages stay gathered as on the devices of a candidate."""
    return problem if candidate.resident is None else problem.keeping(candidate.resident)


def gathers_again(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Return whether the devices of a candidate have to gather some stages more than once in a step."""
    stages = candidate.placement.stages_per_device
    return resolved(problem, candidate).cluster.sharding.gathers_again(stages)


@dataclass(frozen=True, slots=True)
class StageNumbers:
    """The ticks and bytes of one stage for one microbatch.

    F, B and W run for `forward`, `backward` and `weight` ticks, and a BW for `fused`. F takes `held` bytes,
    of which W frees `freed_by_weight` and B `freed_by_backward`; without B and W they are free when F ends. B
    takes `transient` more bytes while it recomputes, as many as the recomputed layer that needs most. The
    static state of the stage has `static` bytes, and the message to the next stage `output` bytes. Of
    its `parameters` as many as `trained` have gradients. Of the bytes that F takes, `leaving` may leave to a
    host.
    """

    forward: int
    backward: int
    weight: int
    fused: int
    held: int
    freed_by_backward: int
    freed_by_weight: int
    transient: int
    static: int
    output: int
    parameters: int
    trained: int
    leaving: int = 0

    @property
    def kept(self) -> int:
        """Bytes that stay when F has ended."""
        return self.freed_by_backward + self.freed_by_weight


def stage_numbers(
    problem: PlanningProblem, first: int, end: int, recomputed: Recomputed, speed: Speed = FULL_SPEED
) -> StageNumbers:
    """Return the ticks and bytes of a stage with the layers `first` to `end - 1` on a device of some speed.

    A stage without layers sends on what the layer before it sends. Times are rounded up. What B and W take
    less as one operation is saved in W first.
    """
    stage, effect = problem.model.layers[first:end], problem.model.effect(recomputed)
    parameters, trained = (sum(getattr(layer, key) for layer in stage) for key in ("parameters", "trained"))
    forward, backward, weight, together = (
        sum(getattr(layer, key) for layer in stage) for key in ("forward", "backward", "weight", "together")
    )
    held = sum(layer.activation for layer in stage) - effect.saved
    needed = sum(layer.needed for layer in stage) - effect.spared
    by_weight = needed if backward else held if weight else 0
    in_b, (of_f, of_b, of_w) = sum(layer.least[0] for layer in stage), speed
    return StageNumbers(
        forward=ceil(forward / of_f),
        backward=ceil((backward + effect.extra) / of_b),
        weight=ceil(weight / of_w),
        fused=ceil((in_b + effect.extra) / of_b + (together - in_b) / of_w),
        held=held,
        freed_by_backward=held - by_weight if backward else 0,
        freed_by_weight=by_weight,
        transient=effect.transient,
        static=problem.cluster.static_bytes(parameters),
        output=problem.model.layers[end - 1].output or 0,
        parameters=parameters,
        trained=trained,
        leaving=sum(layer.offload for layer in stage) - effect.away if backward or weight else 0,
    )


Stages = tuple[StageNumbers, ...]
"""The ticks and bytes of every stage for one microbatch, or for one slice of it."""


def numbers_of(problem: PlanningProblem, candidate: Candidate) -> Stages:
    """Return the ticks and bytes of each stage of a candidate for a whole microbatch."""
    speeds = map(problem.cluster.speed_of, candidate.placement.routes[0])
    parts = zip(candidate.stages, candidate.recomputed, speeds, strict=True)
    found = (stage_numbers(problem, *layers, recomputed, speed) for layers, recomputed, speed in parts)
    most = problem.most_leaving(candidate.placement.stages_per_device)
    return tuple(one if one.leaving <= most else replace(one, leaving=most) for one in found)


def units_of(problem: PlanningProblem, candidate: Candidate) -> tuple[Stages, ...]:
    """Return the ticks and bytes of each stage for each slice of a microbatch, or for the whole one."""
    models = problem.units(candidate.slices)
    return tuple(numbers_of(replace(problem, model=model), candidate) for model in models)


def static_of(placement: Placement, units: tuple[Stages, ...], device: int) -> int:
    """Return the bytes of static state of a device, summed over its stages."""
    return sum(units[0][stage].static for stage in placement.stages_on(device))


def unsharded_of(
    problem: PlanningProblem, placement: Placement, units: tuple[Stages, ...], device: int
) -> int:
    """Return the bytes that a device holds whole at once of state that pipelines share.

    These are the gathered parameters of as many stages as stay gathered, those with most bytes, and the
    gradients of all its stages.
    """
    stages = [units[0][stage] for stage in placement.stages_on(device)]
    sharding = problem.cluster.sharding
    gathered = sharding.most_gathered(stage.parameters for stage in stages)
    return gathered + sum(sharding.gradient_bytes(stage.trained) for stage in stages)


def transient_of(placement: Placement, units: tuple[Stages, ...], device: int) -> int:
    """Return the transient bytes of a device: the most of any of its stages, since one B runs at a time."""
    return max(one[stage].transient for one in units for stage in placement.stages_on(device))


def instance_of(problem: PlanningProblem, candidate: Candidate, counting: bool = False) -> Instance:
    """Return the scheduling problem that a candidate leaves open.

    Memory is in bytes. The limit of a device is its memory less its static state, what it holds whole of
    shared state, `Cluster.reserve` and its transient bytes (`StageNumbers`). The message time between two
    devices is the time of the longest message between them. Stage 0 has no B if the runtime computes both
    its gradients in a W. With `counting`, memory is counted even if the cluster has no limit. Where it has
    one, activations may leave to the host, if any.
    """
    problem = resolved(problem, candidate)
    for stage, again in zip(candidate.stages, candidate.recomputed, strict=True):
        check_stage(problem, stage, again)
    units, placement = units_of(problem, candidate), candidate.placement
    runtime = RUNTIMES[problem.space.runtime]
    first, counted = _costs(units[0], runtime), counting or problem.cluster.memory is not None
    outputs = [max(stage.output for stage in each) for each in zip(*units, strict=True)]
    slices = (
        MicrobatchSlice(**_costs(one, runtime), memory=_memory(one) if counted else None)
        for one in (units if candidate.slices else ())
    )
    instance = Instance(
        placement,
        problem.batch.microbatches,
        Costs(**first, comm=comm_matrix(problem, placement, outputs), pairs=_pairs(problem, candidate)),
        _memory(units[0], limits_of(problem, placement, units)) if counted else None,
        problem.space.objective,
        step=step_of(problem, placement, units[0]),
        slices=list(slices),
        offload=None if problem.cluster.memory is None else _offload(problem, units[0]),
    )
    return torch_stage0_instance(instance) if runtime.joins_first else instance


def _offload(problem: PlanningProblem, stages: Stages) -> Offload | None:
    host, sizes = problem.cluster.host, [stage.leaving for stage in stages]
    if host is None:
        return None
    out, back = zip(*map(host.ticks, sizes), strict=True)
    return Offload(sizes, out, back, host.duplex)


def _costs(stages: Stages, runtime: Runtime) -> dict[str, Any]:
    """Return the durations of the stages; where all backwards have to be split, fusing saves nothing."""
    costs = {key: [getattr(stage, key) for stage in stages] for key in ("forward", "backward", "weight")}
    if runtime.one_way:
        return costs
    return costs | {"fused": [max(1, stage.fused) for stage in stages]}


def _memory(stages: Stages, limits: list[int] | None = None) -> Memory:
    """Return the bytes that F, B and W of each stage take or free, and the devices' limits, if any."""
    return Memory(
        [stage.held for stage in stages],
        [-stage.freed_by_backward for stage in stages],
        [-stage.freed_by_weight for stage in stages],
        limits,
    )


def limits_of(problem: PlanningProblem, placement: Placement, units: tuple[Stages, ...]) -> list[int] | None:
    """Return the bytes of each device that activations may use; None without a limit."""
    sizes = problem.cluster.memory_of(placement.devices)
    if sizes is None:
        return None
    return [
        size
        - problem.cluster.reserve
        - transient_of(placement, units, d)
        - static_of(placement, units, d)
        - unsharded_of(problem, placement, units, d)
        for d, size in enumerate(sizes)
    ]


def _pairs(problem: PlanningProblem, candidate: Candidate) -> list[list[int]] | None:
    """Return the ticks of an F of each stage with a BW of each stage of its device, if experts save some."""
    if not problem.has_pairs:
        return None
    chains = [
        [layer.chains(dict(again).get(first + k)) for k, layer in enumerate(problem.model.layers[first:end])]
        for (first, end), again in zip(candidate.stages, candidate.recomputed, strict=True)
    ]
    placement, stages = candidate.placement, len(chains)
    pairs = [[0] * stages for _ in range(stages)]
    for device in range(placement.devices):
        for f, b in product(placement.stages_on(device), repeat=2):
            pairs[f][b] = ticks_in_turn([one for one, _ in chains[f]], [other for _, other in chains[b]])
    return pairs


def check_stage(problem: PlanningProblem, stage: tuple[int, int], recomputed: Recomputed) -> None:
    """Raise an InputError unless layers can be a stage, and those that are recomputed can be so there."""
    first, end = stage
    if first == end:
        return
    if not problem.model.is_possible(first, end):
        rule = f"a stage of layers {first} to {end - 1} lacks an F, or a B that passes the gradient on"
        raise InputError(rule, key="layers", value=[first, end])
    stage_layers, runtime = problem.model.layers[first:end], RUNTIMES[problem.space.runtime]
    b, w = (any(getattr(layer, key) for layer in stage_layers) for key in ("backward", "weight"))
    if runtime.joins_first and not (b or (first == 0 and w)):
        rule = f"a stage of layers {first} to {end - 1} lacks a backward that {runtime.name} runs"
        raise InputError(rule, key="layers", value=[first, end])
    if runtime.needs_both and not (b and w):
        rule = f"a stage of layers {first} to {end - 1} lacks a B or a W, which {runtime.name} needs"
        raise InputError(rule, key="layers", value=[first, end])
    if recomputed and not b:
        rule = f"a stage of layers {first} to {end - 1} has no B in which layers could be recomputed"
        raise InputError(rule, key="recomputed", value=[index for index, _ in recomputed])


def step_of(problem: PlanningProblem, placement: Placement, stages: Stages) -> Step | None:
    """Return what a step takes beside the operations: reductions, the optimizer, gathered parameters.

    It is None for another objective, and where the cluster does not say what data parallelism takes. A
    device gathers the parameters of one stage after another, in the sequence of its stages.
    """
    network = problem.cluster.gradients
    if network is None or problem.space.objective is not Objective.STEP:
        return None
    ready, optimizer = [0] * len(stages), []
    for device in range(placement.devices):
        held, gathered = placement.stages_on(device), 0
        for stage in held:
            gathered += gather_ticks(problem, stages[stage])
            ready[stage] = gathered
        optimizer.append(network.optimizer_ticks(sum(stages[stage].trained for stage in held)))
    return Step(ready, [network.reduce_ticks(stage.trained) for stage in stages], optimizer)


def gather_ticks(problem: PlanningProblem, stage: StageNumbers) -> int:
    """Return the ticks of a gather of a stage: of all parameters if they are shared, else of updated ones."""
    network, shared = problem.cluster.gradients, problem.cluster.sharding.gathered
    return network.gather_ticks(stage.parameters if shared else stage.trained) if network else 0


def bytes_lacking(problem: PlanningProblem, candidate: Candidate) -> list[int]:
    """Return how many bytes each device lacks to hold what it must; 0 where memory has no limit.

    It must hold one microbatch, or as many as are in flight in all orders that are allowed (`Ramps.flight`).

    When an F starts, a device holds what stays at its stages whose F's have ended, of all slices of a
    microbatch, whose last F comes before their first B; and one after another what is free when an F ends.
    What may leave is away but for that of the F that starts (`Instance.smallest_limit`).
    """
    problem = resolved(problem, candidate)
    units, placement = units_of(problem, candidate), candidate.placement
    lacking, ramps = [], None if candidate.slices else ramps_of(problem, placement)
    for device, limit in enumerate(limits_of(problem, placement, units) or ()):
        stays = needed = 0
        flight = cycle([1] if ramps is None else ramps.flight[device].tolist())
        for stage in (one[s] for one in units for s in placement.stages_on(device)):
            stays += next(flight) * stage.kept - stage.leaving
            needed = max(needed, stays + stage.leaving, stage.held)
        lacking.append(max(0, needed - limit))
    return lacking or [0] * placement.devices


def comm_matrix(problem: PlanningProblem, placement: Placement, outputs: list[int]) -> list[list[int]]:
    """Return the time of the longest message from each device to each other one, in ticks.

    `outputs` has the bytes that each stage sends to the next one; as many come back as a gradient.
    """
    size: dict[tuple[int, int], int] = {}
    for route in placement.routes:
        for output, (sender, receiver) in zip(outputs, pairwise(route), strict=False):
            for pair in ((sender, receiver), (receiver, sender)):
                size[pair] = max(output, size.get(pair, 0))
    p, ticks = placement.devices, problem.cluster.comm_ticks
    return [[ticks(a, b, size.get((a, b), 0)) for b in range(p)] for a in range(p)]


CANDIDATE_KEYS = ("placement", "devices", "chunks", "stages", "recomputed", "recomputed_layers", "slices")
"""The keys of a candidate but `resident`; `recomputed` has how many layers of each stage are recomputed, by
kind, and `slices` the tokens of each slice of a sequence, none where microbatches are whole."""


def candidate_to_dict(candidate: Candidate | None) -> dict[str, Any]:
    """Return a candidate as plain data; without a candidate, every key has None."""
    if candidate is None:
        return dict.fromkeys(CANDIDATE_KEYS)
    values = (
        candidate.placement.name,
        candidate.placement.devices,
        candidate.placement.stages_per_device,
        [list(stage) for stage in candidate.stages],
        [dict(Counter(kind for _, kind in stage)) for stage in candidate.recomputed],
        [
            {kind: [i for i, other in stage if other == kind] for _, kind in stage}
            for stage in candidate.recomputed
        ],
        list(candidate.slices),
    )
    return dict(zip(CANDIDATE_KEYS, values, strict=True))


def candidate_from_dict(data: dict[str, Any], problem: PlanningProblem) -> Candidate:
    """Return the candidate of a problem that plain data describes, but for its key `recomputed`."""
    placement = Placement(data["placement"], data["devices"], data["chunks"])
    cuts = _cuts(data, placement.stages, len(problem.model.layers))
    slices = tuple(check_int(f"slices[{j}]", x, 1) for j, x in enumerate(entries(data, "slices")))
    resident = data.get("resident")
    if resident is not None:
        check_int("resident", resident, 1, placement.stages_per_device)
    return Candidate(placement, cuts, _recomputed(data, cuts), slices, resident)


def check_candidate(problem: PlanningProblem, candidate: Candidate) -> None:
    """Raise an InputError unless a candidate is in the search space of the problem.

    The bound of a plan holds for all candidates in the search space, and need not hold for others.
    """
    space, placement, layers = problem.space, candidate.placement, problem.model.layers
    _check_choice("placement", placement.name, space.placements)
    _check_choice("devices", placement.devices, problem.cluster.devices)
    usual = Placement(placement.name, placement.devices).stages_per_device
    _check_choice("chunks", placement.stages_per_device, space.chunks or (usual,))
    if not problem.allows(candidate.slices):
        _check_choice("slices", candidate.slices, problem.slicings)
    _check_empty(problem, candidate)
    if problem.cluster.sharding.gathered:
        _check_choice("resident", candidate.resident, problem.residents(placement))
    elif candidate.resident is not None:
        rule = "must be left out: no stage is gathered, as pipelines share no parameters"
        raise InputError(rule, key="resident", value=candidate.resident)
    for s, again in enumerate(candidate.recomputed):
        for index, kind in again:
            if kind not in space.recompute or kind not in [each.name for each in layers[index].recompute]:
                rule = "the problem does not let this layer be recomputed in this kind"
                raise InputError(rule, key=f"recomputed_layers[{s}].{kind}", value=index)


def _check_empty(problem: PlanningProblem, candidate: Candidate) -> None:
    inner = range(1, len(candidate.stages) - 1) if problem.space.empty else ()
    for s, stage in enumerate(candidate.stages):
        if stage[0] == stage[1] and s not in inner:
            rule = "must have a layer: only with search.empty may stages but the first and the last have none"
            raise InputError(rule, key=f"stages[{s}]", value=list(stage))


def _check_choice(key: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        rule = f"must be one of {', '.join(map(str, choices))}, as the problem has it"
        raise InputError(rule, key=key, value=value)


def entries(data: dict[str, Any], key: str) -> list[Any]:
    """Return the list that is the value of a key."""
    if not isinstance(data[key], list):
        raise InputError("must be a list", key=key, value=data[key])
    return list(data[key])


def _cuts(data: dict[str, Any], stages: int, layers: int) -> tuple[int, ...]:
    given = entries(data, "stages")
    ends = [_integers(f"stages[{s}]", stage, layers)[-1:] for s, stage in enumerate(given)]
    cuts = (0, *(end for last in ends for end in last))
    whole = [list(stage) for stage in pairwise(cuts)] == given and cuts[-1] == layers
    if not whole or len(given) != stages or any(first > end for first, end in pairwise(cuts)):
        rule = f"must be [first, end] for {stages} stages, from layer 0 on to {layers}"
        raise InputError(rule, key="stages", value=given)
    return cuts


def _recomputed(data: dict[str, Any], cuts: tuple[int, ...]) -> tuple[Recomputed, ...]:
    given = entries(data, "recomputed_layers")
    if len(given) != len(cuts) - 1:
        rule = f"must have one table per stage: {len(cuts) - 1}"
        raise InputError(rule, key="recomputed_layers", value=given)
    return tuple(
        _again(f"recomputed_layers[{s}]", given[s], *stage) for s, stage in enumerate(pairwise(cuts))
    )


def _again(key: str, value: Any, first: int, end: int) -> Recomputed:
    if not isinstance(value, dict):
        raise InputError("must be a table of layers by kind", key=key, value=value)
    found: dict[int, str] = {}
    for kind, given in value.items():
        layers = _integers(f"{key}.{kind}", given, end - 1)
        if layers != sorted(set(layers)) or (layers and layers[0] < first) or found.keys() & set(layers):
            rule = f"must be layers from {first} to {end - 1}, ascending, each in one kind"
            raise InputError(rule, key=f"{key}.{kind}", value=layers)
        found |= {layer: str(kind) for layer in layers}
    return tuple(sorted(found.items()))


def _integers(key: str, value: Any, high: int) -> list[int]:
    if not isinstance(value, list):
        raise InputError("must be a list of integers", key=key, value=value)
    return [check_int(f"{key}[{i}]", item, 0, high) for i, item in enumerate(value)]
