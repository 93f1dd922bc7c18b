"""A plan: the result of `tightpipe.plan`, its text, and the memory of its devices by use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby

import numpy as np

from .. import drawing
from ..base.errors import InputError
from ..base.interruption import was_stopped
from ..base.tables import aligned_text
from ..export.model_split import RESIDENT
from ..model.instance import Instance
from ..model.metrics import bubble_rate, busy_times, cost, imbalance, peak_memory
from ..model.operation import OpKind
from ..model.placement import Placement
from ..model.result import (
    LogEntry,
    Proof,
    Status,
    lines_of,
    objective_text,
    refuse_contradiction,
    share_text,
    status_text,
)
from ..model.schedule import Schedule
from ..model.simulate import retime
from ..model.validate import validate
from ..params.solve_params import DEFAULTS, SolveParams
from .candidate import (
    Candidate,
    check_candidate,
    gather_ticks,
    instance_of,
    numbers_of,
    resolved,
    static_of,
    transient_of,
    units_of,
    unsharded_of,
)
from .gathers import gather_counts, step_ticks, with_gathers
from .layered_model import Layer, Recomputed
from .problem import PlanningProblem
from .sharding import NOT_SHARED


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """Partition, placement, recomputed layers and schedule, with a bound over the whole search space."""

    problem: PlanningProblem  #: the planning problem
    #: `optimal` if the cost equals the bound; `feasible` if the plan may not be the best; `infeasible` if it
    #: is proven that nothing fits the memory; `unknown` if no schedule was found
    status: Status
    #: the best candidate and its schedule; None where none was found. The schedule has passed the validator.
    candidate: Candidate | None
    schedule: Schedule | None
    method: str  #: name of the method that found the schedule; empty if there is no schedule
    #: a lower bound, in ticks, of the cost of every plan in the search space; None where nothing fits, or
    #: nothing is proven
    bound: int | None
    proof: Proof | None  #: what the bound rests on; None where there is no bound
    seconds: float  #: wall time of the search
    considered: int = 0  #: number of candidates for which a schedule was searched for
    #: one entry for each change of the best cost or the bound, with both as they then were
    log: tuple[LogEntry, ...] = ()
    reason: str = ""  #: why there is no plan, or why the search ended early; empty otherwise
    params: SolveParams = DEFAULTS  #: the numbers that tuned the search

    def __str__(self) -> str:
        return plan_text(self)

    def __repr__(self) -> str:
        where = ""
        if self.candidate is not None:
            placement = self.candidate.placement
            where = f" {placement.name} {placement.devices}x{placement.stages_per_device}"
        return f"<Plan{where}: {self.status}, cost {self.cost}, bound {self.bound}>"

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the text of the plan, and below it the Gantt chart."""
        text = f"<pre>{escape(str(self))}</pre>"
        if self.schedule is None:
            return text
        return text + drawing.html_of(self.schedule, label=self.method, bound=self.bound)

    @property
    def instance(self) -> Instance | None:
        """The scheduling problem of the plan's stages; None without a schedule."""
        return None if self.schedule is None else self.schedule.instance

    @property
    def cost(self) -> int | None:
        """Ticks of one training step; None without a schedule.

        They are those of the schedule, or more where exchanges between pipelines end later.
        """
        if self.schedule is None or self.candidate is None:
            return None
        return step_ticks(self.problem, self.candidate, self.schedule)

    @property
    def step_time(self) -> int | float | None:
        """Time of one training step in the unit of `PlanningProblem.tick`; None without a schedule."""
        return self.problem.tick.time_of(self.cost)

    @property
    def gap(self) -> float | None:
        """(cost - bound) / cost, the largest share another plan can save; None without schedule or bound."""
        found = self.cost
        return None if found is None or self.bound is None else (found - self.bound) / found

    @property
    def memory(self) -> tuple[DeviceMemory, ...] | None:
        """What the memory of each device is used for, in bytes; None without a schedule."""
        if self.schedule is None or self.candidate is None:
            return None
        return device_memories(self.problem, self.candidate, self.schedule)

    @property
    def peak_memory(self) -> list[int] | None:
        """The peak of each device in bytes, static state and reserve included; None without a schedule."""
        return None if self.memory is None else [device.peak for device in self.memory]

    @property
    def offload(self) -> tuple[StageOffload, ...] | None:
        """What leaves each stage in a step, and comes back; None without a schedule or a host."""
        if self.schedule is None or self.problem.cluster.host is None:
            return None
        instance, (kind, stage, _) = self.schedule.instance, self.schedule.order.operations.T
        counts = np.bincount(stage[kind == OpKind.O], minlength=instance.stages).tolist()
        return tuple(StageOffload(count, instance.leaves(s)) for s, count in enumerate(counts))

    @property
    def host_memory(self) -> list[int] | None:
        """The most bytes of each device that have begun to leave and are not back; None like `offload`."""
        if self.schedule is None or self.problem.cluster.host is None:
            return None
        order, instance, peaks = self.schedule.order, self.schedule.instance, list[int]()
        kind, stage, _ = order.operations.T
        size = np.array([instance.leaves(s) for s in range(instance.stages)])[stage]
        for device in range(order.devices):
            rows = np.arange(len(order))[order.rows(device)]
            out, back = (rows[kind[rows] == one] for one in (OpKind.O, OpKind.L))
            times = np.concatenate([self.schedule.start[out], self.schedule.end[back]])
            change = np.concatenate([size[out], -size[back]])
            peaks.append(int(np.cumsum(change[np.lexsort((change, times))]).max(initial=0)))
        return peaks

    @property
    def gathers(self) -> list[int] | None:
        """How often a step gathers each stage; None without a schedule, or if it gathers none."""
        if self.schedule is None or self.candidate is None:
            return None
        return gather_counts(self.problem, self.candidate, self.schedule.order)

    @property
    def microbatches_per_second(self) -> float | None:
        """Microbatches per second of all pipelines together; None without a schedule."""
        return None if self.cost is None else self.problem.microbatches_per_second(self.cost)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second of all data-parallel pipelines; None without a schedule or `Batch.tokens`."""
        rate, tokens = self.microbatches_per_second, self.problem.batch.tokens
        return None if rate is None or tokens is None else rate * tokens


def no_plan(
    problem: PlanningProblem,
    reason: str,
    *,
    status: Status = Status.INFEASIBLE,
    seconds: float = 0.0,
    considered: int = 0,
) -> Plan:
    """Return a `Plan` without candidate and schedule, whose `reason` says in one line why there is none.

    The other arguments are the fields of `Plan` with the same names.
    """
    return Plan(problem, status, None, None, "", None, None, seconds, considered, (), reason)


@dataclass(frozen=True, slots=True)
class StageOffload:
    """What leaves one stage for the host in a step, and comes back."""

    microbatches: int  #: how many microbatches leave
    bytes: int  #: what may leave of each


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of one device in bytes."""

    static: int  #: weights, gradients and optimizer state; of what pipelines share, only the device's part
    #: gathered parameters, and gradients until they are reduced, where pipelines share them
    unsharded: int
    activations: int  #: the most bytes that the activations of all microbatches take at one time
    #: the bytes that recomputation takes while a B runs, for the recomputed layer that needs most
    transient: int
    reserve: int  #: memory that a plan may not use
    limit: int | None  #: the size of the memory; None where memory does not matter

    @property
    def peak(self) -> int:
        """The sum of static and unsharded state, activations, transient bytes and reserve."""
        return self.static + self.unsharded + self.activations + self.transient + self.reserve


