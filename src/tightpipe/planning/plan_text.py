"""A plan as text: some lines about the whole plan, and a table with one row per device."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from ..core.metrics import bubble_rate, busy_times, imbalance
from ..core.result_text import lines_of, objective_text, share_text, status_text
from ..core.schedule import Schedule
from ..core.tables import aligned_text
from .candidate import Candidate, numbers_of
from .device_memory import DeviceMemory
from .layered_model import Layer
from .problem import PlanningProblem

if TYPE_CHECKING:
    from .plan import Plan

_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))
_COLUMNS = ("device", "stages", "recomputed", "F", "B", "W")
_MEMORY = ("static", "activations", "transient", "reserve", "peak", "limit")


def plan_text(plan: Plan) -> str:
    """Return the summary of a plan and, if the plan has a schedule, the table of its devices."""
    text = lines_of(plan_summary(plan))
    if plan.candidate is None or plan.memory is None:
        return text
    unit, _ = _unit(plan.memory)
    header = [*_COLUMNS, *(f"{name}\n{unit}" for name in _MEMORY)]
    table = aligned_text(header, _rows(plan, plan.candidate, plan.memory), ("stages",))
    return f"{text}\n\n{table}"


def plan_summary(plan: Plan) -> dict[str, object]:
    """Return the figures for the lines above the table, in sequence; None if a figure is not known."""
    return {
        "status": status_text(plan.status, plan.proof),
        **_shape(plan),
        "cost": None if plan.cost is None else f"{time_text(plan.problem, plan.cost)} per step",
        "objective": objective_text(plan.schedule),
        "bound": None if plan.bound is None else _bound_text(plan.problem, plan.bound),
        "gap": share_text(plan.gap),
        "throughput": _throughput(plan),
        **_shares(plan.schedule),
        "peak_memory": _fullest(plan.memory),
        "seconds": f"{plan.seconds:.3f}, {plan.considered} candidate(s) scheduled",
        "reason": plan.reason,
    }


def _shape(plan: Plan) -> dict[str, object]:
    """Return the figures of the chosen candidate; empty if there is none."""
    if plan.candidate is None:
        return {}
    placement, again = plan.candidate.placement, sum(map(len, plan.candidate.recomputed))
    devices, chunks = placement.devices, placement.stages_per_device
    return {
        "placement": f"{placement.name}, {devices} device(s), {chunks} chunk(s)",
        "method": plan.method,
        "microbatches": plan.problem.batch.microbatches,
        "recomputed": f"{again} of {len(plan.problem.model.layers)} layers",
    }


def _shares(schedule: Schedule | None) -> dict[str, object]:
    if schedule is None:
        return {}
    uneven = imbalance(busy_times(schedule))
    return {"bubble_rate": share_text(bubble_rate(schedule)), "imbalance": share_text(uneven)}


def time_text(problem: PlanningProblem, ticks: int) -> str:
    """Return the time of a number of ticks with its unit, e.g. ``12.5 ms``."""
    return f"{problem.tick.time_of(ticks)} {problem.tick.unit}"


def _bound_text(problem: PlanningProblem, bound: int) -> str:
    return f"{time_text(problem, bound)}: no plan in the search space is faster"


def _throughput(plan: Plan) -> str | None:
    if plan.microbatches_per_second is None:
        return None
    tokens = plan.tokens_per_second
    more = "" if tokens is None else f", {tokens:.0f} tokens/s"
    return f"{plan.microbatches_per_second:.3f} microbatches/s{more}"


def _fullest(memory: tuple[DeviceMemory, ...] | None) -> str | None:
    """Return in words how much of its memory the fullest device uses.

    With a memory limit, this is the device with the least memory left, else the one that uses most.
    """
    if memory is None:
        return None
    unit, size = _unit(memory)
    device = max(range(len(memory)), key=lambda d: memory[d].peak - (memory[d].limit or 0))
    limit = memory[device].limit
    of = "" if limit is None else f" of {limit / size:.2f}"
    return f"{memory[device].peak / size:.2f}{of} {unit} (device {device})"


def _unit(memory: tuple[DeviceMemory, ...]) -> tuple[str, int]:
    """Return the name and bytes of the largest unit that is at most the largest amount shown."""
    largest = max(max(device.peak, device.limit or 0) for device in memory)
    return next((unit for unit in _UNITS if largest >= unit[1]), _UNITS[-1])


def _rows(plan: Plan, candidate: Candidate, memory: tuple[DeviceMemory, ...]) -> list[list[str]]:
    stages, (_, size) = numbers_of(plan.problem, candidate), _unit(memory)
    rows = []
    for device, parts in enumerate(memory):
        held = candidate.placement.stages_on(device)
        ticks = [sum(getattr(stages[s], kind) for s in held) for kind in ("forward", "backward", "weight")]
        sizes = [getattr(parts, name) for name in _MEMORY]
        rows.append([
            str(device),
            "; ".join(f"{s}: {layer_names(plan.problem.model.layers, *candidate.stages[s])}" for s in held),
            str(sum(len(candidate.recomputed[s]) for s in held)),
            *map(str, ticks),
            *("-" if value is None else f"{value / size:.2f}" for value in sizes),
        ])  # fmt: skip
    return rows


def layer_names(layers: tuple[Layer, ...], first: int, end: int) -> str:
    """Return the layers `first` to `end - 1` by name, e.g. ``embedding, block 1-7``.

    A name that several layers have is followed by their indices in the model, which start at 0.
    """
    often = Counter(layer.name for layer in layers)
    runs = [list(run) for _, run in groupby(range(first, end), key=lambda i: layers[i].name)]
    return ", ".join(_run_text(layers[run[0]].name, run, often[layers[run[0]].name] > 1) for run in runs)


def _run_text(name: str, run: list[int], numbered: bool) -> str:
    if not numbered:
        return name
    return f"{name} {run[0]}" if len(run) == 1 else f"{name} {run[0]}-{run[-1]}"
