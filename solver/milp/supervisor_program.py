"""A program that runs a solver, with a temporary folder, only as long as the program's parent process lives.

The parent is the process that started this program. It holds the other end of the pipe at standard input. The
operating system closes that pipe when the parent ends in any way, even if it is killed. This program then
kills the solver and removes the folder.

The program is run by its path, not as a module of the package, and imports nothing but the standard library,
so that it starts at once. Each line that it reads or writes is JSON, in this sequence:

1. It writes the path of the folder.
2. It reads a list of the solver's command, the path for the solver's output and the path for its errors.
3. It writes the process id of the solver.
4. Each further line that it reads asks the solver to stop.
5. When the solver has ended, it writes the solver's return code.
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
    # A batch system sends SIGTERM to every process of a job. The parent may still want the solver's results,
    # and asks the solver to stop when it is ready. So SIGTERM is ignored here, and the solver inherits that.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, lambda *_: None)  # not ignored: the solver would inherit that
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
