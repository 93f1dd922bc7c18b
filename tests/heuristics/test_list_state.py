"""The state of list scheduling: what starting an operation changes, and which W is the oldest."""

from __future__ import annotations

from tightpipe import Instance, Memory
from tightpipe.heuristics.list_schedule import list_problem
from tightpipe.heuristics.list_state_kernel import (
    NEVER,
    Fusing,
    State,
    may_start,
    next_arrival,
    next_to_decide,
    oldest_pending,
    start_operation,
)

_F, _B, _W = 0, 1, 2


def state_of(limit: int) -> State:
    """A V of two devices: device 0 has the stages 0 and 3, device 1 the stages 1 and 2."""
    instance = Instance.uniform(
        devices=2,
        microbatches=3,
        forward=10,
        backward=12,
        weight=8,
        comm=1,
        memory=Memory(2, -1, -1, limit),
    )
    problem = list_problem(instance)
    return problem.new_state(Fusing(0.0, 1.0))


def test_starting_an_operation_announces_its_successor_and_takes_memory() -> None:
    state = state_of(6)
    start_operation(state, _F, 0)
    assert state.devices["used"].tolist() == [2, 0]
    assert state.devices["wake"].tolist() == [10, 0]
    assert state.stages["ready"][1].tolist() == [11, NEVER]
    assert next_arrival(state, 1, _F) == 11
    assert next_to_decide(state.devices) == 1


def test_an_f_starts_only_if_all_microbatches_on_the_device_can_still_end() -> None:
    """With room for three activations, two microbatches may be under way only if one of them needs one more F."""
    state = state_of(6)
    start_operation(state, _F, 0)
    assert may_start(state, 0, 0.0)  # 2 + 2 held: the oldest microbatch can still have its second F
    start_operation(state, _F, 0)
    assert not may_start(state, 0, 0.0)  # 4 + 2 held would leave no room for that
    assert not may_start(state_after(_F), 0, 1.0)  # a whole reserve leaves room for all F's that are to come


def state_after(kind: int) -> State:
    state = state_of(6)
    start_operation(state, kind, 0)
    return state


def test_the_pending_w_of_the_oldest_microbatch_comes_first() -> None:
    state = state_of(12)
    assert oldest_pending(state, 1) == -1
    start_operation(state, _F, 1)
    start_operation(state, _F, 2)
    start_operation(state, _B, 2)
    assert oldest_pending(state, 1) == 2
    start_operation(state, _B, 1)
    start_operation(state, _W, 2)
    assert oldest_pending(state, 1) == 1
