"""V-Beat: the order of a small pipeline, the second theorem, its conditions, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from helpers.cases import uniform
from helpers.exact_cases import v_instance
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Memory, NoScheduleError, OpKind, Schedule, retime, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.heuristics.v_beat import Times, early_devices, meets_bound, v_beat_order
from tightpipe.heuristics.v_tails import least_makespan, long_weights_fit
from tightpipe.model.metrics import cost, peak_memory
from tightpipe.params.budget import UNLIMITED
from tightpipe.settings import load_settings
from tightpipe.solver.bounds.formulas import splits_bound, two_times_bound

SETTINGS = load_settings()
PROVEN = [
    *("1.5B-8x24", "1.5B-8x32", "1.5B-8x64", "6.2B-8x24", "6.2B-8x32", "6.2B-8x64"),
    *("14.6B-16x48", "14.6B-16x64", "14.6B-16x128", "6.2B-16x48", "6.2B-16x64", "6.2B-16x128"),
    *("28.3B-32x96-early", "28.3B-32x128-early", "28.3B-32x256-early"),
]
"""The published settings for which the theorem says that V-Beat is optimal."""


def at_2p(p: int, n: int, times: Times) -> Instance:
    """An instance whose W's hold nearly a whole activation, so that the formula is a bound for any times."""
    costs = (times.forward, times.backward, times.weight, times.comm)
    return v_instance(p, n, costs, Memory(1000, -1, -999, 2000 * p))


def formula(p: int, n: int, times: Times) -> int:
    f, b, w, c = times.forward, times.backward, times.weight, times.comm
    return 2 * n * (f + b + w) + (p - 1) * (f + 4 * c + max(f, b + 2 * c)) - (2 * p - 1) * w


def beat_cost(instance: Instance) -> int:
    """The cost of V-Beat, after a check that its schedule is valid."""
    schedule = retime(instance, v_beat_order(instance))
    assert validate(instance, schedule) == []
    return cost(schedule)


def test_the_order_of_two_devices() -> None:
    first, last = str(v_beat_order(at_2p(2, 4, Times(10, 10, 6, 1)))).splitlines()
    assert first.split() == [
        *("F0.0", "F0.1", "F0.2", "F3.0"),
        *("B3.0", "W3.0", "F3.1", "B3.1", "W3.1", "F0.3", "B0.0", "W0.0", "F3.2"),
        *("B3.2", "W3.2", "B0.1", "W0.1", "F3.3"),
        *("B3.3", "W3.3", "B0.2", "W0.2", "B0.3", "W0.3"),
    ]
    assert last.split() == [
        *("F1.0", "F2.0", "F1.1", "F2.1"),
        *("B2.0", "W2.0", "F1.2", "B1.0", "W1.0", "F2.2", "B2.1", "W2.1", "F1.3", "B1.1", "W1.1", "F2.3"),
        *("B2.2", "B1.2", "B2.3", "B1.3", "W2.2", "W1.2", "W2.3", "W1.3"),
    ]


@st.composite
def promising_times(draw: st.DrawFn) -> Times:
    """Times that satisfy all conditions but those on long W's."""
    f = draw(st.integers(2, 99))
    b = draw(st.integers(1, f))
    w = draw(st.integers(1, f))
    return Times(f, b, w, draw(st.integers(0, min(f, b + w))))


@settings(max_examples=120, deadline=None)
@given(st.integers(2, 9), st.integers(0, 14), promising_times())
def test_the_theorem(p: int, more: int, times: Times) -> None:
    n = 2 * p + more
    assume(meets_bound(p, n, times))
    instance = at_2p(p, n, times)
    assert beat_cost(instance) == formula(p, n, times) == two_times_bound(instance).value
    assert peak_memory(retime(instance, v_beat_order(instance))).max() <= 2000 * p


