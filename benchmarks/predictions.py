"""Compare predicted with measured step times of schedules in PyTorch: published ones and our choice.

A transformer is profiled on two devices, once for all placements, and for fused and split backwards. So a
placement does not win because the machine was faster while its own profile was taken. The linear placement
has two layers in a stage, whose times are the sums of those of the single layers that are profiled. The
schedules for the profile are four published ones, with fused or split backwards as they were published; V-ZB
where `v-zb` may also fuse backwards, which it does where nobody waits; and what tightpipe recommends: of
the schedules that `best` finds in three placements, the one with the shortest predicted step, once in the
memory of 1F1B, and once in that of interleaved 1F1B (the most that one device holds). PyTorch trains with
each of them. The goals, on a machine with two quiet cores, are that every predicted step time is within 10 %
of the measured one, and that what is recommended in the memory of interleaved 1F1B, the largest of any
published schedule here, is measured 3 % or more ahead of every published schedule.

    python benchmarks/predictions.py [--rounds 9] [--output results/predictions.csv]

No two operations take equally long, and a device that waits for a slow one loses time that a fast one does
not win back. So a predicted step is the mean of many random ones (`tightpipe.noise`), in which the times of
operations vary as they did in the profile, and not the makespan of the schedule.

A round profiles, and then trains with all schedules in the same processes, a step of each in turn. The speed
of a machine that others share changes from minute to minute. So the error of a prediction is taken within
each round, against the run that followed the profile, and schedules are compared turn by turn; the table has
the medians of many short rounds. The columns are

- `placement`, `memory_mb`, `fused`: placement of the schedule, the largest memory of a device in the profile,
  and the share of the backwards that are fused, all three of the last round;
- `planned_ms`: the makespan of the schedule, without any variation;
- `predicted_ms`, `measured_ms`, `fastest_ms`: the predicted step time, the median step of a round, and its
  fastest step, each as the median of all rounds. Where the last two are far apart, the machine was not quiet;
- `error`: predicted / median step - 1, the median of all rounds; `lower_quartile` and
  `upper_quartile` are the errors between which the middle half of the rounds lies;
- `behind`: the step time of the schedule / that of what is recommended in the memory of interleaved 1F1B in
  the same turn - 1, the median of the turns of a round, and of these the median of all rounds. Turns of one
  round are alike, as they have one profile and one recommended schedule; so the rounds decide how sure the
  median is: the true one is between `behind_from` and `behind_to` with a confidence of 95 %, from six
  rounds on;
- `load`: the largest load average at the end of a round, which is how many processes wanted a core in the
  last minute: about 2 if nothing else ran.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import comb, hypot
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from growing_table import CONDITIONS, conditions, open_tables, run_script

from tightpipe import Instance, OpKind, Schedule, retime, solve
from tightpipe.base.errors import InputError
from tightpipe.base.files import write_text
from tightpipe.base.tables import csv_text
from tightpipe.experiments.placing import Backwards, restored, restricted
from tightpipe.model.metrics import peak_memory
from tightpipe.model.placement import Placement
from tightpipe.noise import Jitter, run_noisy
from tightpipe.runtime import Profile, RunModel, TransformerShape, profile_stages, run_in_turn
from tightpipe.runtime.profile import require_torch
from tightpipe.terminal import show_table

DEVICES, LAYERS = 2, 4
GOAL, AHEAD = 0.10, 0.03
SAMPLES = 300
DOUBT = 0.05  # how probably the true median lies outside of an interval
PLACEMENTS = ("linear", "loop", "v")
PUBLISHED = {
    "1F1B": ("linear", "1f1b", Backwards.FUSED),
    "ZB-H1": ("linear", "zb-h1", Backwards.SPLIT),
    "interleaved 1F1B": ("loop", "interleaved-1f1b", Backwards.FUSED),
    "V-ZB": ("v", "v-zb", Backwards.SPLIT),
}
"""Placement, method and backwards of each published schedule."""
MIXED = {"V-ZB, mixed": ("v", "v-zb", Backwards.ANY)}
"""The same for published orders in which a heuristic of tightpipe decides which backwards are fused."""
LIMITED_BY = ("1F1B", "interleaved 1F1B")
"""The schedules in whose memory tightpipe recommends another one."""
RECOMMENDED = "tightpipe, memory of interleaved 1F1B"
"""The schedule with which all others are compared."""
COLUMNS = (
    *("schedule", "placement", "memory_mb", "fused", "planned_ms", "predicted_ms", "measured_ms"),
    *("fastest_ms", "error", "lower_quartile", "upper_quartile", "behind", "behind_from", "behind_to"),
    *("turns", "rounds", "load", *CONDITIONS),
)
"""The columns of the table."""


class Ran(NamedTuple):
    """A schedule that was run, its makespan and predicted step time, and its steps by turn, in ms."""

    schedule: Schedule
    planned: float
    predicted: float
    steps: tuple[float, ...]

    @property
    def measured(self) -> float:
        """The median time of a step."""
        return median(self.steps)


def profiled(shape: TransformerShape, steps: int) -> Profile:
    """Profile the layers of a transformer, each as a stage, in at most this number of measured steps."""
    route = Placement("v", DEVICES).routes[0]
    profile = profile_stages(shape, len(route), route=route, device="cpu", repeats=steps)
    for text in profile.warnings:
        print(text, file=sys.stderr)
    return profile


def joined(profile: Profile) -> Profile:
    """Return the profile of stages that have two profiled stages each.

    The operation of both begins once, so that the time to begin the second one (`Profile.start`) is saved.
    The first stage has no B. So the second one fuses its backward in all schedules, as none waits for its B.
    """
    (f, b, w, fused), memory = (
        (profile.forward, profile.backward, profile.weight, profile.fused),
        profile.memory,
    )
    assert fused is not None
    assert memory is not None
    starts = range(2, len(f), 2)

    def pairs(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values[s] + values[s + 1] for s in starts)

    def one(first: int, second: int) -> int:
        return max(1, first + second - profile.start)

    held = (memory[0][0] + memory[0][1], *pairs(memory[0]))
    assert profile.variation is not None
    times = (f, b, (w[0], *fused[1:2], *w[2:]))  # stage 1 fuses its backwards; its W stands for them
    return replace(
        profile,
        forward=tuple(one(f[s], f[s + 1]) for s in (0, *starts)),
        backward=(0, *(one(b[s], b[s + 1]) for s in starts)),
        weight=(one(w[0], fused[1]), *(one(w[s], w[s + 1]) for s in starts)),
        fused=(one(w[0], fused[1]), *(one(fused[s], fused[s + 1]) for s in starts)),
        memory=(held, (0, *pairs(memory[1])), (-held[0], *pairs(memory[2]))),
        variation=tuple(
            tuple(hypot(v[s] * t[s], v[s + 1] * t[s + 1]) / max(1, t[s] + t[s + 1]) for s in (0, *starts))
            for v, t in zip(profile.variation, times, strict=True)
        ),
    )


def placed(profile: Profile, placement: str) -> Profile:
    """Return the profile of the stages of a placement, which have one or two of the profiled stages."""
    return profile if Placement(placement, DEVICES).stages == len(profile.forward) else joined(profile)


def instance_of(profile: Profile, placement: str, microbatches: int, limit: int | None = None) -> Instance:
    """Return the instance of a profile in a placement.

    The objective is the whole step, as training loops have a barrier.
    """
    return placed(profile, placement).instance(
        devices=DEVICES, microbatches=microbatches, placement=placement, limit=limit, objective="step"
    )


def predicted(profile: Profile, schedule: Schedule) -> float:
    """Return the mean step of a schedule, in ticks, where times vary as they did in the profile."""
    variation = placed(profile, schedule.instance.placement.name).variation
    assert variation is not None
    (noisy,) = run_noisy([schedule], [Jitter(variation, "profile")], samples=SAMPLES)
    return noisy.distribution.mean


def published(profile: Profile, name: str, microbatches: int) -> Schedule:
    """Return a published schedule, or one in which some backwards are fused, for a profile."""
    placement, method, backwards = (PUBLISHED | MIXED)[name]
    instance = instance_of(profile, placement, microbatches)
    schedule = solve(restricted(instance, backwards), method).schedule
    assert schedule is not None
    return retime(instance, restored(instance, schedule.order, backwards))


def recommended(profile: Profile, like: Schedule, seconds: float) -> Schedule:
    """Return the schedule with the shortest predicted step of those that `best` finds in the placements.

    No device holds more than the device of `like` that holds most. Every placement is searched for `seconds`.
    """
    limit, found = int(peak_memory(like).max()), list[Schedule]()
    for placement in PLACEMENTS:
        instance = instance_of(profile, placement, like.instance.microbatches, limit)
        schedule = solve(instance, "best", time_limit=seconds, workers=DEVICES).schedule
        found += [] if schedule is None else [schedule]
    return min(found, key=lambda schedule: predicted(profile, schedule))


def model_of(shape: TransformerShape, schedule: Schedule) -> RunModel:
    """Return the transformer of this shape, with the layers spread over the stages of a schedule."""
    return RunModel(
        "transformer",
        width=shape.hidden,
        layers=shape.layers // schedule.instance.stages,
        batch=shape.microbatch,
        sequence=shape.sequence,
        heads=shape.heads,
    )


def fused_share(schedule: Schedule) -> float:
    """Return the share of the backwards that are fused, of the stages that can fuse them."""
    kinds = schedule.order.operations[:, 0].tolist()
    fused, split = kinds.count(OpKind.BW), kinds.count(OpKind.B)
    return fused / max(1, fused + split)


def a_round(shape: TransformerShape, options: argparse.Namespace) -> dict[str, Ran]:
    """Profile, schedule and run everything once, and return what ran by name."""
    profile = profiled(shape, options.steps)
    schedules = {name: published(profile, name, options.microbatches) for name in PUBLISHED | MIXED}
    for name in LIMITED_BY:
        schedules[f"tightpipe, memory of {name}"] = recommended(profile, schedules[name], options.seconds)
    runs = [(schedule, model_of(shape, schedule)) for schedule in schedules.values()]
    found = {}
    for name, report in zip(schedules, run_in_turn(runs, steps=options.steps + 1), strict=True):
        for kind, of_stages in report.ratios().items():
            said = ", ".join(f"{ratio:.2f}" for ratio in of_stages.values())
            print(f"{name}: predicted / measured {kind}: {said}", file=sys.stderr)
        steps = tuple(span / 1000 for span in report.step_spans)
        mean = predicted(profile, schedules[name]) / 1000
        found[name] = Ran(schedules[name], report.predicted_span / 1000, mean, steps)
    return found


def rows_of(rounds: Sequence[Mapping[str, Ran]], load: float) -> list[dict[str, Any]]:
    """Return a row for each schedule; the module's docstring explains the columns."""
    rows = []
    for name in rounds[0]:
        ran = [found[name] for found in rounds]
        errors = [one.predicted / one.measured - 1 for one in ran]
        lower, error, upper = quantiles(errors, method="inclusive") if len(errors) > 1 else errors * 3
        last = ran[-1].schedule
        behind = sorted(median(_behind(found, name)) for found in rounds)
        first = likely_rank(len(behind))
        rows.append(
            {
                "schedule": name,
                "placement": last.instance.placement.name,
                "memory_mb": round(int(peak_memory(last).max()) / 1e6, 1),
                "fused": round(fused_share(last), 2),
                "planned_ms": round(median(one.planned for one in ran), 1),
                "predicted_ms": round(median(one.predicted for one in ran), 1),
                "measured_ms": round(median(one.measured for one in ran), 1),
                "fastest_ms": round(median(min(one.steps) for one in ran), 1),
                "error": round(error, 4),
                "lower_quartile": round(lower, 4),
                "upper_quartile": round(upper, 4),
                "behind": round(median(behind), 4),
                "behind_from": round(behind[first], 4),
                "behind_to": round(behind[-1 - first], 4),
                "turns": sum(len(one.steps) for one in ran),
                "rounds": len(ran),
                "load": round(load, 1),
                **conditions(),
            }
        )
    return rows


