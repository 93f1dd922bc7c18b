"""Exports: every target reads back as written, what each refuses, nothing half-written."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import instances, mixed_order, random_order, serial_order, wide_instances
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import (
    DeadlockError,
    InputError,
    Instance,
    Memory,
    OpKind,
    Order,
    Schedule,
    retime,
    simulate,
    validate,
)
from tightpipe.drawing import palette
from tightpipe.export import (
    EXPORTS,
    data_sequence,
    export,
    export_text,
    import_order,
    merge_adjacent,
    torch_stage0_instance,
)
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.microbatches import renumbered
from tightpipe.model.operation import COMPUTES
from tightpipe.model.orders import without_absent
from tightpipe.model.placement import PLACEMENTS


def small(placement: str = "v", **more: Any) -> Schedule:
    problem = Instance.uniform(
        devices=2, microbatches=2, forward=3, backward=2, weight=1, comm=1, placement=placement, **more
    )
    return simulate(problem, serial_order(problem))


PAIRED = Order.parse(
    "F0.0 F0.1 F1.2 F1.3+BW1.2 BW1.3 BW0.0 BW0.1\nF0.2 F0.3 F1.0 F1.1+BW1.0 BW1.1 BW0.2 BW0.3"
)


def paired() -> Schedule:
    problem = Instance.uniform(
        devices=2, microbatches=4, forward=1, backward=1, weight=1, placement="bidirectional", overlapped=2
    )
    return simulate(problem, PAIRED)


@settings(deadline=None)
@given(
    st.one_of(instances(), wide_instances()),
    st.integers(0, 999),
    st.sampled_from([random_order, mixed_order]),
    st.sampled_from(sorted(EXPORTS)),
)
def test_every_target_reads_back(problem: Instance, seed: int, make: Any, target: str) -> None:
    schedule = retime(problem, make(problem, seed))
    if validate(problem, schedule) or is_refused(schedule, target):
        with pytest.raises(InputError):
            export_text(schedule, target)
        return
    written = renumbered(schedule, data_sequence(schedule, target)).order
    assert without_absent(problem, EXPORTS[target].read(export_text(schedule, target))) == written


def is_refused(schedule: Schedule, target: str) -> bool:
    """Whether the program of the target cannot run a valid schedule, as the documentation says."""
    problem, order = schedule.instance, schedule.order
    if target == "torch-csv":
        complete = all(problem.has_backward(s) for s in range(problem.stages))
        complete &= all(problem.has(OpKind.B, s) for s in range(1, problem.stages))
        return problem.placement.name == "bidirectional" or not complete
    split = problem.placement.name == "v" and (order.operations[:, 0] != OpKind.BW).all()
    node_list = target in ("megatron-json", "colossalai-json")
    placed = problem.placement.name in ("linear", "loop", "v")
    cannot = order.pairs.any() or not (problem.complete and placed) or (target[0] == "c" and not split)
    cannot |= problem.placement.name == "linear" and problem.placement.stages_per_device > 1
    return node_list and bool(cannot or fuses_in_part(schedule))


def fuses_in_part(schedule: Schedule) -> bool:
    """Whether a microbatch has a fused backward at some stage and a split one at another."""
    backwards = defaultdict(set)
    for kind, _, microbatch in schedule.order.operations.tolist():
        backwards[microbatch].add(kind)
    return any({OpKind.B, OpKind.BW} <= kinds for kinds in backwards.values())


def method_cases() -> list[tuple[str, str]]:
    return [(name, place) for name, h in HEURISTICS.items() for place in PLACEMENTS if place in h.placements]


@pytest.mark.parametrize(("name", "place"), method_cases())
def test_every_method_is_exported(name: str, place: str, tmp_path: Path) -> None:
    problem = Instance.uniform(
        devices=4, microbatches=8, forward=3, backward=4, weight=2, fused=5, comm=1, placement=place
    )
    schedule = retime(problem, HEURISTICS[name].make(problem))
    together = bool(schedule.order.pairs.any())
    for target in ("chrome-trace", "csv"):
        export(schedule, target, tmp_path / target)
        assert import_order(tmp_path / target, target).to_slots() == schedule.order.to_slots()
    if not together and place in ("linear", "loop", "v"):
        if fuses_in_part(schedule):
            with pytest.raises(InputError, match="fuses all backwards of a microbatch or none"):
                export(schedule, "megatron-json", tmp_path / "m.json")
        else:
            export(schedule, "megatron-json", tmp_path / "m.json")
            assert import_order(tmp_path / "m.json", "megatron-json") == schedule.order
    if place != "bidirectional":
        export(schedule, "torch-csv", tmp_path / "t.csv")
        assert import_order(tmp_path / "t.csv", "torch-csv").to_slots() == schedule.order.to_slots()


@pytest.mark.parametrize("target", ["csv", "chrome-trace", "torch-csv"])
def test_operations_that_take_no_time_are_no_pair(target: str) -> None:
    """At an empty stage, B's of two microbatches may follow each other within a tick."""
    entries = {
        "placement": "loop",
        "forward": [10, 0, 10, 12],
        "backward": [12, 0, 12, 11],
        "weight": [8, 0, 8, 8],
    }
    problem = Instance.uniform(devices=2, microbatches=3, **entries)
    order = Order.parse(
        "F0.0 F0.1 F0.2 F2.0 F2.1 F2.2 B2.0 B2.1 B2.2 W2.0 W2.1 W2.2 B0.0 B0.1 B0.2 W0.0 W0.1 W0.2\n"
        "F1.0 F1.1 F1.2 F3.0 F3.1 F3.2 B3.0 B3.1 B3.2 W3.0 W3.1 W3.2 B1.0 B1.1 B1.2"
    )
    text = export_text(simulate(problem, order), target)
    assert without_absent(problem, EXPORTS[target].read(text)) == order


