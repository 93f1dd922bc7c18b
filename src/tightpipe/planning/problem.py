"""A planning problem: a model of layers, a cluster, a batch, and the plans among which to choose.

A search space that names a runtime holds only plans that this runtime runs as they are, with its own schedule
or with a schedule that it reads from a file.

- **Megatron-LM** runs 1F1B on one stage per device and interleaved 1F1B on several, with fused backwards. If
  it is told to overlap the communication of experts, it runs the combined form of interleaved 1F1B, and then
  recomputes no blocks. Else it recomputes in one kind, as many blocks of every stage (`runnable`). With
  several stages per device it needs at least two devices, and as many microbatches as devices. Its optimizer
  steps when all devices have ended, since the norm of the gradients is one of all.
- **The zero-bubble runtime** walks lists of F, B and W of any order, one operation after another, with one
  stage per device or two in a V. Every stage has a B and a W.
- **PyTorch** runs any order of a placement in which each stage has one device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

from tightpipe.heuristics import HEURISTICS

from ..base.errors import InputError, about_entry
from ..export.layouts import check_megatron_kind
from ..export.model_split import RESIDENT
from ..model.costs import Objective
from ..model.instance import MOST_OPERATIONS, check_size
from ..model.placement import Placement, Route
from .cluster import Cluster, Network
from .layered_model import Layer, Model
from .model_law import EQUAL, NOTHING, ModelLaw, Sampling, model_at, slices_at
from .units import USUAL_TICK, Tick, decimal

SOLVER = "best"
"""The method that may schedule a candidate after the heuristics."""
SCHEDULING = (*HEURISTICS, SOLVER)
"""The methods that may schedule a candidate."""
COMBINED = ("interleaved-overlap",)
"""The combined 1F1B of Megatron-LM, which it runs with several stages per device only."""
_IN_PAIRS = (*COMBINED, "1f1b-overlap", "dualpipe", "dualpipe-v")


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a framework can run."""

    name: str  #: the name for people
    placements: tuple[str, ...] = ("v", "linear", "loop", "wave")  #: names of the placements
    methods: tuple[str, ...] = SCHEDULING  #: names of the methods whose schedules it runs
    objectives: tuple[Objective, ...] = tuple(Objective)  #: what a step of it may cost
    #: names of methods in pairs whose schedules it runs if it is told to, and recomputes nothing then
    optional: tuple[str, ...] = ()
    #: whether several stages on a device are those of a loop, and take turns for groups of microbatches, of
    #: at least as many as there are devices
    groups: bool = False
    joins_first: bool = False  #: whether stage 0 has no B of its own, because its W computes both gradients
    pairs: bool = True  #: whether an F and a BW run together
    needs_both: bool = False  #: whether every stage needs a B and a W
    #: whether it splits all backwards of a microbatch or none; plans then have split ones
    one_way: bool = False
    #: whether several stages on a device are those of a V or a loop
    no_parts: bool = False
    empty: bool = False  #: whether stages may have no layers
    #: whether it recomputes in one kind, with one number of blocks for all stages, and knows some kinds only
    one_kind: bool = False

    def runs(self, placement: Placement, microbatches: int) -> bool:
        """Return whether it runs so many microbatches in a placement."""
        if placement.stages_per_device == 1:
            return True
        if not self.groups:
            return not (self.no_parts and placement.name == "linear")
        return placement.name == "loop" and 1 < placement.devices <= microbatches


RUNTIMES = {
    "any": Runtime("any runtime", empty=True),
    "torch": Runtime("PyTorch", joins_first=True),
    "megatron": Runtime(
        "Megatron-LM",
        ("linear", "loop"),
        ("1f1b", "interleaved-1f1b"),
        (Objective.STEP,),
        COMBINED,
        groups=True,
        one_kind=True,
        empty=True,
    ),
    "zero-bubble": Runtime(
        "the zero-bubble runtime",
        ("v", "linear"),
        tuple(name for name in SCHEDULING if name not in _IN_PAIRS),
        pairs=False,
        needs_both=True,
        one_way=True,
        no_parts=True,
    ),
}
"""What a search space may name as its `runtime`."""

