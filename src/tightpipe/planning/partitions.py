"""The candidates of a configuration, one after another: the one with the least bound comes first."""

from __future__ import annotations

from itertools import islice
from math import comb
from typing import Protocol

from .candidate import Candidate
from .candidates_by_list import Listed, all_cuts, device_stages
from .candidates_by_table import Tabled, kind_of, least_excess_in_tables
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .few_candidates import Unlisted

_LISTED = 50_000  # the most partitions that are listed


class Partitions(Protocol):
    """The candidates of a configuration, in ascending order of their bounds."""

    configuration: Configuration

    @property
    def bound(self) -> int:
        """A lower bound, in ticks, of the cost of all candidates not yet taken; `NEVER` if none is left."""

    def take(self) -> Candidate | None:
        """Return the next candidate; None if none is left, or if the others are too many to look at."""


def partitions_of(configuration: Configuration) -> Partitions:
    """Return the candidates of a configuration."""
    kind = kind_of(configuration)
    if configuration.placement.stages > configuration.layers:
        return Listed(configuration, [])
    if kind is not None:
        return Tabled(configuration, kind)
    if partition_count(configuration) <= _LISTED:
        return Listed(configuration, all_cuts(configuration.layers, configuration.placement.stages))
    return Unlisted(configuration)


def partition_count(configuration: Configuration) -> int:
    """Return the number of partitions of a configuration."""
    return comb(configuration.layers - 1, configuration.placement.stages - 1)


def least_excess(configuration: Configuration) -> int:
    """Return the fewest bytes, over all partitions, that the fullest device lacks to hold one microbatch.

    The result is `NEVER` if in every partition F, B or W of some stage takes no time. If there are too many
    partitions to look at all of them, some are left out. Then another partition may lack fewer bytes.
    """
    kind, placement = kind_of(configuration), configuration.placement
    if placement.stages > configuration.layers:
        return NEVER
    if kind is not None:
        return least_excess_in_tables(configuration, kind)
    devices = device_stages(configuration, configuration.arrays())
    partitions = islice(all_cuts(configuration.layers, placement.stages), _LISTED)
    return min(max(device.excess(cuts) for device in devices) for cuts in partitions)
