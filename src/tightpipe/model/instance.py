"""The scheduling problem as frozen data: an Instance with its Costs, its Memory and its Objective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from ..base.errors import InputError, check_int, is_list, plain, store_plain
from .costs import (
    Alike,
    Costs,
    Integers,
    Memory,
    MicrobatchClass,
    Objective,
    Step,
    Ticks,
    check_type,
    expand_class,
    expand_comm,
    expand_deltas,
    expand_durations,
    expand_fused,
    expand_limit,
    expand_overlapped,
    expand_step,
    objective_of,
)
from .operation import Operation, OpKind
from .placement import Placement, Route

MOST_DEVICES = 1024
MOST_OPERATIONS = 10**6


@dataclass(frozen=True, slots=True)
class Instance:
    """One scheduling problem.

    Entries that are given as one number are expanded to a tuple with one number per stage or device.

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
        the first microbatches, and so on. Empty if all microbatches cost the same. The sequence in which
        microbatches run is the schedule's choice.

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
    _alike: tuple[Alike, ...] = field(init=False, repr=False, compare=False)
    _any: Alike | None = field(init=False, repr=False, compare=False)  # what all cost, but for their routes
    _counts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _mb_class: tuple[int, ...] = field(init=False, repr=False, compare=False)  # index in `_alike`
    _taken: tuple[Route, ...] = field(init=False, repr=False, compare=False)  # the route of each microbatch
    _hash: int = field(init=False, repr=False, compare=False)  # known, as caches ask for it again and again

    def __post_init__(self) -> None:
        store_plain(self)
        check_type("placement", self.placement, Placement)
        check_type("costs", self.costs, Costs)
        if self.memory is not None:
            check_type("memory", self.memory, Memory)
        _check_classes(self)
        check_size(self.placement, self.microbatches)
        _check_iterations(self)
        duration = expand_durations(self.costs, self.stages)
        delta = expand_deltas(self.memory, duration)
        comm = expand_comm(self.costs.comm, self.devices)
        overlapped = expand_overlapped(self.costs.overlapped, self.devices)
        occupancy = check_int("link_occupancy", self.costs.link_occupancy, 0)
        given, fused = self.costs.fused, expand_fused(self.costs.fused, *duration[1:])
        object.__setattr__(self, "costs", Costs(*duration, comm, overlapped, occupancy, fused))
        if self.memory is not None:
            object.__setattr__(self, "memory", Memory(*delta, self.memory.limit))
        classes = [
            expand_class(i, one, self.costs, given, self.memory and Memory(*delta), self.stages)
            for i, one in enumerate(self.classes)
        ]
        object.__setattr__(self, "classes", tuple(one for one, _ in classes))
        costs = [cost for _, cost in classes] or [Alike.of(duration, fused, delta)]
        self._classify(costs)
        if self.memory is not None:
            limit = expand_limit(self.memory.limit, list(map(self._activation, range(self.devices))))
            object.__setattr__(self, "memory", Memory(*delta, limit))
        object.__setattr__(self, "objective", objective_of(self.objective))
        object.__setattr__(self, "step", expand_step(self.step, self.stages, self.devices, self.iterations))
        compared = tuple(getattr(self, one.name) for one in fields(self) if one.compare)
        object.__setattr__(self, "_hash", hash(compared))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Instance], tuple[Any, ...]]:
        """Return how to make the instance in another process, where its hash may be another one."""
        return Instance, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    def _classify(self, costs: Sequence[Alike]) -> None:
        """Set the class of each microbatch; microbatches of the same costs and route are of one class."""
        given = [i for i, one in enumerate(self.classes) for _ in range(one.count)] or [0] * self.microbatches
        taken = list(zip(given, map(self.route, range(self.microbatches)), strict=True))
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
        iterations: int = 1,
        flush: bool = True,
        step: Step | None = None,
        classes: Sequence[MicrobatchClass] = (),
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
        memory, objective, iterations, flush, step, classes
            See `Instance`.
        forward, backward, weight, comm, overlapped, link_occupancy, fused
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
            Costs(forward, backward, weight, comm, overlapped, link_occupancy, fused),
            memory,
            objective_of(objective),
            iterations,
            flush,
            step,
            classes,
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
        """Whether all microbatches have the same times and memory, whatever devices they take."""
        return self._any is not None

    @property
    def class_counts(self) -> tuple[int, ...]:
        """The number of microbatches of each class, as `mb_class` numbers the classes."""
        return self._counts

    @property
    def class_routes(self) -> tuple[Route, ...]:
        """The device of each stage, for each class of microbatches."""
        return tuple(self.placement.routes[one.route] for one in self._alike)

    @property
    def class_costs(self) -> tuple[Alike, ...]:
        """What the microbatches of each class cost."""
        return self._alike

    def mb_class(self, microbatch: int) -> int:
        """Return the class of a microbatch: those of one class take the same devices, times and memory.

        Classes are numbered from 0 in the sequence of their first microbatches. Classes that the user gives
        are one class here if they cost the same; in a bidirectional placement each direction is a class.
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

        Here and below, `mb_class` is the class of microbatches that is meant. It may be left out where all
        microbatches cost the same.
        """
        _, b, w, _ = self._costs(mb_class).duration
        if kind is OpKind.BW:
            return b[stage] > 0 and w[stage] > 0
        return kind is OpKind.F or (b if kind is OpKind.B else w)[stage] > 0

    def has_backward(self, stage: int, mb_class: int | None = None) -> bool:
        """Return whether a stage has a B or a W, and so waits for the gradient of the next stage."""
        return self.has(OpKind.B, stage, mb_class) or self.has(OpKind.W, stage, mb_class)

    def duration(self, kind: OpKind, stage: int, mb_class: int | None = None) -> int:
        """Return the duration of an operation of this kind at this stage, in ticks; 0 if there is none.

        The duration of a BW at a stage without B or without W is that of the other one.
        """
        return self._costs(mb_class).duration[kind][stage]

    def duration_of(self, operation: Operation) -> int:
        """Return the duration of an operation in ticks, outside of pairs; 0 if there is no such operation."""
        kind, stage, microbatch = operation
        return self.duration(kind, stage, self._mb_class[microbatch])

    def memory_of(self, operation: Operation) -> int:
        """Return what `memory_delta` says of an operation."""
        kind, stage, microbatch = operation
        return self.memory_delta(kind, stage, self._mb_class[microbatch])

    def overlapped(self, device: int) -> int | None:
        """Return the duration of an F with a BW on `device`, in ticks; None if it is the sum of the two."""
        return None if self.costs.overlapped is None else self.costs.overlapped[device]  # type: ignore[index]

    def memory_delta(self, kind: OpKind, stage: int, mb_class: int | None = None) -> int:
        """Return the memory that an operation of this kind and stage adds; negative where it frees memory.

        It is 0 for an F that holds memory only while it runs (`memory_while_running`).
        """
        return self._costs(mb_class).delta[kind][stage]

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
        return microbatch * self.iterations // self.microbatches

    def route(self, microbatch: int) -> int:
        """Return the index of the placement's route that `microbatch` takes.

        The microbatches of an iteration are divided into equal consecutive blocks, one for each route.
        """
        block = self.microbatches // self.iterations
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
            for s in _held(route, device)
        )
        return apart - sum(self.pair_savings(device))

    def pair_savings(self, device: int) -> list[int]:
        """Return the ticks that pairs save on `device`, one number for each backward, largest first.

        An F that runs together with a BW saves the difference between the two durations apart and
        `overlapped`. Each operation is in one pair at most, so k pairs save no more than the k longest F's
        and the k longest backwards take apart, less k times the duration of a pair. Pairing the longest F
        with the longest backward, the second with the second, and so on, reaches that: no matching of at most
        k pairs weighs more than the first k of these numbers. The microbatches of an instance with pairs have
        no classes of their own.
        """
        together = self.overlapped(device)
        held = [s for route in self.placement.routes for s in _held(route, device)]
        saved = [0] * len(held)
        if together is not None:
            forward = sorted((self.duration(OpKind.F, s) for s in held), reverse=True)
            backward = sorted(map(self.least_backward, held), reverse=True)
            saved = [max(0, f + b - together) for f, b in zip(forward, backward, strict=True)]
        per_route = self.microbatches // len(self.placement.routes)
        return [ticks for ticks in saved for _ in range(per_route)]

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

        When the last F of a microbatch on the device starts, neither B nor W of that microbatch has run yet,
        so the device holds the activations of all its F's at stages with a B or a W: no limit below their sum
        works. Neither does one below the memory of a single F at another stage. The larger of the two is also
        enough, because microbatches can run one after another with each W right after its B, and the stages
        without B and W come first: while an F runs there, nothing is held.
        """
        alone = (
            one.passing[s]
            for one, route in zip(self._alike, self.class_routes, strict=True)
            for s in _held(route, device)
        )
        return max(self.held_by_one(device), *alone)

    def _activation(self, device: int) -> int:
        """Return the largest forward activation of one stage on a device."""
        return max(
            one.activation(s)
            for one, route in zip(self._alike, self.class_routes, strict=True)
            for s in _held(route, device)
        )

    def held_by_one(self, device: int) -> int:
        """Return the most memory that `device` holds of one microbatch after its F's, of any class."""
        return max(
            sum(one.delta[OpKind.F][s] for s in _held(route, device))
            for one, route in zip(self._alike, self.class_routes, strict=True)
        )

    def held_of(self, microbatch: int, device: int) -> int:
        """Return the memory that `device` holds of a microbatch after its F's."""
        one, route = self._alike[self._mb_class[microbatch]], self._taken[microbatch]
        return sum(one.delta[OpKind.F][s] for s in _held(route, device))

    def infeasibility(self) -> str | None:
        """Return the reason why the instance has no schedule; None when it has one."""
        for device in range(self.devices):
            limit, needed = self.memory_limit(device), self.smallest_limit(device)
            if limit is not None and limit < needed:
                return (
                    f"memory limit {limit} of device {device} holds no microbatch: all its forward "
                    f"activations there are held at once, which takes at least {needed}"
                )
        return None