LAWS = "layers whose costs are laws, e.g. forward = { tokens = 0.4, squares = 1e-5 }"
USUAL_PLACEMENTS = RUNTIMES["any"].placements


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch of one training step, and how pipelines share it."""

    microbatches: int  #: microbatches of one pipeline per training step, at least 1
    tokens: int | None = None  #: tokens of one microbatch; None if throughput is to be given in microbatches
    data_parallel: int = 1  #: number of pipelines that work side by side, each with its own microbatches
    sequences: int = 1  #: sequences of one microbatch, equally long
    #: the distribution of lengths from which steps are sampled, of which the other entries are means; None if
    #: all microbatches are alike
    sampling: Sampling | None = None


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The plans among which to choose."""

    placements: tuple[str, ...] = USUAL_PLACEMENTS  #: names of placements
    #: stages per device to choose from; None takes the usual number of each placement. A number that a
    #: placement does not allow is left out for that placement.
    chunks: tuple[int, ...] | None = None
    #: names of the kinds of recomputation that layers may take; each layer allows those that it lists
    recompute: tuple[str, ...] = ()
    objective: Objective = Objective.STEP  #: the definition of the cost of a schedule
    #: names of the methods that may schedule a candidate; None for all heuristics and `best`. If `best` is
    #: not among them, only heuristics schedule, and the search looks for the partition that suits them best.
    #: In either case the bound holds for all schedules, unless all of these methods have fixed orders.
    methods: tuple[str, ...] | None = None
    runtime: str = "any"  #: a name in `RUNTIMES`: the framework that is to run the plan
    #: numbers of slices into which every microbatch may be cut along its sequences; 1 leaves it whole
    slices: tuple[int, ...] = (1,)
    #: what may be equal in all slices of a microbatch: names in `model_law.EQUAL`, or `NOTHING`
    equal: tuple[str, ...] = tuple(EQUAL)
    #: whether stages but the first and the last one may have no layers, and pass on what comes
    empty: bool = False


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """The input of `tightpipe.plan`."""

    #: the layers, the devices, and the batch of one training step
    model: Model
    cluster: Cluster
    batch: Batch
    space: SearchSpace = SearchSpace()  #: the plans among which to choose
    tick: Tick = USUAL_TICK  #: the time that a tick of the model and the cluster takes
    #: the laws of which `model` has the values for a microbatch of `batch`; None if nothing says what other
    #: lengths cost
    law: ModelLaw | None = None

    @property
    def slicings(self) -> tuple[tuple[int, ...], ...]:
        """The ways to cut microbatches: the lengths of the slices in tokens, or () for whole microbatches.

        Where `slides`, a search begins with them, and looks at others.
        """
        if self.law is None:
            return ((),)
        equal = tuple(EQUAL) if self.slides else self.space.equal
        sequence, ways = self.sequence, product(self.space.slices, equal)
        found = (self.law.slices(sequence, self.batch.sequences, k, e) if k > 1 else () for k, e in ways)
        return tuple(dict.fromkeys(found))

    @property
    def slides(self) -> bool:
        """Whether slices may have any lengths."""
        return NOTHING in self.space.equal

    def allows(self, slices: tuple[int, ...]) -> bool:
        """Return whether microbatches may be cut into slices of these lengths, each at least 1."""
        slid = self.slides and len(slices) in self.space.slices and sum(slices) == self.sequence
        return slices in self.slicings or (slid and len(slices) > 1)

    @property
    def sequence(self) -> int:
        """Tokens of a sequence, where the batch says them."""
        return (self.batch.tokens or 0) // self.batch.sequences

    def units(self, slices: tuple[int, ...]) -> tuple[Model, ...]:
        """Return the model for each slice of a microbatch, or the whole one if there are no slices."""
        if self.law is None or not slices:
            return (self.model,)
        return slices_at(self.law, slices, self.batch.sequences)

    def evenly_cut(self, slices: tuple[int, ...]) -> PlanningProblem:
        """Return the problem in which each slice is a microbatch of its own, as large as the mean slice."""
        if self.law is None or not slices:
            return self
        count, tokens = len(slices), self.batch.tokens or 0
        model = model_at(self.law, tokens / count, tokens * self.sequence / count)
        batch = replace(self.batch, microbatches=count * self.batch.microbatches, tokens=None)
        return replace(self, model=model, batch=batch, law=None)

    @property
    def has_pairs(self) -> bool:
        """Whether an F and a BW together take other times than alone."""
        return RUNTIMES[self.space.runtime].pairs and any(layer.experts for layer in self.model.layers)

    @property
    def bounding_layers(self) -> tuple[Layer, ...]:
        """The layers of bounds: without network times if operations pair, without offload if no host is."""
        layers = self.model.layers
        if self.cluster.host is None and any(layer.offload for layer in layers):
            layers = tuple(replace(layer, offload=0) for layer in layers)
        return tuple(layer.computing for layer in layers) if self.has_pairs else layers

    def most_leaving(self, chunks: int) -> int:
        """Return the most bytes of a microbatch that may leave each of the `chunks` stages of a device.

        Nothing leaves without a host. If its memory has a limit, each stage has an equal part of what the
        host has for its device, which holds what leaves there of all microbatches at the same time.
        """
        host, all_layers = self.cluster.host, sum(layer.offload for layer in self.model.layers)
        if host is None:
            return 0
        return all_layers if host.memory is None else host.memory // (self.batch.microbatches * chunks)

    def keeping(self, resident: int) -> PlanningProblem:
        """Return the problem in which so many stages of a device stay gathered."""
        sharding = replace(self.cluster.sharding, resident=resident)
        return replace(self, cluster=replace(self.cluster, sharding=sharding))

    def residents(self, placement: Placement) -> tuple[int | None, ...]:
        """Return how many stages of a device may stay gathered: numbers to choose from, or None for none.

        All of them do where memory has no limit, as no order gets slower by that (`gathers`), where
        microbatches differ, where operations may run in pairs, each of which may need one more, and in
        Megatron-LM.
        """
        sharding, stages = self.cluster.sharding, placement.stages_per_device
        if not sharding.gathered:
            return (None,)
        if sharding.resident is not None:
            return (sharding.kept(stages),)
        if self.space.runtime == "torch":
            return (min(RESIDENT, stages),)
        all_stay = self.cluster.memory is None or self.batch.sampling is not None or self.in_pairs
        return (stages,) if all_stay or self.space.runtime != "any" else tuple(range(stages, 0, -1))

    @property
    def in_pairs(self) -> bool:
        """Whether the search space asks for methods that run operations in pairs, or such pairs pay."""
        return self.has_pairs or not set(self.space.methods or ()).isdisjoint(_IN_PAIRS)

    @property
    def most_stages(self) -> int:
        """The most stages of a device in a placement of the search space."""
        usual = (Placement(name, 2).stages_per_device for name in self.space.placements)
        return max(self.space.chunks or usual)

    def methods_for(self, recomputed: bool = False, again: bool = False) -> tuple[str, ...]:
        """Return the methods that may schedule candidates, those that recompute layers or the others.

        Where stages are gathered `again`, there are no pairs, each of which may need one more of them.
        """
        runtime, asked = RUNTIMES[self.space.runtime], self.space.methods
        if asked is None:
            asked = (*runtime.methods, *(runtime.optional if self.has_pairs else ()))
        without = runtime.optional if recomputed else ()
        without += _IN_PAIRS if again or self.cluster.sharding.gathers_again(self.most_stages) else ()
        return tuple(name for name in asked if name not in without)

    def with_more_memory(self, size: int) -> PlanningProblem:
        """Return the problem with `size` more bytes on each device, if memory has a limit."""
        memory = self.cluster.memory
        more = memory + size if isinstance(memory, int) else tuple(each + size for each in memory or ())
        return replace(self, cluster=replace(self.cluster, memory=more if memory is not None else None))

    def microbatches_per_second(self, ticks: int) -> float:
        """Return the microbatches per second of all pipelines together if a step takes so many ticks."""
        return float(self.batch.microbatches * self.batch.data_parallel / (ticks * self.tick.seconds))


