"""The scheduling problem as frozen data: an Instance with its Costs, its Memory and its Objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import InputError, check_int, is_list, plain, store_plain
from .costs import (
    Costs,
    Integers,
    Memory,
    Objective,
    PerStage,
    Step,
    Ticks,
    check_type,
    expand_comm,
    expand_deltas,
    expand_durations,
    expand_fused,
    expand_limit,
    expand_overlapped,
    expand_step,
    objective_of,
    sums,
)
from .operation import OpKind
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
        Number of microbatches n of all iterations together, at least 1.
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
    _duration: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    _delta: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    _passing: PerStage = field(init=False, repr=False, compare=False)  # what an F holds only while it runs
    _taken: tuple[Route, ...] = field(init=False, repr=False, compare=False)  # the route of each microbatch

    def __post_init__(self) -> None:
        store_plain(self)
        check_type("placement", self.placement, Placement)
        check_type("costs", self.costs, Costs)
        if self.memory is not None:
            check_type("memory", self.memory, Memory)
        check_size(self.placement, self.microbatches)
        _check_iterations(self)
        duration = expand_durations(self.costs, self.stages)
        delta = expand_deltas(self.memory, duration)
        comm = expand_comm(self.costs.comm, self.devices)
        overlapped = expand_overlapped(self.costs.overlapped, self.devices)
        occupancy = check_int("link_occupancy", self.costs.link_occupancy, 0)
        apart = sums(*duration[1:])
        fused = expand_fused(self.costs.fused, *duration[1:])
        object.__setattr__(self, "costs", Costs(*duration, comm, overlapped, occupancy, fused))
        if self.memory is not None:
            limit = expand_limit(self.memory.limit, delta[0], self.placement)
            object.__setattr__(self, "memory", Memory(*delta, limit))
        object.__setattr__(self, "objective", objective_of(self.objective))
        object.__setattr__(self, "step", expand_step(self.step, self.stages, self.devices, self.iterations))
        object.__setattr__(self, "_duration", (*duration, fused or apart))
        held = tuple(f if b + w else 0 for f, b, w in zip(delta[0], *duration[1:], strict=True))
        object.__setattr__(self, "_delta", (held, *delta[1:], sums(*delta[1:])))
        object.__setattr__(self, "_passing", tuple(f - h for f, h in zip(delta[0], held, strict=True)))
        routes, microbatches = self.placement.routes, range(self.microbatches)
        object.__setattr__(self, "_taken", tuple(routes[self.route(m)] for m in microbatches))

    @classmethod
    def uniform(
        cls,
        *,
        devices: int,
        microbatches: int,
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
        microbatches, memory, objective, iterations, flush, step
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
            chunks = _chunks_from_lists(plain(placement), devices, (forward, backward, weight))
        else:
            check_int("chunks", chunks, 1, MOST_OPERATIONS // (3 * devices))  # before routes take memory
        return cls(
            Placement(placement, devices, chunks),
            microbatches,
            Costs(forward, backward, weight, comm, overlapped, link_occupancy, fused),
            memory,
            objective_of(objective),
            iterations,
            flush,
            step,
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
    def complete(self) -> bool:
        """Whether every stage has a B and a W."""
        return all(map(all, self._duration[1:3]))

    def has(self, kind: OpKind, stage: int) -> bool:
        """Return whether a stage has operations of this kind; it has a BW if it has a B and a W."""
        _, b, w, _ = (duration[stage] > 0 for duration in self._duration)
        return (True, b, w, b and w)[kind]

    def has_backward(self, stage: int) -> bool:
        """Return whether a stage has a B or a W, and so waits for the gradient of the next stage."""
        return self.has(OpKind.B, stage) or self.has(OpKind.W, stage)

    def duration(self, kind: OpKind, stage: int) -> int:
        """Return the duration of an operation of this kind at this stage, in ticks; 0 if there is none.

        The duration of a BW at a stage without B or without W is that of the other one.
        """
        return self._duration[kind][stage]

    def overlapped(self, device: int) -> int | None:
        """Return the duration of an F with a BW on `device`, in ticks; None if it is the sum of the two."""
        return None if self.costs.overlapped is None else self.costs.overlapped[device]  # type: ignore[index]

    def memory_delta(self, kind: OpKind, stage: int) -> int:
        """Return the memory that an operation of this kind and stage adds; negative where it frees memory.

        It is 0 for an F that holds memory only while it runs (`memory_while_running`).
        """
        return self._delta[kind][stage]

    def memory_while_running(self, stage: int) -> int:
        """Return the memory that an F takes at its start and frees at its end: all of it without B and W."""
        return self._passing[stage]

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
        apart = sum(self._duration[OpKind.F][s] + self.least_backward(s) for s in self._stages_held(device))
        return self.microbatches // len(self.placement.routes) * apart - sum(self.pair_savings(device))

    def pair_savings(self, device: int) -> list[int]:
        """Return the ticks that pairs save on `device`, one number for each backward, largest first.

        An F that runs together with a BW saves the difference between the two durations apart and
        `overlapped`. Each operation is in one pair at most, so k pairs save no more than the k longest F's
        and the k longest backwards take apart, less k times the duration of a pair. Pairing the longest F
        with the longest backward, the second with the second, and so on, reaches that: no matching of at most
        k pairs weighs more than the first k of these numbers.
        """
        held = self._stages_held(device)
        forward = sorted((self._duration[OpKind.F][s] for s in held), reverse=True)
        backward = sorted(map(self.least_backward, held), reverse=True)
        together = self.overlapped(device)
        saved = (
            0 if together is None else max(0, f + b - together)
            for f, b in zip(forward, backward, strict=True)
        )
        per_route = self.microbatches // len(self.placement.routes)
        return [ticks for ticks in saved for _ in range(per_route)]

    def _stages_held(self, device: int) -> list[int]:
        """Return the stages of `device`, once for each route that has them there."""
        return [s for route in self.placement.routes for s, d in enumerate(route) if d == device]

    @property
    def fusing_saves(self) -> bool:
        """Whether a BW takes less time than its B and its W one after the other, at any stage."""
        return any(map(self.fusing_saves_at, range(self.stages)))

    def fusing_saves_at(self, stage: int) -> bool:
        """Return whether a BW at this stage takes less time than its B and its W one after the other."""
        _, b, w, fused = (duration[stage] for duration in self._duration)
        return b > 0 and w > 0 and fused < b + w

    def least_backward(self, stage: int) -> int:
        """Return the least ticks of the backward of one microbatch at a stage, fused or split."""
        _, b, w, fused = (duration[stage] for duration in self._duration)
        return min(b + w, fused)

    def smallest_limit(self, device: int) -> int:
        """Return the smallest memory limit of `device` at which the instance has a schedule.

        When the last F of a microbatch on the device starts, neither B nor W of that microbatch has run yet,
        so the device holds the activations of all its F's at stages with a B or a W: no limit below their sum
        works. Neither does one below the memory of a single F at another stage. The larger of the two is also
        enough, because microbatches can run one after another with each W right after its B, and the stages
        without B and W come first: while an F runs there, nothing is held.
        """
        return max(
            self.held_by_one(device), *map(self.memory_while_running, self.placement.stages_on(device))
        )

    def held_by_one(self, device: int) -> int:
        """Return the most memory that `device` holds of one microbatch after its F's, on any route."""
        return max(
            sum(self._delta[OpKind.F][s] for s, d in enumerate(route) if d == device)
            for route in self.placement.routes
        )

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


def _check_iterations(instance: Instance) -> None:
    n, iterations = instance.microbatches, check_int("iterations", instance.iterations, 1)
    blocks = iterations * len(instance.placement.routes)
    if n % blocks:
        raise InputError(f"must be a multiple of {blocks}: equal iterations", key="microbatches", value=n)
    if not isinstance(instance.flush, bool):
        raise InputError("must be true or false", key="flush", value=instance.flush)


def _chunks_from_lists(placement: Any, devices: int, lists: tuple[Any, ...]) -> int | None:
    """Return the number of stages per device that the length of the first per-stage list implies.

    Return None if no entry of `lists` is a list, if the length does not give a whole number, 2 or more, of
    stages per device, or if the placement is neither `loop` nor `wave`.
    """
    if placement not in ("loop", "wave"):
        return None
    lengths = [len(v) for v in map(plain, lists) if is_list(v)]
    whole = bool(lengths) and lengths[0] % devices == 0 and lengths[0] >= 2 * devices
    return lengths[0] // devices if whole else None
