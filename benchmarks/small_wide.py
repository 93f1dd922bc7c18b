"""Solve random small wide instances with ``best``, and ask an independent model whether it is right.

``python benchmarks/small_wide.py`` draws instances with fused backwards, pairs, frozen stages and steps, of
two or three devices and three to six microbatches. With ``--classes`` the microbatches are of several
classes, and there are no pairs. With ``--slices`` every microbatch is cut into two or three slices. With
``--copies`` activations may leave their devices, and memory is scarce. It prints one line for each, and at
the end on how many the optimum was found, on how many it was proven, and on how many a claim was false. The
judge is the model of the tests (`independent_model.py`): start times and nothing else, with no bound, queue
or window of the solver. It is asked for a schedule that is cheaper than that of ``best``. Where it finds
neither one nor a proof that there is none, an instance that ``best`` has not proven counts as unsettled.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from tightpipe import Instance, Memory, Placement, Status, solve

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.cases import classed, sliced, widened
from helpers.copying import copying
from helpers.independent_model import least_below

_SHAPES = [(name, p, n) for name in ("linear", "v", "loop") for p in (2, 3) for n in (3, 4, 5, 6)]
_MOST = 72  # operations: F, B and W of all microbatches at all stages


def wide_instance(seed: int) -> Instance:
    """Return a random instance, by seed: of each rule of the wide model, about half of them have it."""
    rng = random.Random(seed)
    name, devices, microbatches = rng.choice(_SHAPES)
    stages = Placement(name, devices).stages
    while 3 * stages * microbatches > _MOST:
        microbatches -= 1
    alike = rng.random() < 0.5  # whether all stages cost the same, as most published settings have it
    forward, backward, weight = (
        _times(rng, 1 if alike else stages) * (stages if alike else 1) for _ in "FBW"
    )
    entries: dict[str, Any] = {}
    if rng.random() < 0.7:
        entries["fused"] = [rng.randint(max(b, w), b + w) for b, w in zip(backward, weight, strict=True)]
    if rng.random() < 0.4:
        together = [f + b for f, b in zip(forward, backward, strict=True)]
        entries["overlapped"] = [rng.randint(max(together), max(together) + 10) for _ in range(devices)]
    elif rng.random() < 0.2:
        entries["pairs"] = [[rng.randint(max(f, b), f + b + 4) for b in backward] for f in forward]
    shares = rng.choice(((2, -1, -1), (1, -1, 0), (3, -2, -1)))
    placed = {"devices": devices, "microbatches": microbatches, "placement": name, "comm": rng.randint(0, 3)}
    times = {"forward": forward, "backward": backward, "weight": weight}
    free = Instance.uniform(**placed, **times, **entries, memory=Memory(*shares, None))
    limit = [free.smallest_limit(d) + rng.randint(0, devices) * shares[0] for d in range(devices)]
    if rng.random() < 0.7:
        entries["memory"] = Memory(*shares, limit)
    instance = Instance.uniform(**placed, **times, **entries, objective=rng.choice(("step", "device_span")))
    return widened(instance, seed) if rng.random() < 0.5 else instance


def in_slices(instance: Instance, seed: int) -> Instance:
    """Return the instance with two or three slices and fewer microbatches, but at least two."""
    count = random.Random(f"slices {seed}").choice((2, 2, 3))
    most = max(2, _MOST // (3 * count * instance.stages))
    return sliced(replace(instance, microbatches=min(most, instance.microbatches)), seed, count, count)


def _times(rng: random.Random, count: int) -> list[int]:
    return [rng.randint(4, 12) for _ in range(count)]


def judged(instance: Instance, seconds: float, check: float) -> tuple[str, str]:
    """Return what became of an instance, and a line about it.

    ``best`` gets `seconds`, and the independent model gets `check` seconds.
    """
    begun = perf_counter()
    result = solve(instance, "best", time_limit=seconds, workers=1)
    spent = perf_counter() - begun
    assert result.cost is not None
    least = least_below(instance, result.cost, check)
    proven = result.status is Status.OPTIMAL
    line = f"cost {result.cost}  bound {result.bound} ({result.proof})  {spent:.1f} s  independent {least}"
    if least is not None and least < result.cost:
        return ("FALSE" if result.bound > least else "missed"), line
    if least is None and not proven:
        return "unsettled", line
    return ("proven" if proven else "found"), line


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each instance, and the shares at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=40, help="number of instances")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one")
    parser.add_argument("--time-limit", type=float, default=15, help="seconds of each solve")
    parser.add_argument("--check", type=float, default=30, help="seconds of the independent model")
    parser.add_argument("--classes", action="store_true", help="with microbatches that differ, without pairs")
    parser.add_argument("--slices", action="store_true", help="with microbatches in two or three slices")
    parser.add_argument("--copies", action="store_true", help="with activations that may leave")
    given = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.count):
        instance = wide_instance(seed)
        if given.classes:
            instance = classed(instance, seed)
        if given.slices:
            instance = in_slices(instance, seed)
        if given.copies:
            instance = copying(instance, seed)
        kind, line = judged(instance, given.time_limit, given.check)
        counts[kind] += 1
        print(f"{seed:5d}  {kind:9s}  {line}", flush=True)
    share = {kind: counts[kind] / given.count for kind in ("proven", "found", "unsettled", "missed", "FALSE")}
    print(
        f"optimum found on {share['proven'] + share['found']:.0%} to "
        f"{share['proven'] + share['found'] + share['unsettled']:.0%}, proven on {share['proven']:.0%}, "
        f"false claims on {share['FALSE']:.0%} of {given.count}"
    )


if __name__ == "__main__":
    main()
