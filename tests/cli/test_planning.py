"""``tightpipe plan``, and ``tightpipe export`` of plans; the search itself is tested in tests/planning."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.command_line import call, write
from helpers.handmade_plans import LAYERS, no_plan, plan, problem

from tightpipe import Placement, load_schedule
from tightpipe.base.sources import planner_version
from tightpipe.cli import main
from tightpipe.params.solve_params import params_from_dict
from tightpipe.planning import Batch, Plan, PlanningProblem, SearchSpace, load_plan, plan_to_dict, save_plan
from tightpipe.planning.problem_file import problem_to_dict

Asked = list[tuple[PlanningProblem, dict[str, Any]]]
LOOP = Placement("loop", 2)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path, problem_to_dict(problem()), "model.json")


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Plan], Asked]:
    """Let the search answer with a given plan, and note what it was asked."""

    def answer(found: Plan) -> Asked:
        asked: Asked = []

        def search(problem: PlanningProblem, **options: Any) -> Plan:
            asked.append((problem, options))
            return found

        monkeypatch.setitem(sys.modules, "tightpipe.planning.planner", SimpleNamespace(plan=search))
        return asked

    return answer


def test_the_plan_is_shown_and_written(
    model: Path, answered: Callable[[Plan], Asked], tmp_path: Path
) -> None:
    found = plan()
    answered(found)
    done = call("plan", model, "-o", tmp_path / "plan.json")
    assert (done.returncode, done.stdout) == (0, f"{found}\n")
    assert load_plan(tmp_path / "plan.json") == found


def test_the_options_reach_the_search(model: Path, answered: Callable[[Plan], Asked], tmp_path: Path) -> None:
    asked, params = answered(plan()), tmp_path / "params.toml"
    params.write_text("[plan]\nmiddles = 3\n")
    words = ("--time-limit", "2.5", "--workers", "1", "--seed", "7", "--params", params)
    assert call("plan", model, *words).returncode == 0
    ((given, options),) = asked
    assert given == problem()
    assert callable(options.pop("progress"))
    changed = params_from_dict({"plan.middles": 3})
    assert options == {"time_limit": 2.5, "workers": 1, "seed": 7, "params": changed}


def test_json_has_the_figures_alone(model: Path, answered: Callable[[Plan], Asked]) -> None:
    found = plan()
    answered(found)
    done = call("plan", model, "--json")
    figures = json.loads(json.dumps(plan_to_dict(found)))
    assert json.loads(done.stdout) == {**figures, "engine": planner_version(), "output": None}


def test_the_summary_leaves_standard_output_to_the_plan(
    model: Path, answered: Callable[[Plan], Asked], capfd: pytest.CaptureFixture[str]
) -> None:
    found = plan()
    answered(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["tightpipe", "plan", str(model), "-o", "-"])
        with pytest.raises(SystemExit) as stop:
            main()
    out, err = capfd.readouterr()
    assert not stop.value.code
    assert json.loads(out)["cost"] == found.cost
    assert str(found) in err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_where_nothing_fits_the_answer_is_no(
    options: list[str], model: Path, answered: Callable[[Plan], Asked], tmp_path: Path
) -> None:
    answered(no_plan())
    done = call("plan", model, "-o", tmp_path / "plan.json", *options)
    assert done.returncode == 1
    if options:
        said = json.loads(done.stdout)
        assert (said["status"], said["output"]) == ("infeasible", None)
        assert said["reason"] == "device 0 lacks 12 bytes"
    else:
        assert done.stderr == "tightpipe: infeasible: device 0 lacks 12 bytes\n"
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(("reason", "status"), [("interrupted", 130), ("terminated", 143)])
def test_a_signal_keeps_the_best_plan(
    reason: str, status: int, model: Path, answered: Callable[[Plan], Asked], tmp_path: Path
) -> None:
    found = plan(reason=reason)
    answered(found)
    done = call("plan", model, "-o", tmp_path / "plan.json")
    assert done.returncode == status
    assert f"reason        {reason}\n" in done.stdout
    assert load_plan(tmp_path / "plan.json") == found


def test_bad_input_is_one_line_and_nothing_is_asked(
    model: Path, answered: Callable[[Plan], Asked], tmp_path: Path
) -> None:
    asked = answered(plan())
    data = problem_to_dict(problem())
    data["layers"][1]["forward"] = -1
    wrong = write(tmp_path, data, "wrong.json")
    for words in (("plan", wrong), ("plan", model, "-o", tmp_path / "none" / "plan.json")):
        done = call(*words)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
    assert "layers[1].forward = -1: must be at least 0" in call("plan", wrong).stderr
    assert asked == []


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A plan in the placement that both frameworks know, with a block recomputed on every stage."""
    recomputed = ((1,), (3,), (5,), (7,))
    save_plan(plan(placement=LOOP, recomputed=recomputed), tmp_path / "plan.json")
    return tmp_path / "plan.json"


