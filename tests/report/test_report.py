"""Reports as files: what they hold, and what they refuse."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import serial_order, uniform
from helpers.command_line import SMALL, call, write
from helpers.studies import make_study

from tightpipe import Instance, Memory, OpKind, Order, Schedule, retime, simulate, solve
from tightpipe.drawing import palette
from tightpipe.explain import explain
from tightpipe.model.costs import Step
from tightpipe.model.operation import COMPUTES
from tightpipe.model.schedule_file import MEASURED, load_schedule, save_schedule
from tightpipe.report import Entry, Report, render, report_of_files
from tightpipe.report.page import chart, pack
from tightpipe.report.sources import split_columns

TYPES = {"Float64Array": "<f8", "Int32Array": "<i4", "Uint16Array": "<u2", "Uint8Array": "<u1"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("report")
    instance = write(folder, SMALL)
    for method in ("greedy-v", "v-zb"):
        call("solve", instance, "--method", method, "-o", folder / f"{method}.json")
    return [folder / "greedy-v.json", folder / "v-zb.json"]


def page_data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def arrays(page: str, number: int) -> dict[str, np.ndarray[Any, Any]]:
    """Read a chart's arrays as its script does."""
    found = re.search(rf'id="chart-{number}">(.*?)</script>', page)
    assert found is not None
    content = zlib.decompress(base64.b64decode(found[1]))
    layout = page_data(page)["charts"][number]["layout"]
    return {name: np.frombuffer(content, TYPES[kind], count, at) for name, kind, at, count in layout}


def test_a_page_holds_schedules_exactly(files: list[Path], tmp_path: Path) -> None:
    done = call("report", *files, "-o", tmp_path / "page.html", "--json")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert json.loads(done.stdout) == {
        "output": str(tmp_path / "page.html"), "rows": 2, "schedules": 2, "bytes": len(page.encode()),
    }  # fmt: skip
    for number, path in enumerate(files):
        check_chart(load_schedule(path).schedule, page_data(page)["charts"][number], arrays(page, number))


def test_measured_schedules_are_told_apart_by_their_files(files: list[Path], tmp_path: Path) -> None:
    schedule = load_schedule(files[0]).schedule
    paths = [tmp_path / "monday.json", tmp_path / "friday.json"]
    for path in paths:
        save_schedule(schedule, path, method=MEASURED)
    entries = report_of_files([(str(path), load_schedule(path)) for path in paths]).entries
    assert [entry.label for entry in entries] == ["monday", "friday"]


def test_operations_that_run_together_and_busy_links_are_held_too() -> None:
    instance = Instance.uniform(
        devices=4, microbatches=16, forward=30, backward=31, weight=20, comm=4, link_occupancy=40,
        placement="bidirectional", overlapped=70, objective="makespan",
    )  # fmt: skip
    schedule = solve(instance, "dualpipe").schedule
    assert schedule is not None
    page = render(Report("pairs", "", (Entry({}, "dualpipe", schedule, "dualpipe"),)))
    about, chart = page_data(page)["charts"][0], arrays(page, 0)
    check_chart(schedule, about, chart)
    assert chart["joined"].tolist() == schedule.order.pairs.tolist()
    assert chart["joined"].any()
    assert chart["linkWait"].any()
    named = np.stack([chart[f"idle{key}"] for key in ("Next", "Awaits", "Ready", "Frees")], axis=1)
    found = explain(schedule, relax=False).idle
    rows = {op: row for row, op in enumerate(op for ops in schedule.order.to_lists() for op in ops)}
    four = [[i.next, i.awaits, i.ready, i.frees] for i in found]
    assert named.tolist() == [[-1 if op is None else rows[op] for op in ops] for ops in four]
    assert [about["explanation"]["intervals"], len(chart["idleReason"])] == [len(found)] * 2


def check_chart(schedule: Schedule, about: dict[str, Any], chart: dict[str, np.ndarray[Any, Any]]) -> None:
    start = np.cumsum(chart["startStep"]).astype(int)
    assert start.tolist() == schedule.start.tolist()
    assert (start + chart["duration"]).tolist() == schedule.end.tolist()
    operations = np.stack([chart["kind"], chart["stage"], chart["microbatch"]], axis=1)
    assert operations.tolist() == schedule.order.operations.tolist()
    assert about["offsets"] == schedule.order.offsets.tolist()
    idle = [d["idle"] for d in about["explanation"]["devices"]]
    assert chart["idleTicks"].sum() == sum(idle)
    assert sum(leg["ticks"] for leg in about["explanation"]["path"]) == about["cost"]


def test_a_chart_has_the_memory_of_forwards_that_hold_it_while_they_run() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=10, backward=[0, 12], weight=[0, 8], comm=5, placement="linear",
        memory=Memory(3, [0, -1], [0, -2], 6),
    )  # fmt: skip
    schedule = simulate(instance, Order.parse("F0.0 F0.1\nF1.0 B1.0 F1.1 W1.0 B1.1 W1.1"))
    page = render(Report("frozen", "", (Entry({}, "frozen", schedule, ""),)), relax=False)
    chart = arrays(page, 0)
    assert chart["held"].tolist() == [3, 3, 3, 3, 5, 5, 3, 2]
    assert chart["takes"].tolist() == [3, 3, 3, 0, 3, 0, 0, 0]


