"""Traces with validation passes, and traces that begin or end within a step: whole steps are measured alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from helpers.command_line import call
from helpers.traces import Ranges, pairs, write_kineto, write_nsight

from tightpipe import InputError, Instance, Operation, OpKind, Schedule, measure, simulate
from tightpipe.heuristics import HEURISTICS
from tightpipe.measuring import Measurement

GAP = 7.0
"""Microseconds between the end of a step on all devices and the begin of the next one."""

RUNS = [
    ("1f1b", {"placement": "linear", "devices": 2}),
    ("1f1b", {"placement": "linear", "devices": 4}),
    ("gpipe", {"placement": "linear", "devices": 3}),
    ("zb-h1", {"placement": "linear", "devices": 3}),
    ("greedy-v", {"placement": "v", "devices": 2}),
    ("interleaved-1f1b", {"placement": "loop", "devices": 2, "chunks": 2}),
    ("1f1b", {"placement": "linear", "devices": 1}),
]
each_run = pytest.mark.parametrize(("method", "shape"), RUNS, ids=lambda value: str(value)[:40])


def planned(method: str, shape: dict[str, object], microbatches: int = 4) -> Schedule:
    costs = {"forward": 10, "backward": 11, "weight": 9, "comm": 2}
    instance = Instance.uniform(microbatches=microbatches, **costs, **shape)  # type: ignore[arg-type]
    return simulate(instance, HEURISTICS[method].make(instance))


@dataclass
class Run:
    """A run that is written down as its passes take place."""

    devices: int
    now: float = 0.0
    ranges: list[list[tuple[str, tuple[float, float]]]] = field(init=False)
    steps: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ranges = [[] for _ in range(self.devices)]

    def take(self, schedule: Schedule, factor: float = 1.0, *, forwards: bool = False) -> None:
        """Let a step take place with times that are multiplied by a factor, or its forwards alone."""
        begin, times = self.now, iter(zip(schedule.start.tolist(), schedule.end.tolist(), strict=True))
        for device, operations in enumerate(schedule.order.to_lists()):
            for operation in operations:
                start, end = next(times)
                if not forwards or operation.kind is OpKind.F:
                    self.ranges[device].append(
                        (str(operation), (begin + round(start * factor), begin + round(end * factor)))
                    )
        ended = max(end for own in self.ranges for _, (_, end) in own)
        self.now = ended + GAP
        if not forwards:
            self.steps.append((begin, ended))

    def within(self, begin: float, end: float) -> list[Ranges]:
        """The ranges that lie between two times."""
        return [[(op, (a, b)) for op, (a, b) in own if begin <= a and b <= end] for own in self.ranges]


def kineto_of(folder: Path, ranges: Sequence[Ranges]) -> Measurement:
    folder.mkdir(exist_ok=True)
    return measure(*write_kineto(folder, ranges))


def counted_of(folder: Path, ranges: Sequence[Ranges]) -> Measurement:
    """The measurement by names that do not number the microbatches."""
    folder.mkdir(exist_ok=True)
    patterns = [rf"{kind}:^tightpipe {kind}(?P<stage>\d+)\." for kind in ("F", "B", "W", "BW")]
    return measure(*write_kineto(folder, ranges), patterns=patterns, microbatches=4)


def waiting_of(folder: Path, ranges: Sequence[Ranges]) -> Measurement:
    """The measurement by names of PyTorch's runtime, whose ranges begin with the wait for the input."""
    folder.mkdir(exist_ok=True)
    waiting = []
    for own in ranges:
        renamed: list[tuple[str, tuple[float, float]]] = []
        for name, (start, end) in pairs(own):
            kind, stage, microbatch = Operation.parse(name)
            before = renamed[-1][1][1] if renamed else start - 3
            begin = start if (kind, stage) == (OpKind.F, 0) else before + (start - before) // 10
            letter = {OpKind.F: "F", OpKind.B: "I", OpKind.W: "W", OpKind.BW: "B"}[kind]
            renamed.append((f"{stage}{letter}{microbatch}", (begin, end)))
        waiting.append(renamed)
    return measure(*write_kineto(folder, waiting, prefix="PP:"))


