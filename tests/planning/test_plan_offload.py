"""Offload in plans: what may leave by hand, cuts and bounds against all candidates, and what plans and files say."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.clock import counted_time
from helpers.command_line import call, write
from helpers.random_models import cases, configuration, taken
from helpers.small_models import candidates, optimum
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InputError, OpKind, Placement, Status, drawing, validate
from tightpipe.base.errors import NoScheduleError
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost
from tightpipe.planning import (
    Batch,
    Candidate,
    Cluster,
    Layer,
    Model,
    Plan,
    PlanningProblem,
    Recomputation,
    SearchSpace,
    load_plan,
    load_problem,
    plan,
    problem_from_dict,
    problem_to_dict,
    save_plan,
    split_of,
)
from tightpipe.planning.candidate import bytes_lacking, instance_of, numbers_of
from tightpipe.planning.cluster import Host
from tightpipe.planning.device_bound_kernel import NEVER
from tightpipe.planning.partitions import least_excess, partitions_of
from tightpipe.planning.plan_table import draw_memory_frontier, memory_points
from tightpipe.planning.search import Search
from tightpipe.registry.starts import schedule_of

KINDS = (Recomputation("selective", 2, 22, weight_activation=6, transient=3), Recomputation("full", 10, 5))
BLOCK = Layer("block", 10, 11, 9, activation=30, weight_activation=8, recompute=KINDS, offload=24)
HOST = Host(Fraction(8), Fraction(6), shared=2)
LINE = Placement("linear", 2)
WHOLE = Candidate(LINE, (0, 2, 4), ((), ()))


def asked(
    memory: int | None = 75,
    host: Host | None = HOST,
    layers: int = 4,
    space: SearchSpace | None = None,
    batch: int = 6,
) -> PlanningProblem:
    cluster = Cluster((2,), memory, host=host)
    return PlanningProblem(Model((BLOCK,) * layers), cluster, Batch(batch), space or SearchSpace(("linear",)))


# instances


def test_copies_take_what_may_leave_over_the_device_s_part_of_the_link() -> None:
    """Two blocks let 48 bytes leave, at 4 bytes per tick out and 3 back."""
    offload = instance_of(asked(), WHOLE).offload
    assert offload is not None
    assert (offload.memory, offload.out, offload.back, offload.duplex) == ((48, 48), (12, 12), (16, 16), True)
    alone = replace(HOST, shared=1, duplex=False)
    offload = instance_of(asked(host=alone), WHOLE).offload
    assert offload is not None
    assert (offload.out, offload.back, offload.duplex) == ((6, 6), (8, 8), False)


def test_what_recomputation_drops_no_longer_leaves() -> None:
    """A selective block drops 8 of the 24 bytes that may leave, and a full one, which keeps 8, 22 of them."""
    again = replace(WHOLE, recomputed=(((0, "selective"), (1, "full")), ()))
    problem = asked(space=SearchSpace(("linear",), recompute=("selective", "full")))
    assert [stage.leaving for stage in numbers_of(problem, again)] == [24 - 8 + 24 - 22, 48]


def test_the_host_holds_what_leaves_of_all_microbatches() -> None:
    """500 bytes for 6 microbatches are 83 for each; of two stages on a device each has half of them."""
    small = replace(HOST, memory=500)
    assert [stage.leaving for stage in numbers_of(asked(host=small), WHOLE)] == [48, 48]
    assert [stage.leaving for stage in numbers_of(asked(host=small, batch=12), WHOLE)] == [41, 41]
    folded = Candidate(Placement("v", 2), (0, 2, 4, 6, 8), ((),) * 4)
    assert [stage.leaving for stage in numbers_of(asked(host=small, layers=8), folded)] == [41] * 4


def test_nothing_leaves_without_a_host_or_a_backward() -> None:
    assert instance_of(asked(host=None), WHOLE).offload is None
    frozen = replace(BLOCK, backward=0, weight=0, recompute=())
    mixed = replace(asked(), model=Model((frozen, frozen, BLOCK, BLOCK)))
    assert [stage.leaving for stage in numbers_of(mixed, WHOLE)] == [0, 48]


# all candidates


@st.composite
def offloading(draw: st.DrawFn) -> tuple[PlanningProblem, Placement]:
    """Few layers of which a part may leave, in scarce memory, over links of any speed."""
    kinds = [("linear", 1), ("v", 2), ("loop", 2), ("linear", 2), ("loop", 3)]
    problem, placement = draw(cases(5, kinds))
    layers = {
        layer: replace(layer, offload=draw(st.integers(0, layer.activation)))
        for layer in dict.fromkeys(problem.model.layers)
    }
    speed = st.builds(Fraction, st.integers(1, 40), st.just(2))
    share = draw(st.one_of(st.none(), st.integers(1, 60)))
    host = Host(draw(speed), draw(speed), draw(st.integers(1, 2)), draw(st.booleans()), share)
    size = sum(layer.activation for layer in problem.model.layers)
    static = problem.cluster.static_bytes(sum(layer.parameters for layer in problem.model.layers))
    memory = problem.cluster.reserve + static + draw(st.integers(1, 1 + 2 * size))
    cluster = replace(problem.cluster, memory=memory, host=host)
    model = Model(tuple(layers[layer] for layer in problem.model.layers))
    return replace(problem, model=model, cluster=cluster), placement


def fitting(problem: PlanningProblem, placement: Placement) -> Iterator[Candidate]:
    """Yield the candidates whose instance has a schedule."""
    for candidate in candidates(problem, placement):
        with suppress(InputError):
            if instance_of(problem, candidate).infeasibility() is None:
                yield candidate


def is_as_good(problem: PlanningProblem, one: Candidate, other: Candidate) -> bool:
    """Return whether a candidate takes no more time, bytes and copies at any stage than one of the same cuts."""
    pairs = zip(numbers_of(problem, one), numbers_of(problem, other), strict=True)
    return one.cuts == other.cuts and all(
        a.backward <= b.backward
        and a.held <= b.held
        and a.freed_by_weight <= b.freed_by_weight
        and a.transient <= b.transient
        and a.leaving <= b.leaving
        and a.held - a.leaving <= b.held - b.leaving
        for a, b in pairs
    )


@given(offloading())
@settings(max_examples=60)
def test_of_all_candidates_that_fit_the_best_ones_come(case: tuple[PlanningProblem, Placement]) -> None:
    problem, placement = case
    found = [candidate for _, candidate in taken(problem, placement)]
    assert len(found) == len(set(found))
    for candidate in fitting(problem, placement):
        assert any(is_as_good(problem, one, candidate) for one in found)
    for one in found:
        assert max(bytes_lacking(problem, one)) == 0


@given(offloading())
@settings(max_examples=60)
def test_bytes_lack_where_no_schedule_exists(case: tuple[PlanningProblem, Placement]) -> None:
    problem, placement = case
    some = list(islice(candidates(problem, placement), 200))
    fits = set(fitting(problem, placement))
    assert [max(bytes_lacking(problem, one)) == 0 for one in some if possible(problem, one)] == [
        one in fits for one in some if possible(problem, one)
    ]


@given(offloading())
@settings(max_examples=60)
def test_the_least_excess_with_offload_is_that_of_all_candidates(
    case: tuple[PlanningProblem, Placement],
) -> None:
    problem, placement = case
    lacking = [
        max(bytes_lacking(problem, one)) for one in candidates(problem, placement) if possible(problem, one)
    ]
    assert least_excess(configuration(problem, placement)) == min(lacking, default=NEVER)


def possible(problem: PlanningProblem, candidate: Candidate) -> bool:
    """Return whether the layers can be cut so, whatever the memory."""
    roomy = replace(problem, cluster=replace(problem.cluster, memory=10**9, host=None))
    with suppress(InputError):
        return instance_of(roomy, candidate) is not None
    return False


@given(offloading())
@settings(max_examples=60)
def test_no_bound_is_above_a_schedule_with_copies(case: tuple[PlanningProblem, Placement]) -> None:
    problem, placement = case
    for bound, candidate in islice(taken(problem, placement), 3):
        instance = instance_of(problem, candidate)
        for heuristic in (HEURISTICS["list"], HEURISTICS["due-date"]):
            with suppress(NoScheduleError):
                assert bound <= cost(schedule_of(instance, heuristic))


@pytest.mark.parametrize("seed", range(2))
def test_a_plan_with_offload_is_the_best_of_all_candidates(seed: int) -> None:
    rng, kinds = random.Random(seed), (Recomputation("full", 4, 2, transient=0),)
    layers = tuple(
        Layer(
            f"{k}",
            *(rng.randint(2, 7) for _ in range(3)),
            activation=6,
            weight_activation=2,
            recompute=kinds,
            offload=5,
        )
        for k in range(3)
    )
    space = SearchSpace(("linear",), recompute=("full",))
    cluster = Cluster((2,), 13 + seed, comm=1, host=Host(Fraction(3), Fraction(2)))
    small = PlanningProblem(Model(layers), cluster, Batch(3), space)
    best, found = optimum(small), plan(small, time_limit=20, workers=1)
    assert best is not None
    assert found.cost == best
    assert found.bound is not None
    assert found.bound <= best


def test_the_bound_of_a_partition_knows_how_fast_copies_are() -> None:
    """Much more memory is held than there is: the slower the link, the longer a step of any plan takes."""
    many = asked(62, batch=40)
    bounds = [
        partitions_of(configuration(replace(many, cluster=replace(many.cluster, host=host)), LINE)).bound
        for host in (Host(Fraction(rate), Fraction(rate)) for rate in (Fraction(1, 50), 1, 50))
    ]
    without = partitions_of(
        configuration(replace(many, cluster=replace(many.cluster, host=None)), LINE)
    ).bound
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[2]
    assert without >= bounds[0]


# plans


def found_in(problem: PlanningProblem) -> Plan:
    with counted_time():
        found = plan(problem, time_limit=5, workers=1)
    assert found.schedule is not None
    assert validate(found.schedule.instance, found.schedule) == []
    return found


@pytest.fixture(scope="module")
def made() -> Plan:
    return found_in(asked())


def test_offload_shortens_a_step_in_scarce_memory(made: Plan) -> None:
    without = found_in(asked(host=None))
    assert made.cost is not None
    assert without.cost is not None
    assert made.cost < without.cost
    assert made.bound is not None
    assert made.bound <= made.cost


def test_a_framework_that_reads_the_cut_gets_no_plan_with_copies(made: Plan) -> None:
    with pytest.raises(InputError, match="another program"):
        split_of(made)
    interleaved = asked(400, space=SearchSpace(("loop",), chunks=(2,), methods=("interleaved-1f1b",)))
    split = split_of(found_in(interleaved))
    assert split.group == 2


def test_a_plan_says_what_leaves(made: Plan) -> None:
    assert made.schedule is not None
    assert made.offload is not None
    kind, stage, unit = made.schedule.order.operations.T
    for s, leaving in enumerate(made.offload):
        assert leaving.microbatches == len(set(unit[(kind == OpKind.O) & (stage == s)].tolist()))
        assert leaving.bytes == 48
    assert sum(leaving.microbatches for leaving in made.offload) > 0


def test_the_host_s_memory_is_counted_over_time(made: Plan) -> None:
    """Tick by tick: a copy is on the host from the start of O to the end of L."""
    schedule = made.schedule
    assert schedule is not None
    away = np.zeros((2, int(schedule.end.max())), np.int64)
    for row, (kind, stage, unit) in enumerate(schedule.order.operations.tolist()):
        if kind == OpKind.O:
            back = schedule.order.operations.tolist().index([int(OpKind.L), stage, unit])
            away[stage, int(schedule.start[row]) : int(schedule.end[back])] += 48
    assert made.host_memory == away.max(axis=1).tolist()


def test_the_text_has_a_line_and_a_column_of_offload(made: Plan) -> None:
    assert made.offload is not None
    head, table = str(made).split("\n\n")
    (line,) = (line for line in head.splitlines() if line.startswith("offload "))
    count = sum(leaving.microbatches for leaving in made.offload)
    assert f" {count} of 12 activations, " in line
    rows = [line.split() for line in table.splitlines()[-2:]]
    assert [int(row[5]) for row in rows] == [leaving.microbatches for leaving in made.offload]
    assert "offload" not in str(found_in(asked(200, host=None)))


def test_a_plan_with_copies_is_read_as_it_was_written(made: Plan, tmp_path: Path) -> None:
    save_plan(made, tmp_path / "plan.json")
    assert replace(load_plan(tmp_path / "plan.json"), seconds=made.seconds, log=made.log) == made
    data = json.loads((tmp_path / "plan.json").read_text())
    data["offload"][0]["microbatches"] += 1
    with pytest.raises(InputError, match="offload = "):
        load_plan(write(tmp_path, data, "other.json"))


def test_bytes_that_have_no_host_change_nothing() -> None:
    """Without a limit of time the search is the same in every run."""
    space, kinds = SearchSpace(("v",), recompute=("full",), methods=("list",)), (Recomputation("full", 4, 2),)
    layer = Layer("layer", 3, 4, 2, activation=6, weight_activation=2, recompute=kinds)
    found = []
    for offload in (0, 5):
        model = Model((replace(layer, offload=offload),) * 4)
        found.append(
            plan(PlanningProblem(model, Cluster((2,), 16), Batch(3), space), time_limit=None, workers=1)
        )
    one, other = found
    assert (one.candidate, one.cost, one.bound, one.considered) == (
        other.candidate,
        other.cost,
        other.bound,
        other.considered,
    )
    assert one.schedule is not None
    assert other.schedule is not None
    assert one.schedule.order == other.schedule.order


def test_a_search_with_offload_starts_from_a_plan_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that do nothing leave what is found at once, without copies: a plan with a host has it, too."""
    monkeypatch.setattr(Search, "run", lambda self: "")
    with counted_time():
        alone, found = (plan(asked(75, host), time_limit=2, workers=1) for host in (None, HOST))
    assert alone.schedule is not None
    assert found.schedule is not None
    assert found.schedule.order == alone.schedule.order
    assert found.cost == alone.cost
    assert validate(found.schedule.instance, found.schedule) == []


