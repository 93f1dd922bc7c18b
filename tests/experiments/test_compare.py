"""compare: rows as they finish, and nothing lost or done twice when it is killed."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from experiments.sweeps import INSTANCE, wait_until
from helpers.command_line import call

from tightpipe.experiments.experiment import choose_settings
from tightpipe.experiments.presets import Comparison, tasks_of_settings
from tightpipe.experiments.store import open_store
from tightpipe.experiments.task import unpack
from tightpipe.params.budget import Allowance
from tightpipe.params.solve_params import DEFAULTS, params_from_dict
from tightpipe.registry.methods import METHODS
from tightpipe.settings import load_settings

OWN = {**INSTANCE, "placement": "v", "microbatches": 3}
TIGHTPIPE = str(Path(sys.executable).with_name("tightpipe"))
SETTINGS = "toy-4x8,6.2B-8x24,6.2B-8x24-swapped"


def command(output: Path, *more: str, seconds: str = "0.3") -> list[str]:
    chosen = ["--settings", SETTINGS, "--time-limit", seconds, "--workers", "1"]
    return [TIGHTPIPE, "compare", *chosen, "-o", str(output), *more]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def ended(table: Path) -> int:
    """Return how many solves have ended, as the store beside the table knows."""
    path = table.with_suffix(".sqlite")
    if not path.exists():
        return 0
    with open_store(path) as store:
        tally = store.tally()
    return tally.done + tally.failed


def test_a_killed_run_continues_without_loss_or_duplicates(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    process = subprocess.Popen(command(table), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: ended(table) >= 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = ended(table)
    assert 3 <= there < 6
    done = call(*command(table, "--json")[1:])
    assert done.returncode == 0, done.stderr
    assert f"6 rows, {there} of them already in" in done.stderr
    rows = read(table)
    expected = [(s, m) for s in SETTINGS.split(",") for m in ("greedy-v", "best")]
    assert [(r["problem"], r["method"]) for r in rows] == expected
    assert len(json.loads(done.stdout)["rows"]) == 6
    again = call(*command(table)[1:], "--extend")
    assert "6 rows, 6 of them already in" in again.stderr
    assert read(table) == rows


def test_rows_hold_together(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    arguments = ["--settings", "toy-4x8", "--memory", "2p,3p", "--time-limit", "2", "-o", str(table)]
    done = call("compare", *arguments)
    assert done.returncode == 0, done.stderr
    rows = read(table)
    assert [(r["method"], r["memory"], r["bubble"]) for r in rows[:2]] == [
        ("greedy-v", "2p", "20"),
        ("best", "2p", "20"),
    ]
    for row in rows:
        cost, work, bound = int(row["cost"]), int(row["work"]), int(row["bound"])
        assert work <= bound <= cost
        assert int(row["bubble"]) == cost - work
        assert float(row["bubble_rate"]) == pytest.approx((cost - work) / cost)
        assert float(row["gap"]) == pytest.approx((cost - bound) / cost)
        assert int(row["peak_memory"]) <= int(row["memory_limit"]) == int(row["memory"][0]) * 4 * 303104
    for greedy, exact in zip(rows[::2], rows[1::2], strict=True):
        assert int(exact["cost"]) <= int(greedy["cost"])
    text = table.with_suffix(".md").read_text()
    assert (
        "| problem | memory | memory of 1F1B | greedy-v | best | bound | proof | best gap "
        "| best as makespan | best as step | bubble saved |" in text
    )
    assert f"| {1 - int(rows[0]['work']) / int(rows[0]['step']):.4f} |" in text
    saved = 1 - int(rows[3]["bubble"]) / int(rows[2]["bubble"])
    assert f"| {saved:.2%} |" in text
    assert "Time limit 2 s" in text
    assert "CPU cores" in text
    assert table.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_rows_have_what_the_same_schedule_costs_under_every_objective(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    arguments = ["--settings", "toy-4x8", "--methods", "greedy-v,list", "--objective", "makespan"]
    assert call("compare", *arguments, "-o", str(table)).returncode == 0
    for row in read(table):
        with open_store(table.with_suffix(".sqlite")) as store:
            packed = store.schedule(row["key"])
        assert packed is not None
        schedule = unpack(packed)
        devices = map(schedule.order.rows, range(schedule.order.devices))
        spans = [schedule.end[rows].max() - schedule.start[rows].min() for rows in devices]
        assert int(row["device_span"]) == max(spans) < int(row["makespan"])
        assert row["makespan"] == row["cost"]
        assert int(row["step"]) == schedule.end.max()


def test_every_heuristic_is_compared_on_the_same_model(tmp_path: Path) -> None:
    """Devices hold the same layers in every placement, so the work is the same."""
    table = tmp_path / "table.csv"
    names = [name for name, method in METHODS.items() if method.kind == "heuristic"]
    arguments = ["--settings", "toy-4x8", "--memory", "5p", "--methods", ",".join(names), "-o", str(table)]
    done = call("compare", *arguments)
    assert done.returncode == 0, done.stderr
    rows = read(table)
    assert [r["method"] for r in rows] == names
    assert {r["work"] for r in rows} == {"224"}
    assert {r["placement"] for r in rows} == {"v", "linear", "loop", "bidirectional"}


TOY = ("compare", "--settings", "toy-4x8", "--methods", "greedy-v,list", "--workers", "1")


def test_a_finished_comparison_is_computed_again(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    assert call(*TOY, "-o", table).returncode == 0
    again = call(*TOY, "-o", table)
    begins, found, *solves = again.stderr.splitlines()
    store = table.with_suffix(".sqlite")
    assert begins == (
        f"{table} had finished and begins anew: {store}.bak keeps its solves; --extend leaves them in"
    )
    assert found == f"2 rows, 0 of them already in {store}"
    assert len(solves) == 2
    assert [row["cost"] for row in read(table)] == ["244", "260"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("table.csv", "table.md", "table.png", "table.sqlite", "table.sqlite.bak")
    ]


def test_rows_without_a_store_as_in_a_fresh_clone_are_kept_aside_and_computed_again(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    assert call(*TOY, "-o", table).returncode == 0
    table.with_suffix(".sqlite").unlink()
    old = table.read_text().replace(",244,", ",245,")  # told from what a run computes
    table.write_text(old)
    assert "2 rows, 0 of them already in" in call(*TOY, "-o", table).stderr
    assert [row["cost"] for row in read(table)] == ["244", "260"]
    assert Path(f"{table}.bak").read_text() == old


def test_a_table_has_the_rows_of_its_grid_and_runs_those_that_are_new(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    more = (*TOY, "--memory", "2p,3p", "-o", table)
    assert call(*TOY, "-o", table).returncode == 0
    first = read(table)
    assert "4 rows, 2 of them already in" in call(*more).stderr
    assert read(table)[:2] == first
    assert "2 rows, 2 of them already in" in call(*TOY, "-o", table, "--extend").stderr
    assert read(table) == first


def test_two_runs_fill_one_table_together(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    words = [TIGHTPIPE, *TOY, "--memory", "2p,3p,4p", "-o", str(table)]
    both = [subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    assert [(r["memory"], r["method"], r["state"]) for r in read(table)] == [
        (memory, method, "done") for memory in ("2p", "3p", "4p") for method in ("greedy-v", "list")
    ]


def test_ctrl_c_keeps_what_has_ended_and_no_more(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    # closed at once, and not closed in a minute
    chosen = command(table, "--settings", "6.2B-8x24,6.2B-8x24-swapped", seconds="60")
    process = subprocess.Popen(chosen, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: ended(table) >= 3)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    rows = [(r["method"], r["state"]) for r in read(table)]
    assert rows[:3] == [("greedy-v", "done"), ("best", "done"), ("greedy-v", "done")]
    assert rows[3][1] != "done"
    assert Path(f"{table}.unfinished").exists()


def test_a_file_with_other_columns_is_left_alone(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,2\n")
    refused = call(*TOY, "-o", table)
    said = f"tightpipe: {table}: has other columns than this version writes; move it away to start anew\n"
    assert (refused.returncode, refused.stderr) == (2, said)
    assert table.read_text() == "a,b\n1,2\n"


def test_settings_are_the_24_of_the_table() -> None:
    settings = load_settings()
    assert len(settings) == 24
    active = [s for s in settings.values() if s.active]
    assert [(s.devices, s.microbatches) for s in active] == [
        *((16, 48), (16, 64), (16, 128)),
        *((24, 72), (24, 96), (24, 192)),
        *((32, 96), (32, 128), (32, 256)),
    ]
    for setting in settings.values():
        assert setting.instance().infeasibility() is None
    first = settings["6.2B-8x24"].instance()
    assert first.memory is not None
    assert first.memory_limit(0) == 4849664


def compare_files(folder: Path, *arguments: str) -> list[dict[str, str]]:
    """Compare greedy-v and list on instance files, and return the rows of the table."""
    done = call("compare", *arguments, "--methods", "greedy-v,list", "-o", folder / "table.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    return read(folder / "table.csv")


def test_own_instances_make_the_same_kind_of_table(tmp_path: Path) -> None:
    (tmp_path / "even.json").write_text(json.dumps(OWN))
    uneven = {**OWN, "forward": [10, 10, 10, 20], "objective": "makespan"}
    (tmp_path / "uneven.json").write_text(json.dumps(uneven))
    rows = compare_files(tmp_path, "even.json", "uneven.json")
    assert [(r["problem"], r["method"], r["objective"], r["memory"], r["memory_limit"]) for r in rows] == [
        ("even", "greedy-v", "device_span", "own", "8"),
        ("even", "list", "device_span", "own", "8"),
        ("uneven", "greedy-v", "makespan", "own", "8"),
        ("uneven", "list", "makespan", "own", "8"),
    ]
    page = (tmp_path / "table.md").read_text()
    assert "| problem | objective | memory of 1F1B | imbalance | greedy-v | list |" in page
    assert "| uneven | makespan |" in page
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")
    rows = compare_files(tmp_path, "even.json", "--memory", "own,2.5p", "--objective", "makespan")
    assert [(r["problem"], r["memory"], r["memory_limit"], r["objective"]) for r in rows] == [
        ("even", "own", "8", "makespan"),
        ("even", "own", "8", "makespan"),
        ("even", "2.5p", "10", "makespan"),
        ("even", "2.5p", "10", "makespan"),
    ]


def test_a_file_that_was_edited_is_solved_anew(tmp_path: Path) -> None:
    file = tmp_path / "my.json"
    file.write_text(json.dumps(OWN))
    first = compare_files(tmp_path, "my.json")
    assert compare_files(tmp_path, "my.json", "--extend") == first
    file.write_text(json.dumps({**OWN, "comm": [[0, 1], [9, 0]]}))
    other = compare_files(tmp_path, "my.json", "--extend")
    assert int(other[0]["cost"]) > int(first[0]["cost"])
    file.write_text(json.dumps(OWN))
    assert compare_files(tmp_path, "my.json", "--extend") == first


def test_files_of_a_table_whose_name_has_dots_are_named_like_it(tmp_path: Path) -> None:
    assert call(*TOY, "-o", tmp_path / "of.v2.csv").returncode == 0
    names = [f"of.v2.{suffix}" for suffix in ("csv", "md", "png", "sqlite")]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_solve_that_fails_is_no_row_and_is_tried_again(tmp_path: Path) -> None:
    table, busy = tmp_path / "table.csv", tmp_path / "busy.json"
    busy.write_text(json.dumps({**OWN, "link_occupancy": 99}))
    done = [call("compare", busy, "--methods", "list,milp", "-o", table) for _ in range(2)]
    for each in done:
        assert each.returncode == 1
        assert "1 of the solves failed, the last one: " in each.stderr.splitlines()[-1]
        assert "link_occupancy" in each.stderr.splitlines()[-1]
    assert "2 rows, 1 of them already in" in done[1].stderr
    assert [(row["method"], row["state"]) for row in read(table)] == [
        ("list", "done"),
        ("milp", "failed"),
    ]


def test_a_cap_on_memory_reaches_the_solve() -> None:
    toy = choose_settings("toy-4x8")
    capped, free = (
        tasks_of_settings(toy, Comparison(("2p",), ("cpsat",), "device_span", Allowance(max_memory=most)))
        for most in (2.0, None)
    )
    assert json.loads(capped[0].payload)["max_memory"] == 2.0
    assert "max_memory" not in json.loads(free[0].payload)


def test_solves_with_other_parameters_are_other_solves() -> None:
    changed = params_from_dict({"anneal.reach": 4})
    one, other = (
        tasks_of_settings(
            choose_settings("toy-4x8"),
            Comparison(("2p",), ("improve",), "device_span", Allowance(params=params)),
        )[0]
        for params in (changed, DEFAULTS)
    )
    assert json.loads(one.payload)["params"] == {"anneal.reach": 4}
    assert "params" not in json.loads(other.payload)
    assert one.row.key != other.row.key
    assert json.loads(one.with_makespan().payload)["params"] == {"anneal.reach": 4}


def test_rows_of_solves_with_parameters_say_so_and_count_for_no_others(tmp_path: Path) -> None:
    params, table = tmp_path / "params.toml", tmp_path / "rows.csv"
    params.write_text("[list]\nretimed = 1\n[anneal]\nmoves_per_item = 50\n[rules]\nshare = 0\n")
    words = (
        "compare",
        "--settings",
        "toy-4x8",
        "--methods",
        "list,improve",
        "--time-limit",
        "1",
        "-o",
        table,
    )
    assert call(*words, "--params", params).returncode == 0
    rows = list(csv.DictReader(table.open()))
    said = {"anneal.moves_per_item": 50, "list.retimed": 1, "rules.share": 0.0}
    assert [json.loads(row["params"]) for row in rows] == [said, said]
    assert f"not the defaults: {json.dumps(said)}." in table.with_suffix(".md").read_text()
    assert call(*words).returncode == 0
    assert [row["params"] for row in read(table)] == ["", ""]
    assert "2 rows, 2 of them already in" in call(*words, "--params", params, "--extend").stderr


def test_limits_that_are_equal_are_solved_once() -> None:
    comparison = Comparison(("2p", "2.0p", "2.3p"), ("list",), "device_span", Allowance())
    tasks = tasks_of_settings(choose_settings("toy-4x8"), comparison)
    assert [task.row.memory for task in tasks] == ["2p", "2.3p"]
