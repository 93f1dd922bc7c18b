"""Each rule that narrows windows, alone: what it decides of an item where no other rule decides anything.

All windows are wide open but for what a test narrows by hand; then the rules of one item are applied once. An
item is named by its queue and its number in it, as an operation by its microbatch: ``F0.3``.
"""

from dataclasses import replace

import numpy as np
import pytest
from helpers.exact_cases import one_stage, plain_memory, v_instance, with_busy_links

from tightpipe import Instance, Objective, OpKind
from tightpipe.solver.queues import queues_of
from tightpipe.solver.windows.agenda_kernel import (
    clear,
    due,
    exclude,
    leaves_by,
    leaves_from,
    push,
    push_earlier,
    push_later,
    put_after,
    put_before,
    suppose,
)
from tightpipe.solver.windows.orders_kernel import narrow_orders
from tightpipe.solver.windows.propagate_kernel import narrow_times
from tightpipe.solver.windows.window_state_kernel import (
    RECORDING,
    WindowState,
    open_state,
    under_horizon,
    undo,
)
from tightpipe.solver.windows.windows import apply_rules

WIDE = 10_000
COSTS = 10, 12, 8, 1  # F, B, W, message
LINE = one_stage(2, 4, COSTS, 100)  # stage 0 on device 0, stage 1 on device 1
WORK = 4 * (10 + 12 + 8)
V = v_instance(2, 4, COSTS, plain_memory(100))  # stages 0 and 3 on device 0; their W's share a queue
LONG = one_stage(2, 40, (100, 12, 1, 1), 100)  # W's are short
BUSY = with_busy_links(V, 15)  # F0 and B3 send over the link from device 0 to device 1


class Opened:
    """Open windows of an instance; items and queues by name."""

    def __init__(self, instance: Instance, horizon: int = WIDE) -> None:
        self.queues = queues_of(instance)
        self.arrays = under_horizon(self.queues.instance, horizon)
        self.state = open_state(self.arrays, horizon)

    def queue(self, name: str) -> int:
        """The queue that holds a kind of operation of a stage: ``W3``."""
        return self.queues.index[OpKind[name[0]], 0, int(name[1:])]

    def item(self, name: str) -> int:
        queue, rank = name.split(".")
        return int(self.arrays.graph.first[self.queue(queue)]) + int(rank)

    def local(self, name: str) -> int:
        return int(self.arrays.graph.queues["local"][self.queue(name)])

    def before(self, name: str, queue: str) -> int:
        """How many elements of the queue surely precede the item."""
        return int(self.state.before[self.item(name), self.local(queue)])

    def after(self, name: str, queue: str) -> int:
        """The first element of the queue that surely follows the item."""
        return int(self.state.after[self.item(name), self.local(queue)])

    def earliest(self, name: str) -> int:
        return int(self.state.earliest[self.item(name)])

    def latest(self, name: str) -> int:
        return int(self.state.latest[self.item(name)])

    def let_precede(self, name: str, **counts: int) -> None:
        """Let so many elements of each queue precede the item, as far as the item itself knows."""
        for queue, count in counts.items():
            self.state.before[self.item(name), self.local(queue)] = count

    def let_follow(self, name: str, **firsts: int) -> None:
        """Let the elements of each queue from a first one on follow the item, as far as the item knows."""
        for queue, first in firsts.items():
            self.state.after[self.item(name), self.local(queue)] = first

    def let_start(self, *names: str, earliest: int | None = None, latest: int | None = None) -> None:
        for name in names:
            if earliest is not None:
                self.state.earliest[self.item(name)] = earliest
            if latest is not None:
                self.state.latest[self.item(name)] = latest

    def narrow_orders(self, name: str) -> bool:
        return bool(narrow_orders(self.arrays, self.state, self.item(name)))

    def narrow_times(self, name: str) -> bool:
        return bool(narrow_times(self.arrays, self.state, self.item(name)))

    def waiting(self) -> set[int]:
        return set(np.flatnonzero(self.state.waiting).tolist())

    def items(self, *names: str) -> set[int]:
        return {self.item(name) for name in names}


def test_what_precedes_an_item_precedes_the_next_of_its_queue() -> None:
    case = Opened(LINE)
    case.let_precede("F0.2", W0=1)
    assert case.narrow_orders("F0.3")
    assert case.before("F0.3", "W0") == 1


def test_what_follows_an_item_follows_the_previous_of_its_queue() -> None:
    case = Opened(LINE)
    case.let_follow("F0.3", W0=1)
    assert case.narrow_orders("F0.2")
    assert case.after("F0.2", "W0") == 1


