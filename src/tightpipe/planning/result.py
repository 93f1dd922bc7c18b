"""A plan: the result of `tightpipe.plan`, its text, and the memory of its devices by use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from itertools import groupby

from tightpipe.heuristics.interleaved import group_sizes, interleaved_order

from ..base.errors import InputError, NoScheduleError
from ..base.tables import aligned_text
from ..drawing.plot_schedule import html_of
from ..export import ModelSplit, split_model
from ..model.costs import Objective
from ..model.instance import Instance
from ..model.metrics import bubble_rate, busy_times, cost, imbalance, peak_memory
from ..model.orders import order_of
from ..model.result import LogEntry, Proof, Status, lines_of, objective_text, share_text, status_text
from ..model.schedule import Schedule
from ..model.simulate import retime
from ..params.solve_params import DEFAULTS, SolveParams
from .candidate import Candidate, instance_of, memory_of, numbers_of, static_of, transient_of
from .layered_model import Layer
from .problem import PlanningProblem
from .runtimes import megatron_schedule


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """A partition, a placement, recomputed layers and a schedule, with a bound over the whole search space.

    Parameters
    ----------
    problem
        The planning problem.
    status
        `optimal` if the cost equals the bound; `feasible` if the plan may not be the best; `infeasible` if it
        is proven that nothing fits the memory; `unknown` if no schedule was found.
    candidate, schedule
        The best candidate and its schedule; None where none was found. The schedule has passed the validator.
    method
        Name of the method that found the schedule; empty if there is no schedule.
    bound
        A lower bound, in ticks, of the cost of every plan in the search space; None where nothing fits, or
        nothing is proven.
    proof
        What the bound rests on; None where there is no bound.
    seconds
        Wall time of the search.
    considered
        Number of candidates for which a schedule was searched for.
    log
        One entry for each change of the best cost or the bound, with both as they then were.
    reason
        Why there is no plan, or why the search ended early; empty otherwise.
    params
        The numbers that tuned the search.
    """

    problem: PlanningProblem
    status: Status
    candidate: Candidate | None
    schedule: Schedule | None
    method: str
    bound: int | None
    proof: Proof | None
    seconds: float
    considered: int = 0
    log: tuple[LogEntry, ...] = ()
    reason: str = ""
    params: SolveParams = DEFAULTS

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
        return text + html_of(self.schedule, label=self.method, bound=self.bound)

    @property
    def instance(self) -> Instance | None:
        """The scheduling problem of the plan's stages; None without a schedule."""
        return None if self.schedule is None else self.schedule.instance

    @property
    def cost(self) -> int | None:
        """Ticks of one training step; None without a schedule."""
        return None if self.schedule is None else cost(self.schedule)

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
class DeviceMemory:
    """The memory of one device in bytes.

    Parameters
    ----------
    static
        Weights, gradients and optimizer state.
    activations
        The most bytes that the activations of all microbatches take at one time.
    transient
        The bytes that recomputation takes while a B runs, for the recomputed layer that needs most.
    reserve
        Memory that a plan may not use.
    limit
        The size of the memory; None where memory does not matter.
    """

    static: int
    activations: int
    transient: int
    reserve: int
    limit: int | None

    @property
    def peak(self) -> int:
        """The sum of static state, activations, transient bytes and reserve."""
        return self.static + self.activations + self.transient + self.reserve


def device_memories(
    problem: PlanningProblem, candidate: Candidate, schedule: Schedule
) -> tuple[DeviceMemory, ...]:
    """Return the memory of each device in a schedule of a candidate.

    Activations are counted even if the cluster has no memory limit. The schedule's instance then says nothing
    about memory.
    """
    stages, placement = numbers_of(problem, candidate), candidate.placement
    counting = replace(schedule.instance, memory=memory_of(problem, placement, stages))
    activations = peak_memory(replace(schedule, instance=counting)).tolist()
    limits = problem.cluster.memory_of(placement.devices) or (None,) * placement.devices
    return tuple(
        DeviceMemory(
            static=static_of(placement, stages, device),
            activations=activations[device],
            transient=transient_of(placement, stages, device),
            reserve=problem.cluster.reserve,
            limit=limits[device],
        )
        for device in range(placement.devices)
    )


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


def split_of(plan: Plan) -> ModelSplit:
    """Return which parts of the model each stage of a plan has, and which are recomputed.

    Equal layers of a stage are interchangeable, so the first of them are named as the recomputed ones.

    Raises
    ------
    NoScheduleError
        If there is no plan; the message says why.
    InputError
        If stages run on two devices each, or the layers are not those of a model that frameworks know, by
        their kinds or names.
    """
    if plan.candidate is None:
        raise NoScheduleError(f"{plan.status}: {plan.reason}")
    layers, candidate = plan.problem.model.layers, plan.candidate
    if len(candidate.placement.routes) > 1:
        rule = "frameworks that read the cut of a model keep a stage on one device, this placement on two"
        raise InputError(rule, value=candidate.placement.name)
    recomputed = [
        _first_equal(layers, range(*stage), again)
        for stage, again in zip(candidate.stages, candidate.recomputed, strict=True)
    ]
    split = split_model(
        [layer.name for layer in layers],
        candidate.cuts,
        recomputed,
        candidate.placement.routes[0],
        microbatches=plan.problem.batch.microbatches,
        kinds=[layer.kind for layer in layers],
    )
    return replace(split, group=_group_of(plan))


def _group_of(plan: Plan) -> int | None:
    """Return the microbatches of a group if a plan's schedule is interleaved 1F1B; None otherwise."""
    if plan.schedule is None or plan.method != "interleaved-1f1b":
        return None
    p, n = plan.schedule.instance.devices, plan.schedule.instance.microbatches
    free = replace(plan.schedule.instance, memory=None)
    for size in group_sizes(p, n):
        if order_of(free, partial(interleaved_order, group=size)) == plan.schedule.order:
            return size
    return None


def own_step(plan: Plan, target: str) -> int | None:
    """Return the ticks of a step of the framework that reads the cut of a plan; None without a schedule.

    Megatron-LM has a schedule of its own. Other frameworks run that of the plan, which they read from another
    file. The cost is that of the objective `step`.

    Raises
    ------
    InputError, NoScheduleError
        If the framework does not run the plan's placement or number of microbatches, or its own schedule
        takes more memory than there is.
    """
    if plan.candidate is None or plan.schedule is None:
        return None
    asked = replace(plan.problem, space=replace(plan.problem.space, objective=Objective.STEP))
    instance, split = instance_of(asked, plan.candidate), split_of(plan)
    if target == "megatron-layout":
        return cost(megatron_schedule(instance, split.group))
    return cost(retime(instance, plan.schedule.order))


def _first_equal(layers: Sequence[Layer], stage: range, recomputed: tuple[int, ...]) -> list[int]:
    """Return a stage's first layers that equal recomputed ones, as many of each kind as are recomputed."""
    left = Counter(layers[index] for index in recomputed)
    chosen = []
    for index in stage:
        if left[layers[index]]:
            left[layers[index]] -= 1
            chosen.append(index)
    return chosen
