"""Cuts of models for frameworks: ``megatron-layout`` and ``torchtitan``; docs/programs.md has their rules.

**megatron-layout** is the arguments by which Megatron-LM cuts its model and recomputes blocks. The layout
lists the parts of every stage in forward order, with ``|`` between two stages: ``E`` embedding, ``t``
transformer block, ``m`` multi-token prediction block, ``L`` loss. ``t*3`` repeats a letter and ``(tt|)*3`` a
text. A stage between two ``|`` that has no parts passes on what comes. Megatron-LM runs stage s on device
s mod p, of p devices. With several stages per device, groups of at least p microbatches, the last one
included, take turns on them.

With ``--recompute-method block`` the first N transformer blocks of every stage are recomputed, and with
``uniform`` and N = 1 all blocks. With ``--overlap-moe-expert-parallel-comm`` interleaved 1F1B runs pairs.

**torchtitan** takes the names of the modules of each stage in its configuration. The table ``parallelism``
has fields of torchtitan's class `ParallelismConfig`, and the number of microbatches is among them because
PyTorch refuses a schedule file with another one. Where pipelines share parameters, it says how many they are,
and that no layer gives its parameters up after its forward, because PyTorch's pipelines gather whole stages
and give them up themselves. The table ``recomputed`` names by kind the modules to wrap
in activation checkpointing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, takewhile
from typing import Any

from ..base.errors import InputError, check_choice, check_int
from ..base.files import json_content
from ..model.placement import Placement
from .model_split import BLOCK, EMBEDDING, HEAD, MTP, RESIDENT, ModelSplit

_DEVICES = "--pipeline-model-parallel-size"
_LAYOUT = "--pipeline-model-parallel-layout"
_GROUP_SIZE = "--microbatch-group-size-per-virtual-pipeline-stage"
_GRANULARITY, _METHOD, _NUMBER = "--recompute-granularity", "--recompute-method", "--recompute-num-layers"
_COMBINED = "--overlap-moe-expert-parallel-comm"
_MODULES = "--recompute-modules"
_KNOWN_MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
FULL = "full"
"""The kind of recomputation that is of whole blocks."""
_DIGITS = 9
_GROUP = re.compile(r"\(([^()]*)\)\*(\d{1,4})", re.ASCII)
_RUN = re.compile(r"(.)\*(\d{1,4})", re.ASCII)


def write_megatron(split: ModelSplit, *, layout_only: bool = False) -> str:
    """Return the arguments, one per line; `layout_only` leaves out the arguments of recomputation."""
    if not split.runs_as("loop"):
        rule = "Megatron-LM runs stage s on device s mod p, as the placement loop does"
        raise InputError(rule, key="devices of the stages", value=list(split.devices))
    _check_mtp(split)
    if split.shards is not None and split.resident < len(split.parts) // split.device_count:
        rule = "Megatron-LM keeps all stages of a device gathered"
        raise InputError(rule, key="cluster.resident", value=split.resident)
    arguments: list[tuple[str, ...]] = [(_DEVICES, str(split.device_count))]
    arguments += [(_LAYOUT, layout_text(split.parts))]
    arguments += _group_size(split)
    if not layout_only:
        arguments += _recomputation(split)
    text = "".join(f"{shlex.join(words)}\n" for words in arguments)
    return f"{text}{_COMBINED}\n" if split.combined else text


def _check_mtp(split: ModelSplit) -> None:
    held = [stage for stage, parts in enumerate(split.parts) if MTP in parts]
    if len(held) > 1 or (held and held[0] < len(split.parts) - split.device_count):
        rule = "Megatron-LM has all multi-token prediction blocks on one stage, a last one of its device"
        raise InputError(rule, key="stages", value=held)


def _group_size(split: ModelSplit) -> list[tuple[str, ...]]:
    """Return the argument for the number of microbatches in a group, if groups of p would be refused.

    Unless the split has a number, it is the smallest one that Megatron-LM accepts, because each microbatch of
    a group keeps its activations on the first stages of a device until the group has been on the last one.
    """
    p = split.device_count
    if len(split.parts) == p:
        return []
    if p == 1:
        rule = "Megatron-LM has one stage on a single device; plan with chunks = 1 in the model file"
        raise InputError(rule, key="stages", value=len(split.parts))
    n = split.known_microbatches("Megatron-LM runs several stages per device with some numbers only")
    if n < p:
        rule = (
            f"Megatron-LM needs at least as many as devices, {p}, with several stages per device; "
            "plan with more microbatches, or with chunks = 1 in the model file"
        )
        raise InputError(rule, key="microbatches", value=n)
    group = split.group or next(size for size in range(p, n + 1) if not 0 < n % size < p)
    return [] if group == p else [(_GROUP_SIZE, str(group))]


def _recomputation(split: ModelSplit) -> list[tuple[str, ...]]:
    """Return the arguments by which Megatron-LM recomputes the recomputed parts of the split."""
    kinds = {kind for stage in split.recomputed for _, kind in stage}
    if not kinds:
        return []
    if split.combined:
        rule = "Megatron-LM recomputes no blocks in combined 1F1B; plan with recompute = []"
        raise InputError(rule, key="recomputed", value=[len(stage) for stage in split.recomputed])
    kind, *others = sorted(kinds)
    if others:
        rule = f"Megatron-LM recomputes in one kind; {_WITHOUT}"
        raise InputError(rule, key="recomputed", value=sorted(kinds))
    every = split.recomputed == _every_block(split.parts, kind)
    if kind != FULL:
        return _selective(kind, every)
    most = max(map(len, split.recomputed))
    if every:
        return _full("uniform", 1)
    if split.recomputed != _first_blocks(split.parts, most):
        counts = [len(stage) for stage in split.recomputed]
        rule = (
            "Megatron-LM recomputes the first N blocks of every stage, with one N for all, and nothing else; "
            f"{_WITHOUT}"
        )
        raise InputError(rule, key="recomputed", value=counts)
    return _full("block", most)


_WITHOUT = "layout_only leaves recomputation out"


def _selective(kind: str, every: bool) -> list[tuple[str, ...]]:
    """Return the arguments for a kind that is named by the modules that are recomputed, of `every` block."""
    check_megatron_kind(kind, "recomputed", f"; {_WITHOUT}")
    if not every:
        rule = f"Megatron-LM recomputes modules in every block or in none; {_WITHOUT}"
        raise InputError(rule, key="recomputed", value=kind)
    return [(_GRANULARITY, "selective"), (_MODULES, *kind.split("+"))]


def check_megatron_kind(kind: str, key: str, remedy: str = "") -> None:
    """Raise an InputError unless Megatron-LM can be told to recompute in this kind."""
    if kind != FULL and not set(kind.split("+")) <= set(_KNOWN_MODULES):
        rule = (
            f"Megatron-LM recomputes whole blocks, the kind {FULL}, or modules, which name the kind, joined "
            f"by +: {', '.join(_KNOWN_MODULES)}{remedy}"
        )
        raise InputError(rule, key=key, value=kind)


def _full(method: str, number: int) -> list[tuple[str, ...]]:
    return [(_GRANULARITY, "full"), (_METHOD, method), (_NUMBER, str(number))]


_Recomputed = tuple[tuple[tuple[int, str], ...], ...]


def _every_block(parts: tuple[str, ...], kind: str = FULL) -> _Recomputed:
    return tuple(tuple((i, kind) for i, part in enumerate(stage) if part in (BLOCK, MTP)) for stage in parts)


def _first_blocks(parts: tuple[str, ...], number: int) -> _Recomputed:
    return tuple(
        tuple((i, FULL) for i, part in enumerate(stage) if part == BLOCK)[:number] for stage in parts
    )


def layout_text(parts: tuple[str, ...]) -> str:
    """Return the layout of stages with these parts, e.g. ``Et*3|(t*4|)*6t*3L``."""
    *others, last = (re.sub(r"(.)\1+", lambda run: f"{run[1]}*{len(run[0])}", stage) for stage in parts)
    folded = [(text, len(list(equal))) for text, equal in groupby(others)]
    return "".join(f"({t}|)*{n}" if t and n > 1 else f"{t}|" * n for t, n in folded) + last


def layout_parts(text: str) -> tuple[str, ...]:
    """Return the parts of each stage of a layout."""
    plain = text.replace(",", "")
    for pattern in (_GROUP, _RUN):
        plain = pattern.sub(lambda found: found[1] * int(found[2]), plain)
    if set(plain) - {EMBEDDING, BLOCK, MTP, HEAD, "|"}:
        raise InputError(
            "a layout is made of E, t, m, L and |, with t*3 and (tt|)*3", key=_LAYOUT, value=text
        )
    return tuple(plain.split("|"))


def read_megatron(text: str) -> ModelSplit:
    """Return the split that a file of arguments describes; arguments about anything else are ignored."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"not arguments of a shell: {error}") from None
    given = _values(words)
    for name in (_DEVICES, _LAYOUT):
        if name not in given:
            raise InputError(f"has no {name}")
    parts, devices = layout_parts(given[_LAYOUT]), _number(given, _DEVICES)
    if len(parts) % devices:
        raise InputError(f"must divide the {len(parts)} stages of the layout", key=_DEVICES, value=devices)
    return ModelSplit(tuple(s % devices for s in range(len(parts))), parts, _recomputed(given, parts), None)


