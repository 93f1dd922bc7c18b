"""The scheduling problem as frozen data: an Instance with its Costs, its Memory and its Objective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..base.errors import InputError, check_int, is_list, plain, store_plain
from .costs import (
    Alike,
    Costs,
    Integers,
    Memory,
    MicrobatchClass,
    MicrobatchSlice,
    Objective,
    Offload,
    Step,
    Ticks,
    largest_savings,
    objective_of,
)
from .expand import (
    check_type,
    expand_comm,
    expand_deltas,
    expand_durations,
    expand_fused,
    expand_limit,
    expand_offload,
    expand_overlapped,
    expand_pairs,
    expand_part,
    expand_step,
)
from .operation import Operation, OpKind, operation_text
from .placement import Placement, Route, held_by

MOST_DEVICES = 1024
MOST_OPERATIONS = 10**6


@dataclass(frozen=True, slots=True)
class Instance:
    """One scheduling problem.

    Entries that are given as one number are expanded to a tuple with one number per stage or device.

    What an operation works on is a *unit*: a microbatch or, where every microbatch is cut into k slices, one
    slice of it. Unit m * k + j is slice j of microbatch m. The third number of an `Operation`, and what
    methods here call `microbatch`, is the number of a unit.

    Parameters
    ----------
    placement
        Which device runs which stage; the placement also fixes the number of devices and stages.
    microbatches
        Number of microbatches n of all iterations together, at least 1. If there are
        classes, it is the sum of their counts.
    costs
        Durations and communication.
    memory
        Memory of the operations and limit of the devices; None means that memory does not matter.
    objective
        `device_span`, `makespan` or `step`.
    iterations
        Number of training iterations, at least 1; each has an equal block of microbatches.
    flush
        Whether a device finishes an iteration before it starts the next.
    step
        What a step takes beside the operations; None means nothing. It has no effect with another objective
        than `step`.
    classes
        The classes of microbatches that differ, in the sequence of their microbatches: the first class has
        the first microbatches, and so on. The sequence in which microbatches run is the schedule's choice.
        Empty if all microbatches cost the same, whatever classes were given.
    slices
        The slices into which every microbatch is cut, in sequence; empty if microbatches are whole. At each
        stage, the F of a slice waits for that of the slice before it, and its B for that of the slice after
        it. The first B of a microbatch, that of its last slice at the last stage, waits for the F there.
    offload
        What may leave a device between the forward and the backward of a microbatch; None means nothing.

    Raises
    ------
    InputError
        If an entry breaks a rule; the message names the entry, its value and the rule.
    """

    placement: Placement
    microbatches: int
    costs: Costs
    memory: Memory | None = None
    objective: Objective = Objective.DEVICE_SPAN
    iterations: int = 1
    flush: bool = True
    step: Step | None = None
    classes: Sequence[MicrobatchClass] = ()
    slices: Sequence[MicrobatchSlice] = ()
    offload: Offload | None = None
    _alike: tuple[Alike, ...] = field(init=False, repr=False, compare=False)
    _any: Alike | None = field(init=False, repr=False, compare=False)  # what all cost, but for their routes
    _counts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _mb_class: tuple[int, ...] = field(
        init=False, repr=False, compare=False
    )  # of each unit, index in `_alike`
    _taken: tuple[Route, ...] = field(init=False, repr=False, compare=False)  # the route of each unit
    _hash: int = field(init=False, repr=False, compare=False)  # known, as caches ask for it again and again

    def __post_init__(self) -> None:
        store_plain(self)
        check_type("placement", self.placement, Placement)
        check_type("costs", self.costs, Costs)
        if self.memory is not None:
            check_type("memory", self.memory, Memory)
        _check_classes(self)
        _check_slices(self)
        check_size(self.placement, self.microbatches, max(1, len(self.slices)))
        _check_iterations(self)
        duration = expand_durations(self.costs, self.stages)
        delta = expand_deltas(self.memory, duration)
        comm = expand_comm(self.costs.comm, self.devices)
        overlapped = expand_overlapped(self.costs.overlapped, self.placement)
        both = [b > 0 and w > 0 for b, w in zip(*duration[1:], strict=True)]
        pairs = expand_pairs(self.costs.pairs, self.placement, both)
        if overlapped is not None and pairs is not None:
            raise InputError("must be left out where `pairs` are given", key="overlapped", value=overlapped)
        occupancy = check_int("link_occupancy", self.costs.link_occupancy, 0)
        given, fused = self.costs.fused, expand_fused(self.costs.fused, *duration[1:])
        object.__setattr__(self, "costs", Costs(*duration, comm, overlapped, occupancy, fused, pairs))
        if self.memory is not None:
            object.__setattr__(self, "memory", Memory(*delta, self.memory.limit))
        rest = self.costs, given, self.memory and Memory(*delta), self.stages
        classes = [expand_part(f"classes[{i}].", one, *rest) for i, one in enumerate(self.classes)]
        slices = [expand_part(f"slices[{j}].", one, *rest) for j, one in enumerate(self.slices)]
        parts = [cost for _, cost in classes]
        if len(set(parts)) == 1:  # the instance takes what they cost, and so has no classes
            self._take(parts[0])
            classes, parts = [], parts[:1]
        object.__setattr__(self, "classes", tuple(one for one, _ in classes))
        object.__setattr__(self, "slices", tuple(one for one, _ in slices))
        _check_same_operations(self.slices)
        parts = parts or [replace(cost, slice=j) for j, (_, cost) in enumerate(slices)]
        self._classify(parts or [Alike.of(duration, fused, delta)])
        if self.memory is not None:
            limit = expand_limit(self.memory.limit, list(map(self._activation, range(self.devices))))
            object.__setattr__(self, "memory", replace(self.memory, limit=limit))
        offload = expand_offload(self.offload, self.memory, self._alike, self.stages)
        object.__setattr__(self, "offload", offload)
        object.__setattr__(self, "objective", objective_of(self.objective))
        object.__setattr__(self, "step", expand_step(self.step, self.stages, self.devices))
        compared = tuple(getattr(self, one.name) for one in fields(self) if one.compare)
        object.__setattr__(self, "_hash", hash(compared))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Instance], tuple[Any, ...]]:
        """Return how to make the instance in another process, where its hash may be another one."""
        return Instance, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    def _take(self, one: Alike) -> None:
        """Let the instance cost what the microbatches of its only class cost."""
        forward, backward, weight, together = one.duration
        fused = expand_fused(together, backward, weight)
        costs = replace(self.costs, forward=forward, backward=backward, weight=weight, fused=fused)
        object.__setattr__(self, "costs", costs)
        if self.memory is not None:
            object.__setattr__(self, "memory", replace(one.memory, limit=self.memory.limit))

    def _classify(self, costs: Sequence[Alike]) -> None:
        """Set the class of each unit; those of the same costs, slice and route are of one class."""
        given = [i for i, one in enumerate(self.classes) for _ in range(one.count)]
        given = given or list(range(len(costs))) * self.microbatches
        taken = list(zip(given, map(self.route, range(self.units)), strict=True))
        number: dict[Alike, int] = {}
        classes = {
            key: number.setdefault(replace(costs[key[0]], route=key[1]), len(number))
            for key in dict.fromkeys(taken)
        }
        object.__setattr__(self, "_alike", tuple(number))
        same = len({replace(one, route=0) for one in number}) == 1
        object.__setattr__(self, "_any", next(iter(number)) if same else None)
        count = Counter(classes[key] for key in taken)
        object.__setattr__(self, "_counts", tuple(count[c] for c in range(len(number))))
        object.__setattr__(self, "_mb_class", tuple(classes[key] for key in taken))
        routes = self.placement.routes
        object.__setattr__(self, "_taken", tuple(routes[route] for _, route in taken))

    @classmethod
    def uniform(
        cls,
        *,
        devices: int,
        microbatches: int | None = None,
        forward: Ticks,
        backward: Ticks,
        weight: Ticks,
        comm: int | Sequence[Sequence[int]] | Integers = 0,
        placement: str = "v",
        chunks: int | None = None,
        memory: Memory | None = None,
        objective: Objective | str = Objective.DEVICE_SPAN,
        overlapped: Ticks | None = None,
        link_occupancy: int = 0,
        fused: Ticks | None = None,
        pairs: Sequence[Sequence[int]] | Integers | None = None,
        iterations: int = 1,
        flush: bool = True,
        step: Step | None = None,
        classes: Sequence[MicrobatchClass] = (),
        slices: Sequence[MicrobatchSlice] = (),
        offload: Offload | None = None,
    ) -> Instance:
        """Return the instance with the given costs, each one number for all stages or one number per stage.

        Parameters
        ----------
        devices
            Number of devices, at least 1.
        placement
            Name of the placement, one of `PLACEMENTS`.
        chunks
            Number of stages of one route on each device. None takes the placement's usual number, except
            that `loop` and `wave` derive the number from the length of a per-stage sequence if one is given.
        microbatches
            Number of microbatches. None takes the sum of the counts of the classes.
        memory, objective, iterations, flush, step, classes, slices, offload
            See `Instance`.
        forward, backward, weight, comm, overlapped, link_occupancy, fused, pairs
            See `Costs`.

        Raises
        ------
        InputError
            If an entry breaks a rule; the message names the entry, its value and the rule.
        """
        devices = check_int("devices", devices, 1, MOST_DEVICES)
        if chunks is None:
            chunks = chunks_from_lists(plain(placement), devices, (forward, backward, weight))
        else:
            check_int("chunks", chunks, 1, MOST_OPERATIONS // (3 * devices))  # before routes take memory
        if microbatches is None:
            if not classes:
                raise InputError("must be given, as there are no classes to count", key="microbatches")
            microbatches = _number_in(classes)
        return cls(
            Placement(placement, devices, chunks),
            microbatches,
            Costs(forward, backward, weight, comm, overlapped, link_occupancy, fused, pairs),
            memory,
            objective_of(objective),
            iterations,
            flush,
            step,
            classes,
            slices,
            offload,
        )

    @property
    def devices(self) -> int:
        """Number of devices p."""
        return self.placement.devices

    @property
    def stages(self) -> int:
        """Number of stages of the model."""
        return self.placement.stages

    @property
    def slice_count(self) -> int:
        """Number of units of a microbatch: its slices, or 1 if it is whole."""
        return max(1, len(self.slices))

    @property
    def units(self) -> int:
        """Number of units of all microbatches, and so of F's at each stage."""
        return self.microbatches * self.slice_count

    def refuse_slices(self, what: str) -> None:
        """Raise an InputError if microbatches are cut into slices, which `what` cannot do."""
        if self.slices:
            rule = f"must be left out: {what} needs whole microbatches"
            raise InputError(rule, key="slices", value=len(self.slices))

    def name(self, operation: Operation) -> str:
        """Return the text form of an operation; where there are slices, it has the number of the slice."""
        return operation_text(*operation, len(self.slices))

    @property
    def whole(self) -> bool:
        """Whether the time of all devices together counts, and not that of each device on its own."""
        return self.objective is not Objective.DEVICE_SPAN

    @property
    def barrier(self) -> Step | None:
        """What a step takes beside the operations, if the objective is `step` and any of it takes time."""
        if self.objective is not Objective.STEP or self.step is None:
            return None
        times = (*self.step.ready, *self.step.reduce, *self.step.optimizer)  # type: ignore[misc]
        return self.step if any(times) else None

    @property
    def alike(self) -> bool:
        """Whether all microbatches have the same times and memory, whatever devices they take, and are whole.

        A microbatch with a single slice is whole.
        """
        return self._any is not None

    @property
    def differ(self) -> bool:
        """Whether some microbatches differ from others, so that their sequence is a decision."""
        return not (self.alike or self.slices)

    @property
    def class_counts(self) -> tuple[int, ...]:
        """The number of units of each class, as `mb_class` numbers the classes."""
        return self._counts

    @property
    def class_routes(self) -> tuple[Route, ...]:
        """The device of each stage, for each class."""
        return tuple(self.placement.routes[one.route] for one in self._alike)

    @property
    def class_slices(self) -> tuple[int, ...]:
        """The number of the slice of each class; 0 where microbatches are whole."""
        return tuple(one.slice for one in self._alike)

    @property
    def class_costs(self) -> tuple[Alike, ...]:
        """What the microbatches of each class cost."""
        return self._alike

    def mb_class(self, microbatch: int) -> int:
        """Return the class of a unit: those of one class take the same devices, times and memory.

        Classes are numbered from 0 in the sequence of their first units. Classes that the user gives are one
        class here if they cost the same; in a bidirectional placement each direction is a class. Each slice
        of the microbatches is a class of its own.
        """
        return self._mb_class[microbatch]

    def _costs(self, mb_class: int | None) -> Alike:
        """Return what the microbatches of a class cost; None stands for any, where all cost the same."""
        if mb_class is not None:
            return self._alike[mb_class]
        assert self._any is not None, "microbatches differ: say which class is meant"
        return self._any

    @property
    def complete(self) -> bool:
        """Whether every stage has a B and a W."""
        return all(all(map(all, one.duration[1:3])) for one in self._alike)

    def has(self, kind: OpKind, stage: int, mb_class: int | None = None) -> bool:
        """Return whether a stage has operations of this kind; it has a BW if it has a B and a W.

        It has copies if its activations may leave.

        Here and below, `mb_class` is the class of microbatches that is meant. It may be left out where all
        microbatches cost the same.
        """
        if kind > OpKind.BW:
            return self.offloads(stage)
        return self._costs(mb_class).has(kind, stage)

    def has_backward(self, stage: int, mb_class: int | None = None) -> bool:
        """Return whether a stage has a B or a W, and so waits for the gradient of the next stage."""
        return self.has(OpKind.B, stage, mb_class) or self.has(OpKind.W, stage, mb_class)

    def duration(self, kind: OpKind, stage: int, mb_class: int | None = None) -> int:
        """Return the duration of an operation of this kind at this stage, in ticks; 0 if there is none.

        The duration of a BW at a stage without B or without W is that of the other one.
        """
        if kind > OpKind.BW:
            if self.offload is None:
                return 0
            return (self.offload.out if kind == OpKind.O else self.offload.back)[stage]  # type: ignore[index]
        return self._costs(mb_class).duration[kind][stage]

    def duration_of(self, operation: Operation) -> int:
        """Return the duration of an operation in ticks, outside of pairs; 0 if there is no such operation."""
        kind, stage, microbatch = operation
        return self.duration(kind, stage, self._mb_class[microbatch])

    def memory_of(self, operation: Operation) -> int:
        """Return what `memory_delta` says of an operation."""
        kind, stage, microbatch = operation
        return self.memory_delta(kind, stage, self._mb_class[microbatch])

    @property
    def has_pairs(self) -> bool:
        """Whether an F that runs together with a BW has a time of its own."""
        return self.costs.overlapped is not None or self.costs.pairs is not None

    def together(self, device: int, forward: int, backward: int) -> int | None:
        """Return the ticks of an F of stage `forward` with a BW of stage `backward`, both on `device`.

        None stands for the sum of the two.
        """
        if self.costs.pairs is not None:
            return self.costs.pairs[forward][backward]  # type: ignore[index]
        return None if self.costs.overlapped is None else self.costs.overlapped[device]  # type: ignore[index]

    def memory_delta(self, kind: OpKind, stage: int, mb_class: int | None = None) -> int:
        """Return the memory that an operation of this kind and stage adds; negative where it frees memory.

        It is 0 for an F that holds memory only while it runs (`memory_while_running`).
        """
        if kind > OpKind.BW:
            return self.leaves(stage) * (-1 if kind == OpKind.O else 1)
        return self._costs(mb_class).delta[kind][stage]

    def leaves(self, stage: int) -> int:
        """Return the memory that may leave a device between F and backward of a microbatch at a stage."""
        return self.offload.memory[stage] if self.offload else 0  # type: ignore[index]

    def offloads(self, stage: int) -> bool:
        """Return whether copies of a stage's activations may leave a device, and come back."""
        return self.leaves(stage) > 0

    def memory_while_running(self, stage: int, mb_class: int | None = None) -> int:
        """Return the memory that an F takes at its start and frees at its end: all of it without B and W."""
        return self._costs(mb_class).passing[stage]

    def memory_limit(self, device: int) -> int | None:
        """Return the memory limit of `device`; None when there is none."""
        if self.memory is None or self.memory.limit is None:
            return None
        return self.memory.limit[device]  # type: ignore[index]  # expanded by __post_init__

    def iteration(self, microbatch: int) -> int:
        """Return the index of the iteration that `microbatch` belongs to."""
        return microbatch * self.iterations // self.units

    def route(self, microbatch: int) -> int:
        """Return the index of the placement's route that `microbatch` takes.

        The microbatches of an iteration are divided into equal consecutive blocks, one for each route.
        """
        block = self.units // self.iterations
        return microbatch % block * len(self.placement.routes) // block

    def device(self, stage: int, microbatch: int) -> int:
        """Return the device that runs `stage` for `microbatch`."""
        return self._taken[microbatch][stage]

    def comm(self, sender: int, receiver: int) -> int:
        """Return the communication time from one device to another, in ticks; 0 if the two are the same."""
        return self.costs.comm[sender][receiver]  # type: ignore[index]

    def work(self, device: int) -> int:
        """Return the least time in which `device` can run all its operations, in ticks.

        That is the sum of their durations, less the most that pairs can save. A B and its W count with the
        sum of their durations or with that of a BW, whichever is less.
        """
        apart = sum(
            count * (self.duration(OpKind.F, s, c) + self.least_backward(s, c))
            for c, (count, route) in enumerate(zip(self.class_counts, self.class_routes, strict=True))
            for s in held_by(route, device)
        )
        return apart - sum(self.pair_savings(device))

    def pair_savings(self, device: int) -> list[int]:
        """Return the ticks that pairs save on `device`, one number for each backward, largest first.

        An F that runs together with a BW saves the difference between the two durations apart and that of the
        pair. Each operation is in one pair at most, and no k pairs save more than the sum of the first k
        numbers (`largest_savings`). The microbatches of an instance with pairs may have slices, but no
        classes of their own: all classes are equally large.
        """
        held = [(s, c) for c, route in enumerate(self.class_routes) for s in held_by(route, device)]
        if not self.has_pairs:
            return [0] * sum(self._counts[c] for _, c in held)
        found = largest_savings(tuple(tuple(self._saved(device, f, b) for b in held) for f in held))
        saved = (*found, *[0] * (len(held) - len(found)))
        return [ticks for ticks in saved for _ in range(self._counts[0])]

    def _saved(self, device: int, forward: tuple[int, int], backward: tuple[int, int]) -> int:
        """Return the ticks that an F and a BW save as a pair; each is given by its stage and class."""
        if not self.has(OpKind.BW, *backward):
            return 0
        apart = self.duration(OpKind.F, *forward) + self.least_backward(*backward)
        return max(0, apart - self.together(device, forward[0], backward[0]))  # type: ignore[operator]

    @property
    def fusing_saves(self) -> bool:
        """Whether a BW takes less time than its B and its W one after the other, at any stage."""
        return any(self.fusing_saves_at(s, c) for c in range(len(self._alike)) for s in range(self.stages))

    def fusing_saves_at(self, stage: int, mb_class: int | None = None) -> bool:
        """Return whether a BW at this stage takes less time than its B and its W one after the other."""
        _, b, w, fused = (duration[stage] for duration in self._costs(mb_class).duration)
        return b > 0 and w > 0 and fused < b + w

    def least_backward(self, stage: int, mb_class: int | None = None) -> int:
        """Return the least ticks of the backward of one microbatch at a stage, fused or split."""
        _, b, w, fused = (duration[stage] for duration in self._costs(mb_class).duration)
        return min(b + w, fused)

    def smallest_limit(self, device: int) -> int:
        """Return the smallest memory limit of `device` at which the instance has a schedule.

        Take the F's of one microbatch, of all its slices, at the stages of the device that have a B or a W.
        When one of them starts, those of the same or earlier stages and of the same or earlier slices have
        ended. No backward of the microbatch has begun at any of these stages, because each waits for the F
        of the last slice at the last stage. So the device then holds the activations of all of them, but for
        what may have left, which is nothing of the one that starts. Nor does a limit work that is below the
        memory of a single F at another stage.

        The limit is also enough. Microbatches can run one after another, all slices at one stage before the
        next stage, with each copy out right after its F, each copy back right before its backward and each W
        right after its B. Then a device never holds more than when an F starts, and no more at the F of a
        slice than is counted for the last slice at that stage. The stages without B and W come first: while
        an F runs there, nothing is held.
        """
        least = 0
        held: dict[int, Counter[int]] = {}  # of each class, or of the slices of a route, what stays of each F
        for c, (one, route) in enumerate(zip(self._alike, self.class_routes, strict=True)):
            stays = held.setdefault(one.route if self.slices else c, Counter())
            total = 0
            for stage in held_by(route, device):
                stays[stage] += one.delta[OpKind.F][stage] - self.leaves(stage)
                total += stays[stage]
                least = max(least, total + self.leaves(stage), one.passing[stage])
        return least

    def _activation(self, device: int) -> int:
        """Return the largest forward activation of one stage on a device."""
        return max(
            one.activation(s)
            for one, route in zip(self._alike, self.class_routes, strict=True)
            for s in held_by(route, device)
        )

    def held_by_one(self, device: int) -> int:
        """Return the most memory that `device` holds of one microbatch after its F's, of any class.

        The classes of one route are the slices of the same microbatches, or else classes of microbatches.
        """
        held = Counter[int]()
        for c, (one, route) in enumerate(zip(self._alike, self.class_routes, strict=True)):
            held[one.route if self.slices else c] += sum(
                one.delta[OpKind.F][s] for s in held_by(route, device)
            )
        return max(held.values())

    def held_of(self, microbatch: int, device: int) -> int:
        """Return the memory that `device` holds of a microbatch after its F's."""
        one, route = self._alike[self._mb_class[microbatch]], self._taken[microbatch]
        return sum(one.delta[OpKind.F][s] for s in held_by(route, device))

    def infeasibility(self) -> str | None:
        """Return the reason why the instance has no schedule; None when it has one."""
        for device in range(self.devices):
            limit, needed = self.memory_limit(device), self.smallest_limit(device)
            if limit is not None and limit < needed:
                parts = "of its forward activations there, what cannot leave is"
                held = parts if self.offload else "all its forward activations there are"
                return (
                    f"memory limit {limit} of device {device} holds no microbatch: {held} held at once, "
                    f"which takes at least {needed}"
                )
        return None


