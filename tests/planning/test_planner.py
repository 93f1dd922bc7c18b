"""Plans are the best of all candidates, or say why there is none; however a search ends, its best plan is kept."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path

import pytest
from helpers.clock import counted_time
from helpers.command_line import call, write
from helpers.random_models import configuration
from helpers.small_models import known_plans, optimum, random_problem

from tightpipe import InputError, Placement, Status, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.result import LogEntry
from tightpipe.params.budget import Allowance
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
    plan,
    save_plan,
)
from tightpipe.planning.candidate import instance_of
from tightpipe.planning.candidate_pool import CandidatePool, OpenCandidate
from tightpipe.planning.partitions import NoPartitions
from tightpipe.planning.problem import placements_of
from tightpipe.planning.problem_file import problem_to_dict
from tightpipe.planning.search import Finder, neighbours
from tightpipe.solver.engine.portfolio import Worker

BLOCK = Layer("block", 10, 17, 9, activation=2, weight_activation=1, parameters=1)


def problem_of(
    count: int = 12,
    devices: int = 3,
    memory: int | None = None,
    space: SearchSpace | None = None,
    batch: int = 8,
    layer: Layer = BLOCK,
) -> PlanningProblem:
    cluster = Cluster((devices,), memory, comm=1)
    return PlanningProblem(Model((layer,) * count), cluster, Batch(batch), space or SearchSpace())


SAMPLE = [line.seed for line in known_plans()[:25]]  # optima of others take longer to prove
HARD = problem_of(32, 4, 60, batch=16)  # nobody proves its optimum within seconds


def check(found: Plan, folder: Path) -> None:
    """A plan's schedule is a valid one of its candidate, its bound is none too high, and its file is read again."""
    assert found.schedule is not None
    assert found.candidate is not None
    assert found.schedule.instance == instance_of(found.problem, found.candidate)
    assert validate(found.schedule.instance, found.schedule) == []
    assert found.cost is not None
    assert found.bound is not None
    assert found.bound <= found.cost
    assert (found.status is Status.OPTIMAL) == (found.bound == found.cost)
    for size, limit in zip(found.peak_memory or (), sizes(found), strict=True):
        assert limit is None or size <= limit
    save_plan(found, folder / "plan.json")
    loaded = load_plan(folder / "plan.json")
    assert replace(loaded, seconds=found.seconds, log=found.log) == found  # files round seconds


def sizes(found: Plan) -> tuple[int | None, ...]:
    assert found.candidate is not None
    devices = found.candidate.placement.devices
    return found.problem.cluster.memory_of(devices) or (None,) * devices


def check_is_best(seed: int, best: int | None, folder: Path) -> None:
    asked = random_problem(seed)
    if not placements_fit(asked):
        assert best is None
        with pytest.raises(InputError, match="can be cut into at most"):
            plan(asked)
        return
    found = plan(asked, time_limit=60, workers=1)
    assert found.cost == best
    if best is None:
        assert (found.status, found.bound) == (Status.INFEASIBLE, None)
        assert found.reason.startswith("no partition ")
    else:
        check(found, folder)
        assert found.status is Status.OPTIMAL


def placements_fit(asked: PlanningProblem) -> bool:
    """Return whether a placement has no more stages than the model can be cut into."""
    with suppress(InputError):
        return bool(placements_of(asked))
    return False


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", SAMPLE)
def test_a_plan_is_the_best_of_all_partitions_recomputations_and_schedules(seed: int, tmp_path: Path) -> None:
    check_is_best(seed, optimum(random_problem(seed)), tmp_path)


def test_the_small_problems_are_of_all_kinds() -> None:
    problems = [random_problem(seed) for seed in SAMPLE]
    assert {problem.cluster.devices for problem in problems} == {(2,), (3,)}
    assert {bool(problem.space.recompute) for problem in problems} == {False, True}
    assert {problem.cluster.memory is None for problem in problems} == {False, True}
    assert {name for problem in problems for name in problem.space.placements} == {"linear", "v", "loop"}


@pytest.mark.parametrize("seed", [11, 26, 29])
def test_the_same_seed_gives_the_same_plan(seed: int) -> None:
    """Solvers work on these problems; without a time limit their effort is counted, not measured."""
    first, second = (plan(random_problem(seed), time_limit=None, workers=1, seed=5) for _ in range(2))
    assert (first.candidate, first.schedule, first.method) == (
        second.candidate,
        second.schedule,
        second.method,
    )
    assert (first.bound, first.considered) == (second.bound, second.considered)


# what there is no plan for


