"""The greedy schedules of the zero-bubble authors: `greedy-v` on the V, `zb-auto` on linear.

`greedy-v` is for 2p activations and above. Source: Qi et al., "Pipeline Parallelism with Controllable
Memory", arXiv:2405.15362, and the code of its authors that searches for schedules. On uniform instances with
a memory limit, the order equals the order of that code, operation by operation; tests compare the two in 24
published settings at three limits each. Where costs, communication, memory deltas or limits differ between
stages or devices, the same decisions are taken with the numbers of each stage and device.

It works in rounds, in each of which a device places at most one B and one F. The published code stops
with an assertion when a decision cannot be carried out, because an operation is not ready, or because memory
is full and no W is left that frees some. Here such a decision is skipped until a later round. In experiments
the greedy then found a schedule for any costs without a limit, and for every uniform instance at every
feasible limit. Below 2p activations the schedule is poor, and list scheduling is better. With unequal memory
deltas and little memory a round may place nothing. Then the greedy has no schedule and says so; no other
method is used in its place.

`zb-auto` takes the best result of a greedy algorithm in eight variants. With a memory limit of p activations
it is called ZB-1p, with 2p activations ZB-2p. Source: Qi et al., "Zero Bubble Pipeline Parallelism",
arXiv:2401.10241, section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from tightpipe.base.errors import NoScheduleError
from tightpipe.kernels.arrays import Ints, Records
from tightpipe.model.graph import NO_LIMIT
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.model.simulate import simulate
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.solve_params import DEFAULTS, SolveParams

from .block_runs import cheapest_run
from .family import check_placement
from .greedy_v_kernel import DEVICE, STAGE, Policy, run_pass
from .list_schedule import stage_costs
from .zero_bubble_auto_kernel import Problem, Variant, run_variant

_SPLIT = (OpKind.F, OpKind.B, OpKind.W)
_UNIT = np.array([[2], [-1], [-1]])  # memory deltas of F, B and W for an instance that has none
_POLICIES = tuple(Policy(forward, backward) for backward, forward in product((True, False), repeat=2))


class Attempt(NamedTuple):
    """An order that a pass of the greedy found, which places all operations once; times are in ticks."""

    order: Ints  # (p, 6n, 3): kind, stage and microbatch of each operation
    bubble: int  # the largest bubble of a device: that of the order if the objective is `device_span`
    end: int  # of the last operation
    spare: Ints  # (p,): by how many ticks each device's bubble is below the largest


class _Problem(NamedTuple):
    """The instance as records, in the state before any operation is placed."""

    stages: Records
    devices: Records
    microbatches: int


def greedy_v_order(instance: Instance, budget: Budget = UNLIMITED) -> Order:
    """Return the order of least cost that the greedy V-schedule finds.

    The greedy decides with split backwards. Where fused ones save time, its sequences of F's and B's run
    again (`block_runs`), with backwards fused where nobody waits for their B's. Without a memory limit the
    greedy also runs with limits of 2p, 2.5p and 3p activations, because many early F's can cost time. No
    further pass begins when the time is up.
    Raise an InputError or an InfeasibleError if the placement is not `v` or there is no schedule. Raise a
    NoScheduleError if the greedy finds none at this limit or in this time; without a limit of time, the
    message says at which memory limit it finds one.
    """
    check_placement(instance, "greedy-v", "v")
    best = best_attempt(instance, budget)
    if best is None:
        raise NoScheduleError(_reason(instance) if budget.endless else _short_reason(instance))
    rows = best.order.shape[1]
    order = Order(best.order, np.arange(instance.devices + 1) * rows)
    return cheapest_run(instance, [order], budget.params.v_blocks, budget)


def best_attempt(instance: Instance, budget: Budget = UNLIMITED) -> Attempt | None:
    """Return the best attempt over all limits and policies while there is time; None if every pass fails."""
    problems = [_problem(instance, limits) for limits in _limits_to_try(instance)]
    attempts = (_improved(problem, policy, budget) for problem in problems for policy in _POLICIES)
    key = attrgetter("end" if instance.whole else "bubble")
    return min((a for a in attempts if a is not None), key=key, default=None)


def _improved(problem: _Problem, policy: Policy, budget: Budget) -> Attempt | None:
    """Repeat passes while the largest bubble of a device shrinks; None if the first one fails.

    The bubble of a device is its idle time since its first F, plus its work, less the largest work of a
    device. A device whose bubble was d ticks below the largest one in a pass may idle freely in the next pass
    until its bubble reaches d ticks.
    """
    if budget.left <= 0:
        return None
    best = _attempt(problem, policy, np.zeros(len(problem.devices), np.int64))
    while best is not None and budget.left > 0:
        again = _attempt(problem, policy, best.spare)
        if again is None or again.bubble >= best.bubble:
            break
        best = again
    return best


def _attempt(problem: _Problem, policy: Policy, spare: Ints) -> Attempt | None:
    stages, devices = problem.stages.copy(), problem.devices.copy()
    devices["spare"] = spare
    works, order = run_pass(stages, devices, problem.microbatches, policy)
    if not works:
        return None
    bubble = max(0, int(devices["bubble"].max()))
    return Attempt(order, bubble, int(devices["time"].max()), bubble - devices["bubble"])


def _problem(instance: Instance, limits: Ints) -> _Problem:
    p, costs = instance.devices, stage_costs(instance)
    stages, devices = np.zeros(2 * p, STAGE), np.zeros(p, DEVICE)
    stages["home"] = costs.device
    stages["duration"] = costs.duration.T
    stages["delta"] = _deltas(instance).T
    stages["lag"] = costs.lag.T
    per_stage = instance.microbatches * stages["duration"].sum(axis=1)
    work = per_stage[:p] + per_stage[p:][::-1]
    devices["upper"] = 2 * p - 1 - np.arange(p)
    devices["limit"] = limits
    devices["bubble"] = work - work.max()  # a device with less work can idle by the difference at no cost
    return _Problem(stages, devices, instance.microbatches)


def _deltas(instance: Instance) -> Ints:
    """Return the memory deltas of F, B and W, shape (3, 2p)."""
    if instance.memory is None:
        return np.repeat(_UNIT, instance.stages, axis=1)
    return stage_costs(instance).delta


def _limits_to_try(instance: Instance) -> Iterator[Ints]:
    """Yield the memory limits to run with, one per device each time, as `greedy_v_order` says."""
    p = instance.devices
    if instance.memory_limit(0) is not None:
        yield stage_costs(instance).limit
        return
    yield np.full(p, NO_LIMIT)
    forward = _deltas(instance)[0]
    pair = forward[:p] + forward[p:][::-1]
    for quarters in (4, 5, 6):
        yield pair * p * quarters // 4


def _reason(instance: Instance) -> str:
    """Return a message that the greedy has no schedule at this limit, and at which limits it has one."""
    enough = _enough_memory(instance, stage_costs(instance).limit)
    where = ", and none without one" if enough is None else f"; it has one at {_shown(enough)}"
    return f"{_short_reason(instance)}{where}"


def _short_reason(instance: Instance) -> str:
    return f"greedy-v has no schedule at the memory limit {_shown(stage_costs(instance).limit)}"


def _shown(limits: Ints) -> str:
    numbers = limits.tolist()
    return f"{numbers[0]}" if len(set(numbers)) == 1 else f"{numbers} (per device)"


def _works(instance: Instance, limits: Ints) -> bool:
    """Return whether the greedy finds a schedule within these limits, under any policy."""
    problem = _problem(instance, limits)
    no_spare = np.zeros(len(limits), np.int64)
    return any(_attempt(problem, policy, no_spare) is not None for policy in _POLICIES)


def _enough_memory(instance: Instance, limits: Ints) -> Ints | None:
    """Return `limits`, scaled up until the greedy works; None if it fails even with memory for everything.

    At slightly smaller limits it fails, and it may work again at still smaller ones (bisection).
    """
    forward, p = stage_costs(instance).delta[OpKind.F], instance.devices
    everything = (instance.microbatches * (forward[:p] + forward[p:][::-1])).tolist()
    largest = int(limits.max())

    def scaled(target: int) -> Ints:
        """Return the limits, scaled so that the largest becomes `target`; none is above all F's together."""
        most = max(everything)
        return np.array([max(limit, min(-(-limit * target // largest), most)) for limit in limits.tolist()])

    ratios = [-(-most // limit) for limit, most in zip(limits.tolist(), everything, strict=True) if limit]
    fails, succeeds = largest, largest * max(ratios, default=1)
    if not _works(instance, scaled(succeeds)):
        return None
    while succeeds - fails > 1:
        middle = (fails + succeeds) // 2
        works = _works(instance, scaled(middle))
        fails, succeeds = (fails, middle) if works else (middle, succeeds)
    return scaled(succeeds)


def zb_auto_order(instance: Instance, params: SolveParams = DEFAULTS) -> Order:
    """Return the order of the variant that costs least at earliest start times.

    Where fused backwards save time, its sequences of F's and B's run again, as those of `greedy-v` do. Raise
    an InputError or an InfeasibleError if the placement is not linear, or the memory limit is too small for
    one microbatch.
    """
    check_placement(instance, "zb-auto", "linear")
    problem = _added_up(instance)
    sequences = [run_variant(problem, Variant(*flags)) for flags in product((True, False), repeat=3)]
    orders = [
        _order_of(instance, kinds) for kinds in {kinds.tobytes(): kinds for kinds in sequences}.values()
    ]
    cheapest = min(orders, key=lambda order: cost(simulate(instance, order)))
    return cheapest_run(instance, [cheapest], params.v_blocks)


def _added_up(instance: Instance) -> Problem:
    """Return the instance in arrays, with the consecutive stages of each device added up to one stage."""
    costs = stage_costs(instance)
    work = np.array([instance.work(d) for d in range(instance.devices)])
    return Problem(
        duration=_per_device(instance, costs.duration),
        delta=_per_device(instance, costs.delta),
        lag=_per_device(instance, costs.lag),
        limit=costs.limit,
        handicap=work.max() - work,
        microbatches=instance.microbatches,
    )


def _per_device(instance: Instance, numbers: Ints) -> Ints:
    """Return an array of shape (3, stages), summed over each device's stages: (3, devices)."""
    return np.asarray(numbers.reshape(len(_SPLIT), instance.devices, -1).sum(axis=2))


def _order_of(instance: Instance, kinds: Ints) -> Order:
    """Return the order of an array of kinds, shape (devices, 3n); of one kind, microbatches run in turn."""
    microbatch = np.zeros_like(kinds)
    for kind in _SPLIT:
        is_kind = kinds == kind
        microbatch[is_kind] = (np.cumsum(is_kind, axis=1) - 1)[is_kind]
    chunks = instance.placement.stages_per_device
    up, first = np.arange(chunks), chunks * np.arange(instance.devices)[:, None, None]
    stage = first + np.where(kinds[..., None] == OpKind.F, up, up[::-1])
    operations = np.stack(np.broadcast_arrays(kinds[..., None], stage, microbatch[..., None]), axis=-1)
    return Order(operations, np.arange(instance.devices + 1) * kinds.shape[1] * chunks)
