"""Run a store's pending solves on an engine until none is left."""

from __future__ import annotations

import os
import platform
import time
import uuid
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field

from ...core.errors import StoppedError
from .engine import Engine, EngineContext
from .guarded_process import Limits, Outcome
from .store import Store
from .task import Task

_BEAT = 0.5  # seconds between two looks at the store
_BEATS_PER_RENEWAL = 4

Watch = Callable[[Task, Outcome | None, int], None]
"""Called with each task that is claimed, and again with its outcome; last, how many run at once."""


def run_sweep(store: Store, engine: EngineContext, limits: Limits, watch: Watch) -> None:
    """Run all solves of the store's grid that are pending, and wait for those of other sweeps.

    What ends this early, Ctrl-C or a full disk, ends the solves in work and gives their claims back.

    Raises
    ------
    StoppedError
        If the store can no longer be written; what it holds is kept.
    """
    owner = f"{platform.node()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
    try:
        with engine(limits) as running:
            _Loop(store, running, owner, watch).run()
    finally:
        store.release(owner)


@dataclass(slots=True)
class _Loop:
    store: Store
    engine: Engine
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
                time.sleep(_BEAT)  # the rest is in work elsewhere; a claim may run out, a worker come
            beat += 1
            if beat % _BEATS_PER_RENEWAL == 0:
                self.store.renew(self.owner)

    def _claim(self) -> None:
        slots = self.engine.slots()
        for _ in range(slots - len(self.futures)):
            task = self.store.claim(self.owner)
            if task is None:
                return
            self.watch(task, None, slots)
            self.futures[self.engine.submit(task.payload)] = task

    def _finish(self, task: Task, future: Future[Outcome]) -> None:
        try:
            outcome = future.result()
        except CancelledError:
            raise StoppedError("the engine has given its solves up") from None
        except Exception as error:  # the engine's, e.g. that too many workers died of this solve
            outcome = Outcome({"state": "failed", "error": f"{type(error).__name__}: {error}"})
        if self.store.finish(task.row.key, self.owner, outcome.values, outcome.schedule):
            self.watch(task, outcome, self.engine.slots())
