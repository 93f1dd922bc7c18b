"""The costs of a transformer's layers, from its shape and a GPU's data sheet: a FLOP and bandwidth model.

The page docs/plan.md has the formulas ("Where the numbers come from"), for a microbatch of `T`
tokens in sequences of `s`, hidden size `h`, `a` heads, `k` of them of keys and values, of size `d`,
feed-forward networks of size `f` with `m` matrices, and a vocabulary of `V`. Their reasons:

**Parameters.** Embedding and head have `V h` each, even if the published model ties them, because
the first and the last device each hold a copy. Biases are left out.

**Time of computation.** A linear map takes two FLOPs per parameter and token in F, as many in B and
as many in W; a token takes the parameters of the experts that it visits, and all experts are equally
busy. The products of queries with keys and of scores with values take `4 T s a d`, half of which is left
by the causal mask, and twice as many in B; they have no weights and thus no W. The literature counts the
same FLOPs (Narayanan et al., arXiv:2104.04473, appendix; Chowdhery et al., arXiv:2204.02311, appendix B).

**Time of memory** is added, because element-wise operations do not overlap with products. F writes
the activation and reads as many bytes; B reads it, and writes as many bytes of gradients. In F, the
embedding copies a row of `2 h` bytes per token. Its W reads a row of gradients and adds it to sums
of 32 bits, which moves `8 h` bytes.

**Activation**, bytes of 16-bit numbers per token after Korthikanti et al., arXiv:2205.05198, section
4, without scores and masks: norms `4 h`, inputs of the maps `4 h`, queries, keys and values `2 d (a +
2 k)`, output of attention `2 d a`, feed-forward network `2 (m - 1) f` behind the first maps and `2 f`
before the last one. Each expert that a token visits holds its own input and inner state. The head
holds the input of its norm and of its map, and its logits in 32 bits. The output of the embedding
counts in the first block, as that block's input.

**What W needs of the activation** are the inputs of the linear maps. B frees the rest, as autograd does. A
runtime that puts W off also keeps the gradients of the maps' outputs until then, e.g. arXiv:2401.10241,
table 1, has `32 s b h` of `34 s b h` wait for W. With `gradients_kept` these count as well; they are
at least as large as what B frees, so B then frees nothing, and recomputation saves nothing.

**Laws in the lengths.** Only the products of attention depend on more than the number of tokens: on
the sum of the squares of the lengths. So every time is linear in the two, and every number of bytes
in the tokens.

**Static state** in mixed precision is 18 bytes per parameter: 2 of weights and 4 of gradients on each
pipeline, and 12 of the optimizer (32-bit weights and two moments of Adam), which all data-parallel
pipelines share, as Megatron-LM's distributed optimizer does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from ..base.errors import InputError, check_int
from ..model.costs import Objective
from ..model.law import Law
from ..settings.expert_parallel import ExpertCosts, ExpertLayer
from .layered_model import Layer, Model, Recomputation
from .model_law import TIMES, LayerLaw, ModelLaw
from .problem import PlanningProblem
from .problem_file import problem_from_dict, tables_of
from .public_models import Gpu, ModelShape
from .units import USUAL_TICK

MICROSECOND = 10**6
"""Ticks per second: one tick of a model file that is made here is a microsecond."""
STATE = {"replicated": 6, "sharded": 12}
"""Bytes of static state per parameter: those on each pipeline, and those that all pipelines share."""
STATE_OF_FLOAT32 = {"replicated": 8, "sharded": 8}
"""Like `STATE`, in single precision: 4 bytes each of weights, gradients and the two moments of Adam."""
MEASURED_DISCOUNT = 0.14
"""What a fused backward saved of B and W when PyTorch 2.13 ran a transformer of hidden size 512 on a CPU."""
_LATENCY = 10  # microseconds that a message takes in addition to the time of its bytes


@dataclass(frozen=True, slots=True)
class Training:
    """How a model is trained.

    - `gpu`: the GPU that runs the model.
    - `utilisation`: share of the GPU's FLOP/s that large matrix products reach, above 0 and at most 1.
    - `microbatch_size`: sequences per microbatch.
    - `sequence`: tokens of a sequence; None takes the model's own.
    - `tensor_parallel`: number of GPUs that work as one device.
    - `data_parallel`: number of pipelines side by side.
    - `gradients_kept`: whether W also needs the gradients of the outputs of linear maps.
    - `discount`: the share of B and W that a fused BW saves, at least 0 and less than 1.
    - `expert_parallel`: number of GPUs of a node, each of another pipeline, that share the experts of a
      mixture.
    - `offload`: whether the activations of blocks may leave for the host, over the GPU's link to it.
    """

    gpu: Gpu
    utilisation: float = 0.6
    microbatch_size: int = 1
    sequence: int | None = None
    tensor_parallel: int = 1
    data_parallel: int = 1
    gradients_kept: bool = False
    discount: float = 0.0
    expert_parallel: int = 1
    offload: bool = False

    def __post_init__(self) -> None:
        for key in ("microbatch_size", "tensor_parallel", "data_parallel", "expert_parallel"):
            check_int(key, getattr(self, key), 1)
        if self.data_parallel % self.expert_parallel:
            rule = f"must divide data_parallel, {self.data_parallel}: the pipelines share the experts"
            raise InputError(rule, key="expert_parallel", value=self.expert_parallel)
        if self.sequence is not None:
            check_int("sequence", self.sequence, 1)
        if not 0 < self.utilisation <= 1:
            raise InputError("must be above 0 and at most 1", key="utilisation", value=self.utilisation)
        if not 0 <= self.discount < 1:
            rule = "must be at least 0 and less than 1: a share of the time of B and W"
            raise InputError(rule, key="discount", value=self.discount)

    def sequence_of(self, shape: ModelShape) -> int:
        """Return the number of tokens of a sequence."""
        return self.sequence or shape.sequence

    def tokens(self, shape: ModelShape) -> int:
        """Return the number of tokens of a microbatch."""
        return self.microbatch_size * self.sequence_of(shape)


@dataclass(frozen=True, slots=True)
class _Network:
    """The feed-forward networks of a block: `total` of them, each of inner size `size`.

    A token visits `active` of them. A router chooses among `routed` of them; 0 means that there is no router.
    """

    size: int
    total: int = 1
    active: int = 1
    routed: int = 0


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """What a microbatch costs in a layer, for all GPUs of a device together.

    - `name`: what the layer is called.
    - `seconds`: time of F, B and W.
    - `activation`, `needed`: bytes that F adds, and the part of them that W needs.
    - `message`: bytes of the hidden state.
    - `parameters`: number of parameters.
    - `selective`: time of selective recomputation, and bytes that it drops; None if the layer is not
      recomputed.
    - `routed`: those of them that are experts among which a router chooses.
    - `experts`: time of the experts in F, B and W, a part of `seconds`.
    - `sent`: bytes that go to the experts of the router's choice, and as many come back.
    """

    name: str
    seconds: tuple[float, float, float]
    activation: int
    needed: int
    message: int
    parameters: int
    selective: tuple[float, int] | None = None
    routed: int = 0
    experts: tuple[float, float, float] = (0.0, 0.0, 0.0)
    sent: int = 0


def layers_of(shape: ModelShape, training: Training) -> tuple[Layer, ...]:
    """Return the embedding, the blocks and the head of a model, each with its costs.

    Raise an InputError if the number of GPUs that work as one device does not divide the heads of keys and
    values.
    """
    tokens = training.tokens(shape)
    costs = layer_costs(shape, training, tokens, tokens * training.sequence_of(shape))
    return tuple(_layer(one, training) for one in costs)


def layer_costs(shape: ModelShape, training: Training, tokens: int, squares: int) -> tuple[LayerCosts, ...]:
    """Return the costs of all layers, which are linear in the tokens and the squares of the lengths."""
    if shape.kv_heads % training.tensor_parallel:
        rule = f"must divide the {shape.kv_heads} heads of keys and values"
        raise InputError(rule, key="tensor_parallel", value=training.tensor_parallel)
    if training.expert_parallel > 1 and (not shape.experts or shape.experts % training.expert_parallel):
        rule = f"must divide the {shape.experts} experts of {shape.name}"
        raise InputError(rule, key="expert_parallel", value=training.expert_parallel)
    size = tokens, squares
    dense = _block("block", shape, _Network(shape.ffn), training, size)
    if not shape.experts:
        blocks = (dense,) * shape.layers
    else:
        visited = shape.active_experts + shape.shared_experts
        mixture = _Network(shape.expert_ffn, shape.experts + shape.shared_experts, visited, shape.experts)
        experts = _block("mixture", shape, mixture, training, size)
        blocks = (dense,) * shape.dense_layers + (experts,) * (shape.layers - shape.dense_layers)
    return (_embedding(shape, training, tokens), *blocks, _head(shape, training, tokens))


def _block(
    name: str, shape: ModelShape, network: _Network, training: Training, size: tuple[int, int]
) -> LayerCosts:
    h, d, a, k = shape.hidden, shape.head_size, shape.heads, shape.kv_heads
    (tokens, squares), matrices = size, 3 if shape.gated else 2
    router = h * network.routed
    one = shape.network_parameters(network.size)
    linear = 2 * tokens * (shape.attention_parameters + network.active * one + router)
    scores = 2 * squares * a * d
    inputs = 2 * h + 2 * d * a + network.active * (2 * h + 2 * network.size)
    others = 4 * h + 2 * d * (a + 2 * k) + network.active * 2 * (matrices - 1) * network.size
    activation, needed = tokens * (inputs + others), tokens * inputs
    inside = tokens * network.active * (2 * h + 2 * matrices * network.size)
    norms = 2 * h * (1 if network.routed else 2)
    dropped = tokens * (norms + network.active * 2 * network.size)
    read = tokens * (norms + network.active * 2 * (matrices - 1) * network.size)
    return LayerCosts(
        name,
        _seconds(training, (linear + scores, linear + 2 * scores, linear), activation),
        activation,
        activation if training.gradients_kept else needed,
        message=2 * h * tokens,
        parameters=shape.attention_parameters + network.total * one + router + 2 * h,
        selective=((read + dropped) / training.gpu.memory_bandwidth, dropped),
        routed=network.routed * one,
        experts=_seconds(training, (2 * tokens * network.active * one,) * 3, inside),
        sent=2 * h * tokens * shape.active_experts if network.routed else 0,
    )


def _embedding(shape: ModelShape, training: Training, tokens: int) -> LayerCosts:
    message = 2 * shape.hidden * tokens
    row = message / training.gpu.memory_bandwidth
    return LayerCosts("embedding", (2 * row, 0, 5 * row), 0, 0, message, shape.vocabulary * shape.hidden)


def _head(shape: ModelShape, training: Training, tokens: int) -> LayerCosts:
    parameters = shape.vocabulary * shape.hidden
    held, message = tokens * (4 * shape.hidden + 4 * shape.vocabulary), 2 * shape.hidden * tokens
    seconds = _seconds(training, (2 * tokens * parameters,) * 3, held)
    needed = held if training.gradients_kept else message
    return LayerCosts("head", seconds, held, needed, message, parameters)


def _seconds(training: Training, flops: tuple[int, int, int], activation: int) -> tuple[float, float, float]:
    """Return the time of F, B and W with so many FLOPs on one GPU; F and B move the activation twice."""
    moved = 2 * activation / training.gpu.memory_bandwidth
    speed = training.gpu.flops * training.utilisation
    return flops[0] / speed + moved, flops[1] / speed + moved, flops[2] / speed


def _layer(costs: LayerCosts, training: Training) -> Layer:
    """Return a layer with its costs in whole ticks and bytes of one GPU."""
    least = 0 if costs.name == "embedding" else 1
    forward, backward, weight = (max(least, _ticks(time, training)) for time in costs.seconds)
    message = share_of(costs.message, training)
    layer = Layer(
        costs.name,
        forward,
        backward,
        weight,
        activation=share_of(costs.activation, training),
        weight_activation=share_of(costs.needed, training),
        output=message,
        parameters=share_of(costs.parameters, training),
        offload=share_of(costs.activation, training) if training.offload and costs.selective else 0,
    )
    if costs.name == "embedding":
        return layer
    if costs.sent and training.expert_parallel > 1:
        return _shared(layer, costs, training)
    if training.discount:
        fused = max(1, round((1 - training.discount) * (backward + weight)))
        layer = replace(layer, fused=fused)
    if costs.selective is None:
        return replace(layer, output=None)
    seconds, dropped = costs.selective
    kept = share_of(costs.activation - dropped, training)
    kinds = (
        Recomputation("selective", max(1, _ticks(seconds, training)), kept),
        Recomputation("full", forward, message),
    )
    return replace(layer, recompute=kinds)


def _ticks(seconds: float, training: Training) -> int:
    return round(seconds * MICROSECOND / training.tensor_parallel)


def model_law(shape: ModelShape, training: Training) -> ModelLaw:
    """Return the layers of a model with laws of their times and bytes, for all lengths of sequences.

    Raise an InputError if GPUs share the experts, because the parts of a layer with experts are no laws.
    """
    if training.expert_parallel > 1:
        rule = "must be 1 where costs are laws of lengths, as for slices"
        raise InputError(rule, key="expert_parallel", value=training.expert_parallel)
    of_tokens, of_squares = (layer_costs(shape, training, *size) for size in ((1, 0), (0, 1)))
    return ModelLaw(tuple(_law(t, q, training) for t, q in zip(of_tokens, of_squares, strict=True)))


def _law(of_tokens: LayerCosts, of_squares: LayerCosts, training: Training) -> LayerLaw:
    """Return the laws of a layer from what a token takes, and what each square of a length adds."""
    like = _layer(of_tokens, training)  # says what the layer has at all

    def share(tokens: float, squares: float = 0.0) -> Law:
        return Law(0.0, *(float(f"{one / training.tensor_parallel:.9g}") for one in (tokens, squares)))

    times = [
        share(MICROSECOND * t, MICROSECOND * q)
        for t, q in zip(of_tokens.seconds, of_squares.seconds, strict=True)
    ]
    laws = dict(zip(TIMES, times, strict=True))
    if like.fused is not None:
        laws["fused"] = (times[1] + times[2]) * (1 - training.discount)
    laws |= {"activation": share(of_tokens.activation), "weight_activation": share(of_tokens.needed)}
    if training.offload and of_tokens.selective:
        laws["offload"] = laws["activation"]
    message, kinds = share(of_tokens.message), tuple[tuple[str, tuple[tuple[str, Law], ...]], ...]()
    if like.output is not None:
        laws["output"] = message
    if of_tokens.selective is not None:
        seconds, dropped = of_tokens.selective
        kept = share(of_tokens.activation - dropped)
        kinds = (
            ("selective", (("ticks", share(MICROSECOND * seconds)), ("activation", kept))),
            ("full", (("ticks", times[0]), ("activation", message))),
        )
    return LayerLaw(Layer(like.name, 0, 0, 0, parameters=like.parameters), tuple(laws.items()), kinds)


def _shared(layer: Layer, costs: LayerCosts, training: Training) -> Layer:
    """Return a layer whose experts several GPUs share: most tokens travel to other GPUs, and back.

    A GPU has its share of the experts. The optimizer's state of all experts is on as many GPUs as that of any
    other parameter. So the number of parameters is the one of which `STATE` has as many bytes.
    """
    gpus = training.expert_parallel
    away = costs.sent * (gpus - 1) / gpus / training.tensor_parallel
    travel, parts = round(away / training.gpu.node_bandwidth * MICROSECOND), {}
    for key, seconds in zip(("forward", "backward", "weight"), costs.experts, strict=True):
        ticks = getattr(layer, key)
        inside = min(ticks, round(seconds * MICROSECOND / training.tensor_parallel))
        sent = 0 if key == "weight" else travel
        parts[key] = ExpertCosts(ticks - inside, sent, inside, sent)
    own, all_pipelines = STATE["replicated"], STATE["sharded"] / training.data_parallel
    here = costs.routed * (own / gpus + all_pipelines) / (own + all_pipelines)
    experts = ExpertLayer(**parts)
    return replace(
        layer,
        forward=experts.forward.ticks,
        backward=experts.backward.ticks,
        parameters=share_of(ceil(costs.parameters - costs.routed + here), training),
        experts=experts,
    )


def share_of(amount: int, training: Training) -> int:
    return -(-amount // training.tensor_parallel)


def model_file(
    shape: ModelShape,
    training: Training,
    *,
    devices: int,
    microbatches: int,
    reserve: int | str = 0,
    node_size: int | None = None,
    recompute: Sequence[str] = (),
    slices: Sequence[int] = (),
) -> dict[str, Any]:
    """Return the content of a model file for a model on a number of devices.

    - `shape`, `training`: the model, and how it is trained.
    - `devices`: number of devices of a pipeline; each stands for `training.tensor_parallel` GPUs.
    - `microbatches`: microbatches of each pipeline per training step.
    - `reserve`: memory of each GPU that a plan may not use: bytes, or a text such as ``4 GB``.
    - `node_size`: number of consecutive devices of a node; None if all devices are in one node.
    - `recompute`: the kinds of recomputation of which plans may choose: `selective`, `full` or both.
    - `slices`: numbers of slices among which a plan chooses. If any is given, the costs of layers are laws.
    """
    model = model_law(shape, training) if slices else Model(layers_of(shape, training))
    return {
        "tick": str(USUAL_TICK),
        "layers": tables_of(model),
        "cluster": cluster_table(training, devices, reserve, node_size),
        "batch": {
            "microbatches": microbatches,
            "microbatch_size": training.microbatch_size,
            "sequence_length": training.sequence_of(shape),
            "data_parallel": training.data_parallel,
        },
        "search": {
            "recompute": list(recompute),
            "objective": str(Objective.STEP),
            **({"slices": list(slices)} if slices else {}),
        },
    }


def cluster_table(
    training: Training, devices: int, reserve: int | str, node_size: int | None
) -> dict[str, Any]:
    """Return the table ``[cluster]`` of a model file."""
    return {
        "devices": devices,
        "memory": training.gpu.memory,
        "reserve": reserve,
        "bytes_per_parameter": STATE,
        **_links(training.gpu, node_size),
        **({"host_bandwidth": round(training.gpu.host_bandwidth / MICROSECOND)} if training.offload else {}),
    }


def _links(gpu: Gpu, node_size: int | None) -> dict[str, int]:
    """Return the entries of ``[cluster]`` for the links that the data sheet of a GPU gives."""
    near, far = (round(speed / MICROSECOND) for speed in (gpu.node_bandwidth, gpu.bandwidth))
    if node_size is None:
        return {"latency": _LATENCY, "bandwidth": near}
    nodes = {"node_size": node_size, "node_latency": _LATENCY, "node_bandwidth": near}
    return {"latency": _LATENCY, "bandwidth": far} | nodes


def problem_of(shape: ModelShape, training: Training, **entries: Any) -> PlanningProblem:
    """Return the planning problem of a model; `entries` are further arguments of `model_file`.

    Raise an InputError if an entry breaks a rule; the message names its key in a model file.
    """
    return problem_from_dict(model_file(shape, training, **entries))