def test_where_nothing_fits_the_bytes_are_told() -> None:
    """A device has 4 of the 12 layers with at least 4 x 2 bytes of activations and 4 x 3 of parameters."""
    problem = problem_of(memory=25)
    problem = replace(
        problem, cluster=replace(problem.cluster, reserve=6, bytes_per_parameter=Fraction(3), memory=21)
    )
    found = plan(problem, time_limit=None, workers=1)
    assert (found.status, found.cost, found.bound, found.proof) == (Status.INFEASIBLE, None, None, None)
    lacking = 4 * 2 + 4 * 3 + 6 - 21
    assert found.reason.startswith("no partition fits: even on 3 devices in placement ")
    assert f"the fullest device lacks {lacking} bytes to hold one microbatch (device 0 with " in found.reason
    enough = replace(problem, cluster=replace(problem.cluster, memory=21 + lacking))
    assert plan(enough, time_limit=0).status is not Status.INFEASIBLE


def test_a_model_of_frozen_layers_is_planned() -> None:
    found = plan(problem_of(layer=replace(BLOCK, weight=0)), time_limit=None, workers=1)
    assert found.schedule is not None
    assert not found.schedule.instance.complete


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (SearchSpace(("v",)), "layers = 5: must be at least 6 layers, one for each stage"),
        (
            SearchSpace(("bidirectional",)),
            "search.placements = ['bidirectional']: must not hold bidirectional",
        ),
        (
            SearchSpace(("v",), (3,)),
            "search.chunks = 3: no placement of v allows so many",
        ),
    ],
)
def test_a_placement_that_the_search_cannot_cut_is_one_line(space: SearchSpace, message: str) -> None:
    with pytest.raises(InputError) as error:
        plan(problem_of(5, space=space))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_too_many_layers_are_one_line() -> None:
    with pytest.raises(InputError) as error:
        problem_of(501)
    assert str(error.value) == "layers = 501: must be at most 500 layers with all counts"