def _values(words: Sequence[str]) -> dict[str, str]:
    """Return arguments by name, which are written ``--name value``, ``--name=value`` or ``--flag``.

    Where several values follow a name, only the modules to recompute have them all, with spaces between.
    """
    given = {}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            after = list(takewhile(lambda other: not other.startswith("--"), words[index + 1 :]))
            values = [value] if equals else after if name == _MODULES else after[:1]
            given[name] = " ".join(values)
    return given


def _recomputed(given: dict[str, str], parts: tuple[str, ...]) -> _Recomputed:
    if given.get(_GRANULARITY) == "selective":
        return _every_block(parts, "+".join(given.get(_MODULES, "core_attn").split()))
    method = given.get(_METHOD)
    if method is None:
        return ((),) * len(parts)
    return _every_block(parts) if method == "uniform" else _first_blocks(parts, _number(given, _NUMBER))


def _number(given: dict[str, str], name: str) -> int:
    value = given.get(name, "")
    if not value.isdecimal() or len(value) > _DIGITS or not int(value):
        rule = f"must be an integer of at least 1 and at most {_DIGITS} digits"
        raise InputError(rule, key=name, value=value)
    return int(value)


_EMBEDDING, _NORM, _HEAD = "tok_embeddings", "norm", "lm_head"
_HEADS = (_HEAD, "output")  # until April 2026 torchtitan's models called the head "output"
_SHARDS = "data_parallel_shard_degree"
_SCHEDULES = {"loop": "PipelineScheduleMulti", "v": "ZBVZeroBubble"}
"""For each placement, the name of a schedule that makes torchtitan place the stages in this way.

torchtitan chooses the placement by this name even if it reads the schedule itself from a CSV file.
"""


