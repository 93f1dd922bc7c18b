"""What a run measured, and how that compares with what the schedule predicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any, NamedTuple

from ..core import metrics
from ..core.instance import Costs, Instance
from ..core.operation import Operation, OpKind
from ..core.schedule import Order, Schedule
from ..core.simulate import simulate

_MICRO = 1e6


class Span(NamedTuple):
    """When an operation computed, in seconds of the machine's clock; its waits are not in it."""

    operation: Operation
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The spans of each device, in the order in which they ran."""

    devices: tuple[tuple[Span, ...], ...]

    @property
    def order(self) -> list[list[Operation]]:
        """The operations of each device as they ran."""
        return [[span.operation for span in spans] for spans in self.devices]

    def by_kind(self) -> dict[str, float]:
        """Return the mean microseconds of each kind of operation that ran."""
        times: dict[str, list[float]] = {}
        for spans in self.devices:
            for span in spans:
                times.setdefault(span.operation.kind.name, []).append((span.end - span.start) * _MICRO)
        return {kind: mean(values) for kind, values in sorted(times.items())}

    def typical(self, kind: OpKind, stage: int) -> int | None:
        """Return the median microseconds of a kind at a stage, at least 1; None where it did not run."""
        times = [
            span.end - span.start
            for spans in self.devices
            for span in spans
            if span.operation[:2] == (kind, stage)
        ]
        return max(1, round(median(times) * _MICRO)) if times else None

    @property
    def largest_span(self) -> float:
        """Largest last end - first start of a device, in microseconds."""
        return max(spans[-1].end - spans[0].start for spans in self.devices) * _MICRO

    @property
    def bubble_rate(self) -> float:
        """(Largest device span - largest time that a device computed) / largest device span."""
        work = max(sum(span.end - span.start for span in spans) for spans in self.devices) * _MICRO
        return 1 - work / self.largest_span


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run in PyTorch.

    Parameters
    ----------
    schedule
        What was asked for, with its own costs.
    order
        What was run: the schedule's order, or that with merged backwards.
    loss, reference_loss
        Mean over the microbatches, of the pipeline and of one process that runs the whole model.
    gradient_difference
        Largest absolute difference of a gradient's entry from the single process.
    largest_gradient
        Largest absolute entry of a gradient in the single process.
    measured
        The operations' spans.
    """

    schedule: Schedule
    order: Order
    loss: float
    reference_loss: float
    gradient_difference: float
    largest_gradient: float
    measured: Measured

    @property
    def order_held(self) -> bool:
        """Whether every device ran its operations in the order of the schedule."""
        return self.measured.order == self.order.to_lists()

    @property
    def predicted_bubble_rate(self) -> float:
        """The bubble rate of the schedule with the costs that it was made for."""
        return metrics.bubble_rate(self.schedule)

    def with_measured_costs(self) -> Schedule:
        """Simulate the order with the measured times: what the model says about this machine.

        Communication counts as 0: what it really takes is part of the difference from the measured span.
        """
        return simulate(_measured_instance(self.schedule.instance, self.measured), _apart(self.order))

    def to_dict(self) -> dict[str, Any]:
        """Return the report's numbers; times in microseconds."""
        model = self.with_measured_costs()
        return {
            "loss": self.loss,
            "reference_loss": self.reference_loss,
            "max_gradient_difference": self.gradient_difference,
            "largest_gradient": self.largest_gradient,
            "order_held": self.order_held,
            "microseconds": self.measured.by_kind(),
            "measured_span": self.measured.largest_span,
            "measured_bubble_rate": self.measured.bubble_rate,
            "predicted_bubble_rate": self.predicted_bubble_rate,
            "span_from_measured_times": int(metrics.device_spans(model).max()),
            "bubble_rate_from_measured_times": metrics.bubble_rate(model),
        }

    def __str__(self) -> str:
        data = self.to_dict()
        times = ", ".join(f"{kind} {value:.0f}" for kind, value in data["microseconds"].items())
        return "\n".join(
            (
                f"loss {data['loss']:.6f}, single process {data['reference_loss']:.6f}",
                f"gradients differ by at most {data['max_gradient_difference']:.1e} "
                f"(largest {data['largest_gradient']:.1e})",
                f"order {'as scheduled' if data['order_held'] else 'NOT as scheduled'}",
                f"mean microseconds: {times}",
                f"bubble rate {data['measured_bubble_rate']:.3f} measured, "
                f"{data['bubble_rate_from_measured_times']:.3f} from the measured times, "
                f"{data['predicted_bubble_rate']:.3f} predicted by the schedule",
            )
        )


def _apart(order: Order) -> Order:
    """Return the order with pairs taken apart: PyTorch runs them one after the other."""
    return Order(order.operations, order.offsets)


def _measured_instance(instance: Instance, measured: Measured) -> Instance:
    """Return the instance with the typical measured times; halves of a fused backward are a guess."""
    columns: list[tuple[int, int, int]] = []
    for stage in range(instance.stages):
        f, b, w, bw = (measured.typical(kind, stage) for kind in OpKind)
        if bw is not None and b is None:
            b, w = max(1, bw // 2), max(1, bw - bw // 2)
        columns.append((f or 1, b or 1, w or 1))
    forward, backward, weight = zip(*columns, strict=True)
    return replace(instance, costs=Costs(forward, backward, weight, 0), memory=None)
