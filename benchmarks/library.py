"""Fill the library of instances, search on instances that are not closed, and renew the library's page.

An instance is closed if its best cost equals its bound, and the checker of certificates verifies both.
``python benchmarks/library.py`` enters instances that library/ does not have, each with the cheapest schedule
of all heuristics and the bound of the formulas. Then it enters what the studies under results/ have found for
instances of the library, as far as their stores are there. A schedule is also entered for the same instance
with more memory, and a bound for the same instance with less, if they are better than what is there. Then the
script runs `best` on instances whose best cost exceeds the bound, and searches for missing certificates. It
can be interrupted: an instance that was searched for ``--time-limit`` seconds or more is not searched again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tightpipe import Instance, Offload, Result, Schedule, Step, certify, solve
from tightpipe.base.sources import engine_version
from tightpipe.experiments.store import open_store
from tightpipe.experiments.task import Row, unpack
from tightpipe.library import Claim, Library, Record, State, submit
from tightpipe.model.result import Proof, Status
from tightpipe.model.schedule_file import schedule_to_dict
from tightpipe.registry.methods import all_methods
from tightpipe.settings import load_realistic, load_settings, with_lengths
from tightpipe.solver.bounds.formulas import best_bound

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))
from helpers.small_instances import known_optima, small_instance  # noqa: E402  # in no package

LIBRARY, RESULTS = ROOT / "library", ROOT / "results"
_BY = "tightpipe"
_PUBLISHED, _FRONTIER = (1, 1.5, 2, 3), (0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3)  # limits in p activations
_SMALL = 60  # random instances
_OF_A_FAMILY = 20  # wide instances
_SHAPES = (((2, 4), (2, 6), (3, 3), (3, 5), (4, 4)), ((8, 16), (8, 24), (12, 24), (16, 32)))
"""Devices and microbatches of wide instances: of those with even numbers, and of those with odd ones."""
_ZBV, _ZB = "Qi et al., arXiv:2405.15362", "the costs of its setting 1.5B-8x24"


@dataclass(frozen=True, slots=True)
class Entry:
    """An instance for the library, with its identifier, its family and where it comes from."""

    id: str
    family: str
    source: str
    instance: Instance


def entries() -> list[Entry]:
    """Return an entry for each instance of the families published, realistic, random, frontier and `_WIDE`.

    An instance that is in several of them has its entry in the first one.
    """
    found: dict[Instance, Entry] = {}
    for entry in (*_published(), *_realistic(), *_random(), *_frontier(), *_wide()):
        found.setdefault(entry.instance, entry)
    return list(found.values())


def _published() -> Iterator[Entry]:
    for name, setting in load_settings().items():
        for limit in _PUBLISHED:
            instance = setting.instance(int((limit - 2) * setting.devices))
            yield Entry(f"{name}-{limit}p", "published", f"{_ZBV}, at {limit}p activations", instance)


def _frontier() -> Iterator[Entry]:
    for p in (4, 8, 16):
        setting = replace(load_settings()["1.5B-8x24"], devices=p, microbatches=3 * p)
        for limit in _FRONTIER:
            source = f"{_ZBV}, {_ZB} on {p} devices, at {limit}p activations"
            name = f"frontier-{p}x{3 * p}-{limit}p"
            yield Entry(name, "frontier", source, setting.instance(int((limit - 2) * p)))


def _realistic() -> Iterator[Entry]:
    for name, row in load_realistic().items():
        yield Entry(name, "realistic", "src/tightpipe/settings/realistic.toml", row.instance())


def _random() -> Iterator[Entry]:
    for known in known_optima()[:_SMALL]:
        source = f"tests/helpers/small_instances.py, seed {known.seed}"
        yield Entry(f"random-{known.seed}", "random", source, small_instance(known.seed))


def _wide() -> Iterator[Entry]:
    """Yield the instances of the wide families: the costs of a published setting with one rule more.

    Instances with even numbers are small, those with odd numbers have 8 to 16 devices. A device holds 0.75 to
    2 times the activations that 1F1B takes there.
    """
    for family, widen in _WIDE.items():
        for number in range(_OF_A_FAMILY):
            rng = random.Random(f"{family} {number}")
            devices, microbatches = rng.choice(_SHAPES[number % 2])
            setting = rng.choice(list(load_settings().values()))
            resized = replace(setting, devices=devices, microbatches=microbatches)
            offset = rng.randint(-devices // 2, 2 * devices)
            objective = rng.choice(("device_span", "makespan"))
            plain = resized.instance(offset, objective, rng.choice(_PLACES.get(family, ("v", "linear"))))
            made = f"benchmarks/library.py, {family} {number}"
            source = f"{_ZBV}, the costs of its setting {setting.name}; {made}"
            yield Entry(f"{family}-{number}", family, source, widen(plain, rng))


def _with_fused(instance: Instance, rng: random.Random) -> Instance:
    """Return the instance with fused backwards that take 5 to 20 % less than B and W apart."""
    costs: Any = instance.costs
    share = rng.uniform(0.8, 0.95)
    fused = [round(share * (b + w)) for b, w in zip(costs.backward, costs.weight, strict=True)]
    return replace(instance, costs=replace(costs, fused=fused))


def _with_classes(instance: Instance, rng: random.Random) -> Instance:
    """Return the instance with microbatches of 0.5, 0.75 and 1 times its length, at least one of each."""
    n = instance.microbatches
    half, some = sorted(rng.sample(range(1, n), 2))
    unequal = with_lengths(instance, [0.5] * half + [0.75] * (some - half) + [1] * (n - some))
    classes = [replace(one, count=len([*alike])) for one, alike in groupby(unequal.classes)]
    return replace(unequal, classes=classes)


def _with_step(instance: Instance, rng: random.Random) -> Instance:
    """Return the instance as a step with gathered parameters, reductions and optimizers of random lengths."""
    forward = max(instance.costs.forward)  # type: ignore[type-var, arg-type]
    ready = [rng.randint(0, forward) for _ in range(instance.stages)]
    reduce = [rng.randint(0, 2 * forward) for _ in range(instance.stages)]
    optimizer = [rng.randint(0, forward) for _ in range(instance.devices)]
    return replace(instance, objective="step", step=Step(ready, reduce, optimizer))


def _with_offload(instance: Instance, rng: random.Random) -> Instance:
    """Return the instance with a quarter to all of its memory, where all that an F adds may leave.

    The copies out and back of an activation take together k times as long as F, B and W of its stage, with a
    k of 0.5, 1 or 2. A third of the instances are steps.
    """
    costs, memory = instance.costs, instance.memory
    k = rng.choice((0.5, 1, 2))
    work = zip(costs.forward, costs.backward, costs.weight, strict=True)  # type: ignore[arg-type]
    ticks = [max(1, round(k * sum(times) / 2)) for times in work]
    offload = Offload(memory.forward, ticks, ticks, rng.random() < 0.5)  # type: ignore[union-attr]
    share = rng.choice((0.25, 0.5, 0.75, 1))
    free = replace(instance, offload=offload)
    limit = [
        max(round(share * most), free.smallest_limit(d))  # type: ignore[operator]
        for d, most in enumerate(memory.limit)  # type: ignore[union-attr, arg-type]
    ]
    scarce = replace(free, memory=replace(memory, limit=limit))  # type: ignore[type-var]
    return _with_step(scarce, rng) if rng.random() < 1 / 3 else scarce


_WIDE: dict[str, Callable[[Instance, random.Random], Instance]] = {
    "fused": _with_fused,
    "classes": _with_classes,
    "step": _with_step,
    "offload": _with_offload,
}
"""What makes an instance wide, by family."""
_PLACES = {"offload": ("v", "linear", "loop")}
"""Placements of the instances of a family, if others than V and linear."""


class Origin(NamedTuple):
    """Where a schedule or a bound comes from: the entries of a `Claim` that say so."""

    by: str
    engine: str | None
    seconds: float | None


def _here(seconds: float) -> Origin:
    return Origin(_BY, engine_version(), round(seconds, 3))


def begin(library: Library, entry: Entry) -> None:
    """Enter an instance with the bound of the formulas and the cheapest schedule of the heuristics."""
    bound = best_bound(entry.instance)
    claim = _claim(bound.value, bound.proof, _here(bound.seconds))
    library.put(Record(entry.id, entry.family, entry.source, entry.instance, None, claim))
    enter_heuristics(library, entry.id)


def enter_heuristics(library: Library, id: str) -> None:
    """Enter the schedules of all heuristics for the instance's placement where they are better."""
    instance = library.record(id).instance
    for method in all_methods().values():
        if method.kind == "heuristic" and instance.placement.name in method.placements:
            result = solve(instance, method.name)
            enter(library, id, result, _here(result.seconds))


