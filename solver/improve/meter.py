"""How much of a local search is done, and how much it does in a step."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tightpipe.core.params.search import AnnealParams

from ..engine.worker import Worker


def batch_of(items: int, params: AnnealParams) -> int:
    """Return the number of moves of a batch for words of so many items."""
    return max(params.least_batch, params.work_per_batch // items)


@dataclass
class Meter:
    """Measures how much of the search is done: by time or effort if either is limited, else by batches.

    Parameters
    ----------
    worker
        The worker that runs the search. It knows how long the search has run and how much longer it may run.
    planned
        Number of batches of a search without a limit.
    batches
        Number of batches that are done.
    """

    worker: Worker
    planned: float
    batches: int = 0

    @property
    def timed(self) -> bool:
        """Whether the search is measured by time or effort."""
        return self.worker.whole.limited

    @property
    def spent(self) -> float:
        """The share of the search that is done, 0 to 1, or infinity when time is up."""
        if not self.timed:
            return self.batches / self.planned
        left = self.worker.expected
        return inf if left == 0 else self.worker.seconds / (self.worker.seconds + left)

    def batch(self) -> float:
        """Count a batch, and return roughly the seconds that it takes."""
        self.batches += 1
        return self.worker.whole.params.anneal.seconds_per_batch
