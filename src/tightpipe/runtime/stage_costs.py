"""A script that measures the costs of the stages of a transformer, and needs only PyTorch.

``python stage_costs.py --layers 2 --hidden 1024 --heads 16 --sequence 1024 --microbatch 1 --stages 4``
prints a table ``stage,kind,time,memory`` (microseconds, bytes), which `tightpipe.runtime.read_table`
reads. With ``--vocabulary 32000`` in place of ``--stages``, it measures each layer apart, embedding and head
included, and prints them as JSON: the `layers` of a model file, and `comm`, the time of a message. It runs
on a machine on which nothing but PyTorch is installed.

B and W are timed separately, split as torch.distributed.pipelining splits them. On a GPU, memory is
measured. On the CPU it is counted: F keeps the tensors that autograd saves, and B frees them except for the
inputs of linear maps, which W needs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

HEADER = "stage,kind,time,memory"
_ROUNDS = 20  # the communication time is the median of so many messages
_MICRO = 1e6

Costs = dict[str, tuple[float, int]]  # kind -> microseconds, bytes


class Layer(nn.Module):
    """A pre-norm decoder layer with causal attention."""

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
    """The map from the hidden state to the vocabulary, with a norm before it and the loss behind it."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.norm, self.logits = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss for a text of zeros: which text it is makes no difference to the costs."""
        logits = self.logits(self.norm(x)).flatten(0, 1).float()
        return nn.functional.cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.long))