def test_what_precedes_a_predecessor_precedes() -> None:
    case = Opened(LINE)
    case.let_precede("F0.3", B0=2)
    case.let_precede("B0.1", W0=1)
    assert case.narrow_orders("F0.3")
    assert case.before("F0.3", "W0") == 1


def test_what_follows_a_follower_follows() -> None:
    case = Opened(LINE)
    case.let_follow("W0.0", B0=2)
    case.let_follow("B0.2", F0=3)
    assert case.narrow_orders("W0.0")
    assert case.after("W0.0", "F0") == 3


def test_no_item_precedes_itself() -> None:
    case = Opened(LINE)
    case.let_precede("F0.2", B0=1)
    case.let_precede("B0.0", F0=3)
    assert not case.narrow_orders("F0.2")


def test_no_item_follows_itself() -> None:
    case = Opened(LINE)
    case.let_follow("W0.1", F0=3)
    case.let_follow("F0.3", W0=1)
    assert not case.narrow_orders("W0.1")


def test_no_more_weights_of_a_pool_precede_than_backwards_that_fill_it() -> None:
    case = Opened(V)
    case.let_follow("F0.3", B0=1, B3=1)
    assert case.narrow_orders("F0.3")
    assert case.after("F0.3", "W0") == 2


def test_weights_of_a_pool_that_precede_bring_backwards_along() -> None:
    case = Opened(V)
    case.let_precede("F0.3", W0=3)
    case.let_follow("F0.3", B0=1)
    assert case.narrow_orders("F0.3")
    assert (case.before("F0.3", "B0"), case.before("F0.3", "B3")) == (0, 2)


def test_a_weight_of_a_pool_follows_as_many_backwards() -> None:
    case = Opened(V)
    case.let_follow("W0.3", B0=1)
    assert case.narrow_orders("W0.3")
    assert (case.before("W0.3", "B0"), case.before("W0.3", "B3")) == (0, 3)


def test_a_backward_does_not_fill_the_pool_of_weights_before_it() -> None:
    case = Opened(V)
    case.let_follow("B0.1", B3=2)
    assert case.narrow_orders("B0.1")
    assert case.after("B0.1", "W0") == 3


def test_memory_makes_backwards_and_weights_precede() -> None:
    case = Opened(one_stage(2, 4, COSTS, 3))
    assert case.narrow_orders("F0.2")
    assert (case.before("F0.2", "B0"), case.before("F0.2", "W0")) == (1, 1)


def test_memory_makes_forwards_follow() -> None:
    case = Opened(v_instance(2, 4, COSTS, plain_memory(5)))
    case.let_follow("F3.1", B0=1, B3=1)
    assert case.narrow_orders("F3.1")
    assert case.after("F3.1", "F0") == 2


def test_what_does_not_fit_into_memory_is_impossible() -> None:
    case = Opened(v_instance(2, 4, COSTS, plain_memory(4)))
    case.let_follow("F3.1", B0=0, B3=0)
    case.let_precede("F3.1", F0=3)
    assert not case.narrow_orders("F3.1")


def test_what_must_start_before_the_item_can_end_precedes() -> None:
    case = Opened(LINE)
    case.let_start("W0.0", latest=9)
    assert case.narrow_orders("F0.3")
    assert case.before("F0.3", "W0") == 1


def test_what_cannot_end_before_the_item_must_start_follows() -> None:
    case = Opened(LINE)
    case.let_start("F0.3", latest=100)
    case.let_start("W0.2", earliest=93)
    assert case.narrow_orders("F0.3")
    assert case.after("F0.3", "W0") == 2


def test_an_item_both_before_and_after_is_impossible() -> None:
    case = Opened(LINE)
    case.let_precede("F0.3", W0=2)
    case.let_follow("F0.3", W0=1)
    assert not case.narrow_orders("F0.3")


def test_a_message_that_must_leave_before_the_items_can_precedes() -> None:
    case = Opened(BUSY)
    case.let_start("B2.0", latest=40)  # B3.0 must send by 39, a message after that of F0.1 leaves from 40 on
    assert case.narrow_orders("F0.1")
    assert case.before("F0.1", "B3") == 1


def test_a_message_that_cannot_leave_before_the_items_must_follows() -> None:
    case = Opened(BUSY)
    case.let_start("F1.3", latest=501)  # F0.3 must send by 500, a message before it by 485
    case.let_start("B3.2", earliest=474)
    assert case.narrow_orders("F0.3")
    assert case.after("F0.3", "B3") == 2


