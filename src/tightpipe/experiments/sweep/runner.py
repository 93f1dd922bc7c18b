"""The pending solves of a store are run on an executor until none is left."""

from __future__ import annotations

import os
import platform
import time
import uuid
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field

from ...core.errors import StoppedError
from .executor import Executor, ExecutorContext
from .guarded_process import Limits, Outcome
from .store import Store
from .task import Task

_BEAT = 0.5  # seconds between two looks at the store
_BEATS_PER_RENEWAL = 4

Watch = Callable[[Task, Outcome | None, int], None]
"""A function that is called when a task is claimed and when it ends.

The first argument is the task. The second one is None when the task is claimed, and the task's outcome
when the task ends. The third one is how many solves the executor can run at once.
"""


def run_sweep(store: Store, executor: ExecutorContext, limits: Limits, watch: Watch) -> None:
    """Run all pending solves of the store's grid, and wait for those that other processes run.

    If Ctrl-C or a full disk ends the run early, the solves that it was running become pending again, at the
    latest when their leases run out.

    Raises
    ------
    StoppedError
        If the store can no longer be written, or the executor no longer runs solves; the store is kept.
    """
    owner = f"{platform.node()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    try:
        with executor(limits) as running:
            _Loop(store, running, owner, watch).run()
    finally:
        store.release(owner)


@dataclass(slots=True)
class _Loop:
    store: Store
    executor: Executor
    owner: str
    watch: Watch
    futures: dict[Future[Outcome], Task] = field(default_factory=dict)

    def run(self) -> None:
        beat = 0
        while self.store.tally().unfinished:
            self._claim()
            if self.futures:
                done, _ = wait(self.futures, _BEAT, FIRST_COMPLETED)
                for future in done:
                    self._finish(self.futures.pop(future), future)
            else:
                time.sleep(_BEAT)  # others run the rest; meanwhile a lease may run out, or a worker join
            beat += 1
            if beat % _BEATS_PER_RENEWAL == 0:
                self.store.renew(self.owner)

    def _claim(self) -> None:
        at_once = self.executor.solves_at_once()
        for _ in range(at_once - len(self.futures)):
            task = self.store.claim(self.owner)
            if task is None:
                return
            self.watch(task, None, at_once)
            self.futures[self.executor.submit(self._started(task).payload)] = task

    def _started(self, task: Task) -> Task:
        """Return the task with the schedule of the task that it waited for, if that one has found any."""
        return task if task.after is None else task.started_from(self.store.schedule(task.after))

    def _finish(self, task: Task, future: Future[Outcome]) -> None:
        try:
            outcome = future.result()
        except CancelledError:
            raise StoppedError("the executor has cancelled its solves") from None
        except Exception as error:  # the executor raises it, e.g. because too many workers died of this solve
            outcome = Outcome({"state": "failed", "error": f"{type(error).__name__}: {error}"})
        if self.store.finish(task.row.key, self.owner, outcome.values, outcome.schedule):
            self.watch(task, outcome, self.executor.solves_at_once())