def forward_and_backward_starts(
    p: int, n: int, d: int, k: int, times: Times, long: bool = False
) -> Iterator[int]:
    """The start times of the F's and B's of device d in their sequence, as the page gives them.

    `long` ones are those of the sixth theorem, with a W after each pair of B's.
    """
    f, b, w, c = times.forward, times.backward, times.weight, times.comm
    below, h, trip = p - 1 - d, f + b + w, f + b + 2 * c
    g = max(b + c, f - c)
    slack, lag = max(0, h - g - f - c), max(0, g + f + c - h)
    for number in range(2 * p):
        yield d * (f + c) + number * f + (2 * below * c if number > 2 * below else 0)
    first = 2 * p * f + 2 * (p - 1) * c + d * g
    last_end = 2 * p * f + (p - 1) * (2 * c + g) + 2 * (n - p) * h
    for beat in range(2 * (n - p) - below):
        yield first + beat * h + min(beat, below) * lag
        yield first + (beat + 1) * h + min(beat + 1, below) * lag - f

    def upper_end(m: int) -> int:
        """The end of the F of microbatch n - 1 - m at the upper stage."""
        return last_end + below * (f + c) + min(m, below) * slack - 2 * h * m

    for m in range(below - 1, -1, -1):
        yield upper_end(m + 1)
        yield upper_end(m) - h
        yield upper_end(m) - f
    pair = 2 * b + w if long else trip
    for q in range(d):
        yield upper_end(0) + q * pair
        yield upper_end(0) + q * pair + b
    last_upper = upper_end(0) + d * pair
    yield last_upper
    if long:
        for m in range(below, -1, -1):
            yield last_end + m * (f + c) + (p - 1 - m) * pair + b + (below - m) * (b + c)
        return
    for m in range(below, -1, -1):
        delay = min(w, max(0, w - (p - k - m) * (b + 2 * c - w))) if d < k else 0
        yield last_upper + b + 2 * (below - m) * (b + c) + delay


@settings(max_examples=120, deadline=None)
@given(st.integers(2, 9), st.integers(0, 14), promising_times())
def test_the_start_times_of_the_proof(p: int, more: int, times: Times) -> None:
    n = 2 * p + more
    assume(meets_bound(p, n, times))
    starts = [forward_and_backward_starts(p, n, d, early_devices(p, times), times) for d in range(p)]
    schedule = timed(at_2p(p, n, times), starts)
    assert cost(schedule) == formula(p, n, times)


def timed(instance: Instance, starts: list[Iterator[int]]) -> Schedule:
    """V-Beat's order with these starts of F's and B's on each device, and each W right after what comes before."""
    order = v_beat_order(instance)
    durations = [instance.duration(kind, 0) for kind in (OpKind.F, OpKind.B, OpKind.W)]
    start = np.zeros(len(order), np.int64)
    for d, given_starts in enumerate(starts):
        free = 0
        for row in range(order.offsets[d], order.offsets[d + 1]):
            kind = OpKind(order.operations[row, 0])
            start[row] = free if kind is OpKind.W else next(given_starts)
            free = start[row] + durations[kind]
        assert next(given_starts, None) is None
    schedule = Schedule(instance, order, start, start + np.array(durations)[order.operations[:, 0]])
    assert validate(instance, schedule) == []
    return schedule


@pytest.mark.parametrize("name", PROVEN)
def test_it_is_optimal_on_most_published_settings(name: str) -> None:
    setting = SETTINGS[name]
    instance = setting.instance()
    assert beat_cost(instance) == two_times_bound(instance).value


def test_the_conditions_name_these_settings() -> None:
    """But for the toy, whose W's hold too little for the formula."""
    named = [
        name
        for name, s in SETTINGS.items()
        if meets_bound(s.devices, s.microbatches, Times(s.forward, s.backward, s.weight, s.comm))
    ]
    assert set(named) == {*PROVEN, "toy-4x8"}


