"""PyTorch reads and lowers what is exported, for every method, and what PyTorch writes is imported."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tightpipe import Instance, OpKind, Order, retime
from tightpipe.export import EXPORTS, export_text, import_order
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.orders import accepted
from tightpipe.model.placement import PLACEMENTS

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
torch = pytest.importorskip("torch")
_LETTERS = {
    "FORWARD": OpKind.F,
    "BACKWARD_INPUT": OpKind.B,
    "BACKWARD_WEIGHT": OpKind.W,
    "FULL_BACKWARD": OpKind.BW,
}


def as_torch_reads(text: str) -> dict[int, list[object]]:
    rows = text.splitlines()
    return {
        rank: [schedules._Action.from_str(cell) for cell in row.split(",")] for rank, row in enumerate(rows)
    }


def slot(action: object) -> list[tuple[int, int, int]]:
    parts = getattr(action, "sub_actions", None) or (action,)  # PyTorch 2.8 has none
    return [(_LETTERS[part.computation_type.name], part.stage_index, part.microbatch_index) for part in parts]


def method_cases() -> list[tuple[str, str]]:
    return [
        (name, place)
        for name, h in HEURISTICS.items()
        for place in PLACEMENTS
        if place in h.placements and place != "bidirectional"
    ]


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize(("name", "place"), method_cases())
def test_torch_reads_and_lowers_the_export(name: str, place: str, merge: bool) -> None:
    problem = Instance.uniform(
        devices=4, microbatches=8, forward=3, backward=4, weight=2, fused=5, comm=1, placement=place
    )
    text = export_text(retime(problem, HEURISTICS[name].make(problem)), "torch-csv", merge=merge)
    if "OVERLAP_F_B" in text and not hasattr(schedules, "OVERLAP_F_B"):
        pytest.skip("PyTorch 2.8 knows no pairs")
    actions = as_torch_reads(text)
    assert Order.from_slots([[slot(a) for a in row] for row in actions.values()]) == EXPORTS[
        "torch-csv"
    ].read(text)
    ranks = {stage: problem.device(stage, 0) for stage in range(problem.stages)}
    with_comms = schedules._add_send_recv(actions, ranks.__getitem__, problem.stages)
    assert sum(map(len, with_comms.values())) > sum(map(len, actions.values()))


OWN = {
    "ScheduleGPipe": "linear",
    "Schedule1F1B": "linear",
    "ScheduleInterleaved1F1B": "loop",
    "ScheduleLoopedBFS": "loop",
    "ScheduleInterleavedZeroBubble": "loop",
    "ScheduleZBVZeroBubble": "v",
    "ScheduleDualPipeV": "v",
}
"""PyTorch's own schedules, and the placement of each."""
TWINS = {"ScheduleGPipe": "gpipe", "Schedule1F1B": "1f1b", "ScheduleInterleaved1F1B": "interleaved-1f1b"}
"""Schedules of PyTorch whose order a heuristic has as well."""


def own_schedule(name: str, problem: Instance) -> Any:
    """PyTorch's schedule of this name as rank 0 has it, with stages that never compute."""
    if not hasattr(schedules, name):
        pytest.skip(f"this version of PyTorch has no {name}")
    stages = [
        SimpleNamespace(
            **{"stage_index": index, "num_stages": problem.stages, "has_backward": True},
            **{"is_first": index == 0, "is_last": index == problem.stages - 1},
            **{"group_rank": 0, "group_size": problem.devices, "submod": torch.nn.Identity()},
        )
        for index in problem.placement.stages_on(0)
    ]
    return getattr(schedules, name)(
        stages[0] if problem.placement.name == "linear" else stages,
        problem.microbatches,
        loss_fn=lambda output, target: output,
    )


def own_cases() -> list[tuple[str, int, int]]:
    sizes = [(2, 4), (4, 8), (4, 16), (3, 9)]  # numbers of microbatches that every one of them accepts
    single = [
        ("ScheduleGPipe", 4, 2),
        ("ScheduleGPipe", 1, 1),
        ("Schedule1F1B", 3, 4),
        ("Schedule1F1B", 1, 3),
    ]
    return [(name, p, n) for name in OWN for p, n in sizes] + single


@pytest.mark.parametrize(("name", "p", "n"), own_cases())
def test_every_schedule_that_torch_writes_is_imported(name: str, p: int, n: int, tmp_path: Path) -> None:
    problem = Instance.uniform(
        devices=p, microbatches=n, forward=3, backward=4, weight=2, comm=1, placement=OWN[name]
    )
    made = own_schedule(name, problem)
    if not getattr(made, "pipeline_order", None):
        pytest.skip("this version of PyTorch does not tell the order of the schedule")
    schedules.PipelineScheduleMulti._dump_csv(made, tmp_path / "computations.csv")
    order = import_order(tmp_path / "computations.csv", "torch-csv")
    if name != "Schedule1F1B":  # PyTorch numbers the forwards of its last stage from 1
        rows = made.pipeline_order.values()
        assert order == Order.from_slots([[slot(a) for a in row if a and a.is_compute_op] for row in rows])
    assert accepted(problem, order).order == order
    if name in TWINS:
        assert order == HEURISTICS[TWINS[name]].make(problem)
