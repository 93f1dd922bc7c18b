"""Schedules in PyTorch's own runtime: gradients of a single process, order and measured times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cases import mixed_order

from tightpipe import (
    InputError,
    Instance,
    MicrobatchClass,
    Operation,
    OpKind,
    Order,
    Schedule,
    measure,
    retime,
    simulate,
    solve,
)
from tightpipe.export import data_sequence
from tightpipe.model.orders import without_absent
from tightpipe.runtime import (
    Measured,
    RunError,
    RunModel,
    RunReport,
    Span,
    profile,
    run_in_turn,
    run_schedule,
)
from tightpipe.runtime.run import _typical

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

SMALL = RunModel(width=16, batch=2)
MICROBATCHES = {2: 6, 4: 8}


def instance(p: int, placement: str, **more: Any) -> Instance:
    return Instance.uniform(
        devices=p,
        microbatches=MICROBATCHES[p],
        forward=3,
        backward=3,
        weight=2,
        placement=placement,
        **more,
    )


def solved(p: int, placement: str, method: str, **options: Any) -> Schedule:
    schedule = solve(instance(p, placement), method, **options).schedule
    assert schedule is not None
    return schedule


def check(report: RunReport) -> None:
    assert report.gradient_difference <= 1e-6
    assert report.largest_gradient > 1e-4
    assert report.loss == pytest.approx(report.reference_loss, abs=1e-6)
    assert report.order_held


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize(
    ("placement", "method"),
    [("v", "greedy-v"), ("linear", "1f1b"), ("loop", "interleaved-1f1b"), ("linear", "zb-h1")],
)
def test_gradients_are_those_of_one_process(placement: str, method: str, p: int) -> None:
    report = run_schedule(solved(p, placement, method), SMALL)
    check(report)
    kinds = {"F", "BW"} if method.endswith("1f1b") else {"F", "B", "W"}
    assert set(report.to_dict()["microseconds"]) == kinds


MIX = """F0.0 F0.1 F3.0 BW3.0 F3.1 B3.1 F0.2 W0.0 W3.1 F3.2 BW3.2 W0.1 W0.2
F1.0 F2.0 F1.1 F2.1 BW2.0 B1.0 F1.2 F2.2 B2.1 BW1.1 W1.0 B2.2 B1.2 W2.1 W2.2 W1.2"""


@pytest.mark.parametrize(
    ("backward", "weight", "kinds"),
    [
        (3, 2, {"F", "B", "W", "BW"}),
        ([0, 3, 3, 3], [5, 2, 2, 2], {"F", "B", "W", "BW"}),  # as PyTorch runs the first stage
        ([0, 3, 3, 3], [5, 0, 0, 0], {"F", "B", "W"}),  # all stages but the first are frozen
    ],
)
def test_a_mix_of_fused_and_split_backwards_has_the_gradients_of_one_process(
    backward: Any, weight: Any, kinds: set[str]
) -> None:
    problem = Instance.uniform(
        devices=2, microbatches=3, forward=3, backward=backward, weight=weight, fused=4, placement="v"
    )
    complete = Order.parse(MIX.replace("W0.", "BW0."))
    schedule = retime(problem, without_absent(problem, complete))
    model = RunModel("transformer", width=16, heads=2, sequence=4, batch=2)
    report = run_schedule(schedule, model, steps=2)
    check(report)
    assert set(report.to_dict()["microseconds"]) == kinds
    assert set(report.ratios()) == kinds
    again = report.with_measured_costs()
    assert again.order == schedule.order
    assert [again.instance.has(OpKind.B, stage) for stage in range(4)] == [
        problem.has(OpKind.B, stage) for stage in range(4)
    ]


@pytest.mark.parametrize("p", [2, 4])
def test_an_improved_v_schedule_runs(p: int) -> None:
    check(run_schedule(solved(p, "v", "cpsat", time_limit=5, workers=1), SMALL))


def test_a_transformer_runs_with_merged_backwards() -> None:
    schedule = solved(2, "v", "v-beat")
    report = run_schedule(
        schedule, RunModel("transformer", width=16, heads=2, sequence=4, batch=2), merge=True
    )
    check(report)
    assert len(report.order) < len(schedule.order)
    assert "gradients differ" in str(report)


def test_a_transformer_with_embedding_head_and_unequal_layers_runs() -> None:
    schedule = solved(2, "v", "greedy-v")
    sizes = (16, 32, 48, 64)
    model = RunModel("transformer", width=16, heads=2, sequence=4, batch=2, ffn=sizes, vocabulary=11)
    report = run_schedule(schedule, model, steps=3)
    check(report)
    assert set(report.ratios()) == {"F", "B", "W"}
    assert set(report.ratios()["F"]) == {0, 1, 2, 3}


LONG_AND_SHORT = [
    MicrobatchClass(2),
    MicrobatchClass(1, forward=8, backward=8, weight=6, fused=13),
    MicrobatchClass(1, forward=5, backward=4, weight=3),
]


@pytest.mark.parametrize(
    ("placement", "model"),
    [
        ("v", RunModel("transformer", width=16, heads=2, sequence=16, batch=2, vocabulary=11)),
        ("loop", RunModel(width=16, batch=8)),
    ],
)
def test_microbatches_of_different_shapes_have_the_gradients_of_one_process(
    placement: str, model: RunModel, tmp_path: Path
) -> None:
    """Tokens of a row, or rows of an MLP, are in proportion to the F's: 6, 6, 16, 10, or 3, 3, 8, 5."""
    problem = Instance.uniform(
        devices=2,
        forward=3,
        backward=3,
        weight=2,
        fused=4,
        placement=placement,
        classes=LONG_AND_SHORT,
    )
    schedule = retime(problem, mixed_order(problem, 0))
    sequence = data_sequence(schedule, "torch-csv")
    assert sequence != sorted(sequence)
    report = run_schedule(schedule, model, steps=2, trace=tmp_path)
    check(report)
    assert set(report.ratios()) == {"F", "B", "W", "BW"}
    again = report.with_measured_costs()
    assert again.order.to_lists() == report.order.to_lists()
    assert len(again.instance.class_counts) == 3
    assert measure(tmp_path, schedule=schedule).deviation == ""


