"""The command-line contract: exit status, one line on stderr, JSON alone on stdout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.cases import not_as_root
from helpers.command_line import SMALL, call, write

from tightpipe.base.sources import engine_version

TIGHTPIPE = str(Path(sys.executable).with_name("tightpipe"))


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A schedule file that the command line wrote."""
    folder = tmp_path_factory.mktemp("solved")
    path = folder / "schedule.json"
    done = call("solve", write(folder, SMALL), "--method", "cpsat", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


def test_solve_prints_the_numbers_and_writes_the_schedule(solved: Path, tmp_path: Path) -> None:
    data = json.loads(solved.read_text())
    assert set(data) == {"instance", "devices", "method", "cost", "bound"}
    assert (data["method"], data["cost"], data["bound"]) == ("cpsat", 246, 246)
    assert data["instance"] == SMALL
    assert len(data["devices"]) == 2
    done = call("solve", write(tmp_path, SMALL), "--method", "greedy-v")
    assert done.returncode == 0
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (lines["method"], lines["cost"], lines["work"]) == ("greedy-v", "248", "240")


def test_solve_prints_one_json_object(tmp_path: Path) -> None:
    done = call("solve", write(tmp_path, SMALL), "--method", "cpsat", "--json", "--workers", "1")
    data = json.loads(done.stdout)
    assert done.returncode == 0
    assert (data["status"], data["cost"], data["bound"], data["bubble"], data["gap"]) == (
        "optimal",
        246,
        246,
        6,
        0.0,
    )
    assert data["log"]
    assert data["engine"] == engine_version()


def test_solve_takes_a_schedule_file_as_warm_start(solved: Path, tmp_path: Path) -> None:
    arguments = ("solve", write(tmp_path, SMALL), "--method", "cpsat", "--time-limit", "0", "--json")
    assert json.loads(call(*arguments, "--warm-start", solved).stdout)["cost"] == 246
    assert json.loads(call(*arguments, "--warm-start", "greedy-v").stdout)["cost"] == 248
    serial = json.loads(call(*arguments, "--warm-start", "none").stdout)
    assert (serial["status"], serial["cost"]) == ("feasible", 432)  # one microbatch after the other


def test_bound_lists_all_bounds_and_the_best(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    data = json.loads(call("bound", path, "--json").stdout)
    assert data["best"] == max(b["value"] for b in data["bounds"]) <= 246
    assert all(b["argument"] for b in data["bounds"])
    assert data["engine"] == engine_version()
    assert f"best: {data['best']} ({data['name']})" in call("bound", path).stdout


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("bound {instance} --time-limit 0", ", objective makespan\n"),
        ("bound {instance} --by-hand", "Objective: makespan\n"),
        ("solve {instance} --method greedy-v", "objective    makespan (the same schedule: "),
        ("validate {schedule}", ", objective makespan (the same schedule: device_span "),
        ("explain {schedule} --no-relax", "objective makespan (the same schedule: device_span "),
        (
            "program import {rows} --target csv --instance {instance} -o {back}",
            "objective    makespan (the same schedule: device_span ",
        ),
        ("program replay {program}", "objective  makespan (the same schedule: device_span "),
        ("program replay {schedule} --noise jitter:0.1 --samples 2", "objective makespan\n"),
    ],
    ids=lambda value: value.split()[0],
)
def test_every_answer_names_its_objective(command: str, text: str, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("schedule", "rows", "back", "program")}
    files["instance"] = write(tmp_path, SMALL | {"objective": "makespan"})
    assert call("solve", files["instance"], "--method", "greedy-v", "-o", files["schedule"]).returncode == 0
    assert call("export", files["schedule"], "--target", "csv", "-o", files["rows"]).returncode == 0
    assert call("lower", files["schedule"], "-o", files["program"]).returncode == 0
    done = call(*(word.format(**files) for word in command.split()))
    assert text in done.stdout, done.stderr
    if " import " not in command:
        said = json.loads(call(*(word.format(**files) for word in command.split()), "--json").stdout)
        assert said["objective"] == "makespan"


