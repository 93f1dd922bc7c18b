"""Cuts of models for torchtitan and Megatron-LM: read back as written, and refused where none can be."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.handmade_plans import alike
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import InputError, Placement
from tightpipe.export import SPLITS, ModelSplit, export, export_text, read_split
from tightpipe.export import split_model as split_any_model
from tightpipe.export.layouts import layout_parts, layout_text
from tightpipe.planning.layered_model import Recomputed

BLOCKS, NONE = ["embedding", *["block"] * 6, "head"], ((),) * 4
LOOP, V = (0, 1, 0, 1), (0, 1, 1, 0)


def split_model(
    names: Sequence[str],
    cuts: Sequence[int],
    recomputed: Sequence[Recomputed],
    devices: Sequence[int],
    **more: Any,
) -> ModelSplit:
    """The split of a model that takes 60 microbatches, a number with which every target runs any model here."""
    return split_any_model(names, cuts, recomputed, devices, **{"microbatches": 60} | more)


def unsaid(split: ModelSplit) -> ModelSplit:
    """The split as the arguments of Megatron-LM describe it: they do not say the number of microbatches."""
    return replace(split, microbatches=None)


SPLIT = split_model(BLOCKS, (0, 2, 4, 6, 8), NONE, LOOP)


@st.composite
def models(draw: st.DrawFn) -> tuple[list[str], tuple[int, ...], Placement]:
    """Names of layers, a cut that leaves no stage empty, and a placement with as many stages."""
    name = draw(st.sampled_from(["linear", "loop", "v"]))
    chunks = {"linear": 1, "loop": draw(st.integers(1, 3)), "v": 2}[name]
    placement = Placement(name, draw(st.integers(1, 5)), chunks)
    names = ["embedding", *["block"] * draw(st.integers(placement.stages, 40)), "head"]
    count = placement.stages - 1
    inner = draw(st.sets(st.integers(1, len(names) - 1), min_size=count, max_size=count))
    return names, (0, *sorted(inner), len(names)), placement


def chosen(draw: st.DrawFn, cuts: tuple[int, ...]) -> list[Recomputed]:
    """Any layers of each stage, each in one of two kinds."""
    kinds = st.sampled_from(["full", "selective"])
    stages = (draw(st.dictionaries(st.sampled_from(range(*stage)), kinds)) for stage in pairwise(cuts))
    return [tuple(sorted(stage.items())) for stage in stages]


@given(models(), st.data())
def test_torchtitan_reads_back_with_what_is_recomputed(
    model: tuple[list[str], tuple[int, ...], Placement], data: st.DataObject
) -> None:
    names, cuts, placement = model
    split = split_model(names, cuts, chosen(data.draw, cuts), placement.routes[0])
    back = SPLITS["torchtitan"].read(export_text(split, "torchtitan"))
    assert back == split
    assert back.cuts == cuts


@given(models(), st.integers(0, 9))
def test_megatron_reads_back_with_the_first_blocks_recomputed(
    model: tuple[list[str], tuple[int, ...], Placement], number: int
) -> None:
    names, cuts, placement = model
    stages = [[i for i in range(*stage) if names[i] == "block"] for stage in pairwise(cuts)]
    split = split_model(names, cuts, alike([stage[:number] for stage in stages]), placement.routes[0])
    if placement.name == "v" and placement.devices > 1:
        with pytest.raises(InputError, match="Megatron-LM runs stage s on device s mod p"):
            export_text(split, "megatron-layout")
        return
    if placement.devices == 1 and placement.stages > 1:
        with pytest.raises(InputError, match="Megatron-LM has one stage on a single device"):
            export_text(split, "megatron-layout")
        return
    back = SPLITS["megatron-layout"].read(export_text(split, "megatron-layout"))
    assert back == unsaid(split)
    assert back.cuts == cuts


@given(st.lists(st.text("Etm", max_size=5), min_size=1, max_size=12))
def test_a_layout_is_unfolded_to_what_was_folded(parts: list[str]) -> None:
    assert layout_parts(layout_text(tuple(parts))) == tuple(parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Ettt|(tt|)*29,m|L", ("Ettt", *["tt"] * 29, "m", "L")),
        ("Et*3|(tt|)*2,m|L", ("Ettt", "tt", "tt", "m", "L")),
        ("E|(t|)*3,m|m||L", ("E", "t", "t", "t", "m", "m", "", "L")),
        ("E(t*2|t)*2|L", ("Ett", "ttt", "t", "L")),
        ("EtL", ("EtL",)),
    ],
)
def test_a_layout_is_read_as_megatron_reads_it(text: str, parts: tuple[str, ...]) -> None:
    assert layout_parts(text) == parts


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("Ettt", "tt", "tt", "tt", "tL"), "Et*3|(t*2|)*3tL"),
        (("E", "t", "m", "L"), "E|t|m|L"),
        (("EttL",), "Et*2L"),
    ],
)
def test_a_layout_is_folded(parts: tuple[str, ...], text: str) -> None:
    assert layout_text(parts) == text


def test_the_arguments_of_megatron() -> None:
    split = replace(SPLIT, recomputed=alike([(1,), (0,), (0,), (0,)]))
    assert export_text(split, "megatron-layout") == (
        "--pipeline-model-parallel-size 2\n"
        "--pipeline-model-parallel-layout 'Et|(t*2|)*2tL'\n"
        "--recompute-granularity full\n"
        "--recompute-method block\n"
        "--recompute-num-layers 1\n"
    )
    layout = export_text(split, "megatron-layout", layout_only=True)
    assert shlex.split(layout)[2:] == ["--pipeline-model-parallel-layout", "Et|(t*2|)*2tL"]


def test_megatron_gathers_all_stages_of_a_device() -> None:
    export_text(replace(SPLIT, shards=2, resident=2), "megatron-layout")
    with pytest.raises(InputError, match=r"cluster.resident = 1: Megatron-LM keeps all stages"):
        export_text(replace(SPLIT, shards=2, resident=1), "megatron-layout")


def test_megatron_recomputes_every_block_by_another_method() -> None:
    names = ["embedding", "block", "block", "block", "mtp", "head"]
    split = split_model(names, (0, 2, 3, 4, 6), alike([(1,), (2,), (3,), (4,)]), LOOP)
    text = export_text(split, "megatron-layout")
    assert "--recompute-method uniform\n--recompute-num-layers 1\n" in text
    assert SPLITS["megatron-layout"].read(text) == unsaid(split)


def test_megatron_recomputes_the_modules_of_every_block_that_name_the_kind() -> None:
    names = ["embedding", "block", "block", "block", "mtp", "head"]
    every = [(1,), (2,), (3,), (4,)]
    split = split_model(names, (0, 2, 3, 4, 6), alike(every, "layernorm+moe_act"), LOOP)
    text = export_text(split, "megatron-layout")
    assert text.endswith("--recompute-granularity selective\n--recompute-modules layernorm moe_act\n")
    assert SPLITS["megatron-layout"].read(text) == unsaid(split)
    default = re.sub("--recompute-modules.*", "--bf16", text)
    assert SPLITS["megatron-layout"].read(default).recomputed[0] == ((1, "core_attn"),)


@pytest.mark.parametrize(
    ("recomputed", "message"),
    [
        ((((1, "mlp"),), (), (), ()), "'mlp': Megatron-LM recomputes modules in every block or in none"),
        ((((1, "mlp"),), ((0, "full"),), (), ()), r"\['full', 'mlp'\]: Megatron-LM recomputes in one kind"),
        (
            (((1, "half"),), (), (), ()),
            "'half': Megatron-LM recomputes whole blocks, the kind full, or",
        ),
    ],
)
def test_megatron_refuses_other_kinds(recomputed: tuple[Recomputed, ...], message: str) -> None:
    split = replace(SPLIT, recomputed=recomputed)
    with pytest.raises(InputError, match=f"recomputed = {message}"):
        export_text(split, "megatron-layout")
    assert "recompute" not in export_text(split, "megatron-layout", layout_only=True)


def test_megatron_has_other_arguments_beside_those_of_the_split() -> None:
    names = ["embedding", "block", "block", "block", "mtp", "head"]
    split = split_model(names, (0, 2, 3, 4, 6), alike([(1,), (2,), (3,), (4,)]), LOOP)
    text = export_text(split, "megatron-layout")
    equals = re.sub(r"(?m)^(--[a-z-]+) ", r"\1=", text)
    assert equals != text
    for written in (f"--bf16\n{text}", f"--lr 0.1 {text} --use-flash-attn --seed=3", equals):
        assert SPLITS["megatron-layout"].read(written) == unsaid(split)


@pytest.mark.parametrize(
    "recomputed",
    [
        ((0,), (), (), ()),  # the embedding
        ((), (), (), (1,)),  # the head
        ((1,), (), (), ()),  # one block, and none where the others have some
        ((1,), (1,), (1,), (0,)),  # not the first ones
        ((1,), (0, 1), (0,), (0,)),
    ],
)
def test_megatron_cannot_recompute_everything(recomputed: tuple[tuple[int, ...], ...]) -> None:
    split = replace(SPLIT, recomputed=alike(recomputed))
    with pytest.raises(InputError, match=r"recomputed = \[.*\]: Megatron-LM recomputes the first N blocks"):
        export_text(split, "megatron-layout")
    assert "recompute" not in export_text(split, "megatron-layout", layout_only=True)


@pytest.mark.parametrize(
    ("cuts", "fits"),
    [((0, 2, 3, 4, 7), True), ((0, 2, 3, 5, 7), True), ((0, 2, 5, 6, 7), False)],
)
def test_megatron_has_mtp_blocks_on_a_last_stage(cuts: tuple[int, ...], fits: bool) -> None:
    names = ["embedding", "block", "block", "block", "mtp", "head", "head"][: cuts[-1] - 1]
    split = split_model(names, (*cuts[:-1], cuts[-1] - 1), NONE, LOOP)
    if fits:
        assert SPLITS["megatron-layout"].read(export_text(split, "megatron-layout")) == unsaid(split)
    else:
        with pytest.raises(InputError, match=r"stages = \[1\]: Megatron-LM has all multi-token prediction"):
            export_text(split, "megatron-layout")


def test_the_configuration_of_torchtitan() -> None:
    split = split_model(BLOCKS, (0, 2, 4, 6, 8), (((1, "selective"),), (), ((4, "full"),), ((7, "full"),)), V)
    assert json.loads(export_text(split, "torchtitan")) == {
        "parallelism": {
            "pipeline_parallel_degree": 2,
            "pipeline_parallel_schedule": "ZBVZeroBubble",
            "num_pp_microbatches": 60,
            "module_fqns_per_model_part": [
                ["tok_embeddings", "layers.0"],
                ["layers.1", "layers.2"],
                ["layers.3", "layers.4"],
                ["layers.5", "norm", "lm_head"],
            ],
        },
        "recomputed": {"selective": ["layers.0"], "full": ["layers.3", "lm_head"]},
    }


def test_older_names_of_torchtitan_are_read() -> None:
    text = export_text(SPLIT, "torchtitan").replace("lm_head", "output")
    assert SPLITS["torchtitan"].read(text) == SPLIT


@pytest.mark.parametrize("devices", [(0, 0, 1, 1), (0, 1, 0), (1, 0, 1, 0)])
def test_stages_on_other_devices_are_refused(devices: tuple[int, ...]) -> None:
    split = split_model(BLOCKS, (*(0, 1, 3, 6)[: len(devices)], 8), ((),) * len(devices), devices)
    for target in SPLITS:
        with pytest.raises(InputError, match="runs stage s on device s mod p"):
            export_text(split, target)


def test_torchtitan_has_no_mtp() -> None:
    split = split_model(["embedding", "block", "mtp", "head"], (0, 2, 4), ((), ()), (0, 1))
    with pytest.raises(InputError, match="torchtitan has no multi-token prediction in pipelines"):
        export_text(split, "torchtitan")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("block embedding head", r"layer 1 = 'embedding': by its name the layer is out of place: frameworks"),
        ("embedding mtp block head", r"layer 2 = 'block': by its name"),
        ("head block", r"layer 1 = 'block': by its name"),
        ("embedding norm block head", r"layer 2 = 'block': by its name"),
        (
            "embedding block head head",
            "layer 3 = 'head': is there twice",
        ),
        ("wte wte block", "layer 1 = 'wte': is there twice"),
        (
            "embedding attention mlp head",
            r"name of layer 1 = 'attention': does not say what the layer is; known",
        ),
    ],
)
def test_layers_that_frameworks_do_not_have_are_named(names: str, message: str) -> None:
    layers = names.split()
    with pytest.raises(InputError, match=message):
        split_model(layers, (0, len(layers)), ((),), (0,))


def test_a_name_that_is_not_known_is_refused_with_what_is_known_and_the_kinds() -> None:
    with pytest.raises(InputError) as refused:
        split_model(["wte", "stem", "h"], (0, 3), ((),), (0,))
    for known in ("embed_tokens", "LlamaDecoderLayer", "multi-token prediction", "ln_f", "lm_head", "cross"):
        assert known in str(refused.value)
    assert str(refused.value).endswith("the key kind, one of embedding, block, mtp, norm, head, loss")


def test_a_kind_says_what_a_name_does_not() -> None:
    names, kinds = ["stem", "x", "x", "head", "out"], ["embedding", "block", "block", "mtp", None]
    split = split_model(names, (0, 2, 5), ((), ()), (0, 1), kinds=kinds)
    assert split.parts == ("Et", "tmL")
    assert split.blocks == 2
    with pytest.raises(InputError, match="layer 1 = 'block': by its kind the layer is out of place"):
        split_model(["block", "block"], (0, 2), ((),), (0,), kinds=["head", "block"])


def test_layers_of_a_head_need_no_names_if_their_kinds_differ() -> None:
    kinds = ["block", "norm", "head", "loss"]
    assert split_model(["layer"] * 4, (0, 4), ((),), (0,), kinds=kinds).parts == ("EtL",)
    with pytest.raises(InputError, match="layer 2 = 'layer': is there twice, and frameworks have one"):
        split_model(["layer"] * 3, (0, 3), ((),), (0,), kinds=["block", "norm", "norm"])


def test_embeddings_and_the_layers_of_a_head_are_one_part_each() -> None:
    names = ["wte", "wpe", "h", "h", "ln_f", "lm_head", "loss"]
    split = split_model(names, (0, 3, 7), alike([(0, 1, 2), (4, 5, 6)]), (0, 1))
    assert split == ModelSplit((0, 1), ("Et", "tL"), alike([(0, 1), (1,)]), 60)
    assert split.blocks == 2


@pytest.mark.parametrize(
    ("cuts", "recomputed", "message"),
    [
        ((0, 1, 6), ((), ()), r"layers = \['wte', 'wpe'\]: frameworks have them on one stage, but the plan"),
        ((0, 5, 6), ((), ()), r"layers = \['ln_f', 'lm_head'\]: frameworks have them on one stage"),
        ((0, 3, 6), ((0,), ()), r"layers = \['wte', 'wpe'\]: frameworks recompute all of them or none"),
        ((0, 3, 6), ((), (5,)), r"layers = \['ln_f', 'lm_head'\]: frameworks recompute all of them or none"),
    ],
)
def test_a_part_of_several_layers_is_not_divided(
    cuts: tuple[int, ...], recomputed: tuple[tuple[int, ...], ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        split_model(["wte", "wpe", "h", "h", "ln_f", "lm_head"], cuts, alike(recomputed), (0, 1))


def test_what_has_no_layer_is_where_frameworks_have_it() -> None:
    split = split_model(["block"] * 4, (0, 1, 4), alike([(0,), (1, 3)]), (0, 1))
    assert split == ModelSplit((0, 1), ("Et", "tttL"), alike([(1,), (0, 2)]), 60)
    for target in SPLITS:
        assert (
            SPLITS[target].read(export_text(replace(split, recomputed=((), ())), target)).parts == split.parts
        )


@pytest.mark.parametrize("target", SPLITS)
def test_a_file_is_read_from_where_it_was_written(target: str, tmp_path: Path) -> None:
    export(SPLIT, target, tmp_path / "file")
    assert read_split(tmp_path / "file", target) in (SPLIT, unsaid(SPLIT))


@pytest.mark.parametrize(
    ("target", "change", "message"),
    [
        ("torchtitan", lambda text: text[:40], "not JSON, or truncated"),
        ("torchtitan", lambda text: "[" * 100_000, "nested too deeply"),
        ("torchtitan", lambda text: text.replace("2", "2" * 5000), "holds an integer of more than"),
        ("torchtitan", lambda text: text.replace('"layers.2"', '["layers.2"]'), "a module must be a name"),
        ("torchtitan", lambda text: "{}", "has no parallelism with degree, schedule, microbatches"),
        ("torchtitan", lambda text: text.replace("60", "0"), "num_pp_microbatches = 0: must be at least 1"),
        ("torchtitan", lambda text: text.replace('"num_pp_microbatches": 60,', ""), "has no parallelism with"),
        ("torchtitan", lambda text: text.replace("ZBV", "ABC").replace("Multi", "X"), "must be one of"),
        ("torchtitan", lambda text: text.replace("layers.2", "layers.9"), "'layers.9': must be layers.2"),
        ("torchtitan", lambda text: text.replace("tok_emb", "emb"), "'embeddings': a module must be one of"),
        ("torchtitan", lambda text: text.replace('degree": 2', 'degree": 3'), "must divide the 4 stages"),
        ("torchtitan", lambda text: text.replace('degree": 2', 'degree": 0'), "must be at least 1"),
        ("megatron-layout", lambda text: "", "has no --pipeline-model-parallel-size"),
        ("megatron-layout", lambda text: text.replace("size 2", "size 3"), "must divide the 4 stages"),
        ("megatron-layout", lambda text: text.replace("size 2", "size two"), "must be an integer of at least 1"),
        ("megatron-layout", lambda text: text.replace("size 2", f"size {'9' * 5000}"), "at most 9 digits"),
        ("megatron-layout", lambda text: text.replace("E", "x"), "a layout is made of E, t, m, L"),
        ("megatron-layout", lambda text: text.replace("'", "", 1), "quotation"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_named(target: str, change, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(change(export_text(SPLIT, target)))
    with pytest.raises(InputError, match=message) as refused:
        read_split(path, target)
    assert str(refused.value).startswith(f"{path}: ")


def test_unknown_targets_and_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="target = 'nemo': must be one of torchtitan, megatron-layout"):
        export(SPLIT, "nemo", tmp_path / "file")
    with pytest.raises(InputError, match="merge = True: torchtitan has no such option; it takes none"):
        export(SPLIT, "torchtitan", tmp_path / "file", merge=True)
    assert list(tmp_path.iterdir()) == []
