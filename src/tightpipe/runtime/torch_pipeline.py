"""The stages of one device in PyTorch's schedule runtime, trained and timed step by step, and their models.

Runs and profiles both train with the class `Pipeline`, so that a profile measures the same operations as a
run. The scripts of this folder import this file on machines that have only PyTorch. So it imports nothing
beyond PyTorch and Python's standard library.

A job is a dictionary that describes what the processes of a run or a profile train, and how. Its entry
``parts`` has a list of layers for each stage. A layer is ``"embedding"`` or ``"head"`` (of a model with a
vocabulary), ``"residual"`` (a layer of an MLP), or a number: a layer of a transformer whose feed-forward
network has that size. For each stage, ``whole`` says which operation a whole backward of PyTorch is: BW, or
the only backward of the stage, and ``frozen`` lists the stages whose parameters get no gradients. Where
microbatches differ, ``lengths`` has the tokens of a row of each, or in an MLP its rows.

On a GPU, a call from Python only queues an operation, so its times are taken from events that the GPU itself
records.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.profiler import record_function

Job = dict[str, Any]
Spans = list[tuple[str, int, int, float, float]]
"""Kind, stage and microbatch of each operation, and its start and end in seconds of the machine's clock."""


class Step(NamedTuple):
    """A training step on one device: its operations, and its losses if the device has the last stage."""

    spans: Spans
    losses: list[float]


class Pipeline:
    """The stages that one process of a job trains."""

    def __init__(self, job: Job, order: Path, rank: int) -> None:
        self._job, self._held = job, job["held"][rank]
        self._device, self._clock = device_of(job["device"], rank), clock_of(job["device"])
        self.modules = {index: build_stage(job, index, self._device) for index in self._held}
        stages = [PipelineStage(m, i, len(job["parts"]), self._device) for i, m in self.modules.items()]
        # `loss_of` divides by the number of microbatches: PyTorch 2.8 scales no gradients of split backwards
        self._schedule = _PipelineScheduleRuntime(
            stages, job["microbatches"], loss_fn=loss_of(job), scale_grads=False
        )
        self._schedule._load_csv(str(order))
        self._give_microbatches()
        self._marks: list[list[Any]] = []
        self._until_loss = ExitStack()
        for stage in stages:
            self._watch(stage)
        self._count_loss()

    def step(self) -> Step:
        """Zero the gradients, run all operations of one training step, and wait until they have ended."""
        self._marks.clear()
        for module in self.modules.values():
            module.zero_grad()
        dist.barrier()
        self._clock.begin()
        losses: list[Tensor] = []
        self._schedule.step(losses=losses)
        self._clock.settle()
        seconds = self._clock.seconds
        spans = [(*what, seconds(start), seconds(end)) for *what, start, end in self._marks]
        return Step(spans, [loss.item() for loss in losses])

    def _give_microbatches(self) -> None:
        """Give the runtime the microbatches one by one, each with its own shape.

        The runtime itself would cut a batch into equal parts, would make all buffers of messages as large as
        for the first microbatch, and would join the outputs into one tensor.
        """
        schedule: Any = self._schedule
        inputs, targets = data(self._job, self._device)
        run, prepare = schedule._step_microbatches, schedule._initialize_stages
        given = [(x,) if 0 in self._held else () for x in inputs]
        wanted = targets if len(self._job["parts"]) - 1 in self._held else None

        def run_given(_: Any, kwargs: Any, __: Any, losses: Any, *rest: Any, **options: Any) -> None:
            run(given, kwargs, wanted, losses if wanted else None, *rest, **options)

        def prepare_each(*args: Any, **options: Any) -> None:
            prepare(*args, **options)
            while unfitted:
                self._fit_buffers(unfitted.pop())

        unfitted = list(schedule._stages)
        schedule._step_microbatches, schedule._initialize_stages = run_given, prepare_each
        schedule._merge_outputs = lambda _: None

    def _fit_buffers(self, stage: Any) -> None:
        """Give each buffer of a stage for messages the shape of its microbatch."""
        for m, text in enumerate(texts(self._job)):
            for received in (*stage.args_recv_info[m], *stage.grad_recv_info.get(m, ())):
                buffer = getattr(received, "buffer", None)
                if buffer is not None:
                    received.buffer = buffer.new_empty((*text, self._job["width"]))
        for check in ("_validate_fwd_input", "_validate_fwd_outputs"):  # of PyTorch 2.8
            if hasattr(stage, check):
                setattr(stage, check, lambda *_: None)

    def _watch(self, stage: Any) -> None:
        """Wrap the methods that run a stage's operations, so that each call marks its start and its end.

        Waits for messages are not in these times. In a trace of the profiler, the same times are ranges
        ``tightpipe <operation>``.
        """
        whole = self._job["whole"][stage.stage_index]

        def timed(method: Callable[..., Any], kind: Callable[[dict[str, Any]], str]) -> Callable[..., Any]:
            def call(microbatch: int, *args: Any, **kwargs: Any) -> Any:
                name = kind(kwargs)
                with ExitStack() as recorded:
                    recorded.enter_context(
                        record_function(f"tightpipe {name}{stage.stage_index}.{microbatch}")
                    )
                    start = self._clock.mark()
                    result = method(microbatch, *args, **kwargs)
                    self._marks.append([name, stage.stage_index, microbatch, start, self._clock.mark()])
                    if name == "F" and stage.is_last:
                        self._until_loss = recorded.pop_all()
                return result

            return call

        stage.forward_one_chunk = timed(stage.forward_one_chunk, lambda _: "F")
        stage.backward_one_chunk = timed(
            stage.backward_one_chunk, lambda kwargs: whole if kwargs["full_backward"] else "B"
        )
        stage.backward_weight_one_chunk = timed(stage.backward_weight_one_chunk, lambda _: "W")

    def _count_loss(self) -> None:
        """Count the loss, which the runtime computes after an F of the last stage, as part of that F.

        The F's range in a trace is left open until then, so that it ends after the loss too.
        """
        compute = self._schedule._maybe_compute_loss

        def counted(stage: Any, *args: Any, **kwargs: Any) -> None:
            compute(stage, *args, **kwargs)
            if stage.is_last:
                self._marks[-1][-1] = self._clock.mark()
                self._until_loss.close()

        self._schedule._maybe_compute_loss = counted