def check_problem(problem: PlanningProblem) -> None:
    """Raise an InputError if a problem's parts contradict each other, or if its search space is empty.

    Whether a plan fits the memory is not checked here, because "no plan fits" is a valid result.
    """
    _check_outputs(problem)
    _check_kinds(problem)
    _check_runtime(problem.space)
    _check_slices(problem)
    _check_sampling(problem)
    _check_empty(problem)
    _check_speeds(problem)
    _check_host(problem)
    _check_resident(problem)
    for placement in placements_of(problem):
        with about_entry("batch"):
            check_size(placement, problem.batch.microbatches, max(problem.space.slices))


def placements_of(problem: PlanningProblem) -> list[Placement]:
    """Return the placements of the search space into whose stages the model can be cut.

    Of several placements with equal routes, only the first one is returned.
    """
    space, layers = problem.space, len(problem.model.layers)
    if "bidirectional" in space.placements:
        rule = "must not hold bidirectional: its devices have the stages of two routes"
        raise InputError(rule, key="search.placements", value=list(space.placements))
    allowed = list(_allowed(problem))
    _check_chunks(problem, allowed)
    smallest = min(allowed, key=lambda placement: placement.stages)
    where = f"{smallest.name} on {smallest.devices} devices"
    most = len(problem.model.finest_cuts()) - 1
    if space.empty and most >= min(2, smallest.stages):
        most = layers = MOST_OPERATIONS  # of a stage more, there is always a place in which it is empty
    if smallest.stages > layers:
        rule = f"must be at least {smallest.stages} layers, one for each stage of {where}"
        raise InputError(rule, key="layers", value=layers)
    if smallest.stages > most:
        rule = "stages that have an F, and a B where an earlier layer has a B or a W, to pass the gradient on"
        rule = f"can be cut into at most {most} {rule}; {where} has {smallest.stages} stages"
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
    for index, kind in enumerate(space.recompute if runtime.one_kind else ()):
        check_megatron_kind(kind, f"search.recompute[{index}]")


