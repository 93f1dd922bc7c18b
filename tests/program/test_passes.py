"""Overlap passes: their guarantees on any graph, what each does, on programs, as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cases import instances, random_order
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Order, simulate
from tightpipe.heuristics import HEURISTICS
from tightpipe.program import NodeType, check_program, lower, replay
from tightpipe.program.passes import (
    PASSES,
    decide_global_ordering_of_comms,
    raise_comms,
    raise_comms_within_memory,
    reorder_compute_for_overlap,
    run_passes,
    sink_waits,
    sink_waits_within_memory,
)
from tightpipe.program.program_passes import device_tasks, overlap_program
from tightpipe.program.tasks import (
    Task,
    TaskKind,
    Tasks,
    check_tasks,
    exposed_time,
    load_tasks,
    peak_memory,
    save_tasks,
    tasks_from_dict,
    visualize_overlap,
)


def compute(name: str, duration: int, *inputs: str, **more: Any) -> Task:
    return Task(name, TaskKind.COMPUTE, duration, inputs, **more)


def start(name: str, duration: int, *inputs: str, **more: Any) -> Task:
    return Task(name, TaskKind.START, duration, inputs, **more)


def wait(name: str, *inputs: str) -> Task:
    return Task(name, TaskKind.WAIT, inputs=inputs)


def names(tasks: Tasks) -> str:
    return " ".join(task.name for task in tasks)


@st.composite
def graphs(draw: st.DrawFn) -> Tasks:
    """Runnable lists: any dependencies backwards, several peers and links, memory, some without waits."""
    tasks: list[Task] = []
    running: list[str] = []
    for k in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["compute", "start", "wait"] if running else ["compute", "start"]))
        earlier = [task.name for task in tasks if task.kind is not TaskKind.START]
        inputs = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=3)) if earlier else []
        name, duration = f"n{k}", draw(st.integers(0, 9))
        if kind == "wait":
            which = running.pop(draw(st.integers(0, len(running) - 1)))
            tasks.append(wait(name, which, *inputs))
        elif kind == "start":
            peer = draw(st.sampled_from(["", "x", "y"]))
            link = draw(st.sampled_from(["", peer]))
            ready, buffer = draw(st.integers(0, 20)), draw(st.integers(0, 5))
            tasks.append(start(name, duration, *inputs, peer=peer, link=link, ready=ready, buffer=buffer))
            running.append(name)
        else:
            memory, buffer = draw(st.integers(-3, 3)), draw(st.integers(0, 5))
            tasks.append(compute(name, duration, *inputs, memory=memory, buffer=buffer))
    return check_tasks(tasks)


def starts_by_peer(tasks: Tasks) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for task in tasks:
        if task.kind is TaskKind.START:
            found.setdefault(task.peer, []).append(task.name)
    return found


def check_permutation(before: Tasks, after: Tasks) -> None:
    assert sorted(task.name for task in before) == sorted(task.name for task in after)
    check_tasks(after)  # inputs come first
    assert starts_by_peer(after) == starts_by_peer(before)


@settings(deadline=None, max_examples=200)
@given(graphs(), st.sampled_from(sorted(PASSES)), st.one_of(st.none(), st.integers(0, 30)))
def test_guarantees_of_every_pass(tasks: Tasks, name: str, budget: int | None) -> None:
    after, [report] = run_passes(tasks, [name], budget=budget)
    check_permutation(tasks, after)
    assert exposed_time(after) == report.exposed_after <= report.exposed_before == exposed_time(tasks)
    if budget is not None:
        assert peak_memory(after) <= max(budget, peak_memory(tasks))
    if name.endswith("within_memory"):
        assert peak_memory(after) <= max(budget or 0, peak_memory(tasks))
        assert report.kept


@settings(deadline=None, max_examples=200)
@given(graphs())
def test_greedy_passes_and_swaps_never_expose_more_by_themselves(tasks: Tasks) -> None:
    for one in (sink_waits, raise_comms, raise_comms_within_memory, sink_waits_within_memory):
        after = one(tasks)
        check_permutation(tasks, after)
        assert exposed_time(after) <= exposed_time(tasks)
    check_permutation(tasks, reorder_compute_for_overlap(tasks))


@settings(deadline=None)
@given(graphs())
def test_swaps_keep_account_of_the_memory(tasks: Tasks) -> None:
    everything = sum(max(task.memory, 0) + task.buffer for task in tasks)
    up = raise_comms_within_memory(tasks, everything)
    assert peak_memory(up) <= everything
    tight = raise_comms_within_memory(tasks)
    assert peak_memory(tight) <= peak_memory(tasks)


@settings(deadline=None)
@given(graphs())
def test_a_graph_survives_its_file(tmp_path_factory: pytest.TempPathFactory, tasks: Tasks) -> None:
    path = tmp_path_factory.mktemp("graph") / "graph.json"
    save_tasks(tasks, path)
    assert load_tasks(path) == tasks


CHAIN = (
    compute("a", 5),
    start("s", 8, "a"),
    wait("w", "s"),
    compute("b", 6),
    compute("c", 2, "w"),
)


def test_sinking_hides_what_runs_before_the_use() -> None:
    assert names(sink_waits(CHAIN)) == "a s b w c"
    assert (exposed_time(CHAIN), exposed_time(sink_waits(CHAIN))) == (8, 2)


def test_raising_stops_at_the_input() -> None:
    late = check_tasks(
        (compute("a", 5), compute("b", 6), start("s", 8, "a"), wait("w", "s"), compute("c", 2, "w"))
    )
    assert names(raise_comms(late)) == "a s b w c"
    free = check_tasks((compute("a", 5), start("s", 8), start("t", 1), wait("w", "s")))
    assert names(raise_comms(free)) == "s t a w"


def test_reordering_fills_a_communication_with_what_it_does_not_need() -> None:
    tasks = check_tasks(
        (
            start("s0", 10),
            wait("w0", "s0"),
            compute("x", 4, "w0"),
            start("s1", 3, "x"),
            compute("free", 7),
            compute("more", 9),
            wait("w1", "s1"),
        )
    )
    order = names(reorder_compute_for_overlap(tasks))
    assert order == "s0 free w0 x s1 more w1"  # of `more` less than half would be hidden behind 3 ticks
    assert exposed_time(reorder_compute_for_overlap(tasks)) < exposed_time(tasks)
    for free, first in ((10, "s0 free w0"), (0, "s0 free more w0")):
        others = tuple(replace(t, duration=free) if t.name == "free" else t for t in tasks)
        assert names(reorder_compute_for_overlap(others)).startswith(first)


def test_global_order_makes_each_start_wait_for_the_one_before() -> None:
    tasks = check_tasks((start("s", 1), start("t", 1), wait("w", "t"), start("u", 1, "w")))
    assert [task.inputs for task in decide_global_ordering_of_comms(tasks)] == [
        (),
        ("s",),
        ("t",),
        ("w", "t"),
    ]


def test_memory_stops_a_start() -> None:
    tasks = check_tasks(
        (
            compute("a", 5, memory=4),
            compute("b", 5, memory=-4),
            start("s", 8, buffer=3),
            wait("w", "s"),
            compute("c", 1, "w"),
        )
    )
    assert peak_memory(tasks) == 4
    assert names(raise_comms_within_memory(tasks)) == "a b s w c"
    assert names(raise_comms_within_memory(tasks, 7)) == "s a b w c"
    assert peak_memory(raise_comms(tasks)) == 7
    kept, [report] = run_passes(tasks, ["raise_comms"], budget=4)
    assert (kept, report.kept) == (tasks, False)


def test_the_picture_reports_two_at_once() -> None:
    tasks = check_tasks((start("s", 4), start("t", 4), compute("a", 3), wait("w", "s"), compute("b", 2, "w")))
    assert visualize_overlap(tasks).splitlines() == [
        "start s (4)",
        "| start t (4)",
        "| | compute a (3)",
        "| wait w",
        "| compute b (2)",
        "6 ticks, 1 of them exposed communication, peak memory 0",
        "1 communications start while another is running",
    ]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ((compute("a", 1), compute("a", 1)), "another node has this name"),
        ((compute("a", 1, "b"), compute("b", 1)), "earlier node"),
        ((compute("a", 1), wait("w", "a")), "names exactly one start that is running"),
        ((start("s", 1), wait("w", "s"), wait("v", "s")), "no other wait names it"),
        ((compute("a", -1),), "at least 0"),
    ],
)
def test_what_is_no_runnable_list(tasks: Tasks, message: str) -> None:
    with pytest.raises(InputError, match=message):
        visualize_overlap(tasks)
    with pytest.raises(InputError, match=message):
        run_passes(tasks)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "must be a table"),
        ({"nodes": 3}, "must be a list of nodes"),
        ({"nodes": [{"name": "a"}]}, "missing key 'kind'"),
        ({"nodes": [{"name": "a", "kind": "send"}]}, r"nodes\[0\]\.kind = 'send': must be one of compute"),
        ({"nodes": [{"name": "a", "kind": "compute", "time": 3}]}, "unknown key"),
        ({"nodes": [{"name": 1, "kind": "compute"}]}, "must be a text"),
        ({"nodes": [{"name": "a", "kind": "compute", "duration": 1.5}]}, r"nodes\[0\]\.duration = 1.5"),
        ({"nodes": [{"name": "a", "kind": "compute", "inputs": "b"}]}, "list of names"),
    ],
)
def test_bad_graph_files(data: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=message):
        load_tasks(path)


def test_a_link_is_its_peer_unless_it_is_given() -> None:
    [one, two] = tasks_from_dict(
        {
            "nodes": [
                {"name": "s", "kind": "start", "peer": "data"},
                {"name": "t", "kind": "start", "peer": "data", "link": ""},
            ]
        }
    )
    assert (one.link, two.link) == ("data", "")


def test_unknown_passes_are_listed() -> None:
    with pytest.raises(InputError, match="must be one of sink_waits, raise_comms"):
        run_passes(CHAIN, ["sink"])


@settings(deadline=None, max_examples=60)
@given(instances(), st.integers(0, 999))
def test_on_programs_sinking_and_raising_give_back_the_schedule(problem: Instance, seed: int) -> None:
    schedule = simulate(problem, random_order(problem, seed))
    program, reports = overlap_program(schedule)
    check_program(program)
    assert all(report.kept for report in reports)
    assert replay(program).schedule == schedule  # all waits at their use: nothing is lost


@settings(deadline=None, max_examples=60)
@given(instances(), st.integers(0, 999), st.lists(st.sampled_from(sorted(PASSES)), max_size=3))
def test_no_pass_makes_a_program_worse(problem: Instance, seed: int, passes: list[str]) -> None:
    schedule = simulate(problem, random_order(problem, seed))
    before = replay(lower(schedule, validation=False, waits=True)).schedule
    program, reports = overlap_program(schedule, passes)
    check_program(program)
    assert replay(program).schedule.end.max() <= before.end.max()
    waits = [r.waited_before for r in reports] + [r.waited_after for r in reports[-1:]]
    assert waits == sorted(waits, reverse=True)


def test_blocking_receives_of_a_real_schedule_are_hidden_again() -> None:
    problem = Instance.uniform(devices=4, microbatches=8, forward=30, backward=30, weight=20, comm=10)
    schedule = simulate(problem, HEURISTICS["greedy-v"].make(problem))
    program, reports = overlap_program(schedule, ["sink_waits", "raise_comms_within_memory"])
    assert reports[0].waited_after < reports[0].waited_before
    assert replay(program).cost <= replay(lower(schedule, validation=False)).cost


def test_pairs_and_device_lists() -> None:
    problem = Instance.uniform(
        devices=2, microbatches=4, forward=1, backward=1, weight=1, placement="bidirectional", overlapped=2
    )
    order = Order.parse(
        "F0.0 F0.1 F1.2 F1.3+BW1.2 BW1.3 BW0.0 BW0.1\nF0.2 F0.3 F1.0 F1.1+BW1.0 BW1.1 BW0.2 BW0.3"
    )
    schedule = simulate(problem, order)
    program = lower(schedule, validation=False, waits=True)
    tasks = check_tasks(device_tasks(program, 0))
    assert next(t for t in tasks if "+" in t.name).inputs == ("WAIT_FORWARD1.3", "F1.2")
    assert overlap_program(schedule)[0].order.to_slots() == order.to_slots()


def test_programs_that_the_passes_do_not_take() -> None:
    problem = Instance.uniform(devices=2, microbatches=2, forward=1, backward=1, weight=1)
    schedule = simulate(problem, random_order(problem, 0))
    with pytest.raises(InputError, match="validation=False"):
        device_tasks(lower(schedule, waits=True), 0)
    with pytest.raises(InputError, match="waits=True"):
        device_tasks(lower(schedule, validation=False), 0)
    assert NodeType.WAIT_FORWARD in [n.type for n in lower(schedule, waits=True).devices[1]]
