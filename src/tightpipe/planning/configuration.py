"""A configuration: a placement for a model, of which the cuts and the recomputed layers are still open."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.placement import Placement
from .candidate import Candidate
from .recompute_options import RecomputeOptions
from .tables import Tables


@dataclass(frozen=True, slots=True)
class Configuration:
    """A placement for a model, with the arrays from which its partitions are bounded."""

    placement: Placement
    tables: Tables
    options: RecomputeOptions

    @property
    def layers(self) -> int:
        """Number of layers of the model."""
        return len(self.tables.forward) - 1

    @property
    def mean_work(self) -> float:
        """Mean ticks that the devices work, without recomputation."""
        tables = self.tables
        ticks = tables.forward[-1] + tables.backward[-1] + tables.weight[-1]
        return float(tables.microbatches * ticks / self.placement.devices)

    def candidate(self, cuts: tuple[int, ...], options: tuple[int, ...]) -> Candidate:
        """Return the candidate with these cuts, and with the recompute option of each stage."""
        return Candidate(self.placement, cuts, tuple(self.options.layers[option] for option in options))
