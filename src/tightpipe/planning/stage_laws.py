"""What the stages of a model cost: laws in the lengths of sequences, and the slices of one sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from ..base.errors import InputError, check_int
from ..model.costs import Memory, MicrobatchSlice, Objective
from ..model.law import CostLaw, Law
from ..model.placement import Placement
from .cluster import cluster_from_table
from .public_models import ModelShape
from .shapes import MICROSECOND, LayerCosts, Training, cluster_table, layer_costs, layers_of, share_of


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
    the head. A message takes as long as on the slowest link.

    Parameters
    ----------
    shape, training
        The model, and how it is trained. Only the batches themselves have lengths and sizes of microbatches.
    devices, reserve, node_size
        As in `model_file`.
    placement
        Name of the placement, with its usual number of stages per device.

    Raises
    ------
    InputError
        If there are fewer blocks than stages, or a device does not hold its static state.
    """
    where = Placement(placement, devices)
    stages, blocks = where.stages, shape.layers
    if blocks < stages:
        rule = f"must be at most {blocks} blocks; {placement} on {devices} devices has {stages} stages"
        raise InputError(rule, key="devices", value=devices)
    by_tokens, by_squares = (layer_costs(shape, training, *size) for size in ((1, 0), (0, 1)))
    cuts = [0, *(1 + blocks * s // stages for s in range(1, stages)), blocks + 2]
    parts = [[*zip(by_tokens[lo:hi], by_squares[lo:hi], strict=True)] for lo, hi in pairwise(cuts)]

    def laws(value: Callable[[LayerCosts], float], factor: float) -> tuple[Law, ...]:
        sums = [(sum(value(t) for t, _ in part), sum(value(q) for _, q in part)) for part in parts]
        share = factor / training.tensor_parallel
        return tuple(Law(0.0, share * tokens, share * squares) for tokens, squares in sums)

    forward, backward, weight = (
        laws(lambda one, kind=kind: one.seconds[kind], MICROSECOND)  # type: ignore[misc]
        for kind in range(3)
    )
    fused = None
    if training.discount:
        fused = tuple((b + w) * (1 - training.discount) for b, w in zip(backward, weight, strict=True))
    table = cluster_table(training, devices, reserve, node_size)
    cluster = cluster_from_table(table, training.data_parallel)
    state = [sum(share_of(one.parameters, training) for one, _ in part) for part in parts]
    held = [sum(state[s] for s, home in enumerate(where.routes[0]) if home == d) for d in range(devices)]
    limits = [
        memory - cluster.reserve - cluster.static_bytes(parameters)
        for memory, parameters in zip(cluster.memory_of(devices) or (), held, strict=True)
    ]
    for device, limit in enumerate(limits):
        if limit <= 0:
            rule = f"must be more: device {device} has no memory left beside its static state"
            raise InputError(rule, key="devices", value=devices)
    message = by_tokens[0].message / training.tensor_parallel
    return CostLaw(
        where,
        *(forward, backward, weight, fused),
        comm=Law(table["latency"], message / table["bandwidth"]),
        memory=(
            laws(lambda one: one.activation, 1),
            laws(lambda one: one.needed - one.activation, 1),
            laws(lambda one: -one.needed, 1),
        ),
        limit=tuple(limits),
        objective=Objective.STEP,
    )


def slices_of(
    shape: ModelShape, training: Training, lengths: Sequence[int], stages: int
) -> tuple[MicrobatchSlice, ...]:
    """Return what the slices of a model's microbatches cost at each stage.

    Parameters
    ----------
    shape, training
        The model, and how it is trained; the sequence is as long as its slices together.
    lengths
        Tokens of each slice.
    stages
        Number of stages. They have as equal numbers of layers as possible, longer ones first.

    Returns
    -------
    tuple of MicrobatchSlice
        Times in microseconds, memory in MiB of each GPU, rounded up.
    """
    found = []
    for tokens, before in zip(lengths, accumulate(lengths, initial=0), strict=False):
        layers = layers_of(shape, replace(training, sequence=check_int("lengths", tokens, 1)), before)
        cut = [divmod(i * len(layers), stages) for i in range(stages + 1)]
        ends = [whole + (rest > 0) for whole, rest in cut]  # the first stages have one layer more
        mine = [layers[a:b] for a, b in pairwise(ends)]
        forward, backward, weight = (
            [sum(getattr(one, key) for one in each) for each in mine]
            for key in ("forward", "backward", "weight")
        )
        fused = [sum(one.fused or one.backward + one.weight for one in each) for each in mine]
        kept = [-(-sum(one.activation for one in each) // MEBIBYTE) for each in mine]
        late = [-(-sum(one.weight_activation for one in each) // MEBIBYTE) for each in mine]
        early = [b - a for a, b in zip(kept, late, strict=True)]
        memory = Memory(kept, early, [-one for one in late])
        found.append(MicrobatchSlice(forward, backward, weight, fused, memory))
    return tuple(found)


def slice_lengths(shape: ModelShape, training: Training, count: int, equal: str = "tokens") -> list[int]:
    """Return the tokens of each slice of a sequence, at least 1 each.

    Later slices attend to more tokens, so equal slices take longer and longer.

    Parameters
    ----------
    shape, training
        The model, and how it is trained.
    count
        Number of slices.
    equal
        What is about the same for all slices: `tokens`, `forward` (the FLOPs of a block's F) or `both` (those
        of its F and B).

    Notes
    -----
    The first P tokens of a sequence take c P + q P^2 FLOPs, whatever the slices: the law of a slice, x P -
    x^2 / 2, is the difference of P^2 / 2 at its end and at its begin. So each end follows from the share of
    all FLOPs that lies before it.
    """
    tokens = training.sequence_of(shape)
    check_int("slices", count, 1, tokens)
    if equal not in _EQUAL:
        raise InputError(f"must be one of {', '.join(_EQUAL)}", key="equal", value=equal)
    size = shape.active_experts + shape.shared_experts if shape.experts else 1
    network = size * shape.network_parameters(shape.expert_ffn if shape.experts else shape.ffn)
    linear, scores = _EQUAL[equal]
    c = 2 * linear * (shape.attention_parameters + network)
    q = 2 * scores * shape.heads * shape.head_size
    whole = c * tokens + q * tokens**2
    ends: list[int] = []
    for i in range(1, count):
        share = whole * i / count
        end = share / c if q == 0 else ((c**2 + 4 * q * share) ** 0.5 - c) / (2 * q)
        least = ends[-1] + 1 if ends else 1
        ends.append(min(max(least, round(end)), tokens - count + i))
    return [b - a for a, b in pairwise([0, *ends, tokens])]


_EQUAL = {"tokens": (1, 0), "forward": (1, 1), "both": (2, 3)}
"""How often a slice runs the FLOPs of its linear maps and those of its scores in what is made equal."""
MEBIBYTE = 2**20
