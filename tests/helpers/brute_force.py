"""The optimum of tiny instances by enumerating all device orders, for tests; shares no code with solvers.

Operations are appended to the devices' sequences one by one, in every possible way. A partial order is
given up when it cannot be completed within the memory limit, or when its longest paths already show a
cost of at least that of the best order found. Microbatches are told apart: no order is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tightpipe.model.costs import Objective
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import Operation, OpKind
from tightpipe.model.schedule import Order
from tightpipe.model.simulate import retime

NO_PATH = -(10**13)
LARGE = 10**8
FINE = 1000
"""A tick in finer units. Each operation takes one unit more, so that also those that take no time, at empty
stages, cannot wait for each other in a circle."""


def optimum(instance: Instance) -> int | None:
    """Return the least cost of a schedule, or None when there is none; knows no pairs, fused times and steps."""
    costs = instance.costs
    assert instance.objective is not Objective.STEP
    assert (costs.overlapped, costs.pairs, costs.fused, instance.iterations) == (None, None, None, 1)
    assert (tuple(instance.classes), tuple(instance.slices), instance.offload) == ((), (), None)
    ops = _operations(instance)
    target, best = LARGE, None
    while True:
        found = _complete(instance, ops, target)
        if found is None:
            return best
        best = cost(retime(instance, found))
        assert best <= target
        target = best - 1


def _operations(instance: Instance) -> list[Operation]:
    kinds = (OpKind.F, OpKind.B, OpKind.W)
    return [
        Operation(kind, s, m)
        for m in range(instance.microbatches)
        for kind in kinds
        for s in range(instance.stages)
        if kind is OpKind.F or instance.has(kind, s)
    ]


def _complete(instance: Instance, ops: list[Operation], target: int) -> Order | None:
    """Return an order of cost at most `target`."""
    device = np.array([instance.device(op.stage, op.microbatch) for op in ops])
    took = np.array([FINE * instance.duration_of(op) + 1 for op in ops])
    assert len(ops) < FINE
    delta = np.array([instance.memory_of(op) for op in ops])
    limits = [instance.memory_limit(d) for d in range(instance.devices)]
    limit = np.array([LARGE if value is None else value for value in limits])
    paths = _paths(instance, ops, device, took, FINE * target + len(ops))
    messages = _messages(instance, ops)
    busy = FINE * instance.costs.link_occupancy
    sequence = np.full(len(ops), -1)
    if (np.diagonal(paths) > 0).any() or not _extend(
        paths, device, took, delta, limit, messages, busy, sequence, 0
    ):
        return None
    rows: list[list[Operation]] = [[] for _ in range(instance.devices)]
    for i in sequence:
        rows[device[i]].append(ops[i])
    return Order.from_lists(rows)


def _messages(instance: Instance, ops: list[Operation]) -> Any:
    """Columns: the operation that waits for this one's message, -1 if none; its device; the communication."""
    messages = np.full((len(ops), 3), -1)
    index = {op: i for i, op in enumerate(ops)}
    for op, i in index.items():
        before = _waits_for(instance, op)
        if before is None:
            continue
        here, there = (instance.device(o.stage, o.microbatch) for o in (op, before))
        if here != there:
            messages[index[before]] = i, here, FINE * instance.comm(there, here)
    return messages


def _paths(instance: Instance, ops: list[Operation], device: Any, took: Any, target: int) -> Any:
    """Longest paths between starts: dependencies, and no span above the target; the last node is time 0."""
    index = {op: i for i, op in enumerate(ops)}
    paths = np.full((len(ops) + 1, len(ops) + 1), NO_PATH)
    np.fill_diagonal(paths, 0)
    paths[-1] = 0
    for op, i in index.items():
        before = _waits_for(instance, op)
        if before is not None:
            j = index[before]
            paths[j, i] = took[j] + FINE * instance.comm(device[j], device[i])
    for i in range(len(ops)):
        if instance.objective is Objective.MAKESPAN:
            paths[i, -1] = took[i] - target
            continue
        for j in range(len(ops)):
            if device[i] == device[j]:
                paths[j, i] = max(paths[j, i], took[j] - target)
    _close(paths)
    return paths


