"""PyTorch's own lowering of an exported file keeps as many stages gathered as a plan counts, as often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tightpipe import Instance, retime
from tightpipe.export import export
from tightpipe.export.model_split import RESIDENT
from tightpipe.heuristics import HEURISTICS
from tightpipe.planning.gathers import gathers_of

schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
torch = pytest.importorskip("torch")
CASES = [
    ("1f1b", "linear", 1),
    ("v-half", "v", 2),
    ("dualpipe-v", "v", 2),
    ("list", "loop", 2),
    ("interleaved-1f1b", "loop", 3),
    ("interleaved-1f1b", "loop", 5),
    ("list", "wave", 4),
    ("list", "loop", 6),
]


def lowered(problem: Instance, file: Path) -> dict[int, list[Any]]:
    """What the runtime of PyTorch makes of a compute-only file, as rank 0, with stages that never compute."""
    stages = [
        SimpleNamespace(
            **{"stage_index": index, "num_stages": problem.stages, "has_backward": True},
            **{"is_first": index == 0, "is_last": index == problem.stages - 1},
            **{"group_rank": 0, "group_size": problem.devices, "submod": torch.nn.Identity()},
        )
        for index in problem.placement.stages_on(0)
    ]
    runtime = schedules._PipelineScheduleRuntime(
        stages, problem.microbatches, loss_fn=lambda output, _: output
    )
    runtime._load_csv(str(file))
    found: dict[int, list[Any]] = runtime.pipeline_order_with_comms
    return found


def gathered(actions: Sequence[Any]) -> tuple[Counter[int], int, Counter[int]]:
    """How often each stage is gathered, the most at once, and how often each stage's gradients are reduced."""
    count, there, most, reduced = Counter[int](), set[int](), 0, Counter[int]()
    for action in actions:
        kind, stage = action.computation_type.name, action.stage_index
        if kind == "UNSHARD":
            count[stage] += 1
            there.add(stage)
        elif kind == "RESHARD":
            there.remove(stage)
        elif kind == "REDUCE_GRAD":
            reduced[stage] += 1
        most = max(most, len(there))
    return count, most, reduced


def issued(actions: Sequence[Any]) -> list[tuple[int, int]]:
    """Each stage that is gathered with the number of the operation before; -1 for the begin of the step."""
    found, computed = [], -1
    for action in actions:
        kind = action.computation_type.name
        computed += kind not in ("UNSHARD", "RESHARD", "REDUCE_GRAD")
        if kind == "UNSHARD":
            found.append((action.stage_index, computed))
    return found


@pytest.mark.parametrize(("name", "place", "chunks"), CASES)
def test_what_runs_is_the_residency_of_a_plan(name: str, place: str, chunks: int, tmp_path: Path) -> None:
    problem = Instance.uniform(
        devices=3, microbatches=9, forward=3, backward=4, weight=2, comm=1, placement=place, chunks=chunks
    )
    schedule = retime(problem, HEURISTICS[name].make(problem))
    export(schedule, "torch-csv", tmp_path / "computations.csv")
    for device, actions in lowered(problem, tmp_path / "computations.csv").items():
        count, most, reduced = gathered(actions)
        stages = schedule.order.operations[schedule.order.rows(device), 1].tolist()
        assert count == Counter(each.stage for each in gathers_of(stages, RESIDENT))
        assert most == min(RESIDENT, chunks)
        assert (count.total() > chunks) == (chunks > RESIDENT)
        assert reduced == dict.fromkeys(problem.placement.stages_on(device), 1)


@pytest.mark.parametrize("resident", [1, 2, 4])
def test_other_numbers_of_stages_follow_the_same_rule(resident: int, tmp_path: Path) -> None:
    problem = Instance.uniform(
        devices=3, microbatches=9, forward=3, backward=4, weight=2, placement="loop", chunks=5
    )
    schedule = retime(problem, HEURISTICS["list"].make(problem))
    export(schedule, "torch-csv", tmp_path / "computations.csv")
    for device, row in enumerate((tmp_path / "computations.csv").read_text().splitlines()):
        actions = [schedules._Action.from_str(cell) for cell in row.split(",")]
        actions = schedules._add_unshard_reshard(actions, resident)
        count, most, _ = gathered(actions)
        stages = schedule.order.operations[schedule.order.rows(device), 1].tolist()
        assert count == Counter(each.stage for each in gathers_of(stages, resident))
        assert issued(actions) == [(each.stage, each.after) for each in gathers_of(stages, resident)]
        assert most == resident
