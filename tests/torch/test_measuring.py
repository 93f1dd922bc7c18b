"""How profiles and runs measure: devices, process groups, clocks, orders, medians and delays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call

from tightpipe import InputError, Instance, retime, save_schedule, solve, validate
from tightpipe.export import EXPORTS
from tightpipe.model.placement import PLACEMENTS, Placement
from tightpipe.runtime import run_schedule

torch = pytest.importorskip("torch")

from tightpipe.runtime import stage_costs, stage_measures, torch_pipeline  # noqa: E402

SHAPE = ("--layers", "2", "--hidden", "16", "--heads", "2", "--sequence", "4", "--placement", "linear")


class Event:
    """An event of a GPU on which a millisecond passes between one event and the next."""

    ticks: Iterator[float]

    def record(self) -> None:
        self.at = next(self.ticks)

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


def test_the_clock_of_a_gpu_reads_the_times_of_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    monkeypatch.setattr(Event, "ticks", iter(range(100)), raising=False)
    monkeypatch.setattr(torch_pipeline.time, "perf_counter", lambda: 50.0)
    clock = torch_pipeline.GpuClock(Event, lambda: waits.append("waited"))
    next(Event.ticks)
    clock.begin()
    marks = [clock.mark() for _ in range(3)]
    clock.settle()
    assert [clock.seconds(mark) for mark in marks] == pytest.approx([50.001, 50.002, 50.003])
    assert waits == ["waited", "waited"]


def test_the_clock_of_the_cpu_goes_on() -> None:
    clock = torch_pipeline.clock_of("cpu")
    clock.begin()
    first, second = clock.mark(), clock.mark()
    clock.settle()
    assert 0 < clock.seconds(first) <= clock.seconds(second)


def test_a_process_has_the_gpu_of_its_rank(tmp_path: Path) -> None:
    assert torch_pipeline.device_of("cpu", 3) == torch.device("cpu")
    assert torch_pipeline.device_of("cuda", 3) == torch.device("cuda", 3)
    shared = {"init_method": f"file://{tmp_path}/store", "rank": 3, "world_size": 4}
    assert torch_pipeline.group_options("cpu", tmp_path, 3, 4) == {"backend": "gloo", **shared}
    on_gpus = {"backend": "nccl", "device_id": torch.device("cuda", 3), **shared}
    assert torch_pipeline.group_options("cuda", tmp_path, 3, 4) == on_gpus


def two_devices() -> Any:
    problem = Instance.uniform(devices=2, microbatches=2, forward=1, backward=1, weight=1, placement="linear")
    return solve(problem, "zb-h1").schedule


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        (0, "device = cuda: PyTorch finds no GPU on this machine; cpu would be right"),
        (1, "device = cuda: each of the 2 devices needs a GPU of its own, and PyTorch finds 1"),
    ],
)
def test_every_process_needs_a_gpu(gpus: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(InputError, match=message):
        run_schedule(two_devices(), device="cuda")
    assert torch_pipeline.too_few_gpus("cpu", 2) == ""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_pipeline.too_few_gpus("cuda", 2) == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--repeats", "0"], "repeats = 0: must be at least 1"),
        (["--tolerance", "0"], "tolerance = 0.0: must be above 0"),
        (["--tolerance", "nan"], "tolerance = nan: must be above 0"),
        (["--stages", "3"], "stages = 3: must be a multiple of devices = 2"),
        (["--device", "cuda"], "device = cuda: "),
    ],
)
def test_what_cannot_be_profiled_leaves_no_file(tmp_path: Path, words: list[str], message: str) -> None:
    if "cuda" in words and torch.cuda.device_count() > 1:
        pytest.skip("there are two GPUs")
    done = call(
        "costs",
        "profile",
        "--devices",
        "2",
        "--microbatches",
        "2",
        *SHAPE,
        *words,
        "-o",
        "i.json",
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "cuda"], "device = cuda: "),
        (["--ffn", "8"], "ffn = (8,): needs the model transformer"),
        (["--model", "transformer", "--vocabulary", "0"], "vocabulary = 0: must be at least 1"),
        (
            ["--model", "transformer", "--ffn", "8", "--ffn", "9", "--ffn", "8"],
            "ffn = [8, 9, 8]: must be one size, or one for each of the 2 layers",
        ),
        (["--steps", "0"], "steps = 0: must be at least 1"),
    ],
)
def test_what_cannot_be_run(tmp_path: Path, words: list[str], message: str) -> None:
    if "cuda" in words and torch.cuda.device_count() > 1:
        pytest.skip("there are two GPUs")
    save_schedule(two_devices(), tmp_path / "s.json")
    done = call("run", "s.json", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_with_one_stage_per_device_the_order_is_1f1b_with_every_other_backward_fused() -> None:
    assert stage_costs.order_text([0, 1], 3).splitlines() == [
        "0F0,0F1,0B0,0F2,0B1,0B2",
        "1F0,1B0,1F1,1I1,1W1,1F2,1B2",
    ]


def test_an_operation_that_does_not_exist_takes_no_time() -> None:
    times = {("F", 0): [1.0], ("W", 0): [3.0, 4.0, 6.0], ("BW", 1): [0.5], ("W", 1): [0.25]}
    micro = {kind: stage_measures.median_time(times, kind, [0]) for kind in ("F", "B", "W", "BW")}
    assert micro == pytest.approx({"F": 1e6, "B": 0, "W": 4e6, "BW": 0})
    assert stage_measures.median_time(times, "W", [0, 1]) == pytest.approx(3.5e6)


def test_the_time_of_an_operation_is_the_mean_of_a_step_in_the_median_step() -> None:
    def step(*ends: float) -> list[Any]:
        return [("F", 0, m, 0.0, end) for m, end in enumerate(ends)]

    # one slow operation in each step takes its share; a slow step changes nothing
    times = stage_measures.times_of([[step(1, 1, 4), step(1, 1, 4), step(9, 9, 9)]])
    assert times == {("F", 0): [2.0, 2.0, 9.0]}
    assert stage_measures.median_time(times, "F", [0]) == pytest.approx(2e6)


@pytest.mark.parametrize("place", [name for name in PLACEMENTS if name != "bidirectional"])
def test_the_order_is_valid_in_every_placement(place: str) -> None:
    placement = Placement(place, 3)
    problem = Instance.uniform(
        devices=3, microbatches=6, forward=2, backward=2, weight=1, comm=1, placement=place
    )
    order = EXPORTS["torch-csv"].read(stage_costs.order_text(placement.routes[0], 6))
    assert validate(problem, retime(problem, order)) == []


def steps_of(*durations: float) -> list[Any]:
    """The steps of one device that has run an F and a B of stage 0 in each; the durations are those of the F."""
    return [[("F", 0, 0, 1.0, 1.0 + took), ("B", 0, 0, 9.0, 11.0)] for took in durations]


def test_a_median_is_known_when_its_confidence_interval_is_narrow() -> None:
    assert stage_measures.unsure([steps_of(*[2.0] * 9)], 0.02) == []
    # of 9 values the interval of the median reaches from the second to the eighth at least
    named = stage_measures.unsure([steps_of(1, 1, 1, 1, 2, 3, 3, 3, 3)], 0.02)
    assert named == ["F of stage 0 (50 %)"]
    assert stage_measures.unsure([steps_of(1, 1, 1, 1, 2, 3, 3, 3, 3)], 0.6) == []
    # one value far away among many changes no median
    assert stage_measures.unsure([steps_of(*[2.0] * 15, 50.0)], 0.02) == []


def test_a_short_operation_may_be_less_certain() -> None:
    short = [steps_of(*[0.001, 0.003] * 5)]
    assert stage_measures.unsure(short, 0.02) == []
    assert stage_measures.unsure(short, 0.0001) == ["F of stage 0 (50 %)"]


def test_the_delay_of_a_message_is_seen_where_a_device_waits_for_it() -> None:
    first = [("F", 0, 0, 0.0, 1.0), ("F", 0, 1, 1.0, 2.0), ("B", 0, 0, 6.25, 7.0)]
    # its second F starts late because the device is busy, whatever the message took
    second = [("F", 1, 0, 1.5, 3.0), ("F", 1, 1, 3.0, 4.0), ("B", 1, 0, 4.0, 6.0)]
    assert stage_measures.communication([0, 1], [[first], [second]]) == 0.375
    # the whole backward of stage 0, which counts as its W, waits for a fused backward as well
    first, second = (
        [({"B": kind}.get(name, name), *rest) for name, *rest in spans]
        for kind, spans in (("W", first), ("BW", second))
    )
    assert stage_measures.communication([0, 1], [[first], [second]]) == 0.375


def test_what_the_runtime_does_between_operations_is_time_of_the_later_one() -> None:
    first = [("F", 0, 0, 0.0, 1.0), ("F", 0, 1, 1.5, 2.5), ("W", 0, 0, 6.5, 7.0), ("W", 0, 1, 8.25, 9.0)]
    second = [("F", 1, 0, 1.75, 3.0), ("F", 1, 1, 3.5, 4.0), ("BW", 1, 0, 4.25, 6.0), ("BW", 1, 1, 6.25, 8.0)]
    own, other = stage_measures.charged([0, 1], [[first], [second]])
    # the second F begins when the first one ends; both W's waited for their messages and begin as marked
    assert own == [[("F", 0, 0, 0.0, 1.0), ("F", 0, 1, 1.0, 2.5), *first[2:]]]
    # the first F waited; the second one was sent before the first one had ended, so it did not
    assert other == [[("F", 1, 1, 3.0, 4.0), ("BW", 1, 0, 4.0, 6.0), ("BW", 1, 1, 6.0, 8.0)]]
    # devices waited 0.25, 0.5 and 0.75 after a message had been sent, and once 0.5 although it had arrived
    assert stage_measures.communication([0, 1], [[first], [second]]) == 0.0
    # two operations of each device did not wait, and began 0.5 twice and 0.25 twice after the one before
    assert stage_measures.starting([0, 1], [[first], [second]]) == 0.375


def test_operations_that_waited_count_only_where_no_others_are() -> None:
    first = [("F", 0, 0, 0.0, 1.0), ("F", 0, 1, 1.0, 2.0), ("F", 0, 2, 2.0, 6.0)]
    second = [("F", 1, 0, 1.5, 2.5), ("F", 1, 1, 2.75, 3.0), ("F", 1, 2, 6.25, 7.0)]
    assert stage_measures.charged([0, 1], [[first], [second]])[1] == [[("F", 1, 1, 2.5, 3.0)]]


def test_the_spread_of_times_is_that_within_a_step() -> None:
    def step(*durations: float) -> list[Any]:
        return [("F", 0, m, 0.0, took) for m, took in enumerate(durations)]

    assert stage_measures.spread([[step(1, 3), step(10, 30)]], "F", 0) == pytest.approx(2**0.5 / 2)
    assert stage_measures.spread([[step(1), step(10)]], "F", 0) == 0
