"""The models of runs and profiles: the modules of each stage, their data, and the loss.

A job is a dictionary that describes what the processes of a run or a profile train, and how. Its entry
``parts`` has a list of layers for each stage. A layer is ``"embedding"`` or ``"head"`` (of a model with a
vocabulary), ``"residual"`` (a layer of an MLP), or a number: a layer of a transformer whose feed-forward
network has that size. For each stage, ``whole`` says which operation a whole backward of PyTorch is: BW, or
the only backward of the stage, and ``frozen`` lists the stages whose parameters get no gradients. Where
microbatches differ, ``lengths`` has the tokens of a row of each, or in an MLP its rows. The scripts of this
folder import this file on machines that have only PyTorch. So it imports nothing beyond PyTorch and
Python's standard library.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

Job = dict[str, Any]


class Residual(nn.Module):
    """A layer of the MLP: two linear maps with a residual connection, which keeps deep models stable."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        out: Tensor = x + self.down(torch.tanh(self.up(x)))
        return out


class Layer(nn.Module):
    """A pre-norm decoder layer of a transformer, with causal attention."""

    def __init__(self, hidden: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output, which like its input has the shape (batch, sequence, hidden)."""
        q, k, v = (self._split(part) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Head(nn.Module):
    """The map from the hidden state to the vocabulary, with a norm before it."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.norm, self.logits = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits: for each token of the text, one number per token of the vocabulary."""
        out: Tensor = self.logits(self.norm(x))
        return out


def build_stage(job: Job, index: int, device: torch.device) -> nn.Module:
    """Return one stage of the model on a device.

    A layer begins with the same parameters however the model is cut, so that schedules of all placements
    train the same model.
    """
    before = sum(map(len, job["parts"][:index]))
    layers = []
    for number, layer in enumerate(job["parts"][index], before):
        torch.manual_seed(job["seed"] + 1 + number)
        layers.append(build_layer(job, layer))
    stage = nn.Sequential(*layers).to(device, getattr(torch, job["dtype"]))
    return stage.requires_grad_(index not in job["frozen"])


def build_layer(job: Job, layer: str | int) -> nn.Module:
    """Return one layer of a stage, by its entry in the job."""
    if isinstance(layer, int):
        return Layer(job["width"], job["heads"], layer)
    makers: dict[str, Callable[[], nn.Module]] = {
        "residual": lambda: Residual(job["width"]),
        "embedding": lambda: nn.Embedding(job["vocabulary"], job["width"]),
        "head": lambda: Head(job["width"], job["vocabulary"]),
    }
    return makers[layer]()


def texts(job: Job) -> list[tuple[int, ...]]:
    """Return the shape of each microbatch's text: its rows, and for a transformer the tokens of a row."""
    rows, tokens = job["batch"], job["sequence"]
    if job.get("lengths"):
        return [(length,) if tokens is None else (rows, length) for length in job["lengths"]]
    return [(rows,) if tokens is None else (rows, tokens)] * job["microbatches"]


def data(job: Job, device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    """Return the input and the target of each microbatch, which are the same in every process and step.

    If the model has a vocabulary, both are token numbers, shape (rows, sequence). Otherwise both are hidden
    states, shape (rows, sequence, width) for a transformer and (rows, width) for an MLP.
    """
    torch.manual_seed(job["seed"])
    dtype = getattr(torch, job["dtype"])

    def drawn(text: tuple[int, ...]) -> Tensor:
        if job["vocabulary"]:
            return torch.randint(job["vocabulary"], text).to(device)
        return torch.randn((*text, job["width"])).to(device, dtype)

    return list(map(drawn, texts(job))), list(map(drawn, texts(job)))


def loss_of(job: Job) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function that computes the loss of a microbatch from its output and its target.

    The loss is the cross entropy if the model has a vocabulary, and otherwise the mean squared error. It is
    multiplied with the microbatch's share of all tokens, so that the sum over all microbatches is the mean
    loss of a token.
    """
    shapes = texts(job)
    total = sum(map(prod, shapes))

    def share(target: Tensor) -> float:
        tokens: int = prod(target.shape[: len(shapes[0])])
        return tokens / total

    def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(output.flatten(0, -2).float(), target.flatten())
        return share(target) * loss

    def squared(output: Tensor, target: Tensor) -> Tensor:
        return share(target) * nn.functional.mse_loss(output.float(), target.float())

    return cross_entropy if job["vocabulary"] else squared
