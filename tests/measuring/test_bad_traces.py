"""Traces that are damaged, lack something or do not fit: one clear line that names the file."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call
from helpers.traces import STEP, TIMERS, add_kernels, kineto, moved, write_kineto, write_nsight

from tightpipe import InputError, Instance, Schedule, measure, simulate
from tightpipe.heuristics import HEURISTICS
from tightpipe.measuring import read_timers
from tightpipe.runtime.training_logs import trace_entries

HOW = "has no ranges of operations: record with names such as 'tightpipe F0.3'"


def without(name: str) -> list[dict[str, tuple[float, float]]]:
    return [{op: times for op, times in device.items() if op != name} for device in STEP]


def test_a_trace_without_operations(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"rank0.json: {HOW}"):
        measure(*write_kineto(tmp_path, [{}, STEP[1]]))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (without("F1.1"), r"rank1\.json: training step 0: F1\.1 did not run; record whole steps"),
        (STEP[1:], r"stage = 0: no trace has this stage; give the traces of all ranks"),
        ([STEP[0], STEP[0]], r"rank1\.json: stage = 0: is also in .*rank0\.json; give the traces of one pipeline"),
        ([{**STEP[0], "B0.0": (110, 120)}, STEP[1]], r"rank0\.json: BW0\.0 ran besides B0\.0; BW is both gradients"),
        ([STEP[0], {**STEP[1], "F1.1": (30, 52)}], r"rank1\.json: BW1\.0 and F1\.1 overlap by 12\.0 us"),
        (
            [{name.replace("BW", "B"): times for name, times in device.items()} for device in STEP],
            r"W0\.0 did not run; record whole steps, and name a backward BW",
        ),
    ],
)  # fmt: skip
def test_traces_that_lack_something(step: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        measure(*write_kineto(tmp_path, step), tolerance=2)


def test_different_numbers_of_steps(tmp_path: Path) -> None:
    paths = write_kineto(tmp_path)
    trace = json.loads(paths[1].read_text())
    trace["traceEvents"] += kineto(moved(STEP[1], 200))["traceEvents"]
    paths[1].write_text(json.dumps(trace))
    with pytest.raises(InputError, match=r"rank1\.json: training steps = 2: .*rank0\.json has 1"):
        measure(*paths)


def plan(devices: int, microbatches: int, placement: str = "linear", method: str = "1f1b") -> Schedule:
    instance = Instance.uniform(
        devices=devices, microbatches=microbatches, forward=1, backward=1, weight=1, placement=placement
    )
    return simulate(instance, HEURISTICS[method].make(instance))


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (plan(3, 3), "traces = 2: the schedule has 3 devices; give one trace of each"),
        (plan(2, 3), r"rank0\.json: microbatches = 2: the schedule has 3"),
        (plan(2, 2, "v", "greedy-v"), r"rank0\.json: stages = '0': the schedule has 0, 3 on device 0"),
    ],
)
def test_traces_that_do_not_fit_the_schedule(schedule: Schedule, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        measure(*write_kineto(tmp_path), schedule=schedule)


def test_stages_that_fit_no_placement(tmp_path: Path) -> None:
    step = [
        {f"{kind}{stage}.0": (100.0 * k + 10 * stage, 100.0 * k + 10 * stage + 5) for k, kind in enumerate(("F", "BW"))
         for stage in stages}
        for stages in ((0,), (1, 2))
    ]  # fmt: skip
    with pytest.raises(
        InputError, match=r"stages = \[\[0\], \[1, 2\]\]: the stages of the devices fit none of"
    ):
        measure(*write_kineto(tmp_path, step), tolerance=1000)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("G:x", r"pattern = 'G:x': must be <F\|B\|W\|BW\|COMM>:<regular expression>"),
        ("F:(", r"pattern = 'F:\(': not a regular expression"),
        ("F:(?P<rank>x)", "pattern = 'rank': known groups are stage, chunk, microbatch"),
        (r"F:(?P<stage>F)", "pattern = 'F': the group stage must match a number"),
    ],
)
def test_bad_patterns(pattern: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        measure(*write_kineto(tmp_path), patterns=[pattern])


def test_names_without_microbatches_need_their_number(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="need --microbatches or --schedule: how many a step has"):
        measure(*write_kineto(tmp_path), patterns=["F:tightpipe F", "BW:tightpipe BW"])


def test_ranks_and_files(tmp_path: Path) -> None:
    paths = write_kineto(tmp_path)
    with pytest.raises(InputError, match=r"rank0\.json: is named twice"):
        measure(paths[0], paths[0])
    (tmp_path / "again.json").write_text(paths[0].read_text())
    with pytest.raises(InputError, match=r"again\.json: rank = 0: is also the rank of .*rank0\.json"):
        measure(paths[0], tmp_path / "again.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: the folder has no traces"):
        measure(tmp_path / "empty")
    with pytest.raises(InputError, match=r"nothing\.json: no such file"):
        measure(tmp_path / "nothing.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a Chrome trace, or truncated: it is empty"),
        (b"  \n", "not a Chrome trace, or truncated: it is empty"),
        (b"hello", "must be a Chrome trace: a list of events, or traceEvents"),
        (b'{"traceEvents": [', "not a Chrome trace, or truncated"),
        (b'{"traceEvents": [{}]', "not a Chrome trace, or truncated: Expecting value at character 20"),
        (b"[" + (b'"' + b"x" * 9997 + b'",') * 400 + b"x]", "not a Chrome trace, or truncated: Expecting value at character 4,000,001"),
        (b'{"traceEvents": 5}', "must be a Chrome trace: a list of events, or traceEvents"),
        (b"[" * 10**6, "nested too deeply"),
        (b"[" + b"1" * 5000 + b"]", "or with a number of thousands of digits"),
        (b"\x1f\x8bhello", "cannot be read"),
        (gzip.compress(b"[" + b" " * 10**5, mtime=0)[:60], "cannot be read"),
        (b'[{"ph": "X", "name": "tightpipe F0.0", "ts": "soon", "dur": 1}]', r"tightpipe F0\.0\.ts = 'soon'"),
        (b'[{"ph": "X", "name": "tightpipe F0.0", "ts": 1, "dur": NaN}]', r"tightpipe F0\.0\.dur = nan"),
        (b"SQLite format 3\0", "not an SQLite export of Nsight Systems, or damaged"),
    ],
)  # fmt: skip
def test_damaged_files(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        measure(tmp_path / "trace")
    assert str(tmp_path / "trace") in str(error.value)


def test_a_report_without_nvtx_says_how_to_record_it(tmp_path: Path) -> None:
    path = write_nsight(tmp_path / "report.sqlite")
    content = path.read_bytes().replace(b"NVTX_EVENTS", b"NVTX_OTHERS")
    path.write_bytes(content)
    with pytest.raises(InputError, match="record with nsys profile --trace=cuda,nvtx, and export with"):
        measure(path)


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The content, cut or with some bytes changed."""
    if chance.random() < 0.3:
        return content[: chance.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(chance.choice((1, 2, 20))):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def refusal(read: Callable[[Path], Any], path: Path) -> str:
    """What the reader says against a file; empty if it takes it."""
    try:
        read(path)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["kineto", "packed", "nsight", "kernels", "timers"])