def check_size(placement: Placement, microbatches: int, slices: int = 1) -> None:
    """Raise an InputError if a placement cannot run this many microbatches, or operations are too many.

    There have to be microbatches, as many in one direction as in the other. F, B and W of all their slices at
    all stages may be `MOST_OPERATIONS` operations.
    """
    check_int("microbatches", microbatches, 1, MOST_OPERATIONS)
    if microbatches % len(placement.routes):
        rule = f"{placement.name} needs an even number of microbatches, half in each direction"
        raise InputError(rule, key="microbatches", value=microbatches)
    if 3 * placement.stages * microbatches * slices > MOST_OPERATIONS:
        cut = f" x {slices} slices" if slices > 1 else ""
        raise InputError(
            f"at most {MOST_OPERATIONS} operations (3 x {placement.stages} stages{cut} x microbatches)",
            key="microbatches",
            value=microbatches,
        )


def _number_in(classes: Any) -> int:
    """Return the number of microbatches in all classes, which may be anything that a user gives."""
    if not is_list(classes):
        raise InputError("must be a list of classes", key="classes", value=classes)
    for i, one in enumerate(classes):
        check_type(f"classes[{i}]", one, MicrobatchClass)
        check_int(f"classes[{i}].count", one.count, 1, MOST_OPERATIONS)
    return sum(one.count for one in classes)