def test_a_message_that_leaves_too_late_is_impossible() -> None:
    case = Opened(BUSY)
    case.let_start("F1.3", latest=55)  # the fourth message leaves from 10 + 3 * 15 on, and travels for a tick
    assert not case.narrow_orders("F0.3")


def test_no_more_work_precedes_than_there_is_time_for() -> None:
    case = Opened(LINE)
    case.let_start("F0.3", latest=42)  # 30 ticks for the F's before it, 12 for others
    assert case.narrow_orders("F0.3")
    assert (case.after("F0.3", "B0"), case.after("F0.3", "W0")) == (1, 1)


def test_as_much_work_precedes_as_idle_time_leaves() -> None:
    case = Opened(LINE, WORK + 5)
    case.let_start("F0.3", earliest=90 + 5 - 12)  # all that may precede is 90 ticks long
    assert case.narrow_orders("F0.3")
    assert (case.before("F0.3", "B0"), case.before("F0.3", "W0")) == (2, 2)


def test_more_work_than_there_is_time_for_is_impossible() -> None:
    case = Opened(LINE)
    case.let_start("F0.3", latest=29)
    assert not case.narrow_orders("F0.3")


def test_more_idle_time_than_there_is_is_impossible() -> None:
    case = Opened(LINE, WORK + 5)
    case.let_start("F0.3", earliest=90 + 5 + 1)
    assert not case.narrow_orders("F0.3")


def test_who_is_put_before_knows_of_it() -> None:
    case = Opened(LINE)
    put_before(case.arrays, case.state, case.item("F0.2"), case.local("W0"), 2)
    assert case.before("F0.2", "W0") == 2
    assert (case.after("W0.0", "F0"), case.after("W0.1", "F0")) == (2, 2)
    assert case.waiting() == case.items("F0.3", "W0.0", "W0.1")


def test_who_is_put_after_knows_of_it() -> None:
    case = Opened(LINE)
    put_after(case.arrays, case.state, case.item("W0.1"), case.local("F0"), 2)
    assert case.after("W0.1", "F0") == 2
    assert (case.before("F0.2", "W0"), case.before("F0.3", "W0")) == (2, 2)
    assert case.waiting() == case.items("W0.0", "F0.2", "F0.3")


def test_an_item_whose_orders_were_narrowed_is_looked_at_again() -> None:
    case = Opened(LINE)
    case.let_precede("F0.2", W0=1)
    assert case.narrow_orders("F0.3")
    assert case.waiting() == case.items("F0.3", "W0.0", "B0.0")  # a B precedes its W
    clear(case.state)
    case.let_follow("W0.2", F0=3)
    assert case.narrow_orders("W0.1")
    assert case.waiting() == case.items("W0.1", "W0.0", "F0.3", "B0.3")


@pytest.mark.parametrize(("follows", "supposed", "left"), [(True, (0, 0), (1, 3)), (False, (3, 3), (0, 2))])
def test_a_supposition_and_its_contrary(
    follows: bool, supposed: tuple[int, int], left: tuple[int, int]
) -> None:
    case = Opened(LINE)
    at = case.item("F0.3"), case.local("W0")
    case.state.counter[RECORDING] = 1
    opened = case.state.value.copy()
    suppose(case.arrays, case.state, *at, follows)
    assert (case.before("F0.3", "W0"), case.after("F0.3", "W0")) != (0, 3)
    assert supposed in {(case.before("F0.3", "W0"),) * 2, (case.after("F0.3", "W0"),) * 2}
    assert case.item("F0.3") in case.waiting()
    undo(case.state)
    assert (case.state.value == opened).all()
    exclude(case.arrays, case.state, *at, follows)
    assert (case.before("F0.3", "W0"), case.after("F0.3", "W0")) == left


def test_an_item_waits_for_the_previous_of_its_queue() -> None:
    """However many short operations lie between the two, of which only a few are looked at together."""
    case = Opened(LONG)
    case.let_precede("F0.20", W0=17)
    case.let_start(*(f"W0.{rank}" for rank in range(17)), earliest=5001)
    case.let_start("F0.19", earliest=5000)
    assert case.narrow_times("F0.20")
    assert case.earliest("F0.20") == 5000 + 100


def test_an_item_leaves_time_for_the_next_of_its_queue() -> None:
    case = Opened(LONG)
    case.let_start(*(f"W0.{rank}" for rank in range(20, 40)), latest=5050)
    case.let_start("F0.21", latest=5000)
    assert case.narrow_times("F0.20")
    assert case.latest("F0.20") == 5000 - 100