def enter(library: Library, id: str, result: Result, origin: Origin) -> None:
    """Enter the schedule and the bound of a result, each if it is better than the one in the library.

    `id` names the instance. A new bound has no certificate.
    """
    known = library.record(id).cost
    if result.cost is not None and (known is None or result.cost < known.value):
        _submit(library, id, schedule_to_dict(result.schedule, method=result.method), origin)
    with library.alone():
        record = library.record(id)
        if result.bound is not None and result.bound > record.bound.value:
            claim = _claim(result.bound, result.proof or Proof.FORMULA, origin)
            library.put(replace(record, bound=claim, certified=False))


def studied(library: Library) -> Iterator[tuple[str, Result, Origin]]:
    """Yield what the studies under results/ have found, each with the library's name of its instance."""
    ids = {record.instance: record.id for record in library.records()}
    for path in sorted(RESULTS.glob("*/store.sqlite")):
        with open_store(path) as store:
            for row in store.rows():
                packed = store.schedule(row.key) if row.cost is not None else None
                schedule = None if packed is None else unpack(packed)
                if schedule is not None and schedule.instance in ids:
                    yield ids[schedule.instance], _result(row, schedule), Origin(_BY, row.engine, row.seconds)


def _result(row: Row, schedule: Schedule) -> Result:
    return Result(
        *(schedule.instance, row.method, Status.FEASIBLE, schedule, row.bound),
        seconds=row.seconds or 0.0,
        proof=None if row.proof is None else Proof(row.proof),
    )


