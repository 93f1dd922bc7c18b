"""The memory cap: what it counts, and that every solver that hits it keeps its schedule and says so."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers.cases import serial_order
from helpers.command_line import call
from helpers.exact_cases import plain_memory, v_instance

from tightpipe import InputError, Status, retime, validate
from tightpipe.base.child import Child
from tightpipe.model.instance_file import save_instance
from tightpipe.model.metrics import cost
from tightpipe.model.result import Result
from tightpipe.params.budget import UNLIMITED, Allowance, Budget
from tightpipe.solver import best
from tightpipe.solver.best import solve_best
from tightpipe.solver.cpsat import cpsat_method, solve_cpsat
from tightpipe.solver.cpsat.lattice import LatticeModel
from tightpipe.solver.cpsat.targets import decide
from tightpipe.solver.engine.portfolio import Worker
from tightpipe.solver.milp import solve_milp
from tightpipe.solver.outcome import FINISHED, End, Ended, Outcome
from tightpipe.solver.programs import GIGABYTE, MemoryCap

HARD = v_instance(4, 8, (8, 14, 8, 2), plain_memory(16))
LARGE = v_instance(5, 10, (10, 17, 9, 1), plain_memory(20))


def _resident() -> float:
    return psutil.Process().memory_info().rss / GIGABYTE


def _capped(above: float) -> Budget:
    """A cap so many GB above what this process takes now."""
    return Allowance(60, 2, max_memory=_resident() + above).begin()


def _below(time_limit: float = 60) -> Budget:
    """A cap far below what this process takes, whatever the tests before it hand back meanwhile."""
    return Allowance(time_limit, 2, max_memory=_resident() / 4).begin()


def _keeps_its_schedule(result: Result) -> None:
    assert result.status is Status.FEASIBLE
    assert validate(result.instance, result.schedule) == []
    assert result.bound <= result.cost <= cost(retime(result.instance, serial_order(result.instance)))


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), True, "2"])
def test_a_cap_is_a_positive_number(value: Any) -> None:
    with pytest.raises(InputError, match="above 0") as error:
        Allowance(max_memory=value)
    assert error.value.key == "max_memory"


def test_no_cap_leaves_everything() -> None:
    assert not MemoryCap(None).hit()
    assert MemoryCap(None).refusal(1e15) is None


def test_another_program_counts() -> None:
    cap = MemoryCap(1000)
    with Child("-c", "input()") as process:
        while process.memory < 5e6:
            pass
        alone, both = cap.left(), cap.left(process)
    assert both < alone - 4e6
    assert cap.left(process) > both  # it has ended


def test_a_refusal_names_the_cap_and_the_size() -> None:
    cap = MemoryCap(round(_resident() + 1, 3))
    assert cap.refusal(5e8) is None
    refusal = cap.refusal(3e9)
    assert refusal is not None
    assert refusal.text.startswith(cap.end.text.removesuffix(" was hit"))
    assert refusal.text.endswith("the model takes about 3 GB")
    assert MemoryCap(0.001).refusal(1) == Ended(End.CAPPED, "the memory cap of 0.001 GB was hit")


@pytest.mark.parametrize("formulation", ["lattice", "plain"])
def test_cpsat_builds_no_model_that_does_not_fit(monkeypatch: Any, formulation: Any) -> None:
    for model in ("LatticeModel", "PlainModel"):
        monkeypatch.setattr(cpsat_method, model, None)  # which cannot be called
    result = solve_cpsat(LARGE, _capped(0.002), formulation=formulation)
    _keeps_its_schedule(result)
    assert result.reason.startswith("the memory cap of ")


@pytest.mark.parametrize("formulation", ["lattice", "plain"])
def test_cpsat_ends_in_mid_search(monkeypatch: Any, formulation: Any) -> None:
    monkeypatch.setattr(MemoryCap, "refusal", lambda *_: None)
    result = solve_cpsat(LARGE, _capped(0.02), formulation=formulation)
    _keeps_its_schedule(result)
    assert result.reason.startswith("the memory cap of ")
    assert result.reason.endswith(" GB was hit")


def test_a_question_that_hits_the_cap_stays_open() -> None:
    decision = decide(HARD, 530, _below())
    assert (decision.possible, decision.schedule) == (None, None)
    assert "memory cap" in decision.ended.text


def test_milp_builds_no_model_that_does_not_fit() -> None:
    result = solve_milp(HARD, _capped(0.002))
    _keeps_its_schedule(result)
    assert result.reason.startswith("the memory cap of ")


def test_milp_is_stopped_in_mid_solve(monkeypatch: Any) -> None:
    solve_milp(v_instance(2, 2, (8, 14, 8, 2), plain_memory(8)), UNLIMITED.within(30))  # compile first
    monkeypatch.setattr(MemoryCap, "refusal", lambda *_: None)
    earlier = psutil.Process().children()  # of other tests in this process, such as Python's resource tracker
    result = solve_milp(HARD, _capped(0.03))
    _keeps_its_schedule(result)
    assert result.reason.endswith(" GB was hit")
    assert set(psutil.Process().children()) <= set(earlier)


class _Done:
    def step(self, _: Worker) -> Outcome:
        return FINISHED


def test_best_goes_on_without_the_solver_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    # proofs by prefixes may close the gap before CP-SAT begins
    monkeypatch.setattr(best, "PrefixProofs", lambda *_: _Done())
    result = solve_best(HARD, _below(5))
    _keeps_its_schedule(result)
    assert result.reason.endswith(" GB was hit")


def test_a_model_that_cpsat_calls_invalid_leaves_the_schedule(monkeypatch: Any) -> None:
    hint = LatticeModel.add_hint

    def spoil(model: LatticeModel, *arguments: Any) -> None:
        hint(model, *arguments)
        model.model.proto.objective.vars.append(10**6)
        model.model.proto.objective.coeffs.append(1)

    monkeypatch.setattr(LatticeModel, "add_hint", spoil)
    result = solve_cpsat(HARD, Budget(threads=2).within(60))
    _keeps_its_schedule(result)
    assert result.reason.startswith("CP-SAT calls the model invalid: Out of bound integer variable")


@pytest.fixture
def instance_file(tmp_path: Path) -> Path:
    path = tmp_path / "instance.json"
    save_instance(HARD, path)
    return path


def test_the_command_keeps_the_schedule_and_names_the_cap(instance_file: Path) -> None:
    options = ("--max-memory", "0.01", "--time-limit", "60", "--json")
    done = call("solve", instance_file, "--method", "milp", *options)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["status"]) == (0, "feasible")
    assert answer["reason"] == "the memory cap of 0.01 GB was hit"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--method", "greedy-v", "--warm-start", "v-half"], "warm_start = 'v-half': goes with methods"),
        (["--max-memory", "0"], "max_memory = 0.0: must be a number of GB, above 0"),
    ],
)
def test_contradictions_are_named_in_one_line(instance_file: Path, arguments: list[str], named: str) -> None:
    done = call("solve", instance_file, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


MEASURED = """
import sys
import psutil
sys.path.insert(0, sys.argv[1])
from helpers.exact_cases import table_memory, v_instance
from tightpipe.params.budget import UNLIMITED
from tightpipe.solver.cpsat.lattice import LatticeModel
from tightpipe.solver.windows import windows_of
from tightpipe.solver.cpsat.plain import PlainModel
from tightpipe.solver.cpsat.race import search
from tightpipe.solver.cpsat.race import lattice_bytes, plain_bytes
from tightpipe.solver.queues import queues_of

instance = v_instance(6, 18, (3, 3, 2, 0), table_memory(6))
queues = queues_of(instance)
windows = windows_of(queues, 320)
before = psutil.Process().memory_info().rss
if sys.argv[2] == "lattice":
    model, size = LatticeModel(queues, windows, 288), lattice_bytes(windows)
else:
    model, size = PlainModel(instance, 320, 288, fifo=True), plain_bytes(instance)
search(model, UNLIMITED.within(60), lambda *_: None, effort=0.02)
print((psutil.Process().memory_info().rss - before) / size)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other allocators keep more or less")
@pytest.mark.parametrize("formulation", ["lattice", "plain"])
def test_the_estimate_is_close(formulation: str) -> None:
    tests = os.path.dirname(os.path.dirname(__file__))
    program = [sys.executable, "-c", MEASURED, tests, formulation]
    answer = subprocess.run(program, capture_output=True, text=True, check=True)
    assert 0.5 < float(answer.stdout) < 3