def device_memories(
    problem: PlanningProblem, candidate: Candidate, schedule: Schedule
) -> tuple[DeviceMemory, ...]:
    """Return the memory of each device in a schedule of a candidate, also if the cluster has no limit."""
    problem = resolved(problem, candidate)
    units, placement = units_of(problem, candidate), candidate.placement
    counting = instance_of(problem, candidate, counting=True)
    activations = peak_memory(replace(schedule, instance=counting)).tolist()
    limits = problem.cluster.memory_of(placement.devices) or (None,) * placement.devices
    return tuple(
        DeviceMemory(
            static=static_of(placement, units, device),
            unsharded=unsharded_of(problem, placement, units, device),
            activations=activations[device],
            transient=transient_of(placement, units, device),
            reserve=problem.cluster.reserve,
            limit=limits[device],
        )
        for device in range(placement.devices)
    )


_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))
_COLUMNS = ("device", "stages", "recomputed", "offload", "F", "B", "W")
_MEMORY = ("static", "unsharded", "activations", "transient", "reserve", "peak", "limit")


def plan_text(plan: Plan) -> str:
    """Return the summary of a plan and, if the plan has a schedule, the table of its devices."""
    text = lines_of(plan_summary(plan))
    if plan.candidate is None or plan.memory is None:
        return text
    unit, _ = _unit(plan.memory)
    columns = (name for name in _COLUMNS if name != "offload" or plan.offload is not None)
    header = [*columns, *(f"{name}\n{unit}" for name in _parts(plan))]
    table = aligned_text(header, _rows(plan, plan.candidate, plan.memory), ("stages",))
    return f"{text}\n\n{table}"


