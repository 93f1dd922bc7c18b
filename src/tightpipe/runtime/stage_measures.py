"""What is measured of stages: times of operations and messages, how sure they are, and bytes that are held.

Times are read from the marks of measured steps. B and W are split as torch.distributed.pipelining does. On a
GPU, memory is measured. On the CPU it is counted: F keeps the tensors that autograd saves, and B frees them
except for the inputs of linear maps, which W needs. `stage_costs.py` imports this file on machines that have
only PyTorch. So it imports nothing beyond PyTorch, Python's standard library and files of this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, inf, sqrt
from statistics import fmean, median, variance
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch_pipeline import Job, Spans, build_stage, data, loss_of

MICRO = 1e6
_FEWEST = 6  # least and largest of fewer values enclose the true median in less than 95 % of all cases
_SURE = 0.98  # 1.96 / 2: of n values, n / 2 +- 0.98 sqrt(n) lie below the true median in 95 % of all cases

Times = dict[tuple[str, int], list[float]]
"""The mean duration of each kind of operation at each stage in every measured step, in seconds."""


def times_of(devices: Sequence[Sequence[Spans]]) -> Times:
    """Return the mean duration of the operations of each kind and stage in every step, in seconds.

    `devices` has for each device the `Spans` of each step. Within a step, the mean counts and not the median,
    because a device runs the operations one after another, and the mean alone gives the sum of their times.
    """
    times: Times = {}
    for spans in (spans for steps in devices for spans in steps):
        taken: Times = {}
        for kind, stage, _, start, end in spans:
            taken.setdefault((kind, stage), []).append(end - start)
        for key, durations in taken.items():
            times.setdefault(key, []).append(fmean(durations))
    return times


def unsure(devices: Sequence[Sequence[Spans]], tolerance: float) -> list[str]:
    """Return a phrase for each kind and stage whose time is not known to the tolerance.

    The time is the median over all steps. It is known if half the width of the median's 95 % confidence
    interval is at most `tolerance` times the median, or times the mean duration of all operations where that
    mean is longer.
    """
    times = times_of(devices)
    usual = fmean(time for values in times.values() for time in values)
    return [
        f"{kind} of stage {stage} ({_doubt(values)})"
        for (kind, stage), values in sorted(times.items())
        if _uncertainty(values) > tolerance * max(usual, median(values))
    ]


def _doubt(values: list[float]) -> str:
    if len(values) < _FEWEST:
        return f"{len(values)} of at least {_FEWEST} steps"
    return f"{100 * _uncertainty(values) / median(values):.0f} %"


def _uncertainty(values: list[float]) -> float:
    """Return half the width of the median's 95 % confidence interval, whose ends are two of the values."""
    if len(values) < _FEWEST:
        return inf
    ordered, middle = sorted(values), len(values) / 2
    reach = _SURE * sqrt(len(values))
    low, high = max(0, int(middle - reach)), min(len(values) - 1, ceil(middle + reach))
    return (ordered[high] - ordered[low]) / 2


def median_time(times: Times, kind: str, stages: Sequence[int]) -> float:
    """Return the median time of a kind of operation over all steps and `stages`, in microseconds."""
    return median([time for stage in stages for time in times.get((kind, stage), [])] or [0.0]) * MICRO


def spread(devices: Sequence[Sequence[Spans]], kind: str, stage: int) -> float:
    """Return the coefficient of variation of the times of an operation within a step, over all steps.

    The mean of each step has been taken out, as a machine that is slower for a whole step delays all
    operations alike. It is 0 if no step has two such operations.
    """
    shares = []
    for spans in (spans for steps in devices for spans in steps):
        took = [end - start for name, s, _, start, end in spans if (name, s) == (kind, stage)]
        if len(took) > 1:
            shares.append(variance(took) / fmean(took) ** 2)
    return sqrt(fmean(shares)) if shares else 0.0


def charged(route: Sequence[int], devices: Sequence[Sequence[Spans]]) -> list[list[Spans]]:
    """Return the operations of each device in each step, with all the time that the device gave to them.

    An operation begins when the one before it on its device has ended: what the runtime does in between keeps
    the device from other work. Where the device was free before a message had arrived, it waited for it, and
    the time until the start belongs to the message. Such operations are left out, unless a step has no others
    of the kind and the stage.
    """
    lag = _lag(route, devices)
    found: list[list[Spans]] = [[] for _ in devices]
    for step in zip(*devices, strict=True):
        for device, walk in enumerate(_walks(route, step)):
            begun = [
                (
                    (kind, stage, m, start if sent + lag > free or free == -inf else free, end),
                    sent + lag > free,
                )
                for (kind, stage, m, start, end), free, sent in walk
            ]
            at_once = {span[:2] for span, waited in begun if not waited}
            found[device].append([span for span, waited in begun if not waited or span[:2] not in at_once])
    return found


def communication(route: Sequence[int], devices: Sequence[Sequence[Spans]]) -> float:
    """Return the median time of a message in seconds.

    It counts from the end of the operation that sends the message to the start of the one on another device
    that needs it, if the receiver was idle when it was sent. What the runtime takes to start an operation
    whose message has arrived before is time of the operation (`charged`), and is taken off.
    """
    lag = _lag(route, devices)
    steps = zip(*devices, strict=True)
    walks = (one for step in steps for walk in _walks(route, step) for one in walk)
    starts = [start - free for (*_, start, _), free, sent in walks if -inf < sent <= free - lag]
    return max(0.0, lag - median(starts or [0.0]))


