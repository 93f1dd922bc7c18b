"""The measurements of a run in PyTorch, and their comparison with the prediction of the schedule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean, median
from typing import Any, NamedTuple

from ..model import metrics
from ..model.instance import Instance
from ..model.microbatches import ClassTimes, with_times
from ..model.operation import COMPUTES, Operation, OpKind
from ..model.schedule import Order, Schedule
from ..model.simulate import simulate

_MICRO = 1e6


class Span(NamedTuple):
    """The interval in which an operation computed, without its waits, in seconds of the machine's clock."""

    operation: Operation
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured `Span` of each operation, by device, in the sequence in which the device ran them."""

    devices: tuple[tuple[Span, ...], ...]

    @property
    def order(self) -> list[list[Operation]]:
        """The operations of each device, in the sequence in which they ran."""
        return [[span.operation for span in spans] for spans in self.devices]

    def by_kind(self) -> dict[str, float]:
        """Return the mean duration of each kind of operation that ran, in microseconds."""
        times: dict[str, list[float]] = {}
        for spans in self.devices:
            for span in spans:
                times.setdefault(span.operation.kind.name, []).append((span.end - span.start) * _MICRO)
        return {kind: mean(values) for kind, values in sorted(times.items())}

    def typical(self, kind: OpKind, stage: int, among: Container[int] | None = None) -> int | None:
        """Return the median duration of a kind of operation at a stage in whole microseconds, at least 1.

        Only microbatches in `among` count, all if it is None. The result is None if no such operation ran.
        """
        times = [
            span.end - span.start
            for spans in self.devices
            for span in spans
            if span.operation[:2] == (kind, stage) and (among is None or span.operation.microbatch in among)
        ]
        return max(1, round(median(times) * _MICRO)) if times else None

    def span(self, whole: bool) -> float:
        """Return the time from first start to last end in microseconds.

        It is that of all devices together if `whole`, else the largest of a single device.
        """
        first, last = ([spans[k] for spans in self.devices] for k in (0, -1))
        ends = [span.end for span in last]
        starts = [min(span.start for span in first)] * len(ends) if whole else [span.start for span in first]
        return max(end - start for start, end in zip(starts, ends, strict=True)) * _MICRO

    def bubble_rate(self, whole: bool) -> float:
        """Return the span (as in `span`) minus the largest computing time of a device, as a share of it."""
        work = max(sum(span.end - span.start for span in spans) for spans in self.devices) * _MICRO
        return 1 - work / self.span(whole)


@dataclass(frozen=True, slots=True)
class RunReport:
    """The results of a run in PyTorch."""

    schedule: Schedule  #: that was to be run, with the costs for which it was made
    order: Order  #: that the devices were given: the schedule's order, possibly with fused backwards
    loss: float  #: mean loss over the microbatches, in the pipeline
    reference_loss: float  #: the same in one process that runs the whole model
    gradient_difference: float  #: largest absolute difference of a gradient's entry to that of one process
    largest_gradient: float  #: largest absolute entry of a gradient in the single process
    measured: Measured  #: the times of the operations, in the training step with the median time
    cores: int | None = None  #: that the processes of all devices share; None if each process has a GPU
    step_spans: tuple[float, ...] = ()  #: `measured_span` of each step but the warm-up, in microseconds

    @property
    def order_held(self) -> bool:
        """Whether every device ran its operations in the given order."""
        return self.measured.order == self.order.to_lists()

    @property
    def predicted_bubble_rate(self) -> float:
        """Bubble rate of the schedule's operations, with the costs that it was made for."""
        return _bubble_rate_of(self.schedule)

    @property
    def predicted_span(self) -> int:
        """The span of the schedule's operations, in ticks; of measured costs, a tick is a microsecond.

        It is that of all devices together for the objectives `makespan` and `step`, else the largest of a
        single device. What a step takes beside the operations does not run here and is not in it.
        """
        return _span_of(self.schedule)

    @property
    def measured_span(self) -> float:
        """The measured counterpart of `predicted_span`, in microseconds."""
        return self.measured.span(self.schedule.instance.whole)

    @property
    def shares_cores(self) -> bool:
        """Whether there are fewer cores than devices, so that measured times include waits for a core."""
        return self.cores is not None and self.cores < self.schedule.instance.devices

    def ratios(self) -> dict[str, dict[int, float]]:
        """Return the scheduled duration, in ticks, over the median measured duration, in microseconds.

        The keys are the name of the kind of operation, and then the stage. Only kinds and stages of which an
        operation ran have an entry. Where microbatches differ, it is the sum over their classes of the one
        over that of the other, each with the number of microbatches in the class.
        """
        instance, found = self.schedule.instance, defaultdict[str, dict[int, float]](dict)
        for kind, stage in product(COMPUTES, range(instance.stages)):
            both = [
                (count * instance.duration(kind, stage, c), count * time)
                for c, (count, among) in enumerate(_classes(instance))
                if (time := self.measured.typical(kind, stage, among)) is not None
            ]
            if both:
                scheduled, measured = map(sum, zip(*both, strict=True))
                found[kind.name][stage] = scheduled / measured
        return dict(found)

    def with_measured_costs(self) -> Schedule:
        """Return the schedule that the simulator predicts from the measured durations.

        In this schedule, communication takes no time and memory has no limit. So the difference between the
        predicted and the measured span contains the real time of communication.
        """
        alone = Order(self.order.operations, self.order.offsets)  # PyTorch runs those of a pair one by one
        return simulate(_measured_instance(self.schedule.instance, self.measured), alone)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures of the report as plain data; times are in microseconds."""
        model = self.with_measured_costs()
        return {
            "loss": self.loss,
            "reference_loss": self.reference_loss,
            "max_gradient_difference": self.gradient_difference,
            "largest_gradient": self.largest_gradient,
            "order_held": self.order_held,
            "cores": self.cores,
            "microseconds": self.measured.by_kind(),
            "predicted_over_measured": self.ratios(),
            "predicted_span": self.predicted_span,
            "measured_span": self.measured_span,
            "step_spans": list(self.step_spans),
            "measured_bubble_rate": self.measured.bubble_rate(self.schedule.instance.whole),
            "predicted_bubble_rate": self.predicted_bubble_rate,
            "span_from_measured_times": _span_of(model),
            "bubble_rate_from_measured_times": _bubble_rate_of(model),
        }

    def __str__(self) -> str:
        data = self.to_dict()
        times = ", ".join(f"{kind} {value:.0f}" for kind, value in data["microseconds"].items())
        error = data["predicted_span"] / data["measured_span"] - 1
        lines = [
            f"loss {data['loss']:.6f}, single process {data['reference_loss']:.6f}",
            f"gradients differ by at most {data['max_gradient_difference']:.1e} "
            f"(largest {data['largest_gradient']:.1e})",
            f"order {'as scheduled' if data['order_held'] else 'NOT as scheduled'}",
            f"mean microseconds: {times}",
            f"step {data['measured_span']:.0f} microseconds measured, "
            f"{data['span_from_measured_times']} from the measured times, "
            f"{data['predicted_span']} predicted by the schedule ({error:+.1%}); "
            f"objective {self.schedule.instance.objective}",
            *self._spread(),
            f"bubble rate {data['measured_bubble_rate']:.3f} measured, "
            f"{data['bubble_rate_from_measured_times']:.3f} from the measured times, "
            f"{data['predicted_bubble_rate']:.3f} predicted by the schedule",
        ]
        for kind, of_stages in self.ratios().items():
            listed = ", ".join(f"stage {stage} {ratio:.2f}" for stage, ratio in of_stages.items())
            lines.append(f"predicted / measured {kind}: {listed}")
        if self.shares_cores:
            devices = self.schedule.instance.devices
            lines.append(f"fewer cores ({self.cores}) than devices ({devices}): the times mean little")
        return "\n".join(lines)

    def _spread(self) -> list[str]:
        """Return a list with the line that says how much the step times differ; empty for one step."""
        if len(self.step_spans) < 2:
            return []
        fastest, slowest = min(self.step_spans), max(self.step_spans)
        return [f"{len(self.step_spans)} steps, from {fastest:.0f} to {slowest:.0f} microseconds"]


def _span_of(schedule: Schedule) -> int:
    if schedule.instance.whole:
        return metrics.total_time(schedule)
    return int(metrics.device_spans(schedule).max())


def _bubble_rate_of(schedule: Schedule) -> float:
    """Return what `Measured.bubble_rate` is of a schedule: without what a step takes beside operations."""
    return 1 - int(metrics.busy_times(schedule).max()) / _span_of(schedule)


def _measured_instance(instance: Instance, measured: Measured) -> Instance:
    members = [among for _, among in _classes(instance)]

    def times(mb_class: int) -> ClassTimes:
        keys, among = product(COMPUTES, range(instance.stages)), members[mb_class]
        took = {key: time for key in keys if (time := measured.typical(*key, among)) is not None}
        return class_times(took, instance.stages)

    costs = replace(instance.costs, comm=0, overlapped=None, link_occupancy=0)
    timed = with_times(replace(instance, costs=costs), times)
    classes = tuple(replace(one, memory=None) for one in timed.classes)
    return replace(timed, memory=None, step=None, classes=classes)


def class_times(took: Mapping[tuple[OpKind, int], int], stages: int) -> ClassTimes:
    """Return the times of all stages from the measured ones, which are given by kind and stage.

    A B or a W that did not run takes no time. Where all backwards of a stage were fused, their time is
    divided equally between B and W, and where none was, a fused one counts as the two together.
    """
    columns = []
    for stage in range(stages):
        both = took.get((OpKind.BW, stage))
        half = 0 if both is None else max(1, both // 2)
        backward, weight = (took.get((kind, stage), half) for kind in (OpKind.B, OpKind.W))
        if both is not None and (OpKind.B, stage) not in took:
            weight = max(1, both - half)
        columns.append((took[OpKind.F, stage], backward, weight, both or max(1, backward + weight)))
    f, b, w, fused = zip(*columns, strict=True)
    return f, b, w, fused


def _classes(instance: Instance) -> list[tuple[int, set[int]]]:
    """Return the number of microbatches of each class, and which they are; all of them if all are alike."""
    if instance.alike:
        return [(instance.microbatches, set(range(instance.microbatches)))]
    found: list[set[int]] = [set() for _ in instance.class_counts]
    for m in range(instance.microbatches):
        found[instance.mb_class(m)].add(m)
    return [(len(among), among) for among in found]