def enter_studies(library: Library) -> None:
    """Enter the schedules and bounds of the studies under results/ where they are better."""
    for found in studied(library):
        enter(library, *found)


def _submit(library: Library, id: str, content: object, origin: Origin) -> None:
    submit(library, content, id=id, **origin._asdict())


def _claim(value: int, proof: Proof, origin: Origin) -> Claim:
    return Claim(value, str(proof), date=datetime.now(UTC).date().isoformat(), **origin._asdict())


def is_left(record: Record, seconds: float) -> bool:
    """Return whether an instance is not closed, and was searched for less than `seconds`."""
    return record.state is not State.CLOSED and record.searched < seconds


def search(library: Library, id: str, seconds: float, workers: int) -> Record:
    """Run all heuristics and `best` as long as no known schedule costs as little as the bound.

    Then search for a certificate if the bound has none. `best` and this search take at most `seconds` each.
    Return the new record.
    """
    if library.record(id).state is State.OPEN:
        enter_heuristics(library, id)  # there may be new ones
    record = library.record(id)
    if record.state is State.OPEN:
        start = library.schedule(record.id) or "best"
        result = solve(record.instance, time_limit=seconds, workers=workers, warm_start=start)
        enter(library, id, result, _here(result.seconds))
        if result.reason == "interrupted":  # after Ctrl-C, a solve returns its best result
            raise KeyboardInterrupt
    record = library.record(id)
    if not record.certified:
        began = time.perf_counter()
        certificate = certify(record.instance, record.bound.value, time_limit=seconds)
        if not certificate.trusted:
            origin, known = _here(time.perf_counter() - began), record.bound.seconds
            took = None if known is None else round((origin.seconds or 0.0) + known, 3)
            _submit(library, id, certificate.to_dict(), origin._replace(seconds=took))
    with library.alone():
        record = replace(library.record(id), searched=seconds)
        library.put(record)
    return record