def test_however_slow_the_link_is_there_is_a_plan() -> None:
    """A device has two stages of 30 bytes in a memory of 40, so one of them leaves while the other runs."""
    slow = asked(40, Host(Fraction(1, 8), Fraction(1, 8)), space=SearchSpace(("loop",)), batch=3)
    alone = replace(slow, cluster=replace(slow.cluster, host=None))
    assert plan(alone, time_limit=None, workers=1).status is Status.INFEASIBLE
    found = found_in(slow)
    assert found.peak_memory is not None
    assert max(found.peak_memory) <= 40
    assert sum(leaving.microbatches for leaving in found.offload or ()) > 0


def test_a_frontier_of_memory_has_each_size_without_and_with_offload(tmp_path: Path) -> None:
    """What is found without offload, or in less memory, counts as a plan with it, so no point is slower."""
    model = write(tmp_path, problem_to_dict(asked()), "model.json")
    done = call("plan", model, "--memory", "64,75", "--time-limit", "1", "--json", "-o", tmp_path / "plans")
    assert done.returncode == 0, done.stderr
    rows = {row["memory"]: row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == ["64 without offload", "75 without offload", "64", "75"]
    assert [bool(row["offload"]) for row in rows.values()] == [False, False, True, True]
    for size in ("64", "75"):
        assert rows[size]["step_time"] <= rows[f"{size} without offload"]["step_time"]
    for name in (name for name in rows if name.startswith("75")):
        assert rows[name]["step_time"] <= rows[name.replace("75", "64")]["step_time"]
    assert (tmp_path / "plans" / "plan-75withoutoffload.json").exists()


def test_no_step_that_offload_allows_is_drawn_as_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both plans of a size share a place, whose bound is that with offload: without, nothing fits here."""
    drawn: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(drawing, "draw_plans", lambda points, path, **labels: drawn.append(points))
    points = memory_points(problem_to_dict(asked(space=SearchSpace(("loop",)), batch=3)), ["40"])
    with counted_time():
        found = [(point, plan(point.problem, time_limit=2, workers=1)) for point in points]
    draw_memory_frontier(found, "m.png")
    alone, away = drawn[0]
    assert (alone["place"], alone["value"], alone["bound"]) == (away["place"], None, None)
    assert 0 < away["bound"] <= away["value"]


# files


def file(layer: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    block = {"forward": 1, "backward": 1, "weight": 1, "activation": 30, "count": 4}
    return {
        "layers": [block | ({"offload": True} if layer is None else layer)],
        "cluster": {"devices": 2, "memory": 70} | cluster,
        "batch": {"microbatches": 4},
        "search": {"placements": ["linear"]},
    }


def test_a_file_says_what_may_leave_and_over_which_link() -> None:
    problem = problem_from_dict(file(host_bandwidth=2.5))
    assert problem.model.layers[0].offload == 30
    assert problem.cluster.host == Host(Fraction(5, 2), Fraction(5, 2))
    both = {"out": 3, "back": 2}
    more = {"host_shared": 4, "host_duplex": False, "host_memory": "2 kB"}
    problem = problem_from_dict(file({"offload": 7}, host_bandwidth=both, **more))
    assert problem.model.layers[0].offload == 7
    assert problem.cluster.host == Host(Fraction(3), Fraction(2), 4, False, 2000)
    for one in (problem, problem_from_dict(file({"offload": False}))):
        assert problem_from_dict(problem_to_dict(one)) == one


def test_a_law_may_say_what_may_leave() -> None:
    layer = {"activation": {"tokens": 3}, "offload": {"tokens": 2}}
    data = file(layer, host_bandwidth=2)
    data["batch"] = {"microbatches": 4, "microbatch_size": 1, "sequence_length": 5}
    problem = problem_from_dict(data)
    assert [(one.activation, one.offload) for one in problem.model.layers] == [(15, 10)] * 4
    assert problem_from_dict(problem_to_dict(problem)) == problem


SLICED = {
    "batch": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 8},
    "search": {"slices": [1, 2]},
}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (file({"offload": 31}), "layers[0].offload = 31: must be at most activation, 30: it is a part of it"),
        (file({"offload": "all"}), "layers[0].offload = 'all': must be an integer"),
        (file({"offload": -1}), "layers[0].offload = -1: must be at least 0"),
        (file({}, host_bandwidth=2), "cluster.host_bandwidth = 2: needs layers with offload"),
        (file(host_bandwidth=0), "cluster.host_bandwidth = 0: must be above 0"),
        (file(host_bandwidth={"out": 1}), "missing key 'back' in cluster.host_bandwidth"),
        (file(host_bandwidth={"out": 1, "back": 0}), "cluster.host_bandwidth.back = 0: must be above 0"),
        (file(host_bandwidth="fast"), "cluster.host_bandwidth = 'fast': must be a number"),
        (file(host_memory=500), "cluster.host_memory = 500: needs cluster.host_bandwidth beside it"),
        (file(host_bandwidth=2, host_shared=0), "cluster.host_shared = 0: must be at least 1"),
        (file(host_bandwidth=2, host_duplex="no"), "cluster.host_duplex = 'no': must be true or false"),
        (
            file(host_bandwidth=2, host_memory=119),
            "cluster.host_memory = 119: must be at least 120: what may leave of a layer, 30 bytes, for each of 4",
        ),
        (file(host_bandwidth=2, memory=None), "cluster.host_bandwidth = 2: needs cluster.memory beside it"),
        (
            file(host_bandwidth=2) | {"search": {"runtime": "torch"}},
            "cluster.host_bandwidth = 2: must be left out for PyTorch",
        ),
        (
            file({"activation": {"tokens": 3}, "offload": True}, host_bandwidth=2) | SLICED,
            "cluster.host_bandwidth = 2: must be left out where microbatches have slices or differ",
        ),
    ],
)
def test_what_contradicts_offload_is_one_line(data: dict[str, Any], message: str, tmp_path: Path) -> None:
    data["cluster"] = {key: value for key, value in data["cluster"].items() if value is not None}
    done = call("plan", write(tmp_path, data, "model.json"), "-o", tmp_path / "plan.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tightpipe: {tmp_path / 'model.json'}: {message}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "plan.json").exists()


def test_what_does_not_fit_says_whether_offload_helps(tmp_path: Path) -> None:
    """Two stages of 30 bytes on a device: 60 bytes at once, or 30 where one has left when the other comes."""
    data = file(memory=45) | {"search": {"placements": ["loop"]}}
    done = call("plan", write(tmp_path, data, "model.json"))
    assert done.returncode == 1
    assert "the fullest device lacks 15 bytes to hold one microbatch (device 0 with " in done.stderr
    assert "with offload, over a cluster.host_bandwidth, it fits" in done.stderr
    data["cluster"]["host_bandwidth"] = 5
    done = call("plan", write(tmp_path, data, "model.json"), "--time-limit", "2", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert max(said["peak_memory"]) <= 45
    assert [stage["bytes"] for stage in said["offload"]] == [30] * 4
    assert len(said["host_memory"]) == 2


def test_a_public_model_is_written_with_what_may_leave(tmp_path: Path) -> None:
    done = call("costs", "model", "llama-2-7b", "--offload", "--gpu", "a100", "-o", "m.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    problem = load_problem(tmp_path / "m.toml")
    for layer in problem.model.layers:
        assert layer.offload == (layer.activation if layer.name == "block" else 0)
    assert problem.cluster.host == Host(Fraction(32_000), Fraction(32_000))
    text = (tmp_path / "m.toml").read_text()
    assert "All activations of a block may leave" in text
    refused = call("costs", "model", "llama-2-7b", "--offload", "--law", "v", "-o", "law.json", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--offload: goes without --law" in refused.stderr