def _parts(plan: Plan) -> list[str]:
    """Return the parts of memory in the table: unsharded state only where pipelines share some of it."""
    shared = plan.problem.cluster.sharding != NOT_SHARED
    return [name for name in _MEMORY if shared or name != "unsharded"]


def plan_summary(plan: Plan) -> dict[str, object]:
    """Return the figures for the lines above the table, in sequence; None if a figure is not known."""
    problem, schedule = plan.problem, plan.schedule
    bound = None if plan.bound is None else time_text(problem, plan.bound)
    return {
        "status": status_text(plan.status, plan.proof),
        **_shape(plan),
        "cost": None if plan.cost is None else f"{time_text(problem, plan.cost)} per step",
        "objective": objective_text(schedule),
        "bound": bound and f"{bound}: no plan in the search space is faster",
        "gap": share_text(plan.gap),
        "throughput": _throughput(plan),
        "bubble_rate": None if schedule is None else share_text(bubble_rate(schedule)),
        "imbalance": None if schedule is None else share_text(imbalance(busy_times(schedule))),
        "peak_memory": _fullest(plan.memory),
        "offload": _offload_text(plan),
        "gathered": _gathered(plan),
        "seconds": f"{plan.seconds:.3f}, {plan.considered} candidate(s) scheduled",
        "reason": plan.reason,
    }


def _shape(plan: Plan) -> dict[str, object]:
    """Return the figures of the chosen candidate; empty if there is none."""
    if plan.candidate is None:
        return {}
    problem, lengths = plan.problem, plan.candidate.slices
    again, kinds = counts_text(problem, *plan.candidate.recomputed), problem.space.recompute
    named = f" ({' + '.join(kinds)})" if len(kinds) > 1 else ""
    return {
        "placement": placement_text(plan.candidate.placement),
        "method": plan.method,
        "microbatches": problem.batch.microbatches,
        "slices": f"{len(lengths)} of {', '.join(map(str, lengths))} tokens" if lengths else None,
        "recomputed": f"{again} of {len(problem.model.layers)} layers{named}",
    }


def placement_text(placement: Placement) -> str:
    """Return a placement with its devices and chunks in words."""
    return f"{placement.name}, {placement.devices} device(s), {placement.stages_per_device} chunk(s)"


def time_text(problem: PlanningProblem, ticks: int) -> str:
    """Return the time of a number of ticks with its unit, e.g. ``12.5 ms``."""
    return f"{problem.tick.time_of(ticks)} {problem.tick.unit}"


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


def _offload_text(plan: Plan) -> str | None:
    """Return in words how many activations leave, with the traffic of all devices and the fullest host."""
    if plan.offload is None or plan.host_memory is None:
        return None
    every = plan.problem.batch.microbatches * len(plan.offload)
    leaving, most = sum(stage.microbatches for stage in plan.offload), max(plan.host_memory)
    sent = sum(stage.microbatches * stage.bytes for stage in plan.offload)
    return (
        f"{leaving} of {every} activations, {_bytes_text(sent)} out and as many back, at most "
        f"{_bytes_text(most)} of a device at a time (device {plan.host_memory.index(most)})"
    )


def _gathered(plan: Plan) -> str | None:
    counts, candidate = plan.gathers, plan.candidate
    if candidate is None or counts is None:
        return None
    problem, placement = resolved(plan.problem, candidate), candidate.placement
    sharding, stages = problem.cluster.sharding, placement.stages_per_device
    pytorchs = sharding.is_pytorchs(stages)
    told = "fsdp_reshard_after_forward: never" if pytorchs else f"PyTorch keeps {RESIDENT}"
    if not sharding.gathers_again(stages):
        return f"all of {stages} stage(s) of a device, once in a step ({told})"
    kept, again = sharding.kept(stages), sum(counts) - len(counts)
    text = f"{kept} of {stages} stages of a device at once ({told}), {sum(counts)} gathers a step, {again} of"
    took = [gather_ticks(problem, stage) for stage in numbers_of(problem, candidate)]
    if plan.schedule is None or plan.cost is None or plan.schedule.instance.barrier is None or not any(took):
        return f"{text} them again, whose time is not counted"
    most = max(
        sum((counts[s] - 1) * took[s] for s in placement.stages_on(device))
        for device in range(placement.devices)
    )
    longer = plan.cost - cost(retime(plan.schedule.instance, plan.schedule.order))
    of, more = time_text(problem, most), time_text(problem, longer)
    return f"{text} them again: {of} of a device, by which the step is {more} longer"


def _bytes_text(size: int) -> str:
    name, unit = _unit_of(size)
    return f"{size / unit:.2f} {name}"


def _unit(memory: tuple[DeviceMemory, ...]) -> tuple[str, int]:
    return _unit_of(max(max(device.peak, device.limit or 0) for device in memory))


