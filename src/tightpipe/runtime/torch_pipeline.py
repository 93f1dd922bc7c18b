"""The stages of one device in PyTorch's schedule runtime, trained and timed step by step.

Runs and profiles both train with the class `Pipeline`, so that a profile measures the same operations as a
run. The scripts of this folder import this file on machines that have only PyTorch. So it imports nothing
beyond PyTorch, Python's standard library and files of this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.profiler import record_function
from torch_machine import clock_of, device_of
from torch_modules import Job, build_stage, data, loss_of, texts

Spans = list[tuple[str, int, int, float, float]]
"""Kind, stage and microbatch of each operation, and its start and end in seconds of the machine's clock."""


class Step(NamedTuple):
    """A training step on one device: its operations, and its losses if the device has the last stage."""

    spans: Spans
    losses: list[float]


class Pipeline:
    """The stages that one process of a job trains.

    - `job`: the job; `torch_modules.py` describes its layers.
    - `order`: file with the order of all devices, as PyTorch reads it.
    - `rank`: number of the process, which equals the number of its device.
    """

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
        """Zero the gradients, run all operations of one training step, and wait until they have ended.

        No optimizer changes the parameters.
        """
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
