"""The objective of the lattice model: every frame is at most as long as the cost."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.instance import Objective
from tightpipe.operation import OpKind

from ...queues import Queues
from .variables import Variables


def bound_spans(
    model: cp_model.CpModel, queues: Queues, variables: Variables, cost: cp_model.LinearExprT
) -> None:
    """Keep the span of every frame at most `cost`.

    The makespan counts from time 0, which is the start of the only frame: no item starts before it.
    """
    for on in variables.on:
        lasts = [q for q in on if queues.queues[q].kind is OpKind.W]
        firsts = [q for q in on if queues.queues[q].kind is OpKind.F]
        for w in lasts:
            end = variables.start[variables.items(w)[-1]] + queues.queues[w].duration
            if queues.instance.objective is Objective.MAKESPAN:
                model.add(end <= cost)
                continue
            for f in firsts:
                model.add(end - variables.start[variables.items(f)[0]] <= cost)
