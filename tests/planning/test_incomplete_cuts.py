"""Cuts whose stages lack F, B or W are not searched, and no answer claims more than is proven for them, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, pairwise, product
from pathlib import Path
from time import perf_counter
from unittest import mock

import pytest
from command_line import call, write
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_models import cases, configuration, taken
from small_models import Cuts, all_cuts, recomputable

from tightpipe import InputError, Placement, Status
from tightpipe.core import budget
from tightpipe.core.allowance import Allowance
from tightpipe.core.budget import UNLIMITED, Budget
from tightpipe.core.instance import Objective
from tightpipe.core.interruption import INTERRUPTED
from tightpipe.core.params.solve_params import params_from_dict
from tightpipe.planning import (
    Batch,
    Candidate,
    Cluster,
    Layer,
    Model,
    PlanningProblem,
    SearchSpace,
    load_plan,
    plan,
    planner,
    save_plan,
)
from tightpipe.planning.candidate import comm_matrix, instance_of
from tightpipe.planning.candidates_by_list import device_stages
from tightpipe.planning.candidates_by_table import kind_of
from tightpipe.planning.configuration import Configuration
from tightpipe.planning.device_bound_kernel import NEVER
from tightpipe.planning.few_candidates import least_sum, least_work
from tightpipe.planning.incomplete_cuts import incomplete_bound
from tightpipe.planning.not_searched import RULE
from tightpipe.planning.problem_file import problem_to_dict
from tightpipe.planning.what_if import what_ifs

OVER = Budget(deadline=0.0)
FROZEN, TRAINED = Layer("frozen", 3, 0, 0), Layer("trained", 1, 1, 1)
BLOCK = Layer("block", 10, 11, 9, activation=3, weight_activation=1, parameters=3)
LINEAR = SearchSpace(("linear",))
BETTER_OUTSIDE = PlanningProblem(Model((FROZEN,) * 2 + (TRAINED,) * 2), Cluster((2,)), Batch(8), LINEAR)


def of_frozen_layers(weight: int = 0) -> PlanningProblem:
    model = Model((Layer("block", 1000, 1000, weight),) * 8)
    return PlanningProblem(model, Cluster((4,)), Batch(8), LINEAR)


def with_embedding(memory: int | None, devices: int = 3) -> PlanningProblem:
    """The embedding has no B. It needs 20 bytes alone, and at least 26 with a block; the others need 16."""
    embedding = Layer("embedding", 1, 0, 3, parameters=20)
    model = Model((embedding, *(BLOCK,) * 4, replace(BLOCK, name="head", parameters=1)))
    return PlanningProblem(model, Cluster((devices,), memory, bytes_per_parameter=1), Batch(8), LINEAR)


# the reference: schedules in which an operation without time is not there


@dataclass
class Work:
    """The operations of one microbatch: for each (kind, stage), the ticks, and what must be done before."""

    ticks: dict[tuple[str, int], int]
    before: dict[tuple[str, int], tuple[tuple[str, int], int] | None]  # with the time of the message


def work_of(problem: PlanningProblem, placement: Placement, cuts: Cuts) -> Work | None:
    """Return the operations that there are; None if no gradient can reach a stage that needs one."""
    layers, (route,) = problem.model.layers, placement.routes
    stages = range(placement.stages)
    parts = [layers[first:end] for first, end in pairwise(cuts)]
    comm = comm_matrix(problem, placement, [part[-1].output or 0 for part in parts])
    ticks = {
        (kind, s): sum(getattr(layer, key) for layer in parts[s])
        for kind, key in (("F", "forward"), ("B", "backward"), ("W", "weight"))
        for s in stages
    }
    trained = [s for s in stages if ticks["B", s] or ticks["W", s]]
    if any(not ticks["B", s] for s in stages if trained and s > trained[0]):
        return None
    before: dict[tuple[str, int], tuple[tuple[str, int], int] | None] = {}
    for s in stages:
        above = (("B", s + 1), comm[route[s + 1]][route[s]]) if s + 1 < len(stages) else (("F", s), 0)
        before["F", s] = (("F", s - 1), comm[route[s - 1]][route[s]]) if s else None
        before["B", s] = above
        before["W", s] = (("B", s), 0) if ticks["B", s] else above
    there = [op for op in ticks if ticks[op] or op[0] == "F"]
    return Work({op: ticks[op] for op in there}, {op: before[op] for op in there})


def cost_of(problem: PlanningProblem, placement: Placement, work: Work, first: str) -> int:
    """Return the cost of a greedy schedule that prefers kinds of operations as `first` lists them."""
    n, (route,) = problem.batch.microbatches, placement.routes
    free = [0] * placement.devices
    spans: list[list[int]] = [[] for _ in free]
    end: dict[tuple[str, int, int], int] = {}
    left = {(*op, m) for op in work.ticks for m in range(n)}
    while left:
        ready = []
        for kind, s, m in left:
            before = work.before[kind, s]
            key = None if before is None else (*before[0], m)
            if key is None or key in end:
                arrives = 0 if key is None or before is None else end[key] + before[1]
                start = max(arrives, free[route[s]])
                ready.append((start, first.index(kind), m, s, kind))
        start, _, m, s, kind = min(ready)
        end[kind, s, m] = free[route[s]] = start + work.ticks[kind, s]
        spans[route[s]] += [start, free[route[s]]]
        left.remove((kind, s, m))
    ends = [(min(span), max(span)) for span in spans]
    if problem.space.objective is not Objective.DEVICE_SPAN:
        return max(last for _, last in ends)
    return max(last - start for start, last in ends)


def incomplete(problem: PlanningProblem, placement: Placement) -> Iterator[Cuts]:
    model = problem.model
    for cuts in all_cuts(len(model.layers), placement.stages):
        parts = [model.layers[first:end] for first, end in pairwise(cuts)]
        if not all(
            sum(getattr(layer, key) for layer in part)
            for part in parts
            for key in ("forward", "backward", "weight")
        ):
            yield cuts


def outside(problem: PlanningProblem, placement: Placement) -> Iterator[tuple[Cuts, int]]:
    """Yield each incomplete cut for which there are schedules, with the least cost of some of them."""
    for cuts in incomplete(problem, placement):
        work = work_of(problem, placement, cuts)
        if work is not None:
            yield cuts, min(cost_of(problem, placement, work, first) for first in ("BFW", "BWF", "FBW"))


# the bound


@st.composite
def frozen_cases(draw: st.DrawFn) -> tuple[PlanningProblem, Placement]:
    """Draw a problem whose first layers are frozen or lack just B, or in which some layers have no W."""
    problem, placement = draw(cases(6))
    layers = [
        replace(layer, **{key: max(1, getattr(layer, key)) for key in ("forward", "backward", "weight")})
        for layer in problem.model.layers
    ]
    first = draw(st.integers(0, len(layers)))
    lacking = draw(st.sampled_from([{"backward": 0}, {"backward": 0, "weight": 0}]))
    layers[:first] = [replace(layer, **lacking) for layer in layers[:first]]
    without_w = draw(st.sets(st.integers(0, len(layers) - 1)))
    layers = [replace(layer, weight=0) if k in without_w else layer for k, layer in enumerate(layers)]
    cluster = replace(problem.cluster, memory=None)
    return replace(problem, model=Model(tuple(layers)), cluster=cluster), placement


@given(frozen_cases())
@settings(max_examples=200)
def test_no_bound_is_above_a_schedule_without_the_missing_operations(
    case: tuple[PlanningProblem, Placement],
) -> None:
    problem, placement = case
    asked = configuration(problem, placement)
    devices = device_stages(asked, asked.arrays(partial=True))
    found = dict(outside(problem, placement))
    for cuts, cost in found.items():
        assert max(device.ways(cuts)[0].bound for device in devices) <= cost
    for until in (OVER, UNLIMITED):
        assert incomplete_bound([asked], NEVER, until) <= min(found.values(), default=NEVER)


@given(cases())
def test_the_bound_is_the_least_of_all_incomplete_cuts(case: tuple[PlanningProblem, Placement]) -> None:
    """Tables over sets of layers find what a look at every cut finds, also below a cap."""
    problem, placement = case
    asked = configuration(problem, placement)
    assume(kind_of(asked) is not None)
    devices = device_stages(asked, asked.arrays(partial=True))
    bounds = [
        max(ways[0].bound if (ways := device.ways(cuts)) else NEVER for device in devices)
        for cuts in incomplete(problem, placement)
    ]
    least = min(bounds, default=NEVER)
    by_work = NEVER if least == NEVER else least_sum(asked)
    assert incomplete_bound([asked], NEVER) == max(least, by_work)
    for cap in (least - 1, least, least + 1):
        if by_work < cap < NEVER:
            assert min(cap, incomplete_bound([asked], cap)) == min(cap, least)


@given(frozen_cases(), st.integers(0, 40))
def test_a_bound_that_is_given_up_at_any_time_is_no_larger_than_with_more_time(
    case: tuple[PlanningProblem, Placement], looks: int
) -> None:
    """The clock goes on by a second whenever it is looked at."""
    asked = configuration(*case)
    with mock.patch.object(budget, "perf_counter", count().__next__):
        found = incomplete_bound([asked], NEVER, Budget(deadline=looks))
    assert found <= incomplete_bound([asked], NEVER)


@pytest.mark.parametrize(
    ("placement", "layers"),
    [(Placement("v", 8), 400), (Placement("loop", 8), 160), (Placement("linear", 2, 2), 31)],
)
def test_the_bound_looks_at_the_clock(placement: Placement, layers: int) -> None:
    half = layers // 2
    model = tuple(replace(BLOCK, forward=1000 + k, weight=0 if k < half else 900) for k in range(layers))
    problem = PlanningProblem(Model(model), Cluster((placement.devices,)), Batch(8), LINEAR)
    asked, begun = configuration(problem, placement), perf_counter()
    assert least_work(asked) <= incomplete_bound([asked], NEVER, UNLIMITED.within(0.2)) < NEVER
    assert perf_counter() - begun < 20  # a generous limit for a busy machine


def test_too_many_ways_to_recompute_leave_the_bound_of_the_work() -> None:
    """The bytes and ticks of each layer are a power of two, so no way to recompute is worse than another one."""
    layers = tuple(
        Layer(f"layer {k}", 2**k, 1, 0 if k < 7 else 1, activation=2**k, input=0, output=1) for k in range(14)
    )
    space = SearchSpace(("linear",), recompute=True)
    problem = PlanningProblem(Model(layers), Cluster((2,), 2**13), Batch(2), space)
    asked = configuration(problem, Placement("linear", 2))
    with pytest.raises(InputError, match="too much"):
        asked.arrays()
    assert least_work(asked) <= incomplete_bound([asked], NEVER) < NEVER


def test_a_stage_has_no_b_because_something_is_recomputed() -> None:
    """B would take a tick only because F runs again in it."""
    thin = Layer("thin", 3, 0, 2, activation=8, input=2)
    model = Model((thin, *(BLOCK,) * 3))
    problem = PlanningProblem(model, Cluster((2,)), Batch(4), SearchSpace(("linear",), recompute=True))
    for cuts, again in product(all_cuts(4, 2), recomputable(problem, 0, 1)):
        candidate = Candidate(Placement("linear", 2), cuts, (again, ()))
        if cuts[1] == 1:
            with pytest.raises(
                InputError, match=r"layers = \[0, 1\]: a stage of layers 0 to 0 has no F, no B"
            ):
                instance_of(problem, candidate)
        else:
            assert instance_of(problem, candidate).stages == 2
    all_thin = replace(problem, model=Model((thin,) * 4))
    assert list(taken(all_thin, Placement("linear", 2))) == []
    assert plan(all_thin, time_limit=2, workers=1).schedule is None


@given(frozen_cases())
def test_the_finest_cuts_have_the_most_stages_with_f_b_and_w(case: tuple[PlanningProblem, Placement]) -> None:
    model = case[0].model
    layers, finest = len(model.layers), model.finest_cuts()
    stages = [
        count
        for count in range(1, layers + 1)
        if any(all(model.is_complete(*s) for s in pairwise(cuts)) for cuts in all_cuts(layers, count))
    ]
    assert len(finest) - 1 == max(stages, default=0)
    assert all(model.is_complete(*stage) for stage in pairwise(finest))
    assert finest[-1] == (layers if stages else 0)


# what is said


def says_the_rule(text: str) -> bool:
    return RULE in text


def test_a_plan_is_not_optimal_where_a_cut_that_is_not_searched_is_better(tmp_path: Path) -> None:
    """Two stages with F alone, or with everything, take 6 ticks each: 48 for all microbatches."""
    found = plan(BETTER_OUTSIDE, time_limit=5, workers=1)
    assert (found.status, found.cost) == (Status.FEASIBLE, 72)
    assert found.bound is not None
    assert found.bound <= min(cost for _, cost in outside(BETTER_OUTSIDE, Placement("linear", 2))) == 48
    assert "this plan is the best one within the cuts in which every stage has F, B and W" in found.reason
    assert all(map(says_the_rule, (found.reason, found.not_searched, str(found))))
    assert [entry.bound for entry in found.log if entry.bound is not None and entry.bound > found.bound] == []
    save_plan(found, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").not_searched == found.not_searched


@pytest.mark.parametrize("weight", [0, 1])
def test_frozen_layers_are_named_where_there_is_no_plan(weight: int) -> None:
    """Without W no stage has all three; with it every cut is searched."""
    found = plan(of_frozen_layers(weight), time_limit=5, workers=1)
    assert (found.schedule is None) == (weight == 0) == bool(found.not_searched)
    if weight == 0:
        assert (found.status, found.bound) == (Status.UNKNOWN, 8 * 2 * 2000)
        assert says_the_rule(found.reason)


def test_nothing_is_infeasible_that_fits_in_a_cut_that_is_not_searched() -> None:
    for memory in (20, 25):
        found = plan(with_embedding(memory), time_limit=5, workers=1)
        assert (found.status, found.schedule) == (Status.UNKNOWN, None)
        assert says_the_rule(found.reason)
        assert f"lacks {26 - memory} bytes" in found.reason
    answer = plan(with_embedding(19), time_limit=5, workers=1)
    assert answer.status is Status.INFEASIBLE
    assert answer.reason.startswith("no partition fits")
    assert answer.reason.endswith(f"; cuts with {RULE} do not fit, either")
    assert plan(with_embedding(26), time_limit=5, workers=1).schedule is not None


def test_a_plan_is_optimal_where_no_cut_that_is_not_searched_is_better() -> None:
    found = plan(with_embedding(None, 2), time_limit=20, workers=1)
    assert found.status is Status.OPTIMAL
    assert says_the_rule(found.not_searched)
    assert found.reason == ""


@pytest.mark.parametrize("grace", [0.0, 0.5])
def test_no_more_is_said_than_is_proven_when_time_is_up_at_once(grace: float) -> None:
    """The bounds get `grace` seconds; the last problem does not fit, but that takes time to prove."""
    params = params_from_dict({"plan.bounding_least": grace})
    better, frozen, fits, fits_not = (
        plan(problem, time_limit=0, workers=1, params=params)
        for problem in (BETTER_OUTSIDE, of_frozen_layers(), with_embedding(20), with_embedding(19))
    )
    assert better.status in (Status.FEASIBLE, Status.UNKNOWN)
    assert better.bound is not None
    assert better.bound <= 48
    assert (frozen.status, fits.status) == (Status.UNKNOWN, Status.UNKNOWN)
    assert all(map(says_the_rule, (better.not_searched, frozen.reason, fits.reason, fits_not.reason)))
    assert fits_not.status is (Status.INFEASIBLE if grace else Status.UNKNOWN)


def test_a_signal_during_the_last_bound_keeps_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(configurations: list[Configuration], cap: int, until: Budget) -> int:
        if until.left > 0:
            raise KeyboardInterrupt
        return incomplete_bound(configurations, cap, until)

    monkeypatch.setattr(planner, "incomplete_bound", interrupted)
    found = plan(BETTER_OUTSIDE, time_limit=5, workers=1)
    assert (found.status, found.reason, found.cost) == (Status.FEASIBLE, INTERRUPTED, 72)
    assert found.bound == least_work(configuration(BETTER_OUTSIDE, Placement("linear", 2)))


def test_nothing_is_said_where_every_cut_is_searched() -> None:
    """A layer in the middle is no stage of two, and one device has one stage."""
    inner = Model((BLOCK, FROZEN, BLOCK))
    for model, devices in ((Model((BLOCK,) * 3), 3), (inner, 2), (Model((FROZEN, BLOCK)), 1)):
        found = plan(PlanningProblem(model, Cluster((devices,)), Batch(2), LINEAR), time_limit=2, workers=1)
        assert found.not_searched == ""
        assert "not_searched" not in str(found)


def test_a_moved_layer_may_leave_a_stage_without_b_and_w() -> None:
    """From [frozen, frozen, trained | trained, trained] one move is searched: it makes a device work 12 ticks."""
    problem = replace(BETTER_OUTSIDE, model=Model((FROZEN,) * 2 + (TRAINED,) * 3))
    moved, nowhere = (
        list(what_ifs(now, Allowance(1, 1), lambda _: lambda _: None))[-1]
        for now in (plan(problem, time_limit=2, workers=1), plan(BETTER_OUTSIDE, time_limit=2, workers=1))
    )
    assert (moved.change, moved.bound, moved.cost) == ("one layer moved", 8 * 9, 8 * 12)
    assert (nowhere.bound, nowhere.cost) == (8 * 6, None)
    assert "F, B and W at every stage" in nowhere.reason


def test_each_form_of_the_answer_names_the_rule(tmp_path: Path) -> None:
    model = write(tmp_path, problem_to_dict(BETTER_OUTSIDE), "model.json")
    output = tmp_path / "plan.json"
    options = ("--time-limit", "2", "--workers", "1")
    text = call("plan", model, "-o", output, *options).stdout
    shown = json.loads(call("plan", model, "--json", *options).stdout)
    kept = json.loads(output.read_text())
    explained = call("explain", output, "--no-relax").stdout
    explained_json = json.loads(call("explain", output, "--no-relax", "--json").stdout)
    assert shown["status"] == kept["status"] == "feasible"
    forms = (text, explained, *(data["not_searched"] for data in (shown, kept, explained_json)))
    assert all(map(says_the_rule, forms))
    none = write(tmp_path, problem_to_dict(of_frozen_layers()), "none.json")
    done = call("plan", none, *options)
    assert done.returncode == 1
    assert done.stderr.startswith("tightpipe: unknown: ")
    assert says_the_rule(done.stderr)
    shown = json.loads(call("plan", none, "--json", *options).stdout)
    assert (shown["status"], says_the_rule(shown["reason"])) == ("unknown", True)