def test_validate_says_yes_or_names_the_rule(solved: Path, tmp_path: Path) -> None:
    assert call("validate", solved).returncode == 0
    data = json.loads(solved.read_text())
    data["devices"][0][0][1] -= 1
    data["devices"][0][0][2] -= 1
    done = call("validate", write(tmp_path, data), "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["valid"] is False
    assert "not_before_zero" in {v["rule"] for v in answer["violations"]}


@pytest.mark.parametrize(("claim", "rule"), [({"cost": 240}, "cost"), ({"bound": 250}, "bound")])
def test_validate_checks_the_claims(claim: dict[str, int], rule: str, solved: Path, tmp_path: Path) -> None:
    done = call("validate", write(tmp_path, json.loads(solved.read_text()) | claim))
    assert done.returncode == 1
    assert done.stdout.startswith(f"{rule}: the file claims")


def test_methods_lists_every_method() -> None:
    listed = json.loads(call("methods", "--json").stdout)["methods"]
    assert {"greedy-v", "list", "cpsat"} <= {method["name"] for method in listed}
    assert all(method["source"] and method["placements"] for method in listed)
    assert "greedy-v" in call("methods").stdout


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_plot_writes_pictures(solved: Path, tmp_path: Path, suffix: str) -> None:
    picture = tmp_path / f"gantt{suffix}"
    done = call("plot", solved, solved, "--memory", "-o", picture, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"] == str(picture)
    assert picture.stat().st_size > 1000


def test_plot_draws_text(solved: Path) -> None:
    done = call("plot", solved, "--text")
    assert done.returncode == 0
    assert sum("F" in line for line in done.stdout.splitlines()) >= 2


def test_plot_refuses_an_invalid_schedule(solved: Path, tmp_path: Path) -> None:
    data = json.loads(solved.read_text())
    data["devices"][0][0][2] += 1
    done = call("plot", write(tmp_path, data), "--text")
    assert (done.returncode, done.stdout) == (1, "")
    assert "invalid: " in done.stderr


def test_infeasible_memory_is_answered_with_no_and_the_reason(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL | {"memory": SMALL["memory"] | {"limit": 3}})
    for arguments in (
        ("solve", path, "--method", "cpsat"),
        ("solve", path, "--method", "greedy-v"),
        ("bound", path),
    ):
        done = call(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert "takes at least 4" in done.stderr
        assert done.stderr.count("\n") == 1
    answer = json.loads(call("solve", path, "--method", "cpsat", "--json").stdout)
    assert (answer["status"], answer["cost"]) == ("infeasible", None)


BAD_CALLS: list[tuple[list[str], str]] = [
    (["solve", "none.json"], "none.json: no such file"),
    (["solve", "cut.json"], "cut.json: not JSON, or truncated"),
    (["solve", "bad.json"], "bad.json: forward = 0: must be at least 1"),
    (["solve", "good.json", "--method", "magic"], "method = 'magic': must be one of greedy-v"),
    (
        ["solve", "line.json", "--method", "greedy-v"],
        "method = 'greedy-v': schedules placement v, not linear",
    ),
    (["solve", "good.json", "--time-limit", "-1"], "time_limit = -1.0: must be a number of seconds"),
    (["solve", "good.json", "--time-limit", "soon"], "Invalid value for '--time-limit'"),
    (["solve", "good.json", "--workers", "0"], "workers = 0: must be at least 1"),
    (["solve", "good.json", "--seed", "-5"], "seed = -5: must be at least 0"),
    (["solve", "good.json", "--warm-start", "magic"], "warm_start = 'magic': must be best or a heuristic"),
    (["solve", "good.json", "-o", "none/s.json"], "none/s.json: cannot be written: there is no such folder"),
    (["solve", "good.json", "-o", "."], ".: cannot be written: it is a folder"),
    (["solve"], "Missing argument 'INSTANCE'"),
    (["solve", "good.json", "--magic"], "No such option"),
    (["magic"], "No such command 'magic'"),
    (["bound", "bad.json"], "bad.json: forward = 0: must be at least 1"),
    (["validate", "good.json"], "good.json: "),
    (["plot", "good.json"], "give a picture with -o, or --text"),
    (["plot", "none.json", "--text"], "none.json: no such file"),
    (["compare", "--settings", "7B"], "settings = '7B': must be active, all, or of"),
    (
        ["compare", "--memory", "2q"],
        "memory = '2q': must be 2p, 0.5x, smallest, longest, none, own, or a number",
    ),
    (["compare", "--memory", "0.01p"], "memory = '0.01p': does not fit"),
    (["compare", "--methods", "magic"], "method = 'magic': must be one of"),
    (["compare", "-o", "table.txt"], "output = 'table.txt': must end in .csv"),
]


@pytest.mark.parametrize(
    ("arguments", "words"), BAD_CALLS, ids=lambda v: " ".join(v)[:40] if isinstance(v, list) else ""
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    write(tmp_path, SMALL, "good.json")
    write(tmp_path, SMALL | {"forward": 0}, "bad.json")
    write(tmp_path, SMALL | {"placement": "linear"}, "line.json")
    write(tmp_path, '{"devices": 2, ', "cut.json")
    before = sorted(p.name for p in tmp_path.rglob("*"))
    done = call(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_without_a_command_the_help_is_shown() -> None:
    for group in ([], ["library"]):
        done = call(*group)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == call(*group, "--help").stdout
        assert re.search(r"^(Commands|Solve and prove):$", done.stdout, flags=re.M)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["slove"], "'slove'; did you mean solve"),
        (["library", "lst"], "'lst'; did you mean list?"),
        (["replay"], "'replay'; did you mean program replay?"),
        (["magic"], "'magic'; `tightpipe --help` lists all"),
        (["library", "magic"], "'magic'; `tightpipe library --help` lists all"),
        (["\x1b[31m"], r"'\x1b[31m'; `tightpipe --help` lists all"),
    ],
)
def test_a_command_that_does_not_exist_is_answered_with_those_that_may_be_meant(
    words: list[str], hint: str
) -> None:
    done = call(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tightpipe: No such command {hint}")
    assert done.stderr.count("\n") == 1


def test_an_unwritable_picture_is_named(solved: Path, tmp_path: Path) -> None:
    done = call("plot", solved, "-o", tmp_path / "none" / "g.png")
    assert done.returncode == 2
    assert "there is no such folder" in done.stderr
    done = call("plot", solved, "-o", tmp_path / "g.xyz")
    assert done.returncode == 2
    assert ".pdf, .png, .svg" in done.stderr
    assert list(tmp_path.iterdir()) == []


@not_as_root
def test_a_read_only_folder_is_named(solved: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = call("plot", solved, "-o", tmp_path / "g.png")
    tmp_path.chmod(0o700)
    assert done.returncode == 2
    assert "read-only" in done.stderr


def test_the_installed_command_has_a_version_completion_and_exit_statuses(tmp_path: Path) -> None:
    done = subprocess.run([TIGHTPIPE, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("tightpipe, version ")
    done = subprocess.run([TIGHTPIPE, "solve", "none.json"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "tightpipe: none.json: no such file\n")
    environment = {**os.environ, "_TIGHTPIPE_COMPLETE": "bash_source"}
    done = subprocess.run([TIGHTPIPE], capture_output=True, text=True, env=environment)
    assert "_tightpipe_completion" in done.stdout


def test_a_schedule_is_lowered_and_replayed(solved: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.json"
    lowered = json.loads(call("lower", solved, "-o", program, "--json").stdout)
    assert len(lowered["sha256"]) == 64
    timed = json.loads(call("program", "replay", program, "--json").stdout)
    assert timed["cost"] == 246
    busy = json.loads(call("program", "replay", program, "--link-occupancy", "40", "--json").stdout)
    assert busy["cost"] > 246


def test_a_program_that_deadlocks_is_not_written(solved: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.json"
    published = ("lower", solved, "--order", "published", "-o", program)
    done = call(*published, "--semantics", "blocking")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        "device 0 at SEND_FORWARD of stage 0, microbatch 0, waits for device 1 to receive it" in done.stderr
    )
    assert not program.exists()
    assert json.loads(call(*published, "--json").stdout)["replayed"] == "asynchronous"
    assert call("program", "replay", program, "--semantics", "blocking").returncode == 1


def test_a_schedule_is_overlapped_as_a_program(solved: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.json"
    done = json.loads(call("program", "overlap", solved, "-o", program, "--json").stdout)
    assert [report["name"] for report in done["passes"]] == ["sink_waits", "raise_comms"]
    assert done["passes"][0]["waited_after"] < done["passes"][0]["waited_before"]
    assert json.loads(call("program", "replay", program, "--json").stdout)["cost"] == 246
    drawn = call("program", "overlap", solved, "--passes", "sink_waits", "--text", "-o", program).stdout
    assert drawn.count("exposed communication, peak memory") == SMALL["devices"]
    unknown = call("program", "overlap", solved, "--passes", "magic", "-o", tmp_path / "none.json")
    assert (unknown.returncode, (tmp_path / "none.json").exists()) == (2, False)


@pytest.mark.parametrize("target", ["torch-csv", "megatron-json", "colossalai-json", "chrome-trace", "csv"])
def test_schedules_are_exported(solved: Path, tmp_path: Path, target: str) -> None:
    done = call("export", solved, "--target", target, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").stat().st_size > 100


def test_an_unknown_target_lists_the_targets(solved: Path, tmp_path: Path) -> None:
    done = call("export", solved, "--target", "magic", "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "torch-csv, megatron-json, colossalai-json, chrome-trace, csv" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_task_list_is_overlapped(tmp_path: Path) -> None:
    nodes = [
        {"name": "gather", "kind": "start", "duration": 40, "peer": "data"},
        {"name": "gathered", "kind": "wait", "inputs": ["gather"]},
        {"name": "a", "kind": "compute", "duration": 30},
        {"name": "b", "kind": "compute", "duration": 25, "inputs": ["gathered"]},
    ]
    path = write(tmp_path, {"nodes": nodes})
    done = call("program", "overlap", path, "-o", tmp_path / "out.json", "--passes", "sink_waits", "--json")
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)["passes"]
    assert (report["exposed_before"], report["exposed_after"]) == (40, 10)
    assert (
        "exposed communication"
        in call("program", "overlap", path, "-o", tmp_path / "out.json", "--text").stdout
    )


def test_a_table_of_costs_becomes_an_instance(tmp_path: Path) -> None:
    rows = ["stage,kind,time,memory"]
    for stage in range(4):
        rows += [f"{stage},F,10,4", f"{stage},B,12,-2", f"{stage},W,8,-2"]
    table = write(tmp_path, "\n".join(rows) + "\n", "costs.csv")
    arguments = (
        "costs",
        "profile",
        "--devices",
        "2",
        "--microbatches",
        "4",
        "--table",
        table,
        "-o",
        tmp_path / "i.json",
    )
    done = call(*arguments, "--limit", "16", "--json")
    assert done.returncode == 0, done.stderr
    assert call("solve", tmp_path / "i.json", "--method", "greedy-v").returncode == 0
    done = call("costs", "profile", "--devices", "2", "--microbatches", "4", "-o", tmp_path / "j.json")
    assert done.returncode == 2
    assert "a measurement needs --layers, --hidden, --heads, --sequence" in done.stderr
