"""The limits, the seed and the parameters that a caller gives one solve, checked at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TypedDict

from .budget import Budget
from .errors import InputError
from .integers import check_int, store_plain
from .params.solve_params import DEFAULTS, SolveParams


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


class SolveOptions(TypedDict):
    """The options that `tightpipe.solve` and `tightpipe.plan` have in common, as keyword arguments."""

    time_limit: float | None
    workers: int | None
    seed: int
    params: SolveParams


@dataclass(frozen=True, slots=True)
class Allowance:
    """Limits and seed of one solve that has not begun; `begin` starts the clock of the time limit.

    After an allowance is made, and before `begin` is called, the solver is loaded and its inner loops are
    compiled. So a number that is out of range is refused before that, and loading and compiling do not count
    towards the time limit.

    Parameters
    ----------
    time_limit
        Wall seconds, at least 0; None for no limit. With 0, a solve returns the warm start and its bound.
    workers
        Number of threads, 1 to 1024; None takes as many as the machine has cores. A solve with one worker
        is reproducible unless the time limit ends it.
    seed
        Seed of every random choice, 0 to 2**31 - 1.
    max_memory
        Memory in GB (10**9 bytes), above 0, or None for no cap. When the resident memory of this process and
        of a solver program that it started reaches the cap, CP-SAT and MILP end with what they have found.
        Memory is measured a few times a second, so that it may exceed the cap for a moment. The cap does not
        apply to heuristics, improvement and shaving, whose need is small and known beforehand.
    effort
        A deterministic limit that replaces the time limit, in seconds above 0; None for no such limit. The
        work done is counted and converted to seconds of one thread on a usual machine; the clock is not read.
        So a solve with one worker gives the same result in every run and on every machine.
    params
        The numbers that tune the searches.

    Raises
    ------
    InputError
        If a number is out of its range; the message names the option and its value.
    """

    time_limit: float | None = None
    workers: int | None = None
    seed: int = 0
    max_memory: float | None = None
    effort: float | None = None
    params: SolveParams = DEFAULTS

    def __post_init__(self) -> None:
        store_plain(self)
        if not isinstance(self.params, SolveParams):
            raise InputError("must be SolveParams", key="params", value=self.params)
        limit, memory = self.time_limit, self.max_memory
        if limit is not None and not (_is_finite(limit) and limit >= 0):
            raise InputError("must be a number of seconds, at least 0", key="time_limit", value=limit)
        if memory is not None and not (_is_finite(memory) and memory > 0):
            raise InputError("must be a number of GB, above 0", key="max_memory", value=memory)
        if self.effort is not None and not (_is_finite(self.effort) and self.effort > 0):
            raise InputError("must be a number of seconds, above 0", key="effort", value=self.effort)
        if self.workers is not None:
            check_int("workers", self.workers, 1, 1024)
        check_int("seed", self.seed, 0, 2**31 - 1)

    @property
    def options(self) -> SolveOptions:
        """What solves and plans take as options: the time limit, the workers, the seed and the parameters."""
        return SolveOptions(
            time_limit=self.time_limit, workers=self.workers, seed=self.seed, params=self.params
        )

    @property
    def threads(self) -> int:
        """Number of threads to use: `workers`, or the number of cores where that is None."""
        return self.workers or os.cpu_count() or 1

    def begin(self) -> Budget:
        """Return the budget of a solve that begins now."""
        endless = Budget(threads=self.threads, seed=self.seed, max_memory=self.max_memory, params=self.params)
        if self.effort is not None:
            return replace(endless, effort=self.effort)
        return endless.within(inf if self.time_limit is None else self.time_limit)
