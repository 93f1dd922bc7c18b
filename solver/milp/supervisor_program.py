"""A program that keeps a temporary folder and runs a solver as long as the process that started it lives.

The process that started it holds the other end of the pipe at standard input. The system closes that pipe
when the process ends, however it ends. Then this program kills the solver and removes the folder. So neither
outlives a process that was killed without a chance to tidy up.

The program is run by its path, not as a module of the package, and imports nothing but the standard library,
so that it starts at once. Each line that it reads or writes is JSON. It writes the path of the folder. It
reads a list of the solver's command and the paths for the solver's output and errors. It writes the process
id of the solver and, when the solver has ended, its return code. Any further line that it reads asks the
solver to stop.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Any


def main() -> None:
    """Serve until standard input closes."""
    # A batch system sends SIGTERM to every process of a job. The process that started this program may still
    # want what the solver has found, and asks the solver to stop when it is ready. The solver ignores what is
    # ignored here.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, lambda *_: None)  # not ignored, because SIGINT asks the solver to stop
    with TemporaryDirectory(prefix="tightpipe-") as folder:
        _tell(folder)
        if request := sys.stdin.readline():
            _solve(*json.loads(request))


def _solve(command: list[str], output: str, errors: str) -> None:
    """Run the solver until it ends or standard input closes."""
    with open(output, "w") as out, open(errors, "w") as err:
        solver = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    _tell(solver.pid)
    threading.Thread(target=lambda: _tell(solver.wait())).start()
    for _ in sys.stdin:
        solver.send_signal(signal.SIGINT)
    solver.kill()
    solver.wait()


def _tell(value: Any) -> None:
    with suppress(BrokenPipeError):  # the process that reads the lines has ended
        print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
