"""Exact methods on microbatches that differ: the sequence of the classes is theirs to decide."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from helpers.cases import classed, uniform
from helpers.constraint_families import horizon_of
from helpers.independent_model import optimal_schedule
from ortools.sat.python import cp_model

from tightpipe import InputError, Instance, Memory, MicrobatchClass, OpKind, Result, Status, solve, validate
from tightpipe.model.metrics import cost
from tightpipe.params.budget import UNLIMITED
from tightpipe.solver.blocks import Shape, search_period, unrolled
from tightpipe.solver.cpsat.plain import PlainModel
from tightpipe.solver.engine.run import in_queue_order
from tightpipe.solver.queues import queues_of, starts_of
from tightpipe.solver.windows import shaved_windows

EXACT = ("cpsat", "cpsat:plain", "milp", "best")
THREE = [MicrobatchClass(1, 20), MicrobatchClass(1, 5, 6, 4), MicrobatchClass(1, weight=16)]


def of_lengths(devices: int, lengths: list[int], held: int, **entries: Any) -> Instance:
    """F, B and W take as long as the sequence, whose memory they hold; there is room for the `held` longest."""
    return Instance.uniform(
        devices=devices,
        placement="linear",
        forward=1,
        backward=1,
        weight=1,
        memory=Memory(1, 0, -1, sum(sorted(lengths)[-held:])),
        classes=[
            MicrobatchClass(1, length, length, length, memory=Memory(length, 0, -length))
            for length in lengths
        ],
        **entries,
    )


def solved(instance: Instance, name: str, seconds: float = 20) -> Result:
    return solve(instance, name, time_limit=seconds, workers=1, warm_start=None)


@pytest.mark.parametrize("name", EXACT)
def test_exact_methods_find_the_best_sequence_of_microbatches_that_differ(name: str) -> None:
    """In the sequence given, first in, first out over all of them, no schedule is as cheap."""
    instance = uniform(2, 3, (9, 8, 7), comm=1, placement="linear", classes=THREE, memory=Memory(1, 0, -1, 2))
    found = solved(instance, name)
    assert found.schedule is not None
    assert validate(instance, found.schedule) == []
    assert (found.cost, found.status) == (cost(optimal_schedule(instance)), Status.OPTIMAL)


def test_the_sequence_of_classes_is_a_decision() -> None:
    """Long microbatches first or last, and in the sequence in which they are numbered, cost more."""
    instance = of_lengths(3, [20, 25, 16, 10], 2, comm=1)
    best = solved(instance, "cpsat")
    assert best.status is Status.OPTIMAL
    first = {
        tuple(op.microbatch for op in row if op.kind is OpKind.F) for row in best.schedule.order.to_lists()
    }
    assert first != {(0, 1, 2, 3)}
    in_sequence = optimal_in_sequence(instance)
    assert best.cost < in_sequence


def optimal_in_sequence(instance: Instance) -> int:
    """The least cost where every kind and stage runs its microbatches by number, whatever their class."""
    model = PlainModel(instance, horizon_of(instance), 0, fifo=True)
    for op, start in model.variables.start.items():
        before = op._replace(microbatch=op.microbatch - 1)
        if before in model.variables.start:
            model.model.add(start >= model.variables.end[before])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model.model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def test_blocks_are_those_of_the_class_where_all_microbatches_are_of_one() -> None:
    """The times of the class count, and not those of the instance that the class does not take."""
    one = uniform(2, 6, (10, 12, 8), comm=1, memory=Memory(2, -1, -1, 6))
    longer = replace(one, classes=[MicrobatchClass(4, 20, 24, 16), MicrobatchClass(2, 20, 24, 16)])
    plain = uniform(2, 6, (20, 24, 16), comm=1, memory=Memory(2, -1, -1, 6))
    blocks = [search_period(Shape(instance, 1), UNLIMITED).block for instance in (longer, plain)]
    assert blocks[0].period == blocks[1].period
    assert validate(longer, unrolled(blocks[0], longer)) == []


def test_many_classes_on_many_devices_are_more_than_exact_models_take() -> None:
    """64 classes on 16 devices: each method says in time that it builds no model, and keeps its start."""
    lengths = [20 + 7 * k % 64 for k in range(64)]
    instance = of_lengths(16, lengths, 16, comm=1)
    result = solved(instance, "cpsat", 10)
    assert result.schedule is not None
    assert validate(instance, result.schedule) == []
    assert "too large" in result.reason
    with pytest.raises(InputError, match="too large for milp"):
        solved(instance, "milp", 10)


def test_windows_hold_every_schedule_of_microbatches_that_differ() -> None:
    """An optimal schedule lies in the windows of its own cost."""
    rng = random.Random(5)
    for seed in range(6):
        placement, devices, n = rng.choice(
            (("linear", 2, 3), ("v", 1, 3), ("v", 2, 2), ("bidirectional", 2, 2))
        )
        free = uniform(devices, n, (9, 8, 7), comm=rng.randint(0, 2), placement=placement)
        instance = classed(replace(free, memory=Memory(2, -1, -1, rng.randint(4, 9))), seed)
        instance = replace(instance, classes=[replace(one, fused=None) for one in instance.classes])
        best = in_queue_order(optimal_schedule(instance))
        queues = queues_of(instance)
        windows = shaved_windows(queues, cost(best), UNLIMITED)
        assert windows.feasible
        starts = starts_of(queues, best)
        origin = windows.origin(starts)
        assert all(
            early <= start - origin <= late
            for early, start, late in zip(windows.earliest, starts, windows.latest, strict=True)
        )