def test_torch_csv_speaks_torch() -> None:
    schedule = small("linear")
    assert export_text(schedule, "torch-csv") == ("0F0,0I0,0W0,0F1,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n")
    merged = "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"
    assert export_text(schedule, "torch-csv", merge=True) == merged
    assert EXPORTS["torch-csv"].read(merged) == merge_adjacent(schedule.order)


def test_torch_csv_overlaps_and_idles() -> None:
    text = "0F0,, 1F0 ,(0F1;1B0)OVERLAP_F_B,0B0,1F1,1B1,0B1\n"
    order = EXPORTS["torch-csv"].read(text)
    assert str(order) == "F0.0 F1.0 F0.1+BW1.0 BW0.0 F1.1 BW1.1 BW0.1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0xyz\n", "row 0 = '0F0xyz': a cell is"),
        ("0F0,0B0\n\n", "row 1 = '': has no operations"),
        ("0F0,0SEND_F0\n", "a cell is"),
        ("(0F0)OVERLAP_F_B\n", "a cell is"),
        ("(0F0;0F1)OVERLAP_F_B\n", "F0.0.F0.1': only an F and a B or BW run together"),
    ],
)
def test_torch_csv_is_read_exactly(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        EXPORTS["torch-csv"].read(text)


def test_torch_csv_reads_a_mix_of_fused_and_split_backwards_for_the_stages_that_have_them(
    tmp_path: Path,
) -> None:
    costs = {"forward": 3, "backward": [0, 4], "weight": [6, 2], "fused": 5, "placement": "linear"}
    problem = Instance.uniform(devices=2, microbatches=2, **costs)
    order = Order.parse("F0.0 F0.1 W0.0 W0.1\nF1.0 B1.0 F1.1 BW1.1 W1.0")
    text = export_text(simulate(problem, order), "torch-csv")
    assert text == "0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1B1,1W0\n"
    for changed in (text, text.replace("0B0", "0I0,0W0"), text.replace("0B1", "0I1,0W1")):
        (tmp_path / "order.csv").write_text(changed)
        assert import_order(tmp_path / "order.csv", "torch-csv", problem) == order
    frozen = replace(problem, costs=replace(problem.costs, weight=(6, 0), fused=None))
    order = Order.parse("F0.0 F0.1 W0.0 W0.1\nF1.0 B1.0 F1.1 B1.1")
    assert export_text(simulate(frozen, order), "torch-csv") == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


@pytest.mark.parametrize(
    ("backward", "weight", "message"),
    [
        ([0, 4], [0, 2], "stage = 0: PyTorch runs a backward at every stage, this one has none"),
        ([0, 0], [0, 2], "stage = 0: PyTorch runs a backward at every stage"),
    ],
)
def test_torch_csv_refuses_stages_without_a_backward(
    backward: list[int], weight: list[int], message: str
) -> None:
    problem = Instance.uniform(
        devices=2, microbatches=2, forward=3, backward=backward, weight=weight, placement="linear"
    )
    with pytest.raises(InputError, match=message):
        export_text(simulate(problem, serial_order(problem)), "torch-csv")


def test_torch_stage0_moves_the_cost_and_the_memory() -> None:
    memory = Memory(forward=3, backward=-2, weight=-1, limit=12)
    problem = small("linear", memory=memory).instance
    torch = torch_stage0_instance(problem)
    assert torch.costs.backward == (0, 2)
    assert torch.costs.weight == (3, 1)
    assert torch.memory is not None
    assert torch.memory.backward == (0, -2)
    assert torch.memory.weight == (-3, -1)


def test_torch_stage0_refuses_what_then_needs_too_much_memory() -> None:
    memory = Memory(forward=3, backward=-3, weight=0, limit=3)
    problem = small("linear", memory=memory).instance
    order = Order.parse("F0.0 B0.0 F0.1 B0.1 W0.0 W0.1\nF1.0 B1.0 W1.0 F1.1 B1.1 W1.1")
    schedule = simulate(problem, order)
    export_text(schedule, "torch-csv")
    with pytest.raises(InputError, match=r"without a B at stage 0.*memory_limit"):
        export_text(schedule, "torch-csv", torch_stage0=True)


def test_node_lists_have_the_runtimes_fields() -> None:
    schedule = small()
    megatron = json.loads(export_text(schedule, "megatron-json"))
    assert megatron[1][0] == {
        "type": "F",
        "stage": 1,
        "microbatch": 0,
        "chunk": 0,
        "layer_group_idx": 1,
        "start_time": 4,
        "completion_time": 7,
        "rollback": False,
    }
    colossal = json.loads(export_text(schedule, "colossalai-json", validation=True))
    assert [n["type"] for n in colossal[1][:3]] == ["SEND_POST_VALIDATION", "POST_VALIDATION", "RECV_FORWARD"]
    assert sorted(colossal[0][0]) == [
        "chunk",
        "completion_time",
        "minibatch",
        "rollback",
        "stage",
        "start_time",
        "type",
    ]


@pytest.mark.parametrize("target", ["torch-csv", "megatron-json", "colossalai-json"])
def test_several_iterations_are_no_step_of_another_program(target: str) -> None:
    problem = replace(small().instance, iterations=2)
    with pytest.raises(InputError, match="iterations = 2: must be 1"):
        export_text(simulate(problem, serial_order(problem)), target)


def test_node_lists_refuse_what_their_runtimes_cannot() -> None:
    with pytest.raises(InputError, match="pairs"):
        export_text(paired(), "megatron-json")
    with pytest.raises(InputError, match="placement = 'linear': must be one that ColossalAI runs: v"):
        export_text(small("linear"), "colossalai-json")
    for place in ("bidirectional", "wave"):
        with pytest.raises(InputError, match="the zero-bubble runtime runs: linear, loop, v"):
            export_text(small(place), "megatron-json")
    problem = small().instance
    fused = simulate(problem, merge_adjacent(serial_order(problem)))
    with pytest.raises(InputError, match="split"):
        export_text(fused, "colossalai-json")
    with pytest.raises(InputError, match="one rank"):
        export_text(paired(), "torch-csv")
    frozen = replace(problem, costs=replace(problem.costs, weight=(1, 0, 1, 1)))
    for target, runtime in (("megatron-json", "the zero-bubble runtime"), ("colossalai-json", "ColossalAI")):
        with pytest.raises(InputError, match=f"{runtime} computes both gradients at every stage"):
            export_text(simulate(frozen, serial_order(frozen)), target)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"type": "S"}, "whose type is one of"),
        ({"type": "F", "stage": 0, "chunk": 2, "minibatch": 0}, "chunk = 2: must be less than 2"),
        ({"type": "F", "stage": 0, "chunk": 0}, "minibatch = None: must be an integer"),
    ],
)
def test_a_strange_node_is_named(node: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EXPORTS["colossalai-json"].read(json.dumps([[node]]))


def test_chrome_trace_has_durations_flows_and_memory() -> None:
    memory = Memory(forward=3, backward=-2, weight=-1, limit=None)
    schedule = small("linear", memory=memory)
    events = json.loads(export_text(schedule, "chrome-trace"))["traceEvents"]
    first = next(e for e in events if e["ph"] == "X")
    assert (first["name"], first["ts"], first["dur"], first["pid"]) == ("F0.0", 0, 3, 0)
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == 4  # forward and backward of two microbatches
    for number, start in starts.items():
        inside = [e for e in events if e["ph"] == "X" and e["pid"] == start["pid"]]
        assert any(e["ts"] < start["ts"] < e["ts"] + e["dur"] for e in inside)
        assert ends[number]["ts"] >= start["ts"] + 1
    names = {e["cat"]: e["cname"] for e in events if e["ph"] == "X"}
    assert names == {kind.name: palette.TRACE_NAMES[kind] for kind in (OpKind.F, OpKind.B, OpKind.W)}
    assert len(set(palette.TRACE_NAMES.values())) == len(COMPUTES)
    counters = [e["args"]["held"] for e in events if e["ph"] == "C" and e["pid"] == 0]
    assert (counters[0], max(counters), counters[-1]) == (3, 3, 0)
    assert EXPORTS["chrome-trace"].read(export_text(paired(), "chrome-trace")).to_slots() == PAIRED.to_slots()


def test_the_memory_of_a_trace_has_forwards_that_hold_it_while_they_run() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=10, backward=0, weight=0, comm=5, placement="linear",
        memory=Memory(2, 0, 0, 2),
    )  # fmt: skip
    text = export_text(simulate(instance, Order.parse("F0.0 F0.1\nF1.0 F1.1")), "chrome-trace")
    levels = [
        (e["pid"], e["ts"], e["args"]["held"]) for e in json.loads(text)["traceEvents"] if e["ph"] == "C"
    ]
    assert levels == [(0, 0, 2), (0, 20, 0), (1, 0, 0), (1, 15, 2), (1, 35, 0)]


