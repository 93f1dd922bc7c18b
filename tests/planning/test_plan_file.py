"""Plan files: what is written is read back, and a file that does not agree with itself is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.handmade_plans import BLOCK, CLUSTER, LAYERS, SPACE, no_plan, plan, problem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tightpipe import (
    InputError,
    NoScheduleError,
    Placement,
    load_instance,
    load_schedule,
    save_schedule,
    solve,
)
from tightpipe.model.metrics import busy_times, cost
from tightpipe.planning import Batch, Model, Plan, PlanningProblem, load_plan, plan_to_dict, save_plan
from tightpipe.planning.candidate import instance_of

PLANS: dict[str, Callable[[], Plan]] = {
    "recomputed": plan,
    "no limit": lambda: plan(problem(cluster=replace(CLUSTER, memory=None))),
    "one size per device": lambda: plan(problem(cluster=replace(CLUSTER, devices=(2,), memory=(4000, 5000)))),
    "no tokens": lambda: plan(problem(batch=Batch(4))),
    "loop": lambda: plan(placement=Placement("loop", 2)),
    "one stage": lambda: plan(placement=Placement("linear", 1), cuts=(0, 10), recomputed=((),)),
}
CONTRACT = (
    *("status", "cost", "bound", "gap", "placement", "devices", "chunks", "stages", "recomputed"),
    "peak_memory",
)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    made = PLANS[name]()
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made


@st.composite
def cases(draw: st.DrawFn) -> tuple[Placement, tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """A placement, a cut that leaves no stage empty or with the embedding alone, and any layers to recompute."""
    name, chunks = draw(st.sampled_from([("linear", 1), ("linear", 2), ("loop", 2), ("v", 2), ("wave", 2)]))
    placement = Placement(name, draw(st.integers(1, 4)), chunks)
    count = placement.stages - 1
    inner = draw(st.sets(st.integers(2, len(LAYERS) - 1), min_size=count, max_size=count))
    cuts = (0, *sorted(inner), len(LAYERS))
    able = [[i for i, _ in Model(LAYERS).recomputable(*stage, ("full",))] for stage in pairwise(cuts)]
    again = [sorted(draw(st.sets(st.sampled_from(stage)))) if stage else [] for stage in able]
    return placement, cuts, tuple(map(tuple, again))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), microbatches=st.sampled_from([2, 4, 6]))
def test_any_cut_is_read_as_it_was_written(
    case: tuple[Placement, tuple[int, ...], tuple[tuple[int, ...], ...]], microbatches: int, tmp_path: Path
) -> None:
    asked = problem(batch=Batch(microbatches))
    made = plan(asked, *case)
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made


def test_the_figures_have_the_keys_that_scripts_rely_on() -> None:
    figures = plan_to_dict(plan())
    assert set(CONTRACT) <= set(figures)
    assert json.loads(json.dumps(figures)) == figures
    assert figures["stages"] == [[0, 3], [3, 5], [5, 7], [7, 10]]
    assert (figures["placement"], figures["devices"], figures["chunks"]) == ("v", 2, 2)
    assert figures["recomputed"] == [{"full": 2}, {}, {"full": 1}, {}]
    assert figures["recomputed_layers"] == [{"full": [1, 2]}, {}, {"full": [6]}, {}]


def test_throughput_counts_every_pipeline() -> None:
    made = plan()
    figures, ticks = plan_to_dict(made), made.cost
    assert ticks is not None
    assert figures["step_time"] == figures["cost"] == ticks
    assert figures["microbatches_per_second"] == pytest.approx(4 * 3 / (ticks / 1e6))
    assert figures["tokens_per_second"] == pytest.approx(4 * 3 * 1024 / (ticks / 1e6))
    assert plan_to_dict(plan(problem(batch=Batch(4))))["tokens_per_second"] is None


def test_bubble_and_imbalance_are_those_of_the_schedule() -> None:
    made = plan()
    assert made.schedule is not None
    figures, busy = plan_to_dict(made), busy_times(made.schedule)
    assert figures["bubble_rate"] == pytest.approx(1 - busy.max() / cost(made.schedule))
    assert figures["imbalance"] == pytest.approx(busy.max() / busy.mean() - 1)


def test_memory_by_hand() -> None:
    """One microbatch on one device: all activations are held at once.

    An embedding, two blocks of which one is recomputed, a head: 10 + 30 + 8 + 20 bytes, as a recomputed block
    keeps the 8 bytes that W needs. B of the recomputed block takes the other 22 for a while. The layers have
    50 + 100 + 100 + 60 parameters of 3 bytes.
    """
    few = (LAYERS[0], BLOCK, BLOCK, LAYERS[-1])
    for memory, limit in ((4000, 4000), (None, None)):
        asked = problem(few, replace(CLUSTER, memory=memory), Batch(1))
        made = plan(asked, Placement("linear", 1), (0, 4), ((1,),))
        (device,) = plan_to_dict(made)["memory"]
        parts = {"static": 930, "unsharded": 0, "activations": 68, "transient": 22, "reserve": 70}
        assert device == {**parts, "limit": limit}
        assert made.peak_memory == [930 + 68 + 22 + 70]


def test_the_peak_stays_within_the_limit_that_the_schedule_keeps() -> None:
    roomy = plan()
    tight = plan(problem(cluster=replace(CLUSTER, memory=max(roomy.peak_memory or ()) - 1)))
    assert tight.memory is not None
    assert all(device.limit is not None and device.peak <= device.limit for device in tight.memory)


def test_without_a_plan_the_figures_are_none_and_nothing_is_written(tmp_path: Path) -> None:
    figures = plan_to_dict(no_plan())
    assert {key for key, value in figures.items() if value is not None} == {
        *("status", "method", "microbatches", "tick", "unit", "objective"),
        *("reason", "seconds", "considered", "log"),
    }
    assert set(figures) == set(plan_to_dict(plan()))
    with pytest.raises(NoScheduleError, match="infeasible: device 0 lacks 12 bytes"):
        save_plan(no_plan(), tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []


def test_a_schedule_of_another_candidate_is_not_written(tmp_path: Path) -> None:
    other = plan(cuts=(0, 2, 5, 7, 10), recomputed=((), (), (), ()))
    with pytest.raises(InputError, match=r"schedule.instance: is not the one that follows"):
        save_plan(replace(plan(), schedule=other.schedule), tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (problem(cluster=replace(CLUSTER, devices=(1, 4))), "devices = 2: must be one of 1, 4, as the"),
        (problem(space=replace(SPACE, placements=("loop",))), "placement = 'v': must be one of loop, as"),
        (problem(space=replace(SPACE, chunks=(1, 4))), "chunks = 2: must be one of 1, 4, as the problem"),
        (
            problem(space=replace(SPACE, recompute=())),
            r"recomputed_layers\[0\].full = 1: the problem does not",
        ),
        (problem([replace(layer, recompute=()) for layer in LAYERS]), r"layers\[0\].full = 1: the problem"),
    ],
)
def test_a_plan_outside_of_the_search_space_is_not_written(
    asked: PlanningProblem, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        save_plan(replace(plan(), problem=asked), tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []


def test_the_usual_chunks_are_chosen_where_none_are_named(tmp_path: Path) -> None:
    save_plan(plan(problem(space=replace(SPACE, chunks=None))), tmp_path / "plan.json")
    one = plan(problem(space=replace(SPACE, chunks=None)), Placement("loop", 4, 1))
    with pytest.raises(InputError, match="chunks = 1: must be one of 2, as the problem has it"):
        save_plan(one, tmp_path / "other.json")


def test_a_problem_that_cannot_be_written_exactly_is_refused(tmp_path: Path) -> None:
    cluster = replace(CLUSTER, bytes_per_parameter=Fraction(2, 7))
    with pytest.raises(InputError, match=r"problem.cluster = .*: has a fraction that no decimal number"):
        save_plan(plan(problem(cluster=cluster)), tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []
    sharded = problem(cluster=cluster, batch=Batch(4, None, 7))  # 2 bytes over 7 pipelines
    save_plan(plan(sharded), tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").problem == sharded


def changed(data: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {**data, **values}


def moved(data: dict[str, Any]) -> dict[str, Any]:
    """The first operation of the schedule begins 5 ticks later, before the next one has begun."""
    text = json.dumps(data["schedule"])
    (name, start, end), *_ = data["schedule"]["devices"][0]
    old, new = json.dumps([name, start, end]), json.dumps([name, start + 5, end + 5])
    return changed(data, schedule=json.loads(text.replace(old, new, 1)))


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "cost": (lambda d: changed(d, cost=d["cost"] - 1), "cost = .*: must be .*, as it follows"),
    "gap": (lambda d: changed(d, gap=0.5), "gap = 0.5: must be .*, as it follows"),
    "status": (lambda d: changed(d, status="infeasible"), "status = 'infeasible': must be '"),
    "no status": (lambda d: changed(d, status="good"), "status = 'good': must be one of optimal, "),
    "bound": (lambda d: changed(d, bound=d["cost"] + 1), "bound = .*: must be at most the cost"),
    "memory": (lambda d: changed(d, peak_memory=[1, 2]), r"peak_memory = \[1, 2\]: must be "),
    "counts": (lambda d: changed(d, recomputed=[{}] * 4), r"recomputed = .*: must be \[{'full': 2}, {}, "),
    "not recomputed": (
        lambda d: changed(d, recomputed_layers=[{}, {}, {}, {}]),
        "schedule.instance: is not the one that follows from problem and stages",
    ),
    "not in the stage": (
        lambda d: changed(d, recomputed_layers=[{"full": [1]}, {}, {"full": [4]}, {}]),
        r"recomputed_layers\[2\].full = \[4\]: must be layers from 5 to 6, ascending",
    ),
    "no table of kinds": (
        lambda d: changed(d, recomputed_layers=[[1], {}, {}, {}]),
        r"recomputed_layers\[0\] = \[1\]: must be a table of layers by kind",
    ),
    "in two kinds": (
        lambda d: changed(d, recomputed_layers=[{"full": [1], "half": [1]}, {}, {}, {}]),
        r"recomputed_layers\[0\].half = \[1\]: must be layers from 0 to 2, ascending, each in one kind",
    ),
    "of no known kind": (
        lambda d: changed(d, recomputed_layers=[{"half": [1, 2]}, {}, {}, {}]),
        r"recomputed_layers\[0\].half = 1: the problem does not let this layer",
    ),
    "beyond the model": (
        lambda d: changed(d, recomputed_layers=[{"full": [1]}, {}, {}, {"full": [10]}]),
        r"recomputed_layers\[3\].full\[0\] = 10: must be at most 9",
    ),
    "no stages": (lambda d: changed(d, stages=7), "stages = 7: must be a list"),
    "a hole": (
        lambda d: changed(d, stages=[[0, 3], [4, 5], [5, 7], [7, 10]]),
        r"stages = .*: must be \[first, end\] for 4 stages, from layer 0 on to 10",
    ),
    "a stage too few": (lambda d: changed(d, stages=[[0, 3], [3, 7], [7, 10]]), "stages = .*: must be "),
    "an empty stage": (
        lambda d: changed(d, stages=[[0, 3], [3, 3], [3, 7], [7, 10]]),
        r"stages\[1\] = .*: must have a layer: only with search.empty may stages but the first and the last ",
    ),
    "placement": (lambda d: changed(d, placement="w"), "placement = 'w': must be one of linear, v, "),
    "late": (moved, "schedule: the schedule is invalid: "),
    "log": (lambda d: changed(d, log=[{"seconds": "1"}]), r"missing key 'cost' in log\[0\]"),
    "seconds": (lambda d: changed(d, seconds="1"), "seconds = '1': must be a number from 0 to 1000000000000"),
    "considered": (lambda d: changed(d, considered=-1), "considered = -1: must be at least 0"),
    "unknown": (lambda d: changed(d, cots=1), "cots = 1: unknown key"),
    "missing": (lambda d: {k: v for k, v in d.items() if k != "gap"}, "missing key 'gap'"),
    "schedule file": (lambda d: d["schedule"], "is a schedule file, must be a plan file"),
    "list": (lambda d: [d], "must be a table of keys and values, as in a plan file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_does_not_agree_with_itself_is_refused(name: str, tmp_path: Path) -> None:
    change, message = REFUSED[name]
    path = tmp_path / "plan.json"
    save_plan(plan(), path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(InputError, match=message) as refused:
        load_plan(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_a_plan_of_another_problem_is_refused(tmp_path: Path) -> None:
    made = plan()
    save_plan(made, tmp_path / "plan.json")
    save_plan(plan(problem(batch=Batch(6))), tmp_path / "other.json")
    data, other = (json.loads((tmp_path / name).read_text()) for name in ("plan.json", "other.json"))
    (tmp_path / "plan.json").write_text(json.dumps({**data, "problem": other["problem"]}))
    with pytest.raises(InputError, match=r"schedule.instance: is not the one that follows"):
        load_plan(tmp_path / "plan.json")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(plan(), path)
    path.write_text(path.read_text()[:-30])
    with pytest.raises(InputError, match="not JSON, or truncated"):
        load_plan(path)


def test_an_error_in_the_schedule_names_its_place_in_the_plan_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(plan(), path)
    data = json.loads(path.read_text())
    data["schedule"]["devices"][0][0][1] = "soon"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"schedule.devices\[0\]\[0\] = 'soon': must be an integer"):
        load_plan(path)


def test_a_plan_file_serves_as_a_schedule_file(tmp_path: Path) -> None:
    made = plan()
    save_plan(made, tmp_path / "plan.json")
    content = load_schedule(tmp_path / "plan.json")
    assert (content.schedule, content.method) == (made.schedule, made.method)
    assert (content.cost, content.bound) == (made.cost, made.bound)


def test_files_of_other_kinds_are_told_apart(tmp_path: Path) -> None:
    made = plan()
    assert made.candidate is not None
    save_plan(made, tmp_path / "plan.json")
    with pytest.raises(InputError, match="is a plan file, must be an instance file"):
        load_instance(tmp_path / "plan.json")
    found = solve(instance_of(made.problem, made.candidate), "list", time_limit=1).schedule
    assert found is not None
    save_schedule(found, tmp_path / "schedule.json")
    with pytest.raises(InputError, match="is a schedule file, must be a plan file"):
        load_plan(tmp_path / "schedule.json")


WRONG: tuple[Any, ...] = (None, True, -1, 3, 1.5, 10**30, "x", [], [[]], [None], [[0, "1"]], {}, {"a": 1})


UNPROVEN: dict[str, list[object]] = {
    "method": ["x"],
    "reason": ["x"],
    "proof": [None],
    "considered": [3],
    "seconds": [3, 1.5],
    "log": [[]],
    "slices": [[]],  # as the file has it
}
"""What a file may say that nothing in it contradicts."""


def error_of(path: Path) -> str:
    try:
        load_plan(path)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("key", plan_to_dict(plan()) | {"problem": None, "schedule": None})
def test_a_value_of_another_kind_is_refused_in_one_line(key: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(plan(), path)
    data, accepted = json.loads(path.read_text()), []
    for value in WRONG:
        path.write_text(json.dumps({**data, key: value}))
        error = error_of(path)
        assert error.startswith(str(path)) or not error
        assert "\n" not in error
        accepted += [] if error else [value]
    assert accepted == UNPROVEN.get(key, [])
