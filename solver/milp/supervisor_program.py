"""A program: keep a temporary folder and run a solver in it, as long as the process lives that asks for it.

That process holds the other end of the pipe at standard input. The system closes it when the process ends,
however that comes about; then the solver is killed and the folder removed. So neither outlives a process that
was killed without a chance to tidy up.

Run by its path, not as a module of the package, with nothing but the standard library, so that it starts at
once. Each line, in and out, is JSON: the program tells the folder; it is given the solver's command, a list,
and the paths for its output and its errors; it tells the solver's process id and, when it has ended, its
return code. A further line in asks the solver to stop.
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
    # a batch system sends SIGTERM to every process of a job, but it is the one that asked who may still want
    # what the solver has found, and asks it to stop. What is ignored here is ignored by the solver, too.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, lambda *_: None)  # but SIGINT is how a solver is asked to stop
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
    with suppress(BrokenPipeError):  # nobody listens any more
        print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
