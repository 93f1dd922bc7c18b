"""Measurements of a step whose answer is computed by hand, and of steps that really ran."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.traces import BEGIN, STEP, add_kernels, moved, write_kineto, write_nsight

import tightpipe
from tightpipe import (
    InputError,
    Instance,
    Memory,
    MicrobatchClass,
    Operation,
    Order,
    Schedule,
    measure,
    simulate,
)
from tightpipe.heuristics import HEURISTICS
from tightpipe.measuring import Cause, Measurement, variation_table
from tightpipe.measuring.accounts import accounts_of
from tightpipe.model.costs import Step
from tightpipe.model.schedule_file import MEASURED, faults

RECORDED = Path(__file__).parents[1] / "data/traces"


def planned(method: str = "1f1b", **changes: Any) -> Schedule:
    given = {
        "devices": 2,
        "microbatches": 2,
        "forward": 10,
        "backward": 10,
        "weight": 10,
        "placement": "linear",
    }
    instance = Instance.uniform(**{**given, **changes})
    return simulate(instance, HEURISTICS[method].make(instance))


def check_by_hand(found: Measurement) -> None:
    assert (found.cost, found.bubble_rate) == (100, pytest.approx(0.34))
    first, second = found.accounts
    assert (first.begins, first.charged, first.busy) == (0, 100, 60)
    # 20 to 50: BW1.0 ended at 42, the fastest message took 2, and then 6 went by.
    # 70 to 80: BW1.1 ended at 78, of which the last 3 were beyond its median; 2 for the message.
    assert {cause: ticks for cause, ticks in first.idle.items() if ticks} == {
        Cause.DEPENDENCY: 27,
        Cause.STRAGGLER: 3,
        Cause.COMMUNICATION: 4,
        Cause.LATE: 6,
    }
    assert first.waited_for == {1: 34}
    assert first.longest == "30 before BW0.0, which needs BW1.0 of device 1"
    assert (second.begins, second.charged, second.busy) == (12, 66, 66)
    assert (second.idle_share, second.waited_for, second.longest) == (0, {}, "")
    costs = {(str(cost.kind.name), cost.stage): cost for cost in found.costs}
    assert {key: cost.median for key, cost in costs.items()} == {
        ("F", 0): 10,
        ("BW", 0): 20,
        ("F", 1): 10,
        ("BW", 1): 23,
    }
    slow = costs["BW", 1]
    assert (slow.count, slow.mean, slow.deviation, slow.longest, str(slow.slowest)) == (2, 23, 3, 26, "BW1.1")
    assert found.schedule.instance.costs.comm == ((0, 2), (2, 0))
    assert found.instance.costs.comm == ((0, 2), (5, 0))  # the median of 8 and 2
    assert found.instance.costs.forward == (10, 10)
    assert (found.instance.costs.backward, found.instance.costs.weight) == ((10, 11), (10, 12))


def test_a_trace_of_pytorch(tmp_path: Path) -> None:
    found = measure(*write_kineto(tmp_path))
    check_by_hand(found)
    assert found.offsets == (0, 0)
    assert found.schedule.instance.placement.name == "linear"
    assert found.schedule.start.tolist() == [0, 10, 50, 80, 12, 22, 42, 52]
    assert found.warnings == (
        "traces have no memory: the instance has memory null, as if devices had no limit",
    )


def test_a_folder_and_any_sequence_of_files(tmp_path: Path) -> None:
    paths = write_kineto(tmp_path)
    check_by_hand(measure(tmp_path))
    check_by_hand(measure(*reversed(paths)))


@pytest.mark.parametrize("text_ids", [False, True])
def test_an_export_of_nsight(text_ids: bool, tmp_path: Path) -> None:
    found = measure(write_nsight(tmp_path / "report.sqlite", text_ids=text_ids))
    check_by_hand(found)
    assert found.sources[1].endswith("report.sqlite (process 8)")


def test_kernels_of_an_export_count_in_place_of_their_launches(tmp_path: Path) -> None:
    path = write_nsight(tmp_path / "report.sqlite")
    add_kernels(path, hosts=0.25)
    check_by_hand(measure(path))


def test_other_names_by_patterns(tmp_path: Path) -> None:
    pytorch = [{name.replace("BW", "backward "): times for name, times in device.items()} for device in STEP]
    paths = write_kineto(tmp_path, pytorch, prefix="step/")
    patterns = (
        r"F:^step/F(?P<stage>\d+)\.(?P<microbatch>\d+)$",
        r"BW:backward (?P<stage>\d+)\.(?P<microbatch>\d+)",
    )
    check_by_hand(measure(*paths, patterns=patterns))
    check_by_hand(measure(*paths, patterns=("F:step/F", "BW:backward"), microbatches=2))
    check_by_hand(measure(*paths, patterns=("F:step/F", "BW:backward"), schedule=planned()))


def test_chunks_are_stages_of_the_schedule(tmp_path: Path) -> None:
    step = [
        {f"F{stage}": (20.0 * stage, 20.0 * stage + 10) for stage in stages} for stages in ((0, 3), (1, 2))
    ]
    for device, times in enumerate(step):
        for stage in list(times):
            times[f"BW{stage[1:]}"] = (200 - 20.0 * int(stage[1:]), 210 - 20.0 * int(stage[1:]))
        names = dict(zip(sorted(times), ("B chunk 0", "B chunk 1", "F chunk 0", "F chunk 1"), strict=True))
        step[device] = {names[name]: value for name, value in times.items()}
    paths = write_kineto(tmp_path, step, prefix="")
    patterns = (r"F:F chunk (?P<chunk>\d)", r"BW:B chunk (?P<chunk>\d)")
    plan = planned("greedy-v", placement="v", microbatches=1)
    assert [str(op) for op in measure(*paths, patterns=patterns, schedule=plan).schedule.order.to_lists()[0]] == [
        "F0.0", "F3.0", "BW3.0", "BW0.0",
    ]  # fmt: skip
    with pytest.raises(InputError, match="names with chunks need --schedule"):
        measure(*paths, patterns=patterns, microbatches=1)


def test_time_in_sends_and_receives_is_communication(tmp_path: Path) -> None:
    first = {**STEP[0], "send": (45.0, 48.0)}
    paths = write_kineto(tmp_path, [first, STEP[1]])
    patterns = [rf"{kind}:^tightpipe {kind}(?P<stage>\d+)\.(?P<microbatch>\d+)" for kind in ("F", "BW")]
    idle = measure(*paths, patterns=[*patterns, "COMM:send"]).accounts[0].idle
    assert (idle[Cause.COMMUNICATION], idle[Cause.LATE]) == (7, 3)


def test_messages_that_overlap_count_once_and_the_first_stage_waits_for_nobody() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=10, backward=10, weight=10, placement="linear"
    )
    order = Order.parse("F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\nF1.0 B1.0 W1.0 F1.1 B1.1 W1.1")
    start = np.array([0, 30, 60, 70, 80, 90, 20, 30, 40, 50, 60, 70])
    schedule = Schedule(instance, order, start, start + 10)
    first, _ = accounts_of(schedule, [[(12, 20), (14, 16), (25, 28)], []])
    assert {cause: ticks for cause, ticks in first.idle.items() if ticks} == {
        Cause.COMMUNICATION: 8 + 3,  # before F0.1, from 10 to 30
        Cause.LATE: 9 + 20,
    }
    assert first.waited_for == {}


def test_ranges_of_pytorchs_runtime_begin_with_the_wait(tmp_path: Path) -> None:
    names = {"F0.0": "0F0", "F0.1": "0F1", "BW0.0": "0B0", "BW0.1": "0B1"}
    names |= {name.replace("0.", "1."): action.replace("0", "1", 1) for name, action in names.items()}
    waiting = {"BW0.0": (20.0, 70.0), "BW0.1": (70.0, 100.0), "F1.0": (1.0, 22.0)}
    step = [{names[op]: (dict(times) | waiting)[op] for op in times} for times in STEP]
    found = measure(*write_kineto(tmp_path, step, prefix="PP:"))
    assert [str(op) for op in found.schedule.order.to_lists()[1]] == ["F1.0", "BW1.0", "F1.1", "BW1.1"]
    assert found.schedule.start.tolist() == [0, 10, 42, 78, 10, 22, 42, 52]  # when the inputs were computed
    assert found.warnings[0].startswith("ranges include the waits for their inputs")


def test_both_kinds_of_names_tell_waits_from_computing(tmp_path: Path) -> None:
    first = {f"tightpipe {name}": times for name, times in STEP[0].items()} | {"PP:0B0": (44.0, 70.5)}
    second = {f"tightpipe {name}": times for name, times in STEP[1].items()}
    idle = measure(*write_kineto(tmp_path, [first, second], prefix="")).accounts[0].idle
    assert (idle[Cause.COMMUNICATION], idle[Cause.LATE]) == (10, 0)


def test_ranges_of_a_gpu_count_where_there_are_any(tmp_path: Path) -> None:
    for path, times in zip(write_kineto(tmp_path), STEP, strict=True):
        trace = json.loads(path.read_text())
        host = [event for event in trace["traceEvents"] if event["name"].startswith("tightpipe")]
        for event, (start, end) in zip(host, times.values(), strict=True):
            on_gpu = {**event, "cat": "gpu_user_annotation", "pid": 0, "tid": 7}
            trace["traceEvents"] += [on_gpu, {**on_gpu, "tid": 20, "ts": BEGIN + 1}][: 2 - (start == 0)]
            event.update(ts=BEGIN + start / 10, dur=(end - start) / 10)  # launched long before it ran
        path.write_text(json.dumps(trace))
    check_by_hand(measure(tmp_path))


def test_clocks_are_aligned_by_messages(tmp_path: Path) -> None:
    # Forward messages need at least +998, backward ones allow at most +1,002: the middle is exact here.
    paths = write_kineto(tmp_path, [STEP[0], moved(STEP[1], -1000)])
    found = measure(*paths, tolerance=0)
    assert found.offsets == (0, 1_000_000)
    check_by_hand(found)
    assert found.schedule.start.tolist() == [0, 10, 50, 80, 12, 22, 42, 52]


def test_an_error_of_the_clock_within_the_tolerance(tmp_path: Path) -> None:
    paths = write_kineto(tmp_path, [STEP[0], moved(STEP[1], -4)])
    found = measure(*paths, tolerance=5)
    assert found.offsets == (0, 0)
    assert found.schedule.start.tolist()[4] == 10  # F1.0 seemed to start at 8, before its input ended
    assert faults(found.schedule, MEASURED) == []


def test_clocks_that_contradict_each_other(tmp_path: Path) -> None:
    early = {
        name: (start - 100, end - 100) if name == "F1.0" else (start, end)
        for name, (start, end) in STEP[1].items()
    }
    paths = write_kineto(tmp_path, [STEP[0], early])
    with pytest.raises(
        InputError, match=r"rank0\.json and .*rank1\.json cannot be aligned: .* 96\.0 us before"
    ):
        measure(*paths, tolerance=10)


def test_several_steps(tmp_path: Path) -> None:
    later = [moved(times, 1000) for times in STEP]
    paths = []
    for rank, (first, second) in enumerate(zip(STEP, later, strict=True)):
        (trace,) = write_kineto(tmp_path, [first])
        events = json.loads(trace.read_text())
        (other,) = write_kineto(tmp_path, [second])
        events["traceEvents"] += json.loads(other.read_text())["traceEvents"]
        events["distributedInfo"]["rank"] = rank
        paths.append(tmp_path / f"both{rank}.json")
        paths[-1].write_text(json.dumps(events))
    found = measure(*paths)
    assert (found.steps, found.step) == (2, 1)
    assert {cost.count for cost in found.costs} == {4}
    check = measure(*paths, step=0)
    assert check.cost == found.cost == 100
    with pytest.raises(InputError, match="step = 2: "):
        measure(*paths, step=2)


def test_the_schedule_file_is_read_by_the_other_commands(tmp_path: Path) -> None:
    found = measure(*write_kineto(tmp_path), schedule=planned())
    tightpipe.save_schedule(found.schedule, tmp_path / "measured.json", method=MEASURED)
    again = tightpipe.load_schedule(tmp_path / "measured.json")
    assert again.schedule == found.schedule
    assert {fault.rule for fault in tightpipe.validate(again.schedule.instance, again.schedule)} == {
        "duration"
    }
    with pytest.raises(ValueError, match="duration: BW1"):
        tightpipe.save_schedule(found.schedule, tmp_path / "claimed.json", method="mine")


def test_the_order_is_compared_with_the_plan(tmp_path: Path) -> None:
    paths = write_kineto(tmp_path)
    assert measure(*paths, schedule=planned()).deviation == ""
    assert measure(*paths).deviation is None
    instance = planned().instance
    order = tightpipe.Order.parse("F0.0 F0.1 BW0.0 BW0.1\nF1.0 F1.1 BW1.0 BW1.1")
    said = measure(*paths, schedule=simulate(instance, order)).deviation
    assert said == "device 1 ran BW1.0 as its operation 1, where the schedule has F1.1"


def test_memory_is_that_of_the_plan(tmp_path: Path) -> None:
    paths = write_kineto(tmp_path)
    for limit, kept in ((2, (2, 2)), (1, None)):
        memory = tightpipe.Memory(1, 0, -1, limit)
        roomy = planned(memory=tightpipe.Memory(1, 0, -1, 2))
        instance = Instance(roomy.instance.placement, 2, roomy.instance.costs, memory)
        found = measure(*paths, schedule=Schedule(instance, roomy.order, roomy.start, roomy.end))
        assert found.schedule.instance.memory is not None
        assert found.schedule.instance.memory.limit == kept  # the run held two microbatches
        assert faults(found.schedule, MEASURED) == []


def naive_busy(path: Path, steps: int) -> float:
    """Microseconds of tightpipe's ranges in the last step of a trace, read all at once."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    own = sorted((e["ts"], e["dur"]) for e in events if e.get("name", "").startswith("tightpipe "))
    return sum(took for _, took in own[len(own) * (steps - 1) // steps :])


@pytest.mark.parametrize(("name", "steps"), [("greedy-v", 2), ("1f1b", 1)])
def test_real_runs(name: str, steps: int) -> None:
    plan = tightpipe.load_schedule(RECORDED / f"{name}-schedule.json").schedule
    found = measure(RECORDED / name, schedule=plan)
    assert (found.steps, found.deviation, found.offsets) == (steps, "", (0, 0))
    assert (
        found.schedule.instance.placement
        == plan.instance.placement
        == measure(RECORDED / name).instance.placement
    )
    for device, account in enumerate(found.accounts):
        count = len(found.schedule.order.to_lists()[device])
        assert account.busy == pytest.approx(
            naive_busy(RECORDED / name / f"rank{device}.json.gz", steps), abs=count
        )
        assert account.charged == account.busy + sum(account.idle.values())
    assert faults(found.schedule, MEASURED) == []
    assert found.instance.infeasibility() is None


MIXED = (
    {"F0.0": (0, 10), "F0.1": (10, 20), "W0.0": (50, 70), "W0.1": (90, 112)},
    {"F1.0": (12, 22), "BW1.0": (22, 42), "F1.1": (42, 52), "B1.1": (52, 64), "W1.1": (64, 73)},
)


def test_a_mix_of_fused_and_split_backwards_and_a_stage_without_b(tmp_path: Path) -> None:
    """PyTorch's own names say as much, once a plan says that stage 0 has no B."""
    costs = {"forward": 10, "backward": [0, 12], "weight": [20, 9], "fused": 20}
    instance = Instance.uniform(devices=2, microbatches=2, placement="linear", objective="step", **costs)
    instance = replace(instance, step=Step(ready=[5, 20], optimizer=7))
    plan = simulate(instance, Order.parse("F0.0 F0.1 W0.0 W0.1\nF1.0 BW1.0 F1.1 B1.1 W1.1"))
    letters = {"F": "F", "B": "I", "W": "W", "BW": "B"}
    torch = [
        {
            f"{name.lstrip('FBW')[0]}{letters[name.rstrip('.01')]}{name[-1]}": times
            for name, times in ran.items()
        }
        for ran in MIXED
    ]
    torch[0] |= {"0I0": (48, 49), "0B1": torch[0].pop("0W1")}  # what does nothing; and a whole backward
    runs = {
        "own": (MIXED, "tightpipe ", None),
        "planned": (MIXED, "tightpipe ", plan),
        "torch": (torch, "PP:", plan),
    }
    for name, (ranges, prefix, schedule) in runs.items():
        (tmp_path / name).mkdir()
        found = measure(*write_kineto(tmp_path / name, ranges, prefix=prefix), schedule=schedule)
        assert found.schedule.order == plan.order, name
        assert found.deviation == (None if schedule is None else "")
        measured = found.instance.costs
        assert (measured.backward, measured.weight, measured.fused) == ((0, 12), (21, 9), (21, 20)), name
        assert faults(found.schedule, MEASURED) == []
        assert found.cost == (112 + 7 if schedule else 112), name
    assert found.instance.step == instance.step
    assert sum("ticks count as microseconds" in text for text in found.warnings) == 1
    halved = measure(*write_kineto(tmp_path)).instance.costs
    assert (halved.backward, halved.weight, halved.fused) == (
        (10, 11),
        (10, 12),
        None,
    )  # as only the sum is known


def test_a_plan_with_a_stage_without_a_backward_is_not_measured(tmp_path: Path) -> None:
    costs = {"forward": 10, "backward": [0, 10], "weight": [0, 10], "placement": "linear"}
    instance = Instance.uniform(devices=2, microbatches=2, **costs)
    frozen = simulate(instance, Order.parse("F0.0 F0.1\nF1.0 BW1.0 F1.1 BW1.1"))
    with pytest.raises(InputError, match="stage = 0: a backward is needed at every stage, this one has none"):
        measure(*write_kineto(tmp_path), schedule=frozen)


def test_microbatches_that_differ_are_measured_class_by_class(tmp_path: Path) -> None:
    """The plan runs the long microbatch 1 first, which its exported file numbers 0; it takes twice as long."""
    classes = [
        MicrobatchClass(1),
        MicrobatchClass(1, forward=20, backward=20, weight=20, memory=Memory(4, -2, -2)),
    ]
    problem = Instance.uniform(
        devices=2,
        forward=10,
        backward=10,
        weight=10,
        placement="linear",
        memory=Memory(2, -1, -1, 9),
        classes=classes,
    )
    plan = simulate(problem, Order.parse("F0.1 F0.0 BW0.1 BW0.0\nF1.1 F1.0 BW1.1 BW1.0"))
    step = (
        {"F0.0": (0, 30), "F0.1": (30, 45), "BW0.0": (130, 190), "BW0.1": (190, 220)},
        {"F1.0": (32, 62), "F1.1": (62, 77), "BW1.0": (77, 127), "BW1.1": (127, 157)},
    )
    found = measure(*write_kineto(tmp_path, step), schedule=plan)
    assert found.deviation == ""
    assert found.cost == 220
    assert {(c.kind.name, c.stage, c.mb_class): c.median for c in found.costs} == {
        ("F", 0, 0): 30,
        ("F", 0, 1): 15,
        ("BW", 0, 0): 60,
        ("BW", 0, 1): 30,
        ("F", 1, 0): 30,
        ("F", 1, 1): 15,
        ("BW", 1, 0): 50,
        ("BW", 1, 1): 30,
    }
    instance = found.instance
    assert [instance.duration_of(Operation.parse(f"F0.{m}")) for m in (0, 1)] == [30, 15]
    assert [instance.memory_of(Operation.parse(f"F0.{m}")) for m in (0, 1)] == [4, 2]
    assert faults(found.schedule, MEASURED) == []
    assert all(account.idle[Cause.STRAGGLER] == 0 for account in found.accounts)
    assert set(variation_table(found.costs).splitlines()[1:]) == {
        f"{stage},{kind},0.0" for stage in (0, 1) for kind in "FBW"
    }


def test_a_plan_in_which_some_microbatches_lack_operations_is_not_measured(tmp_path: Path) -> None:
    classes = [MicrobatchClass(1), MicrobatchClass(1, weight=[10, 0])]
    problem = Instance.uniform(
        devices=2, forward=10, backward=10, weight=10, placement="linear", classes=classes
    )
    plan = simulate(problem, Order.parse("F0.0 F0.1 BW0.0 BW0.1\nF1.0 BW1.0 F1.1 B1.1"))
    with pytest.raises(InputError, match="stage = 1: the same operations are needed for all microbatches"):
        measure(*write_kineto(tmp_path), schedule=plan)
