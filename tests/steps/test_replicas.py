"""Assignments of microbatches to replicas: optima, bounds, local search, and what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers.clock import counted_time
from helpers.command_line import call
from helpers.independent_model import optimal_schedule
from hypothesis import given
from hypothesis import strategies as st
from steps.test_step_planner import law

from tightpipe import (
    CostLaw,
    InputError,
    Instance,
    Law,
    NoScheduleError,
    Placement,
    Result,
    Step,
    StepPlanner,
    load_schedule,
    validate,
)
from tightpipe.model.instance_file import save_law
from tightpipe.model.law import microbatches_of
from tightpipe.model.metrics import cost
from tightpipe.steps.replicas import assignment_bound, balanced, joint_cost


def random_law(rng: random.Random, objective: str) -> CostLaw:
    """Two devices, with fused backwards that may be cheaper; in half of the cases stage 0 has no B."""

    def laws(times: int = 1) -> tuple[Law, Law]:
        return Law(rng.randint(0, 3), times * rng.randint(1, 3)), Law(rng.randint(0, 3), times)

    backward = laws()
    if rng.random() < 0.5:
        backward = (Law(), backward[1])
    step = Step(rng.randint(0, 4), rng.randint(0, 6), rng.randint(0, 4)) if objective == "step" else None
    return CostLaw(
        *(Placement("linear", 2), laws(), backward, laws()),
        fused=laws(2) if rng.random() < 0.5 else None,
        comm=rng.choice((rng.randint(0, 2), Law(0, rng.choice((0.5, 2))))),
        objective=objective,  # type: ignore[arg-type]
        step=step,
    )


def assignments(count: int, replicas: int) -> Iterator[list[list[int]]]:
    """Every assignment that leaves no replica empty, with all names of replicas."""
    for homes in product(range(replicas), repeat=count):
        if len(set(homes)) == replicas:
            yield [[m for m in range(count) if homes[m] == r] for r in range(replicas)]


@pytest.mark.parametrize("objective", ["device_span", "makespan", "step"])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_and_costs_of_small_batches_enclose_the_optimum(objective: str, seed: int) -> None:
    """The least cost of a slowest replica, from every assignment and an independent model of each replica."""
    rng = random.Random(seed)
    costs, lengths = random_law(rng, objective), [rng.randint(1, 9) for _ in range(4)]
    known: dict[tuple[int, ...], int] = {}

    def least(part: list[int]) -> int:
        key = tuple(sorted(lengths[m] for m in part))
        if key not in known:
            known[key] = cost(optimal_schedule(costs.instance(key)))
        return known[key]

    slowest = min(max(map(least, parts)) for parts in assignments(4, 2))
    bound = assignment_bound(costs, microbatches_of(lengths), 2)
    with counted_time():
        found = StepPlanner(costs).assign(lengths, 2, time_limit=5)
    assert bound <= found.bound <= slowest
    if objective != "step":  # reductions wait for the slower replica, which the bound leaves out
        assert found.cost == found.bound == slowest
    else:
        assert slowest <= found.cost


@pytest.mark.parametrize(
    ("tokens", "batch", "replicas"), [(0.5, (60, 60, *[10] * 6), 2), (10, (100, *[1] * 9), 1)]
)
def test_bounds_hold_where_messages_of_short_microbatches_are_fast(
    tokens: float, batch: tuple[int, ...], replicas: int
) -> None:
    """Alone, the longest microbatch would wait for its messages longer than beside short ones."""
    times = (Law(0, 1), Law(0, 1))
    costs = CostLaw(Placement("linear", 2), times, times, times, comm=Law(0, tokens), objective="makespan")  # type: ignore[arg-type]
    planner = StepPlanner(costs, method="list")
    parts = balanced(np.array(batch)[:, None], replicas)
    found = [planner.order([batch[m] for m in part], time_limit=0).cost for part in parts]
    assert assignment_bound(costs, microbatches_of(batch), replicas) <= max(c for c in found if c is not None)


def test_the_command_divides_a_batch_among_replicas(tmp_path: Path) -> None:
    save_law(law(Placement("linear", 2)), tmp_path / "law.json")
    (tmp_path / "l.csv").write_text("length\n" + "\n".join(map(str, [900, 10, 500, 420, 33, 7])) + "\n")
    words = ("solve", "law.json", "--lengths", "l.csv", "--replicas", "2", "--time-limit", "2")
    done = call(*words, "-o", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    numbers = [replica["microbatches"] for replica in said["replicas"]]
    assert sorted(m for part in numbers for m in part) == list(range(6))
    assert said["bound"] <= said["cost"] == max(replica["cost"] for replica in said["replicas"])
    for r, replica in enumerate(said["replicas"]):
        content = load_schedule(tmp_path / "out" / f"replica-{r}.json")
        assert cost(content.schedule) == replica["cost"]
        assert content.schedule.instance.microbatches == len(replica["microbatches"])


def test_a_folder_has_the_schedules_of_the_last_call_alone(tmp_path: Path) -> None:
    save_law(law(Placement("linear", 2)), tmp_path / "law.json")
    (tmp_path / "l.csv").write_text("length\n30\n10\n20\n")
    words = ("solve", "law.json", "--lengths", "l.csv", "--method", "list", "-o", "out", "--replicas")
    assert call(*words, "4", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "out").exists()
    save_law(law(Placement("v", 2), limit=30), tmp_path / "scarce.json")
    assert call("solve", "scarce.json", *words[2:], "1", cwd=tmp_path).returncode == 1
    assert not (tmp_path / "out").exists()
    for replicas in (3, 1):
        done = call(*words, replicas, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        names = sorted(path.name for path in (tmp_path / "out").iterdir())
        assert names == [f"replica-{r}.json" for r in range(replicas)]
    removed = [f"tightpipe: removed out/replica-{r}.json, of an earlier call" for r in (1, 2)]
    assert done.stderr.splitlines()[-2:] == removed


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--lengths", "l.csv", "--replicas", "3"),
            "replicas = 3: must be at most the number of microbatches, 2",
        ),
        (("--replicas", "2"), "--replicas = 2: goes with --lengths"),
        (("--lengths", "l.csv", "--replicas", "2", "-o", "law.json"), "law.json: "),
        (("--lengths", "l.csv", "--replicas", "2", "--effort", "1"), "--effort: does not go with --replicas"),
    ],
)
def test_a_wrong_call_for_replicas_is_one_line(words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    save_law(law(Placement("linear", 2)), tmp_path / "law.json")
    (tmp_path / "l.csv").write_text("5\n6\n")
    done = call("solve", "law.json", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert line in said


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=4, max_size=30), st.integers(1, 4)
)
def test_every_microbatch_is_on_one_replica_and_no_swap_would_help(
    work: list[tuple[int, int]], replicas: int
) -> None:
    table = np.array(work)
    parts = balanced(table, replicas)
    assert sorted(m for part in parts for m in part) == list(range(len(work)))
    assert all(parts)
    loads = [int(table[list(part)].sum(0).max()) for part in parts]
    slowest = loads.index(max(loads))
    for r, part in enumerate(parts):
        for goes in parts[slowest] if r != slowest and len(parts[slowest]) > 1 else ():
            left = table[[m for m in parts[slowest] if m != goes]].sum(0).max()
            grown = table[[*part, goes]].sum(0).max()
            assert max(left, grown) >= loads[slowest] or loads.count(max(loads)) > 1


def test_large_batches_are_balanced_and_bounded() -> None:
    planner = StepPlanner(law(Placement("linear", 4), objective="makespan"))
    rng = random.Random(48)
    lengths = [max(1, round(1000 * rng.lognormvariate(0, 0.8))) for _ in range(48)]
    with counted_time():
        found = planner.assign(lengths, 4, time_limit=3)
    assert sorted(m for part in found.parts for m in part) == list(range(48))
    assert found.bound <= found.cost
    costs = [result.cost for result in found.results]
    assert found.cost == max(c for c in costs if c is not None)
    arrival = [planner.order(lengths[r::4], time_limit=0).cost for r in range(4)]
    assert found.cost < max(c for c in arrival if c is not None)
    for part, result in zip(found.parts, found.results, strict=True):
        assert result.schedule is not None
        assert validate(result.instance, result.schedule) == []
        assert result.instance == planner.law.instance([lengths[m] for m in part])


@pytest.mark.parametrize("replicas", [1, 1200])
def test_many_microbatches_can_be_divided_in_one_way(replicas: int) -> None:
    planner = StepPlanner(law(Placement("linear", 2)), method="list")
    found = planner.assign([5] * 1200, replicas, time_limit=0)
    assert len(found.parts) == replicas
    assert sorted(m for part in found.parts for m in part) == list(range(1200))


@pytest.mark.parametrize(("count", "replicas"), [(5, 2), (14, 3)])
def test_an_assignment_without_schedules_is_left_out(
    count: int, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the replicas of the first assignment have a list schedule."""
    planner = StepPlanner(law(Placement("linear", 2), objective="makespan"), method="list")
    rng, quick, asked = random.Random(0), planner.quick, list[Instance]()

    def first_only(instance: Instance) -> Result:
        asked.append(instance)
        found = quick(instance)
        return found if len(asked) <= replicas else replace(found, schedule=None, reason="no room")

    monkeypatch.setattr(planner, "quick", first_only)
    found = planner.assign([rng.randint(1, 2000) for _ in range(count)], replicas, time_limit=1)
    assert len(asked) > replicas
    assert {result.instance for result in found.results} == set(asked[:replicas])
    assert found.bound <= found.cost