def test_damage_is_never_a_traceback(kind: str, tmp_path: Path) -> None:
    if kind in ("nsight", "kernels"):
        path = write_nsight(tmp_path / "report.sqlite")
        if kind == "kernels":
            add_kernels(path, hosts=0.25)
    else:
        path = tmp_path / "trace"
        both = kineto(
            {**STEP[0], **{name.replace("1.", "0."): (s + 200, e + 200) for name, (s, e) in STEP[1].items()}}
        )
        plain = TIMERS if kind == "timers" else json.dumps(both)
        path.write_bytes(gzip.compress(plain.encode(), mtime=0) if kind == "packed" else plain.encode())
    read: Callable[[Path], Any] = read_timers if kind == "timers" else measure
    read(path)
    content, chance = path.read_bytes(), random.Random(5)
    said = []
    for _ in range(150):
        path.write_bytes(damaged(content, chance))
        said.append(refusal(read, path))
    assert len([text for text in said if text]) > 10
    assert all("\n" not in text for text in said)


def test_a_large_trace_takes_little_memory(tmp_path: Path) -> None:
    event = json.dumps({"ph": "X", "name": "aten::mm", "ts": 1.5, "dur": 2.5, "args": {"shape": "x" * 2000}})
    path = tmp_path / "large.json"
    with path.open("w") as file:
        file.write('{"traceEvents": [' + ",\n".join([event] * 100))
        for _ in range(60):
            file.write("," + ",".join([event] * 100))
        file.write("]}")
    assert path.stat().st_size > 10_000_000
    tracemalloc.start()
    count = sum(1 for _ in trace_entries(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 6_100
    assert peak < 8_000_000  # the reader holds a megabyte of text at a time


def test_the_command_says_one_line_and_writes_nothing(tmp_path: Path) -> None:
    write_kineto(tmp_path, without("F1.1"))
    done = call("measure", tmp_path, "-o", tmp_path / "out.json", "--instance", tmp_path / "instance.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tightpipe: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out.json").exists()
    assert not (tmp_path / "instance.json").exists()
