"""A bound above the cost of a valid schedule ends the solve with an error: it never passes for a proof."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from helpers.exact_cases import plain_memory, v_instance

from tightpipe import Proof, Status, load_schedule, save_instance, solve, validate
from tightpipe.base.errors import ContradictionError
from tightpipe.cli import main
from tightpipe.model.result import Bound
from tightpipe.params.budget import UNLIMITED, Allowance
from tightpipe.registry.solve import bounds_within
from tightpipe.solver.cpsat import solve_cpsat
from tightpipe.solver.cpsat.race import Found

INSTANCE = v_instance(3, 6, (10, 12, 8, 1), plain_memory(12))
WRONG = Bound(10**6, "made up", "nothing", 0.0)
ENERGETIC = replace(WRONG, proof=Proof.ENERGETIC)
Patch = pytest.MonkeyPatch


def _formula(patch: Patch) -> None:
    for name in ("tightpipe.solver.engine.run", "tightpipe.registry.methods"):
        patch.setattr(sys.modules[name], "best_bound", lambda _: WRONG)
    patch.setattr(sys.modules["tightpipe.registry.solve"], "all_bounds", lambda _: [WRONG])


def _energetic(patch: Patch) -> None:
    for name in ("tightpipe.solver.best", "tightpipe.solver.cpsat.cpsat_method"):
        patch.setattr(import_module(name), "energetic_bound", lambda *_: ENERGETIC)


def _evidence(message: str) -> Path:
    found = re.search(r"with the file (\S+)$", message)
    assert found is not None, message
    return Path(found[1])


@pytest.mark.parametrize(
    ("method", "claim", "proof"),
    [
        ("greedy-v", _formula, "formula, made up"),
        ("best", _formula, "formula, made up"),
        ("improve", _formula, "formula, made up"),
        ("cpsat", _energetic, "energetic"),
        ("best", _energetic, "energetic"),
    ],
)
def test_a_wrong_bound_is_told(
    monkeypatch: Patch, method: str, claim: Callable[[Patch], None], proof: str
) -> None:
    claim(monkeypatch)
    with pytest.raises(ContradictionError, match=rf"the bound {WRONG.value} \(proof: {proof}\)") as error:
        solve(INSTANCE, method, time_limit=5, workers=1)
    path = _evidence(str(error.value))
    content = load_schedule(path)
    path.unlink()
    assert content.schedule.instance == INSTANCE
    assert validate(INSTANCE, content.schedule) == []
    assert content.bound == WRONG.value > content.cost
    assert str(content.cost) in str(error.value)


def test_bounds_are_compared_with_the_best_heuristic(monkeypatch: Patch) -> None:
    _formula(monkeypatch)
    with pytest.raises(ContradictionError, match="formula, made up") as error:
        bounds_within(INSTANCE, Allowance(5, workers=1))
    _evidence(str(error.value)).unlink()


def test_cp_sat_that_denies_a_known_schedule_is_not_believed(monkeypatch: Patch) -> None:
    """The plain model allows the known cost: where CP-SAT calls it infeasible, CP-SAT is wrong."""

    def denies(model: Any, *_: Any, **__: Any) -> Found:
        return Found(None, model.horizon + 1, True)

    monkeypatch.setattr(sys.modules["tightpipe.solver.cpsat.cpsat_method"], "search", denies)
    with pytest.raises(ContradictionError, match=r"proof: cp-sat") as error:
        solve_cpsat(INSTANCE, UNLIMITED.within(5), formulation="plain")
    _evidence(str(error.value)).unlink()


def test_the_command_line_says_it_in_one_line(
    monkeypatch: Patch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _formula(monkeypatch)
    save_instance(INSTANCE, tmp_path / "i.json")
    command = ["tightpipe", "solve", str(tmp_path / "i.json"), "--method", "best", "--json"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr()
    assert (stop.value.code, said.out) == (1, "")
    assert len(said.err.strip().splitlines()) == 1
    evidence = _evidence(said.err.strip())
    assert json.loads(evidence.read_text())["bound"] == WRONG.value
    evidence.unlink()


@pytest.mark.parametrize(
    ("method", "proofs"),
    [
        ("greedy-v", ["formula"]),
        ("cpsat", ["cp-sat", "shaving", "energetic"]),
        ("milp", ["milp"]),
        ("best", ["prefixes", "shaving", "energetic"]),
    ],
)
def test_a_result_names_what_its_bound_rests_on(method: str, proofs: list[str]) -> None:
    instance = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))
    result = solve(instance, method, time_limit=60, workers=1)
    assert (result.status is Status.OPTIMAL) == (method != "greedy-v")
    assert result.proof in proofs
    assert result.log[-1].proof == result.proof == result.to_dict()["proof"]


def test_other_solvers_are_trusted() -> None:
    assert [proof.value for proof in Proof if proof.trusted] == ["cp-sat", "milp"]


def test_each_bound_by_search_names_itself() -> None:
    bounds = {bound.name: bound.proof for bound in bounds_within(INSTANCE, Allowance(30, workers=1))[0]}
    own = ("energetic", "shaving", "prefixes")
    rest = {**{name: name for name in own}, "refutation": "cp-sat"}
    for name, proof in bounds.items():
        assert proof == rest.get(name, "formula") or (name, proof) == ("refutation", "shaving")
    assert len(bounds) > 5