def _check_slices(problem: PlanningProblem) -> None:
    space, most = problem.space, max(problem.space.slices)
    if most == 1:
        return
    rule = ""
    if problem.law is None:
        rule = f"needs {LAWS}"
    elif problem.batch.sampling is not None:
        rule = "must be 1 where batch.lengths says that microbatches differ"
    elif RUNTIMES[space.runtime] is not RUNTIMES["any"]:
        rule = f"must be 1 for {RUNTIMES[space.runtime].name}, which runs whole microbatches"
    elif most > problem.sequence:
        rule = f"must be at most the tokens of a sequence, {problem.sequence}"
    if rule:
        raise InputError(rule, key="search.slices", value=list(space.slices))
    for slices in problem.slicings:
        problem.units(slices)  # every law must give a time for every slice


def _check_sampling(problem: PlanningProblem) -> None:
    """Raise an error if sampled steps have no laws, or if one of these gives no time for some microbatch."""
    if problem.batch.sampling is None:
        return
    rule = ""
    if problem.law is None:
        rule = f"needs {LAWS}"
    elif RUNTIMES[problem.space.runtime] is not RUNTIMES["any"]:
        rule = f"must be left out for {RUNTIMES[problem.space.runtime].name}"
    if rule or problem.law is None:
        raise InputError(rule, key="batch.lengths")
    if problem.space.methods is not None:
        rule = "must be left out where batch.lengths says that microbatches differ: list schedules rank plans"
        raise InputError(rule, key="search.methods", value=list(problem.space.methods))
    for point in set(problem.batch.sampling.points):
        model_at(problem.law, *point)


