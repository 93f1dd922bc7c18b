"""Random numbers of compiled code, against their definitions in integers of any size."""

from __future__ import annotations

from math import cos, log, pi, sqrt

import numpy as np
import pytest

from tightpipe.solver.improve.lines import FEATURES, WAITING
from tightpipe.solver.improve.random_kernel import draw, draw_normal, generator
from tightpipe.solver.improve.tune_kernel import TuneNumbers, _change

MASK = 2**64 - 1


def xorshift(state: int) -> int:
    """One step of Marsaglia's generator with the shifts 13, 7 and 17."""
    state ^= state << 13 & MASK
    state ^= state >> 7
    return state ^ state << 17 & MASK


@pytest.mark.parametrize("seed", [1, 7, 2**63, MASK])
def test_draws_are_the_upper_bits_of_xorshift(seed: int) -> None:
    random, state = np.array([seed], np.uint64), seed
    for _ in range(100):
        state = xorshift(state)
        assert draw(random) == (state >> 11) / 2**53
        assert int(random[0]) == state


def test_normal_draws_are_those_of_box_and_muller() -> None:
    random, again = (np.array([7], np.uint64) for _ in range(2))
    for _ in range(100):
        radius, angle = draw(again), draw(again)
        assert draw_normal(random) == pytest.approx(sqrt(-2 * log(1 - radius)) * cos(2 * pi * angle))


def test_a_change_of_weights_moves_few_of_them_and_keeps_waiting_a_cost() -> None:
    random = np.array([7], np.uint64)
    weights = np.full((4, FEATURES), 0.5)
    for _ in range(1000):
        before = weights.copy()
        _change(random, weights, TuneNumbers(3, 0.02, 2.0, 0.0))
        assert 1 <= (weights != before).sum() <= 3
        assert (weights[:, WAITING] > 0).all()


def test_every_seed_has_a_generator_of_its_own_that_is_never_stuck_at_zero() -> None:
    states = [generator(seed) for seed in range(1000)]
    assert {(state.dtype.name, state.shape) for state in states} == {("uint64", (1,))}
    assert all(int(state[0]) % 2 == 1 for state in states)
    assert len({int(state[0]) for state in states}) == 1000
    assert generator(7) == generator(7)
