"""A Python program in a process of its own, which is asked and answers in lines of text.

Whoever starts one looks, between its answers, at what ends it: time, memory, a wish to stop. It has to end by
itself when its standard input closes, which the operating system sees to when the process that has started it
ends in any way, even if it is killed. It needs a POSIX system.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import wait
from tempfile import TemporaryFile
from typing import IO


class Child:
    """A program that runs, and all that it starts; at the end of a ``with`` block, it is killed.

    - `*arguments`: those of Python: its options, the program, and what the program is told.
    """

    def __init__(self, *arguments: str) -> None:
        self._errors: IO[str] = TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed by `end`
        self._popen = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # so that Ctrl-C in the terminal is for the process that has started it
        )
        assert self._popen.stdout is not None
        self._output, self._torn, self._silent = self._popen.stdout.fileno(), b"", False

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._popen.pid

    @property
    def ended(self) -> bool:
        """Whether the program has ended and `lines` has returned all that it wrote."""
        return self._silent and self.dead

    @property
    def dead(self) -> bool:
        """Whether the program has ended."""
        return self._popen.poll() is not None

    @property
    def memory(self) -> int:
        """The resident memory of the program and of all that it has started, in bytes."""
        import psutil  # late: a process that runs a heuristic starts without it

        total = 0
        with suppress(psutil.Error):  # one of them has just ended
            process = psutil.Process(self.pid)
            for each in (process, *process.children(recursive=True)):
                total += each.memory_info().rss
        return total

    def tell(self, line: str) -> None:
        """Write a line to the program, unless it has ended; the pipe stays open."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line.encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            with suppress(BrokenPipeError):  # closing writes what is still in the buffer
                self._popen.stdin.close()

    def lines(self, seconds: float) -> list[bytes]:
        """Wait at most `seconds` seconds for the program, and return the whole lines that it has written."""
        if self._silent:  # and so it is about to end
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(seconds)
            return []
        if not wait([self._output], seconds):
            return []
        new = os.read(self._output, 1 << 20)
        self._silent = not new
        *whole, self._torn = (self._torn + new).split(b"\n")
        return whole

    def kill(self) -> None:
        """Kill the program and all that it has started; what it has written can still be read."""
        with suppress(ProcessLookupError, PermissionError):  # the latter for a zombie on macOS
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()

    def end(self) -> None:
        """Kill the program and all that it has started, and close its pipes."""
        with self._popen, self._errors:
            self.kill()
            with suppress(BrokenPipeError):  # a signal may have left something in the buffer
                if self._popen.stdin is not None:
                    self._popen.stdin.close()

    def fault(self) -> str:
        """Wait for the end of a program without an answer, and return a text that says how it ended."""
        status = self._popen.wait()
        if status < 0:
            name = signal.Signals(-status).name
            return f"crashed: {name}{' (by the system, for lack of memory?)' if name == 'SIGKILL' else ''}"
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1] if lines else f"ended with status {status} and no answer"