def share(library: Library) -> None:
    """Enter each schedule at the next larger memory limit too, and each bound at the next smaller limit.

    This is done between instances that differ only in their limit, and where the schedule or the bound is
    better than the one in the library.
    """
    groups: dict[Instance, list[str]] = {}
    for record in sorted(library.records(), key=_limit):
        memory = record.instance.memory
        if memory is not None and memory.limit is not None:
            free = replace(record.instance, memory=replace(memory, limit=None))
            groups.setdefault(free, []).append(record.id)
    for ids in groups.values():
        for less, more in pairwise(ids):
            _share_schedule(library, library.record(less), library.record(more))
        for more, less in pairwise(reversed(ids)):
            _share_bound(library, library.record(more), library.record(less))


def _limit(record: Record) -> int:
    return record.instance.memory_limit(0) or 0


def _fits(less: Record, more: Record) -> bool:
    """Return whether every device has at least as much memory in `more` as in `less`."""
    devices = range(less.instance.devices)
    return all((less.instance.memory_limit(d) or 0) <= (more.instance.memory_limit(d) or 0) for d in devices)


def _share_schedule(library: Library, less: Record, more: Record) -> None:
    better = less.cost is not None and (more.cost is None or less.cost.value < more.cost.value)
    schedule = library.schedule(less.id)
    if better and _fits(less, more) and less.cost is not None and schedule is not None:
        content = schedule_to_dict(replace(schedule, instance=more.instance), method=less.cost.method)
        _submit(library, more.id, content, Origin(less.cost.by, less.cost.engine, less.cost.seconds))


def _share_bound(library: Library, more: Record, less: Record) -> None:
    if more.bound.value > less.bound.value and _fits(less, more):
        with library.alone():
            less = library.record(less.id)
            library.put(replace(less, bound=more.bound, certified=False, searched=0.0))


def _size(record: Record) -> int:
    return record.instance.stages * record.instance.microbatches


def main() -> None:
    """Enter missing instances, and search on those that are not closed."""
    parser = argparse.ArgumentParser(description="Fill the library of instances.")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds for each search [20]")
    parser.add_argument("--workers", type=int, default=1, help="threads [1]")
    parser.add_argument("--family", help="only instances of this family")
    parser.add_argument("ids", metavar="ID", nargs="*", help="search only on these instances [on all]")
    arguments = parser.parse_args()
    all_entries = entries()
    for id in set(arguments.ids) - {entry.id for entry in all_entries}:
        parser.error(f"ID = {id!r}: the library has no such instance")
    LIBRARY.mkdir(exist_ok=True)
    library = Library(LIBRARY)
    known = {record.id for record in library.records()}
    for entry in all_entries:
        if entry.id not in known and arguments.family in (None, entry.family):
            begin(library, entry)
            print(f"{entry.id}: entered", file=sys.stderr, flush=True)
    enter_studies(library)
    share(library)
    for record in sorted(library.records(), key=_size):
        asked = arguments.family in (None, record.family) and record.id in (arguments.ids or {record.id})
        if asked and is_left(record, arguments.time_limit):
            record = search(library, record.id, arguments.time_limit, arguments.workers)
            print(f"{record.id}: {record.state}, gap {record.gap}", file=sys.stderr, flush=True)
    share(library)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("library.py: interrupted; the same command continues", file=sys.stderr)
        sys.exit(130)
