"""What somebody meets who works in Python: usual values, texts, tables, bounds and pictures."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.cases import serial_order
from helpers.command_line import call
from matplotlib.figure import Figure

import tightpipe
from tightpipe import (
    Instance,
    Memory,
    NoScheduleError,
    Result,
    Status,
    retime,
    save_instance,
    simulate,
    solve,
)
from tightpipe.base.errors import InfeasibleError, InputError
from tightpipe.cli import cli
from tightpipe.drawing import gantt as show
from tightpipe.model.metrics import peak_memory
from tightpipe.model.result import LogEntry, Proof

SMALL = Instance.uniform(
    devices=3, microbatches=6, forward=6, backward=4, weight=4, comm=1, memory=Memory(2, -1, -1, 12)
)
TIGHT = replace(SMALL, memory=Memory(2, -1, -1, 3))


@pytest.fixture(scope="module")
def listed() -> Result:
    return solve(SMALL, "list")


@pytest.fixture(scope="module")
def none() -> Result:
    return solve(TIGHT, "list")


def test_solve_needs_an_instance_alone() -> None:
    one = Instance.uniform(devices=1, microbatches=2, forward=3, backward=4, weight=2, placement="linear")
    result = solve(one)
    assert (result.method, result.status, result.cost) == ("best", Status.OPTIMAL, 18)


def test_python_and_the_command_line_have_the_same_usual_values() -> None:
    python = inspect.signature(solve).parameters
    import_module("tightpipe.cli.solving")  # which adds the commands to the group
    options = {option.name: option.default for option in cli.commands["solve"].params}
    for name in ("method", "time_limit", "seed", "warm_start"):
        assert python[name].default == options[name], name
    assert (options["method"], options["time_limit"]) == ("best", 60)
    bound = {option.name: option.default for option in cli.commands["bound"].params}
    assert inspect.signature(tightpipe.bound).parameters["time_limit"].default == bound["time_limit"] == 20


def test_a_result_is_printed_as_a_summary_of_eleven_lines(listed: Result) -> None:
    lines = str(listed).splitlines()
    assert len(lines) == 11
    said = dict(line.split(maxsplit=1) for line in lines)
    assert said.pop("seconds") == f"{listed.seconds:.3f}"
    assert said == {
        "method": "list",
        "status": "feasible (bound: formula)",
        "cost": str(listed.cost),
        "objective": "device_span (the same schedule: makespan 197, step 197)",
        "bound": str(listed.bound),
        "gap": f"{listed.gap:.6f}",
        "work": "168",
        "bubble": str(listed.bubble),
        "bubble_rate": f"{listed.bubble_rate:.6f}",
        "peak_memory": f"{listed.peak_memory} of 12",
    }


def test_the_summary_says_what_differs_between_devices(listed: Result) -> None:
    uneven = Instance.uniform(
        devices=2,
        microbatches=4,
        forward=[9, 1, 1, 9],
        backward=3,
        weight=2,
        memory=Memory(2, -1, -1, [8, 9]),
    )
    said = dict(line.split(maxsplit=1) for line in str(solve(uneven, "list")).splitlines())
    assert said["imbalance"].endswith("(busiest device: 0)")
    assert said["peak_memory"].isdigit()  # there is no one limit to set beside it
    assert "peak_memory" not in str(solve(replace(SMALL, memory=None), "list"))
    assert "(bound: cp-sat, trusted)" in str(replace(listed, proof=Proof.CP_SAT))


def test_a_summary_without_a_schedule_says_why(none: Result) -> None:
    said = dict(line.split(maxsplit=1) for line in str(none).splitlines())
    assert set(said) == {"method", "status", "work", "seconds", "reason"}
    assert said["status"] == "infeasible"
    assert "takes at least 4" in said["reason"]


def test_solve_prints_what_python_prints(listed: Result, tmp_path: Path) -> None:
    save_instance(SMALL, tmp_path / "instance.json")
    done = call("solve", tmp_path / "instance.json", "--method", "list")

    def without_seconds(text: str) -> str:
        return re.sub(r"seconds +[\d.]+", "seconds", text).strip()

    assert without_seconds(done.stdout) == without_seconds(str(listed))


def test_representations_are_one_short_line(listed: Result, none: Result) -> None:
    assert repr(listed) == f"<Result list 3x6: feasible, cost {listed.cost}, bound {listed.bound}>"
    assert repr(none) == "<Result list 3x6: infeasible, cost None, bound None>"
    assert listed.schedule is not None
    end = listed.schedule.end.max()
    assert repr(listed.schedule) == f"<Schedule v 3x6: 108 operations until tick {end}>"
    assert repr(listed.schedule.order) == "<Order of 108 operations on 3 devices>"


def test_display_says_on_stderr_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[LogEntry] = []
    result = solve(SMALL, "list", display=True, progress=seen.append)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"[1/1] list: feasible cost {result.cost} bound {result.bound} in ")
    assert [entry.cost for entry in seen] == [result.cost]
    solve(SMALL, "list")
    assert capsys.readouterr().err == ""


def test_the_bar_shows_cost_and_bound_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    result = solve(SMALL, "list", display=True)
    assert f"list: cost {result.cost} bound {result.bound}" in capsys.readouterr().err


def test_bound_is_the_best_that_the_command_finds(tmp_path: Path) -> None:
    save_instance(SMALL, tmp_path / "instance.json")
    found = json.loads(call("bound", tmp_path / "instance.json", "--time-limit", "0", "--json").stdout)
    bound = tightpipe.bound(SMALL, time_limit=0)
    assert isinstance(bound, tightpipe.Bound)
    assert (bound.value, bound.name) == (found["best"], found["name"])
    assert bound.argument


def test_bound_searches_within_its_time_limit() -> None:
    """The least cost is 246, and the formulas alone show 244."""
    instance = Instance.uniform(
        devices=2, microbatches=4, forward=10, backward=12, weight=8, comm=1, memory=Memory(2, -1, -1, 8)
    )
    assert tightpipe.bound(instance, time_limit=0).value == 244
    assert tightpipe.bound(instance, time_limit=600, workers=1).value == 246  # ends once it is proven


def test_bound_refuses_what_has_no_schedule_and_bad_options() -> None:
    with pytest.raises(InfeasibleError, match="takes at least 4"):
        tightpipe.bound(TIGHT)
    with pytest.raises(InputError, match="time_limit = -1"):
        tightpipe.bound(SMALL, time_limit=-1)


def test_a_table_has_a_row_per_operation(listed: Result) -> None:
    schedule = listed.schedule
    assert schedule is not None
    frame = listed.to_frame()
    assert list(frame.columns) == ["device", "kind", "stage", "microbatch", "start", "end", "memory"]
    assert len(frame) == len(schedule.order)
    operations = [[str(op) for op in device] for device in schedule.order.to_lists()]
    for device, rows in frame.groupby("device"):
        names = [f"{row.kind}{row.stage}.{row.microbatch}" for row in rows.itertuples()]
        assert names == operations[device]
    assert (frame["end"] - frame["start"]).tolist() == frame["kind"].map({"F": 6, "B": 4, "W": 4}).tolist()
    assert frame.groupby("device")["memory"].max().tolist() == peak_memory(schedule).tolist()
    assert frame.equals(schedule.to_frame())


def test_a_table_leaves_the_schedule_alone() -> None:
    schedule = retime(SMALL, serial_order(SMALL))
    frame = schedule.to_frame()
    frame.loc[:, "start"] = 99
    assert schedule == retime(SMALL, serial_order(SMALL))


def test_without_a_schedule_there_is_no_table(none: Result) -> None:
    with pytest.raises(NoScheduleError, match="list: infeasible: memory limit 3"):
        none.to_frame()


def test_plot_returns_a_figure(listed: Result, tmp_path: Path) -> None:
    assert listed.schedule is not None
    figure = tightpipe.plot(listed.schedule, label="by list", memory=True, bound=listed.bound)
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 2
    assert figure.axes[0].get_title(loc="left") == "by list"
    assert f"bound {listed.bound}" in figure.axes[0].get_title(loc="right")
    figure.savefig(tmp_path / "figure.png")
    with pytest.raises(InputError, match="no memory deltas"):
        tightpipe.plot(replace(listed.schedule, instance=replace(SMALL, memory=None)), memory=True)


def test_notebooks_show_a_schedule_as_a_drawing(listed: Result) -> None:
    assert listed.schedule is not None
    svg = ElementTree.fromstring(listed.schedule._repr_html_())
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"


def test_notebooks_show_a_result_as_its_summary_and_a_drawing(listed: Result, none: Result) -> None:
    text, _, drawing = listed._repr_html_().partition("</pre>")
    assert text == f"<pre>{listed}"
    assert drawing.startswith("<svg ")
    assert f"bound {listed.bound}" in drawing
    assert none._repr_html_() == f"<pre>{none}</pre>"
    assert "&lt;" in replace(none, reason="a < b")._repr_html_()


def test_notebooks_show_thousands_of_operations_as_an_image() -> None:
    many = Instance.uniform(devices=4, microbatches=84, forward=3, backward=3, weight=2)
    schedule = simulate(many, serial_order(many))
    assert len(schedule.order) > show.MOST_SVG_BARS
    assert re.fullmatch(
        r'<img alt="Gantt chart" src="data:image/png;base64,[\w+/=]+">', schedule._repr_html_()
    )


def test_heavy_libraries_are_loaded_when_they_are_needed() -> None:
    code = (
        "import sys, tightpipe; tightpipe.plot; tightpipe.bound; tightpipe.Schedule.to_frame;"
        "sys.exit(', '.join({'matplotlib', 'pandas', 'rich'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_empty_order_has_a_short_text_too() -> None:
    empty = tightpipe.Order(np.empty((0, 3)), np.array([0, 0]))
    assert repr(empty) == "<Order of 0 operations on 1 devices>"
