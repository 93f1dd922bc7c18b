"""Measure what a transformer stage costs: a script that needs PyTorch alone.

``python stage_costs.py --layers 2 --hidden 1024 --heads 16 --sequence 1024 --microbatch 1 --stages 4``
prints a table ``stage,kind,time,memory`` (microseconds, bytes), which `tightpipe.runtime.read_table`
reads; it runs on a machine where nothing else is installed.

B and W are timed apart, split as torch.distributed.pipelining splits them. Memory is measured on a
GPU; on the CPU it is counted: F keeps what autograd saves, and of that W still needs the inputs of the
linear maps.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

HEADER = "stage,kind,time,memory"
_ROUNDS = 20  # ping-pongs that the communication time is the median of
_MICRO = 1e6

Costs = dict[str, tuple[float, int]]  # kind -> microseconds, bytes


class Layer(nn.Module):
    """A pre-norm decoder layer with causal attention."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output, shape (batch, sequence, hidden) as its input."""
        q, k, v = (self._split(part) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Stage:
    """Some layers on a device, and the steps that a pipeline runs on them."""

    def __init__(self, options: argparse.Namespace, layers: int) -> None:
        self.device, self.dtype = torch.device(options.device), getattr(torch, options.dtype)
        self.shape = (options.microbatch, options.sequence, options.hidden)
        stack = [Layer(options.hidden, options.heads) for _ in range(layers)]
        self.module = nn.Sequential(*stack).to(self.device, self.dtype)

    def sample(self) -> Tensor:
        """Return a random activation."""
        return torch.randn(self.shape, device=self.device, dtype=self.dtype)

    def run(self) -> tuple[list[float], list[int]]:
        """Run F, B and W once; return the times of their borders and the memory held at these."""
        grad = self.sample()
        marks, held = [], [self._held()]
        x = self.sample().requires_grad_()
        marks.append(self._now())
        out = self.module(x)
        marks.append(self._now())
        held.append(self._held())
        sent, groups = stage_backward_input([out], [grad], [x], self.module.parameters())
        marks.append(self._now())
        del out, sent  # both have left for the neighbours
        held.append(self._held())
        stage_backward_weight(self.module.parameters(), groups)
        marks.append(self._now())
        return marks, held

    def saved_bytes(self) -> tuple[int, int]:
        """Count what autograd saves during F, and how much of that are inputs of linear maps."""
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
            out = self.module(self.sample().requires_grad_())
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


def measure(options: argparse.Namespace, layers: int) -> Costs:
    """Return time and memory of F, B and W of a stage of so many layers."""
    stage = Stage(options, layers)
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
    """Return the microseconds that an activation takes to another device.

    On the CPU between two processes (gloo). On GPUs from the first to the second, or within the one
    that is there: then it is a lower bound, and the table should get the real link's number.
    """
    if options.device == "cpu":
        return _between_processes(options)
    there = torch.device("cuda", 1 if torch.cuda.device_count() > 1 else 0)
    x = Stage(options, 1).sample()
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
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both processes are on this machine
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", __file__, *_arguments(options), "--ping-pong", folder]
        other = subprocess.Popen(command)
        try:
            return _ping_pong(options, folder, rank=0)
        finally:
            other.wait()


def _ping_pong(options: argparse.Namespace, folder: str, rank: int) -> float:
    """Send an activation there and back; return the median microseconds of one way."""
    dist.init_process_group("gloo", init_method=f"file://{Path(folder) / 'store'}", rank=rank, world_size=2)
    x = Stage(options, 1).sample()

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
    """Measure all stages and return the table."""
    rows, known = [HEADER], dict[int, Costs]()
    for stage in range(options.stages):
        layers = options.layers // options.stages + (stage < options.layers % options.stages)
        if layers not in known:
            known[layers] = measure(options, layers)
        rows += [f"{stage},{kind},{time:.1f},{memory}" for kind, (time, memory) in known[layers].items()]
    rows.append(f",comm,{communication(options):.1f},0")
    return "\n".join(rows) + "\n"


_NUMBERS = ("layers", "hidden", "heads", "sequence", "microbatch", "stages", "repeats", "warmup", "threads")
_DEFAULTS = {"repeats": 10, "warmup": 3, "threads": 1}  # one thread: a run has a process per device


def parser() -> argparse.ArgumentParser:
    """Return the options of the measurement."""
    made = argparse.ArgumentParser(
        description="Measure F, B, W, communication and memory of transformer stages."
    )
    for name in _NUMBERS:
        made.add_argument(f"--{name}", type=int, required=name not in _DEFAULTS, default=_DEFAULTS.get(name))
    made.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    devices = ("cpu", "cuda")
    made.add_argument("--device", default=devices[torch.cuda.is_available()], choices=devices)
    made.add_argument("--ping-pong", help=argparse.SUPPRESS)
    return made


def check(options: argparse.Namespace) -> str:
    """Return what is wrong with the options; empty if nothing is."""
    for name in _NUMBERS:
        if getattr(options, name) < (name != "warmup"):
            return f"{name} = {getattr(options, name)}: must be at least 1"
    if options.hidden % options.heads:
        return f"hidden = {options.hidden}: must be a multiple of heads = {options.heads}"
    if options.layers < options.stages:
        return f"layers = {options.layers}: must be at least the number of stages, {options.stages}"
    if options.device == "cuda" and not torch.cuda.is_available():
        return f"device = {options.device}: PyTorch finds no GPU on this machine; cpu would be right"
    return ""


def _arguments(options: argparse.Namespace) -> list[str]:
    values = {name: getattr(options, name) for name in (*_NUMBERS, "dtype", "device")}
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def main() -> None:
    """Print the table."""
    made = parser()
    options = made.parse_args()
    problem = check(options)
    if problem:
        made.error(problem)
    torch.set_num_threads(options.threads)
    if options.ping_pong:
        _ping_pong(options, options.ping_pong, rank=1)
    else:
        print(table(options), end="")


if __name__ == "__main__":
    main()
