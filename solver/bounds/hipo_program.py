"""A program: read a linear program from stdin, solve it by HiPO, and write the duals of its rows to stdout.

Run by its path, not as a module of the package, so that nothing but highspy is loaded. Argument: the time
limit in seconds. The arrays are those of `LinearProgram`, as NumPy saves them; without a dual solution
nothing is written.
"""

from __future__ import annotations

import signal
import sys
from io import BytesIO

import highspy
import numpy as np


def main(seconds: str) -> None:
    """Solve; the method that HiGHS has without highspy-extras where they are missing."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    if highs.setOptionValue("solver", "hipo") != highspy.HighsStatus.kOk:
        highs.setOptionValue("solver", "ipx")
    highs.setOptionValue("run_crossover", "off")
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("time_limit", float(seconds))
    highs.passModel(_program())
    highs.run()
    solution = highs.getSolution()
    if solution.dual_valid:
        sys.stdout.buffer.write(np.array(solution.row_dual).tobytes())


def _program() -> highspy.HighsLp:
    given = np.load(BytesIO(sys.stdin.buffer.read()))
    columns, rows = len(given["lower"]), len(given["least"])
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = columns, rows
    program.col_cost_ = np.eye(1, columns, columns - 1)[0]  # of the last variable
    program.col_lower_, program.col_upper_ = given["lower"], given["upper"]
    program.row_lower_, program.row_upper_ = given["least"], np.full(rows, highspy.kHighsInf)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.searchsorted(given["row"], np.arange(rows + 1))
    program.a_matrix_.index_, program.a_matrix_.value_ = given["column"], given["value"]
    return program


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # end at once: nothing has been told yet
    main(*sys.argv[1:])
