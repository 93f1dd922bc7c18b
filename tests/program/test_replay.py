"""Replay: it agrees with the simulator, finds deadlocks, knows blocking, buffers and links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from helpers.cases import instances, mixed_order, random_order, serial_order, wide_instances
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import DeadlockError, InputError, Instance, Order, Schedule, retime, simulate
from tightpipe.heuristics import HEURISTICS
from tightpipe.model import metrics
from tightpipe.model.placement import PLACEMENTS
from tightpipe.program import MessageOrder, NodeType, Program, Semantics, lower, replay


@settings(deadline=None)
@given(st.one_of(instances(), wide_instances()), st.integers(0, 999))
def test_asynchronous_replay_is_the_simulation(problem: Instance, seed: int) -> None:
    for order in (random_order(problem, seed), mixed_order(problem, seed)):
        for schedule in (simulate(problem, order), retime(problem, order)):
            assert replay(lower(schedule, validation=False)).schedule == schedule


@settings(deadline=None)
@given(instances(), st.integers(0, 999), st.integers(1, 9))
def test_busy_links_delay_replay_and_simulation_alike(problem: Instance, seed: int, busy: int) -> None:
    """A program made without them posts some receives too late for a message on its way, never for others."""
    crowded = replace(problem, costs=replace(problem.costs, link_occupancy=busy))
    order = random_order(problem, seed)
    unaware, aware = simulate(problem, order), simulate(crowded, order)
    assert replay(lower(aware, validation=False)).schedule == aware
    late = replay(lower(unaware, validation=False), link_occupancy=busy, hold_first=False).schedule
    assert (late.start >= aware.start).all()
    if not any(map(any, problem.costs.comm)):
        assert late.start.tolist() == aware.start.tolist()


Timed = Callable[[Instance, Order], Schedule]
EVERY_REPLAY = list(product(Semantics, (False, True)))
GUARANTEED = [order for order in MessageOrder if order is not MessageOrder.PUBLISHED]


@settings(deadline=None)
@given(
    st.one_of(instances(max_devices=4), wide_instances(max_devices=4)),
    st.integers(0, 999),
    st.sampled_from(GUARANTEED),
    st.booleans(),
    st.booleans(),
    st.sampled_from([simulate, retime]),
)
def test_no_program_deadlocks(
    problem: Instance, seed: int, order: MessageOrder, validation: bool, waits: bool, time: Timed
) -> None:
    schedule = time(problem, mixed_order(problem, seed))
    program = lower(schedule, order=order, validation=validation, waits=waits)
    for semantics, fuse in EVERY_REPLAY:
        assert replay(program, semantics, fuse=fuse).schedule.order == schedule.order


@settings(deadline=None)
@given(instances(), st.integers(0, 999), st.sampled_from(["buffered", "asynchronous"]), st.booleans())
def test_the_published_order_needs_sends_that_return_at_once(
    problem: Instance, seed: int, semantics: str, fuse: bool
) -> None:
    schedule = simulate(problem, random_order(problem, seed))
    for waits in (False, True):
        late = replay(lower(schedule, order="published", waits=waits), semantics, fuse=fuse)
        assert (late.schedule.start >= schedule.start).all()


def method_cases() -> list[tuple[str, str]]:
    return [(name, place) for name, h in HEURISTICS.items() for place in PLACEMENTS if place in h.placements]


@pytest.mark.parametrize(("name", "place"), method_cases())
def test_every_method_runs(name: str, place: str) -> None:
    problem = Instance.uniform(
        devices=4, microbatches=8, forward=3, backward=4, weight=2, fused=5, comm=1, placement=place
    )
    schedule = retime(problem, HEURISTICS[name].make(problem))
    assert replay(lower(schedule, validation=False)).schedule == schedule
    for order in GUARANTEED:
        program = lower(schedule, order=order)
        for semantics, fuse in EVERY_REPLAY:
            assert replay(program, semantics, fuse=fuse).schedule.order == schedule.order


def small() -> Program:
    problem = Instance.uniform(
        devices=2, microbatches=2, forward=3, backward=2, weight=1, comm=1, placement="linear"
    )
    return lower(
        simulate(problem, Order.parse("F0.0 F0.1 BW0.0 BW0.1\nF1.0 BW1.0 F1.1 BW1.1")), validation=False
    )


def swapped(program: Program, device: int, first: int, second: int) -> Program:
    nodes = list(program.devices[device])
    nodes[first], nodes[second] = nodes[second], nodes[first]
    devices = list(program.devices)
    devices[device] = tuple(nodes)
    return Program(program.instance, tuple(devices))


def without(program: Program, device: int, position: int) -> Program:
    devices = list(program.devices)
    devices[device] = devices[device][:position] + devices[device][position + 1 :]
    return Program(program.instance, tuple(devices))


def changed(program: Program, device: int, position: int, **fields: object) -> Program:
    devices = [list(nodes) for nodes in program.devices]
    devices[device][position] = replace(devices[device][position], **fields)  # type: ignore[arg-type]
    return Program(program.instance, tuple(map(tuple, devices)))


def position(program: Program, device: int, token: str) -> int:
    return [str(node) for node in program.devices[device]].index(token)


def test_a_deadlock_names_the_cycle() -> None:
    program = small()
    swap = (position(program, 0, "SEND_FORWARD.0.1.0"), position(program, 0, "RECV_BACKWARD.0.1.0"))
    with pytest.raises(DeadlockError) as error:
        replay(swapped(program, 0, *swap), "buffered")
    assert str(error.value) == (
        "devices wait for each other: device 0 at RECV_BACKWARD of stage 0, microbatch 1, waits for device 1 "
        "to send it; device 1 at RECV_FORWARD of stage 1, microbatch 1, waits for device 0 to send it"
    )


@pytest.mark.parametrize("fuse", [False, True])
def test_the_published_order_deadlocks_in_post_validation_where_sends_wait(fuse: bool) -> None:
    problem = Instance.uniform(devices=2, microbatches=2, forward=3, backward=2, weight=1, comm=1)
    schedule = simulate(problem, serial_order(problem))
    with pytest.raises(DeadlockError) as error:
        replay(lower(schedule, order="published"), "blocking", fuse=fuse)
    assert str(error.value) == (
        "devices wait for each other: "
        "device 0 at SEND_FORWARD of stage 0, microbatch 0, waits for device 1 to receive it; "
        "device 1 at SEND_POST_VALIDATION of stage 1, microbatch 0, waits for device 0 to receive it"
    )
    replay(lower(schedule), "blocking", fuse=fuse)


def test_blocking_costs_what_the_sender_waits() -> None:
    problem = Instance.uniform(
        devices=2, microbatches=2, forward=(1, 5), backward=1, weight=1, comm=2, placement="linear"
    )
    order = Order.parse("F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\nF1.0 B1.0 W1.0 F1.1 B1.1 W1.1")
    schedule = simulate(problem, order)
    program = lower(schedule, validation=False, order="in-order")
    assert replay(program, "asynchronous").schedule.start.tolist()[:2] == [0, 1]
    # F0.0 ends at 1 and its send returns with the transfer, at 3: F0.1 starts then
    assert replay(program, "blocking").schedule.start.tolist()[:2] == [0, 3]


def test_a_link_carries_one_message_at_a_time() -> None:
    problem = Instance.uniform(
        devices=2, microbatches=2, forward=1, backward=1, weight=1, comm=2, placement="linear"
    )
    order = Order.parse("F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\nF1.0 F1.1 B1.0 W1.0 B1.1 W1.1")
    program = lower(simulate(problem, order), validation=False)
    free = replay(program).schedule
    busy = replay(program, link_occupancy=4, hold_first=False).schedule
    assert free.start[6:8].tolist() == [3, 4]
    assert busy.start[6:8].tolist() == [3, 7]  # the link is free again at 1 + 4, and the way takes 2


def test_what_a_program_lacks() -> None:
    program = small()
    with pytest.raises(InputError, match="received 0 times"):
        replay(without(program, 1, position(program, 1, "RECV_FORWARD.0.0.0")))
    with pytest.raises(InputError, match=r"F0\.1 is missing"):
        replay(without(program, 0, position(program, 0, "F.0.1.0")))
    received = position(program, 1, "RECV_FORWARD.0.0.0")
    with pytest.raises(InputError, match="before the receive of its input"):
        replay(swapped(program, 1, received, position(program, 1, "F.0.0.0")))
    with pytest.raises(InputError, match=r"stands before F1\.0 of its own device"):
        replay(swapped(program, 1, position(program, 1, "F.0.0.0"), position(program, 1, "BW.0.0.0")))
    moved = replace(program.devices[0][0], device=1)
    with pytest.raises(InputError, match="stands in the program of device 0"):
        replay(Program(program.instance, ((moved, *program.devices[0][1:]), program.devices[1])))
    with pytest.raises(InputError, match=r"F0\.0 has chunk 5, its stage has 0 there"):
        replay(changed(program, 0, position(program, 0, "F.0.0.0"), chunk=5))
    for token in ("BW.0.1.0", "F.0.0.0", "SEND_FORWARD.0.0.0"):
        with pytest.raises(InputError, match=r"is joined with .*: only an F and a B or BW after it are"):
            replay(changed(program, 0, position(program, 0, token), joined=True))
    waiting = lower(replay(program).schedule, validation=False, waits=True)
    at = position(waiting, 1, "WAIT_FORWARD.0.0.0")
    twice = (*waiting.devices[1][:at], waiting.devices[1][at], *waiting.devices[1][at:])
    with pytest.raises(InputError, match="is waited for 2 times"):
        replay(Program(program.instance, (waiting.devices[0], twice)))
    with pytest.raises(InputError, match="blocking, buffered, asynchronous"):
        replay(program, "eager")
    with pytest.raises(InputError, match="link_occupancy"):
        replay(program, link_occupancy=-1)


def test_waits_are_counted_and_validation_takes_part() -> None:
    program = small()
    timed = replay(program)
    assert sum(timed.waited) > 0
    assert timed.cost == metrics.cost(timed.schedule)
    with_validation = lower(timed.schedule)
    assert NodeType.POST_VALIDATION in [n.type for n in with_validation.devices[1]]
    assert replay(with_validation).cost >= timed.cost


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("F", "SEND_FORWARD", "SEND_FORWARD': stands before F0.0, whose result it sends"),
        ("RECV_BACKWARD", "WAIT_BACKWARD", "WAIT_BACKWARD': stands before its receive"),
    ],
)
def test_what_is_sent_has_run_and_what_is_waited_for_is_received(
    first: str, second: str, message: str
) -> None:
    """The two nodes of device 0, in this sequence in the program, change places."""
    problem = Instance.uniform(devices=2, microbatches=1, forward=1, backward=1, weight=1, placement="linear")
    program = lower(simulate(problem, serial_order(problem)), validation=False, waits=True)
    nodes = list(program.devices[0])
    i, j = (next(k for k, node in enumerate(nodes) if node.type == kind) for kind in (first, second))
    assert j == i + 1
    nodes[i], nodes[j] = nodes[j], nodes[i]
    with pytest.raises(InputError, match=message):
        replay(replace(program, devices=(tuple(nodes), *program.devices[1:])))


def test_empty_stages_have_no_program() -> None:
    """A stage without time would send before it has received."""
    costs = {"forward": [5, 0, 7], "backward": [6, 0, 8], "weight": [4, 0, 3]}
    problem = Instance.uniform(devices=3, microbatches=1, placement="linear", **costs)
    with pytest.raises(InputError, match="forward = 0: must be above 0 at every stage of a program"):
        lower(simulate(problem, serial_order(problem)))