def nsight_of(folder: Path, ranges: Sequence[Ranges]) -> Measurement:
    folder.mkdir(exist_ok=True)
    (folder / "report.sqlite").unlink(missing_ok=True)
    return measure(write_nsight(folder / "report.sqlite", ranges))


each_reader = pytest.mark.parametrize("reader", [kineto_of, nsight_of, counted_of, waiting_of])
Reader = Callable[[Path, Sequence[Ranges]], Measurement]


def figures(found: Measurement) -> object:
    """All figures of a measurement, without its warnings and the names of its files."""
    plain = found.to_dict()
    return {key: value for key, value in plain.items() if key not in ("sources", "warnings")}, found.instance


def left_out(found: Measurement) -> list[str]:
    return [text for text in found.warnings if "is left out" in text]


@each_run
@each_reader
@pytest.mark.parametrize("microbatches", [2, 4, 6])
def test_validation_passes_do_not_change_what_is_measured(
    reader: Reader, method: str, shape: dict[str, object], microbatches: int, tmp_path: Path
) -> None:
    schedule, validation = planned(method, shape), planned(method, shape, microbatches)
    devices = schedule.instance.devices
    for places in ([0], [1], [2], [0, 0], [0, 1, 2], [1, 1, 1, 2, 2]):
        run, plain = Run(devices), Run(devices)
        for number in range(3):
            for _ in range(places.count(number)):
                run.take(validation, forwards=True)
            plain.now = run.now
            if number < 2:
                for each in (run, plain):
                    each.take(schedule, 1 + number / 10)
        found = reader(tmp_path / "run", run.ranges)
        assert found.steps == 2
        assert figures(found) == figures(reader(tmp_path / "plain", plain.ranges))
        where = ["before training step 0", "after training step 0 and before 1", "after training step 1"]
        assert left_out(found) == [
            f"what ran {where[place]} is left out: only forwards ran there, as in a validation pass"
            for place in sorted(set(places))
        ]


@each_run
@each_reader
def test_steps_that_a_trace_has_in_part_do_not_change_what_is_measured(
    reader: Reader, method: str, shape: dict[str, object], tmp_path: Path
) -> None:
    schedule, chance = planned(method, shape), random.Random(6)
    for validate in (False, True) * 6:
        run = Run(schedule.instance.devices)
        for _ in range(5):
            run.take(schedule, chance.uniform(0.9, 1.1))
            if validate:
                run.take(schedule, forwards=True)
        begin, end = chance.uniform(*run.steps[1]), chance.uniform(*run.steps[4])
        cut = run.within(begin, end)
        whole = run.within(run.steps[2][0], run.steps[3][1])
        found = reader(tmp_path / "cut", cut)
        assert found.steps == 2
        assert figures(found) == figures(reader(tmp_path / "whole", whole)), (begin, end)
        assert len(left_out(found)) == (3 if validate else 2)


@each_run
def test_clocks_that_are_far_apart_do_not_change_which_steps_belong_together(
    method: str, shape: dict[str, object], tmp_path: Path
) -> None:
    schedule, chance = planned(method, shape), random.Random(7)
    run = Run(schedule.instance.devices)
    for number in range(6):
        run.take(schedule, chance.uniform(0.9, 1.1))
        if number % 2:
            run.take(schedule, forwards=True)
    right = kineto_of(tmp_path, run.ranges)
    for _ in range(6):
        behind = [chance.choice((0, 300.0, 1000.0, 5e6)) for _ in run.ranges]
        ranges = [
            [(op, (start + late, end + late)) for op, (start, end) in own]
            for own, late in zip(run.ranges, behind, strict=True)
        ]
        found = kineto_of(tmp_path, ranges)
        assert found.steps == 6
        assert found.costs == right.costs
        for offset, late in zip(found.offsets, behind, strict=True):
            moved = late - behind[0] + offset / 1000
            assert abs(moved) < 100, "a clock is put forward by less than a step"