@pytest.mark.parametrize(
    "space", [{"placements": ["v"]}, {"placements": ["bidirectional"]}, {"placements": ["v"], "chunks": [3]}]
)
def test_the_command_says_so_in_one_line(space: dict[str, object], tmp_path: Path) -> None:
    asked = {**problem_to_dict(problem_of(5)), "search": space}
    done = call("plan", write(tmp_path, asked, "model.json"), "-o", tmp_path / "plan.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(("key", "value"), [("time_limit", -1), ("workers", 0), ("seed", -1)])
def test_a_number_out_of_its_range_is_refused(key: str, value: int) -> None:
    with pytest.raises(InputError, match=key):
        plan(problem_of(), **{key: value})  # type: ignore[arg-type]


# how a search ends


def test_heuristics_alone_schedule_where_they_are_all_that_is_asked_for(tmp_path: Path) -> None:
    found = plan(
        problem_of(12, 3, space=SearchSpace(("v", "linear"), methods=("list", "1f1b"))),
        time_limit=None,
        workers=1,
    )
    check(found, tmp_path)
    assert found.method in {"list", "1f1b"}
    any_method = problem_of(12, 3, space=SearchSpace(("v", "linear")))
    with counted_time():
        assert found.bound <= plan(any_method, time_limit=2, workers=1).cost


def test_each_heuristic_may_schedule_alone() -> None:
    for name, heuristic in HEURISTICS.items():
        placements = tuple({"linear", "v", "loop"}.intersection(heuristic.placements))
        if placements:
            asked = problem_of(8, 2, batch=4, space=SearchSpace(placements, methods=(name,)))
            found = plan(asked, time_limit=None, workers=1)
            assert found.method == name or found.schedule is None


def test_the_solver_may_schedule_alone(tmp_path: Path) -> None:
    with counted_time():
        found = plan(replace(HARD, space=SearchSpace(methods=("best",))), time_limit=3, workers=1)
    check(found, tmp_path)
    assert found.method == "best"


def test_without_time_there_is_a_plan_all_the_same(tmp_path: Path) -> None:
    found = plan(HARD, time_limit=0)
    check(found, tmp_path)
    assert found.considered == 1
    assert found.bound >= 16 * 8 * (10 + 17 + 9)  # the work of a device, or a table's


def stop_after(entries: int) -> Iterator[None]:
    yield from [None] * entries
    raise KeyboardInterrupt


@pytest.mark.parametrize("entries", [0, 1])
def test_an_interrupted_search_keeps_its_best_plan(entries: int, tmp_path: Path) -> None:
    steps, log = stop_after(entries), list[LogEntry]()

    def progress(entry: LogEntry) -> None:
        log.append(entry)
        next(steps)

    found = plan(HARD, time_limit=30, workers=1, progress=progress)
    assert found.reason == "interrupted"
    assert found.log == tuple(log)
    assert (found.cost, found.bound) == (log[-1].cost, log[-1].bound)
    check(found, tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_command_leaves_the_best_plan(number: int, status: int, tmp_path: Path) -> None:
    """The signal is sent when the search has a plan: whoever follows the progress of the command is told."""
    model = write(tmp_path, problem_to_dict(HARD), "model.json")
    output = tmp_path / "plan.json"
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, "plan", model, "-o", output, "--time-limit", "600", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while process.stderr.readline() not in ("has a plan\n", ""):
        pass
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == status, stderr
    found = load_plan(output)
    check(found, tmp_path)
    assert found.reason == {130: "interrupted", 143: "terminated"}[status]
    assert json.loads(stdout)["cost"] == found.cost


TELLING = """
import signal, sys
from tightpipe.cli import main
from tightpipe.planning.candidate_pool import CandidatePool

note = CandidatePool._note

def told(self):
    note(self)
    if self.best is not None:
        print("has a plan", file=sys.stderr, flush=True)

CandidatePool._note = told
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests
main()
"""


# what is tried beside a plan


def test_neighbours_differ_a_little() -> None:
    kinds = [(), (Recomputation("full", 9, 1), Recomputation("half", 4, 2))]
    layers = tuple(replace(BLOCK, name=f"{k}", activation=4, recompute=kinds[k % 2]) for k in range(7))
    space = SearchSpace(recompute=("full", "half"))
    problem = PlanningProblem(Model(layers), Cluster((2,), 99), Batch(4), space)
    here = Candidate(Placement("v", 2), (0, 2, 4, 5, 7), (((1, "full"),), ((3, "half"),), (), ()))
    found = set(islice(neighbours(problem, here, random.Random(0)), 300))
    assert here not in found
    for other in found:
        assert all(a < b for a, b in pairwise(other.cuts))
        again = {layer: kind for stage in other.recomputed for layer, kind in stage}
        assert (other.cuts == here.cuts) != (again == {1: "full", 3: "half"})
        assert all(
            {(k, kind) for k, kind in again.items() if k in range(*stage)} == set(part)
            for stage, part in zip(other.stages, other.recomputed, strict=True)
        )
    tried = {pair for other in found for stage in other.recomputed for pair in stage}
    assert tried == {(layer, kind) for layer in (1, 3, 5) for kind in ("full", "half")}
    assert len({other.cuts for other in found}) > 5


@pytest.mark.parametrize("devices", [1, 2])
def test_what_cannot_differ_has_no_neighbours(devices: int) -> None:
    """One stage has nobody to give a layer to, and a stage of one layer has none to give."""
    placement = Placement("linear", devices)
    cuts = (0, 3) if devices == 1 else (0, 1, 2)
    here = Candidate(placement, cuts, ((),) * devices)
    assert list(neighbours(problem_of(cuts[-1], devices), here, random.Random(0))) == []


def test_the_search_ends_where_plans_have_no_neighbours() -> None:
    found = plan(problem_of(6, 3, 14, SearchSpace(("v",)), batch=6), time_limit=None, workers=1)
    assert found.candidate is not None
    assert found.candidate.cuts == tuple(range(7))


@pytest.mark.parametrize("gained", [0, 1])
def test_long_searches_take_the_cheapest_that_gains_and_the_most_hopeful_candidate_by_turns(
    monkeypatch: pytest.MonkeyPatch, gained: int
) -> None:
    """A search gains 150 ticks from the dear candidate; from the other one the last search gained `gained`."""
    asked, budget = problem_of(4, 2), Allowance(time_limit=60, workers=1).begin()
    placement, searched = Placement("linear", 2), list[OpenCandidate]()
    pool = CandidatePool(asked, [NoPartitions(configuration(asked, placement), 1)], lambda entry: None)
    candidates = [Candidate(placement, cuts, ((), ())) for cuts in ((0, 1, 4), (0, 2, 4))]
    looked = [pool.look_at(candidate, ["list"]) for candidate in candidates]
    dear, cheap = pool.open = [found for found in looked if found is not None]
    pool.climber = None  # there are no neighbours

    def solve(found: OpenCandidate, *_: object) -> None:
        searched.append(found)
        if found is dear:
            dear.cost = (dear.cost or 0) - 150

    monkeypatch.setattr(pool, "solve", solve)
    cheap.cost, cheap.gained, dear.cost, dear.gained = 1000, gained, 1200, 400
    cheap.searches = dear.searches = 1
    finder = Finder(asked, pool, budget, 0.01, solves=True)
    worker = Worker(budget, lambda _: finder)
    for _ in range(3):
        finder.step(worker)
    assert [found is dear for found in searched] == [True, not gained, True]  # the first one is not long
