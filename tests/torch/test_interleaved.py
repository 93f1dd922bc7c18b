"""Interleaved 1F1B runs what PyTorch's own schedule runs, wherever PyTorch accepts the microbatches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from helpers.cases import uniform

from tightpipe import Instance, OpKind, Order, retime
from tightpipe.heuristics.interleaved import interleaved_order
from tightpipe.model.costs import Objective
from tightpipe.model.metrics import cost

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
_KINDS = {"FORWARD": OpKind.F, "FULL_BACKWARD": OpKind.BW}


def torch_order(p: int, chunks: int, n: int) -> Order | None:
    """The order of PyTorch's schedule, made without processes; None if PyTorch refuses n microbatches."""
    rounds = max(1, n // p)
    if n % rounds:
        return None
    parts = {"n_local_stages": chunks, "microbatches_per_round": n // rounds, "pp_group_size": p}
    schedule = SimpleNamespace(**parts, _n_microbatches=n)
    of_rank = schedules.ScheduleInterleaved1F1B._calculate_single_rank_operations
    devices = [[action for action in of_rank(schedule, rank) if action is not None] for rank in range(p)]
    return Order.from_lists(
        [
            [(_KINDS[a.computation_type.name], a.stage_index, a.microbatch_index) for a in ops]
            for ops in devices
        ]
    )


def instance(p: int, chunks: int, n: int, comm: int, objective: Objective) -> Instance:
    return uniform(p, n, (10, 12, 8), placement="loop", chunks=chunks, comm=comm, objective=objective)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_orders_are_those_of_pytorch_and_never_cost_more(p: int, chunks: int) -> None:
    compared = 0
    for n in range(1, 4 * p + 3):
        theirs = torch_order(p, chunks, n)
        if theirs is None:
            continue
        for comm, objective in (
            (0, Objective.MAKESPAN),
            (1, Objective.DEVICE_SPAN),
            (30, Objective.MAKESPAN),
        ):
            problem = instance(p, chunks, n, comm, objective)
            ours = interleaved_order(problem)
            if n >= p:
                assert ours == theirs
            assert cost(retime(problem, ours)) <= cost(retime(problem, theirs))
            compared += 1
    assert compared >= 3 * p
