"""A model and a placement as arrays for compiled loops, and the ways to recompute layers of a stage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from math import floor
from operator import add
from typing import NamedTuple

import numpy as np

from ..base.errors import InputError
from ..kernels.arrays import Ints
from ..model.costs import Objective
from ..model.placement import Placement
from ..params.budget import UNLIMITED, Budget
from .candidate import comm_matrix
from .cluster import Gradients, Speed
from .fixed_orders import Ramps, ramps_of
from .layered_model import Effect, Layer, Model, Recomputed
from .problem import PlanningProblem

_MOST = 4096  # most ways for one stage


class Way(NamedTuple):
    """A way to recompute: which layers of a stage, counted from its first one, and the effect."""

    effect: Effect
    layers: Recomputed


_PLAIN = Way(Effect(), ())


class OptionSets:
    """The ways to recompute stages of one problem, kept for each number of layers that was asked for."""

    def __init__(self, problem: PlanningProblem) -> None:
        self.problem = problem
        self._known: dict[tuple[int, bool], RecomputeOptions] = {}

    def up_to(self, longest: int, until: Budget = UNLIMITED, *, free_ticks: bool = False) -> RecomputeOptions:
        """Return the ways to recompute every run of at most `longest` consecutive layers, and keep them."""
        key = longest, free_ticks
        if key not in self._known:
            self._known[key] = RecomputeOptions(self.problem, longest, until, free_ticks=free_ticks)
        return self._known[key]


class RecomputeOptions:
    """The ways to recompute for every interval of consecutive layers, numbered one interval after another.

    A stage without a B recomputes nothing. Raises an InputError if so many layers differ that a stage could
    be recomputed in too many ways.

    - `problem`: the model, and the kinds in which layers may be recomputed.
    - `longest`: most layers of an interval; longer intervals get no ways.
    - `until`: when its time is up, the work is given up with a `TimeUpError`.
    - `free_ticks`: whether only the bytes matter that a microbatch takes, as if recomputation took no ticks
      and W freed as much as without it. Of equal layers then none are recomputed, or all in one kind, and
      one kind more for each amount of transient bytes: a way in between takes no fewer transient bytes than
      the one that recomputes all layers in the kind that saves most among those with so many.
    - `first`: the interval of the layers `i` to `j - 1` has the ways with the numbers from `first[i * (L + 1)
      + j]` up to, not including, the next entry of `first`, where L is the number of layers of the model.
    - `extra`, `saved`, `spared`, `transient`, `away`: the numbers of the `Effect` of each way.
    - `layers`: the layers that each way recomputes, counted from the first one of its interval.
    """

    def __init__(
        self, problem: PlanningProblem, longest: int, until: Budget = UNLIMITED, *, free_ticks: bool = False
    ) -> None:
        layers = problem.bounding_layers
        problem, count = replace(problem, model=Model(layers)), len(layers)
        ticks = [0, *accumulate(layer.backward for layer in layers)]
        number = {layer: k for k, layer in enumerate(dict.fromkeys(layers))}
        kinds = [number[layer] for layer in layers]
        known: dict[tuple[int, ...], list[Way]] = {(): [_PLAIN]}  # by the layers of an interval
        ways, first = [], [0]
        for start in range(count + 1):
            for end in range(count + 1):
                if start == end:  # a stage without layers
                    ways.append(_PLAIN)
                elif start < end <= start + longest:
                    alike = tuple(kinds[start:end])
                    if alike not in known:
                        effects = layers[end - 1].effects(problem.space.recompute)
                        if free_ticks:
                            effects = {k: e._replace(extra=0, spared=0) for k, e in effects.items()}
                        known[alike] = _longer(effects, known[alike[:-1]], start, end - 1, until)
                    ways += known[alike] if ticks[end] > ticks[start] else [_PLAIN]
                first.append(len(ways))
        self.first = np.array(first, np.int64)
        columns = np.array([way.effect for way in ways], np.int64)
        self.extra, self.saved, self.spared, self.transient, self.away = np.ascontiguousarray(columns.T)
        self.layers = [way.layers for way in ways]

    def of(self, numbers: Iterable[int]) -> tuple[Recomputed, ...]:
        """Return the layers that each stage recomputes; `numbers` has the number of one way per stage."""
        return tuple(self._recomputed(number) for number in numbers)

    def _recomputed(self, number: int) -> Recomputed:
        interval = int(np.searchsorted(self.first, number, side="right")) - 1
        start = interval // (math.isqrt(len(self.first)))
        return tuple((start + layer, kind) for layer, kind in self.layers[number])


def _longer(
    effects: Mapping[str, Effect], shorter: list[Way], start: int, index: int, until: Budget
) -> list[Way]:
    """Return the ways of the layers `start` to `index`; `shorter` has those without layer `index`.

    Layer `index` may be recomputed in the kinds that have `effects`.

    Of equal layers, only how many are recomputed in each kind matters: ways with the same effect are one.
    """
    until.check()
    if not effects:
        return shorter
    more = (
        Way(way.effect.beside(effect), (*way.layers, (index - start, kind)))
        for way in shorter
        for kind, effect in effects.items()
    )
    found = _efficient([*shorter, *more], until)
    if len(found) > _MOST:
        rule = f"layers up to {index} differ too much: a stage could be recomputed in more than {_MOST} ways"
        raise InputError(rule, key="search.recompute", value=list(effects))
    return found


def _efficient(ways: list[Way], until: Budget) -> list[Way]:
    """Return the ways without those that are no better than another one.

    A way is no better than another if it adds no fewer ticks, saves and spares no more bytes, takes no fewer
    transient bytes, and of its bytes no fewer may leave and no fewer may not. A schedule with such a way
    stays valid if the other way replaces it: B's and copies may end earlier, and at no time more memory is
    held, neither from F to B, while copies are away or not, nor from B to the end of W.
    """
    kept: list[Way] = []
    most = -1  # the most bytes that a way kept so far saves
    for way in sorted(ways, key=lambda way: _worst_last(way.effect)):
        until.check()  # there may be thousands of ways, each of which is compared with all before it
        _, saved, spared, transient, away = way.effect
        worse = (
            other.effect.saved >= saved
            and other.effect.spared >= spared
            and other.effect.transient <= transient
            and other.effect.away >= away
            and other.effect.saved - other.effect.away >= saved - away
            for other in kept
        )
        if saved > most or not any(worse):
            kept.append(way)
            most = max(most, saved)
    return kept


def _worst_last(effect: Effect) -> tuple[int, int, int, int]:
    return effect.extra, -effect.saved, -effect.spared, effect.transient


NO_LIMIT = 2**62


class Tables(NamedTuple):
    """What `device_bound` needs to know of a model and a placement, for L layers, S stages and p devices.

    An *interval* is a run of consecutive layers, which may become a stage. An *option* is one way to
    recompute some of its layers. `RecomputeOptions` numbers the options of all intervals.
    """

    forward: Ints  # (L + 1,) ticks of the F's of the first 0, 1, ..., L layers; the next ones likewise
    backward: Ints  # (L + 1,) those of the B's and W's are as short as `Layer.least` says
    weight: Ints  # (L + 1,)
    own: Ints  # (p, 3, L + 1) the same for F, B and W on each device, which may be slower
    passing: Ints  # (L + 1,) number of layers with a B, which pass the gradient on
    held: Ints  # (L + 1,) bytes that F takes, without recomputation
    freed: Ints  # (L + 1,) bytes that W frees, a part of `held`
    parameters: Ints  # (L + 1,) number of parameters
    trained: Ints  # (L + 1,) number of those that have gradients
    least: (
        Ints  # (L + 1,) the fewest bytes that the layers take on their device (`least_held`, `least_state`)
    )
    first_option: Ints  # ((L + 1) ** 2 + 1,) `RecomputeOptions.first`
    extra: Ints  # (options,) ticks that recomputation adds to B
    saved: Ints  # (options,) how many fewer bytes F takes than without recomputation
    spared: Ints  # (options,) how many fewer bytes W frees than without recomputation
    transient: Ints  # (options,) bytes that B takes only while it recomputes
    leaving: Ints  # (L + 1,) the part of `held` that may leave to the host
    away: Ints  # (options,) how many fewer bytes may leave than without recomputation
    hop: Ints  # (S,) total ticks of the messages from stage 0 to each stage if they are as short as possible
    back: Ints  # (S,) total ticks of the messages from each stage back to stage 0, likewise
    room: Ints  # (p,) memory of each device less the reserve; `NO_LIMIT` where memory does not matter
    static: float  # bytes of static state per parameter
    gathered: float  # bytes of a parameter while its stage is gathered
    resident: int  # the most stages of a device that are gathered at once
    gradient: float  # bytes of the gradient of a parameter until it is reduced
    microbatches: int
    whole: bool  # whether the cost is the makespan, the span of all devices together, not of one device
    chunks: int  # stages per device; the later stages of a device count as one where they are joined
    joined: int  # the fewest layers of the joined stages of a device together; 0 where stages are not joined
    latency: float  # ticks of an exchange of gradients or parameters between pipelines
    reduce: float  # ticks to reduce the gradient of a parameter; like the next two, 0 if it does not count
    gather: float  # ticks to gather a parameter
    optimizer: float  # ticks to update a parameter
    most_leaving: int  # the most bytes of a microbatch that may leave a stage
    copy_ticks: float  # ticks in which a byte is copied out and back
    copy_rate: float  # `Host.rate`; 0 without a host
    #: whether all schedules have known orders with fused backwards, which count as B's here, and there are no
    #: W's. The others are those of `fixed_orders.Ramps`; 1 microbatch is in flight if orders are not known
    fixed: bool
    first: Ints  # (p, chunks)
    turn: Ints  # (p, chunks)
    last: Ints  # (p, chunks)
    wind: Ints  # (p, chunks)
    flight: Ints  # (p, chunks)
    empty: bool  # whether stages but the first and the last one may have no layers
    kind: int = 0  # how devices take their stages (`partition_kernel.LINE`); only for partitions
    middle: int = 0  # the first layer of the second half of the stages; only for `partition_kernel.LOOPED`


def tables_of(problem: PlanningProblem, placement: Placement, options: RecomputeOptions) -> Tables:
    """Return the arrays of the problem's model and a placement in which all microbatches take one route.

    The arrays `first_option`, `extra`, `saved`, `spared`, `transient` and `away` are those of `options`.
    """
    layers, (route,) = problem.bounding_layers, placement.routes
    smallest = min((layer.output or 0 for layer in layers[:-1]), default=0)  # the last layer sends nothing
    comm = comm_matrix(problem, placement, [smallest] * placement.stages)
    counts = problem.space.objective is Objective.STEP
    gradients = (problem.cluster.gradients if counts else None) or Gradients(1)
    no_limit = (NO_LIMIT + problem.cluster.reserve,) * placement.devices
    room = problem.cluster.memory_of(placement.devices) or no_limit
    ramps = ramps_of(problem, placement)
    times = [(layer.forward, *_backward(layer, fused=ramps is not None)) for layer in layers]
    speeds = [problem.cluster.speed_of(device) for device in range(placement.devices)]
    own = {speed: _at_speed(layers, speed, fused=ramps is not None) for speed in set(speeds)}
    one = np.ones((placement.devices, placement.stages_per_device), np.int64)
    host, chunks = problem.cluster.host, placement.stages_per_device
    state = (least_state(problem, layer, chunks) for layer in layers)
    return Tables(
        forward=_sums(layer.forward for layer in layers),
        backward=_sums(b for _, b, _ in times),
        weight=_sums(w for _, _, w in times),
        own=np.array([own[speed] for speed in speeds], np.int64),
        passing=_sums(int(layer.backward > 0) for layer in layers),
        held=_sums(layer.activation for layer in layers),
        freed=_sums(layer.needed if ramps is None else 0 for layer in layers),
        parameters=_sums(layer.parameters for layer in layers),
        trained=_sums(layer.trained for layer in layers),
        least=_sums(map(floor, map(add, least_held(problem, layers), state))),
        first_option=options.first,
        extra=options.extra,
        saved=options.saved,
        spared=options.spared if ramps is None else np.zeros_like(options.spared),
        transient=options.transient,
        leaving=_sums(layer.offload for layer in layers),
        away=options.away,
        hop=_sums(comm[a][b] for a, b in pairwise(route)),
        back=_sums(comm[b][a] for a, b in pairwise(route)),
        room=np.array([size - problem.cluster.reserve for size in room], np.int64),
        static=float(problem.cluster.bytes_per_parameter),
        gathered=float(problem.cluster.sharding.gathered),
        resident=problem.cluster.sharding.kept(placement.stages_per_device),
        gradient=float(problem.cluster.sharding.gradient),
        microbatches=problem.batch.microbatches,
        whole=problem.space.objective is not Objective.DEVICE_SPAN,
        chunks=chunks,
        joined=0,
        latency=float(gradients.latency),
        reduce=float(gradients.reduce_rate),
        gather=float(gradients.gather_rate),
        optimizer=float(gradients.optimizer_rate),
        most_leaving=problem.most_leaving(placement.stages_per_device),
        copy_ticks=0.0 if host is None else float(host.ticks_per_byte) * (1 - 1e-12),
        copy_rate=0.0 if host is None else float(host.rate) * (1 + 1e-12),
        fixed=ramps is not None,
        empty=problem.space.empty,
        **(Ramps(one, one, one, one, one) if ramps is None else ramps)._asdict(),
    )


def least_held(problem: PlanningProblem, layers: Sequence[Layer]) -> list[int]:
    """Return the fewest bytes that one microbatch takes in each layer, however the model is cut.

    They are those that its F takes, in the kind of recomputation that saves most, less those that may leave.
    Before the first layer with a B or a W, stages may hold nothing when their F's have ended.
    """
    found, frozen = [], Model(tuple(layers)).frozen
    for layer in layers:
        saved = max((effect.saved for effect in layer.effects(problem.space.recompute).values()), default=0)
        away = layer.offload if problem.cluster.host else 0
        found.append(layer.activation - max(saved, away))
    return [0] * frozen + found[frozen:]


def least_state(problem: PlanningProblem, layer: Layer, chunks: int) -> Fraction:
    """Return the fewest bytes of state that a layer takes on a device, however the model is cut."""
    cluster = problem.cluster
    whole = cluster.sharding.least_bytes(layer.parameters, layer.trained, chunks)
    return layer.parameters * cluster.bytes_per_parameter + whole


def _backward(layer: Layer, *, fused: bool) -> tuple[int, int]:
    """Return the ticks of a layer's B and W as bounds count them, or of the two as one B without a W."""
    return (layer.together, 0) if fused else layer.least


def _at_speed(layers: Iterable[Layer], speed: Speed, *, fused: bool) -> list[Ints]:
    """Return the sums of the ticks of F, B and W on a device of some speed, never above the exact ones."""
    forward, backward, weight = speed
    f = _sums(layer.forward // forward for layer in layers)
    b, w = ([layer.least[k] // each for layer in layers] for k, each in enumerate((backward, weight)))
    if not fused:
        return [f, _sums(b), _sums(w)]
    rest = [(layer.together - layer.least[0]) // weight for layer in layers]
    return [f, _sums(map(sum, zip(b, rest, strict=True))), _sums([0] * len(b))]


def _sums(values: Iterable[int]) -> Ints:
    return np.cumsum([0, *values], dtype=np.int64)
