"""Writers of model files: JSON, or TOML with a comment where a key first occurs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.files import write_text

_COMMENTS = {
    "tick": "the time of one tick, the unit of all times below",
    "count": "so many of them in a row",
    "forward": "ticks per microbatch",
    "backward": "ticks of the gradient of the input",
    "weight": "ticks of the gradient of the weights",
    "fused": "ticks of both gradients as one operation",
    "activation": "bytes that the forward pass adds",
    "weight_activation": "the part of them that the gradient of the weights needs and frees",
    "input": "bytes that stay instead if the layer is recomputed",
    "output": "bytes of the message to the next device",
    "parameters": "how many",
    "devices": "of one pipeline; a list lets the search choose",
    "memory": "of each device",
    "reserve": "what nothing of the plan may take of it",
    "bytes_per_parameter": "static state; the sharded part is divided by data_parallel",
    "latency": "ticks per message",
    "bandwidth": "bytes per tick",
    "node_size": "consecutive devices of a node",
    "node_latency": "the same two within a node",
    "microbatches": "per step of one pipeline",
    "microbatch_size": "sequences",
    "sequence_length": "tokens",
    "data_parallel": "pipelines side by side",
    "recompute": "off, or blocks",
    "objective": "a step ends when all devices have ended: a barrier",
}


def write_model(path: str | Path, data: Mapping[str, Any], head: str) -> None:
    """Write a model file: TOML if its name ends in ``.toml``, else JSON, which has no comments.

    Parameters
    ----------
    path
        File to write; ``-`` for standard output, which gets JSON, as standard input is read as JSON.
    data
        What the file holds, as `problem_from_dict` reads it.
    head
        The comment at the beginning of a TOML file, in one or more lines.
    """
    toml = Path(path).suffix == ".toml"
    write_text(path, model_text(data, head) if toml else json.dumps(data, indent=2) + "\n")


def model_text(data: Mapping[str, Any], head: str) -> str:
    """Return the content of a model file as TOML.

    Parameters
    ----------
    data
        What the file holds, as `problem_from_dict` reads it.
    head
        The comment at the beginning of the file, in one or more lines.
    """
    comments = dict(_COMMENTS)
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    if "tick" in data:
        lines += ["", *_entries({"tick": data["tick"]}, comments)]
    for table in data["layers"]:
        lines += ["", "[[layers]]", *_entries(table, comments)]
    for name in ("cluster", "batch", "search"):
        if name in data:
            lines += ["", f"[{name}]", *_entries(data[name], comments)]
    return "\n".join(lines) + "\n"


def _entries(table: Mapping[str, Any], comments: dict[str, str]) -> list[str]:
    """Return the lines of a table; take their comments out of `comments`, so that each is written once."""
    lines = []
    for key, value in table.items():
        comment = comments.pop(key, "")
        lines.append(f"{key} = {_value(value)}" + (f"  # {comment}" if comment else ""))
    return lines


def _value(value: Any) -> str:
    """Return a value in the syntax of TOML; texts, numbers and lists are the same as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(entry)}" for key, entry in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
