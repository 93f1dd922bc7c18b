"""Numbers of a model file that are allowed but unusual, in words that say what they mean.

Most of them come from a unit that was mistaken, e.g. bytes per second where bytes per tick are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from .cluster import Network
from .problem import PlanningProblem
from .units import decimal

_BANDWIDTH = (0.5, 2000)  # GB/s: from slow Ethernet to NVLink and beyond
_LATENCY = 0.01  # seconds of a message
_FORWARD = 10  # seconds of a layer and a microbatch
_OPTIMIZER = 10  # seconds for a billion parameters


def unusual_numbers(problem: PlanningProblem) -> list[str]:
    """Return a line for each number of a problem that is unusual: its key, its value and what it means."""
    return [*_of_links(problem), *_of_times(problem)]


def _of_links(problem: PlanningProblem) -> Iterator[str]:
    comm, gradients = problem.cluster.comm, problem.cluster.gradients
    speeds: dict[str, Fraction] = {}
    waits: dict[str, Fraction] = {}
    if isinstance(comm, Network):
        speeds, waits = {"bandwidth": comm.bandwidth}, {"latency": comm.latency}
        if comm.node_size is not None:
            speeds["node_bandwidth"], waits["node_latency"] = comm.node_bandwidth, comm.node_latency
    if gradients is not None and (gradients.reduced or gradients.gathered):
        speeds["reduce_bandwidth"], waits["reduce_latency"] = gradients.bandwidth, gradients.latency
    second = problem.tick.seconds
    for key, speed in speeds.items():
        found = float(speed / second) / 1e9
        if not _BANDWIDTH[0] <= found <= _BANDWIDTH[1]:
            yield f"cluster.{key} {decimal(speed)} bytes per tick = {found:g} GB/s at {problem.tick}"
    for key, ticks in waits.items():
        if ticks * second > _LATENCY:
            yield f"cluster.{key} {decimal(ticks)} ticks = {float(ticks * second):g} s at {problem.tick}"


def _of_times(problem: PlanningProblem) -> Iterator[str]:
    second, gradients, seen = problem.tick.seconds, problem.cluster.gradients, set()
    for index, layer in enumerate(problem.model.layers):
        if layer in seen:
            continue
        seen.add(layer)
        where = f"of layer {index} ({layer.name})"
        if layer.forward * second > _FORWARD:
            took = float(layer.forward * second)
            yield f"forward {layer.forward} {where} = {took:g} s of a microbatch at {problem.tick}"
        apart = layer.backward + layer.weight
        if layer.together > apart:
            yield f"fused {layer.fused} {where} is more than backward + weight, {apart}: fusing never pays"
        elif layer.together < max(layer.backward, layer.weight):
            yield f"fused {layer.fused} {where} is less than the longer one of backward and weight"
    if gradients is not None and gradients.optimizer * 10**9 * second > _OPTIMIZER:
        took = float(gradients.optimizer * 10**9 * second)
        yield (
            f"cluster.optimizer {decimal(gradients.optimizer)} ticks per parameter = {took:g} s for a "
            f"billion parameters at {problem.tick}"
        )
