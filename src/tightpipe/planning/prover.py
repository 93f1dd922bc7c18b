"""The member of a plan's search that raises the bound of all plans."""

from __future__ import annotations

from tightpipe.solver.engine.worker import Worker
from tightpipe.solver.outcome import Idle, Outcome, Worked

from .candidate_pool import CandidatePool

_PROVES = "best"  # the method that raises the bounds of candidates


class Prover:
    """Works on the configuration or the candidate with the least bound, so that this bound rises.

    Of a configuration the next candidate is taken, and on a candidate a solver works.

    Parameters
    ----------
    pool
        The candidates.
    first
        The seconds that a solver may work on a candidate the first time; each further time takes twice as
        long. None if only heuristics may schedule.
    """

    def __init__(self, pool: CandidatePool, first: float | None) -> None:
        self._pool, self._first = pool, first

    def step(self, worker: Worker) -> Outcome:
        """Take a candidate, or let a solver work on one; there may be neither."""
        pool = self._pool
        source = min(pool.sources, key=lambda source: source.bound, default=None)
        most = min(pool.open, key=lambda found: (found.bound, found.proofs), default=None)
        solves = self._first is not None
        precedes = solves and most is not None and source is not None and most.bound <= source.bound
        if source is not None and not pool.is_beaten(source.bound) and not precedes:
            pool.take(source, worker.whole)
        elif most is not None and self._first is not None:
            pool.solve(most, _PROVES, worker.whole.shortened(self._first * 2**most.proofs))
            most.proofs += 1
        else:
            return Idle()
        return pool.ended if pool.ended.stopped else Worked(1.0)
