"""The bytes that a microbatch holds at a stage from F to B, and from B to W.

B and W are split as torch.distributed.pipelining splits them. On a GPU, memory is measured. On the CPU it is
counted: F keeps the tensors that autograd saves, and B frees them except for the inputs of linear maps,
which W needs. The scripts of this folder import this file on machines that have only PyTorch. So it imports
nothing beyond PyTorch, Python's standard library and files of this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch_pipeline import Job, build_stage, data, loss_of


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
