"""Whatever reads or shows a schedule is right where microbatches differ, or refuses it in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from helpers.cases import classed, instances, mixed_order, random_order, wide_instances
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import (
    InputError,
    Instance,
    Memory,
    MicrobatchClass,
    Objective,
    OpKind,
    Order,
    Schedule,
    retime,
    simulate,
    validate,
)
from tightpipe.drawing.gantt import gantt_figure
from tightpipe.drawing.lanes import draw_text, lanes, length_names
from tightpipe.explain import explain
from tightpipe.explain.explanation import _with_even_work
from tightpipe.export import EXPORTS, data_sequence, export_text, import_order, torch_stage0_instance
from tightpipe.model import metrics
from tightpipe.model.microbatches import lengths, renumbered
from tightpipe.model.schedule_file import schedule_from_dict, schedule_to_dict
from tightpipe.noise import Jitter, run_noisy
from tightpipe.program import lower, replay
from tightpipe.program.program import _from_dict as program_from_dict
from tightpipe.program.program import program_to_dict
from tightpipe.program.program_passes import overlap_program
from tightpipe.report.page import chart
from tightpipe.report.sources import Entry

ANY = st.one_of(instances(max_microbatches=5), wide_instances(max_microbatches=5))


def classed_schedule(instance: Instance, seed: int) -> Schedule:
    """A valid schedule of a random order of microbatches that may differ, without a memory limit."""
    instance = classed(instance, seed)
    free = replace(instance, memory=instance.memory and replace(instance.memory, limit=None))
    schedule = retime(free, mixed_order(free, seed))
    assert validate(free, schedule) == []
    return schedule


SCHEDULES = st.builds(classed_schedule, ANY, st.integers(0, 9999))


@given(SCHEDULES)
def test_a_schedule_file_and_the_text_of_an_order_hold_every_microbatch(schedule: Schedule) -> None:
    read = schedule_from_dict(json.loads(json.dumps(schedule_to_dict(schedule))))
    assert read.schedule == schedule
    assert Order.parse(str(schedule.order)) == schedule.order


@given(SCHEDULES)
def test_the_explanation_accounts_for_the_whole_cost(schedule: Schedule) -> None:
    found = explain(schedule, relax=False)
    assert sum(step.ticks for step in found.critical) == metrics.cost(schedule) or schedule.instance.barrier
    assert all(d.busy + d.idle == d.charged for d in found.devices)
    for d, device in enumerate(found.devices):
        operations = schedule.order.to_lists()[d]
        assert device.busy == sum(map(schedule.instance.duration_of, operations))
        assert sum(device.by_reason.values()) == device.idle


@given(SCHEDULES)
def test_lanes_in_drawings_tell_chunks_and_directions_apart_and_not_classes(schedule: Schedule) -> None:
    alike = replace(schedule, instance=replace(schedule.instance, classes=()))
    assert lanes(schedule).tolist() == lanes(alike).tolist()


@given(SCHEDULES)
def test_lengths_name_every_microbatch_once_from_the_shortest_to_the_longest(schedule: Schedule) -> None:
    instance, groups = schedule.instance, lengths(schedule.instance)
    assert sorted(m for group in groups for m in group) == list(range(instance.microbatches))
    assert (len(groups) == 1) == instance.alike

    def ticks(m: int) -> int:
        c = instance.mb_class(m)
        return sum(
            instance.duration(OpKind.F, s, c) + instance.least_backward(s, c) for s in range(instance.stages)
        )

    assert [ticks(group[0]) for group in groups] == sorted(ticks(group[0]) for group in groups)
    assert all(ticks(m) == ticks(group[0]) for group in groups for m in group)


@settings(max_examples=15)
@given(SCHEDULES)
def test_figures_texts_and_pages_are_drawn_and_name_the_lengths(schedule: Schedule) -> None:
    figure = gantt_figure([("", schedule)], memory=schedule.instance.memory is not None)
    said = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    numbers, _ = chart(Entry({"cost": 1}, "", schedule), explain(schedule, relax=False))
    named = [name for _, name, _ in length_names(schedule.instance)]
    assert bool(named) == (not schedule.instance.alike)
    assert set(named) <= said
    assert [text.rpartition(": ")[0] for _, text in numbers["lengthNames"]] == named
    assert all(f"\n{name}: " in draw_text(schedule) for name in named)


@given(SCHEDULES, st.sampled_from(["early-receives", "in-order", "published"]), st.booleans())
def test_a_program_of_microbatches_that_differ_replays_to_the_times_of_the_schedule(
    schedule: Schedule, order: str, validation: bool
) -> None:
    program = lower(schedule, order=order, validation=validation)
    ran = replay(program).schedule
    assert ran.order == schedule.order
    if order == "early-receives" and not validation:
        assert ran == schedule
    assert program_from_dict(program_to_dict(program)) == program


@settings(max_examples=30)
@given(SCHEDULES)
def test_passes_of_programs_keep_the_order_valid(schedule: Schedule) -> None:
    program, _ = overlap_program(schedule)
    assert program.order == schedule.order


@settings(max_examples=10)
@given(SCHEDULES)
def test_noise_without_variation_takes_the_planned_times(schedule: Schedule) -> None:
    """Also where a W waits for a message, because its stage has no B."""
    instance = replace(schedule.instance, objective=Objective.MAKESPAN)
    earliest = simulate(instance, schedule.order)
    (found,) = run_noisy([earliest], [Jitter(0.0)], samples=2, workers=1)
    assert found.planned == metrics.cost(earliest)
    assert found.costs.tolist() == pytest.approx([found.planned] * 2)


def exported(schedule: Schedule, target: str) -> str | None:
    """The text of the file; None if the other program cannot run the schedule, which one line says."""
    try:
        return export_text(schedule, target)
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    return None


@given(SCHEDULES, st.sampled_from(sorted(EXPORTS)))
def test_an_exported_file_is_the_schedule_under_the_numbers_of_the_sequence(
    schedule: Schedule, target: str
) -> None:
    text = exported(schedule, target)
    if text is None:
        return
    sequence = data_sequence(schedule, target)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "exported"
        path.write_text(text)
        assert import_order(path, target, schedule.instance, sequence) == schedule.order
        under = renumbered(schedule, sequence)
        assert import_order(path, target, under.instance) == under.order
    assert validate(under.instance, under) == []
    assert metrics.costs(under) == metrics.costs(schedule)


@given(SCHEDULES)
def test_pytorch_runs_the_last_stage_in_the_sequence_of_the_numbers(schedule: Schedule) -> None:
    if exported(schedule, "torch-csv") is None:
        return
    under = renumbered(schedule, data_sequence(schedule, "torch-csv"))
    last = schedule.instance.stages - 1
    forwards = [op.microbatch for ops in under.order.to_lists() for op in ops if op[:2] == (OpKind.F, last)]
    assert forwards == list(range(schedule.instance.microbatches))


def linear(order: str, **more: Any) -> Schedule:
    classes = [MicrobatchClass(1), MicrobatchClass(2, forward=9)]
    instance = Instance.uniform(
        devices=2, forward=3, backward=4, weight=2, placement="linear", classes=classes, **more
    )
    return retime(instance, Order.parse(order))


def test_files_of_zero_bubble_runtimes_need_one_sequence_of_microbatches() -> None:
    """These runtimes keep tensors in queues: what comes first is taken first."""
    same = "F{0}.2 F{0}.0 F{0}.1 B{0}.2 W{0}.2 B{0}.0 W{0}.0 B{0}.1 W{0}.1"
    good = linear("\n".join(same.format(s) for s in (0, 1)))
    assert data_sequence(good, "megatron-json") == [2, 0, 1]
    first = json.loads(export_text(good, "megatron-json"))[0]
    assert [node["microbatch"] for node in first if node["type"] == "F"] == [0, 1, 2]
    later = linear(f"{same.format(0)}\nF1.2 F1.1 F1.0 B1.2 W1.2 B1.1 W1.1 B1.0 W1.0")
    with pytest.raises(
        InputError, match=r"F1\.1 before F1\.0': zero-bubble runtimes run microbatches in one"
    ):
        export_text(later, "megatron-json")


def test_pytorch_refuses_a_stage_that_some_microbatches_freeze() -> None:
    classes = [MicrobatchClass(1), MicrobatchClass(1, weight=[2, 0])]
    instance = Instance.uniform(
        devices=2, forward=3, backward=4, weight=2, placement="linear", classes=classes
    )
    schedule = retime(instance, random_order(instance, 0))
    with pytest.raises(
        InputError, match=r"stage = 1: PyTorch freezes a stage for all microbatches or for none"
    ):
        export_text(schedule, "torch-csv")


@given(SCHEDULES)
def test_a_stage_0_without_b_is_that_of_every_class(schedule: Schedule) -> None:
    instance = schedule.instance
    if not all(instance.has(OpKind.BW, 0, c) for c in range(len(instance.class_counts))):
        return
    without = torch_stage0_instance(instance)
    for m in range(instance.microbatches):
        c, old = without.mb_class(m), instance.mb_class(m)
        assert not without.has(OpKind.B, 0, c)
        assert without.duration(OpKind.W, 0, c) == instance.duration(OpKind.BW, 0, old)
        assert without.memory_delta(OpKind.W, 0, c) == instance.memory_delta(OpKind.BW, 0, old)
        for stage in range(1, instance.stages):
            assert [without.duration(k, stage, c) for k in OpKind] == [
                instance.duration(k, stage, old) for k in OpKind
            ]


def test_a_trace_says_of_which_class_a_microbatch_is() -> None:
    schedule = linear("F0.0 F0.1 F0.2 BW0.0 BW0.1 BW0.2\nF1.0 F1.1 F1.2 BW1.0 BW1.1 BW1.2")
    events = json.loads(export_text(schedule, "chrome-trace"))["traceEvents"]
    classes = {e["args"]["microbatch"]: e["args"]["class"] for e in events if e["ph"] == "X"}
    assert classes == {0: 0, 1: 1, 2: 1}


MEMORY = Memory(2, -1, -1)


def test_memory_in_activations_counts_the_microbatches_that_take_most() -> None:
    """Two devices; activations 6, 4, 4 and 2 on each of its stages. 1F1B holds at most two of them."""
    classes = [MicrobatchClass(count, memory=Memory(f, -1, 1 - f)) for count, f in ((1, 4), (1, 2), (1, 6))]
    classes = [*classes, MicrobatchClass(1, memory=Memory(4, -1, -3))]
    for placement, chunks in (("linear", 1), ("v", 2)):
        instance = Instance.uniform(
            devices=2,
            forward=1,
            backward=1,
            weight=1,
            placement=placement,
            memory=replace(MEMORY, limit=100),
            classes=classes,
        )
        assert metrics.peak_of_1f1b(instance) == chunks * (6 + 4)
        assert metrics.memory_of_1f1b(instance) == 10 / chunks
        held = [6] * chunks + [4] * 2 * chunks + [2] * 9
        for number in range(9):
            assert metrics.limits_of_activations(instance, number) == (sum(held[:number]),) * 2


@given(ANY, st.integers(0, 9999))
def test_no_sequence_of_microbatches_takes_more_in_1f1b_than_its_memory(
    instance: Instance, seed: int
) -> None:
    """1F1B with one stage per device, of a random sequence of microbatches."""
    instance = classed(instance, seed)
    if instance.memory is None or instance.placement.name != "linear":
        return
    p, n, rng = instance.devices, instance.microbatches, Random(seed)
    sequence = rng.sample(range(n), n)
    held = [
        sum(instance.memory_delta(OpKind.F, d, instance.mb_class(m)) for m in sequence[k : k + p - d])
        for d in range(p)
        for k in range(n)
    ]
    assert max(held) <= metrics.peak_of_1f1b(instance)


def test_even_work_scales_every_class() -> None:
    """Stage 1 takes thrice as long for all microbatches: with even work both devices work twice the first."""
    classes = [MicrobatchClass(2), MicrobatchClass(1, forward=[20, 60], backward=[20, 60], weight=[20, 60])]
    instance = Instance.uniform(
        devices=2,
        forward=[10, 30],
        backward=[10, 30],
        weight=[10, 30],
        placement="linear",
        classes=classes,
    )
    even, parts = _with_even_work(instance, [120, 360])
    assert even is not None
    assert [even.work(d) for d in range(2)] == [240 * parts] * 2
    assert [even.duration(OpKind.F, s, even.mb_class(m)) for m in (0, 2) for s in (0, 1)] == [
        ticks * parts for ticks in (20, 20, 40, 40)
    ]


@settings(max_examples=10)
@given(SCHEDULES)
def test_relaxations_of_microbatches_that_differ_are_found_or_left_open(schedule: Schedule) -> None:
    if len(schedule.instance.placement.routes) > 1:
        return
    for one in explain(schedule).relaxations:
        assert one.cost is None or one.saved == metrics.cost(schedule) - one.cost
