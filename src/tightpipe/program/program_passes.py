"""The overlap passes are applied to whole programs, and a replay checks the program after each pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..base.errors import DeadlockError, InputError, check_choice
from ..model.instance import Instance
from ..model.metrics import busy_times, peak_memory
from ..model.schedule import Schedule
from .lowering import lower
from .passes import PASSES
from .program import Node, NodeType, Program
from .replay import Replay, Step, device_steps, replay
from .tasks import Task, TaskKind, Tasks, exposed_time

_FORMS = {"SEND": TaskKind.START, "RECV": TaskKind.START, "WAIT": TaskKind.WAIT, "": TaskKind.COMPUTE}


def device_tasks(program: Program, device: int) -> Tasks:
    """Return the program of a device, lowered with ``waits=True`` and ``validation=False``, as tasks."""
    nodes = program.devices[device]
    if any("POST_VALIDATION" in node.type for node in nodes):
        raise InputError("overlap passes take programs that are lowered with validation=False")
    waits = {node.message for node in nodes if node.type.action == "WAIT"}
    if any(node.type.action == "RECV" and node.message not in waits for node in nodes):
        raise InputError("overlap passes take programs that are lowered with waits=True")
    steps = device_steps(program.instance, device, nodes, fuse=False)
    owner = {_key(node): _name(step) for step in steps for node in step.nodes}
    return tuple(_task(program.instance, step, owner) for step in steps)


def reordered(program: Program, orders: Sequence[Tasks]) -> Program:
    """Return the program with the nodes of each device in the sequence of its task list in `orders`."""
    devices = []
    for device, tasks in enumerate(orders):
        steps = device_steps(program.instance, device, program.devices[device], fuse=False)
        by_name = {_name(step): step.nodes for step in steps}
        devices.append(tuple(node for task in tasks for node in by_name[task.name]))
    return Program(program.instance, tuple(devices))


def _task(instance: Instance, step: Step, owner: dict[str, str]) -> Task:
    node = step.nodes[0]
    action = node.type.action
    keys = (key for n in step.nodes for key in _input_keys(n) if key in owner)
    duration = step.duration
    if action in ("SEND", "RECV"):
        duration = instance.comm(node.message.sender, node.message.receiver)
    return Task(
        name=_name(step),
        kind=_FORMS[action],
        duration=duration,
        inputs=tuple(dict.fromkeys(owner[key] for key in keys)),
        peer=f"device {node.peer}" if action else "",
        ready=node.start if action == "RECV" else 0,
        memory=sum(instance.memory_of(n.operation) for n in step.nodes if n.type.is_compute),
    )


def _key(node: Node) -> str:
    return f"{node.type}{node.stage}.{node.microbatch}"


def _name(step: Step) -> str:
    return "+".join(map(_key, step.nodes))


def _input_keys(node: Node) -> Iterator[str]:
    """Yield the keys of all nodes that can be a direct input of a node; a device has only some of them."""
    here, m = node.stage, node.microbatch
    if node.type.action == "WAIT":
        yield f"RECV_{node.type.subject}{here}.{m}"
    elif node.type in (NodeType.F, NodeType.SEND_FORWARD):
        sends = node.type is NodeType.SEND_FORWARD
        yield from (f"F{here}.{m}",) if sends else (f"WAIT_FORWARD{here}.{m}", f"F{here - 1}.{m}")
    elif node.type is NodeType.SEND_BACKWARD:
        yield from (f"B{here}.{m}", f"BW{here}.{m}")
    elif node.type.is_compute:
        if node.type is NodeType.W:
            yield f"B{here}.{m}"  # without a B, a W waits for what a B would wait for
        yield from (f"WAIT_BACKWARD{here}.{m}", f"B{here + 1}.{m}", f"BW{here + 1}.{m}", f"F{here}.{m}")


PROGRAM_PASSES = ("sink_waits", "raise_comms")


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """What a pass changed on a program.

    The new program is discarded if devices would deadlock, wait longer in sum, end later, or exceed a memory
    limit by more than before; the values after the pass are then those before.
    """

    name: str
    waited_before: int  #: ticks that devices stand still in a replay until their last operation ends, in sum
    waited_after: int
    end_before: int  #: when the last operation ends in a replay, in ticks
    end_after: int
    kept: bool  #: whether the new program was taken


def overlap_program(
    schedule: Schedule, passes: Sequence[str] = PROGRAM_PASSES, *, budget: int | None = None
) -> tuple[Program, list[ProgramReport]]:
    """Lower a schedule with a wait right behind each receive, then apply passes to all devices.

    Parameters
    ----------
    schedule
        A valid schedule.
    passes
        Names of the passes in `PASSES`.
    budget
        Largest allowed peak memory of a device, in the unit of the instance, for the passes whose names end
        in `within_memory`. None takes the peak before the pass, which is always allowed.

    Returns
    -------
    tuple
        The program, and one report per pass.

    Raises
    ------
    InputError
        If a pass is unknown.
    """
    program = lower(schedule, validation=False, waits=True)
    timed, reports = replay(program), []
    for name in passes:
        check_choice("passes", name, *PASSES)
        devices = [device_tasks(program, d) for d in range(len(program.devices))]
        changed = reordered(program, [_apply(name, tasks, budget) for tasks in devices])
        after = _improved(timed, changed)
        reports.append(_report(name, timed, after))
        if after is not None:
            program, timed = changed, after
    return program, reports


def _apply(name: str, tasks: Tasks, budget: int | None) -> Tasks:
    changed = PASSES[name](tasks, budget)
    return changed if exposed_time(changed) <= exposed_time(tasks) else tasks


def _improved(before: Replay, changed: Program) -> Replay | None:
    """Return the replay of `changed`; None if the changed program is discarded (see `ProgramReport.kept`)."""
    try:
        after = replay(changed)
    except DeadlockError:
        return None
    worse = any(new > old for new, old in zip(_waited_and_end(after), _waited_and_end(before), strict=True))
    return None if worse or _exceeds(before.schedule, after.schedule) else after


def _waited_and_end(timed: Replay) -> tuple[int, int]:
    schedule = timed.schedule
    rows = map(schedule.order.rows, range(schedule.order.devices))
    ends = [int(schedule.end[r].max()) for r in rows]
    return sum(ends) - int(busy_times(schedule).sum()), max(ends)


def _exceeds(before: Schedule, after: Schedule) -> bool:
    """Return whether a device needs more memory than before and more than its limit."""
    limits = map(after.instance.memory_limit, range(after.instance.devices))
    peaks = zip(limits, peak_memory(before), peak_memory(after), strict=True)
    return any(limit is not None and new > max(old, limit) for limit, old, new in peaks)


def _report(name: str, before: Replay, after: Replay | None) -> ProgramReport:
    waited, end = _waited_and_end(before)
    waited_after, end_after = _waited_and_end(after or before)
    return ProgramReport(name, waited, waited_after, end, end_after, after is not None)
