"""Blocks as endless schedules: checked instance by instance, and the least period by enumeration, for tests.

Shares no code with the solver.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from tightpipe import Instance, Operation, OpKind

FAR = range(-60, 61)  # instances that are looked at around the first period


def chain(instance: Instance, m: int) -> list[Operation]:
    stages = range(instance.stages)
    forward = [Operation(OpKind.F, s, m) for s in stages]
    return forward + [Operation(OpKind.B, s, m) for s in reversed(stages)]


def device_of(instance: Instance, copies: int, op: Operation) -> int:
    return instance.placement.routes[op.microbatch // copies][op.stage]


def earliest(instance: Instance, copies: int, op: Operation, start: dict[Operation, int]) -> int:
    """The first tick after the end of what `op` waits for, and the message."""
    steps = chain(instance, op.microbatch)
    before = (
        Operation(OpKind.B, op.stage, op.microbatch) if op.kind is OpKind.W else steps[steps.index(op) - 1]
    )
    ends = start[before] + instance.duration(before.kind, before.stage)
    return ends + instance.comm(device_of(instance, copies, before), device_of(instance, copies, op))


def problem(instance: Instance, copies: int, period: int, start: dict[Operation, int]) -> str:
    """The first rule that the endless schedule breaks, the empty string if it is valid."""
    for op in start:
        if op != Operation(OpKind.F, 0, op.microbatch) and start[op] < earliest(instance, copies, op, start):
            return f"{op} is too early"
    for device in range(instance.devices):
        ops = [op for op in start if device_of(instance, copies, op) == device]
        for one, other in combinations(ops, 2):
            if overlap(instance, one, start[one], other, start[other], period):
                return f"{one} and {other} overlap"
        limit = instance.memory_limit(device)
        if limit is not None and held(instance, ops, start, period) > limit:
            return f"device {device} holds too much"
    return ""


def overlap(instance: Instance, one: Operation, at: int, other: Operation, then: int, period: int) -> bool:
    gap = (then - at) % period
    return gap < instance.duration(one.kind, one.stage) or period - gap < instance.duration(
        other.kind, other.stage
    )


def held(instance: Instance, ops: list[Operation], start: dict[Operation, int], period: int) -> int:
    """The most memory that a device holds when an F has begun."""
    peak = 0
    for first in (op for op in ops if op.kind is OpKind.F):
        now, level = start[first], 0
        for op in ops:
            instances = [start[op] + i * period for i in FAR]
            if op.kind is OpKind.F:
                done = sum(at <= now for at in instances)
            else:
                done = sum(at + instance.duration(op.kind, op.stage) <= now for at in instances)
            level += done * instance.memory_delta(op.kind, op.stage)
        peak = max(peak, level)
    return peak


def least_period(instance: Instance) -> int:
    """The least period of a block of one microbatch, by trying all starts; one route."""
    period = 1
    while not any(valid_starts(instance, period)):
        period += 1
    return period


def valid_starts(instance: Instance, period: int) -> Iterator[dict[Operation, int]]:
    """All blocks in which no operation is delayed by two periods or more."""
    ops = [*chain(instance, 0), *(Operation(OpKind.W, s, 0) for s in range(instance.stages))]
    if any(instance.duration(op.kind, op.stage) > period for op in ops):
        return
    yield from extended(instance, period, ops, {ops[0]: 0})


def extended(
    instance: Instance, period: int, ops: list[Operation], start: dict[Operation, int]
) -> Iterator[dict[Operation, int]]:
    if len(start) == len(ops):
        if not problem(instance, 1, period, start):
            yield dict(start)
        return
    op = ops[len(start)]
    first = earliest(instance, 1, op, start)
    for at in range(first, first + 2 * period):
        clear = not any(
            device_of(instance, 1, op) == device_of(instance, 1, other)
            and overlap(instance, op, at, other, start[other], period)
            for other in start
        )
        if clear:
            yield from extended(instance, period, ops, {**start, op: at})