def test_a_chart_shows_the_whole_step() -> None:
    """A step is charged from tick 0 to the end of its last optimizer."""
    step = Step(ready=500, optimizer=70)
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=10, backward=12, weight=8, objective="step", step=step
    )
    schedule = solve(instance, "greedy-v").schedule
    assert schedule is not None
    about, _ = chart(Entry({}, "step", schedule, "greedy-v"), explain(schedule, relax=False))
    assert about["shown"] == (0, about["cost"])
    assert sum(leg["step"] for leg in about["explanation"]["path"]) == 570


def test_a_page_refers_to_nothing_outside(files: list[Path], tmp_path: Path) -> None:
    call("report", *files, "-o", tmp_path / "page.html", "--no-relax")
    page = (tmp_path / "page.html").read_text()
    assert set(re.findall(r'(?:src|href)="([a-z]*:?)', page)) <= {"data:"}
    assert "http" not in page
    assert page_data(page)["charts"][0]["explanation"]["relaxations"] == []
    assert page_data(page)["stacks"] == [[0, 1], [1, 0]]


def test_a_page_has_the_colours_of_the_figures(files: list[Path], tmp_path: Path) -> None:
    call("report", *files, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    data = page_data(page)
    assert data["colours"] == [[palette.shade(kind, lane, 2) for lane in range(2)] for kind in COMPUTES]
    assert data["idle"] == palette.IDLE
    assert {reason["name"]: reason["colour"] for reason in data["reasons"]} == palette.REASONS
    assert [kind for kind, hatched in zip(COMPUTES, data["hatched"], strict=True) if hatched] == [OpKind.BW]
    used = set(re.findall(r"var\(--([a-z]+)\)", page))
    set_to = dict(re.findall(r"--([a-z]+): (#[0-9A-F]{6});", page))
    assert used <= set(set_to)
    assert set_to["accent"] == palette.ACCENT


def test_names_cannot_break_the_page(files: list[Path], tmp_path: Path) -> None:
    data = json.loads(files[0].read_text()) | {"method": "</script><em>"}
    odd = write(tmp_path, data, "a <i> & b.json")
    call("report", odd, files[1], "-o", tmp_path / "page.html", "--no-relax")
    page = (tmp_path / "page.html").read_text()
    assert "<em>" not in page
    assert "<i>" not in page
    assert page_data(page)["rows"][0][:2] == ["a <i> & b", "</script><em>"]


def test_a_study_becomes_a_page_of_its_folder(tmp_path: Path) -> None:
    folder = make_study(tmp_path)
    done = call("report", folder, "--no-relax", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schedules"] == 6
    page = (folder / "report.html").read_text()
    data = page_data(page)
    assert [column["key"] for column in data["columns"]][:2] == ["memory", "method"]
    assert "<title>small study" in page
    assert "<figcaption>Bubble rate</figcaption>" in page
    column = [column["key"] for column in data["columns"]].index("cost")
    costs = {(row[0], row[1]): row[column] for row in data["rows"]}
    for (memory, method, *_), stack in zip(data["rows"], data["stacks"], strict=True):
        better = min(("v-half", "greedy-v"), key=lambda name: costs[memory, name])
        prefix = "small · " + ("" if memory == "own" else f"{memory} · ") + "device_span · "
        reference, solver = (data["charts"][k]["label"].removeprefix(prefix) for k in stack)
        assert reference == (method if method != "cpsat" else better)
        assert solver == "cpsat"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["good.json"], "output = None: give the page to write with -o"),
        (["folder"], "folder: holds neither store.sqlite nor rows.csv"),
        (["folder", "good.json"], "paths = 'folder': give one folder of a study, or schedule files"),
        (["none.json", "-o", "page.html"], "none.json: no such file"),
        (["good.json", "-o", "none/page.html"], "none/page.html: cannot be written: there is no such folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: list[str], words: str, files: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "good.json").write_text(files[0].read_text())
    (tmp_path / "folder").mkdir()
    done = call("report", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["folder", "good.json"]


def test_numbers_that_a_type_does_not_hold_are_refused() -> None:
    with pytest.raises(OverflowError, match="stage has numbers that u2"):
        pack({"stage": ("u2", np.array([2**16]))})
    with pytest.raises(OverflowError, match="time has numbers that f8"):
        pack({"time": ("f8", np.array([2**53 + 1]))})


def test_a_device_may_have_more_stages_than_a_byte_counts() -> None:
    instance = uniform(1, 1, (3, 4, 2), placement="loop", chunks=300)
    found = explain(retime(instance, serial_order(instance)), relax=False)
    assert chart(Entry({}, "many", None), found)[0]["lanes"] == 300


def test_a_value_that_all_rows_share_is_written_as_in_the_table() -> None:
    shared = {"imbalance": 0.030048076923076872, "time_limit": 60.0, "cost": 12345, "method": "list"}
    _, same = split_columns([Entry(shared, "a", None), Entry(shared, "b", None)])
    assert same == [("imbalance", "3.00 %"), ("time limit", "60"), ("cost", "12,345"), ("method", "list")]
