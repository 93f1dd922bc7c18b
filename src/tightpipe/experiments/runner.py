"""The pending solves of a store are run on an executor until none is left.

An executor runs solves on this machine, on a Dask cluster, or in jobs of Slurm. It submits them to a thread
pool or to Dask, and tells how many run at once. Dask sends solves to its workers, which may be on other
machines, and starts a solve again if its worker is lost.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import InputError, StoppedError
from .guarded_process import Limits, Outcome, idle_processes, run_guarded
from .store import Store
from .task import Task


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor that has been started."""

    submit: Callable[[str], Future[Outcome]]  #: starts the solve of a task's payload
    solves_at_once: Callable[[], int]  #: how many can run at once now; a cluster may grow and shrink


ExecutorContext = Callable[[Limits], AbstractContextManager[Executor]]
"""A function that takes the limits of all solves and returns a context manager."""


def local_executor(at_once: int | None) -> ExecutorContext:
    """Return a function that starts an executor on this machine."""

    @contextmanager
    def start(limits: Limits) -> Iterator[Executor]:
        count = at_once or solves_that_fit(limits.threads)
        stop = threading.Event()
        with idle_processes() as idle, ThreadPoolExecutor(count) as executor:
            try:
                yield Executor(
                    lambda payload: executor.submit(run_guarded, payload, limits, stop, idle), lambda: count
                )
            finally:
                stop.set()  # ends the solves, so that leaving the executor does not take long

    return start


def solves_that_fit(threads: int) -> int:
    """Return how many solves of `threads` threads each can run at once on the cores of this process."""
    # not every system lets a process be bound to some of its cores
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // threads)


def dask_executor(scheduler: str) -> ExecutorContext:
    """Return a function that starts an executor on the workers of a running Dask scheduler."""
    distributed = _needed("distributed")

    @contextmanager
    def start(limits: Limits) -> Iterator[Executor]:
        try:
            client = distributed.Client(scheduler, set_as_default=False)
        except (OSError, ValueError) as error:
            rule = f"no Dask scheduler answers there: {error}"
            raise InputError(rule, key="scheduler", value=scheduler) from None
        with client:
            yield _executor_of(client, limits)

    return start


def slurm_executor(jobs: int, options: Mapping[str, Any]) -> ExecutorContext:
    """Return a function that starts an executor on Dask workers in `jobs` jobs of Slurm.

    The options are those of `dask_jobqueue.SLURMCluster`: queue, account, memory, walltime and so on. `cores`
    is the number of solves that a job runs at once; a job books as many CPUs as these solves have threads.
    """
    jobqueue, distributed = _needed("dask_jobqueue"), _needed("distributed")

    @contextmanager
    def start(limits: Limits) -> Iterator[Executor]:
        try:
            cores = options.get("cores", 1)
            usual = {"cores": cores, "processes": 1, "job_cpu": cores * limits.threads}
            # any free port: another sweep may have taken the usual one, of which Dask would warn
            usual["scheduler_options"] = {"dashboard_address": ":0"}
            cluster = jobqueue.SLURMCluster(**{**usual, **options})
        except (TypeError, ValueError) as error:
            raise InputError(f"not options of a Slurm cluster: {error}", key="slurm", value=options) from None
        with cluster, distributed.Client(cluster, set_as_default=False) as client:
            cluster.scale(jobs=jobs)
            yield _executor_of(client, limits)

    return start


def _executor_of(client: Any, limits: Limits) -> Executor:
    executor = client.get_executor(pure=False)

    def solves_at_once() -> int:
        try:
            return sum(client.nthreads().values())
        except OSError as error:
            raise StoppedError(f"the Dask scheduler no longer answers: {error}") from None

    return Executor(lambda payload: executor.submit(run_guarded, payload, limits), solves_at_once)


def _needed(module: str) -> Any:
    try:
        return __import__(module)
    except ImportError:
        rule = "is not installed; pip install 'tightpipe[dask]'"
        raise InputError(rule, key="executor", value=module) from None


_BEAT = 0.5  # seconds between two looks at the store
_BEATS_PER_RENEWAL = 4

Watch = Callable[[Task, Outcome | None, int], None]
"""A function of a task, its outcome (None when it is claimed), and how many solves can run at once."""


def run_sweep(store: Store, executor: ExecutorContext, limits: Limits, watch: Watch) -> None:
    """Run all pending solves of the store's grid, and wait for those that other processes run.

    If Ctrl-C or a full disk ends the run early, the solves that it was running become pending again, at the
    latest when their leases run out. Raise a StoppedError if the store can no longer be written, or the
    executor no longer runs solves; the store is kept.
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
            found = [packed for key in task.after if (packed := self.store.schedule(key)) is not None]
            started = task.started_from(found) if found else task
            self.futures[self.executor.submit(started.payload)] = task

    def _finish(self, task: Task, future: Future[Outcome]) -> None:
        try:
            outcome = future.result()
        except CancelledError:
            raise StoppedError("the executor has cancelled its solves") from None
        except Exception as error:  # the executor raises it, e.g. because too many workers died of this solve
            outcome = Outcome({"state": "failed", "error": f"{type(error).__name__}: {error}"})
        if self.store.finish(task.row.key, self.owner, outcome.values, outcome.schedule):
            self.watch(task, outcome, self.executor.solves_at_once())