def test_the_step_of_median_time_is_reported() -> None:
    steps = [Measured(((Span(Operation.parse("F0.0"), 0.0, took),),)) for took in (9.0, 4.0, 1.0, 2.0, 3.0)]
    assert _typical(steps[1:], False) is steps[3]
    assert _typical(steps[:1], True) is steps[0]


def test_schedules_of_several_placements_train_the_same_model_in_turn() -> None:
    runs = [
        (solved(2, "linear", "1f1b"), replace(SMALL, layers=2 * SMALL.layers)),
        (solved(2, "loop", "interleaved-1f1b"), SMALL),
        (solved(2, "v", "v-zb"), SMALL),
    ]
    reports = run_in_turn(runs, steps=3)
    for (schedule, _), report in zip(runs, reports, strict=True):
        check(report)
        assert report.schedule.instance == schedule.instance
        assert len(report.step_spans) == 2
    assert len({round(report.loss, 5) for report in reports}) == 1
    with pytest.raises(InputError, match="devices = 4: must be 2, as in the first schedule"):
        run_in_turn([runs[0], (solved(4, "linear", "1f1b"), SMALL)])


def test_the_time_of_a_step_is_that_of_all_devices_where_the_objective_says_so() -> None:
    """The second device starts 2 seconds after the first one and ends last."""
    spans = [("F0.0", 0.0, 1.0), ("BW0.0", 6.0, 8.0)], [("F1.0", 2.0, 3.0), ("BW1.0", 7.0, 9.0)]
    measured = Measured(
        tuple(tuple(Span(Operation.parse(name), start, end) for name, start, end in ran) for ran in spans)
    )
    assert (measured.span(False), measured.span(True)) == (8e6, 9e6)
    assert (measured.bubble_rate(False), measured.bubble_rate(True)) == (1 - 3 / 8, 1 - 3 / 9)
    order = Order.parse("F0.0 BW0.0\nF1.0 BW1.0")
    for objective in ("device_span", "step", "makespan"):
        problem = replace(instance(2, "linear", objective=objective), microbatches=1)
        schedule = simulate(problem, order)
        report = RunReport(schedule, order, 0.0, 0.0, 0.0, 1.0, measured)
        assert report.measured_span == (8e6 if objective == "device_span" else 9e6)
        assert report.predicted_span == 16


def test_operations_that_run_together() -> None:
    problem = Instance.uniform(devices=1, microbatches=2, forward=1, backward=1, weight=1, placement="linear")
    schedule = simulate(problem, Order.parse("F0.0 F0.1+BW0.0 BW0.1"))
    if hasattr(schedules, "OVERLAP_F_B"):
        check(run_schedule(schedule, SMALL))
    else:
        with pytest.raises(
            InputError, match=r"PyTorch = '2\.8\..*': two operations that run as a pair need 2\.9"
        ):
            run_schedule(schedule, SMALL)


def test_an_old_pytorch_runs_no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("2.9.0", "2.10.1+cpu", "3.0"):
        monkeypatch.setattr(profile, "version", lambda name, version=version: version)
        profile.require_pairs()
    monkeypatch.setattr(profile, "version", lambda name: "2.8.0+cu128")
    with pytest.raises(InputError, match=r"PyTorch = '2\.8\.0\+cu128': two operations .* need 2\.9 or later"):
        profile.require_pairs()


def test_what_cannot_run() -> None:
    two_ways = instance(2, "bidirectional")
    schedule = solve(two_ways, "list").schedule
    assert schedule is not None
    with pytest.raises(InputError, match="one rank"):
        run_schedule(schedule)
    with pytest.raises(InputError, match="steps"):
        run_schedule(schedule, steps=0)
    with pytest.raises(InputError, match="device = 'gpu': must be one of cpu, cuda"):
        run_schedule(schedule, device="gpu")


def test_a_run_that_takes_too_long_is_ended() -> None:
    problem = instance(2, "linear")
    with pytest.raises(RunError, match="did not end in time"):
        run_schedule(retime(problem, solved(2, "linear", "1f1b").order), timeout=0.2)


def test_traces_of_a_run_say_what_the_run_itself_measured(tmp_path: Path) -> None:
    schedule = solved(2, "v", "greedy-v")
    # one step besides the first, as of two steps that take equally long either may count as the typical one
    report = run_schedule(schedule, SMALL, steps=2, trace=tmp_path / "new/traces")
    found = measure(tmp_path / "new/traces", schedule=schedule)
    assert (found.steps, found.deviation) == (1, "")
    for account, spans in zip(found.accounts, report.measured.devices, strict=True):
        took = sum(span.end - span.start for span in spans) * 1e6
        assert took <= account.busy + len(spans) <= account.charged + len(spans)  # ranges enclose the spans
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/traces: cannot be made: Not a directory"):
        run_schedule(schedule, SMALL, trace=tmp_path / "file/traces")
    (tmp_path / "taken/rank0.json.gz").mkdir(parents=True)
    with pytest.raises(InputError, match=r"taken/rank0.json.gz: cannot be written: it is a folder"):
        run_schedule(schedule, SMALL, trace=tmp_path / "taken")
