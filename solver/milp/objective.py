"""The objective of the mixed-integer model: the least cost that is at least the length of every frame."""

from __future__ import annotations

import pulp

from tightpipe.core.operation import OpKind

from ..queues import Queues
from .linear import Linear
from .variables import Variables


def minimise_cost(problem: pulp.LpProblem, queues: Queues, variables: Variables) -> None:
    """Minimise the cost, with rows ``b <= s_i`` and ``s_i + d_i <= b + cost`` on every device.

    The notation is that of `Constraints`. Only an F can come first on a device and only a W can come last, so
    only they need rows. With `device_span` each device has its own frame, and with `makespan` all devices
    share one frame. So under both objectives the cost is the length of the longest frame.
    """
    for queue, items in zip(queues.queues, map(variables.items, range(len(queues.queues))), strict=True):
        begin = variables.begin[variables.frame[queue.device]]
        if queue.kind is OpKind.F:
            Linear().plus(variables.start[items[0]]).plus(begin, -1).at_least(problem, 0)
        if queue.kind is OpKind.W:
            span = Linear().plus(begin).plus(variables.cost).plus(variables.start[items[-1]], -1)
            span.at_least(problem, queue.duration)
    problem.setObjective(pulp.LpAffineExpression([(variables.cost, 1)]))
