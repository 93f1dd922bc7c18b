"""PyTorch's own reader and lowering accept what is exported, for every method."""

from __future__ import annotations

import pytest

from tightpipe import Instance, OpKind, Order, retime
from tightpipe.core.placement import PLACEMENTS
from tightpipe.export import EXPORTS, export_text
from tightpipe.heuristics import HEURISTICS

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
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
        devices=4, microbatches=8, forward=3, backward=4, weight=2, comm=1, placement=place
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