def traced(
    events: list[dict[str, Any]], phase: str, *keys: str
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Events of a phase by the given keys."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] == phase:
            groups.setdefault(tuple(event[key] for key in keys), []).append(event)
    return groups


@pytest.mark.parametrize(
    ("method", "place"), [("greedy-v", "v"), ("1f1b", "linear"), ("dualpipe", "bidirectional")]
)
def test_a_chrome_trace_keeps_the_rules_that_viewers_import_by(method: str, place: str) -> None:
    problem = Instance.uniform(
        devices=12,
        microbatches=24,
        forward=3,
        backward=4,
        weight=2,
        comm=1,
        placement=place,
        memory=Memory(2, -1, -1, None),
    )
    events = json.loads(export_text(retime(problem, HEURISTICS[method].make(problem)), "chrome-trace"))[
        "traceEvents"
    ]
    assert {event["ph"] for event in events} == {"M", "X", "C", "s", "f"}
    slices = traced(events, "X", "pid", "tid")
    # one thread is not in two processes, and none is taken for a process's main thread
    assert len({tid for _, tid in slices}) == len(slices)
    assert all(tid not in (0, pid) for pid, tid in slices)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert set(slices) == named
    for track in slices.values():
        track.sort(key=lambda e: e["ts"])
        assert all(e["dur"] > 0 for e in track)
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(track))
    starts, ends = (traced(events, phase, "cat", "name", "id") for phase in "sf")
    assert starts.keys() == ends.keys()
    for key, (start,) in starts.items():
        (end,) = ends[key]
        sender, receiver = key[1].split(" to ")
        for event, name in ((start, sender), (end, receiver)):
            around = [
                e for e in slices[event["pid"], event["tid"]] if e["ts"] <= event["ts"] < e["ts"] + e["dur"]
            ]
            assert [e["name"] for e in around] == [name]
        assert start["ts"] < end["ts"]
    for (_, name), values in traced(events, "C", "pid", "name").items():
        assert name == "memory"
        assert [e["ts"] for e in values] == sorted({e["ts"] for e in values})
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == sorted(names)
    assert len(names) == problem.devices


