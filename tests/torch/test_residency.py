"""PyTorch's own lowering of an exported file keeps as many stages gathered as a plan counts, as often."""

from __future__ import annotations

from collections import Counter

import pytest

from tightpipe import Instance, retime
from tightpipe.export import export_text
from tightpipe.export.model_split import RESIDENT
from tightpipe.heuristics import HEURISTICS
from tightpipe.planning.residency import gathers_of

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
CASES = [
    ("1f1b", "linear", 1),
    ("v-half", "v", 2),
    ("list", "loop", 2),
    ("interleaved-1f1b", "loop", 3),
    ("interleaved-1f1b", "loop", 5),
    ("list", "wave", 4),
    ("list", "loop", 6),
]


@pytest.mark.parametrize("resident", [1, 2, RESIDENT, 4])
@pytest.mark.parametrize(("name", "place", "chunks"), CASES)
def test_torch_gathers_what_a_plan_counts(name: str, place: str, chunks: int, resident: int) -> None:
    problem = Instance.uniform(
        devices=3, microbatches=9, forward=3, backward=4, weight=2, comm=1, placement=place, chunks=chunks
    )
    schedule = retime(problem, HEURISTICS[name].make(problem))
    rows = export_text(schedule, "torch-csv").splitlines()
    again = 0
    for device, row in enumerate(rows):
        actions = [schedules._Action.from_str(cell) for cell in row.split(",")]
        # as PyTorch prepares a compute-only file: with its default, which is what its runtime takes
        number = () if resident == RESIDENT else (resident,)
        lowered = schedules._add_unshard_reshard(actions, *number)
        lowered = schedules._add_reduce_grad(lowered, problem.microbatches)
        gathered, there, most = Counter[int](), set[int](), 0
        for action in lowered:
            kind = action.computation_type.name
            if kind == "UNSHARD":
                gathered[action.stage_index] += 1
                there.add(action.stage_index)
            elif kind == "RESHARD":
                there.remove(action.stage_index)
            elif kind != "REDUCE_GRAD":
                assert action.stage_index in there
            most = max(most, len(there))
        assert most == min(resident, chunks)
        assert not there
        stages = schedule.order.operations[schedule.order.rows(device), 1].tolist()
        assert gathered == gathers_of(stages, resident)
        assert Counter(
            a.stage_index for a in lowered if a.computation_type.name == "REDUCE_GRAD"
        ) == dict.fromkeys(problem.placement.stages_on(device), 1)
        again += gathered.total() - chunks
    assert (again > 0) == (chunks > resident)
