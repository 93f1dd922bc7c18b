"""A solver's process and a temporary folder, both of which go away even if this process is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from shutil import rmtree
from typing import Any

_PROGRAM = Path(__file__).with_name("supervisor_program.py")


class Supervisor:
    """Runs one solver in a ``with`` block, as a child of the program `supervisor_program`.

    So the solver and the temporary folder go away even if this process is killed. The docstring of that
    program defines the lines that are exchanged with it.

    Attributes
    ----------
    folder
        A temporary folder, which exists within the ``with`` block.
    code
        The return code of the solver, negative for a signal; None until `ended` has returned True.

    Raises
    ------
    OSError
        If no process can be started, or no folder can be made.
    """

    folder: Path
    code: int | None = None

    def __enter__(self) -> Supervisor:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # so that `wait` sees every line that has not been read
            start_new_session=True,  # so that Ctrl-C in the terminal reaches this process alone
        )
        self.folder = Path(self._answer())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closes its input, and waits until the folder and the solver are gone
        with suppress(ProcessLookupError):  # nothing is left to kill unless the supervisor itself was killed
            os.killpg(self._process.pid, signal.SIGKILL)
        rmtree(self.folder, ignore_errors=True)

    def start(self, command: list[str], output: Path, errors: Path) -> int:
        """Start the solver by a command, and return its process id.

        The solver's standard output goes to the file `output`, and its standard error to the file `errors`.
        """
        self._ask([command, str(output), str(errors)])
        return int(self._answer())

    def stop(self) -> None:
        """Ask the solver to stop, by the signal that Ctrl-C sends."""
        with suppress(BrokenPipeError):  # the supervisor has ended already
            self._ask("stop")

    def ended(self, seconds: float) -> bool:
        """Wait at most `seconds` seconds for the solver to end, and return whether it has ended."""
        assert self._process.stdout is not None
        if self.code is None and wait([self._process.stdout.fileno()], seconds):
            self.code = self._code()
        return self.code is not None

    def _code(self) -> int:
        try:
            return int(self._answer())
        except OSError:  # the supervisor was killed
            return self._process.wait()

    def _ask(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value).encode() + b"\n")

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            complaint = self._process.communicate()[1].decode(errors="replace").strip().splitlines()
            raise OSError(complaint[-1] if complaint else "the supervisor has ended")
        return json.loads(line)