def test_a_step_of_which_one_trace_lost_a_range_is_left_out(tmp_path: Path) -> None:
    schedule = planned("1f1b", {"placement": "linear", "devices": 3})
    for lost in range(3):
        for name in ("F1.2", "BW1.0"):
            run, plain = Run(3), Run(3)
            for number in range(3):
                run.take(schedule, 1 + number / 10)
                plain.now = run.steps[-1][0]
                if number != lost:
                    plain.take(schedule, 1 + number / 10)
            place = [op for op, _ in run.ranges[1]].index(name) + lost * len(run.ranges[1]) // 3
            assert run.ranges[1].pop(place)[0] == name
            found = kineto_of(tmp_path / "run", run.ranges)
            assert figures(found) == figures(kineto_of(tmp_path / "plain", plain.ranges))
            where = ["before training step 0", "after training step 0 and before 1", "after training step 1"]
            source = tmp_path / "run/rank1.json"
            assert left_out(found) == [f"what ran {where[lost]} is left out: {name} did not run in {source}"]


def test_steps_of_unknown_counterparts_are_refused(tmp_path: Path) -> None:
    schedule = planned("1f1b", {"placement": "linear", "devices": 2})
    run = Run(2)
    for _ in range(3):
        run.take(schedule)
    steps, size = run.steps, len(run.ranges[1])
    first = [(op, times) for op, times in run.ranges[0] if times[0] > steps[0][0]]  # its first F0.0 is lost
    second = [(op, (start + 1e6, end + 1e6)) for op, (start, end) in run.ranges[1][size // 3 :]]
    assert kineto_of(tmp_path, [first, run.ranges[1]]).steps == 2
    assert kineto_of(tmp_path, [first, second]).steps == 2
    cut = first[:-1]
    assert kineto_of(tmp_path, [cut, run.ranges[1]]).steps == 1
    far = [(op, (start + 1e6, end + 1e6)) for op, (start, end) in run.ranges[1]]
    with pytest.raises(
        InputError, match=r"rank1\.json: training steps = 3: .*rank0\.json has 1, and it is not known"
    ):
        kineto_of(tmp_path, [cut, far])
    with pytest.raises(InputError, match=r"training steps = 3: .* has 2, and it is not known which belong"):
        kineto_of(tmp_path, [run.ranges[0], run.ranges[1][: size * 2 // 3]])


def test_a_trace_of_validation_alone_says_what_did_not_run(tmp_path: Path) -> None:
    schedule = planned("1f1b", {"placement": "linear", "devices": 2})
    run = Run(2)
    run.take(schedule, forwards=True)
    with pytest.raises(
        InputError, match=r"rank0\.json: training step 0: B0\.0 did not run; record whole steps"
    ):
        kineto_of(tmp_path, run.ranges)


def test_the_command_measures_the_chosen_whole_step_and_names_what_it_leaves_out(tmp_path: Path) -> None:
    schedule = planned("1f1b", {"placement": "linear", "devices": 2})
    run = Run(2)
    for number in range(3):
        run.take(schedule, 1 + number)
        run.take(schedule, forwards=True)
    write_kineto(tmp_path, run.ranges)
    costs = []
    for step in range(3):
        done = call("measure", tmp_path, "--step", step, "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["steps"], said["step"]) == (3, step)
        assert sum("only forwards ran there" in text for text in said["warnings"]) == 3
        costs.append(said["cost"])
    assert costs[1:] == [2 * costs[0], 3 * costs[0]]
    done = call("measure", tmp_path)
    assert "training step 2 of 3" in done.stdout
    assert done.stderr.startswith(
        "tightpipe: warning: what ran after training step 0 and before 1 is left out"
    )
    assert call("measure", tmp_path, "--step", 3).returncode == 2
