"""A planning problem: a model of layers, a cluster, a batch, and the plans among which to choose.

A search space that names a runtime holds only plans that this runtime runs as they are, with its own schedule
or with a schedule that it reads from a file.

- **Megatron-LM** runs 1F1B on one stage per device and interleaved 1F1B on several, with fused backwards, and
  combined 1F1B if it is told to overlap the communication of experts. With several stages per device it needs
  at least two devices, and as many microbatches as devices. Its optimizer steps when all devices have ended,
  since the norm of the gradients is one of all.
- **The zero-bubble runtime** walks lists of F, B and W of any order, one operation after another, with one
  stage per device or two in a V.
- **PyTorch** runs any order of a placement in which each stage has one device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from tightpipe.heuristics import HEURISTICS

from ..base.errors import InputError
from ..model.costs import Objective
from ..model.instance import check_size
from ..model.placement import Placement, Route
from .cluster import Cluster, Network
from .layered_model import Model
from .units import USUAL_TICK, Tick, decimal

SOLVER = "best"
"""The method that may schedule a candidate after the heuristics."""
SCHEDULING = (*HEURISTICS, SOLVER)
"""The methods that may schedule a candidate."""
_COMBINED = ("1f1b-overlap", "interleaved-overlap")
_IN_PAIRS = (*_COMBINED, "dualpipe", "dualpipe-v")


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a framework can run.

    Parameters
    ----------
    name
        The name for people.
    placements
        Names of the placements.
    methods
        Names of the methods whose schedules it runs.
    objectives
        What a step of it may cost.
    optional
        Names of methods whose schedules it runs if it is told to; a search space has to name them.
    groups
        Whether several stages on a device take turns for groups of microbatches, of at least as many as there
        are devices.
    joins_first
        Whether stage 0 has no B of its own, because its W computes both gradients.
    """

    name: str
    placements: tuple[str, ...] = ("v", "linear", "loop", "wave")
    methods: tuple[str, ...] = SCHEDULING
    objectives: tuple[Objective, ...] = tuple(Objective)
    optional: tuple[str, ...] = ()
    groups: bool = False
    joins_first: bool = False

    def runs(self, placement: Placement, microbatches: int) -> bool:
        """Return whether it runs so many microbatches in a placement."""
        few = microbatches < placement.devices or placement.devices == 1
        return not (self.groups and placement.stages_per_device > 1 and few)


RUNTIMES = {
    "any": Runtime("any runtime"),
    "torch": Runtime("PyTorch", joins_first=True),
    "megatron": Runtime(
        "Megatron-LM",
        ("linear", "loop"),
        ("1f1b", "interleaved-1f1b"),
        (Objective.STEP,),
        _COMBINED,
        groups=True,
    ),
    "zero-bubble": Runtime(
        "the zero-bubble runtime",
        ("v", "linear"),
        tuple(name for name in SCHEDULING if name not in _IN_PAIRS),
    ),
}
"""What a search space may name as its `runtime`."""

USUAL_PLACEMENTS = RUNTIMES["any"].placements


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch of one training step, and how pipelines share it.

    Parameters
    ----------
    microbatches
        Microbatches of one pipeline per training step, at least 1.
    tokens
        Tokens of one microbatch; None if throughput is to be given in microbatches.
    data_parallel
        Number of pipelines that work side by side, each with its own microbatches.
    """

    microbatches: int
    tokens: int | None = None
    data_parallel: int = 1


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The plans among which to choose.

    Parameters
    ----------
    placements
        Names of placements.
    chunks
        Stages per device to choose from; None takes the usual number of each placement. A number that a
        placement does not allow is left out for that placement.
    recompute
        Names of the kinds of recomputation that layers may take; each layer allows those that it lists.
    objective
        The definition of the cost of a schedule.
    methods
        Names of the methods that may schedule a candidate; None for all heuristics and `best`. If `best` is
        not among them, only heuristics schedule, and the search looks for the partition that suits them best.
        In either case the bound holds for the schedules of all methods.
    runtime
        A name in `RUNTIMES`: the framework that is to run the plan.
    """

    placements: tuple[str, ...] = USUAL_PLACEMENTS
    chunks: tuple[int, ...] | None = None
    recompute: tuple[str, ...] = ()
    objective: Objective = Objective.STEP
    methods: tuple[str, ...] | None = None
    runtime: str = "any"

    @property
    def scheduling(self) -> tuple[str, ...]:
        """The methods that may schedule a candidate, for the runtime."""
        return RUNTIMES[self.runtime].methods if self.methods is None else self.methods


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """The input of `tightpipe.plan`.

    Parameters
    ----------
    model, cluster, batch
        The layers, the devices, and the batch of one training step.
    space
        The plans among which to choose.
    tick
        The time that a tick of the model and the cluster takes.
    """

    model: Model
    cluster: Cluster
    batch: Batch
    space: SearchSpace = SearchSpace()
    tick: Tick = USUAL_TICK

    def with_more_memory(self, size: int) -> PlanningProblem:
        """Return the problem with `size` more bytes on each device, if memory has a limit."""
        memory = self.cluster.memory
        more = memory + size if isinstance(memory, int) else tuple(each + size for each in memory or ())
        return replace(self, cluster=replace(self.cluster, memory=more if memory is not None else None))

    def microbatches_per_second(self, ticks: int) -> float:
        """Return the microbatches per second of all pipelines together if a step takes so many ticks."""
        return float(self.batch.microbatches * self.batch.data_parallel / (ticks * self.tick.seconds))


