"""What the stages of a model cost, as laws in the lengths of sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..base.errors import InputError
from ..model.law import CostLaw, Law
from ..model.placement import Placement
from .candidate import Candidate, check_stage, limits_of, numbers_of, step_of
from .cluster import Network
from .model_law import model_at
from .problem import PlanningProblem
from .public_models import ModelShape
from .shapes import Training, problem_of


def stage_law(
    shape: ModelShape,
    training: Training,
    *,
    devices: int,
    placement: str = "v",
    reserve: int | str = 0,
    node_size: int | None = None,
) -> CostLaw:
    """Return the costs of a model's stages as laws in the lengths of the sequences of a microbatch.

    Each stage has as many blocks as any other, or one more; the first also has the embedding, and the last
    the head. A message takes as long as on the slowest link. Raise an InputError if there are fewer blocks
    than stages, or a device does not hold its static state.

    - `shape`, `training`: the model, and how it is trained. Only the batches themselves have lengths and
      sizes of microbatches.
    - `devices`, `reserve`, `node_size`: as in `model_file`.
    - `placement`: name of the placement, with its usual number of stages per device.
    """
    where = Placement(placement, devices)
    stages, blocks = where.stages, shape.layers
    if blocks < stages:
        rule = f"must be at most {blocks} blocks; {placement} on {devices} devices has {stages} stages"
        raise InputError(rule, key="devices", value=devices)
    taken = {"devices": devices, "reserve": reserve, "node_size": node_size}
    problem = problem_of(shape, training, microbatches=1, slices=(1,), **taken)
    cuts = (0, *(1 + blocks * s // stages for s in range(1, stages)), blocks + 2)
    law = law_of_stages(problem, Candidate(where, cuts, ((),) * stages))
    for device, limit in enumerate(law.limit if isinstance(law.limit, tuple) else ()):
        if limit <= 0:
            rule = f"must be more: device {device} has no memory left beside its static state"
            raise InputError(rule, key="devices", value=devices)
    return law


def law_of_stages(problem: PlanningProblem, candidate: Candidate) -> CostLaw:
    """Return the costs of a candidate's stages as laws, for microbatches of all lengths.

    A recomputed layer keeps the larger one of what it could keep at the microbatches of the problem. The law
    of messages is that of the longest message on the slowest link.

    Raises
    ------
    InputError
        If a stage lacks an operation that it must have.
    """
    assert problem.law is not None
    for stage, recomputed in zip(candidate.stages, candidate.recomputed, strict=True):
        check_stage(problem, stage, recomputed)
    layers = [dict(layer.laws) for layer in problem.law.layers]
    kinds = dict(pair for stage in candidate.recomputed for pair in stage)
    again = {i: dict(dict(problem.law.layers[i].kinds)[kind]) for i, kind in kinds.items()}
    effects = {i: problem.model.layers[i].effect(kind) for i, kind in kinds.items()}

    def sums(value: Callable[[int], Law]) -> tuple[Law, ...]:
        return tuple(sum((value(i) for i in range(*stage)), Law()) for stage in candidate.stages)

    def of(key: str) -> Callable[[int], Law]:
        return lambda i: layers[i].get(key, Law())

    def longer(i: int) -> Law:
        return again[i]["ticks"] if i in again else Law()

    def together(i: int) -> Law:
        apart = layers[i]["backward"] + layers[i]["weight"]
        both = layers[i]["backward"] and layers[i]["weight"]
        return (layers[i].get("fused", apart) if both else apart) + longer(i)

    def needed(i: int) -> Law:
        if i in again and effects[i].spared:
            return again[i]["weight_activation"]
        return of("weight_activation")(i) if layers[i]["weight"] else Law()

    def held(i: int) -> Law:
        if i not in again or not effects[i].saved:
            return of("activation")(i)
        layer, effect = problem.model.layers[i], effects[i]
        late = layer.activation - effect.saved == layer.needed - effect.spared
        return needed(i) if late else again[i]["activation"]

    stages, sampling = numbers_of(problem, candidate), problem.batch.sampling
    sizes = [] if sampling is None else _largest(sampling.points)  # a B takes most there while it recomputes
    longest = (replace(problem, model=model_at(problem.law, *size)) for size in sizes)
    units = (stages, *(numbers_of(one, candidate) for one in longest))
    largest = max(range(len(stages)), key=lambda s: stages[s].output)
    limits = limits_of(problem, candidate.placement, units)
    return CostLaw(
        candidate.placement,
        sums(of("forward")),
        sums(lambda i: layers[i]["backward"] + longer(i)),
        sums(of("weight")),
        fused=sums(together) if any("fused" in layer for layer in layers) else None,
        comm=_comm(problem, of("output")(candidate.cuts[largest + 1] - 1)),
        memory=(sums(held), sums(lambda i: needed(i) + held(i) * -1), sums(lambda i: needed(i) * -1)),
        limit=None if limits is None else tuple(limits),
        objective=problem.space.objective,
        step=step_of(problem, candidate.placement, stages),
    )


def _largest(points: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the points, tokens and squares, of which no other one has as much of both."""
    found: list[tuple[int, int]] = []
    for point in sorted(set(points), reverse=True):
        if not found or point[1] > found[-1][1]:
            found.append(point)
    return found


def _comm(problem: PlanningProblem, message: Law) -> Law | int | tuple[tuple[int, ...], ...]:
    """Return the law of the ticks of a message, on the slowest link; `message` is the law of its bytes."""
    network = problem.cluster.comm
    if not isinstance(network, Network):
        return network
    return Law(float(network.latency)) + message * float(1 / network.bandwidth)