def check_size(placement: Placement, microbatches: int) -> None:
    """Raise an error if a placement cannot run this many microbatches, or if the operations are too many.

    Raises
    ------
    InputError
        If there are no microbatches, or not as many in one direction as in the other; or if F, B and W of all
        microbatches at all stages are more than `MOST_OPERATIONS` operations.
    """
    check_int("microbatches", microbatches, 1, MOST_OPERATIONS)
    if microbatches % len(placement.routes):
        rule = f"{placement.name} needs an even number of microbatches, half in each direction"
        raise InputError(rule, key="microbatches", value=microbatches)
    if 3 * placement.stages * microbatches > MOST_OPERATIONS:
        raise InputError(
            f"at most {MOST_OPERATIONS} operations (3 x {placement.stages} stages x microbatches)",
            key="microbatches",
            value=microbatches,
        )


@lru_cache(maxsize=4096)
def _held(route: Route, device: int) -> tuple[int, ...]:
    """Return the stages of a route that are on a device."""
    return tuple(stage for stage, home in enumerate(route) if home == device)


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
    if count and instance.iterations != 1:
        raise InputError("must be 1 where `classes` are given", key="iterations", value=instance.iterations)
    if count and instance.costs.overlapped is not None:
        rule = "must be left out where `classes` are given"
        raise InputError(rule, key="overlapped", value=instance.costs.overlapped)


def _check_iterations(instance: Instance) -> None:
    n, iterations = instance.microbatches, check_int("iterations", instance.iterations, 1)
    blocks = iterations * len(instance.placement.routes)
    if n % blocks:
        raise InputError(f"must be a multiple of {blocks}: equal iterations", key="microbatches", value=n)
    if not isinstance(instance.flush, bool):
        raise InputError("must be true or false", key="flush", value=instance.flush)


def chunks_from_lists(placement: Any, devices: int, lists: tuple[Any, ...]) -> int | None:
    """Return the number of stages per device that the length of the first per-stage list implies.

    Return None if no entry of `lists` is a list, if the length does not give a whole number, 2 or more, of
    stages per device, or if the placement is neither `loop` nor `wave`.
    """
    if placement not in ("loop", "wave"):
        return None
    lengths = [len(v) for v in map(plain, lists) if is_list(v)]
    whole = bool(lengths) and lengths[0] % devices == 0 and lengths[0] >= 2 * devices
    return lengths[0] // devices if whole else None
