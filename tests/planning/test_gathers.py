"""Gathers beside a schedule: times by an event loop of its own, all orders of a tiny case, and what plans say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.clock import counted_time
from helpers.command_line import call
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import (
    InputError,
    Instance,
    Operation,
    OpKind,
    Order,
    Placement,
    load_plan,
    plan,
    retime,
    save_plan,
)
from tightpipe.base.errors import ContradictionError
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.result import Proof, ignore
from tightpipe.params.budget import UNLIMITED, Allowance
from tightpipe.planning import Candidate, Plan, PlanningProblem, problem_from_dict
from tightpipe.planning.alternatives import Family, uniform_plan
from tightpipe.planning.candidate import check_candidate, instance_of
from tightpipe.planning.candidate_pool import CandidatePool
from tightpipe.planning.configuration import configurations_of
from tightpipe.planning.gathers import gather_counts, gathers_of, step_ticks, with_gathers
from tightpipe.planning.planner import sources_of
from tightpipe.planning.problem_file import problem_to_dict

F, B, W, BW = OpKind.F, OpKind.B, OpKind.W, OpKind.BW


def problem_of(
    sizes: list[int], placement: str = "loop", chunks: int = 2, *, microbatches: int = 3, **cluster: Any
) -> PlanningProblem:
    """Layers of some numbers of parameters; a gather takes 3/4 x 2 bytes of each, a reduction 3/4 x 4."""
    layer = {"forward": 3, "backward": 4, "weight": 2, "activation": 30, "weight_activation": 10, "output": 5}
    search = {"placements": [placement], **({"chunks": [chunks]} if placement in ("loop", "wave") else {})}
    given = {"devices": 2, "sharding": "parameters", "reduce_bandwidth": 1, "comm": 1, **cluster}
    batch = {"microbatches": microbatches, "data_parallel": 4}
    layers = [{**layer, "parameters": size} for size in sizes]
    return problem_from_dict({"layers": layers, "cluster": given, "batch": batch, "search": search})


def candidate_of(problem: PlanningProblem, resident: int | None) -> Candidate:
    """One layer on each stage."""
    stages, space = len(problem.model.layers), problem.space
    devices = problem.cluster.devices[0]
    placement = Placement(space.placements[0], devices, stages // devices)
    return Candidate(placement, tuple(range(stages + 1)), ((),) * stages, resident=resident)


def awaited(instance: Instance, kind: OpKind, stage: int, m: int) -> Iterator[tuple[set[OpKind], int, int]]:
    """What an operation waits for: kinds of which one runs, its stage, and the ticks of the message."""
    comm, device, last = instance.costs.comm, instance.device, instance.stages - 1
    if kind is F and stage:
        yield {F}, stage - 1, comm[device(stage - 1, m)][device(stage, m)]  # type: ignore[index]
    elif kind in (B, BW):
        yield {F}, stage, 0
        if stage < last:
            yield {B, BW}, stage + 1, comm[device(stage + 1, m)][device(stage, m)]  # type: ignore[index]
    elif kind is W:
        yield {B}, stage, 0


def replayed(
    instance: Instance, order: list[list[Operation]], gather: list[int], resident: int
) -> tuple[int, dict[Operation, int]]:
    """An event loop that does what PyTorch does: the cost of the step, and when each operation starts."""
    reduce = list(instance.step.reduce)  # type: ignore[union-attr,arg-type]
    end, start = dict[Operation, int](), dict[Operation, int]()
    place, now, free = ([0] * len(order) for _ in range(3))
    there: list[dict[int, int]] = [{} for _ in order]
    waiting = set(range(len(order)))
    while waiting:
        progress = False
        for d in sorted(waiting):
            line, i = order[d], place[d]
            soon = list(dict.fromkeys(op.stage for op in line[i:]))[:resident]
            there[d] = {stage: done for stage, done in there[d].items() if stage in soon}  # RESHARD
            for stage in soon:
                if stage not in there[d]:  # UNSHARD
                    free[d] = there[d][stage] = max(free[d], now[d]) + gather[stage]
            op = line[i]
            needs = [
                (
                    next(
                        (end[one] for k in kinds if (one := Operation(k, stage, op.microbatch)) in end), None
                    ),
                    lag,
                )
                for kinds, stage, lag in awaited(instance, op.kind, op.stage, op.microbatch)
            ]
            if any(ended is None for ended, _ in needs):
                continue
            start[op] = max(
                [now[d], there[d][op.stage], *(ended + lag for ended, lag in needs if ended is not None)]
            )
            now[d] = end[op] = start[op] + instance.duration(op.kind, op.stage)
            place[d], progress = i + 1, True
            if all(other.stage != op.stage for other in line[i + 1 :]):  # REDUCE_GRAD
                free[d] = max(free[d], now[d]) + reduce[op.stage]
            if i + 1 == len(line):
                waiting.remove(d)
        assert progress
    done = [max(*both) for both in zip(now, free, strict=True)]
    return max(map(sum, zip(done, instance.step.optimizer, strict=True))), start  # type: ignore[union-attr,arg-type]


CASES = st.tuples(
    st.sampled_from([("loop", 2), ("loop", 3), ("wave", 4), ("v", 2)]),
    st.lists(st.integers(0, 9), min_size=8, max_size=8),
    st.integers(1, 4),
    st.sampled_from(["list", "interleaved-1f1b", "gpipe", "greedy-v"]),
    st.integers(2, 5),
)


def case(place: tuple[str, int], sizes: list[int], name: str, n: int) -> tuple[PlanningProblem, str]:
    able = HEURISTICS[name].placements
    return problem_of(sizes[: 2 * place[1]], *place, microbatches=n), name if place[0] in able else "list"


@settings(deadline=None, max_examples=150)
@given(CASES)
def test_times_are_those_of_an_event_loop(drawn: tuple[Any, ...]) -> None:
    place, sizes, resident, name, n = drawn
    problem, method = case(place, sizes, name, n)
    candidate = candidate_of(problem, min(resident, place[1]))
    instance = instance_of(problem, candidate)
    schedule = retime(instance, HEURISTICS[method].make(instance))
    timed = with_gathers(problem, candidate, schedule)
    gather = [-(-3 * size // 2) for size in sizes]
    expected, start = replayed(instance, schedule.order.to_lists(), gather, min(resident, place[1]))
    found = {timed.order.operation_at(row): int(timed.start[row]) for row in range(len(timed.order))}
    assert found == start
    assert step_ticks(problem, candidate, timed) == expected
    if resident >= place[1]:
        assert timed is schedule


@settings(deadline=None, max_examples=100)
@given(CASES)
def test_more_residency_is_never_slower_for_the_same_order(drawn: tuple[Any, ...]) -> None:
    place, sizes, _, name, n = drawn
    problem, method = case(place, sizes, name, n)
    instance = instance_of(problem, candidate_of(problem, None))
    order = HEURISTICS[method].make(instance)
    costs, counts = list[int](), list[int]()
    for resident in range(1, place[1] + 1):
        candidate = candidate_of(problem, resident)
        timed = with_gathers(problem, candidate, retime(instance, order))
        costs.append(step_ticks(problem, candidate, timed))
        counts.append(sum(gather_counts(problem, candidate, order) or ()))
    assert costs == sorted(costs, reverse=True)
    assert counts == sorted(counts, reverse=True)


def test_gathers_by_hand() -> None:
    def counts(stages: list[int], resident: int) -> Counter[int]:
        return Counter(gather.stage for gather in gathers_of(stages, resident))

    assert counts([0, 0, 2, 2, 0, 2], 1) == {0: 2, 2: 2}
    assert counts([0, 0, 2, 2, 0, 2], 2) == {0: 1, 2: 1}
    assert counts([0, 1, 0, 2, 0, 1], 2) == {0: 1, 1: 2, 2: 1}
    assert gathers_of([0, 1, 2, 0], 2) == [(0, -1, 0), (1, -1, 1), (2, 0, 2), (0, 1, 3)]


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 6))
def test_whoever_gathers_ahead_gathers_no_less_often(stages: list[int], resident: int) -> None:
    """Fewest gathers: only a stage that is needed is gathered, in place of the one that is needed last."""
    there, count = set[int](), 0
    for i, stage in enumerate(stages):
        if stage not in there:
            later = stages[i + 1 :]
            if len(there) == resident:
                there.remove(max(there, key=lambda s: later.index(s) if s in later else len(stages)))
            there.add(stage)
            count += 1
    assert len(gathers_of(stages, resident)) >= count


# plans


def orders(instance: Instance) -> Iterator[list[list[Operation]]]:
    """All orders of one device in which every operation comes after what it needs."""
    n, last = instance.microbatches, instance.stages - 1

    def after(left: dict[tuple[OpKind, int], int], kind: OpKind, stage: int) -> bool:
        done = n - left[kind, stage]
        if kind is F:
            return stage == 0 or n - left[F, stage - 1] > done
        if kind is W:
            return n - left[B, stage] > done
        behind = n - left[F, last] if stage == last else n - left[B, stage + 1]
        return behind > done

    def go(left: dict[tuple[OpKind, int], int], line: list[Operation]) -> Iterator[list[Operation]]:
        if not any(left.values()):
            yield line
        for (kind, stage), count in left.items():
            if count and after(left, kind, stage):
                yield from go({**left, (kind, stage): count - 1}, [*line, Operation(kind, stage, n - count)])

    every = {(kind, stage): n for kind in (F, B, W) for stage in range(instance.stages)}
    for line in go(every, []):
        yield [line]


def peak(instance: Instance, line: list[Operation]) -> int:
    """The most bytes of activations at a time: F takes 30, B frees 20 and W 10."""
    held = most = 0
    for op in line:
        held += {F: 30, B: -20, W: -10}[op.kind]
        most = max(most, held)
    return most


@pytest.mark.parametrize("memory", [None, 60 * 8 + 60, 60 * 8 + 90, 60 * 8 + 120, 60 * 8 + 160, 60 * 8 + 180])
def test_the_best_of_all_orders_and_residencies_of_a_device(memory: int | None) -> None:
    """Two stages of 40 and 20 parameters on one device: 8 bytes of each always, 2 while its stage is gathered."""
    problem = problem_of(
        [40, 20], "loop", 2, microbatches=2, devices=1, **({} if memory is None else {"memory": memory})
    )
    best = None
    for resident in (1, 2):
        candidate = candidate_of(problem, resident)
        try:
            instance = instance_of(problem, candidate)
        except InputError:
            continue
        limit = instance.memory_limit(0)
        for lists in orders(instance):
            if limit is None or peak(instance, lists[0]) <= limit:
                ticks, _ = replayed(instance, lists, [60, 30], resident)
                best = ticks if best is None else min(best, ticks)
    found = plan(problem, time_limit=None, workers=1)
    assert found.cost is not None or best is None
    if best is not None and found.cost is not None and found.bound is not None:
        assert found.bound <= best <= found.cost
        assert (found.status == "optimal") == (found.cost == found.bound)
        assert bool(found.reason) == (found.status == "feasible")  # the search ends, and says why


def scarce(**cluster: Any) -> PlanningProblem:
    """Four stages of 40 parameters on two devices, each with room for one more microbatch if one is gathered."""
    return problem_of([40] * 4, "loop", 2, microbatches=4, **{"memory": 80 * 8 + 80 + 90, **cluster})


@pytest.fixture(scope="module")
def gathering() -> Plan:
    with counted_time():
        return plan(scarce(resident=1), time_limit=3, workers=1)


def test_a_plan_that_gathers_again_is_optimal_only_if_its_time_is_the_bound(gathering: Plan) -> None:
    problem = gathering.problem
    assert gathering.schedule is not None
    assert gathering.candidate is not None
    assert gathering.cost is not None
    assert gathering.bound is not None
    untimed = retime(gathering.schedule.instance, gathering.schedule.order)
    with pytest.raises(InputError, match="starts before its stage is gathered"):
        step_ticks(problem, gathering.candidate, untimed)
    gather = [60] * 4
    ticks, _ = replayed(untimed.instance, untimed.order.to_lists(), gather, 1)
    assert gathering.cost == ticks > gathering.bound
    assert gathering.status == "feasible"
    again = sum(gathering.gathers or ()) - 4
    assert (
        f"1 of 2 stages of a device at once (PyTorch keeps 3), {again + 4} gathers a step, {again} of them again: "
        in str(gathering)
    )
    assert "by which the step is " in str(gathering)


def test_residency_is_a_decision_of_the_plan(gathering: Plan) -> None:
    fewer = scarce(memory=80 * 8 + 80 + 60)  # all gathered, none would fit
    with counted_time():
        ample, small, both = (
            plan(asked, time_limit=3, workers=1) for asked in (scarce(memory=10000), fewer, scarce())
        )
    assert ample.candidate is not None
    assert ample.candidate.resident == 2
    assert ample.gathers == [1] * 4
    assert small.candidate is not None
    assert small.candidate.resident == 1
    assert both.bound is not None
    assert gathering.cost is not None
    assert both.bound <= gathering.cost
    for found in (ample, small, both):
        assert found.cost is not None
        assert (found.status == "optimal") == (found.cost == found.bound)


def test_a_file_says_how_many_stages_stay_gathered(gathering: Plan, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    save_plan(gathering, file)
    assert load_plan(file).cost == gathering.cost
    data = json.loads(file.read_text())
    assert data["resident"] == 1
    assert data["schedule"].get("bound") is None  # the instance knows no later gathers
    rule = "must be one of 1, as the problem has it"
    file.write_text(json.dumps({**data, "resident": 2}))
    done = call("explain", file, "--time-limit", "0")
    assert (done.returncode, done.stderr) == (2, f"tightpipe: {file}: resident = 2: {rule}\n")
    file.write_text(json.dumps({**data, "resident": None}))
    with pytest.raises(InputError, match="resident = None: must be one of 1"):
        load_plan(file)
    untimed = retime(gathering.schedule.instance, gathering.schedule.order)  # type: ignore[union-attr]
    with pytest.raises(InputError, match="starts before its stage is gathered"):
        save_plan(replace(gathering, schedule=untimed), file)


def test_a_bound_of_one_residency_is_none_of_another() -> None:
    """Fewer gathered stages leave room, so that their cuts may be cheaper."""
    problem = scarce(memory=10000)
    sources = sources_of(configurations_of(problem), UNLIMITED)
    pool = CandidatePool(problem, sources, ignore)
    assert [source.configuration.resident for source in sources] == [2, 1]
    pool.prove(sources[0].configuration, 10**6, Proof.CP_SAT)
    assert pool.bound_of(sources[0]) == 10**6
    assert pool.bound_of(sources[1]) == sources[1].bound < 10**6


def test_uniform_splits_are_tried_with_fewer_gathered_stages() -> None:
    problem = scarce(memory=80 * 8 + 80 + 60)
    family = Family("list", "loop", problem)
    found = uniform_plan(family, Allowance(1, 1))
    assert found.candidate is not None
    assert found.candidate.resident == 1  # both have no room
    check_candidate(family.problem, found.candidate)
    with pytest.raises(InputError, match="must be one of 2, 1"):
        check_candidate(family.problem, replace(found.candidate, resident=None))


def test_a_bound_of_plans_above_the_cost_of_one_is_an_error() -> None:
    problem = scarce(memory=10000)
    sources = sources_of(configurations_of(problem), UNLIMITED)
    pool = CandidatePool(problem, sources, ignore)
    for source in sources:
        pool.prove(source.configuration, 10**6, Proof.CP_SAT)
    with pytest.raises(ContradictionError, match="of all plans"):
        pool.look_at(candidate_of(problem, 2), ["list"])


def test_pairs_are_refused_where_pytorch_keeps_fewer_stages_than_a_device_has() -> None:
    asked = problem_to_dict(problem_of([40] * 8, "wave", 4))
    asked["search"] |= {"runtime": "torch", "methods": ["dualpipe-v"]}
    with pytest.raises(InputError, match="keeps 3 stages gathered, and must keep all 4 of a device where"):
        problem_from_dict(asked)


def test_pairs_are_refused_where_stages_are_gathered_again() -> None:
    problem = scarce(resident=1)
    candidate = candidate_of(problem, 1)
    instance = instance_of(problem, candidate)
    order = HEURISTICS["interleaved-1f1b"].make(replace(instance, memory=None))
    slots = order.to_slots()
    line = next(
        k for k, (one, two) in enumerate(pairwise(slots[0])) if one[0].kind is F and two[0].kind is BW
    )
    slots[0][line : line + 2] = [(slots[0][line][0], slots[0][line + 1][0])]
    with pytest.raises(InputError, match="runs pairs of operations"):
        with_gathers(problem, candidate, retime(replace(instance, memory=None), Order.from_slots(slots)))


def test_a_bound_of_plans_with_a_fixed_order_is_none_of_the_instance(tmp_path: Path) -> None:
    """Another order of the same instance may cost less than every 1F1B."""
    asked = problem_to_dict(problem_of([40] * 4, "linear", 1, devices=4))
    asked["search"] |= {"methods": ["1f1b"]}
    found = plan(problem_from_dict(asked), time_limit=None, workers=1)
    assert found.bound is not None
    save_plan(found, tmp_path / "plan.json")
    data = json.loads((tmp_path / "plan.json").read_text())
    assert (data["bound"], data["schedule"].get("bound")) == (found.bound, None)
    assert load_plan(tmp_path / "plan.json").bound == found.bound
