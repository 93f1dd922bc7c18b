"""Systems that lack what POSIX has: every module can be imported there, and every test collected.

What needs more than such a system has may fail when it is called, by a message of its own, but not before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tightpipe
from tightpipe.base import sources
from tightpipe.base.interruption import Terminated, ended_by_signals

PACKAGE, TESTS = Path(tightpipe.__file__).parent, Path(__file__).parent
ABSENT = {
    "os": (
        *(
            "chown",
            "fchmod",
            "fork",
            "getegid",
            "geteuid",
            "getgid",
            "getloadavg",
            "getpgid",
            "getuid",
            "killpg",
        ),
        *("mkfifo", "nice", "openpty", "sched_getaffinity", "sched_setaffinity", "setsid", "uname", "wait4"),
    ),
    "signal": (
        *("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGSTOP", "SIGUSR1", "SIGUSR2"),
        *("alarm", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait"),
    ),
}
COLLECT = f"""
import ast, importlib, pkgutil, sys
from contextlib import suppress
from pathlib import Path
import pytest

# other people's packages know how to do without, but look once: when they are imported
theirs = set()
for folder in map(Path, {[str(PACKAGE), str(TESTS)]}):
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                theirs |= {{alias.name for alias in node.names}}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                theirs |= {{node.module, *(f"{{node.module}}.{{alias.name}}" for alias in node.names)}}
ours = "tightpipe", *(path.stem for path in Path({str(TESTS)!r}).iterdir())
# ortools first: what loads highspy, such as pulp, would leave it with the symbols of another HiGHS
for name in sorted(theirs, key=lambda name: not name.startswith("ortools")):
    if name.split(".")[0] not in (*ours, "highspy"):
        with suppress(ImportError):
            importlib.import_module(name)
for module, names in {ABSENT}.items():
    for name in names:
        vars(sys.modules[module]).pop(name, None)
sys.modules |= dict.fromkeys(["fcntl", "grp", "pty", "pwd", "resource", "termios"])

import tightpipe
for module in pkgutil.walk_packages(tightpipe.__path__, "tightpipe."):
    if module.name == "tightpipe.solver.milp.highs_program":
        continue  # a program of its own: highspy and ortools, both with HiGHS, cannot be loaded together
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:  # PyTorch is optional
        assert error.name == "torch", error
sys.exit(pytest.main(["--collect-only", "--assert=plain", "-qq", "-p", "no:cacheprovider", {str(TESTS)!r}]))
"""


def test_everything_is_imported_and_collected_without_what_posix_has() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECT], cwd=TESTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{Path(__file__).name}: " in done.stdout


def test_a_signal_within_an_import_waits_where_threads_have_no_signals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(signal, "pthread_kill", raising=False)
    done, finished = threading.Event(), list[bool]()
    compiler = {"__name__": "numba.core", "signal": signal, "done": done, "finished": finished}
    text = "def compile_it():\n signal.raise_signal(signal.SIGTERM)\n done.wait(0.1)\n finished.append(True)"
    exec(text, compiler)

    def work() -> None:
        with ended_by_signals():
            compiler["compile_it"]()
            for _ in range(1000):  # ten seconds; a wait is not cut short by a signal that no thread was sent
                done.wait(0.01)

    with pytest.raises(Terminated):
        work()
    assert finished


def test_a_user_without_a_number_has_that_of_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getuid", raising=False)
    assert sources._user() == 0