def _waits_for(instance: Instance, op: Operation) -> Operation | None:
    kind, stage, m = op
    if kind is OpKind.F:
        return Operation(OpKind.F, stage - 1, m) if stage else None
    if kind is OpKind.W:
        return Operation(OpKind.B, stage, m)
    last = stage == instance.stages - 1
    return Operation(OpKind.F, stage, m) if last else Operation(OpKind.B, stage + 1, m)


@njit(cache=True)
def _close(paths: Any) -> None:
    for k in range(len(paths)):
        for i in range(len(paths)):
            for j in range(len(paths)):
                if paths[i, k] > NO_PATH and paths[k, j] > NO_PATH:
                    paths[i, j] = max(paths[i, j], paths[i, k] + paths[k, j])


@njit(cache=True)
def _insert(paths: Any, a: int, b: int, weight: int) -> bool:
    """Add an arc and close again; False if a cycle of positive length appears."""
    if paths[a, b] >= weight:
        return True
    if weight + paths[b, a] > 0:
        return False
    for i in range(len(paths)):
        if paths[i, a] > NO_PATH and paths[i, a] + weight > paths[i, b]:
            for j in range(len(paths)):
                if paths[b, j] > NO_PATH:
                    paths[i, j] = max(paths[i, j], paths[i, a] + weight + paths[b, j])
    return True


@njit(cache=True)
def _decide(paths: Any, device: Any, took: Any) -> bool:
    """Put one operation after another on its device where the other order is too long already."""
    changed = True
    while changed:
        changed = False
        for i in range(len(device)):
            for j in range(len(device)):
                if i == j or device[i] != device[j] or paths[i, j] >= took[i]:
                    continue
                if took[j] + paths[i, j] > 0:  # j cannot come first
                    if not _insert(paths, i, j, took[i]):
                        return False
                    changed = True
    return True


@njit(cache=True)
def _send(paths: Any, device: Any, took: Any, messages: Any, busy: int, sequence: Any, i: int) -> bool:
    """Let the message of i arrive no earlier than those before it on its link, and `busy` each, allow."""
    if messages[i, 0] < 0:
        return True
    waited = 0
    for j in sequence[::-1]:  # the message of j, and those since, leave before that of i
        if j < 0 or device[j] != device[i] or messages[j, 1] != messages[i, 1]:
            continue
        waited += busy
        if not _insert(paths, j, messages[i, 0], took[j] + waited + messages[i, 2]):
            return False
    return True


@njit(cache=True)
def _extend(
    paths: Any,
    device: Any,
    took: Any,
    delta: Any,
    limit: Any,
    messages: Any,
    busy: int,
    sequence: Any,
    depth: int,
) -> bool:
    """Append one more operation, on the device that can go on earliest; True when all are placed."""
    n = len(device)
    if depth == n:
        return True
    placed = np.zeros(n, np.bool_)
    memory = np.zeros(len(limit), np.int64)
    for i in sequence[:depth]:
        placed[i] = True
        memory[device[i]] += delta[i]
    here, earliest = -1, 10**9
    for i in range(n):
        if not placed[i] and paths[n, i] < earliest:
            here, earliest = device[i], paths[n, i]
    for i in range(n):
        if placed[i] or device[i] != here or memory[here] + max(delta[i], 0) > limit[here]:
            continue
        narrowed = paths.copy()
        fits = True
        for j in range(n):
            if fits and not placed[j] and j != i and device[j] == here:
                fits = _insert(narrowed, i, j, took[i])
        fits = fits and (busy == 0 or _send(narrowed, device, took, messages, busy, sequence[:depth], i))
        if fits and _decide(narrowed, device, took):
            sequence[depth] = i
            if _extend(narrowed, device, took, delta, limit, messages, busy, sequence, depth + 1):
                return True
    return False