def test_an_item_waits_for_what_it_needs() -> None:
    case = Opened(LINE)
    case.let_start("F0.1", earliest=50)
    assert case.narrow_times("F1.1")
    assert case.earliest("F1.1") == 61


def test_an_item_leaves_time_for_what_needs_it() -> None:
    case = Opened(LINE)
    case.let_start("F1.1", latest=100)
    assert case.narrow_times("F0.1")
    assert case.latest("F0.1") == 89


def test_an_item_waits_for_a_message_that_waits_for_its_link() -> None:
    case = Opened(BUSY)
    assert case.narrow_times("F1.3")
    assert case.earliest("F1.3") == 10 + 3 * 15 + 1  # all four F's can end at 10


def test_an_item_leaves_time_for_the_messages_after_its_own() -> None:
    case = Opened(BUSY)
    case.let_start("F1.3", latest=501)
    assert case.narrow_times("F0.2")
    assert case.latest("F0.2") == 500 - 15 - 10


def test_a_message_that_leaves_later_wakes_its_receiver() -> None:
    case = Opened(BUSY)
    for rank in range(4):
        case.let_start(f"F0.{rank}", earliest=10 * rank, latest=500)
    assert case.narrow_times("F0.3")
    assert case.waiting() == case.items("F1.3")
    clear(case.state)
    case.let_start("F1.3", earliest=56)
    assert case.narrow_times("F0.3")
    assert case.waiting() == set()


def test_an_item_waits_for_all_work_that_precedes_it() -> None:
    case = Opened(LINE)
    case.let_precede("F0.2", B0=1, W0=1)
    case.let_start("B0.0", earliest=99)
    case.let_start("W0.0", earliest=100)
    assert case.narrow_times("F0.2")
    assert case.earliest("F0.2") == 99 + 12 + 8


def test_an_item_leaves_time_for_all_work_that_follows_it() -> None:
    case = Opened(LINE)
    case.let_follow("F0.1", B0=0, W0=0)
    case.let_start("W0.0", latest=200)
    case.let_start("B0.0", latest=205)
    assert case.narrow_times("F0.1")
    assert case.latest("F0.1") == 205 + 12 - (12 + 8) - 10


def frame(case: Opened, device: int) -> tuple[int, int]:
    return int(case.state.frame_earliest[device]), int(case.state.frame_latest[device])


def test_a_frame_starts_in_time_for_what_precedes_an_item() -> None:
    case = Opened(LINE)
    case.let_start("F1.3", latest=100)
    assert case.narrow_times("F1.3")
    assert frame(case, 1)[1] == 100 - 30
    assert case.waiting() >= case.items(
        *(f"{queue}.{rank}" for queue in ("F1", "B1", "W1") for rank in range(4))
    )


def test_a_frame_starts_no_more_than_work_and_idle_time_before_an_item() -> None:
    case = Opened(LINE, WORK + 5)
    case.let_start("F1.3", earliest=200)
    assert case.narrow_times("F1.3")
    assert frame(case, 1) == (200 - 90 - 5, WORK + 5)


def test_a_frame_starts_with_the_item_that_opens_its_device() -> None:
    case = Opened(LINE, WORK + 5)
    case.let_start("F1.0", earliest=60)
    assert case.narrow_times("F1.0")
    assert frame(case, 1) == (60, WORK + 5)


def test_the_item_that_opens_a_device_starts_with_its_frame() -> None:
    case = Opened(LINE, WORK + 5)
    case.state.frame_latest[1] = 40
    assert case.narrow_times("F1.0")
    assert case.latest("F1.0") == 40


def test_an_item_starts_after_its_frame_and_the_work_before_it() -> None:
    case = Opened(LINE, WORK + 5)
    case.state.frame_earliest[1] = 50
    assert case.narrow_times("F1.3")
    assert case.earliest("F1.3") == 50 + 30


def test_an_item_starts_before_work_and_idle_time_are_over() -> None:
    case = Opened(LINE, WORK + 5)
    case.state.frame_latest[1] = 0
    assert case.narrow_times("F1.3")
    assert case.latest("F1.3") == 90 + 5


def test_a_frame_that_would_start_after_itself_is_impossible() -> None:
    case = Opened(LINE, WORK + 5)
    opened = frame(case, 1)
    case.let_start("F1.3", earliest=400, latest=1000)
    assert not case.narrow_times("F1.3")
    assert frame(case, 1) == opened


def test_an_item_that_can_start_at_no_time_is_impossible() -> None:
    case = Opened(LINE)
    case.let_start("F0.1", earliest=50)
    case.let_start("F1.1", latest=60)
    assert not case.narrow_times("F1.1")


