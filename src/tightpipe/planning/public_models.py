"""The shapes of public models and the data sheets of GPUs, and the model files made of them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..base.errors import check_choice
from ..base.files import write_text


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The shape of a decoder-only transformer.

    `layers` is the number of blocks, `hidden` the size of the hidden state, and `ffn` the inner size of a
    feed-forward network, which has three matrices if it is `gated` and else two. A block's attention has
    `heads` heads of queries and `kv_heads` heads of keys and values, each of size `head_size`. `vocabulary`
    is the number of different tokens, `sequence` the number of tokens in a training sequence. In a mixture of
    experts, the first `dense_layers` blocks have one network of size `ffn`. Each other block has networks of
    inner size `expert_ffn`: `experts`, of which a token visits `active_experts`, and `shared_experts`, which
    all tokens visit.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    gated: bool
    vocabulary: int
    sequence: int
    dense_layers: int = 0
    experts: int = 0
    active_experts: int = 0
    shared_experts: int = 0
    expert_ffn: int = 0

    @property
    def attention_parameters(self) -> int:
        """Number of parameters of a block's four attention matrices: queries, keys, values and output."""
        return self.hidden * self.head_size * 2 * (self.heads + self.kv_heads)

    def network_parameters(self, size: int) -> int:
        """Return the number of parameters of a feed-forward network of inner size `size`."""
        return (3 if self.gated else 2) * self.hidden * size


@dataclass(frozen=True, slots=True)
class Gpu:
    """The numbers of a GPU that its data sheet gives."""

    name: str  #: short name
    flops: float  #: dense bfloat16 floating-point operations per second
    memory_bandwidth: float  #: bytes per second to and from the GPU's own memory
    memory: str  #: size of the GPU's own memory with a unit, e.g. ``80 GB``
    #: bytes per second in one direction to another GPU of the same node, and to one of another node
    node_bandwidth: float
    bandwidth: float
    host_bandwidth: float  #: those to the memory of the host


def load_shapes() -> dict[str, ModelShape]:
    """Return the shapes of public models by name, in the sequence of the file."""
    return {row["name"]: ModelShape(**row) for row in _tables()["model"]}


def load_gpus() -> dict[str, Gpu]:
    """Return the GPUs by name, in the sequence of the file."""
    return {row["name"]: Gpu(**row) for row in _tables()["gpu"]}


def find_shape(name: str) -> ModelShape:
    """Return the shape of a public model."""
    shapes = load_shapes()
    return shapes[check_choice("model", name, *shapes)]


@cache
def _tables() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(files(__package__).joinpath("models.toml").read_text(encoding="utf-8"))


_COMMENTS = {
    "tick": "the time of one tick, the unit of all times below",
    "count": "so many of them in a row",
    "forward": "ticks per microbatch",
    "backward": "ticks of the gradient of the input",
    "weight": "ticks of the gradient of the weights",
    "fused": "ticks of both gradients as one operation",
    "experts": "ticks of the parts; dispatch and combine are on the network, to and from experts elsewhere",
    "activation": "bytes that the forward pass adds",
    "weight_activation": "the part of them that the gradient of the weights needs and frees",
    "recompute": "by kind: ticks that B gets longer, and bytes that stay from F to B",
    "output": "bytes of the message to the next device",
    "offload": "the part of the activation that may leave for the host until the backward: all of it",
    "parameters": "how many",
    "devices": "of one pipeline; a list lets the search choose",
    "memory": "of each device",
    "reserve": "what nothing of the plan may take of it",
    "bytes_per_parameter": "static state; the sharded part is divided by data_parallel",
    "latency": "ticks per message",
    "bandwidth": "bytes per tick",
    "node_size": "consecutive devices of a node",
    "node_latency": "the same two within a node",
    "host_bandwidth": "bytes per tick out to the host, and as many back; a plan may then offload",
    "microbatches": "per step of one pipeline",
    "microbatch_size": "sequences",
    "sequence_length": "tokens",
    "data_parallel": "pipelines side by side",
    "slices": "numbers of slices of a microbatch to choose from",
    "objective": "a step ends when all devices have ended: a barrier",
}


def write_model(path: str | Path, data: Mapping[str, Any], head: str) -> None:
    """Write a model file: TOML with the comment `head` if its name ends in ``.toml``, else JSON, without it.

    ``-`` stands for standard output, which gets JSON, as standard input is read as JSON.
    """
    toml = Path(path).suffix == ".toml"
    write_text(path, model_text(data, head) if toml else json.dumps(data, indent=2) + "\n")


def model_text(data: Mapping[str, Any], head: str) -> str:
    """Return the content of a model file as TOML, with the comment `head` in one or more lines at its top."""
    comments = dict(_COMMENTS)
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    if "tick" in data:
        lines += ["", *_entries({"tick": data["tick"]}, comments)]
    for table in data["layers"]:
        lines += ["", "[[layers]]", *_entries(table, comments)]
    comments["recompute"] = "the kinds of which a plan may choose"
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
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "[\n" + "".join(f"    {_value(entry)},\n" for entry in value) + "]"
    return json.dumps(value, ensure_ascii=False)
