"""A program that solves an MPS file with highspy, and writes bounds and solutions as lines of JSON.

It is run by its path, not as a module of the package, so that nothing but highspy is loaded.

1. It makes a temporary folder and writes its path.
2. It reads one line with the ``options`` of HiGHS and the ``start``, a value for each column of the file
   ``model.mps``, which the folder then has. It reads the file and removes the folder.
3. While it solves, it writes each ``solution`` that HiGHS finds, the values of the columns that are not 0,
   and each ``bound``, and at the end the ``status``.

Its parent, the process that has started it, holds the other end of the pipe at standard input. The operating
system closes that pipe when the parent ends in any way, even if it is killed; then this program ends too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable
from math import isfinite
from tempfile import TemporaryDirectory
from typing import Any

import highspy


def main() -> None:
    """Solve one model, unless standard input closes before."""
    # A batch system sends SIGTERM to every process of a job. The parent may still want the results, and ends
    # this process when it is ready.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    with TemporaryDirectory(prefix="tightpipe-") as folder:
        _write(folder)
        line = sys.stdin.readline()
        if not line:
            return
        if highs.readModel(os.path.join(folder, "model.mps")) != highspy.HighsStatus.kOk:
            raise SystemExit("HiGHS cannot read the model")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _solve(highs, **json.loads(line))


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def _solve(highs: Any, start: dict[str, float], options: dict[str, Any]) -> None:
    for key, value in options.items():
        highs.setOptionValue(key, value)
    columns = highs.getLp().col_names_
    values = [start[column] for column in columns]
    highs.setSolution(len(values), list(range(len(values))), values)
    highs.cbMipImprovingSolution += lambda event: _tell_solution(columns, event.data_out.mip_solution)
    highs.cbMipLogging += lambda event: _tell_bound(event.data_out.mip_dual_bound)
    highs.run()
    if highs.getSolution().value_valid:
        _tell_solution(columns, highs.getSolution().col_value)
    _tell_bound(highs.getInfo().mip_dual_bound)
    _write({"status": highs.modelStatusToString(highs.getModelStatus())})


def _tell_solution(columns: Iterable[str], values: Iterable[float]) -> None:
    _write({"solution": {c: float(v) for c, v in zip(columns, values, strict=True) if v}})


def _tell_bound(value: float) -> None:
    if isfinite(value):
        _write({"bound": value})


def _write(value: Any) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