def test_a_later_start_wakes_what_follows() -> None:
    case = Opened(LINE)
    push_later(case.arrays, case.state, case.item("F0.1"))
    assert case.waiting() == case.items("F0.1", "F0.2", "F1.1", "B0.1", "W0.1")


def test_an_earlier_start_wakes_what_precedes() -> None:
    case = Opened(LINE)
    push_earlier(case.arrays, case.state, case.item("B0.2"))
    assert case.waiting() == case.items("B0.2", "B0.1", "B1.2", "F0.2")


def test_a_start_that_moves_wakes_the_others() -> None:
    case = Opened(LINE)
    case.let_start("F0.1", earliest=50)
    assert case.narrow_times("F0.2")
    assert case.waiting() >= case.items("F0.2", "F0.3", "F1.2")
    clear(case.state)
    case.let_start("B0.3", latest=500)
    assert case.narrow_times("B0.2")
    assert case.waiting() >= case.items("B0.2", "B0.1", "B1.2")


def test_frames_float_around_the_anchor_or_not_at_all() -> None:
    spans = Opened(LINE, 200).state
    assert (spans.frame_earliest.tolist(), spans.frame_latest.tolist()) == ([0, -200], [0, 200])
    whole = Opened(replace(LINE, objective=Objective.MAKESPAN), 200).state
    assert (whole.frame_earliest.tolist(), whole.frame_latest.tolist()) == ([0, 0], [0, 0])


def test_propagation_narrows_orders_and_then_times() -> None:
    case = Opened(LINE)
    case.let_precede("F0.1", W0=1)
    case.let_start("W0.0", earliest=100)
    push(case.state, case.item("F0.2"))
    assert apply_rules(case.arrays, case.state, 1)
    assert case.before("F0.2", "W0") == 1
    assert case.earliest("F0.2") == 108


def test_propagation_stops_where_a_trail_is_full() -> None:
    case = Opened(LINE)
    state: WindowState = case.state._replace(trail=case.state.trail[: 4 * len(case.state.agenda) - 1])
    push(state, 0)
    state.counter[RECORDING] = 1
    assert apply_rules(case.arrays, state, 10)
    assert state.waiting[0]
    state.counter[RECORDING] = 0
    assert apply_rules(case.arrays, state, 10)
    assert not state.waiting[0]


def leaves(case: Opened, name: str) -> tuple[int, int]:
    """The least and the largest time at which the message of an item leaves."""
    at = case.arrays, case.state, case.item(name)
    return leaves_from(*at), leaves_by(*at)


def test_a_message_leaves_after_all_that_surely_precede_it_on_its_link() -> None:
    case = Opened(BUSY)
    assert leaves(case, "F0.0")[0] == 10
    assert leaves(case, "F0.3")[0] == 10 + 3 * 15  # F0.0 to F0.2 can end at 10
    case.let_precede("F0.3", W0=2)
    assert leaves(case, "F0.3")[0] == 10 + 3 * 15  # a W sends nothing
    case.let_precede("F0.3", B3=1)
    assert leaves(case, "F0.3")[0] == 10 + 4 * 15
    case.let_start("F0.0", "F0.1", "F0.2", earliest=30)
    assert leaves(case, "F0.3")[0] == 40 + 3 * 15  # B3.0 can leave before, at 12
    case.let_start("B3.0", earliest=80)
    assert leaves(case, "F0.3")[0] == 80 + 12 + 15


def test_a_message_leaves_before_all_that_surely_follow_it_on_its_link() -> None:
    case = Opened(BUSY)
    case.let_start("F1.1", "F1.2", "F1.3", latest=501)
    assert due(case.arrays, case.state, case.item("F0.3")) == 500
    assert leaves(case, "F0.3")[1] == 500
    assert leaves(case, "F0.1")[1] == 500 - 2 * 15
    case.let_follow("F0.1", W0=0)
    assert leaves(case, "F0.1")[1] == 500 - 2 * 15  # a W sends nothing
    case.let_start("B2.1", "B2.2", "B2.3", latest=501)
    assert leaves(case, "F0.3")[1] == 500 - 15  # B3.3 needs the same microbatch
    assert leaves(case, "F0.1")[1] == 500 - 5 * 15
    case.let_start("B2.1", latest=301)
    assert leaves(case, "F0.1")[1] == 300 - 15
    case.let_start("B2.1", latest=501)
    case.let_start("B2.2", latest=301)  # as wide as before for a set of messages that begins with B3.1
    assert leaves(case, "F0.1")[1] == 500 - 5 * 15
