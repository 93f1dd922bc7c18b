"""``torchtitan``: the names of the modules of each stage, as torchtitan's configuration takes them.

The table ``parallelism`` has fields of torchtitan's class `ParallelismConfig`. The number of microbatches is
among them, because PyTorch refuses a schedule file with another number. The list ``recomputed`` names the
modules to wrap in activation checkpointing. For all blocks, torchtitan has the policy `FullAC`; for only
some of the blocks, you have to write a policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from ..core.errors import InputError
from ..core.integers import check_int
from ..core.placement import Placement
from .layer_kinds import BLOCK, EMBEDDING, HEAD, MTP
from .model_split import ModelSplit
from .reading import json_content
from .target import SplitTarget

_EMBEDDING, _NORM, _HEAD = "tok_embeddings", "norm", "lm_head"
_HEADS = (_HEAD, "output")  # until April 2026 torchtitan's models called the head "output"
_SCHEDULES = {"loop": "PipelineScheduleMulti", "v": "ZBVZeroBubble"}
"""For each placement, the name of a schedule that makes torchtitan place the stages in this way.

torchtitan chooses the placement by this name even if it reads the schedule itself from a CSV file.
"""


def _write(split: ModelSplit) -> str:
    style = next((style for style in _SCHEDULES if split.runs_as(style)), None)
    if style is None:
        rule = "torchtitan runs stage s on device s mod p, as the placement loop does, or as v does"
        raise InputError(rule, key="devices of the stages", value=list(split.devices))
    if MTP in "".join(split.parts):
        raise InputError("torchtitan has no multi-token prediction in pipelines", key="layers", value=MTP)
    names = list(_names(split))
    content = {
        "parallelism": {
            "pipeline_parallel_degree": split.device_count,
            "pipeline_parallel_schedule": _SCHEDULES[style],
            "num_pp_microbatches": split.known_microbatches("PyTorch refuses schedules of other numbers"),
            "module_fqns_per_model_part": [_modules(stage) for stage in names],
        },
        "recomputed": [stage[i] for stage, again in zip(names, split.recomputed, strict=True) for i in again],
    }
    return json.dumps(content, indent=2) + "\n"


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


def _read(text: str) -> ModelSplit:
    content = json_content(text)
    try:
        given = content["parallelism"]
        modules, schedule = given["module_fqns_per_model_part"], given["pipeline_parallel_schedule"]
        devices, recomputed = given["pipeline_parallel_degree"], set(content["recomputed"])
        microbatches = check_int("num_pp_microbatches", given["num_pp_microbatches"], 1)
        names = [[name for name in stage if name != _NORM] for stage in modules]
    except (KeyError, TypeError):
        raise InputError(
            "has no parallelism with degree, schedule, microbatches and modules, or no recomputed"
        ) from None
    for name in (name for stage in names for name in stage):
        if not isinstance(name, str):
            raise InputError("a module must be a name", value=name)
    _check_numbers(names)
    again = tuple(tuple(i for i, name in enumerate(stage) if name in recomputed) for stage in names)
    parts = tuple("".join(map(_part, stage)) for stage in names)
    return ModelSplit(_devices(schedule, devices, len(parts)), parts, again, microbatches)


def _devices(schedule: Any, devices: Any, stages: int) -> tuple[int, ...]:
    if schedule not in _SCHEDULES.values():
        rule = f"must be one of {', '.join(_SCHEDULES.values())}"
        raise InputError(rule, key="pipeline_parallel_schedule", value=schedule)
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


TORCHTITAN = SplitTarget(
    "torchtitan", "module names of each stage, devices and recomputed modules for torchtitan", _write, _read
)