def write_torchtitan(split: ModelSplit) -> str:
    """Return the part of a configuration that cuts the model, as JSON."""
    style = next((style for style in _SCHEDULES if split.runs_as(style)), None)
    if style is None:
        rule = "torchtitan runs stage s on device s mod p, as the placement loop does, or as v does"
        raise InputError(rule, key="devices of the stages", value=list(split.devices))
    if MTP in "".join(split.parts):
        raise InputError("torchtitan has no multi-token prediction in pipelines", key="layers", value=MTP)
    if not all(split.parts):
        rule = "torchtitan has parameters for an optimizer at every stage, one without layers has none"
        raise InputError(rule, key="stages", value=list(split.parts))
    count = len(split.parts) // split.device_count
    if split.shards is not None and min(split.resident, count) != min(RESIDENT, count):
        rule = f"PyTorch keeps {RESIDENT} stages of a device gathered, and has no setting for another number"
        raise InputError(rule, key="cluster.resident", value=split.resident)
    names = list(_names(split))
    shards = {} if split.shards is None else {_SHARDS: split.shards, "fsdp_reshard_after_forward": "never"}
    content = {
        "parallelism": {
            "pipeline_parallel_degree": split.device_count,
            "pipeline_parallel_schedule": _SCHEDULES[style],
            "num_pp_microbatches": split.known_microbatches("PyTorch refuses schedules of other numbers"),
            "module_fqns_per_model_part": [_modules(stage) for stage in names],
            **shards,
        },
        "recomputed": _by_kind(names, split.recomputed),
    }
    return json.dumps(content, indent=2) + "\n"