def _behind(found: Mapping[str, Ran], name: str) -> list[float]:
    """Return how much longer than the recommended one a schedule took, in each turn of a round."""
    pairs = zip(found[name].steps, found[RECOMMENDED].steps, strict=True)
    return [own / other - 1 for own, other in pairs]


def likely_rank(count: int) -> int:
    """Return the largest k for which the true median is likely between two of `count` sorted values.

    They are the values at the places k and `count` - 1 - k. The median is below the first of them only if at
    most k of the values are below it, which has the probability of at most k heads in `count` throws of a
    coin; it is above the other one with the same probability. Both together have at most `DOUBT`. With too
    few values for that, k is 0.
    """
    below = [sum(comb(count, heads) for heads in range(k + 1)) / 2**count for k in range((count + 1) // 2)]
    return max((k for k, chance in enumerate(below) if 2 * chance <= DOUBT), default=0)


def lead(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return by what share the step of the fastest published schedule is longer than the recommended one."""
    return float(min(row["behind"] for row in rows if row["schedule"] in PUBLISHED))


def main() -> None:
    """Profile, predict and run in rounds, and print the table after each round."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--steps", type=int, default=13, help="training steps of each run, and measured steps of each profile"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="time limit of a search")
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("-o", "--output", type=Path, help="CSV file for the table, written after each round")
    options = parser.parse_args()
    if options.rounds < 1:
        raise InputError("must be at least 1", key="--rounds", value=options.rounds)
    require_torch("measuring steps")  # before the table of an earlier run is begun anew
    run = sorted(map(str, vars(options).items()))
    with open_tables({options.output: COLUMNS}, run, extend=False) if options.output else nullcontext():
        _measure(options)


def _measure(options: argparse.Namespace) -> None:
    shape = TransformerShape(LAYERS, options.hidden, options.hidden // 64, options.sequence)
    rounds, load = list[dict[str, Ran]](), 0.0
    for _ in range(options.rounds):
        rounds.append(a_round(shape, options))
        load = max(load, os.getloadavg()[0])
        rows = rows_of(rounds, load)
        show_table(list(COLUMNS), [tuple(row.values()) for row in rows])
        if options.output:
            write_text(options.output, csv_text(COLUMNS, [row.values() for row in rows]))
    missed = [row["schedule"] for row in rows if abs(row["error"]) > GOAL]
    print(f"errors above {GOAL:.0%}: {', '.join(missed) or 'none'}")
    print(f"lead of the recommended schedule: {lead(rows):+.1%} (goal {AHEAD:.0%})")


if __name__ == "__main__":
    run_script(main, continues=False)
