"""compare: rows as they finish, and nothing lost or done twice when it is killed."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from experiments.sweeps import INSTANCE

from tightpipe import InputError
from tightpipe.cli import comparing
from tightpipe.cli.filling import fill_table, table_run
from tightpipe.core.allowance import Allowance
from tightpipe.core.engine_version import engine_version
from tightpipe.core.params.solve_params import DEFAULTS, params_from_dict
from tightpipe.experiments.compare import COLUMNS, SETTINGS_FORM, Comparison, parse_memory, tasks_of_settings
from tightpipe.experiments.compare_report import markdown
from tightpipe.experiments.experiment import choose_settings
from tightpipe.experiments.results_table import Solve, Table
from tightpipe.settings import load_settings
from tightpipe.solving.methods import METHODS

OWN = {**INSTANCE, "placement": "v", "microbatches": 3}
TIGHTPIPE = str(Path(sys.executable).with_name("tightpipe"))
SETTINGS = "toy-4x8,6.2B-8x24,6.2B-8x24-swapped"


def command(output: Path, *more: str, seconds: str = "0.3") -> list[str]:
    chosen = ["--settings", SETTINGS, "--time-limit", seconds, "--workers", "1"]
    return [TIGHTPIPE, "compare", *chosen, "-o", str(output), *more]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_columns_are_those_of_the_contract() -> None:
    contract = (
        "setting, p, n, f, b, w, c, hidden, heads, seq, m_offset, max_mem, memory_of_1f1b, placement, objective, "
        "method, status, cost, work, bubble, bubble_rate, imbalance, bound, proof, gap, peak_mem, seconds, workers, "
        "seed, time_limit, "
        "engine, ortools_version, host_cpus, finished_at"
    )
    assert ", ".join(COLUMNS) == contract


def test_a_killed_run_continues_without_loss_or_duplicates(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    process = subprocess.Popen(command(table), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (table.exists() and table.read_text().count("\n") >= 4):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = read(table)
    assert 3 <= len(kept) < 6
    with table.open("a") as file:
        file.write("6.2B-8x24,8,24,29")  # a row that the kill tore
    done = call(*command(table, "--json")[1:])
    assert done.returncode == 0, done.stderr
    rows = read(table)
    assert rows[: len(kept)] == kept
    expected = [(s, m) for s in SETTINGS.split(",") for m in ("greedy-v", "best")]
    assert [(r["setting"], r["method"]) for r in rows] == expected
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
    assert [(r["method"], r["m_offset"], r["bubble"]) for r in rows[:2]] == [
        ("greedy-v", "0", "20"),
        ("best", "0", "20"),
    ]
    for row in rows:
        cost, work, bound = int(row["cost"]), int(row["work"]), int(row["bound"])
        assert work <= bound <= cost
        assert int(row["bubble"]) == cost - work
        assert float(row["bubble_rate"]) == pytest.approx((cost - work) / cost, abs=1e-6)
        assert float(row["gap"]) == pytest.approx((cost - bound) / cost, abs=1e-6)
        assert int(row["peak_mem"]) <= int(row["max_mem"]) == int(row["m_offset"]) * 303104 + 8 * 303104
    for greedy, exact in zip(rows[::2], rows[1::2], strict=True):
        assert int(exact["cost"]) <= int(greedy["cost"])
    text = table.with_suffix(".md").read_text()
    assert text.startswith("| setting | memory | greedy-v bubble rate | best bubble rate |")
    assert "3p" in text
    assert "CPU cores: time limit 2 s" in text
    assert table.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    unproven = [row | {"bound": "", "gap": "", "proof": ""} for row in rows]
    cells = markdown(unproven, "greedy-v").splitlines()[2].split(" | ")
    assert (cells[4], cells[5], cells[8]) == ("-", "-", "-")  # bound, gap and proof
    assert cells[3] == f"{float(rows[1]['bubble_rate']):.4f}"


def test_busy_links_show_what_contention_costs(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    arguments = ["--settings", "toy-4x8", "--methods", "greedy-v,list", "-o", str(table)]
    for more in ([], ["--link-occupancy", "9", "--extend"]):
        assert call("compare", *arguments, *more).returncode == 0
    rows = read(table)
    assert [r["setting"] for r in rows] == ["toy-4x8"] * 2 + ["toy-4x8 link 9"] * 2
    assert int(rows[2]["cost"]) > int(rows[0]["cost"])


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


def test_a_finished_comparison_is_computed_again_as_in_a_fresh_clone(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    assert call(*TOY, "-o", table).returncode == 0
    old = table.read_text().replace(",244,", ",245,")  # told from what a run computes
    table.write_text(old)
    again = call(*TOY, "-o", table)
    begins, found, *solves = again.stderr.splitlines()
    assert begins == (
        f"{table} begins anew: {table}.bak keeps 2 row(s) of an earlier run; --extend leaves them in"
    )
    assert found == f"2 rows, 0 of them already in {table}"
    assert len(solves) == 2
    assert [row["cost"] for row in read(table)] == ["244", "260"]
    assert Path(f"{table}.bak").read_text() == old
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("table.csv", "table.csv.bak", "table.md", "table.png")
    ]


def test_the_rows_of_another_comparison_do_not_count_unless_it_is_extended(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    more = (*TOY, "--memory", "2p,3p", "-o", table)
    assert call(*TOY, "-o", table).returncode == 0
    first = read(table)
    assert "4 rows, 2 of them already in" in call(*more, "--extend").stderr
    assert read(table)[:2] == first
    assert "2 rows, 0 of them already in" in call(*TOY, "-o", table).stderr
    assert len(read(table)) == 2
    assert "4 rows, 0 of them already in" in call(*more).stderr


def interrupted(table: Path) -> None:
    """Leave the table as a run does that was ended after its first row."""
    tasks = tasks_of_settings(
        choose_settings("toy-4x8"), Comparison(("2p",), ("greedy-v", "list"), "device_span", Allowance(75, 1))
    )
    with table_run(Table(table, SETTINGS_FORM), tasks, extend=False):
        fill_table(Table(table, SETTINGS_FORM), tasks[:1], 300)


OBJECTIVE = ("--objective", "device_span")


def test_only_the_same_comparison_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    interrupted(table)
    first = read(table)
    assert len(first) == 1
    assert "2 rows, 1 of them already in" in call(*TOY, *OBJECTIVE, "-o", table).stderr
    assert read(table)[:1] == first
    interrupted(table)
    other = call(*TOY, *OBJECTIVE, "--memory", "2p,3p", "-o", table)
    assert "4 rows, 0 of them already in" in other.stderr
    assert "2 rows, 0 of them already in" in call(*TOY, *OBJECTIVE, "-o", table).stderr


def test_a_table_that_was_put_back_during_an_interruption_does_not_count(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    assert call(*TOY, *OBJECTIVE, "-o", table).returncode == 0
    finished_at = read(table)[0]["finished_at"]
    committed = table.read_text().replace(finished_at, "2026-01-02T03:04:05Z")
    interrupted(table)
    table.write_text(committed)
    assert "2 rows, 0 of them already in" in call(*TOY, *OBJECTIVE, "-o", table).stderr


def test_two_runs_do_not_fill_one_table_at_once(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    with table_run(Table(table, SETTINGS_FORM), [], extend=False):
        refused = call(*TOY, "-o", table)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"tightpipe: {table}: another run is filling this table: "
        "wait until it ends, or give another file with -o\n"
    )
    assert read(table) == []


def test_the_rows_of_another_engine_are_not_extended(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    arguments = ["--settings", "toy-4x8", "--methods", "greedy-v,list", "-o", str(table)]
    first = call("compare", *arguments)
    assert "does not count" not in first.stderr
    (engine,) = {row["engine"] for row in read(table)}
    assert engine == engine_version()
    assert f"tightpipe {engine}".encode() in table.with_suffix(".png").read_bytes()
    table.write_text(table.read_text().replace(engine, "0.0.9+1234567"))
    again = call("compare", *arguments, "--extend")
    said = f"engine {engine} does not count 2 row(s) of engine 0.0.9+1234567, kept in {table}.bak"
    assert again.stderr.splitlines()[0] == said
    assert "2 rows, 0 of them already in" in again.stderr
    assert [row["engine"] for row in read(table)] == [engine] * 2
    assert [row["engine"] for row in read(tmp_path / "table.csv.bak")] == ["0.0.9+1234567"] * 2


def test_ctrl_c_leaves_no_row_of_the_solve_in_flight(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    # closed at once, and not closed in a minute
    chosen = command(table, "--settings", "6.2B-8x24,6.2B-8x24-swapped", seconds="60")
    process = subprocess.Popen(chosen, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (table.exists() and table.read_text().count("\n") >= 4):
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert [r["method"] for r in read(table)] == ["greedy-v", "best", "greedy-v"]


@pytest.mark.parametrize(
    ("text", "devices", "offset"),
    [("2p", 8, 0), ("2.5p", 8, 4), ("3p", 24, 24), ("1p", 4, -4), ("2.3p", 8, 2)],
)
def test_memory_limits(text: str, devices: int, offset: int) -> None:
    assert parse_memory(text, devices) == offset


def test_a_file_with_other_columns_is_left_alone(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="other columns"):
        Table(table, SETTINGS_FORM)
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
    assert list(rows[0]) == [*COLUMNS, "instance_hash"]
    assert [(r["setting"], r["method"], r["objective"], r["f"], r["m_offset"], r["max_mem"]) for r in rows] == [
        ("even", "greedy-v", "device_span", "10", "", "8"),
        ("even", "list", "device_span", "10", "", "8"),
        ("uneven", "greedy-v", "makespan", "", "", "8"),
        ("uneven", "list", "makespan", "", "", "8"),
    ]  # fmt: skip
    page = (tmp_path / "table.md").read_text()
    assert page.startswith("| setting | memory | objective | greedy-v bubble rate | list bubble rate |")
    assert "| uneven | own | makespan |" in page
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")
    rows = compare_files(tmp_path, "even.json", "--memory", "own,2.5p", "--objective", "makespan", "--extend")
    assert [(r["setting"], r["m_offset"], r["max_mem"], r["objective"]) for r in rows[4:]] == [
        ("even", "", "8", "makespan"),
        ("even", "", "8", "makespan"),
        ("even", "1", "10", "makespan"),
        ("even", "1", "10", "makespan"),
    ]


def test_objectives_and_limits_of_one_instance_do_not_mix_in_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, Any]] = []
    monkeypatch.setattr(comparing.drawing, "draw_bubble_rates", lambda rows, _: drawn.extend(rows))
    known = {"m_offset": "", "p": "4", "cost": "100", "work": "90", "bound": "95", "bubble_rate": "0.1"}
    known |= {"setting": "a", "method": "list", "placement": "v", "engine": "1.2.3"}
    objectives = [{**known, "objective": objective} for objective in ("device_span", "makespan")]
    limits = [{**objectives[0], "m_offset": offset} for offset in ("", "0")]
    comparing._draw_rates(objectives, "figure.png")
    comparing._draw_rates(limits, "figure.png")
    assert [row["panel"] for row in drawn] == ["device_span", "makespan", "", ""]
    assert [row["setting"] for row in drawn] == ["a", "a", "a own", "a 2p"]


def test_a_file_that_was_edited_is_solved_anew(tmp_path: Path) -> None:
    file = tmp_path / "my.json"
    file.write_text(json.dumps(OWN))
    first = compare_files(tmp_path, "my.json")
    assert compare_files(tmp_path, "my.json", "--extend") == first
    file.write_text(json.dumps({**OWN, "comm": [[0, 1], [9, 0]]}))
    both = compare_files(tmp_path, "my.json", "--extend")
    assert both[:2] == first
    assert int(both[2]["cost"]) > int(first[0]["cost"])
    file.write_text(json.dumps(OWN))
    assert compare_files(tmp_path, "my.json", "--extend") == both
    (line,) = [line for line in (tmp_path / "table.md").read_text().splitlines() if line.startswith("| my ")]
    assert f"{float(first[0]['bubble_rate']):.4f}" in line  # of the file as it is now


def test_a_solve_that_fails_is_no_row_and_is_tried_again(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    arguments = (
        "--settings",
        "toy-4x8",
        "--methods",
        "greedy-v,milp",
        "--link-occupancy",
        "9",
        "-o",
        table,
    )
    done = [call("compare", *arguments) for _ in range(2)]
    for each in done:
        assert each.returncode == 1
        assert "1 of the solves failed, the last one: " in each.stderr.splitlines()[-1]
        assert "link_occupancy" in each.stderr.splitlines()[-1]
    assert "2 rows, 1 of them already in" in done[1].stderr
    assert [row["method"] for row in read(table)] == ["greedy-v"]
    assert "toy-4x8 link 9" in table.with_suffix(".md").read_text()


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


def test_a_table_of_solves_with_parameters_says_so_and_has_no_others(tmp_path: Path) -> None:
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
    refused = call(*words, "--extend")
    assert refused.returncode == 2
    assert "with --params, and these are without: name another file with -o" in refused.stderr
    params.write_text("[list]\nretimed = 3\n")
    assert call(*words, "--params", params, "--extend").returncode == 0
    assert len(list(csv.DictReader(table.open()))) == 4  # rows with other parameters stay, and do not count


def test_limits_that_are_equal_are_solved_once() -> None:
    comparison = Comparison(("2p", "2.0p", "7/3p"), ("list",), "device_span", Allowance())
    tasks = tasks_of_settings(choose_settings("toy-4x8,1.5B-8x24"), comparison)
    cells = [SETTINGS_FORM.columns["m_offset"](Solve(task)) for task in tasks]
    assert cells == [0, 1, 0, 2]
