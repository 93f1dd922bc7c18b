"""This program runs solves: it reads tasks from standard input and writes JSON lines to standard output.

Each line is ``{"trace": [seconds, cost, bound]}`` or, at the end of a solve, ``{"values": ..., "schedule":
..., "ready": ...}``. After a heuristic the process is ready for another task, because starting Python and
loading compiled loops takes much longer than most heuristics. A solver may leave threads and memory behind,
so the process ends after any other method. Standard input stays open while the parent lives; when it closes,
this process ends itself and all that it has started, so that a killed sweep leaves nothing behind.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from ..base.errors import InputError
from ..base.interruption import raise_again
from ..base.sources import engine_version
from ..model.instance import Instance
from ..model.instance_file import instance_from_dict
from ..model.metrics import costs
from ..model.operation import OpKind
from ..model.result import Result
from ..model.schedule import Order
from ..model.simulate import retime
from ..params.solve_params import params_from_dict
from ..registry.ensure_compiled import ensure_compiled
from ..registry.methods import find_method
from ..registry.solve import solve
from ..registry.starts import WarmStart
from .placing import Backwards, Copies, restored, restricted, shown_order
from .task import loops_of_payload, pack, unpack

_RESULTS = (
    *("cost", "work", "bubble", "bubble_rate", "imbalance", "bound", "proof", "gap"),
    *("peak_memory", "seconds"),
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
    """Raise an InputError if the task is for another engine than the one that runs here."""
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
    """Evaluate for `instance` an order that was found for another instance, and return the result."""
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