@pytest.mark.parametrize(
    "times",
    [
        Times(10, 13, 5, 1),  # B longer than F and two messages
        Times(10, 10, 5, 20),  # messages longer than F
        Times(10, 3, 3, 7),  # messages longer than B and W
        Times(20, 20, 19, 0),  # no number of early devices is enough
    ],
)
def test_without_one_of_the_conditions_nothing_is_promised_and_the_formula_is_missed(times: Times) -> None:
    p, n = 6, 12
    assert not meets_bound(p, n, times)
    assert beat_cost(at_2p(p, n, times)) > formula(p, n, times)


def in_one_frame(p: int, n: int, times: Times) -> Instance:
    return replace(at_2p(p, n, times), objective="makespan")


@settings(max_examples=120, deadline=None)
@given(st.integers(2, 9), st.integers(0, 4), promising_times(), st.booleans())
def test_the_theorem_in_one_frame(p: int, more: int, times: Times, long: bool) -> None:
    n = 2 * p + more
    if long:  # or they are hardly ever drawn
        times = replace(times, weight=times.forward + 2 * times.comm, comm=times.comm // 8)
    assume(meets_bound(p, n, times, whole=True))
    instance = in_one_frame(p, n, times)
    assert beat_cost(instance) == splits_bound(instance).value


@pytest.mark.parametrize(
    ("times", "promised"),
    [
        (Times(10, 10, 10, 1), True),
        (Times(10, 10, 10, 2), False),  # (p - 1) c is more than an F
        (Times(20, 20, 4, 3), True),
        (Times(20, 20, 13, 1), False),  # neither short nor long W's
    ],
)
def test_short_and_long_weights_meet_the_bound_of_makespans(times: Times, promised: bool) -> None:
    assert meets_bound(8, 16, times, whole=True) == promised
    assert not meets_bound(8, 15, times, whole=True)
    instance = in_one_frame(8, 16, times)
    schedule = retime(instance, v_beat_order(instance, UNLIMITED.within(0)))
    assert validate(instance, schedule) == []
    assert (cost(schedule) == splits_bound(instance).value) == promised


@settings(max_examples=120, deadline=None)
@given(st.integers(2, 9), st.integers(0, 4), promising_times())
def test_the_start_times_of_the_proof_for_long_weights(p: int, more: int, times: Times) -> None:
    n, times = (
        2 * p + more,
        replace(times, weight=times.forward + 2 * (times.comm // 8), comm=times.comm // 8),
    )
    assume(long_weights_fit(p, times) and meets_bound(p, n, times, whole=True))
    starts = [forward_and_backward_starts(p, n, d, 0, times, long=True) for d in range(p)]
    schedule = timed(in_one_frame(p, n, times), starts)
    assert cost(schedule) == least_makespan(p, n, times)


def test_fewer_microbatches_are_refused_and_promised_nothing() -> None:
    times = Times(10, 10, 6, 1)
    assert not meets_bound(4, 7, times)
    assert meets_bound(4, 8, times)
    with pytest.raises(NoScheduleError, match="v-beat needs at least 8 microbatches on 4 devices, and has 7"):
        v_beat_order(at_2p(4, 7, times))


def test_less_memory_is_refused() -> None:
    with pytest.raises(NoScheduleError, match="v-beat needs a memory limit of at least 16, and has 15"):
        v_beat_order(v_instance(4, 8, (10, 10, 6, 1), Memory(2, -1, -1, 15)))


def test_longer_weights_need_more_early_devices() -> None:
    assert [early_devices(8, Times(10, 10, w, 0)) for w in (1, 6, 7, 8, 9, 10)] == [1, 1, 2, 2, 5, 8]


@pytest.mark.parametrize(("p", "n"), [(1, 2), (1, 5), (2, 4), (5, 10), (5, 23)])
def test_other_costs_have_a_valid_schedule(p: int, n: int) -> None:
    uneven = [10 + 3 * stage for stage in range(2 * p)]
    instance = uniform(p, n, (uneven, 14, uneven), comm=3, placement="v", memory=Memory(2, -1, -1, 4 * p))
    assert beat_cost(instance) >= two_times_bound(instance).value
    assert HEURISTICS["v-beat"].order(instance) == v_beat_order(instance)
