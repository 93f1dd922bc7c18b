"""Heuristics of installed packages: listed, run, compared, swept, and harmless where they are broken."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command_line import SMALL, call, write
from helpers.packages import SERIAL, importable, installed

import tightpipe
from tightpipe.experiments.study import load_study
from tightpipe.heuristics import HEURISTICS
from tightpipe.heuristics.registry import HeuristicError
from tightpipe.model.instance_file import instance_from_dict
from tightpipe.registry.methods import METHODS, find_method
from tightpipe.registry.own_heuristics import SEARCHES
from tightpipe.registry.starts import warm_starts

INSTANCE = instance_from_dict(SMALL)
DECLARED = SERIAL + (
    "\n\nfrom tightpipe.heuristics import Heuristic\n\n"
    'entry = Heuristic("other", serial, ("linear", "v"), "one activation per stage", "a test")\n'
)


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Path]:
    with installed(tmp_path / "site", {"serial": "toy:serial", "declared": "toy:entry"}, DECLARED) as module:
        yield module


def test_methods_lists_installed_heuristics(toy: Path) -> None:
    assert tightpipe.methods() == [*METHODS, "serial", "declared"]
    rows = {row["name"]: row for row in json.loads(call("methods", "--json").stdout)["methods"]}
    assert rows["serial"]["source"] == "toy 1.2"
    assert rows["declared"]["placements"] == ["linear", "v"]
    assert rows["declared"]["memory"] == "one activation per stage"


def test_solve_knows_them_as_methods_and_warm_starts(toy: Path, tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    done = call("solve", path, "--method", "serial", "-o", tmp_path / "s.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert tightpipe.load_schedule(tmp_path / "s.json").method == "serial"
    start = call(
        "solve", path, "--method", "improve", "--warm-start", "declared", "--time-limit", "0", "--json"
    )
    assert json.loads(start.stdout)["cost"] == tightpipe.solve(INSTANCE, "serial").cost
    assert "serial" in dict(warm_starts(INSTANCE))
    assert "one of greedy-v, " in (refused := call("solve", path, "--method", "magic").stderr)
    assert refused.endswith("serial, declared, or module:function of your own\n")


def test_the_best_of_all_begins_with_them(tmp_path: Path) -> None:
    """The optimum stands in the toy's file, and no other heuristic finds it."""
    instance = instance_from_dict({**SMALL, "placement": "loop"})
    best = tightpipe.solve(instance, "cpsat").schedule
    assert best is not None
    code = f"from tightpipe import Order\ndef known(_):\n    return Order.parse({str(best.order)!r})\n"
    without = tightpipe.solve(instance, "best", time_limit=0).cost
    with installed(tmp_path / "site", {"known": "toy:known"}, code):
        assert tightpipe.solve(instance, "best", time_limit=0).cost == 256 < without


