"""Costs of public models: published sizes, numbers counted by hand, and what each way of training changes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tightpipe import InputError
from tightpipe.planning.layered_model import Layer, Recomputation
from tightpipe.planning.many_steps import stage_law
from tightpipe.planning.model_law import slices_at
from tightpipe.planning.problem_file import problem_from_dict
from tightpipe.planning.public_models import Gpu, ModelShape, find_shape, load_gpus, load_shapes
from tightpipe.planning.shapes import Training, layers_of, model_file, model_law, problem_of

# one FLOP takes 1 microsecond, and memory no time
GPU = Gpu("slow", 1e6, 1e30, "1 TB", 4e6, 2e6, 1e6)
TINY = ModelShape(
    "tiny", 3, 8, heads=2, kv_heads=2, head_size=4, ffn=32, gated=False, vocabulary=50, sequence=6
)
GROUPED = replace(TINY, kv_heads=1, gated=True, ffn=10)
MIXTURE = replace(GROUPED, dense_layers=1, experts=4, active_experts=2, shared_experts=1, expert_ffn=5)
PLAIN = Training(GPU, utilisation=1.0)

PUBLISHED = {  # billions of parameters
    "gpt-3-175b": 175,
    "llama-2-7b": 6.74,
    "llama-2-13b": 13.02,
    "llama-2-70b": 68.98,
    "llama-3-8b": 8.03,
    "llama-3-70b": 70.55,
    "llama-3-405b": 405.85,
    "mistral-7b": 7.24,
    "qwen2.5-32b": 32.76,
    "gemma-2-27b": 27.23 + 1.18,  # its head has the matrix of its embedding; two devices hold a copy each
    "nemotron-4-15b": 15.6,
    "mixtral-8x7b": 46.7,
    "deepseek-moe-16b": 16.4,
}


def block_of(shape: ModelShape, training: Training = PLAIN) -> Layer:
    return layers_of(shape, training)[1]


@pytest.mark.parametrize("name", list(load_shapes()))
def test_a_shape_has_as_many_parameters_as_published(name: str) -> None:
    layers = layers_of(find_shape(name), Training(load_gpus()["h100"]))
    assert sum(layer.parameters for layer in layers) / 1e9 == pytest.approx(PUBLISHED[name], rel=0.003)


@pytest.mark.parametrize("name", list(load_shapes()))
def test_a_shape_makes_a_problem(name: str) -> None:
    shape = find_shape(name)
    problem = problem_of(shape, Training(load_gpus()["a100"]), devices=8, microbatches=4)
    names = [layer.name for layer in problem.model.layers]
    assert (names[0], names[-1], len(names)) == ("embedding", "head", shape.layers + 2)
    assert problem.batch.tokens == shape.sequence


def test_a_block_by_hand() -> None:
    # attention 4 h^2, network 8 h^2; 6 tokens, two FLOPs per parameter; 2 s^2 a d for the scores
    parameters, scores = 12 * 8 * 8, 2 * 6 * 6 * 8
    linear = 2 * 6 * parameters
    assert block_of(TINY) == Layer(
        "block",
        linear + scores,
        linear + 2 * scores,
        linear,
        activation=32 * 8 * 6,  # 34 s b h without 2 s b h of dropout masks
        weight_activation=14 * 8 * 6,
        recompute=(
            # both norms and the activation function in front of the last map of 4 h
            Recomputation("selective", 1, (32 - 4 - 8) * 8 * 6),
            Recomputation("full", linear + scores, 2 * 8 * 6),
        ),
        output=2 * 8 * 6,
        parameters=parameters + 2 * 8,
    )


def test_a_block_with_grouped_queries_and_a_gate_by_hand() -> None:
    block = block_of(GROUPED)
    assert block.parameters == 2 * 8 * 4 * (2 + 1) + 3 * 8 * 10 + 2 * 8
    per_token = 8 * 8 + 2 * 4 * (2 + 2 * 1) + 2 * 4 * 2 + 4 * 10 + 2 * 10
    assert block.activation == 6 * per_token
    assert block.weight_activation == 6 * (2 * 8 + 2 * 4 * 2 + 2 * 8 + 2 * 10)


def test_a_mixture_by_hand() -> None:
    embedding, dense, first, second, head = layers_of(MIXTURE, PLAIN)
    assert (embedding.name, dense.name, head.name) == ("embedding", "block", "head")
    assert first == second
    attention, expert, router = 2 * 8 * 4 * 3, 3 * 8 * 5, 8 * 4
    assert first.parameters == attention + 5 * expert + router + 2 * 8
    assert first.weight == 2 * 6 * (
        attention + 3 * expert + router
    )  # a token visits two experts and the shared one
    attention_bytes = 6 * 8 + 2 * 4 * (2 + 2 * 1) + 2 * 4 * 2
    assert first.activation == 6 * (attention_bytes + 3 * (2 * 8 + 4 * 5 + 2 * 5))


def test_embedding_and_head_by_hand() -> None:
    slow_memory = replace(PLAIN, gpu=replace(GPU, memory_bandwidth=1e6, flops=1e30))
    embedding, head = layers_of(TINY, slow_memory)[0], layers_of(TINY, slow_memory)[-1]
    assert embedding == Layer("embedding", 4 * 8 * 6, 0, 10 * 8 * 6, output=2 * 8 * 6, parameters=50 * 8)
    held = 6 * (4 * 8 + 4 * 50)
    assert head == Layer("head", 2 * held, 2 * held, 1, held, 2 * 8 * 6, parameters=50 * 8)
    linear = 2 * 6 * 8 * 50
    fast_memory = layers_of(TINY, PLAIN)[-1]
    assert (fast_memory.forward, fast_memory.backward, fast_memory.weight) == (linear, linear, linear)


def test_gpus_that_work_as_one_share_everything() -> None:
    alone, shared = (layers_of(TINY, replace(PLAIN, tensor_parallel=t)) for t in (1, 2))
    for one, half in zip(alone, shared, strict=True):
        for key in ("forward", "backward", "weight", "activation", "weight_activation", "parameters"):
            assert 2 * getattr(half, key) == getattr(one, key), f"{one.name}.{key}"
    assert shared[1].output == 8 * 6


def test_more_sequences_take_as_much_more_and_longer_ones_more_than_that() -> None:
    one, two = block_of(TINY), block_of(TINY, replace(PLAIN, microbatch_size=2))
    longer = block_of(TINY, replace(PLAIN, sequence=12))
    assert (two.forward, two.activation) == (2 * one.forward, 2 * one.activation)
    assert (longer.forward, longer.activation) == (two.forward + 2 * 72 * 8, two.activation)


def test_half_the_utilisation_takes_twice_as_long() -> None:
    assert block_of(TINY, replace(PLAIN, utilisation=0.5)).weight == 2 * block_of(TINY).weight


@pytest.mark.parametrize("shape", [TINY, GROUPED, MIXTURE])
def test_kept_gradients_leave_nothing_that_recomputation_would_save(shape: ModelShape) -> None:
    layers = layers_of(shape, replace(PLAIN, gradients_kept=True))
    assert [layer.weight_activation for layer in layers] == [layer.activation for layer in layers]
    kinds = ("selective", "full")
    assert not any(layer.effects(kinds) for layer in layers)
    able = [list(layer.effects(kinds)) for layer in layers_of(shape, PLAIN)]
    assert able == [[], *[["selective", "full"]] * 3, []]


def test_static_state_is_shared_by_the_pipelines() -> None:
    problem = problem_of(TINY, replace(PLAIN, data_parallel=8), devices=2, microbatches=4)
    assert problem.cluster.bytes_per_parameter == 6 + Fraction(12, 8)
    assert problem.batch.data_parallel == 8


def test_devices_of_a_node_have_faster_links() -> None:
    training = replace(PLAIN, gpu=replace(GPU, node_bandwidth=4e6, bandwidth=2e6))
    flat = problem_of(TINY, training, devices=4, microbatches=4).cluster
    nodes = problem_of(TINY, training, devices=4, microbatches=4, node_size=2).cluster
    assert [flat.comm_ticks(1, 2, 96), nodes.comm_ticks(0, 1, 96), nodes.comm_ticks(1, 2, 96)] == [34, 34, 58]


def test_the_content_of_a_file_is_the_problem() -> None:
    data = model_file(MIXTURE, PLAIN, devices=2, microbatches=4, reserve="4 GB", recompute=["full"])
    assert [table.get("count", 1) for table in data["layers"]] == [1, 1, 2, 1]
    problem = problem_from_dict(data)
    assert (problem.cluster.reserve, problem.space.recompute) == (4 * 10**9, ("full",))
    assert problem.model.layers == layers_of(MIXTURE, PLAIN)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"utilisation": 0.0}, "utilisation = 0.0: must be above 0 and at most 1"),
        ({"utilisation": float("nan")}, "utilisation = nan: must be above 0 and at most 1"),
        ({"microbatch_size": 0}, "microbatch_size = 0: must be at least 1"),
        ({"sequence": 0}, "sequence = 0: must be at least 1"),
        ({"data_parallel": 1.5}, "data_parallel = 1.5: must be an integer"),
    ],
)
def test_a_training_is_checked(entries: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(PLAIN, **entries)


def test_heads_are_divided_among_whole_gpus() -> None:
    with pytest.raises(InputError, match="tensor_parallel = 2: must divide the 1 heads of keys and values"):
        layers_of(GROUPED, replace(PLAIN, tensor_parallel=2))


@pytest.mark.parametrize(("lengths", "ends"), [((6,), (6,)), ((2, 4), (2, 6)), ((1, 3, 2), (1, 4, 6))])
def test_a_slice_by_its_law(lengths: tuple[int, ...], ends: tuple[int, ...]) -> None:
    h, f, a, d = TINY.hidden, TINY.ffn, TINY.heads, TINY.head_size
    for x, p, unit in zip(lengths, ends, slices_at(model_law(TINY, PLAIN), lengths, 1), strict=True):
        block = unit.layers[1]
        scores = 4 * a * d * (x * p - Fraction(x * x, 2))
        assert block.forward == 4 * h * f * x + 8 * h * a * d * x + scores
        assert block.backward - block.weight == 2 * scores


def test_the_law_of_the_stages_gives_the_costs_of_their_layers_at_every_length() -> None:
    """Packing two sequences is one microbatch of two rows: half the squares of one sequence twice as long."""
    training = replace(PLAIN, discount=0.25)
    law = stage_law(TINY, training, devices=3, placement="linear")
    for rows, length in ((1, 6), (1, 50), (2, 25), (3, 7)):
        instance = law.instance([[length] * rows])
        layers = layers_of(TINY, replace(training, microbatch_size=rows, sequence=length))
        stages = [layers[:2], layers[2:3], layers[3:]]
        for key in ("forward", "backward", "weight", "fused"):
            entries = [sum(getattr(layer, key) or 0 for layer in stage) for stage in stages]
            assert getattr(instance.costs, key) == pytest.approx(entries, abs=2), key
        assert instance.memory is not None
        assert instance.memory.forward == tuple(sum(layer.activation for layer in stage) for stage in stages)
        kept = [-sum(layer.weight_activation for layer in stage) for stage in stages]
        assert instance.memory.weight == tuple(kept)
    parameters = [sum(layer.parameters for layer in stage) for stage in stages]
    assert instance.memory.limit == tuple(10**12 - 18 * count for count in parameters)
    assert instance.comm(0, 1) == 10 + round(2 * 8 * 21 / 4)


def test_a_law_for_more_stages_than_blocks_is_refused() -> None:
    with pytest.raises(
        InputError, match="devices = 2: must be at most 3 blocks; v on 2 devices has 4 stages"
    ):
        stage_law(TINY, PLAIN, devices=2)
    with pytest.raises(InputError, match="devices = 2: must be more: device 0 has no memory left"):
        stage_law(TINY, replace(PLAIN, gpu=replace(GPU, memory=20000)), devices=2, placement="linear")
