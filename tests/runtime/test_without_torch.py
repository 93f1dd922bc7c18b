"""What needs no PyTorch: the message that it is missing, the model's checks, measured numbers."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest

from tightpipe import InputError, Instance, Operation, Order, Step, simulate
from tightpipe.runtime import Measured, RunModel, RunReport, Span, profile, run_schedule


def test_without_torch_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "find_spec", lambda name: None)
    problem = Instance.uniform(devices=1, microbatches=1, forward=1, backward=1, weight=1, placement="linear")
    schedule = simulate(problem, Order.parse("F0.0 B0.0 W0.0"))
    with pytest.raises(InputError, match=r"pip install 'tightpipe\[torch\]'"):
        run_schedule(schedule)


def test_what_cannot_run_or_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "find_spec", lambda name: profile.__spec__)
    problem = Instance.uniform(
        devices=2, microbatches=1, forward=5, backward=[0, 6], weight=[0, 4], placement="linear"
    )
    schedule = simulate(problem, Order.parse("F0.0\nF1.0 B1.0 W1.0"))
    with pytest.raises(
        InputError, match="stage = 0: PyTorch runs a backward at every stage, this one has none"
    ):
        run_schedule(schedule)
    with pytest.raises(InputError, match="timeout = nan: must be a number from 0"):  # it would never be over
        run_schedule(schedule, timeout=nan)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "rnn"}, "must be one of mlp, transformer"),
        ({"width": 0}, "width = 0: must be at least 1"),
        ({"model": "transformer", "width": 6, "heads": 4}, "multiple of heads"),
    ],
)
def test_models_are_checked(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RunModel(**fields)  # type: ignore[arg-type]


def span(text: str, start: float, end: float) -> Span:
    return Span(Operation.parse(text), start, end)


def test_bubble_rates_leave_out_what_a_step_takes_beside_its_operations() -> None:
    """A step that runs as planned has the same bubble rate as measured, from measured times, and planned."""
    step = Step(optimizer=[200, 200])
    sizes = {"devices": 2, "microbatches": 2, "forward": 10, "backward": 10, "weight": 10}
    problem = Instance.uniform(**sizes, placement="linear", objective="step", step=step)  # type: ignore[arg-type]
    schedule = simulate(problem, Order.parse("F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\nF1.0 B1.0 W1.0 F1.1 B1.1 W1.1"))
    times_of = [
        tuple(
            Span(op, start / 1e6, end / 1e6)
            for op, start, end in zip(ops, schedule.start[rows], schedule.end[rows], strict=True)
        )
        for ops, rows in zip(schedule.order.to_lists(), map(schedule.order.rows, (0, 1)), strict=True)
    ]
    report = RunReport(schedule, schedule.order, 1.0, 1.0, 0.0, 1.0, Measured(tuple(times_of)))
    data = report.to_dict()
    assert data["measured_bubble_rate"] == pytest.approx(0.25)
    assert data["bubble_rate_from_measured_times"] == data["predicted_bubble_rate"] == 0.25


def test_the_report_compares_measured_and_predicted() -> None:
    problem = Instance.uniform(devices=2, microbatches=1, forward=1, backward=1, weight=1, placement="linear")
    order = Order.parse("F0.0 B0.0 W0.0\nF1.0 BW1.0")
    micro = 1e-6
    measured = Measured(
        (
            (
                span("F0.0", 0, 2 * micro),
                span("B0.0", 9 * micro, 10 * micro),
                span("W0.0", 10 * micro, 12 * micro),
            ),
            (span("F1.0", 3 * micro, 5 * micro), span("BW1.0", 5 * micro, 9 * micro)),
        )
    )
    report = RunReport(simulate(problem, order), order, 1.0, 1.0, 0.0, 1.0, measured)
    data = report.to_dict()
    assert data["order_held"]
    assert data["microseconds"] == {
        "B": pytest.approx(1),
        "BW": pytest.approx(4),
        "F": pytest.approx(2),
        "W": pytest.approx(2),
    }
    assert data["measured_span"] == pytest.approx(12)
    assert data["measured_bubble_rate"] == pytest.approx(0.5)
    assert data["span_from_measured_times"] == 11  # without what the messages took
    assert data["bubble_rate_from_measured_times"] == pytest.approx(5 / 11)
    assert data["predicted_span"] == 6
    ratios = {"F": {0: 0.5, 1: 0.5}, "B": {0: 1.0}, "W": {0: 0.5}, "BW": {1: 0.5}}
    assert data["predicted_over_measured"] == {
        kind: pytest.approx(of_stages) for kind, of_stages in ratios.items()
    }
    said = str(report)
    assert "step 12 microseconds measured, 11 from the measured times, 6 predicted" in said
    assert "(-50.0%)" in said
    assert "predicted / measured F: stage 0 0.50, stage 1 0.50" in said
    assert "mean little" not in said
    assert "steps, from" not in said
    assert "3 steps, from 11 to 14 microseconds" in str(replace(report, step_spans=(11.0, 12.0, 14.4)))
    assert "fewer cores (1) than devices (2): the times mean little" in str(replace(report, cores=1))
