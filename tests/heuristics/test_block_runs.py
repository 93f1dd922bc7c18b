"""Blocks run at real costs: plans are followed, memory limits are kept, and results come cheapest first."""

from __future__ import annotations

import numpy as np
from helpers.cases import uniform

from tightpipe import Memory, OpKind, simulate
from tightpipe.heuristics.block_runs import best_orders
from tightpipe.heuristics.list_schedule import due_date_rules, due_dates, list_problem, run_of
from tightpipe.heuristics.list_state_kernel import Fusing
from tightpipe.heuristics.v_blocks_kernel import run_planned
from tightpipe.heuristics.v_families import V_MIN, V_ZB, building_block
from tightpipe.model.metrics import cost, peak_memory
from tightpipe.params.solve_params import DEFAULTS

FREE = uniform(3, 9, (10, 12, 8), comm=1, placement="v", memory=Memory(2, -1, -1, None))
BLOCKS = [building_block(3, V_ZB), building_block(3, V_MIN)]


def test_orders_come_cheapest_first_and_keep_within_the_limits() -> None:
    orders = best_orders(FREE, BLOCKS, 100_000, DEFAULTS.v_blocks)
    costs = [cost(simulate(FREE, order)) for order in orders]
    assert costs == sorted(costs)
    limited = best_orders(FREE, BLOCKS, 100_000, DEFAULTS.v_blocks, np.full(3, 8))
    assert limited
    assert all(peak_memory(simulate(FREE, order)).max() <= 8 for order in limited)
    assert best_orders(FREE, BLOCKS, 100_000, DEFAULTS.v_blocks, np.full(3, 3)) == []


def test_a_plan_is_followed_and_one_that_memory_does_not_allow_is_given_up() -> None:
    limited = uniform(1, 3, (10, 12, 8), placement="v", memory=Memory(2, -1, -1, 6))
    due = due_dates(limited, list_problem(limited), due_date_rules(DEFAULTS.due_date)[0])

    def run(*stages: int) -> tuple[bool, list[tuple[int, int]]]:
        """Kinds and stages that the device starts with, where these stages' F's are planned."""
        problem = list_problem(limited)
        plan = np.array([[[OpKind.F, stage] for stage in stages]])
        state = problem.new_state(Fusing(0.0, 1.0))
        done = run_planned(state, plan, due, 0.0)
        if done:
            run_of(limited, state)
        return done, [(int(kind), int(stage)) for kind, stage, _ in state.order[0, : len(stages)]]

    assert run(0, 0, 1) == (True, [(OpKind.F, 0), (OpKind.F, 0), (OpKind.F, 1)])
    assert not run(0, 0, 1, 0)[0]
