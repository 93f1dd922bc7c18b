"""A program in a process of its own ends with all that it has started, and says how it ended."""

from __future__ import annotations

import psutil
import pytest
from experiments.sweeps import wait_until

from tightpipe.base.child import Child

PARENT = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE).pid, flush=True)
input()
"""


def all_lines(child: Child) -> list[bytes]:
    lines = []
    while not child.ended:
        lines += child.lines(10)
    return lines


def test_what_a_program_has_started_is_counted_and_killed_with_it() -> None:
    with Child("-c", PARENT) as child:
        while not (lines := child.lines(10)):
            pass
        grandchild = psutil.Process(int(lines[0]))
        wait_until(lambda: child.memory > psutil.Process(child.pid).memory_info().rss)
    wait_until(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE)


def test_a_line_longer_than_a_pipe_arrives_whole() -> None:
    with Child("-c", "print(input()); print('and')") as child:
        child.tell("x" * 300_000)
        assert all_lines(child) == [b"x" * 300_000, b"and"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", "crashed: SIGABRT"),
        ("import sys; sys.exit('one\\ntwo')", "two"),
        ("import sys; sys.exit(3)", "ended with status 3 and no answer"),
    ],
)
def test_how_a_program_ended(code: str, said: str) -> None:
    with Child("-c", code) as child:
        assert child.fault() == said
