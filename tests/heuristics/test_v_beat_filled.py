"""V-Beat where B takes longer than F: the third theorem, and where there is no such schedule."""

from __future__ import annotations

import pytest
from helpers.exact_cases import v_instance
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tightpipe import Memory, retime, validate
from tightpipe.heuristics.v_beat import Times, filled_moves, numbered, v_beat_order
from tightpipe.model.metrics import cost, peak_memory
from tightpipe.model.schedule import Order
from tightpipe.settings import load_settings
from tightpipe.solver.bounds.formulas import two_times_bound

SETTINGS = load_settings()
LONG_B = [
    f"{size}x{n}" for size, ns in (("14.6B-24", (72, 96, 192)), ("28.3B-32", (96, 128, 256))) for n in ns
]
"""The published settings of 24 and 32 devices on which B takes longer than F."""


def formula(p: int, n: int, times: Times) -> int:
    f, b, w, c = times.forward, times.backward, times.weight, times.comm
    return 2 * n * (f + b + w) + (p - 1) * (f + b + 6 * c) - (2 * p - 1) * w


@st.composite
def long_backward_times(draw: st.DrawFn) -> Times:
    """Times on which the skeletons of neighbouring devices agree, unless there are very many devices."""
    f = draw(st.integers(20, 99))
    c = draw(st.integers(1, f // 4))
    b = f + draw(st.integers(1, min(2 * c, 6)))
    return Times(f, b, draw(st.integers(2 * c, f)), c)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 16), st.integers(0, 5), long_backward_times())
def test_a_filled_timetable_costs_the_formula(p: int, more: int, times: Times) -> None:
    n = 2 * p + more
    moves = filled_moves(p, n, times)
    assume(moves is not None)
    assert moves is not None
    memory = Memory(1000, -1, -999, 2000 * p)
    instance = v_instance(p, n, (times.forward, times.backward, times.weight, times.comm), memory)
    order = Order.from_lists([numbered(moves[d], d, 2 * p - 1 - d) for d in range(p)])
    schedule = retime(instance, order)
    assert validate(instance, schedule) == []
    assert cost(schedule) == formula(p, n, times) == two_times_bound(instance).value
    assert peak_memory(schedule).max() <= 2000 * p
    assert v_beat_order(instance) == order


@pytest.mark.parametrize("name", LONG_B)
def test_it_is_optimal_on_the_large_published_settings(name: str) -> None:
    instance = SETTINGS[name].instance()
    schedule = retime(instance, v_beat_order(instance))
    assert validate(instance, schedule) == []
    assert cost(schedule) == two_times_bound(instance).value


@pytest.mark.parametrize(
    "times",
    [
        Times(100, 100, 50, 10),  # B no longer than F
        Times(100, 121, 50, 10),  # B longer than F and two messages
        Times(10, 11, 50, 12),  # messages longer than F
        Times(100, 105, 19, 10),  # W shorter than two messages
        Times(100, 115, 50, 10),  # upper F's would be too late, on 20 devices
    ],
)
def test_without_a_skeleton_there_is_none(times: Times) -> None:
    assert filled_moves(20, 40, times) is None


def test_it_takes_many_devices() -> None:
    times = Times(29444, 29718, 19927, 527)
    assert [p for p in range(2, 17) if filled_moves(p, 2 * p, times) is not None] == []
