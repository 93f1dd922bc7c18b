"""The method block: what it finds, keeps, refuses, and that it can be repeated."""

from __future__ import annotations

from functools import partial

import pytest
from helpers.cases import instances, serial_order, uniform, wide_instances
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Memory, MicrobatchClass, Schedule, retime, solve, validate
from tightpipe.model.metrics import cost
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.solve_params import params_from_dict
from tightpipe.solver.blocks import block_search, period_search
from tightpipe.solver.blocks.block import Block, Shape, serial_block
from tightpipe.solver.blocks.block_search import BlockSearch, solve_block
from tightpipe.solver.blocks.period_search import Answer
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.engine.portfolio import Worker, alone
from tightpipe.solver.engine.run import Incumbent
from tightpipe.solver.outcome import FINISHED, End, Ended, Outcome, Worked

SCARCE = uniform(4, 12, (10, 12, 8), comm=1, memory=Memory(2, -1, -1, 8))
SCARCER = uniform(4, 12, (10, 12, 8), comm=1, memory=Memory(2, -1, -1, 7))


def incumbent_of(instance: Instance) -> Incumbent:
    bound = best_bound(instance)
    return Incumbent(retime(instance, serial_order(instance)), bound.value, bound.proof, 0.0, lambda _: None)


def search_blocks(instance: Instance, budget: Budget, incumbent: Incumbent) -> Ended:
    return alone(budget, incumbent, partial(BlockSearch, instance, incumbent, 1.0))


def found_in_one_round() -> Incumbent:
    """What one thread finds where memory is scarce, without a deadline."""
    found = incumbent_of(SCARCE)
    assert search_blocks(SCARCE, Budget(params=params_from_dict({"blocks.rounds": 1})), found) == FINISHED
    return found


@pytest.fixture(scope="module")
def incumbent() -> Incumbent:
    return found_in_one_round()


def test_blocks_beat_every_heuristic_where_memory_is_scarce(incumbent: Incumbent) -> None:
    heuristics = (solve(SCARCE, name).cost for name in ("list", "v-min", "v-half", "greedy-v"))
    assert cost(incumbent.schedule) < min(value for value in heuristics if value is not None)
    assert validate(SCARCE, incumbent.schedule) == []


def test_without_a_deadline_one_thread_always_finds_the_same(incumbent: Incumbent) -> None:
    assert incumbent.schedule == found_in_one_round().schedule


