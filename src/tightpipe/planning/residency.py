"""How often a step gathers the parameters of stages, where pipelines share them and few stages stay gathered.

PyTorch's pipelines decide it by the order of operations. Before each operation of a device, they gather the
stages that it needs next, `Sharding.resident` different ones, and give up all others. Because they gather
ahead, they may gather more often than would be needed: with two stages at once and the sequence 0, 1, 2, 0,
stage 0 makes room for stage 2 before stage 1 runs, and four gathers do what three could.

The schedule of a plan waits for the first gather of each stage only, as a part of `Step.ready`. But gathers
and reductions of a device run one after another, on its data-parallel stream. So a step takes at least as
long as these of any device together (`exchange_ticks`), and the cost of a plan is no less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..export.model_split import RESIDENT
from ..model.costs import Objective
from ..model.schedule import Schedule
from .candidate import Candidate, gather_ticks, numbers_of
from .problem import PlanningProblem


def gathers_of(stages: Sequence[int], resident: int) -> Counter[int]:
    """Return how often a device gathers each stage in a step, as PyTorch's pipelines do.

    Before each operation, those stages are gathered that the device needs next, `resident` different ones.

    - `stages`: the stage of each operation of the device, in sequence.
    - `resident`: how many stages stay gathered at once.
    """
    found, needed, after = Counter[int](), list[int](), set[int]()
    for stage in reversed(stages):
        # `needed` has the stages of later operations, those of the next ones first
        needed = [stage, *(other for other in needed if other != stage)]
        now = set(needed[:resident])
        found.update(after - now)
        after = now
    found.update(after)
    return found


def gathers_in(problem: PlanningProblem, schedule: Schedule) -> list[int] | None:
    """Return how often a step gathers each stage; None if pipelines do not share parameters."""
    sharding, order, found = problem.cluster.sharding, schedule.order, Counter[int]()
    if not sharding.gathered:
        return None
    for device in range(order.devices):
        found.update(gathers_of(order.operations[order.rows(device), 1].tolist(), sharding.resident))
    return [found[stage] for stage in range(schedule.instance.stages)]


def exchange_ticks(problem: PlanningProblem, candidate: Candidate, schedule: Schedule) -> int:
    """Return the fewest ticks of a step in which all gathers and reductions of each device run in turn.

    The optimizer of a device follows its last reduction. The result is 0 where no stage is gathered again, as
    the schedule then knows all gathers, and for another objective than `step`.
    """
    network, placement = problem.cluster.gradients, candidate.placement
    again = problem.cluster.sharding.gathers_again(placement.stages_per_device)
    counts = gathers_in(problem, schedule) if again else None
    if network is None or counts is None or problem.space.objective is not Objective.STEP:
        return 0
    stages, found = numbers_of(problem, candidate), [0]
    for device in range(placement.devices):
        held = placement.stages_on(device)
        gathers = sum(counts[s] * gather_ticks(problem, stages[s]) for s in held)
        reductions = sum(network.reduce_ticks(stages[s].trained) for s in held)
        found.append(gathers + reductions + network.optimizer_ticks(sum(stages[s].trained for s in held)))
    return max(found)


def gathered_text(problem: PlanningProblem, candidate: Candidate, counts: Sequence[int]) -> str:
    """Return in words how many stages stay gathered, and what it takes to gather some of them again.

    `counts` says how often a step gathers each stage.
    """
    placement, sharding = candidate.placement, problem.cluster.sharding
    stages = placement.stages_per_device
    usual = sharding.is_pytorchs(stages)
    told = "fsdp_reshard_after_forward: never" if usual else f"PyTorch keeps {RESIDENT}"
    if not sharding.gathers_again(stages):
        return f"all of {stages} stage(s) of a device, once in a step ({told})"
    ticks = [gather_ticks(problem, stage) for stage in numbers_of(problem, candidate)]
    again = max(
        sum((counts[s] - 1) * ticks[s] for s in placement.stages_on(device))
        for device in range(placement.devices)
    )
    took = f" ({problem.tick.time_of(again)} {problem.tick.unit} of a device)" if again else ""
    return (
        f"{sharding.resident} of {stages} stages of a device at once ({told}), {sum(counts)} gathers a step, "
        f"{sum(counts) - len(counts)} of them again{took}: in the cost only as far as exchanges alone "
        "take longer than the schedule"
    )
