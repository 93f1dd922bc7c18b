"""Partitions come once each and in ascending order of bounds, and no bound is above what a schedule costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from itertools import combinations, islice, pairwise, product
from math import ceil, gcd
from typing import Any

import pytest
from helpers.random_models import KINDS, cases, configuration, taken
from helpers.schedules import by_heuristics
from helpers.small_models import all_cuts, recomputable
from hypothesis import assume, given, settings

from tightpipe import InputError, Placement, solve
from tightpipe.model.costs import Objective
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.params.budget import TimeUpError
from tightpipe.planning import (
    Batch,
    Candidate,
    Cluster,
    Layer,
    Model,
    PlanningProblem,
    Recomputation,
    SearchSpace,
)
from tightpipe.planning.candidate import instance_of
from tightpipe.planning.candidates_by_list import (
    DeviceStages,
    Listed,
    Unlisted,
    _known_ways,
    least_cost,
    least_sum,
)
from tightpipe.planning.candidates_by_table import Tabled
from tightpipe.planning.cluster import Gradients, Network
from tightpipe.planning.configuration import Configuration
from tightpipe.planning.device_bound_kernel import NEVER
from tightpipe.planning.layered_model import Effect, Recomputed
from tightpipe.planning.model_arrays import RecomputeOptions
from tightpipe.planning.partitions import NoPartitions, least_excess, partitions_of

Cuts = tuple[int, ...]
Way = Effect
NO_TIME = Layer("no gradient", 3, 0, 2, activation=4)


# the reference


def way(problem: PlanningProblem, again: Recomputed) -> Way:
    extra, saved, spared, transient = 0, 0, 0, 0
    for k, name in again:
        layer = problem.model.layers[k]
        kind = next(kind for kind in layer.recompute if kind.name == name)
        late = layer.weight_activation if kind.weight_activation is None else kind.weight_activation
        late, before = (late, layer.weight_activation) if layer.weight else (0, 0)
        less = layer.activation - max(kind.activation, late)
        extra, saved, spared = extra + kind.ticks, saved + less, spared + before - late
        transient = max(transient, less if kind.transient is None else kind.transient)
    return Way(extra, saved, spared, transient)


def efficient_ways(problem: PlanningProblem, first: int, end: int) -> list[Way]:
    """Return what recomputation of a stage can do; no entry is at least as good as another one throughout."""
    ways = {way(problem, again) for again in recomputable(problem, first, end)}

    def is_worse(one: Way, other: Way) -> bool:
        better = other.saved >= one.saved and other.spared >= one.spared
        return one != other and better and other.extra <= one.extra and other.transient <= one.transient

    return [one for one in ways if not any(is_worse(one, other) for other in ways)]


def needed(problem: PlanningProblem, stages: list[tuple[int, int]], ways: list[Way]) -> int:
    """Return the bytes that a device needs to hold one microbatch at these stages, the reserve included."""
    cluster, total = problem.cluster, problem.cluster.reserve + max(way.transient for way in ways)
    kept, taken_by_f, gathered = 0, [0], list[int]()
    for (first, end), way in zip(stages, ways, strict=True):
        layers = problem.model.layers[first:end]
        total += cluster.static_bytes(sum(layer.parameters for layer in layers))
        total += ceil(sum(layer.parameters for layer in layers if layer.weight) * cluster.sharding.gradient)
        gathered.append(ceil(sum(layer.parameters for layer in layers) * cluster.sharding.gathered))
        taken_by_f.append(sum(layer.activation for layer in layers) - way.saved)
        if any(layer.backward or layer.weight for layer in layers):
            kept += taken_by_f[-1]
    return total + sum(sorted(gathered, reverse=True)[: cluster.sharding.resident]) + max(kept, *taken_by_f)


def is_possible(problem: PlanningProblem, cuts: Cuts) -> bool:
    """Return whether each stage with layers has an F, and a B if a stage before it has a B or a W."""
    parts = [problem.model.layers[first:end] for first, end in pairwise(cuts)]
    f, b, w = (
        [sum(getattr(layer, key) for layer in part) for part in parts]
        for key in ("forward", "backward", "weight")
    )
    held = [s for s, part in enumerate(parts) if part]
    return all(f[s] and (b[s] or not (any(b[:s]) or any(w[:s]))) for s in held)


def excess(problem: PlanningProblem, placement: Placement, cuts: Cuts, ways: tuple[Way, ...]) -> int:
    """Return how many bytes the fullest device lacks to hold one microbatch."""
    sizes = problem.cluster.memory_of(placement.devices)
    if sizes is None:
        return 0
    lacking = [0]
    for device, size in enumerate(sizes):
        held = placement.stages_on(device)
        stages = [(cuts[s], cuts[s + 1]) for s in held]
        lacking.append(needed(problem, stages, [ways[s] for s in held]) - size)
    return max(lacking)


def enumerated(problem: PlanningProblem, placement: Placement) -> Iterator[tuple[Cuts, tuple[Way, ...], int]]:
    """Yield each partition with each efficient recomputation, and the bytes that it lacks."""
    ways_of = cache(partial(efficient_ways, problem))  # many partitions have a stage in common
    for cuts in all_cuts(len(problem.model.layers), placement.stages, empty=problem.space.empty):
        for ways in product(*(ways_of(*stage) for stage in pairwise(cuts))):
            if is_possible(problem, cuts):
                yield cuts, ways, excess(problem, placement, cuts, ways)


# what comes


@given(cases(may_be_empty=True))
def test_each_partition_and_efficient_recomputation_comes_once(
    case: tuple[PlanningProblem, Placement],
) -> None:
    problem, placement = case
    expected = Counter((cuts, ways) for cuts, ways, lacking in enumerated(problem, placement) if lacking <= 0)
    found = [
        (candidate.cuts, tuple(way(problem, again) for again in candidate.recomputed))
        for _, candidate in taken(problem, placement)
    ]
    assert Counter(found) == expected


@given(cases(may_be_empty=True))
def test_the_bounds_ascend(case: tuple[PlanningProblem, Placement]) -> None:
    bounds = [bound for bound, _ in taken(*case)]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize(("name", "chunks"), KINDS)
@pytest.mark.parametrize("recompute", [(), ("full",), ("half", "full")])
def test_each_kind_of_placement_has_all_its_partitions(
    name: str, chunks: int, recompute: tuple[str, ...]
) -> None:
    """A case that surely has candidates, with layers in all of which something else is scarce."""
    kinds = (Recomputation("half", 1, 5, 2), Recomputation("full", 2, 3))
    model = Model(
        tuple(Layer(f"{k}", 1 + k % 3, 2 + k % 2, 1, 6 + k, max(2, k % 4), kinds) for k in range(8))
    )
    placement = Placement(name, 2, chunks)
    problem = PlanningProblem(model, Cluster((2,), 60), Batch(3), SearchSpace(recompute=recompute))
    expected = {(cuts, ways) for cuts, ways, lacking in enumerated(problem, placement) if lacking <= 0}
    found = [
        (candidate.cuts, tuple(way(problem, again) for again in candidate.recomputed))
        for _, candidate in taken(problem, placement)
    ]
    assert found
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_too_few_layers_for_the_stages_are_no_partition() -> None:
    problem = PlanningProblem(Model((Layer("a", 1, 1, 1),) * 3), Cluster((2,)), Batch(2))
    asked = configuration(problem, Placement("v", 2))
    assert list(taken(problem, Placement("v", 2))) == []
    assert least_excess(asked) == NEVER


@given(cases(may_be_empty=True))
def test_the_least_excess_is_that_of_all_partitions(case: tuple[PlanningProblem, Placement]) -> None:
    problem, placement = case
    expected = min((lacking for _, _, lacking in enumerated(problem, placement)), default=NEVER)
    assert least_excess(configuration(problem, placement)) == expected


def test_the_excess_counts_every_byte() -> None:
    """The best cut gives 2 layers to a device: 2 x (10 + 6) bytes, and 3 are reserved of 20."""
    model = Model((Layer("a", 1, 1, 1, activation=10, parameters=4),) * 4)
    problem = PlanningProblem(model, Cluster((2,), 20, 3, Fraction(3, 2)), Batch(2))
    assert least_excess(configuration(problem, Placement("linear", 2))) == 2 * (10 + 6) + 3 - 20


# ways to recompute


@given(cases(may_be_empty=True))
def test_a_stage_can_be_recomputed_in_all_efficient_ways(case: tuple[PlanningProblem, Placement]) -> None:
    problem, _ = case
    count = len(problem.model.layers)
    options = RecomputeOptions(problem, count)
    for first, end in combinations(range(count + 1), 2):
        begin, stop = options.first[first * (count + 1) + end :][:2]
        columns = (options.extra, options.saved, options.spared, options.transient, options.away)
        listed = list(zip(*(column[begin:stop].tolist() for column in columns), strict=True))
        assert Counter(map(tuple, listed)) == Counter(map(tuple, efficient_ways(problem, first, end)))
        assert [way(problem, again) for again in options.of(range(begin, stop))] == listed


# what the bound of a device is


@dataclass(frozen=True)
class Alone:
    """Starts and ends of one microbatch that runs alone, with recomputation on one device only."""

    f: list[tuple[int, int]]
    b: list[tuple[int, int]]
    w: list[int]  # the least time of each W


def alone(problem: PlanningProblem, candidate: Candidate, device: int) -> Alone:
    """Return the times of one microbatch where messages are as short as those of any cut."""
    model, (route,) = problem.model.layers, candidate.placement.routes
    smallest = min((layer.output or 0 for layer in model[:-1]), default=0)
    time, before, f, b = 0, route[0], list[tuple[int, int]](), list[tuple[int, int]]()
    stages = [(s, candidate.stages[s]) for s in range(candidate.placement.stages)]
    for s, (first, end) in stages:
        time += problem.cluster.comm_ticks(before, route[s], smallest)
        f.append((time, time + sum(layer.forward for layer in model[first:end])))
        time, before = f[-1][1], route[s]
    for s, (first, end) in reversed(stages):
        time += problem.cluster.comm_ticks(before, route[s], smallest)
        again = candidate.recomputed[s] if route[s] == device else ()
        longer = way(problem, again).extra
        b.append((time, time + sum(least(layer)[0] for layer in model[first:end]) + longer))
        time, before = b[-1][1], route[s]
    w = [sum(least(layer)[1] for layer in model[first:end]) for _, (first, end) in stages]
    return Alone(f, b[::-1], w)


def least(layer: Layer) -> tuple[int, int]:
    """Return the times of B and W, cut to that of both as one, from its end."""
    if layer.fused is None or not (layer.backward and layer.weight):
        return layer.backward, layer.weight
    return min(layer.backward, layer.fused), min(layer.weight, max(0, layer.fused - layer.backward))


def most(steps: list[tuple[int, int]], count: int, limit: int | None) -> int:
    """Return the most work of `count` of each step (memory, work) within the limit, parts of a step included."""
    if limit is None:
        return count * sum(work for _, work in steps)
    room, total = Fraction(limit), Fraction(0)
    for memory, work in sorted(steps, key=lambda step: Fraction(step[0], step[1]) if step[1] else 10**9):
        share = min(Fraction(count), room / memory) if memory else Fraction(count)
        room, total = room - share * memory, total + share * work
    return int(total)


def held_steps(held: int, freed: int, b: int, w: int) -> list[tuple[int, int]]:
    """Return how the work that a microbatch leaves grows with its memory, in steps of falling density."""
    if w * held > (b + w) * freed:
        return [(freed, w), (held - freed, b)]
    return [(held, b + w)]


def whole_units(limit: int | None, sizes: list[int]) -> int | None:
    """Return the most bytes within the limit that sums of these sizes can take, up to their common divisor."""
    unit = gcd(*sizes)
    return limit if limit is None or not unit else limit // unit * unit


def tail(problem: PlanningProblem, stages: list[range]) -> int:
    """Return the least time from the last operation on these stages of a device to the end of its step."""
    found = problem.cluster.gradients
    if found is None or problem.space.objective is not Objective.STEP:
        return 0
    layers = problem.model.layers
    trained = [sum(layers[k].parameters for k in stage if layers[k].weight) for stage in stages]
    d, factor = found.pipelines, 1 if found.gathered else 2
    sent = [factor * some * found.reduced * Fraction(d - 1, d) / found.bandwidth for some in trained]
    updated = sum(trained) * found.optimizer / (d if found.gathered else 1)
    return min(ceil(found.latency + ticks) if ticks else 0 for ticks in sent) + ceil(updated)


def gathered(problem: PlanningProblem, stage: range) -> int:
    found = problem.cluster.gradients
    if found is None or problem.space.objective is not Objective.STEP:
        return 0
    layers, d = problem.model.layers, found.pipelines
    trained = sum(layers[k].parameters for k in stage if layers[k].weight)
    ticks = trained * found.gathered * Fraction(d - 1, d) / found.bandwidth
    return ceil(found.latency + ticks) if ticks else 0


def parts(problem: PlanningProblem, candidate: Candidate, device: int) -> dict[str, int]:
    """Return what each argument proves of a device, in ticks."""
    instance, n = instance_of(problem, candidate), problem.batch.microbatches
    whole, layers = problem.space.objective is not Objective.DEVICE_SPAN, problem.model.layers
    one, stages = alone(problem, candidate, device), candidate.placement.stages_on(device)
    lo, hi, limit = stages[0], stages[-1], instance.memory_limit(device)
    held_layers = [range(*candidate.stages[s]) for s in stages]
    f, b, w = ([end - begin for begin, end in (one.f[s] for s in stages)],
               [end - begin for begin, end in (one.b[s] for s in stages)], [one.w[s] for s in stages])  # fmt: skip
    held, freed = ([instance.memory_delta(OpKind.F, s) for s in stages],
                   [-instance.memory_delta(OpKind.W, s) for s in stages])  # fmt: skip
    work = n * sum([*f, *b, *w])
    trains_first = bool(layers[0].backward or layers[0].weight)
    head = max(one.f[lo][0] + gathered(problem, range(1)), gathered(problem, held_layers[0])) if whole else 0
    own, first = tail(problem, held_layers), tail(problem, [range(1)]) if trains_first else 0
    last = one.b[0][1] + least(layers[0])[1]  # stage 0 has the first layer at least
    if not trains_first:  # then no message of a gradient is certain
        last = one.f[-1][1] + sum(e - a for a, e in one.b)
    lowest = next((s for s in stages if instance.has_backward(s)), None)
    if lowest is None:
        found = {"work": work + head + own, "chain": head + one.f[hi][1] - one.f[lo][0] + own}
        return found | ({"cool-down": work + head + last - one.f[hi][1] + first} if whole else {})
    ends = [(one.b[lowest][1] + one.w[lowest], own), *([(last, first)] if whole else [])]
    before = most(list(zip(held, f, strict=True)), n, whole_units(limit, held))
    turning = [size for s, *row in zip(stages, held, freed, strict=True)
               if instance.has_backward(s) for size in row]  # fmt: skip
    left = most([
        step
        for s, *row in zip(stages, held, freed, b, w, strict=True)
        if instance.has_backward(s)
        for step in held_steps(*row)
    ], n, whole_units(limit, turning))  # fmt: skip
    warm = max(0, one.b[hi][0] - one.f[lo][0] - before)
    cools = [(end - one.f[hi][1] - left, after) for end, after in ends]  # stage 0 may end before the device
    cools[0] = max(0, cools[0][0]), own
    found = {
        "work": work + head + own,
        "chain": head + ends[0][0] - one.f[lo][0] + own,
        "warm-up": work + head + warm + own,
        "cool-down": work + head + max(cool + after for cool, after in cools),
    }
    if limit is not None and n * sum(held) > limit:
        found["both ramps"] = work + head + warm + max(cool + after for cool, after in cools)
    between = work - min(before, one.b[hi][0] - one.f[lo][0]) - left
    if not whole and device and between > 0 and trains_first:
        found["two times"] = one.b[hi][0] + between + last - one.f[hi][1]
    if limit and any(held):
        ticks = sum(
            size * (one.b[s][1] - one.f[s][0]) + rest * one.w[s]
            for s, size, rest in zip(stages, held, freed, strict=True)
        )
        full = min(limit, n * sum(held))
        by_b = [size - rest for size, rest in zip(held, freed, strict=True)]
        rises = max(Fraction(size, time) for size, time in zip(held, f, strict=True) if size)
        frees = [(size, time) for size, time in zip([*by_b, *freed], [*b, *w], strict=True) if size]
        short = max(0, full - max(held)) ** 2 / rises
        if all(time for _, time in frees):
            short += max(0, full - max(*by_b, *freed)) ** 2 / max(Fraction(*pair) for pair in frees)
        found["memory times time"] = ceil((n * ticks + short / 2) / full) - 1  # as if it were a little less
    return found


def bound_of(problem: PlanningProblem, candidate: Candidate, device: int, later: int = 0) -> int:
    """Return the bound of a device's stages as the search has it.

    `later` is the least time, in ticks, that recomputation takes on later devices.
    """
    asked = configuration(problem, candidate.placement)
    chosen = tuple(candidate.recomputed[s] for s in candidate.placement.stages_on(device))
    arrays = asked.arrays()
    for bound, options in DeviceStages(asked, arrays, device).ways(candidate.cuts, later):
        if arrays.options.of(options) == chosen:
            return bound
    return NEVER


def bound_of_all(problem: PlanningProblem, candidate: Candidate, *, knowing: bool = False) -> int:
    """Return the largest bound of a device; `knowing` how long recomputation takes on later devices, or not."""
    found, later = list[int](), 0
    for device in reversed(range(candidate.placement.devices)):
        found.append(bound_of(problem, candidate, device, later if knowing else 0))
        again = (candidate.recomputed[s] for s in candidate.placement.stages_on(device))
        later += sum(way(problem, one).extra for one in again)
    return max(found)


@given(cases(may_be_empty=True))
def test_the_bound_of_a_device_is_the_largest_of_its_arguments(
    case: tuple[PlanningProblem, Placement],
) -> None:
    problem, placement = case
    for _, candidate in islice(taken(problem, placement), 5):
        for device in range(placement.devices):
            assert bound_of(problem, candidate, device) == max(parts(problem, candidate, device).values())


@given(cases(may_be_empty=True))
def test_candidates_come_as_their_own_bounds_ascend(case: tuple[PlanningProblem, Placement]) -> None:
    problem, placement = case
    highest = 0
    for promised, candidate in islice(taken(problem, placement), 40):
        # tables know how long recomputation takes at least on later devices, by which their own bound is
        # between that of devices that know nothing of each other and that of devices that know all
        knowing = bound_of_all(problem, candidate, knowing=True)
        assert max(promised, highest) <= knowing
        highest = max(highest, bound_of_all(problem, candidate))


def test_no_candidate_is_lost_where_longer_stages_have_too_many_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [Layer("layer", 3 + k, 4, 2, 5) for k in range(10)]
    problem, placement = (
        PlanningProblem(Model(tuple(layers)), Cluster((3,)), Batch(4)),
        Placement("linear", 3),
    )
    every = {candidate: bound for bound, candidate in taken(problem, placement)}
    asked, arrays = configuration(problem, placement), Configuration.arrays
    partitions, found = partitions_of(asked), set[Candidate]()
    assert isinstance(partitions, Tabled)

    def too_many(self: Configuration, cap: int = NEVER, *rest: Any, **options: Any) -> Any:
        if cap < NEVER:  # as of all tables after those that are there
            raise InputError("too many ways")
        return arrays(self, cap, *rest, **options)

    monkeypatch.setattr(Configuration, "arrays", too_many)
    with suppress(InputError):
        for candidate in iter(partitions.take, None):
            found.add(candidate)
    assert 1 < len(found) < len(every)
    assert all(bound >= partitions.bound for candidate, bound in every.items() if candidate not in found)


def model_of(count: int, forward: int, backward: int, weight: int, activation: int, kept: int = 0) -> Model:
    return Model((Layer("layer", forward, backward, weight, activation, kept),) * count)


SPAN, WHOLE = (SearchSpace(objective=each) for each in (Objective.DEVICE_SPAN, Objective.MAKESPAN))
TIGHT = {  # argument: model, memory, communication, microbatches, space, placement, cuts, device, bound, optimum
    "chain": (model_of(5, 6, 6, 1, 3), 28, 9, 1, WHOLE, ("v", 2), (0, 1, 3, 4, 5), 0, 97, 97),
    "warm-up": (model_of(5, 1, 5, 6, 3), 24, 9, 2, SPAN, ("v", 2), (0, 1, 3, 4, 5), 1, 93, 93),
    "cool-down": (model_of(4, 2, 6, 1, 4, 2), 20, 9, 1, WHOLE, ("linear", 3), (0, 1, 3, 4), 2, 69, 69),
    "both ramps": (model_of(5, 6, 2, 5, 1, 1), 4, 9, 2, WHOLE, ("loop", 2), (0, 1, 2, 4, 5), 0, 151, 151),
    "two times": (model_of(4, 6, 4, 2, 1), None, 0, 2, SPAN, ("linear", 3), (0, 1, 3, 4), 1, 54, 54),
    "memory times time": (model_of(3, 6, 4, 1, 1), 2, 9, 3, SPAN, ("linear", 2), (0, 2, 3), 0, 143, 146),
}


@pytest.mark.parametrize("argument", TIGHT)
def test_each_argument_is_somewhere_the_largest(argument: str) -> None:
    """All of these bounds but the last are met by a schedule, so that an argument that claims more is wrong."""
    model, memory, comm, microbatches, space, (name, devices), cuts, device, bound, best = TIGHT[argument]
    problem = PlanningProblem(model, Cluster((devices,), memory, comm=comm), Batch(microbatches), space)
    placement = Placement(name, devices)
    candidate = Candidate(placement, cuts, ((),) * placement.stages)
    found = parts(problem, candidate, device)
    assert found.pop(argument) == bound > max(found.values())
    assert bound_of(problem, candidate, device) == bound
    assert solve(instance_of(problem, candidate), "cpsat").bound == best


def test_the_last_layer_sends_nothing() -> None:
    """The messages of any cut have at least 8 bytes, although the last layer has no output."""
    model = Model((*(Layer("block", 1, 1, 1, output=8),) * 2, Layer("head", 1, 1, 1)))
    problem = PlanningProblem(model, Cluster((2,), comm=Network(Fraction(0), Fraction(1))), Batch(1))
    assert partitions_of(configuration(problem, Placement("linear", 2))).bound == 3 + 3 + 1 + 2 * 8


# no bound is above a schedule


@given(cases(may_be_empty=True))
def test_no_bound_is_above_the_schedule_of_a_heuristic(case: tuple[PlanningProblem, Placement]) -> None:
    problem, placement = case
    for bound, candidate in islice(taken(problem, placement), 3):
        instance = instance_of(problem, candidate)
        own = bound_of_all(problem, candidate)
        for schedule in by_heuristics(instance):
            assert max(bound, own) <= cost(schedule)


@given(cases(4))
@settings(max_examples=60)
def test_no_bound_is_above_the_optimum(case: tuple[PlanningProblem, Placement]) -> None:
    problem, placement = case
    assume(placement.stages <= 4)
    problem = replace(problem, batch=Batch(min(problem.batch.microbatches, 12 // placement.stages, 3)))
    for bound, candidate in islice(taken(problem, placement), 2):
        best = solve(instance_of(problem, candidate), "cpsat", workers=1).bound
        assert best is not None
        assert max(bound, bound_of_all(problem, candidate)) <= best


def test_a_reduction_of_stage_0_may_run_beside_later_work_of_its_device() -> None:
    layers = tuple(Layer(str(k), 1, 1, 1, parameters=int(k == 0)) for k in range(3))
    gradients = Gradients(2, reduced=Fraction(1, 3))
    cluster = Cluster((1,), gradients=gradients)
    space = SearchSpace(("loop",), objective=Objective.STEP)
    problem = PlanningProblem(Model(layers), cluster, Batch(1), space)
    ((_, candidate),) = taken(problem, Placement("loop", 1, 3))
    assert bound_of_all(problem, candidate) == 9 == solve(instance_of(problem, candidate), "cpsat").cost


# too many partitions for tables and lists


@given(cases(may_be_empty=True))
def test_a_bound_without_partitions_is_by_the_least_sum_of_layers(
    case: tuple[PlanningProblem, Placement],
) -> None:
    problem, placement = case
    ticks = [layer.forward + sum(least(layer)) for layer in problem.model.layers]
    sums = {sum(chosen) for size in range(len(ticks) + 1) for chosen in combinations(ticks, size)}
    ticks.sort(reverse=True)
    longest = (ticks[: k * placement.devices + 1] for k in range((len(ticks) - 1) // placement.devices + 1))
    crowded = max(sum(some[-(1 + (len(some) - 1) // placement.devices) :]) for some in longest)
    fewest = min(total for total in sums if total >= max(crowded, sum(ticks) / placement.devices))
    asked = configuration(problem, placement)
    assert least_sum(asked) == problem.batch.microbatches * fewest
    partitions = Unlisted(asked)
    assert partitions.bound >= least_sum(asked)
    first = next(taken(problem, placement), None)
    if first is not None:
        assert partitions.bound <= bound_of_all(problem, first[1])


@pytest.mark.parametrize(
    ("ticks", "odd", "bound"), [(1, 0, 104), (10**9, 0, 104 * 10**9), (10**9, 1, 207 * 10**9 // 2)]
)
def test_a_bound_without_partitions_needs_no_more_room_for_finer_ticks(
    ticks: int, odd: int, bound: int
) -> None:
    """A device has half of the work of all layers, 103.5 times that of a short one, rounded up to a sum of layers.

    If layers differ by single ticks, the sums would be too many to list.
    """
    layers = [Layer("long", 50 * ticks, 0, 0)] * 3 + [Layer("short", ticks, 0, 0)] * 55
    layers += [Layer("odd", ticks + odd, 0, 0), Layer("odd", ticks - odd, 0, 0)]
    problem = PlanningProblem(Model(tuple(layers)), Cluster((2,)), Batch(3))
    assert least_sum(configuration(problem, Placement("wave", 2, 4))) == 3 * bound


@pytest.mark.parametrize(("name", "cost"), [("linear", 26), ("v", 22), ("loop", 22)])
def test_devices_wait_for_the_first_microbatch_where_the_makespan_counts(name: str, cost: int) -> None:
    """There are 4 layers of F = 3, B = W = 1, 2 devices and 2 microbatches, so that devices work 20 on average.

    The second device of `linear` works 20 ticks after F's of two layers, or one of the devices works 30. In
    the others it waits for one layer, whose 3 ticks the two devices share.
    """
    problem = PlanningProblem(model_of(4, 3, 1, 1, 1), Cluster((2,)), Batch(2))
    assert least_cost(configuration(problem, Placement(name, 2))) == cost


@given(cases())
@settings(max_examples=30)
def test_ways_that_partitions_share_are_those_of_each(case: tuple[PlanningProblem, Placement]) -> None:
    problem, placement = case
    asked = configuration(problem, placement)
    arrays, every = asked.arrays(), list(islice(all_cuts(asked.layers, placement.stages), 20))
    for number in range(placement.devices):
        device, known = DeviceStages(asked, arrays, number), dict[Any, Any]()
        for cuts in every:
            assert _known_ways(device, known, cuts) == device.ways(cuts)


def test_a_partition_of_too_many_is_still_there_after_a_call_that_ran_out_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = PlanningProblem(model_of(8, 1, 1, 1, 1), Cluster((3,)), Batch(2))
    partitions = Unlisted(configuration(problem, Placement("linear", 3)))

    def out_of_time(*_: object) -> None:
        raise TimeUpError

    with monkeypatch.context() as patch:
        patch.setattr(partitions, "_improved", out_of_time)
        with pytest.raises(TimeUpError):
            partitions.take()
    assert partitions.take() is not None
    assert partitions.take() is None


@given(cases(may_be_empty=True))
def test_a_partition_of_too_many_is_not_improved_by_moving_one_cut(
    case: tuple[PlanningProblem, Placement],
) -> None:
    problem, placement = case
    asked = configuration(problem, placement)
    partitions = Unlisted(asked)
    candidate = partitions.take()
    assert partitions.take() is None
    if candidate is None:
        return
    devices = [DeviceStages(asked, partitions.arrays, device) for device in range(placement.devices)]

    def bounds(cuts: Cuts) -> tuple[int, int]:
        found = [ways[0].bound if (ways := device.ways(cuts)) else NEVER for device in devices]
        return max(found), sum(found)

    for stage, step in product(range(1, placement.stages), (-1, 1)):
        moved = tuple(cut + step * (k == stage) for k, cut in enumerate(candidate.cuts))
        if all(a < b for a, b in pairwise(moved)):
            assert bounds(candidate.cuts) <= bounds(moved)
    assert bound_of_all(problem, candidate) == bounds(candidate.cuts)[0]


@pytest.mark.parametrize(
    ("name", "chunks", "layers", "kind"),
    [
        ("linear", 1, 60, Tabled),
        ("v", 2, 60, Tabled),
        ("wave", 2, 60, Tabled),
        ("loop", 2, 60, Tabled),
        ("linear", 1, 500, Tabled),
        ("v", 2, 200, Tabled),
        ("loop", 2, 200, Tabled),
        ("loop", 3, 12, Listed),
        ("loop", 3, 60, Tabled),
        ("wave", 4, 60, Tabled),
        ("linear", 2, 60, Unlisted),
        ("v", 2, 3, NoPartitions),
    ],
)
def test_tables_are_made_where_they_can_be(name: str, chunks: int, layers: int, kind: type) -> None:
    problem = PlanningProblem(model_of(layers, 1, 1, 1, 1), Cluster((3,)), Batch(2))
    assert type(partitions_of(configuration(problem, Placement(name, 3, chunks)))) is kind