def exported(source: Path, target: str, *options: str) -> str:
    done = call("export", source, "--target", target, "-o", source.parent / "out", *options)
    assert (done.returncode, done.stderr) == (0, "")
    return (source.parent / "out").read_text()


def test_the_cut_of_a_plan_is_exported(saved: Path) -> None:
    titan = json.loads(exported(saved, "torchtitan"))
    assert titan["parallelism"]["module_fqns_per_model_part"] == [
        ["tok_embeddings", "layers.0", "layers.1"],
        ["layers.2", "layers.3"],
        ["layers.4", "layers.5"],
        ["layers.6", "layers.7", "norm", "lm_head"],
    ]
    assert titan["recomputed"] == {"full": ["layers.0", "layers.2", "layers.4", "layers.6"]}
    megatron = exported(saved, "megatron-layout").splitlines()
    assert megatron[:2] == [
        "--pipeline-model-parallel-size 2",
        "--pipeline-model-parallel-layout 'Et*2|(t*2|)*2t*2L'",
    ]
    assert megatron[-1] == "--recompute-num-layers 1"
    assert exported(saved, "megatron-layout", "--layout-only").splitlines() == megatron[:2]


@pytest.mark.parametrize("target", ["torch-csv", "megatron-json", "chrome-trace", "csv"])
def test_the_schedule_of_a_plan_is_exported_as_that_of_a_schedule_file(target: str, saved: Path) -> None:
    schedule = write(saved.parent, json.loads(saved.read_text())["schedule"], "schedule.json")
    assert exported(saved, target) == exported(schedule, target)


def test_other_commands_read_the_schedule_of_a_plan(saved: Path) -> None:
    assert call("validate", saved).returncode == 0
    assert exported(saved, "instance")
    assert load_schedule(saved).method == "list"


@pytest.mark.parametrize(
    ("made", "target", "message"),
    [
        (lambda: plan(), "megatron-layout", "Megatron-LM runs stage s on device s mod p"),
        (
            lambda: plan(placement=LOOP),
            "megatron-layout",
            "recomputed = [2, 0, 1, 0]: Megatron-LM recomputes the first N blocks of every stage",
        ),
        (
            lambda: plan(problem((*LAYERS[:9], replace(LAYERS[9], name="embedding")))),
            "torchtitan",
            "plan.json: layer 9 = 'embedding': by its name the layer is out of place: frameworks know",
        ),
        (
            lambda: plan(problem((*LAYERS[:9], replace(LAYERS[9], name="pooler")))),
            "megatron-layout",
            "plan.json: name of layer 9 = 'pooler': does not say what the layer is; known are embedding",
        ),
        (
            lambda: plan(problem(batch=Batch(1), space=SearchSpace(("loop",))), LOOP, recomputed=((),) * 4),
            "megatron-layout",
            "plan.json: microbatches = 1: Megatron-LM needs at least as many as devices, 2",
        ),
        (lambda: plan(), "nemo", "target = 'nemo': must be one of torch-csv, "),
    ],
)
def test_what_a_framework_cannot_express_is_one_line(
    made: Callable[[], Plan], target: str, message: str, tmp_path: Path
) -> None:
    save_plan(made(), tmp_path / "plan.json")
    done = call("export", tmp_path / "plan.json", "--target", target, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["torchtitan", "megatron-layout"])
def test_an_export_says_how_many_blocks_it_wrote(target: str, tmp_path: Path) -> None:
    """The names of GPT-2's modules: two embeddings before the blocks, and norm and head after them."""
    names = ["wte", "wpe", *["h"] * 5, "ln_f", "lm_head"]
    made = problem([replace(LAYERS[1], name=name) for name in names])
    save_plan(plan(made, LOOP, (0, 3, 5, 6, 9), ((),) * 4), tmp_path / "plan.json")
    words = ("export", tmp_path / "plan.json", "--target", target, "-o", tmp_path / "out")
    assert ["blocks", "5"] in [line.split() for line in call(*words).stdout.splitlines()]
    assert json.loads(call(*words, "--json").stdout)["blocks"] == 5


def test_a_schedule_has_no_cut(saved: Path) -> None:
    schedule = write(saved.parent, json.loads(saved.read_text())["schedule"], "schedule.json")
    done = call("export", schedule, "--target", "torchtitan", "-o", saved.parent / "out")
    assert done.returncode == 2
    assert "is a schedule file, must be a plan file" in done.stderr
