"""The costs of stages as tables: each class of microbatches has its devices, and waits for its own messages."""

from __future__ import annotations

from helpers.cases import uniform

from tightpipe.heuristics.list_schedule import stage_costs


def test_each_class_has_a_column_for_each_stage() -> None:
    comm = [[0, 1], [4, 0]]
    instance = uniform(2, 2, ([5, 6], [7, 8], [2, 3]), placement="bidirectional", comm=comm)
    one, other = (stage_costs(instance, mb_class) for mb_class in range(2))
    assert one.device.tolist() == [0, 1]
    assert other.device.tolist() == [1, 0]
    assert one.duration.tolist() == other.duration.tolist() == [[5, 6], [7, 8], [2, 3]]
    # an F waits for the message of the stage before, and a B for that of the stage behind
    assert one.lag.tolist() == [[0, 1], [4, 0], [0, 0]]
    assert other.lag.tolist() == [[0, 4], [1, 0], [0, 0]]
