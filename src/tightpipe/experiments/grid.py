"""A grid of solves: its tasks, one for every combination of the axes' values, and how they are run.

Equal tasks count once. The pending solves of a store are run on an executor until none is left. An executor
runs solves on this machine, on a Dask cluster, or in jobs of Slurm. It submits them to a thread pool or to
Dask, and tells how many run at once. Dask sends solves to its workers, which may be on other machines, and
starts a solve again if its worker is lost.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from ..base.cores import usable_cores
from ..base.errors import InputError, StoppedError
from ..model.costs import Objective
from ..model.instance import Instance
from ..model.metrics import largest_work, memory_of_1f1b, peak_of_1f1b
from ..model.placement import Placement
from ..model.result import Status
from ..registry.methods import Method, find_method
from ..settings import with_median_costs
from .axes import OF_1F1B, Change, HoldsNothingError
from .experiment import Entry, Experiment, Problem
from .experiment_file import located
from .guarded_process import Limits, Outcome, idle_processes, run_guarded
from .placing import Backwards, Copies, dealt, placed, restricted
from .store import Store
from .task import Row, Task, make_task

BEST = "best"
"""The warm start of a search that starts from the best schedule that is known."""


def tasks_of(experiment: Experiment, path: str | Path) -> list[Task]:
    """Return the experiment's tasks; an error names the line in `path`, the experiment's file."""
    try:
        return combine(experiment)
    except InputError as error:
        raise located(error, path) from None


def combine(experiment: Experiment) -> list[Task]:
    """Return the tasks of an experiment, which need not come from a file."""
    tasks = {task.row.key: task for task in _combine(experiment)}
    _refuse_empty([task.row for task in tasks.values()])
    known = {_asked(task.row): task for task in tasks.values()}
    made: dict[str, Task] = {}
    return [_following(task, known, made) for task in tasks.values()]


def _refuse_empty(rows: Sequence[Row]) -> None:
    """Raise an InputError if no memory limit of the grid holds a forward activation; some limits need not."""
    if rows and all(row.state == "done" for row in rows):
        first = rows[0]
        key = "memory_of_1f1b" if first.memory.endswith(OF_1F1B) else "memory"
        raise InputError(f"does not fit {first.problem}: {first.reason}", key=key, value=first.memory)


def _asked(row: Row) -> Row:
    """Return the row without what only names it, so that rows of the same solve are equal."""
    return replace(row, key="", name="")


def _following(task: Task, known: Mapping[Row, Task], made: dict[str, Task]) -> Task:
    """Let a search start from the schedules of searches whose results it can only undercut, too.

    No span exceeds the makespan, so a search for the best span follows the same search for the best makespan.
    One among all schedules follows those among schedules whose backwards are all fused or all split, or in
    which nothing leaves, so its result is never worse than theirs. A task that does not start from the best
    schedule stays as it is. `made` has the tasks that this function has returned, by their former keys.
    """
    if task.row.key not in made:
        first = {name: known[row] for name, row in _first(task) if row in known}
        others = {name: _following(other, known, made) for name, other in first.items()}
        made[task.row.key] = task.following(others) if others else task
    return made[task.row.key]


def _first(task: Task) -> Iterator[tuple[str, Row]]:
    """Yield the names and rows of the searches that a task follows, if the grid has them."""
    if task.row.warm_start == BEST and task.row.objective == Objective.DEVICE_SPAN:
        yield str(Objective.MAKESPAN), _asked(task.with_makespan().row)
    if task.row.warm_start == BEST and task.row.backwards == Backwards.ANY:
        for backwards in (Backwards.FUSED, Backwards.SPLIT):
            yield str(backwards), _asked(replace(task.row, backwards=str(backwards)))
    if task.row.warm_start == BEST and task.row.copies == Copies.ANY:
        yield "no copies", _asked(replace(task.row, copies=str(Copies.NONE)))


_OF_THE_MODEL = ("devices", "microbatches", "uneven", "comm", "discount")
_OF_THE_PLACED = ("offload", "memory", "objectives")
"""The axes that change the model, and those that then change what is asked of it in its placement."""


def _combine(experiment: Experiment) -> Iterator[Task]:
    entries = [(entry, find_method(entry.method)) for entry in experiment.methods]
    axes = (*_OF_THE_MODEL, *_OF_THE_PLACED)
    changes = list(product(*(getattr(experiment, axis) for axis in axes)))
    for problem, chosen in product(experiment.problems, changes):
        by_axis = dict(zip(axes, chosen, strict=True))
        model = problem.native
        for axis in _OF_THE_MODEL:
            model = _apply(axis, by_axis[axis], model, problem)
        labels = {axis: change.label for axis, change in by_axis.items()}
        for entry, method in entries:
            instance, lacking = _placed(problem, model, entry, method), None
            for axis in _OF_THE_PLACED:
                try:
                    instance = _apply(axis, by_axis[axis], instance, problem)
                except HoldsNothingError as error:
                    lacking = error
            for task in _solves(experiment, problem, labels, entry, method, instance):
                yield task if lacking is None else replace(task, row=_without_schedule(task, lacking))


def _placed(problem: Problem, model: Instance, entry: Entry, method: Method) -> Instance:
    """Return the model in the placement in which a method solves it; see `Problem` and `Entry`."""
    name = entry.placement
    if name is None and problem.free:
        name = "v" if "v" in method.placements else method.placements[0]
    try:
        if name is None and entry.chunks is None:
            placement = model.placement
        else:
            placement = Placement(name or model.placement.name, model.devices, entry.chunks)
        if placement.name in method.placements:
            return placed(model, placement)
    except InputError as error:
        raise InputError(f"does not fit {problem.name}: {error}", key="methods", value=entry.method) from None
    rule = f"schedules placement {', '.join(method.placements)}; {problem.name} has {placement.name}"
    raise InputError(rule, key="methods", value=method.name)


def _apply(axis: str, change: Change, instance: Instance, problem: Problem) -> Instance:
    try:
        if axis == "devices" and problem.layered:
            return dealt(instance, change.label)
        return change.apply(instance)
    except HoldsNothingError:
        raise
    except InputError as error:
        rule = f"does not fit {problem.name}: {error}"
        raise InputError(rule, key=axis, value=change.label) from None


def _solves(
    experiment: Experiment,
    problem: Problem,
    labels: dict[str, str],
    entry: Entry,
    method: Method,
    instance: Instance,
) -> Iterator[Task]:
    searches = method.kind != "heuristic"
    changed = experiment.params.changed()
    said = json.dumps(changed, sort_keys=True) if changed else None
    named: dict[str, Any] = {key: labels[key] for key in ("uneven", "comm", "discount", "offload", "memory")}
    devices = range(instance.devices)
    limits = [instance.memory_limit(device) for device in devices]
    for costs, warm_start, limit, seed in product(
        experiment.costs, experiment.warm_starts, experiment.time_limits, experiment.seeds
    ):
        seen = with_median_costs(instance) if costs == "median" else instance
        median = costs == "median" and (seen != instance or experiment.keep_equal_costs)
        fewer = entry.copies is not Copies.ANY and instance.offload is not None
        other = median or fewer or entry.backwards is not Backwards.ANY
        shown = restricted(seen, entry.backwards, entry.copies) if other else None
        row = Row(
            key="",
            problem=problem.name,
            p=instance.devices,
            n=instance.microbatches,
            placement=instance.placement.name,
            chunks=instance.placement.stages_per_device,
            objective=str(instance.objective),
            comm_ticks=max(instance.comm(sender, receiver) for sender in devices for receiver in devices),
            **named,
            memory_limit=max((limit for limit in limits if limit is not None), default=None),
            memory_of_1f1b=memory_of_1f1b(instance),
            method=method.name,
            name=entry.name if entry.name != entry.method else method.name,
            backwards=str(entry.backwards),
            copies=str(entry.copies),
            costs="median" if median else "true",
            warm_start=warm_start if searches else None,
            time_limit=limit if searches else None,
            seed=seed if searches else 0,
            threads=experiment.threads if searches else 1,
            instance_hash="",
            state="pending",
            params=said,
        )
        yield make_task(row, instance, shown, experiment.max_memory, experiment.params)


def _without_schedule(task: Task, lacking: HoldsNothingError) -> Row:
    """Return the row of a task whose memory limit holds nothing: it is done, and has no schedule."""
    instance, limit = task.instance, int(lacking.value)
    return replace(
        task.row,
        state="done",
        status=str(Status.INFEASIBLE),
        reason=str(lacking),
        work=largest_work(instance),
        memory_limit=limit,
        memory_of_1f1b=limit / peak_of_1f1b(instance),
    )


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
    return max(1, usable_cores() // threads)


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
        while self.store.tally().unfinished:
            if self.futures:  # before claims: after a suspend, own leases look like those of a dead sweep
                self.store.renew(self.owner)
            self._claim()
            if self.futures:
                done, _ = wait(self.futures, _BEAT, FIRST_COMPLETED)
                for future in done:
                    self._finish(self.futures.pop(future), future)
            else:
                time.sleep(_BEAT)  # others run the rest; meanwhile a lease may run out, or a worker join

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