def test_sweeps_run_them_in_processes_of_their_own(toy: Path, tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    experiment = write(tmp_path, 'instances = ["instance.json"]\nmethods = ["serial"]\n', "e.toml")
    words = ("sweep", experiment, "-o", tmp_path / "out", "--json")
    done = call(*words)
    assert done.returncode == 0, done.stderr
    row = load_study(tmp_path / "out").rows[0]
    assert (row.method, row.state, row.cost) == ("serial", "done", tightpipe.solve(INSTANCE, "serial").cost)


def test_an_edited_heuristic_is_another_solve_of_a_sweep(tmp_path: Path) -> None:
    codes = []
    for number, code in enumerate([SERIAL, SERIAL, f"{SERIAL}# edited\n"]):
        with installed(tmp_path / str(number), {"serial": "toy:serial"}, code):
            codes.append(find_method("serial").code)
    assert codes[0] == codes[1] != codes[2]
    assert find_method("list").code == ""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module that no package announces."""
    with importable(tmp_path / "elsewhere"):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.py").write_text(SERIAL)
        yield tmp_path


def test_a_function_in_a_file_has_a_name_everywhere(here: Path) -> None:
    write(here, SMALL)
    expected = tightpipe.solve(INSTANCE, "mine:serial").cost
    done = call("solve", "instance.json", "--method", "mine:serial", "-o", "s.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert tightpipe.load_schedule("s.json").method == "mine:serial"
    started = tightpipe.solve(INSTANCE, "improve", warm_start="mine:serial", time_limit=0)
    assert started.cost == expected
    compared = call("compare", "instance.json", "--methods", "list,mine:serial", "-o", "c.csv")
    assert compared.returncode == 0, compared.stderr
    rows = csv.DictReader(Path("c.csv").read_text().splitlines())
    assert [row["method"] for row in rows] == ["list", "mine:serial"]
    keys = 'instances = ["instance.json"]\nmethods = ["mine:serial", "improve"]\ntime_limits = [0.1]\n'
    write(here, f'{keys}warm_starts = ["mine:serial"]\n', "e.toml")
    swept = call("sweep", "e.toml", "-o", "out", "--json")
    assert swept.returncode == 0, swept.stderr
    assert load_study(here / "out").rows[0].cost == expected
    assert call("paper", "gallery", "--only", "mine:serial", "-o", "gallery.png").returncode == 0
    assert find_method("mine:serial").code == find_method("mine:serial").code != ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing:serial", "No module named 'nothing'"),
        ("mine:nothing", "module 'mine' has no attribute 'nothing'"),
        ("mine:Order", "missing 1 required positional argument"),
        (":serial", "no heuristic is there"),
    ],
)
def test_a_name_that_leads_nowhere_is_bad_input(name: str, message: str, here: Path) -> None:
    refused = call("solve", write(here, SMALL), "--method", name)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_file_that_names_a_function_does_not_run_it(here: Path) -> None:
    """A schedule may come from anywhere, and what made it is only a text there."""
    tightpipe.save_schedule(tightpipe.solve(INSTANCE, "list").schedule, here / "s.json")
    text = (here / "s.json").read_text()
    Path("trap.py").write_text("raise SystemExit('sprung')")
    (here / "s.json").write_text(text.replace('"list"', '"trap:serial"'))
    explained = call("explain", here / "s.json")
    assert explained.returncode == 0, explained.stderr
    assert "best of all heuristics" in explained.stdout


BROKEN = {
    "no module": ("nothing:serial", SERIAL, "ModuleNotFoundError: No module named 'nothing'"),
    "no function": ("toy:missing", SERIAL, "AttributeError: module 'toy' has no attribute 'missing'"),
    "an error": ("toy:serial", "1 / 0", "ZeroDivisionError: division by zero (toy.py, line 1)"),
    "an exit": ("toy:serial", "raise SystemExit(3)", "SystemExit: 3 (toy.py, line 1)"),
    "a number": ("toy:serial", "serial = 42", "toy:serial = 42: must be a function Instance -> Order"),
    "a placement": (
        "toy:serial",
        'from tightpipe.heuristics import Heuristic\nserial = Heuristic("serial", print, ("x",), "", "")',
        "placements = ('x',): must be a tuple of names out of linear",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_package_is_a_warning(kind: str, tmp_path: Path) -> None:
    entry, code, message = BROKEN[kind]
    with installed(tmp_path / "site", {"serial": entry}, code):
        done = call("methods", "--json")
        assert done.returncode == 0
        assert done.stderr.startswith("tightpipe: warning: heuristic serial (toy 1.2) is left out: ")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert [row["name"] for row in json.loads(done.stdout)["methods"]] == list(METHODS)
        solved = call("solve", write(tmp_path, SMALL), "--time-limit", "0")
        assert solved.returncode == 0
        assert solved.stderr.count("warning") == 0  # it was said once


@pytest.mark.parametrize("name", ["greedy-v", "best"])
def test_tightpipe_s_own_names_are_taken(name: str, tmp_path: Path) -> None:
    with installed(tmp_path / "site", {name: "toy:serial"}):
        assert "tightpipe has a method of this name; rename" in call("methods").stderr
        assert find_method(name) is METHODS[name]


def test_a_name_that_two_packages_have_is_the_first_one_s(tmp_path: Path) -> None:
    with (
        installed(tmp_path / "one", {"serial": "toy:serial"}),
        installed(tmp_path / "two", {"serial": "other:serial"}, name="other"),
    ):
        done = call("methods")
        assert "another package has a heuristic of this name; rename the entry point" in done.stderr
        assert done.stdout.count("serial") == 1


def test_packages_are_imported_by_what_needs_them_alone(tmp_path: Path) -> None:
    with installed(tmp_path / "site", {"serial": "toy:serial"}, "raise RuntimeError('imported')"):
        path = write(tmp_path, SMALL)
        for words in (
            ("solve", path, "--method", "greedy-v", "-o", tmp_path / "s.json"),
            ("solve", path, "--method", "cpsat", "--warm-start", "none", "--time-limit", "0"),
            ("validate", tmp_path / "s.json"),
            ("bound", path, "--time-limit", "0"),
        ):
            assert "imported" not in call(*words).stderr, words
        assert "RuntimeError: imported (toy.py, line 1)" in call("methods").stderr


def test_the_names_that_are_taken_are_those_of_the_methods() -> None:
    assert set(METHODS) == {*HEURISTICS, *SEARCHES}


FAULTS = {
    "no order": ("return 1", "must return an Order, not int"),
    "an invalid order": (
        "return Order.parse('F0.0\\nF1.0')",
        "the order is invalid: complete: F0.1 is missing",
    ),
    "an error": ("return 1 / 0", "failed: ZeroDivisionError: division by zero (toy.py, line 3)"),
    "a deadlock of its own": (
        "import tightpipe; raise tightpipe.DeadlockError('a circle')",
        "failed: DeadlockError: a circle (toy.py, line 3)",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_heuristic_that_fails_is_one_line(kind: str, tmp_path: Path) -> None:
    line, message = FAULTS[kind]
    code = f"from tightpipe import Order\ndef faulty(instance):\n    {line}\n"
    path = write(tmp_path, SMALL)
    with installed(tmp_path / "site", {"faulty": "toy:faulty"}, code):
        done = call("solve", path, "--method", "faulty", "-o", tmp_path / "s.json")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"tightpipe: heuristic = 'faulty': {message}\n"
        assert not (tmp_path / "s.json").exists()
        started = call("solve", path, "--time-limit", "0")  # which goes on without it
        assert started.returncode == 0
        assert f"tightpipe: warning: no warm start: heuristic = 'faulty': {message}\n" in started.stderr
        with pytest.raises(HeuristicError):
            tightpipe.solve(INSTANCE, "faulty")


def test_a_heuristic_that_refuses_an_instance_is_no_warm_start(tmp_path: Path) -> None:
    code = """\
from tightpipe import InfeasibleError
from tightpipe.heuristics.family import check_placement
def choosy(instance):
    check_placement(instance, "choosy", "loop")
def mistaken(instance):
    raise InfeasibleError("nothing fits")
"""
    with installed(tmp_path / "site", {"choosy": "toy:choosy", "mistaken": "toy:mistaken"}, code):
        done = call("solve", write(tmp_path, SMALL), "--time-limit", "0")
        assert (done.returncode, done.stderr.count("warning")) == (0, 0)
        assert call("solve", tmp_path / "instance.json", "--method", "choosy").returncode == 2