def check_problem(problem: PlanningProblem) -> None:
    """Raise an error if a problem's parts contradict each other, or if its search space is empty.

    Whether a plan fits the memory is not checked here, because "no plan fits" is a valid result of the
    search.

    Raises
    ------
    InputError
        If the cluster gives a bandwidth but a layer lacks its output bytes, if no layer has a kind of
        recomputation of the search space, if the runtime does not run all of the search space, if
        `placements_of` refuses the search space, or if a placement cannot take the microbatches.
    """
    _check_outputs(problem)
    _check_kinds(problem)
    _check_runtime(problem.space)
    for placement in placements_of(problem):
        _check_microbatches(placement, problem.batch.microbatches)


def placements_of(problem: PlanningProblem) -> list[Placement]:
    """Return the placements of the search space into whose stages the model can be cut.

    Of several placements with equal routes, only the first one is returned.

    Raises
    ------
    InputError
        If a placement has two routes, for which this search cannot cut a model, if no placement allows one of
        the numbers of chunks, if none runs on the devices, or if the model cannot be cut into the stages of
        any placement.
    """
    space, layers = problem.space, len(problem.model.layers)
    if "bidirectional" in space.placements:
        rule = "must not hold bidirectional: its devices have the stages of two routes"
        raise InputError(rule, key="search.placements", value=list(space.placements))
    allowed = list(_allowed(problem))
    _check_chunks(problem, allowed)
    smallest = min(allowed, key=lambda placement: placement.stages)
    if smallest.stages > layers:
        rule = (
            f"must be at least {smallest.stages} layers, one for each stage of {smallest.name} on "
            f"{smallest.devices} devices"
        )
        raise InputError(rule, key="layers", value=layers)
    most = len(problem.model.finest_cuts()) - 1
    if smallest.stages > most:
        rule = (
            f"can be cut into at most {most} stages that have an F, and a B where an earlier layer has a B "
            f"or a W, to pass the gradient on; {smallest.name} on {smallest.devices} devices has "
            f"{smallest.stages} stages"
        )
        raise InputError(rule, key="layers", value=layers)
    found: dict[tuple[Route, ...], Placement] = {}
    for placement in allowed:
        if placement.stages <= most:
            found.setdefault(placement.routes, placement)
    return list(found.values())


def _check_runtime(space: SearchSpace) -> None:
    runtime = RUNTIMES[space.runtime]
    if runtime is RUNTIMES["any"]:
        return
    asked = {
        "placements": (space.placements, runtime.placements),
        "methods": (space.methods or (), (*runtime.methods, *runtime.optional)),
        "objective": ((space.objective,), runtime.objectives),
    }
    for key, (given, known) in asked.items():
        for name in given:
            if name not in known:
                rule = f"{runtime.name} runs {', '.join(known)} only"
                raise InputError(rule, key=f"search.{key}", value=str(name))


def _check_kinds(problem: PlanningProblem) -> None:
    for index, kind in enumerate(problem.space.recompute):
        if kind not in problem.model.kinds:
            known = ", ".join(problem.model.kinds)
            rule = f"must be one of {known}" if known else "no layer lists a kind of recomputation"
            raise InputError(rule, key=f"search.recompute[{index}]", value=kind)


def _check_outputs(problem: PlanningProblem) -> None:
    if not isinstance(problem.cluster.comm, Network):
        return
    for index, layer in enumerate(problem.model.layers[:-1]):  # the last layer sends nothing
        if layer.output is None:
            rule = f"needs the output bytes of each layer but the last; layer {index} ({layer.name}) has none"
            raise InputError(rule, key="cluster.bandwidth", value=decimal(problem.cluster.comm.bandwidth))


def _allowed(problem: PlanningProblem) -> Iterator[Placement]:
    """Yield each placement of the search space with the numbers of devices and chunks that are allowed."""
    for name in problem.space.placements:
        for devices in problem.cluster.devices:
            for chunks in problem.space.chunks or (None,):
                with suppress(InputError):  # e.g. v always has two chunks
                    placement = Placement(name, devices, chunks)
                    if RUNTIMES[problem.space.runtime].runs(placement, problem.batch.microbatches):
                        yield placement


def _check_chunks(problem: PlanningProblem, allowed: list[Placement]) -> None:
    names = ", ".join(problem.space.placements)
    for chunks in problem.space.chunks or ():
        if all(placement.chunks != chunks for placement in allowed):
            raise InputError(f"no placement of {names} allows so many", key="search.chunks", value=chunks)
    if not allowed:
        devices = " or ".join(map(str, problem.cluster.devices))
        rule = f"{RUNTIMES[problem.space.runtime].name} runs none of them on {devices} devices"
        raise InputError(rule, key="search.placements", value=list(problem.space.placements))


def _check_microbatches(placement: Placement, microbatches: int) -> None:
    """Raise an `InputError`, with the key of a model file, if a placement cannot take the microbatches."""
    try:
        check_size(placement, microbatches)
    except InputError as error:
        raise InputError(error.rule, key=f"batch.{error.key}", value=error.value) from None