def _by_kind(names: list[list[str]], recomputed: _Recomputed) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for stage, again in zip(names, recomputed, strict=True):
        for i, kind in again:
            found.setdefault(kind, []).append(stage[i])
    return found


def _names(split: ModelSplit) -> Iterator[list[str]]:
    """Yield for each stage the module of each of its parts; blocks are numbered over the whole model."""
    before = accumulate((stage.count(BLOCK) for stage in split.parts), initial=0)
    for stage, block in zip(split.parts, before, strict=False):
        first = stage.find(BLOCK)
        yield [
            f"layers.{block + i - first}" if part == BLOCK else _EMBEDDING if part == EMBEDDING else _HEAD
            for i, part in enumerate(stage)
        ]


def _modules(names: list[str]) -> list[str]:
    """Return the modules of a stage from the names of its parts; the final norm goes with the head."""
    return [module for name in names for module in ((_NORM, name) if name == _HEAD else (name,))]


def read_torchtitan(text: str) -> ModelSplit:
    """Return the split that such a part of a configuration describes."""
    content = json_content(text)
    try:
        given = content["parallelism"]
        modules, schedule = given["module_fqns_per_model_part"], given["pipeline_parallel_schedule"]
        devices = given["pipeline_parallel_degree"]
        shards = check_int(_SHARDS, given[_SHARDS], 1) if _SHARDS in given else None
        kinds = {name: kind for kind, found in content["recomputed"].items() for name in found}
        microbatches = check_int("num_pp_microbatches", given["num_pp_microbatches"], 1)
        names = [[name for name in stage if name != _NORM] for stage in modules]
    except (AttributeError, KeyError, TypeError):
        raise InputError(
            "has no parallelism with degree, schedule, microbatches and modules, or no recomputed"
        ) from None
    for name in (name for stage in names for name in stage):
        if not isinstance(name, str):
            raise InputError("a module must be a name", value=name)
    _check_numbers(names)
    again = tuple(tuple((i, kinds[n]) for i, n in enumerate(stage) if n in kinds) for stage in names)
    parts = tuple("".join(map(_part, stage)) for stage in names)
    return ModelSplit(_devices(schedule, devices, len(parts)), parts, again, microbatches, shards=shards)


def _devices(schedule: Any, devices: Any, stages: int) -> tuple[int, ...]:
    check_choice("pipeline_parallel_schedule", schedule, *_SCHEDULES.values())
    degree = check_int("pipeline_parallel_degree", devices, 1)
    if stages % degree:
        raise InputError(f"must divide the {stages} stages", key="pipeline_parallel_degree", value=degree)
    style = next(style for style, name in _SCHEDULES.items() if name == schedule)
    return Placement(style, degree, stages // degree).routes[0]


def _check_numbers(names: list[list[str]]) -> None:
    blocks = [name for stage in names for name in stage if name.startswith("layers.")]
    for i, name in enumerate(blocks):
        if name != f"layers.{i}":
            raise InputError(f"must be layers.{i}: the blocks are in sequence", value=name)


def _part(name: str) -> str:
    if name.startswith("layers."):
        return BLOCK
    if name in (_EMBEDDING, *_HEADS):
        return EMBEDDING if name == _EMBEDDING else HEAD
    known = ", ".join((_EMBEDDING, "layers.0", _NORM, *_HEADS))
    raise InputError(f"a module must be one of {known}", value=name)
