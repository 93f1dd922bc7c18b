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

from tightpipe import InputError
from tightpipe.experiments.compare import COLUMNS, SETTINGS_FORM, parse_memory
from tightpipe.experiments.table import Table
from tightpipe.settings import load_settings
from tightpipe.solving.methods import METHODS

TIGHTPIPE = str(Path(sys.executable).with_name("tightpipe"))
SETTINGS = "toy-4x8,6.2B-8x24,1.5B-8x24,6.2B-8x24-swapped"


def command(output: Path, *more: str, seconds: str = "2") -> list[str]:
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
        "tightpipe_version, ortools_version, host_cpus, finished_at"
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
    assert 3 <= len(kept) < 8
    with table.open("a") as file:
        file.write("6.2B-8x24,8,24,29")  # a row that the kill tore
    done = subprocess.run(command(table, "--json"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = read(table)
    assert rows[: len(kept)] == kept
    expected = [(s, m) for s in SETTINGS.split(",") for m in ("greedy-v", "best")]
    assert [(r["setting"], r["method"]) for r in rows] == expected
    assert len(json.loads(done.stdout)["rows"]) == 8
    again = subprocess.run(command(table), capture_output=True, text=True)
    assert "8 rows, 8 of them already in" in again.stderr
    assert read(table) == rows


def test_rows_hold_together(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    arguments = ["--settings", "toy-4x8", "--memory", "2p,3p", "--time-limit", "5", "-o", str(table)]
    done = subprocess.run([TIGHTPIPE, "compare", *arguments], capture_output=True, text=True)
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
    assert "2p+4" in text
    assert "CPU cores: time limit 5 s" in text
    assert table.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_busy_links_show_what_contention_costs(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    arguments = ["--settings", "toy-4x8", "--methods", "greedy-v,list", "-o", str(table)]
    for more in ([], ["--link-occupancy", "9"]):
        subprocess.run([TIGHTPIPE, "compare", *arguments, *more], check=True, capture_output=True)
    rows = read(table)
    assert [r["setting"] for r in rows] == ["toy-4x8"] * 2 + ["toy-4x8 link 9"] * 2
    assert int(rows[2]["cost"]) > int(rows[0]["cost"])


def test_every_heuristic_is_compared_on_the_same_model(tmp_path: Path) -> None:
    """Devices hold the same layers in every placement, so the work is the same."""
    table = tmp_path / "table.csv"
    names = [name for name, method in METHODS.items() if method.kind == "heuristic"]
    arguments = ["--settings", "toy-4x8", "--memory", "5p", "--methods", ",".join(names), "-o", str(table)]
    done = subprocess.run([TIGHTPIPE, "compare", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = read(table)
    assert [r["method"] for r in rows] == names
    assert {r["work"] for r in rows} == {"224"}
    assert {r["placement"] for r in rows} == {"v", "linear", "loop", "bidirectional"}


def test_fresh_keeps_the_old_rows_aside(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    arguments = ["--settings", "toy-4x8", "--methods", "greedy-v", "-o", str(table)]
    for more in ([], ["--fresh"]):
        subprocess.run([TIGHTPIPE, "compare", *arguments, *more], check=True, capture_output=True)
    assert len(read(table)) == len(read(tmp_path / "table.csv.bak")) == 1


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
