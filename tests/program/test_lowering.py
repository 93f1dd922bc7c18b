"""Lowering: the golden programs, every placement, where communication stands."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from helpers.cases import instances, random_order, serial_order
from helpers.golden import GOLDEN, golden_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Order, retime, simulate
from tightpipe.heuristics.greedy_v import greedy_v_order
from tightpipe.program import MessageOrder, NodeType, check_program, lower


@pytest.mark.sampled(5)
@pytest.mark.parametrize("row", GOLDEN, ids=lambda r: f"p{r['p']}-n{r['n']}-{r['f']}-m{r['m_offset']}")
def test_golden_program(row: dict[str, Any]) -> None:
    problem = golden_instance(row)
    program = lower(simulate(problem, greedy_v_order(problem)), order="published")
    assert program.sha256 == row["program_sha256"]
    if "program" in row:
        assert str(program).splitlines() == row["program"]


@settings(deadline=None)
@given(instances(), st.integers(0, 999), st.sampled_from(MessageOrder), st.booleans(), st.booleans())
def test_any_schedule_becomes_a_complete_program_of_the_same_order(
    problem: Instance, seed: int, messages: MessageOrder, validation: bool, waits: bool
) -> None:
    order = random_order(problem, seed)
    for schedule in (simulate(problem, order), retime(problem, order)):
        program = lower(schedule, order=messages, validation=validation, waits=waits)
        check_program(program)
        assert program.order == order


def test_an_unknown_message_order_lists_the_orders() -> None:
    problem = Instance.uniform(devices=2, microbatches=1, forward=1, backward=1, weight=1)
    with pytest.raises(
        InputError, match="order = 'seed': must be one of early-receives, in-order, published"
    ):
        lower(simulate(problem, serial_order(problem)), order="seed")


def test_neighbours_on_one_device_do_not_communicate() -> None:
    problem = Instance.uniform(devices=2, microbatches=1, forward=1, backward=1, weight=1)
    program = lower(simulate(problem, serial_order(problem)), validation=False)
    sent = [str(n) for nodes in program.devices for n in nodes if n.type.action == "SEND"]
    assert sorted(sent) == [
        "SEND_BACKWARD.0.0.0",
        "SEND_BACKWARD.1.0.0",
        "SEND_FORWARD.0.0.0",
        "SEND_FORWARD.1.0.0",
    ]
    alone = Instance.uniform(devices=1, microbatches=2, forward=1, backward=1, weight=1, placement="wave")
    program = lower(simulate(alone, serial_order(alone)))
    assert not any(n.type.action for nodes in program.devices for n in nodes)


def test_each_end_of_a_message_has_its_own_chunk() -> None:
    problem = Instance.uniform(devices=2, microbatches=1, forward=1, backward=1, weight=1, placement="loop")
    program = lower(simulate(problem, serial_order(problem)), validation=False)
    assert str(program) == (
        "F.0.0.0 SEND_FORWARD.0.0.0 RECV_FORWARD.1.0.0 F.1.0.0 SEND_FORWARD.1.0.0 RECV_BACKWARD.1.0.0 "
        "B.1.0.0 SEND_BACKWARD.1.0.0 RECV_BACKWARD.0.0.0 W.1.0.0 B.0.0.0 W.0.0.0\n"
        "RECV_FORWARD.0.0.0 F.0.0.0 SEND_FORWARD.0.0.0 RECV_FORWARD.1.0.0 F.1.0.0 B.1.0.0 "
        "SEND_BACKWARD.1.0.0 RECV_BACKWARD.0.0.0 W.1.0.0 B.0.0.0 SEND_BACKWARD.0.0.0 W.0.0.0"
    )


def test_pairs_stay_together() -> None:
    problem = Instance.uniform(
        devices=2, microbatches=2, forward=1, backward=1, weight=1, placement="bidirectional", comm=1
    )
    text = "F0.0 F1.1+BW1.1 BW0.0\nF0.1 F1.0+BW1.0 BW0.1"
    with pytest.raises(Exception, match="wait"):
        simulate(problem, Order.parse(text))  # a B cannot run together with its own F
    order = Order.parse("F0.0 F1.1 BW1.1 BW0.0\nF0.1 F1.0 BW1.0 BW0.1")
    assert lower(simulate(problem, order)).order == order
    four = Instance.uniform(
        devices=2, microbatches=4, forward=1, backward=1, weight=1, placement="bidirectional", overlapped=2
    )
    paired = Order.parse(
        "F0.0 F0.1 F1.2 F1.3+BW1.2 BW1.3 BW0.0 BW0.1\nF0.2 F0.3 F1.0 F1.1+BW1.0 BW1.1 BW0.2 BW0.3"
    )
    program = lower(simulate(four, paired))
    assert program.order.to_slots() == paired.to_slots()
    assert [n.joined for n in program.devices[0] if n.type.is_compute].count(True) == 1


def test_validation_runs_once_per_device_and_marks_what_it_may_roll_back() -> None:
    row = GOLDEN[0]
    problem = golden_instance(row)
    program = lower(simulate(problem, greedy_v_order(problem)))
    for device, nodes in enumerate(program.devices):
        types = [n.type for n in nodes]
        assert types.count(NodeType.POST_VALIDATION) == 1
        assert (NodeType.SEND_POST_VALIDATION in types) == (device > 0)
        assert (NodeType.RECV_POST_VALIDATION in types) == (device < problem.devices - 1)
        assert any(n.rollback for n in nodes) == (device > 0)


def test_text_hash_is_that_of_the_tokens() -> None:
    problem = Instance.uniform(devices=2, microbatches=2, forward=3, backward=2, weight=1, comm=1)
    program = lower(simulate(problem, serial_order(problem)))
    assert program.sha256 == hashlib.sha256(str(program).encode()).hexdigest()