def _check_classes(instance: Instance) -> None:
    """Raise an error if the classes have another number of microbatches, or if something excludes classes."""
    count = _number_in(instance.classes)
    if count and count != instance.microbatches:
        rule = f"must be the sum of the counts of the classes, {count}"
        raise InputError(rule, key="microbatches", value=instance.microbatches)
    for key in ("overlapped", "pairs"):
        value = getattr(instance.costs, key)
        if count and value is not None:
            raise InputError("must be left out where `classes` are given", key=key, value=value)


def _check_slices(instance: Instance) -> None:
    """Raise an error if the slices are no list of slices, or if something excludes slices."""
    if not is_list(instance.slices):
        raise InputError("must be a list of slices", key="slices", value=instance.slices)
    for j, one in enumerate(instance.slices):
        check_type(f"slices[{j}]", one, MicrobatchSlice)
    if instance.slices and instance.classes:
        rule = "must be left out where `classes` are given"
        raise InputError(rule, key="slices", value=len(instance.slices))


def _check_same_operations(slices: Sequence[MicrobatchSlice]) -> None:
    """Raise an error if a slice has a B or W at a stage where another one has none."""
    for kind in ("backward", "weight"):
        there = [[ticks > 0 for ticks in getattr(one, kind)] for one in slices]
        for j, mine in enumerate(there):
            if mine != there[0]:
                rule = "must be 0 at the same stages as in slices[0]: the slices have the same operations"
                raise InputError(rule, key=f"slices[{j}].{kind}", value=getattr(slices[j], kind))


def _check_iterations(instance: Instance) -> None:
    n, iterations = instance.microbatches, check_int("iterations", instance.iterations, 1)
    for key, verb in {"classes": "are", "slices": "are", "step": "is", "offload": "is"}.items():
        if iterations > 1 and getattr(instance, key):
            raise InputError(f"must be 1 where `{key}` {verb} given", key="iterations", value=iterations)
    blocks = iterations * len(instance.placement.routes)
    if n % blocks:
        raise InputError(f"must be a multiple of {blocks}: equal iterations", key="microbatches", value=n)
    if not isinstance(instance.flush, bool):
        raise InputError("must be true or false", key="flush", value=instance.flush)


def chunks_from_lists(placement: Any, devices: int, lists: tuple[Any, ...]) -> int | None:
    """Return the number of stages per device that the length of the first per-stage list implies.

    There is none if no entry of `lists` is a list, if the length does not give a whole number, 2 or more, of
    stages per device, or if the placement is neither `loop` nor `wave`.
    """
    if placement not in ("loop", "wave"):
        return None
    lengths = [len(v) for v in map(plain, lists) if is_list(v)]
    whole = bool(lengths) and lengths[0] % devices == 0 and lengths[0] >= 2 * devices
    return lengths[0] // devices if whole else None
