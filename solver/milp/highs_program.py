"""A program that solves an MPS file with highspy, and writes bounds and solutions as lines of JSON.

It is run by its path, not as a module of the package, so that nothing but highspy is loaded. Its arguments
are the MPS file and a JSON file. The latter has the options of HiGHS and a starting solution, which is a
value for each column.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable
from math import isfinite
from typing import Any

import highspy


def main(mps: str, settings: str) -> None:
    """Solve the MPS file `mps` with the starting solution and the options in the JSON file `settings`."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    if highs.readModel(mps) != highspy.HighsStatus.kOk:
        raise SystemExit("HiGHS cannot read the model")
    with open(settings) as file:
        given = json.load(file)
    for key, value in given["options"].items():
        highs.setOptionValue(key, value)
    columns = highs.getLp().col_names_
    start = [given["start"][column] for column in columns]
    highs.setSolution(len(start), list(range(len(start))), start)
    highs.cbMipImprovingSolution += lambda event: _tell_solution(columns, event.data_out.mip_solution)
    highs.cbMipLogging += lambda event: _tell_bound(event.data_out.mip_dual_bound)
    highs.run()
    if highs.getSolution().value_valid:
        _tell_solution(columns, highs.getSolution().col_value)
    _tell_bound(highs.getInfo().mip_dual_bound)
    _tell(status=highs.modelStatusToString(highs.getModelStatus()))


def _tell_solution(columns: Iterable[str], values: Iterable[float]) -> None:
    _tell(solution={c: float(v) for c, v in zip(columns, values, strict=True) if v})


def _tell_bound(value: float) -> None:
    if isfinite(value):
        _tell(bound=value)


def _tell(**line: Any) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C may end the process: all it found is written
    main(*sys.argv[1:])
