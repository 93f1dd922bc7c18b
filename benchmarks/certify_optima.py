"""Certify lower bounds, and print how many have a proof that the checker verifies, and the proofs' sizes.

``python benchmarks/certify_optima.py`` has three sets of bounds: the optima of the small instances of
tests/data/small_optima.csv, the optima of four larger instances, for which CP-SAT proves them in seconds, and
for each published setting at 2p the best bound by a formula. Every proof is checked. ``--sample N`` draws N
of the small instances, the same ones in every run.

A fourth set, ``large``, must be named. It has the bounds of three published settings once more, and leaves
out the short proofs by formulas, so that the proofs show what windows alone take: up to a quarter of an hour.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from tightpipe import Certificate, Instance, Memory, certify
from tightpipe.base.sources import engine_version
from tightpipe.certificates.check_proof import Problem, check
from tightpipe.certificates.refuting import Refuter, UnprovenError, trimmed
from tightpipe.model.instance_file import instance_to_dict
from tightpipe.params.budget import UNLIMITED
from tightpipe.settings import load_settings
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.terminal import show_table

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.small_instances import known_optima, small_instance

Case = tuple[str, Instance, int]
"""A name, an instance, and a proven lower bound of its cost in ticks."""
Prover = Callable[[Instance, int, float], Certificate]
"""Takes an instance, a bound and seconds, and searches for a proof of the bound."""
_TRUSTED = "trusted"
_NAMED_ONLY = "large"
_LARGE = ("6.2B-16x48", "14.6B-24x72", "28.3B-32x256")
_PROTOTYPES = {
    (3, 6, 10, 12, 8, 1): 18,
    (4, 8, 10, 12, 8, 1): 32,
    (4, 8, 8, 14, 8, 2): 52,
    (4, 8, 10, 20, 5, 1): 94,
}
"""Optimal bubble in ticks by instance: devices, microbatches, and ticks of F, B, W and a message."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The proof of a case: its kind, its size and its times.

    `size` and `packed` are the bytes of the proof's file, plain and gzipped; `search` and `check` are the
    seconds in which the proof was found and checked.
    """

    name: str
    kind: str
    size: int
    packed: int
    search: float
    check: float


def small(sample: int) -> Iterator[Case]:
    """Yield `sample` of the small instances, drawn with a fixed seed, with their optimal costs."""
    everything = known_optima()
    for known in random.Random(0).sample(everything, min(sample, len(everything))):
        yield f"small {known.seed}", small_instance(known.seed), known.optimum


def prototypes() -> Iterator[Case]:
    """Yield the larger instances, `_PROTOTYPES`, with their optimal costs."""
    for (p, n, f, b, w, c), bubble in _PROTOTYPES.items():
        memory = Memory(2, -1, -1, 4 * p)
        instance = Instance.uniform(
            devices=p, microbatches=n, forward=f, backward=b, weight=w, comm=c, memory=memory
        )
        yield f"{p}x{n} ({f}, {b}, {w}, {c})", instance, instance.work(0) + bubble


def published() -> Iterator[Case]:
    """Yield each published setting at its memory limit of 2p activations, and its best closed-form bound."""
    for name, setting in load_settings().items():
        instance = setting.instance()
        yield name, instance, best_bound(instance).value


def large() -> Iterator[Case]:
    """Yield those of `published` that are named in `_LARGE`."""
    return (case for case in published() if case[0] in _LARGE)


SETS = {
    "small": small,
    "prototypes": lambda _: prototypes(),
    "settings": lambda _: published(),
    _NAMED_ONLY: lambda _: large(),
}


def proof(instance: Instance, bound: int, seconds: float) -> Certificate:
    """Return the certificate that every user gets."""
    return certify(instance, bound, time_limit=seconds)


def proof_by_windows(instance: Instance, bound: int, seconds: float) -> Certificate:
    """Return a certificate for the bound, without the short proofs by formulas."""
    problem, anchor = Problem(instance_to_dict(instance)), instance.placement.routes[0][0]
    try:
        steps = Refuter(instance, problem, bound - 1, bound - 1, UNLIMITED.within(seconds)).steps()
    except UnprovenError:
        return Certificate(instance, bound, {"kind": _TRUSTED, "by": "an unnamed proof"})
    kept = trimmed(problem, bound - 1, anchor, steps)
    return Certificate(instance, bound, {"kind": "windows", "anchor": anchor, "steps": kept})


def measure(case: Case, seconds: float, prove: Prover) -> Measured:
    """Search for the proof of a bound for at most `seconds`, and check the proof if one is found."""
    name, instance, bound = case
    begun = perf_counter()
    certificate = prove(instance, bound, seconds)
    found = perf_counter()
    text = json.dumps(certificate.to_dict(), separators=(",", ":"))
    if not certificate.trusted:
        check(json.loads(text))
    times = found - begun, perf_counter() - found
    return Measured(name, kind_of(certificate), len(text), len(gzip.compress(text.encode())), *times)


def kind_of(certificate: Certificate) -> str:
    """Return the strongest kind of step in the proof; if there is no proof, return the reason.

    From strong to weak, the kinds are suppositions within suppositions, suppositions, the steps ``progress``
    and ``overload``, and windows alone.
    """
    if certificate.trusted:
        instance = certificate.instance
        overlaps = "operations overlap" if instance.has_pairs else ""
        busy = "links are busy" if instance.costs.link_occupancy else ""
        return f"{_TRUSTED}: {overlaps or busy or 'out of time'}"
    steps = certificate.proof["steps"]
    inner = [step for _, _, _, inside in _named("suppose", steps) for step in inside]
    if _named("suppose", inner):
        return "cases within cases"
    if inner or _named("suppose", steps):
        return "suppositions"
    return next((name for name in ("progress", "overload") if _named(name, steps)), "windows")


def _named(name: str, steps: list[list[Any]]) -> list[list[Any]]:
    return [step for step in steps if step[0] == name]


def show(measured: list[Measured]) -> None:
    """Print a row for each case if there are at most 30, and then a summary of all cases."""
    if len(measured) <= 30:
        show_table(["instance", "proof", "bytes", "gzipped", "search s", "check s"], [
            (m.name, m.kind, m.size, m.packed, f"{m.search:.2f}", f"{m.check:.2f}") for m in measured
        ])  # fmt: skip
    kinds = Counter(m.kind for m in measured).most_common()
    print("; ".join(f"{kind}: {count} ({100 * count / len(measured):.1f} %)" for kind, count in kinds))
    proven = [m for m in measured if not m.kind.startswith(_TRUSTED)]
    print(f"{len(proven)} of {len(measured)} have a proof that was checked", end="; ")
    if proven:
        sizes, packed, times = zip(*((m.size, m.packed, m.check) for m in proven), strict=True)
        print(
            f"bytes: median {statistics.median(sizes):.0f}, largest {max(sizes)}, gzipped {max(packed)}",
            end="; ",
        )
        print(f"checked in {sum(times):.1f} s, the slowest in {max(times):.1f} s")


def main() -> None:
    """Measure the sets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=list(SETS), action="append", help="default: all but large")
    parser.add_argument("--sample", type=int, default=300, help="draw so many small instances")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of each search")
    arguments = parser.parse_args()
    print(f"tightpipe {engine_version()}, one thread, {arguments.seconds:g} s for each search")
    for name in arguments.set or (name for name in SETS if name != _NAMED_ONLY):
        print(f"\n{name}")
        prove = proof_by_windows if name == _NAMED_ONLY else proof
        show([measure(case, arguments.seconds, prove) for case in SETS[name](arguments.sample)])


if __name__ == "__main__":
    main()
