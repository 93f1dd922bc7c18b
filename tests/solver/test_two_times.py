"""The bound of two times: the closed formula, the settings on which the greedy meets it, and its conditions."""

from __future__ import annotations

import pytest
from helpers.exact_cases import v_instance
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tightpipe import Memory, retime
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost
from tightpipe.settings import Setting, load_settings
from tightpipe.solver.bounds.formulas import two_times, two_times_bound

SETTINGS = load_settings()
NOT_GREEDY = {"toy-4x8", "6.2B-8x24-swapped", "1.5B-8x32-late"}


def closed_form(setting: Setting) -> int:
    p, n, c = setting.devices, setting.microbatches, setting.comm
    f, b, w = setting.forward, setting.backward, setting.weight
    return 2 * n * (f + b + w) + (p - 1) * (f + 4 * c + max(f, b + 2 * c)) - (2 * p - 1) * w


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "toy-4x8"])
def test_it_is_the_closed_formula_on_the_published_settings(name: str) -> None:
    assert two_times_bound(SETTINGS[name].instance()).value == closed_form(SETTINGS[name])


def test_the_numbers_of_one_setting_by_hand() -> None:
    """1 + t2 - t1 = 2461632 ticks of work have to fit between the two times of a cost that is one less."""
    setting = SETTINGS["6.2B-16x48"]
    assert (setting.forward, setting.backward, setting.weight, setting.comm) == (14407, 14380, 9676, 1610)
    t1 = 32 * 14407 + 15 * 14380 + 45 * 1610
    u = 15 * 14407 + 32 * 14380 + 45 * 1610 + 9676
    before, after = 32 * 14407, 32 * (14380 + 9676)
    between = 96 * (14407 + 14380 + 9676) - before - after
    assert between == 2461632 == (3969197 - u) - t1
    found = two_times(setting.instance())
    assert (found.worker, found.first_backward, found.after_last_forward) == (15, t1, u)
    assert (found.before, found.held, found.cost) == (before, after, 3969197)
    assert two_times_bound(setting.instance()).value == 3969197


@pytest.mark.parametrize(
    "name", [name for name, s in SETTINGS.items() if s.devices <= 16 and name not in NOT_GREEDY]
)
def test_the_published_greedy_is_optimal_up_to_16_devices(name: str) -> None:
    instance = SETTINGS[name].instance()
    schedule = retime(instance, HEURISTICS["greedy-v"].order(instance))
    assert cost(schedule) == two_times_bound(instance).value


@settings(max_examples=60, deadline=None)
@given(*[st.integers(2, 6)] * 2, *[st.integers(1, 30)] * 3, st.integers(0, 5), st.integers(1, 4))
def test_no_less_than_the_closed_formula_where_its_conditions_hold(
    p: int, extra: int, f: int, b: int, w: int, c: int, share: int
) -> None:
    """At 2p activations, n > p, and a pending W that holds its share of an activation or more."""
    assume(4 * w <= share * (b + w))
    n = p + extra
    instance = v_instance(p, n, (f, b, w, c), Memory(4, share - 4, -share, 8 * p))
    least = 2 * n * (f + b + w) + (p - 1) * (f + b + 6 * c) - (2 * p - 1) * w
    assert two_times_bound(instance).value >= max(least, least + (p - 1) * (f - b - 2 * c))


def test_where_f_is_long_the_last_device_starts_too_late_to_fill_its_memory() -> None:
    """By hand, p = 3: it starts at 2 * 21 and has its first B at 6 * 20 + 2 * 5 + 6 * 1, 94 ticks later."""
    instance = v_instance(3, 6, (20, 5, 4, 1), Memory(2, -1, -1, 12))
    found = two_times(instance)
    assert (found.worker, found.frame, found.first_backward, found.before) == (2, 0, 136, 136 - 42)
    assert found.before < 6 * 20
    assert found.cost == 12 * 29 + 2 * (20 + 4 + 20) - 5 * 4
    schedule = retime(instance, HEURISTICS["greedy-v"].order(instance))
    assert cost(schedule) == found.cost


def test_a_device_may_begin_before_the_frame_of_one_below_it() -> None:
    """Then only its memory limits what it has done before its first B, and no schedule is below the bound."""
    instance = v_instance(3, 6, (2, 20, 30, 0), Memory(2, -1, -1, 12))
    schedule = retime(instance, HEURISTICS["list"].order(instance))
    assert instance.work(0) <= two_times_bound(instance).value <= cost(schedule)


def test_without_work_between_the_two_times_nothing_follows() -> None:
    free = v_instance(3, 4, (10, 12, 8, 1), Memory(2, -1, -1, None))
    assert two_times_bound(free).value == free.work(0)
    held = v_instance(3, 4, (10, 12, 8, 1), Memory(2, -1, -1, 6))
    assert two_times_bound(held).value > held.work(0)