def _check_empty(problem: PlanningProblem) -> None:
    """Raise an error if stages may be empty, but the runtime or what microbatches are excludes it."""
    runtime, rule = RUNTIMES[problem.space.runtime], ""
    if not problem.space.empty:
        return
    if not runtime.empty:
        rule = f"must be false for {runtime.name}, in which every stage has a layer"
    elif max(problem.space.slices) > 1 or problem.batch.sampling is not None:
        rule = "must be false where microbatches have slices or differ"
    if rule:
        raise InputError(rule, key="search.empty", value=True)


def _check_speeds(problem: PlanningProblem) -> None:
    has_experts = any(layer.experts for layer in problem.model.layers)
    if problem.cluster.speeds and (problem.law is not None or has_experts):
        rule = "must be left out where layers have laws or experts, whose times are those of equal devices"
        raise InputError(rule, key="cluster.speeds")


def _check_host(problem: PlanningProblem) -> None:
    """Raise an error if activations may leave to a host, but there are none or something excludes copies."""
    host, sizes = problem.cluster.host, [layer.offload for layer in problem.model.layers if layer.offload]
    if host is None:
        return
    runtime, rule = RUNTIMES[problem.space.runtime], ""
    if not sizes:
        rule = "needs layers with offload: the bytes of their activation that may leave"
    elif problem.cluster.memory is None:
        rule = "needs cluster.memory beside it: without a limit nothing has to leave"
    elif runtime is not RUNTIMES["any"]:
        rule = f"must be left out for {runtime.name}, which reads no schedules with copies"
    elif max(problem.space.slices) > 1 or problem.batch.sampling is not None:
        rule = "must be left out where microbatches have slices or differ"
    if rule:
        raise InputError(rule, key="cluster.host_bandwidth", value=decimal(host.out))
    least = problem.batch.microbatches * min(sizes)
    if host.memory is not None and host.memory < least:
        rule = (
            f"must be at least {least}: what may leave of a layer, {min(sizes)} bytes, for each of "
            f"{problem.batch.microbatches} microbatches, as all of them may be away at the same time"
        )
        raise InputError(rule, key="cluster.host_memory", value=host.memory)


def _check_resident(problem: PlanningProblem) -> None:
    """Raise an error if stages are gathered again, but run in pairs or in a runtime that keeps others."""
    named, most, torch = problem.cluster.sharding, problem.most_stages, problem.space.runtime == "torch"
    if not named.gathered or (named.resident is None and not torch):
        return
    sharding = replace(named, resident=RESIDENT) if named.resident is None else named
    where = "operations run in pairs" if problem.in_pairs else ""
    where = where or ("batch.lengths is given" if problem.batch.sampling is not None else "")
    rule = ""
    if where and sharding.gathers_again(most) and named.resident is None:
        rule = f"keeps {RESIDENT} stages gathered, and must keep all {most} of a device where {where}"
        raise InputError(rule, key="search.runtime", value=problem.space.runtime)
    if where and sharding.gathers_again(most):
        rule = f"must be at least {most}, the most stages of a device, where {where}"
    elif torch and not sharding.is_pytorchs(most):
        rule = (
            f"must be {RESIDENT} for PyTorch, which keeps so many stages gathered and has no setting for it"
        )
    if rule:
        raise InputError(rule, key="cluster.resident", value=sharding.resident)


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
    runtime, needs = RUNTIMES[problem.space.runtime], ""
    if runtime.groups:
        needs = "; several stages on a device need a loop, at least two devices, and as many microbatches"
    elif runtime.no_parts:
        needs = "; several stages on a device need another placement than linear"
    for chunks in problem.space.chunks or ():
        if all(placement.chunks != chunks for placement in allowed):
            rule = f"no placement of {names} allows so many{needs}"
            raise InputError(rule, key="search.chunks", value=chunks)
    if not allowed:
        devices = " or ".join(map(str, problem.cluster.devices))
        rule = f"{runtime.name} runs none of them on {devices} devices{needs}"
        raise InputError(rule, key="search.placements", value=list(problem.space.placements))