def test_csv_has_memory_and_pairs() -> None:
    memory = Memory(forward=3, backward=-2, weight=-1, limit=None)
    lines = export_text(small("linear", memory=memory), "csv").splitlines()
    assert lines[:4] == [
        "device,operation,start,end,memory",
        "0,F0.0,0,3,3",
        "0,B0.0,10,12,3",
        "0,W0.0,12,13,1",
    ]
    assert EXPORTS["csv"].read(export_text(paired(), "csv")).to_slots() == PAIRED.to_slots()


@pytest.mark.parametrize("target", sorted(EXPORTS))
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        f"[{'1' * 5000}]",
        "[1]",
        "device,operation\n",
        '{"traceEvents": [{"ph": "X"}]}',
    ],
)
def test_a_file_of_another_format_is_refused(target: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(InputError, match="file"):
        import_order(tmp_path / "file", target)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"pid": 1, "ts": 0, "name": "F0.0", "args": {"row": 0}}, "one after another from 0"),
        ({"pid": -1, "ts": 0, "name": "F0.0", "args": {"row": 0}}, "one after another from 0"),
        ({"pid": 0, "ts": 0, "name": ["F0.0"], "args": {"row": 0}}, "an operation's event has"),
        ({"pid": 0, "ts": 0, "name": "F0.0", "args": []}, "an operation's event has"),
        ({"pid": 0, "ts": 0, "name": "mm", "args": {"row": 0}}, "an operation is"),
    ],
)
def test_a_strange_event_is_named(event: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EXPORTS["chrome-trace"].read(json.dumps({"traceEvents": [{"ph": "X", **event}]}))


def test_an_unknown_target_lists_the_targets_and_an_unknown_option_the_options() -> None:
    with pytest.raises(InputError, match="torch-csv, megatron-json, colossalai-json, chrome-trace, csv"):
        export_text(small(), "perfetto")
    with pytest.raises(InputError, match="it takes merge, torch_stage0"):
        export_text(small(), "torch-csv", fuse=True)


def broken(kind: str) -> Schedule:
    schedule = small("linear")
    order, start, end = schedule.order, np.array(schedule.start), np.array(schedule.end)
    operations = np.array(order.operations)
    if kind == "twice":
        operations[1] = operations[0]
    elif kind == "range":
        operations[0, 2] = 9
    elif kind == "early":
        start[6], end[6] = start[6] - 1, end[6] - 1
    elif kind == "deadlock":
        return Schedule(
            schedule.instance,
            Order.parse("F0.0 F0.1 B0.1 W0.1 B0.0 W0.0\nF1.0 B1.0 W1.0 B1.1 F1.1 W1.1"),
            start,
            end,
        )
    return Schedule(schedule.instance, Order(operations, order.offsets), start, end)


@pytest.mark.parametrize(
    ("kind", "message"),
    [("twice", "runs 2 times"), ("range", "no operation of the instance"), ("early", "before F0.0 arrives")],
)
@pytest.mark.parametrize("target", sorted(EXPORTS))
def test_an_invalid_schedule_is_not_written(kind: str, message: str, target: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        export(broken(kind), target, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_deadlock_is_refused_with_its_cycle(tmp_path: Path) -> None:
    with pytest.raises(DeadlockError, match=r"B1\.1 waits for F1\.1 waits for B1\.1"):
        export(broken("deadlock"), "torch-csv", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