def test_blocks_begin_with_what_the_first_schedule_repeats_where_the_cheapest_one_repeats_nothing(
    incumbent: Incumbent, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, cheapest = incumbent.schedule, retime(SCARCE, serial_order(SCARCE))
    blocks = {id(first): serial_block(Shape(SCARCE, 2))}
    monkeypatch.setattr(block_search, "steady_block", lambda schedule, *_: blocks.get(id(schedule)))
    known = Incumbent(first, 1, None, 0.0, lambda _: None)
    known.schedule = cheapest
    liked: list[Block | None] = []

    def ask(
        shape: Shape, period: int, budget: Budget, effort: float, like: Block | None, *_: object
    ) -> Answer:
        liked.append(like)
        return Answer(None, False)

    monkeypatch.setattr(period_search, "ask", ask)
    search_blocks(SCARCE, Budget(params=params_from_dict({"blocks.rounds": 1})), known)
    assert liked
    assert liked[0] is not None


@settings(max_examples=20, deadline=None)
@given(
    st.one_of(
        instances(max_devices=3, max_microbatches=8, most_occupancy=6),
        wide_instances(max_devices=3, max_microbatches=8),
    )
)
def test_every_instance_ends_with_a_valid_schedule_or_a_reason(instance: Instance) -> None:
    incumbent = incumbent_of(instance)
    first = incumbent.schedule
    ended = search_blocks(instance, Budget(effort=0.2), incumbent)
    assert validate(instance, incumbent.schedule) == []
    assert cost(incumbent.schedule) <= cost(first)
    assert not ended.early or incumbent.schedule is first


def effort_of_blocks(effort: float, params: dict[str, float], instance: Instance = SCARCE) -> float:
    """The effort that a search for blocks takes of `effort`, of which 0.3 is its share."""
    taken: list[float] = []

    class Counted(BlockSearch):
        def step(self, worker: Worker) -> Outcome:
            outcome = super().step(worker)
            if isinstance(outcome, Worked):
                taken.append(outcome.effort)
            return outcome

    incumbent = incumbent_of(instance)
    budget = Budget(effort=effort, params=params_from_dict(params))
    alone(budget, incumbent, partial(Counted, instance, incumbent, 0.3))
    return sum(taken)


@pytest.mark.parametrize("effort", [0.5, 2.0, 8.0])
def test_blocks_take_no_more_of_a_counted_effort_than_their_share(effort: float) -> None:
    taken = effort_of_blocks(effort, {"blocks.patience": 0.0})
    assert taken <= 0.3 * effort
    assert taken or effort < 8  # with more effort, there are questions


def test_blocks_that_gain_go_on_beyond_their_share() -> None:
    taken = effort_of_blocks(8.0, {"blocks.patience": 1e6, "blocks.most": 0.6}, SCARCER)
    assert 0.3 * 8.0 < taken <= 0.6 * 8.0


@pytest.mark.parametrize(
    ("instance", "reason"),
    [
        (uniform(2, 1, (10, 12, 8)), "too few microbatches"),
        (uniform(2, 8, (10, 12, 8), link_occupancy=11), "links"),
        (uniform(2, 8, (10, 12, 8), overlapped=15), "pairs"),
        (uniform(2, 8, (10, 12, 8), iterations=2), "flushes"),
        (uniform(2, 8, (10, 12, 8), classes=[MicrobatchClass(7), MicrobatchClass(1, 11)]), "differ"),
    ],
)
def test_what_is_out_of_reach_is_said_in_one_line_and_the_start_is_kept(
    instance: Instance, reason: str
) -> None:
    incumbent = incumbent_of(instance)
    first = incumbent.schedule
    ended = search_blocks(instance, UNLIMITED, incumbent)
    assert ended.end is End.UNSUITED
    assert reason in ended.text
    assert "\n" not in ended.text
    assert incumbent.schedule is first


def test_the_method_tells_why_it_left_the_start_as_it_is() -> None:
    instance = uniform(2, 1, (10, 12, 8))
    result = solve(instance, "block", effort=5, workers=1, warm_start=None)
    assert result.schedule is not None
    assert result.schedule == retime(instance, serial_order(instance))
    assert "too few microbatches" in result.reason or result.status == "optimal"


@pytest.mark.parametrize("entry", [{"overlapped": 15}, {"iterations": 2}])
def test_the_method_refuses_rules_that_it_does_not_know(entry: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(entry))):
        solve(uniform(2, 8, (10, 12, 8), **entry), "block", time_limit=1, workers=1)


def test_the_method_is_no_worse_than_its_start_and_improves_its_blocks() -> None:
    start = solve(SCARCE, "list")
    result = solve(SCARCE, "block", effort=4, workers=1)
    assert result.cost is not None
    assert start.cost is not None
    assert result.cost < start.cost
    assert result.bound is not None
    assert result.bound <= result.cost


class _Improved:
    def step(self, _: Worker) -> Outcome:
        return Ended(End.FAILED, "improved")


@pytest.mark.parametrize(("of_blocks", "reason"), [("links", "links"), ("", "improved")])
def test_the_schedule_of_the_best_block_is_improved_where_blocks_could_be_searched(
    monkeypatch: pytest.MonkeyPatch, of_blocks: str, reason: str
) -> None:
    monkeypatch.setattr(block_search, "out_of_reach", lambda *_: of_blocks)
    monkeypatch.setattr(block_search, "local_search", lambda *_: lambda _: _Improved())
    assert solve_block(SCARCE, Budget().within(5)).reason == reason


def test_the_method_keeps_a_warm_start_that_is_valid_and_refuses_others() -> None:
    start = retime(SCARCE, serial_order(SCARCE))
    result = solve_block(SCARCE, UNLIMITED.within(0), start)
    assert (result.method, result.schedule) == ("block", start)
    early = Schedule(SCARCE, start.order, start.start - 1, start.end)
    with pytest.raises(InputError, match="warm start"):
        solve_block(SCARCE, UNLIMITED.within(0), early)
