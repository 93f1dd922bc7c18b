"""The command measure: its text, JSON, files and figure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import call
from helpers.traces import TIMERS, write_kineto

from tightpipe import Operation, OpKind, Schedule, load_instance, load_schedule, save_schedule, validate
from tightpipe.drawing.gantt import draw_side_by_side, stretch_of
from tightpipe.measuring import Cost, variation_table

RECORDED = Path(__file__).parents[1] / "data/traces"
PLAN = RECORDED / "1f1b-schedule.json"


def test_text(tmp_path: Path) -> None:
    write_kineto(tmp_path)
    done = call("measure", tmp_path)
    assert done.returncode == 0
    assert "measured  cost 100, bubble rate 34.00%\nobjective device_span (the same schedule: " in done.stdout
    assert "30 before BW0.0, which needs BW1.0 of device 1" in done.stdout
    assert "order" not in done.stdout
    assert done.stderr.endswith(
        "traces have no memory: the instance has memory null, as if devices had no limit\n"
    )


def test_everything_that_is_written(tmp_path: Path) -> None:
    measured, instance, figure = (
        tmp_path / name for name in ("measured.json", "instance.json", "figure.svg")
    )
    options = ("--schedule", PLAN, "-o", measured, "--instance", instance, "--figure", figure, "--json")
    done = call("measure", RECORDED / "1f1b", *options)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["cost"] == load_schedule(measured).cost
    assert said["planned_cost"] == said["planned_costs"][said["objective"]] == 426
    assert said["cost"] == said["costs"][said["objective"]]
    assert said["deviation"] == ""
    assert said["bubble_rate"] > said["planned_bubble_rate"]
    for device in said["devices"]:
        assert device["charged"] == device["busy"] + sum(device["idle"].values())
    assert [(row["kind"], row["stage"], row["count"]) for row in said["operations"]] == [
        ("F", 0, 6), ("BW", 0, 6), ("F", 1, 6), ("BW", 1, 6),
    ]  # fmt: skip
    assert load_instance(instance).costs.forward == tuple(
        round(said["operations"][k]["median"]) for k in (0, 2)
    )
    assert figure.read_text().count("<path") > 24  # a bar for each operation of both


def test_noise_reads_the_measured_variation(tmp_path: Path) -> None:
    options = ("--schedule", PLAN, "-o", "m.json", "--jitter", "jitter.csv", "--json")
    done = call("measure", RECORDED / "1f1b", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "jitter.csv").read_text().splitlines()
    assert [line.rsplit(",", 1)[0] for line in table] == [
        "stage,kind",
        "0,F",
        "0,B",
        "0,W",
        "1,F",
        "1,B",
        "1,W",
    ]
    forward, both = json.loads(done.stdout)["operations"][:2]
    assert float(table[1].split(",")[2]) == pytest.approx(forward["deviation"] / forward["mean"], abs=1e-4)
    for line in table[2:4]:  # of a fused backward each half varies by the square root of two times as much
        assert float(line.split(",")[2]) == pytest.approx(2**0.5 * both["deviation"] / both["mean"], abs=1e-4)
    done = call(
        "program", "replay", PLAN, "--noise", "jitter:jitter.csv", "--samples", 4000, "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


def test_halves_of_a_fused_backward_vary_together_as_much_as_it_does() -> None:
    measured = [measured_cost(kind, 0, mean, deviation) for kind, mean, deviation in
                ((OpKind.F, 100.0, 10.0), (OpKind.BW, 200.0, 20.0))]  # fmt: skip
    rows = [line.split(",") for line in variation_table(measured).splitlines()[1:]]
    variation = {kind: float(value) for _, kind, value in rows}
    assert variation == {"F": 0.1, "B": 0.1414, "W": 0.1414}
    halves = np.random.default_rng(0).normal(1, variation["B"], (2, 100_000)) * 100
    assert halves.sum(axis=0).std() == pytest.approx(20, rel=0.01)


def measured_cost(kind: OpKind, stage: int, mean: float, deviation: float) -> Cost:
    slowest = Operation(kind, stage, 0)
    return Cost(kind, stage, 8, mean, mean, deviation, mean, mean, slowest, deviation / mean)


@pytest.mark.parametrize("command", [("validate",), ("plot", "-o", "p.svg"), ("plot", "--text"), ("explain",),
                                     ("report", "-o", "r.html")])  # fmt: skip
def test_other_commands_read_a_measured_schedule(command: tuple[str, ...], tmp_path: Path) -> None:
    assert call("measure", RECORDED / "greedy-v", "-o", "m.json", cwd=tmp_path).returncode == 0
    done = call(command[0], "m.json", *command[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "prefix", ["", "[default0]:", "0: ", "worker-1: ", "2024-01-01 00:00:00,123 ", "INFO:t:"]
)
def test_a_log_of_timers(prefix: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(prefix + line for line in TIMERS.splitlines(keepends=True)))
    done = call("measure", log, "--microbatches", 4, "--instance", tmp_path / "instance.json")
    assert done.returncode == 0, done.stderr
    assert "step 100,000, bubble rate 30.00%" in done.stdout
    assert load_instance(tmp_path / "instance.json").costs.forward == (5000, 6000)
    assert json.loads(call("measure", log, "--json").stdout)["devices"][0]["messages"] == 30e3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "m.json"), "output = 'm.json': needs the times of operations; Megatron's timers are totals"),
        (("--instance", "i.json"), "the instance of a log of timers needs --microbatches"),
        (("--figure", "f.svg"), "figure = 'f.svg': needs --schedule, beside whose rows it draws"),
        (("--jitter", "j.csv"), "jitter = 'j.csv': needs the times of operations"),
    ],
)
def test_what_a_log_of_timers_cannot_give(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(TIMERS)
    done = call("measure", "train.log", *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.log"]


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    write_kineto(tmp_path)
    for options, message in (
        (("--devices", 2), "devices = 2: goes with a log of Megatron-LM's timers"),
        (("--tolerance", -1), "tolerance = -1.0: must be a number of microseconds, at least 0"),
        (("--microbatches", 0), "microbatches = 0: must be at least 1"),
        (("--figure", "f.doc"), "must end in one of"),
        (("--jitter", "j.txt"), "jitter = 'j.txt': must end in .csv"),
    ):
        done = call("measure", tmp_path, *options)
        assert done.returncode == 2
        assert message in done.stderr


def slower(schedule: Schedule, factor: int) -> Schedule:
    return Schedule(schedule.instance, schedule.order, schedule.start * factor, schedule.end * factor)


def test_a_plan_on_another_scale_is_stretched(tmp_path: Path) -> None:
    plan = load_schedule(PLAN).schedule
    assert stretch_of(plan, slower(plan, 4)) == 1
    assert stretch_of(plan, slower(plan, 1000)) == 1000
    draw_side_by_side(plan, slower(plan, 1000), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_a_file_that_only_claims_to_be_measured_is_still_checked(tmp_path: Path) -> None:
    assert call("measure", RECORDED / "1f1b", "-o", "m.json", cwd=tmp_path).returncode == 0
    data = json.loads((tmp_path / "m.json").read_text())
    data["devices"][0][1][1] -= 10**4  # an operation begins before the one in front of it ends
    (tmp_path / "m.json").write_text(json.dumps(data))
    done = call("explain", "m.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "the schedule is invalid" in done.stderr
    plain = load_schedule(PLAN).schedule
    save_schedule(plain, tmp_path / "plain.json")
    assert validate(plain.instance, plain) == []
