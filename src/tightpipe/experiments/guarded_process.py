"""Solves run in processes of their own, which are killed if they take too much memory or time.

A process that has run a heuristic waits for the next solve, if the caller gives a list in which to keep it.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO

import psutil

from ..registry.ensure_compiled import compile_ahead
from .task import Value, loops_of_payload

_GIB = 2**30
_LOOK = 0.2  # seconds between two looks at the process
_SHARE = 0.9  # share of the machine's memory that all solves together may take


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits at which a solve is killed."""

    seconds: float  #: wall seconds that the solve may take
    memory: float | None  #: GiB of all its processes; None for nine tenths of its share of the machine's
    threads: int  #: of the solve; the share is that of the cores that they occupy

    @property
    def bytes(self) -> int:
        """The memory limit on this machine, in bytes."""
        if self.memory is not None:
            return int(self.memory * _GIB)
        share = min(1.0, self.threads / (os.cpu_count() or 1))
        return int(psutil.virtual_memory().total * _SHARE * share)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended."""

    values: dict[str, Value]  #: the values of the task's row that are known only after the solve, by column
    schedule: bytes | None = None  #: the schedule as `task.pack` returns it; None if there is none


@dataclass(slots=True)
class _Answers:
    """The answers that a process has written so far about the task that it runs."""

    trace: list[list[float | int | None]] = field(default_factory=list)
    values: dict[str, Value] | None = None
    schedule: bytes | None = None
    ready: bool = False  # whether the process waits for another task

    def read(self, stream: IO[str]) -> None:
        """Read answers until the process is ready for another task or ends."""
        while not self.ready and (line := stream.readline()):
            answer = json.loads(line)
            if "trace" in answer:
                self.trace.append(answer["trace"])
                continue
            self.values, packed = answer["values"], answer["schedule"]
            self.schedule = None if packed is None else base64.b64decode(packed)
            self.ready = answer["ready"]


@dataclass(frozen=True, slots=True)
class _Process:
    """A process for solves, and the file that receives its standard error."""

    popen: subprocess.Popen[str]
    stderr: IO[str]

    def end(self) -> None:
        """Kill the process and every process that it has started, and close the file."""
        with self.popen, self.stderr:
            _kill(self.popen)


Idle = list[_Process]
"""Processes that have run heuristics and wait for another solve."""


@contextmanager
def idle_processes() -> Iterator[Idle]:
    """Yield a list in which to keep processes between solves, and end these processes when the block ends."""
    idle: Idle = []
    try:
        yield idle
    finally:
        for process in idle:
            process.end()


def run_guarded(
    payload: str, limits: Limits, stop: threading.Event | None = None, idle: Idle | None = None
) -> Outcome:
    """Run a task's payload, one line of JSON, in a process of `idle` or a new one, and return the outcome.

    If the process crashes or is killed, at a limit or as another thread sets `stop`, the outcome says so.
    """
    with suppress(ValueError, LookupError, TypeError):  # the process says what is wrong with a payload
        # here, so that compiling on a new machine does not count towards the hard limit
        compile_ahead(loops_of_payload(payload))
    answers = _Answers()
    with _process(idle, answers, limits) as process:
        popen = process.popen
        assert popen.stdout is not None
        reader = threading.Thread(target=answers.read, args=(popen.stdout,))
        reader.start()
        _tell(popen, payload)
        killed = _watch(popen, reader, answers, limits, stop)
        reader.join()
        error = killed or (None if answers.ready else _fault(popen.returncode, process.stderr))
    where: dict[str, Value] = {
        "trace": json.dumps(answers.trace) if answers.trace else None,
        "host": platform.node(),
        "cores": os.cpu_count(),
        "python_version": platform.python_version(),
        "finished_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if killed is None and answers.values is not None:
        values: dict[str, Value] = {"state": "done", "error": None, **answers.values, **where}
        return Outcome(values, answers.schedule)
    return Outcome({"state": "failed", "error": error, **where})


@contextmanager
def _process(idle: Idle | None, answers: _Answers, limits: Limits) -> Iterator[_Process]:
    """Yield an idle or a new process, and then keep the process in `idle` or end it."""
    process = _waiting(idle) or _started()
    home: Idle | None = None
    try:
        yield process
        # memory that the process still holds must not bring the next solve to its limit
        if answers.ready and _memory(process.popen.pid) < limits.bytes / 2:
            home = idle
    finally:
        if home is None:
            process.end()
        else:
            home.append(process)


def _waiting(idle: Idle | None) -> _Process | None:
    """Return an idle process that is still alive; None if `idle` has no such process or is None."""
    with suppress(IndexError):  # another thread may take the last one
        while idle:
            process = idle.pop()
            if process.popen.poll() is None:
                return process
            process.end()
    return None


def _started() -> _Process:
    """Start a process as the leader of a group."""
    stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed by _Process.end
    popen = subprocess.Popen(
        [sys.executable, "-m", "tightpipe.experiments.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,  # Ctrl-C in the terminal is for the sweep, which ends its solves itself
    )
    return _Process(popen, stderr)


def _tell(process: subprocess.Popen[str], payload: str) -> None:
    """Write the payload and leave the pipe open: when it closes, the child knows that this process died."""
    assert process.stdin is not None
    try:
        process.stdin.write(payload + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        with suppress(BrokenPipeError):  # closing writes what is still in the buffer
            process.stdin.close()


def _watch(
    process: subprocess.Popen[str],
    reader: threading.Thread,
    answers: _Answers,
    limits: Limits,
    stop: threading.Event | None,
) -> str | None:
    """Wait for the end of the solve; at a limit or if `stop` is set, kill it and return the reason."""
    deadline, most = time.monotonic() + limits.seconds, limits.bytes
    while True:
        reader.join(_LOOK)
        if not reader.is_alive() and (answers.ready or _has_ended(process)):
            return None
        reason = None
        if stop is not None and stop.is_set():
            reason = "stopped"
        elif time.monotonic() > deadline:
            reason = f"killed at its hard limit of {limits.seconds:g} s"
        elif _memory(process.pid) > most:
            reason = f"killed at its memory limit of {most / _GIB:.3g} GiB"
        if reason is not None:
            _kill(process)
            process.wait()
            return reason


def _has_ended(process: subprocess.Popen[str]) -> bool:
    """Return whether a process that has closed its standard output ends within `_LOOK` seconds."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LOOK)
    return process.returncode is not None


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _memory(pid: int) -> int:
    """Return the resident memory of a process and its descendants, in bytes."""
    total = 0
    with suppress(psutil.Error):  # one of them has just ended
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            total += each.memory_info().rss
    return total


def _fault(status: int, stderr: IO[str]) -> str:
    """Return a text that says how a process without an answer ended, from its exit status and its stderr."""
    stderr.seek(0)
    lines = [line.strip() for line in stderr if line.strip()]
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (by the system, for lack of memory?)" if name == "SIGKILL" else ""
        return f"crashed: {name}{hint}"
    return lines[-1] if lines else f"ended with status {status} and no answer"