def _unit_of(largest: int) -> tuple[str, int]:
    """Return the name and bytes of the largest unit that is at most the largest amount shown."""
    return next((unit for unit in _UNITS if largest >= unit[1]), _UNITS[-1])


def _rows(plan: Plan, candidate: Candidate, memory: tuple[DeviceMemory, ...]) -> list[list[str]]:
    stages, (_, size) = numbers_of(plan.problem, candidate), _unit(memory)
    rows = []
    for device, parts in enumerate(memory):
        held = candidate.placement.stages_on(device)
        ticks = [sum(getattr(stages[s], kind) for s in held) for kind in ("forward", "backward", "weight")]
        sizes = [getattr(parts, name) for name in _parts(plan)]
        leaving = [] if plan.offload is None else ["+".join(str(plan.offload[s].microbatches) for s in held)]
        rows.append([
            str(device),
            *stages_text(plan.problem, candidate, device),
            *leaving,
            *map(str, ticks),
            *("-" if value is None else f"{value / size:.2f}" for value in sizes),
        ])  # fmt: skip
    return rows


def stages_text(problem: PlanningProblem, candidate: Candidate, device: int) -> tuple[str, str]:
    """Return the stages of a device with their layers, and how many of these are recomputed."""
    held = candidate.placement.stages_on(device)
    names = (f"{s}: {layer_names(problem.model.layers, *candidate.stages[s])}" for s in held)
    return "; ".join(names), counts_text(problem, *(candidate.recomputed[s] for s in held))


def counts_text(problem: PlanningProblem, *stages: Recomputed) -> str:
    """Return how many layers of some stages are recomputed, of several kinds for each, e.g. ``3+1``."""
    found = Counter(kind for stage in stages for _, kind in stage)
    return "+".join(str(found[kind]) for kind in problem.space.recompute) or "0"


def layer_names(layers: tuple[Layer, ...], first: int, end: int) -> str:
    """Return the layers `first` to `end - 1` by name, e.g. ``embedding, block 1-7``; ``-`` if there are none.

    A name that several layers have is followed by their indices in the model, which start at 0.
    """
    often = Counter(layer.name for layer in layers)
    runs = [list(run) for _, run in groupby(range(first, end), key=lambda i: layers[i].name)]
    names = []
    for run in runs:
        name = layers[run[0]].name
        numbers = f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}"
        names.append(f"{name} {numbers}" if often[name] > 1 else name)
    return ", ".join(names) or "-"


def adopted(found: Plan, other: Plan | None) -> Plan:
    """Return `found`, or the plan `other` of another problem if it is cheaper in the problem of `found`.

    The plan `other` keeps its partition, recomputation and orders, and gets the best start times that the
    problem of `found` allows. If `other` does not fit that problem, or is None, `found` is returned.
    """
    moved = None if other is None else _moved(found, other)
    if moved is None or moved.cost is None or (found.cost is not None and found.cost <= moved.cost):
        return found
    if moved.schedule is not None and moved.bound is not None and moved.cost < moved.bound:
        refuse_contradiction(moved.schedule, moved.bound, moved.proof, "of all plans")
    stale = found.schedule is None and not was_stopped(found.reason)  # the reason why there was none
    return _with_status(replace(moved, reason="") if stale else moved)


def _moved(found: Plan, other: Plan) -> Plan | None:
    if other.candidate is None or other.schedule is None:
        return None
    try:
        check_candidate(found.problem, other.candidate)
        instance = instance_of(found.problem, other.candidate)
        schedule = retime(instance, other.schedule.order)
        schedule = with_gathers(found.problem, other.candidate, schedule)
    except InputError:
        return None
    if validate(instance, schedule):
        return None
    return replace(found, candidate=other.candidate, schedule=schedule, method=other.method)


def with_shared_bounds(plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans, with each bound raised to the largest bound of the later plans if that is larger.

    Each search space must lie within the next one, as it does if the plans are for more and more memory. A
    plan without a bound gets none.
    """
    found: list[Plan] = []
    bound, proof = 0, None
    for plan in reversed(plans):
        raised = plan
        if plan.bound is not None and plan.bound >= bound:
            bound, proof = plan.bound, plan.proof
        elif plan.bound is not None:
            raised = _with_status(replace(plan, bound=bound, proof=proof))
        found.append(raised)
    return found[::-1]


def _with_status(plan: Plan) -> Plan:
    """Return the plan with the status that follows from its bound; an optimal plan needs no reason."""
    if plan.schedule is None:
        return plan
    if plan.cost == plan.bound:
        return replace(plan, status=Status.OPTIMAL, reason="")
    return replace(plan, status=Status.FEASIBLE)
