"""The shapes of public models and the data sheets of GPUs, which ``models.toml`` holds with their sources."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ..core.errors import InputError


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
    """The numbers of a GPU that its data sheet gives.

    Parameters
    ----------
    name
        Short name.
    flops
        Dense bfloat16 floating-point operations per second.
    memory_bandwidth
        Bytes per second to and from the GPU's own memory.
    memory
        Size of the GPU's own memory with a unit, e.g. ``80 GB``.
    node_bandwidth, bandwidth
        Bytes per second in one direction to another GPU of the same node, and to one of another node.
    """

    name: str
    flops: float
    memory_bandwidth: float
    memory: str
    node_bandwidth: float
    bandwidth: float


def load_shapes() -> dict[str, ModelShape]:
    """Return the shapes of public models by name, in the sequence of the file."""
    return {row["name"]: ModelShape(**row) for row in _tables()["model"]}


def load_gpus() -> dict[str, Gpu]:
    """Return the GPUs by name, in the sequence of the file."""
    return {row["name"]: Gpu(**row) for row in _tables()["gpu"]}


def find_shape(name: str) -> ModelShape:
    """Return the shape of a public model.

    Raises
    ------
    InputError
        If no model has this name; the message lists the known names.
    """
    shapes = load_shapes()
    if name not in shapes:
        raise InputError(f"must be one of {', '.join(shapes)}", key="model", value=name)
    return shapes[name]


@cache
def _tables() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(files(__package__).joinpath("models.toml").read_text(encoding="utf-8"))