def test_reductions_wait_for_the_slowest_replica() -> None:
    """Alone, the first replica would reduce both stages at once; here it waits for the second."""
    times = (Law(0, 1), Law(0, 1))
    step = Step(reduce=[5, 7], optimizer=[1, 2])
    costs = CostLaw(Placement("linear", 2), times, times, times, objective="step", step=step)  # type: ignore[arg-type]
    planner = StepPlanner(costs, method="list")
    schedules = [planner.order([length], time_limit=0).schedule for length in (2, 10)]
    assert all(schedules)
    slow = schedules[1]
    ends = [max(slow.end[slow.order.rows(device)]) for device in (0, 1)]  # type: ignore[union-attr]
    assert joint_cost(schedules) == max(ends[0] + 5 + 1, ends[1] + 7 + 2)  # type: ignore[arg-type]


def test_what_cannot_be_assigned_is_one_line() -> None:
    planner = StepPlanner(law(Placement("linear", 2)), method="list")
    with pytest.raises(InputError, match="replicas = 3: must be at most the number of microbatches, 2"):
        planner.assign([5, 6], 3)
    with pytest.raises(InputError, match="replicas = 0: must be at least 1"):
        planner.assign([5, 6], 0)
    both = StepPlanner(law(Placement("bidirectional", 2)), method="list")
    with pytest.raises(InputError, match="placement = 'bidirectional': must have one route"):
        both.assign([5, 6], 2)
    scarce = StepPlanner(law(Placement("v", 2), limit=10), method="list")
    with pytest.raises(
        NoScheduleError, match=r"no schedule of microbatches of .* tokens: memory limit 10 of"
    ):
        scarce.assign([9, 8], 1)
