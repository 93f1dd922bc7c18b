"""The candidates of a configuration, one after another: the one with the least bound comes first."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import comb
from typing import Protocol

from ..params.budget import UNLIMITED, Budget, TimeUpError
from .candidate import Candidate
from .candidates_by_list import Listed, Unlisted, all_cuts, device_stages
from .candidates_by_table import Tabled, kind_of, least_excess_in_tables
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .quick_candidates import Rushed


class Partitions(Protocol):
    """The candidates of a configuration, in ascending order of their bounds."""

    @property
    def configuration(self) -> Configuration:
        """The configuration to which the candidates belong."""

    @property
    def bound(self) -> int:
        """A lower bound, in ticks, of the cost of all candidates not yet taken; `NEVER` if none is left."""

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return the next candidate; None if none is left, or if the others are too many to look at.

        Raises
        ------
        TimeUpError
            If the time of `until` is up before the next candidate is known.
        """


@dataclass(frozen=True)
class NoPartitions:
    """A configuration without candidates."""

    configuration: Configuration
    bound: int = NEVER

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return None."""
        return None


def partitions_of(configuration: Configuration, until: Budget = UNLIMITED) -> Partitions:
    """Return the candidates of a configuration.

    If the time of `until` is up before the candidates are bounded, the result is a single candidate that is
    found at once, and a bound of all candidates by their work alone (`Rushed`).
    """
    try:
        return _bounded(configuration, until)
    except TimeUpError:
        return Rushed(configuration)


def _bounded(configuration: Configuration, until: Budget) -> Partitions:
    kind = kind_of(configuration, until.params.plan)
    if configuration.has_no_cuts or lacks_in_all(configuration):
        return NoPartitions(configuration)
    if kind is not None:
        return Tabled(configuration, kind, until)
    if partition_count(configuration) <= until.params.plan.listed:
        return Listed(configuration, all_cuts(configuration.layers, configuration.placement.stages), until)
    return Unlisted(configuration, until)


def lacks_in_all(configuration: Configuration) -> bool:
    """Return whether all devices together lack memory for one microbatch of the whole model.

    Then no partition fits. Whatever is recomputed, each device has to hold the static state of its layers
    and the bytes that F of its layers takes, which are fewest where a layer is recomputed if it can be.
    Before the first layer with a B or a W, stages may hold nothing when their F's have ended.
    """
    problem, layers = configuration.problem, configuration.problem.model.layers
    held_in = layers[problem.model.frozen :]
    sizes = problem.cluster.memory_of(configuration.placement.devices)
    if sizes is None:
        return False
    again = problem.space.recompute
    held = (min(a.activation, a.kept) if again and a.recomputable else a.activation for a in held_in)
    needed = problem.cluster.static_bytes(sum(layer.parameters for layer in layers)) + sum(held)
    return needed > sum(size - problem.cluster.reserve for size in sizes)


def partition_count(configuration: Configuration) -> int:
    """Return the number of partitions of a configuration."""
    return comb(configuration.layers - 1, configuration.placement.stages - 1)


def least_excess(configuration: Configuration, until: Budget = UNLIMITED) -> int:
    """Return the fewest bytes, over all partitions, that the fullest device lacks to hold one microbatch.

    The result is `NEVER` if there are no partitions. If there are too many partitions to look at all of them,
    some are left out. Then another partition may lack fewer bytes.

    Raises
    ------
    TimeUpError
        If the time of `until` is up.
    """
    kind = kind_of(configuration, until.params.plan)
    if configuration.has_no_cuts:
        return NEVER
    if kind is not None:
        return least_excess_in_tables(configuration, kind, until)
    devices = device_stages(configuration, configuration.arrays(until=until), until)
    cuts = all_cuts(configuration.layers, configuration.placement.stages)
    partitions = islice(cuts, until.params.plan.listed)
    return min(max(device.excess(cuts) for device in devices) for cuts in partitions)
