"""What the small commands load, and signals before and while anything is loaded."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from helpers.command_line import call
from helpers.every_command import command_of, commands

import tightpipe
from tightpipe import Instance, Memory, save_instance, save_schedule, solve
from tightpipe.cli import cli
from tightpipe.cli.group import FILE_OF, LazyGroup

HEAVY = ("numba", "ortools", "pandas", "matplotlib", "pulp", "highspy", "scipy", "filelock")
INSTANCE = Instance.uniform(devices=2, microbatches=4, forward=10, backward=12, weight=8)
HARD = Instance.uniform(
    devices=8, microbatches=24, forward=10, backward=14, weight=9, comm=2, memory=Memory(2, -1, -1, 16)
)
ONE = ("--workers", "1")
RUN = "import sys; from _tightpipe_entry import main; sys.argv[0] = 'tightpipe'; {}main()"


def loaded(code: str, *arguments: str | Path, rich: bool = False) -> list[str]:
    """Heavy modules that a process has loaded at its end."""
    heavy = HEAVY if rich else (*HEAVY, "rich")
    tell = f"import atexit, sys; atexit.register(lambda: print([m for m in {heavy} if m in sys.modules]))\n"
    run = [sys.executable, "-c", tell + code, *map(str, arguments)]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1].replace("'", '"')))


def test_the_package_loads_nothing_heavy() -> None:
    assert loaded("import tightpipe; [getattr(tightpipe, name) for name in tightpipe.__all__]") == []
    assert loaded("import tightpipe.cli; tightpipe.cli.main; tightpipe.__version__") == []


def test_the_small_commands_load_nothing_heavy(tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    save_schedule(solve(INSTANCE, "list").schedule, schedule)
    run = RUN.format("")
    assert loaded(run, "--help") == []
    assert loaded(run, "--version") == []
    assert loaded(run, "methods", rich=True) == []
    assert loaded(run, "methods", "--json") == []
    assert loaded(run, "validate", schedule) == []


def test_a_heuristic_loads_no_solver(tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    save_instance(INSTANCE, path)
    assert loaded(RUN.format(""), "solve", path, "--method", "greedy-v", rich=True) == ["numba"]


def test_a_name_is_imported_when_it_is_used() -> None:
    late = (
        "import sys, tightpipe; before = 'tightpipe.planning' in sys.modules; tightpipe.plan; print(before)"
    )
    done = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert {*tightpipe.__all__, "__version__"} <= set(dir(tightpipe))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tightpipe.nothing


def groups() -> list[LazyGroup]:
    """Return the top group and those below it that import their commands late."""
    folder = Path(import_module("tightpipe.cli").__file__).parent
    for path in folder.glob("*.py"):
        import_module(f"tightpipe.cli.{path.stem}".removesuffix(".__init__"))
    return [cli, *(group for group in cli.commands.values() if isinstance(group, LazyGroup))]


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.name)
def test_the_list_of_commands_is_that_of_their_modules(group: LazyGroup) -> None:
    assert set(group.commands) == set(group.listed)
    for name, text in group.listed.items():
        command = group.commands[name]
        assert command.callback.__module__ == f"tightpipe.cli.{FILE_OF[name]}"
        assert " ".join(command.help.split()).startswith(text.removesuffix("."))


def test_at_most_twenty_commands_stand_at_the_top_and_the_help_lists_each_under_what_it_is_for() -> None:
    assert len(cli.listed) <= 20
    shown = call("--help").stdout
    headings = ("Solve and prove:", "Plan a model:", "Run and measure:", "Experiments and papers:")
    places = [shown.index(f"\n{heading}\n") for heading in headings]
    assert places == sorted(places)
    assert all(re.search(rf"^  {name} ", shown, flags=re.M) for name in cli.listed)


@pytest.mark.parametrize("name", sorted(commands()))
def test_a_command_has_each_option_once(name: str) -> None:
    spelled = [text for parameter in command_of(name).params for text in parameter.opts]
    assert sorted(spelled) == sorted(set(spelled))


def test_commands_that_scripts_rely_on_stand_at_the_top() -> None:
    contract = {
        "solve",
        "bound",
        "validate",
        "compare",
        "sweep",
        "plot",
        "lower",
        "export",
        "methods",
        "check",
        "plan",
    }
    assert contract <= set(cli.listed)


def test_the_package_has_a_version_and_no_other_late_names() -> None:
    assert tightpipe.__version__[0].isdigit()
    with pytest.raises(AttributeError, match="module 'tightpipe' has no attribute 'nothing'"):
        tightpipe.nothing  # noqa: B018


def ended_after(seconds: float, instance: Path, number: signal.Signals) -> tuple[int, str]:
    """A signal so long after the command's first line; its exit status and what it said on stderr."""
    code = RUN.format("print('up', file=sys.stderr, flush=True); ")
    process = subprocess.Popen(
        [sys.executable, "-c", code, "solve", str(instance), "--method", "best", "--time-limit", "30", *ONE],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "up\n"
    time.sleep(seconds)
    process.send_signal(number)
    said = process.communicate()[1]
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_early_moment_is_one_line(tmp_path: Path, number: signal.Signals) -> None:
    """The instance takes the whole time limit, so that no solve has ended by then.

    Each moment is half as late again as the one before, and those of one signal lie between those of the
    other. So no phase is missed, however fast the machine is: the imports, loading the solver, loading the
    loops, and the solve itself.
    """
    path = tmp_path / "instance.json"
    save_instance(HARD, path)
    first = 0.03 if number == signal.SIGINT else 0.037
    ends = [ended_after(first * 1.5**i, path, number) for i in range(10)]
    assert [said for _, said in ends if "Traceback" in said or "\n" in said.strip()] == []
    assert {status for status, _ in ends} == {128 + number}
    reason = "interrupted" if number == signal.SIGINT else "terminated"
    early = [said for _, said in ends if said.strip().startswith(f"tightpipe: {reason}")]
    assert len(early) >= 3  # the others had begun to solve, and answered with what they had


def test_an_end_while_compiling_shows_the_cursor_that_a_bar_hides() -> None:
    main, terminal = os.openpty()
    code = "import tightpipe.base.interruption as i; i._end(2)"
    status = subprocess.run([sys.executable, "-c", code], stderr=terminal).returncode
    assert status == 130
    assert os.read(main, 1000).startswith(b"\x1b[?25h")
    os.close(main), os.close(terminal)