def device_of(kind: str, rank: int) -> torch.device:
    """Return the device of a process: the CPU, which all share, or for ``cuda`` the GPU numbered `rank`."""
    return torch.device(kind, rank) if kind == "cuda" else torch.device(kind)


def group_options(kind: str, folder: Path, rank: int, devices: int) -> dict[str, Any]:
    """Return the arguments of `torch.distributed.init_process_group` for one process of a job."""
    shared = {"init_method": f"file://{folder}/store", "rank": rank, "world_size": devices}
    if kind == "cuda":
        return {"backend": "nccl", "device_id": device_of(kind, rank), **shared}
    return {"backend": "gloo", **shared}


def join(kind: str, folder: Path, rank: int, devices: int) -> None:
    """Let this process join the process group of a job; on the CPU it then computes in one thread."""
    if kind == "cuda":
        torch.cuda.set_device(device_of(kind, rank))
    else:
        torch.set_num_threads(1)  # the processes share the cores of the machine
    dist.init_process_group(**group_options(kind, folder, rank, devices))


def too_few_gpus(kind: str, devices: int) -> str:
    """Return an error message if `kind` is ``cuda`` and some of the devices have no GPU; otherwise ""."""
    found = torch.cuda.device_count() if kind == "cuda" else devices
    if found >= devices:
        return ""
    if not found:
        return f"device = {kind}: PyTorch finds no GPU on this machine; cpu would be right"
    return f"device = {kind}: each of the {devices} devices needs a GPU of its own, and PyTorch finds {found}"


class HostClock:
    """The clock for the CPU, where an operation has ended when its call returns."""

    def begin(self) -> None:
        """Begin to measure; every mark is made after this call."""

    def mark(self) -> Any:
        """Return a mark of the moment at which all work that was given to the device so far has ended."""
        return time.perf_counter()

    def settle(self) -> None:
        """Wait until all marked moments have passed."""

    def seconds(self, mark: Any) -> float:
        """Return the time of a mark, once it has passed, in seconds of the clock that all processes share."""
        return float(mark)


class GpuClock(HostClock):
    """The clock for PyTorch's current GPU, whose marks are events between the GPU's operations."""

    def __init__(
        self, event: Callable[[], Any] | None = None, wait: Callable[[], None] | None = None
    ) -> None:
        self._event = event or (lambda: torch.cuda.Event(enable_timing=True))
        self._wait = wait or torch.cuda.synchronize

    def begin(self) -> None:
        """Record a first event at a known time of the machine's clock; other marks are counted from there."""
        self.settle()
        self._first, self._began = self.mark(), time.perf_counter()

    def mark(self) -> Any:
        """Return an event that the GPU records when it has ended all work that was queued so far."""
        event = self._event()
        event.record()
        return event

    def settle(self) -> None:
        """Wait until the GPU has ended all its work."""
        self._wait()

    def seconds(self, mark: Any) -> float:
        """Return when the GPU recorded the event, in seconds of the machine's clock."""
        passed: float = self._first.elapsed_time(mark)
        return self._began + passed / 1000


def clock_of(kind: str) -> HostClock:
    """Return the clock that measures operations on the CPU (`cpu`) or on GPUs (`cuda`)."""
    return GpuClock() if kind == "cuda" else HostClock()


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