def starting(route: Sequence[int], devices: Sequence[Sequence[Spans]]) -> float:
    """Return the time, in seconds, that a device takes to begin its next operation if nothing keeps it.

    It is the mean of a step, from the end of one operation to the start of the next whose input had arrived,
    and the median over all steps. The times of operations include it (`charged`).
    """
    lag = _lag(route, devices)
    means = []
    for step in zip(*devices, strict=True):
        walks = (one for walk in _walks(route, step) for one in walk)
        starts = [start - free for (*_, start, _), free, sent in walks if free > -inf and sent + lag <= free]
        means += [fmean(starts)] if starts else []
    return median(means or [0.0])


def _lag(route: Sequence[int], devices: Sequence[Sequence[Spans]]) -> float:
    """Return the median time, in seconds, from when a message is sent until an idle device starts with it."""
    steps = zip(*devices, strict=True)
    walks = (one for step in steps for walk in _walks(route, step) for one in walk)
    return median([start - sent for (*_, start, _), free, sent in walks if sent > free] or [0.0])


def _walks(
    route: Sequence[int], step: Sequence[Spans]
) -> Iterator[list[tuple[tuple[str, int, int, float, float], float, float]]]:
    """Yield for each device its operations, when it was free for each, and when the message was sent.

    A device is free for its first operation at -inf, and a message that is not needed was sent at -inf.
    """
    ends = {(kind == "F", stage, m): end for spans in step for kind, stage, m, _, end in spans if kind != "W"}
    for device, spans in enumerate(step):
        walk, free = [], -inf
        for kind, stage, m, start, end in spans:
            before = stage - 1 if kind == "F" else stage + 1
            needs = kind != "W" or not stage  # any other W needs the B of its own stage
            needs = needs and 0 <= before < len(route) and route[before] != device
            walk.append(((kind, stage, m, start, end), free, ends[kind == "F", before, m] if needs else -inf))
            free = end
        yield walk


class Stage:
    """A stage of a job, and the operations F, B and W that a pipeline runs on it."""

    def __init__(self, job: Job, index: int) -> None:
        self.device = device = torch.device(job["device"])
        self.job, self.module = job | {"microbatches": 1}, build_stage(job, index, device)

    def enter(self) -> Tensor:
        """Return a random input such as the previous stage sends: a hidden state that needs a gradient."""
        return self.output().requires_grad_()

    def output(self) -> Tensor:
        """Return a random hidden state of one microbatch, as large as the output of a stage."""
        return data(self.job | {"vocabulary": None}, self.device)[0][0]

    def forward(self, x: Tensor) -> Tensor:
        """Run F and return its output."""
        out: Tensor = self.module(x)
        return out

    def backward(self, x: Tensor, out: Tensor) -> Callable[[], Any]:
        """Run B, and return a function that runs W."""
        grad = torch.ones_like(out)
        _, groups = stage_backward_input([out], [grad], [x], self.module.parameters())
        return lambda: stage_backward_weight(self.module.parameters(), groups)

    def held(self) -> tuple[int, int]:
        """Return how many bytes a microbatch holds from F to B, and how many of them it holds until W."""
        if self.device.type != "cuda":
            return self.saved_bytes()
        self.measured_bytes()  # not counted: the first run also allocates the gradients of the parameters
        return self.measured_bytes()

    def measured_bytes(self) -> tuple[int, int]:
        """Return the two numbers of `held`, as the allocator of the GPU counts them."""
        before = torch.cuda.memory_allocated(self.device)
        x = self.enter()
        out = self.forward(x)
        after_forward = torch.cuda.memory_allocated(self.device) - before
        finish = self.backward(x, out)
        del out  # in a pipeline, it has been sent to the neighbour
        after_backward = torch.cuda.memory_allocated(self.device) - before
        finish()
        return after_forward, min(after_backward, after_forward)

    def saved_bytes(self) -> tuple[int, int]:
        """Return how many bytes autograd saves during F, and how many of them are inputs of linear maps.

        Parameters, which are there all the time, do not count.
        """
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
            out = self.forward(self.enter())
        for hook in hooks:
            hook.remove()
        del out
        return sum(saved.values()), sum(size for key, size in linear.items() if key in saved)


class FirstStage(Stage):
    """The first stage, which sends no gradient: in PyTorch its B does nothing and frees no memory."""

    def enter(self) -> Tensor:
        """Return the input of the model for one microbatch."""
        return data(self.job, self.device)[0][0]

    def backward(self, x: Tensor, out: Tensor) -> Callable[[], Any]:
        """Return a function that runs the whole backward as W; B does nothing."""
        grad = torch.ones_like(out)
        return lambda: out.backward(grad)

    def saved_bytes(self) -> tuple[int, int]:
        """Return how many bytes autograd saves during F, all of which W needs."""
        kept, _ = super().saved_bytes()
        return kept, kept


class LastStage(Stage):
    """The last stage, which ends with the loss."""

    def forward(self, x: Tensor) -> Tensor:
        """Run F and return the loss of its output."""
        _, (target,) = data(self.job, self.device)
        return loss_of(self.job)(super().forward(x), target)


class OnlyStage(FirstStage, LastStage):
    """The only stage of a pipeline: it begins with the model's input and ends with the loss."""


def stage_of(job: Job, index: int) -> Stage:
    """Return stage `index` of a job as a `Stage`, or as the subclass for a first, last or only stage."""
    is_last = index == len(job["parts"]) - 1
    if index == 0:
        return (OnlyStage if is_last else FirstStage)(job, index)
    return (LastStage if is_last else Stage)(job, index)
