"""Solves run in processes of their own, which are killed if they take too much memory or time.

Run as a program, this file is such a process: it reads tasks from standard input and writes JSON lines to
standard output. Each line is ``{"trace": [seconds, cost, bound]}`` or, at the end of a solve, ``{"values":
..., "schedule": ..., "ready": ...}``. After a heuristic the process is ready for another task, because
starting Python and loading compiled loops takes much longer than most heuristics; it waits if the caller
gives a list in which to keep it. A solver may leave threads and memory behind, so the process ends after any
other method. Standard input stays open while the parent lives; when it closes, the process ends itself and
all that it has started, so that a killed sweep leaves nothing behind.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

from ..base.child import Child
from ..base.cores import usable_cores
from ..base.errors import InputError
from ..base.interruption import ended_by_signals, raise_again
from ..base.sources import engine_version
from ..kernels.compiled import compile_ahead, ensure_compiled
from ..model.instance import Instance
from ..model.instance_file import instance_from_dict
from ..model.metrics import costs
from ..model.operation import OpKind
from ..model.result import Result
from ..model.schedule import Order
from ..model.simulate import retime
from ..params.solve_params import params_from_dict
from ..registry.methods import find_method
from ..registry.solve import solve
from ..registry.starts import WarmStart
from .placing import Backwards, Copies, restored, restricted, shown_order
from .task import Value, loops_of_payload, pack, unpack

_GIB = 2**30
_LOOK = 0.2  # seconds between two looks at the process
_SHARE = 0.9  # share of the machine's memory that all solves together may take


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits at which a solve is killed."""

    seconds: float  #: wall seconds that the solve may take
    memory: float | None  #: GiB of all its processes; None for nine tenths of its share of the machine's
    threads: int  #: of the solve; the share is that of the cores that they occupy

    @property
    def bytes(self) -> int:
        """The memory limit on this machine, in bytes."""
        import psutil  # late: a process that runs a heuristic starts without it

        if self.memory is not None:
            return int(self.memory * _GIB)
        share = min(1.0, self.threads / (os.cpu_count() or 1))  # others may run on the other cores
        return int(psutil.virtual_memory().total * _SHARE * share)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended."""

    values: dict[str, Value]  #: the values of the task's row that are known only after the solve, by column
    schedule: bytes | None = None  #: the schedule as `task.pack` returns it; None if there is none


@dataclass(slots=True)
class _Answers:
    """The answers that a process has written so far about the task that it runs."""

    trace: list[list[float | int | None]] = field(default_factory=list)
    values: dict[str, Value] | None = None
    schedule: bytes | None = None
    ready: bool = False  # whether the process waits for another task

    def take(self, answer: dict[str, Any]) -> None:
        if "trace" in answer:
            self.trace.append(answer["trace"])
            return
        self.values, packed = answer["values"], answer["schedule"]
        self.schedule = None if packed is None else base64.b64decode(packed)
        self.ready = answer["ready"]


Idle = list[Child]
"""Processes that have run heuristics and wait for another solve."""


@contextmanager
def idle_processes() -> Iterator[Idle]:
    """Yield a list in which to keep processes between solves, and end these processes when the block ends."""
    idle: Idle = []
    try:
        yield idle
    finally:
        for process in idle:
            process.end()


def run_guarded(
    payload: str, limits: Limits, stop: threading.Event | None = None, idle: Idle | None = None
) -> Outcome:
    """Run a task's payload, one line of JSON, in a process of `idle` or a new one, and return the outcome.

    If the process crashes or is killed, at a limit or as another thread sets `stop`, the outcome says so.
    """
    with suppress(ValueError, LookupError, TypeError):  # the process says what is wrong with a payload
        # here, so that compiling on a new machine does not count towards the hard limit
        compile_ahead(loops_of_payload(payload))
    answers = _Answers()
    with _process(idle, answers, limits) as process:
        process.tell(payload)
        killed = _watch(process, answers, limits, stop)
        error = killed or (None if answers.ready else process.fault())
    where: dict[str, Value] = {
        "trace": json.dumps(answers.trace) if answers.trace else None,
        "host": platform.node(),
        "cores": usable_cores(),
        "python_version": platform.python_version(),
        "finished_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if answers.values is not None:  # also of a process that was killed as it did not end
        values: dict[str, Value] = {"state": "done", "error": None, **answers.values, **where}
        return Outcome(values, answers.schedule)
    return Outcome({"state": "failed", "error": error, **where})


@contextmanager
def _process(idle: Idle | None, answers: _Answers, limits: Limits) -> Iterator[Child]:
    """Yield an idle or a new process, and then keep the process in `idle` or end it."""
    with ExitStack() as stack:
        process = stack.enter_context(_waiting(idle) or Child("-m", "tightpipe.experiments.guarded_process"))
        yield process
        # memory that the process still holds must not bring the next solve to its limit
        if idle is not None and answers.ready and process.memory < limits.bytes / 2:
            stack.pop_all()
            idle.append(process)


def _waiting(idle: Idle | None) -> Child | None:
    """Return an idle process that is still alive; None if `idle` has no such process or is None."""
    with suppress(IndexError):  # another thread may take the last one
        while idle:
            process = idle.pop()
            if not process.dead:
                return process
            process.end()
    return None


def _watch(child: Child, answers: _Answers, limits: Limits, stop: threading.Event | None) -> str:
    """Take answers to the end of the solve; at a limit or if `stop` is set, kill it and return why."""
    most, look, reason = limits.bytes, time.monotonic(), ""
    deadline = look + limits.seconds
    while True:
        for line in child.lines(_LOOK):
            answers.take(json.loads(line))
        if answers.ready or child.ended:
            return reason
        now = time.monotonic()
        if reason or now < look:
            continue
        look = now + _LOOK  # not after each line: to see the memory takes milliseconds
        if stop is not None and stop.is_set():
            reason = "stopped"
        elif now > deadline:
            reason = f"killed at its hard limit of {limits.seconds:g} s"
        elif child.memory > most:
            reason = f"killed at its memory limit of {most / _GIB:.3g} GiB"
        if reason:
            child.kill()  # the next lines are those that it had written before


_RESULTS = (
    *("cost", "work", "bubble", "bubble_rate", "imbalance"),
    *("bound", "proof", "gap", "peak_memory", "seconds"),
)


def main() -> None:
    """Run the tasks of standard input, up to the first one that runs a solver."""
    tasks: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_receive, args=(tasks,), daemon=True).start()
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # other output goes to standard error from now on

        def tell(**line: Any) -> None:
            answers.write(json.dumps(line) + "\n")
            answers.flush()

        try:
            with ended_by_signals():
                while _answer(tasks.get(), tell):
                    pass
        except InputError as error:  # the parent takes the last line of standard error as the reason
            sys.exit(str(error))
        except KeyboardInterrupt:
            sys.exit("ended by a signal")


def _receive(tasks: SimpleQueue[dict[str, Any]]) -> None:
    """Read tasks until the parent is gone, and then end this process and all that it has started."""
    # not sys.stdin, which Python could not close at its end while this thread reads it
    with os.fdopen(os.dup(0)) as lines:
        for line in lines:
            tasks.put(json.loads(line))
    os.killpg(0, signal.SIGKILL)  # the parent made this process the leader of a group


def _answer(data: dict[str, Any], tell: Callable[..., None]) -> bool:
    """Run a task, write its trace and its result with `tell`, and return whether another task may follow."""
    _refuse_other_engine(data)
    # before the solve, so that its time does not include their loading
    find_method(data["method"]).load()
    ensure_compiled(loops_of_payload(json.dumps(data)))
    before = sum(os.times()[:4])  # processor seconds, also of processes that have ended
    result, narrower = _run(data, lambda e: tell(trace=[round(e.seconds, 3), e.cost, e.bound]))
    spent = sum(os.times()[:4]) - before
    raise_again(result.reason)  # a solve that a signal to this process ended early has no result
    # not ready if the method saw other costs than the true ones: a solver has then judged its schedule
    ready = find_method(data["method"]).kind == "heuristic" and data["shown"] is None
    packed = None if result.schedule is None else pack(result.schedule, result.method, result.bound)
    tell(
        values={**_values(result), "cpu_seconds": round(spent, 3), "backwards_bound": narrower},
        schedule=None if packed is None else base64.b64encode(packed).decode(),
        ready=ready,
    )
    return ready


def _refuse_other_engine(data: dict[str, Any]) -> None:
    asked = data.get("engine", engine_version())
    if asked != engine_version():
        raise InputError(f"is that of the sweep; here is {engine_version()}", key="engine", value=asked)


def _run(data: dict[str, Any], progress: Any) -> tuple[Result, int | None]:
    """Return the result of a task, and the bound of only those schedules that it asks for, if any."""
    instance, backwards = instance_from_dict(data["instance"]), _backwards(data)
    if data["shown"] is None:
        return _solve(instance, data, _warm_start(instance, data), progress), None
    seen = instance_from_dict(data["shown"])
    shown = _solve(seen, data, _warm_start(seen, data))
    if shown.schedule is None:  # a bound of what the method sees is none of the instance
        return replace(shown, bound=None, proof=None), None
    result = _judged(instance, shown, restored(instance, shown.schedule.order, backwards), data)
    asked = restricted(instance, backwards, Copies(data.get("copies", Copies.ANY)))
    return result, shown.bound if seen == asked != instance else None


def _backwards(data: dict[str, Any]) -> Backwards:
    return Backwards(data.get("backwards", Backwards.ANY))


def _warm_start(instance: Instance, data: dict[str, Any]) -> WarmStart:
    """Return the warm start that a task names and, where the task has some, the schedules of other solves."""
    named: str | None = None if data["warm_start"] == "none" else data["warm_start"]
    orders = (unpack(base64.b64decode(packed)).order for packed in data.get("starts", ()))
    starts = [retime(instance, shown_order(order, _backwards(data))) for order in orders]
    return (*starts, named) if starts else named


def _judged(instance: Instance, shown: Result, order: Order, data: dict[str, Any]) -> Result:
    retimed = retime(instance, order)
    # without time for a search, cpsat returns the schedule with the bound that needs no search
    judged = _solve(instance, {**data, "method": "cpsat", "time_limit": 0.0}, retimed)
    return replace(judged, method=shown.method, seconds=shown.seconds, log=(), reason=shown.reason)


def _solve(instance: Instance, data: dict[str, Any], warm_start: WarmStart, progress: Any = None) -> Result:
    return solve(
        instance,
        data["method"],
        time_limit=data["time_limit"],
        workers=data["threads"],
        seed=data["seed"],
        warm_start=warm_start,
        max_memory=data.get("max_memory"),
        params=params_from_dict(data.get("params", {})),
        progress=progress,
    )


def _values(result: Result) -> dict[str, Any]:
    values = {name: getattr(result, name) for name in _RESULTS}
    about = {"status": str(result.status), "reason": result.reason or None}
    other = {} if result.schedule is None else costs(result.schedule)
    return {**values, **other, **about, "splits": _splits(result)}


def _splits(result: Result) -> int | None:
    """Return how many backwards the schedule of a result runs as B and W apart; None without a schedule."""
    if result.schedule is None:
        return None
    instance = result.instance
    operations: list[list[int]] = result.schedule.order.operations.tolist()
    return sum(k == OpKind.W and instance.has(OpKind.BW, s, instance.mb_class(m)) for k, s, m in operations)


if __name__ == "__main__":
    main()
