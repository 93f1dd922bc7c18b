"""1F1B and interleaved 1F1B whose steady state runs an F and the BW of an earlier microbatch together.

The steady state has one such pair where 1F1B has an F and a BW in turn. A pair starts only when both of its
operations are ready, so the warm-up of every device has one forward more than in eager 1F1B, or in
interleaved 1F1B. Pairs pay off where the instance's `overlapped` duration is below the sum of the two
durations, because the communication of one operation hides behind the computation of the other.

Sources: the combined 1F1B of Megatron-Core's ``--overlap-moe-expert-parallel-comm``; DeepSeek-AI,
arXiv:2412.19437, section 3.2.1, for pairs of F and BW.
"""

from __future__ import annotations

from collections.abc import Sequence

from tightpipe.core.instance import Instance
from tightpipe.core.operation import Operation, OpKind
from tightpipe.core.params.heuristic import InterleavedParams
from tightpipe.core.params.solve_params import DEFAULTS
from tightpipe.core.schedule import Order

from .family import Step, check_placement, step, within_limits
from .interleaved import best_of_groups, chunk_steps, interleaved_warm_up

Slot = tuple[Operation, ...]


def overlapped_one_f_one_b_order(instance: Instance) -> Order:
    """Return the order of 1F1B with pairs; device i holds at most min(2(p - i), n) activations.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, or the memory limit is too small.
    """
    family = "1f1b-overlap"
    check_placement(instance, family, "linear")
    p, n = instance.devices, instance.microbatches
    devices = [
        _with_pairs(
            [step(instance, OpKind.F, device, m) for m in range(n)],
            [step(instance, OpKind.BW, device, m) for m in range(n)],
            2 * (p - 1 - device) + 1,
        )
        for device in range(p)
    ]
    return within_limits(instance, family, Order.from_slots(devices))


def overlapped_interleaved_order(
    instance: Instance, params: InterleavedParams = DEFAULTS.interleaved
) -> Order:
    """Return the order of interleaved 1F1B with pairs, in groups that `best_of_groups` chooses.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not loop, or the memory limit is too small.
    """
    family = "interleaved-overlap"
    check_placement(instance, family, "loop")
    return best_of_groups(instance, family, _interleaved_with_pairs, params)


def _interleaved_with_pairs(instance: Instance, group: int) -> Order:
    devices = [
        _with_pairs(*chunk_steps(instance, device, group), interleaved_warm_up(instance, device, group) + 1)
        for device in range(instance.devices)
    ]
    return Order.from_slots(devices)


def _with_pairs(forwards: Sequence[Step], backwards: Sequence[Step], warm_up: int) -> list[Slot]:
    """Return `warm_up` forwards, then pairs of a forward and a backward, then the remaining backwards."""
    first, steady = forwards[:warm_up], max(0, len(forwards) - warm_up)
    pairs = [
        (Operation(*forward), Operation(*backward))
        for ahead, behind in zip(forwards[warm_up:], backwards, strict=False)
        for forward, backward in zip(ahead, behind, strict=True)
    ]
    return [*_alone(first), *pairs, *_alone(backwards[steady:])]


def _alone(steps: Sequence[Step]) -> list[Slot]:
    return [(Operation(*op),) for one in steps for op in one]