class Stage:
    """A part of a model on a device, and the operations F, B and W that a pipeline runs on it."""

    def __init__(self, options: argparse.Namespace, module: nn.Module) -> None:
        self.device, self.dtype = torch.device(options.device), getattr(torch, options.dtype)
        self.shape = (options.microbatch, options.sequence, options.hidden)
        self.module = module.to(self.device, self.dtype)

    def sample(self) -> Tensor:
        """Return a random activation."""
        return torch.randn(self.shape, device=self.device, dtype=self.dtype)

    def enter(self) -> Tensor:
        """Return what the stage before sends."""
        return self.sample().requires_grad_()

    def gradient(self) -> Tensor:
        """Return what the stage behind sends back."""
        return self.sample()

    def run(self) -> tuple[list[float], list[int]]:
        """Run F, B and W once.

        Returns
        -------
        tuple of two lists
            Four times in seconds, at which F begins and F, B and W end; and three numbers of bytes, which are
            held before F, after F and after B.
        """
        grad = self.gradient()
        marks, held = [], [self._held()]
        x = self.enter()
        marks.append(self._now())
        out = self.module(x)
        marks.append(self._now())
        held.append(self._held())
        finish = self.backward(x, out, grad)
        marks.append(self._now())
        del out  # in a pipeline, it has been sent to the neighbour
        held.append(self._held())
        finish()
        marks.append(self._now())
        return marks, held

    def backward(self, x: Tensor, out: Tensor, grad: Tensor) -> Callable[[], Any]:
        """Run B, and return what runs W."""
        _, groups = stage_backward_input([out], [grad], [x], self.module.parameters())
        return lambda: stage_backward_weight(self.module.parameters(), groups)

    def saved_bytes(self) -> tuple[int, int]:
        """Return how many bytes autograd saves during F, and how many of these are inputs of linear maps."""
        saved: dict[int, int] = {}
        linear: dict[int, int] = {}
        own = {p.untyped_storage().data_ptr() for p in self.module.parameters()}

        def note(tensor: Tensor, into: dict[int, int]) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                into[storage.data_ptr()] = storage.nbytes()
            return tensor

        def note_input(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            note(inputs[0], linear)

        maps = [module for module in self.module.modules() if isinstance(module, nn.Linear)]
        hooks = [module.register_forward_pre_hook(note_input) for module in maps]
        with torch.autograd.graph.saved_tensors_hooks(lambda t: note(t, saved), lambda t: t):
            out = self.module(self.enter())
        for hook in hooks:
            hook.remove()
        del out
        return sum(saved.values()), sum(size for key, size in linear.items() if key in saved)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _held(self) -> int:
        return torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else 0


class EmbeddingStage(Stage):
    """A table of the vocabulary: no gradient leaves it, so that it has no B."""

    def enter(self) -> Tensor:
        """Return a text of random tokens."""
        rows: int = self.module.num_embeddings
        return torch.randint(rows, self.shape[:2], device=self.device)

    def backward(self, x: Tensor, out: Tensor, grad: Tensor) -> Callable[[], Any]:
        """Return what runs W."""
        return lambda: out.backward(grad)

    def saved_bytes(self) -> tuple[int, int]:
        """Return how many bytes autograd saves during F: the tokens, all of which W needs."""
        kept, _ = super().saved_bytes()
        return kept, kept


class HeadStage(Stage):
    """A stage that ends with the loss, whose gradient is 1."""

    def gradient(self) -> Tensor:
        """Return the gradient of the loss."""
        return torch.ones((), device=self.device)


def blocks(options: argparse.Namespace, sizes: list[int]) -> Stage:
    """Return the stage of layers whose feed-forward networks have these sizes."""
    return Stage(options, nn.Sequential(*(Layer(options.hidden, options.heads, size) for size in sizes)))


def sizes(options: argparse.Namespace) -> list[int]:
    """Return the size of each layer's feed-forward network."""
    given: list[int] = options.ffn or [4 * options.hidden]
    return given * options.layers if len(given) == 1 else given


def measure(options: argparse.Namespace, stage: Stage) -> Costs:
    """Return time in microseconds and memory in bytes of F, B and W."""
    for _ in range(options.warmup):
        stage.run()
    runs = [stage.run() for _ in range(options.repeats)]
    f, b, w = (median(m[k + 1] - m[k] for m, _ in runs) * _MICRO for k in range(3))
    if stage.device.type == "cuda":
        before, after_f, after_b = (int(median(held[k] for _, held in runs)) for k in range(3))
        kept, for_weights = after_f - before, min(after_b - before, after_f - before)
    else:
        kept, for_weights = stage.saved_bytes()
    return {"F": (f, kept), "B": (b, for_weights - kept), "W": (w, -for_weights)}


def communication(options: argparse.Namespace) -> float:
    """Return how many microseconds an activation takes from one device to another.

    On the CPU it is sent between two processes (backend gloo). On GPUs it is copied from the first to the
    second one. With only one GPU it is copied within that one, which is too fast, so the number in the table
    should be replaced by that of the real link.
    """
    if options.device == "cpu":
        return _between_processes(options)
    there = torch.device("cuda", 1 if torch.cuda.device_count() > 1 else 0)
    x = blocks(options, []).sample()
    return _median_time(lambda: x.to(there, copy=True), torch.cuda.synchronize)


def _median_time(step: Callable[[], Any], settle: Callable[[], Any]) -> float:
    times = []
    for _ in range(_ROUNDS):
        settle()
        start = time.perf_counter()
        step()
        settle()
        times.append(time.perf_counter() - start)
    return median(times) * _MICRO


def _between_processes(options: argparse.Namespace) -> float:
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both processes run on this machine
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", __file__, *_arguments(options), "--ping-pong", folder]
        other = subprocess.Popen(command)
        try:
            return _ping_pong(options, folder, rank=0)
        finally:
            other.wait()


def _ping_pong(options: argparse.Namespace, folder: str, rank: int) -> float:
    """Send an activation to the other process and back; return the median microseconds of one way."""
    dist.init_process_group("gloo", init_method=f"file://{Path(folder) / 'store'}", rank=rank, world_size=2)
    x = blocks(options, []).sample()

    def there_and_back() -> None:
        for sender in (0, 1):
            if sender == rank:
                dist.send(x, 1 - rank)
            else:
                dist.recv(x, 1 - rank)

    result = _median_time(there_and_back, lambda: None) / 2
    dist.destroy_process_group()
    return result


def table(options: argparse.Namespace) -> str:
    """Measure all stages and return the table as text."""
    rows, known, left = [HEADER], dict[tuple[int, ...], Costs](), sizes(options)
    for stage in range(options.stages):
        layers = options.layers // options.stages + (stage < options.layers % options.stages)
        mine, left = tuple(left[:layers]), left[layers:]
        if mine not in known:
            known[mine] = measure(options, blocks(options, list(mine)))
        rows += [f"{stage},{kind},{time:.1f},{memory}" for kind, (time, memory) in known[mine].items()]
    rows.append(f",comm,{communication(options):.1f},0")
    return "\n".join(rows) + "\n"


def layers_apart(options: argparse.Namespace) -> str:
    """Measure embedding, layers and head, each apart, and return them as JSON."""
    known = {size: blocks(options, [size]) for size in sorted(set(sizes(options)))}
    embedding = EmbeddingStage(options, nn.Embedding(options.vocabulary, options.hidden))
    head = HeadStage(options, Head(options.hidden, options.vocabulary))
    measured = {size: entry(options, stage, sends=True) for size, stage in known.items()}
    message = {"output": _message(options)}
    tables: list[dict[str, Any]] = [
        {"name": "embedding"} | entry(options, embedding, sends=True) | {"backward": 0} | message
    ]
    for size, equal in groupby(sizes(options)):
        counted: dict[str, Any] = {
            "name": f"block-{size}" if len(known) > 1 else "block",
            "count": len(list(equal)),
        }
        tables.append(counted | measured[size] | {"input": _message(options)} | message)
    tables.append({"name": "head"} | entry(options, head, sends=False))
    return json.dumps({"layers": tables, "comm": round(communication(options))}) + "\n"


def entry(options: argparse.Namespace, stage: Stage, *, sends: bool) -> dict[str, int]:
    """Return ticks, bytes and parameters of one layer.

    On a GPU a layer that sends its output is measured with both its input and its output. The next layer
    counts the output as its input, so it is not counted here.
    """
    costs = measure(options, stage)
    counted_behind = _message(options) if sends and options.device == "cuda" else 0
    held = max(0, costs["F"][1] - counted_behind)
    return {
        "forward": max(1, round(costs["F"][0])),
        "backward": max(1, round(costs["B"][0])),
        "weight": max(1, round(costs["W"][0])),
        "activation": held,
        "weight_activation": min(held, -costs["W"][1]),
        "parameters": sum(parameter.numel() for parameter in stage.module.parameters()),
    }


def _message(options: argparse.Namespace) -> int:
    """Return the bytes of the hidden state of a microbatch."""
    size: int = getattr(torch, options.dtype).itemsize
    numbers: int = options.microbatch * options.sequence * options.hidden
    return numbers * size


_NUMBERS = ("layers", "hidden", "heads", "sequence", "microbatch", "repeats", "warmup", "threads")
_KINDS = ("stages", "vocabulary")  # one of them says what is measured
_DEFAULTS = {"repeats": 10, "warmup": 3, "threads": 1}  # one thread, as in a run with a process per device


def parser() -> argparse.ArgumentParser:
    """Return the parser of the script's options."""
    made = argparse.ArgumentParser(
        description="Measure F, B, W, communication and memory of transformer stages."
    )
    for name in _NUMBERS:
        made.add_argument(f"--{name}", type=int, required=name not in _DEFAULTS, default=_DEFAULTS.get(name))
    for name in _KINDS:
        made.add_argument(f"--{name}", type=int)
    made.add_argument("--ffn", type=int, nargs="+", help="one size, or one per layer; default 4 x hidden")
    made.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    devices = ("cpu", "cuda")
    made.add_argument("--device", default=devices[torch.cuda.is_available()], choices=devices)
    made.add_argument("--ping-pong", help=argparse.SUPPRESS)
    return made


def check(options: argparse.Namespace) -> str:
    """Return a sentence that says what is wrong with the options; it is empty if nothing is wrong."""
    for name in _NUMBERS:
        if getattr(options, name) < (name != "warmup"):
            return f"{name} = {getattr(options, name)}: must be at least 1"
    if options.hidden % options.heads:
        return f"hidden = {options.hidden}: must be a multiple of heads = {options.heads}"
    given = [name for name in _KINDS if getattr(options, name) is not None]
    if len(given) != 1:
        return "stages, vocabulary: exactly one of them must be given"
    if getattr(options, given[0]) < 1:
        return f"{given[0]} = {getattr(options, given[0])}: must be at least 1"
    if min(sizes(options)) < 1 or len(sizes(options)) != options.layers:
        return f"ffn = {options.ffn}: must be one size, or one for each of the {options.layers} layers"
    if options.stages is not None and options.layers < options.stages:
        return f"layers = {options.layers}: must be at least the number of stages, {options.stages}"
    if options.device == "cuda" and not torch.cuda.is_available():
        return f"device = {options.device}: PyTorch finds no GPU on this machine; cpu would be right"
    return ""


def _arguments(options: argparse.Namespace) -> list[str]:
    values = {name: getattr(options, name) for name in (*_NUMBERS, *_KINDS, "dtype", "device")}
    known = {name: value for name, value in values.items() if value is not None}
    return [word for name, value in known.items() for word in (f"--{name}", str(value))]


def main() -> None:
    """Read the options, measure and print the table or the layers."""
    made = parser()
    options = made.parse_args()
    problem = check(options)
    if problem:
        made.error(problem)
    torch.set_num_threads(options.threads)
    if options.ping_pong:
        _ping_pong(options, options.ping_pong, rank=1)
    else:
        print(table(options) if options.vocabulary is None else layers_apart(options), end="")


if __name__ == "__main__":
    main()
