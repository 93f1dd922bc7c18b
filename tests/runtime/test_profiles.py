"""Reading profiles: tables, PyTorch's traces, the zero-bubble runtime's log; what each lacks is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.traces import ZERO_BUBBLE_RECORD

from tightpipe import InputError, OpKind, simulate, solve, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.measuring import read_chrome_trace
from tightpipe.runtime import read_table, read_zero_bubble_log

TABLE = """stage,kind,time,memory
0,F,10.4,30
0,B,9,-10
0,W,8,-20
1,F,12,30
1,F,11,30
1,B,9,-10
1,W,0.2,-20
,comm,3.6,0
"""


def written(folder: Path, text: str, name: str = "profile") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_table(tmp_path: Path) -> None:
    profile = read_table(written(tmp_path, TABLE))
    assert (profile.forward, profile.backward, profile.weight) == ((10, 11), (9, 9), (8, 1))
    assert profile.comm == 4
    assert profile.memory == ((30, 30), (-10, -10), (-20, -20))
    assert profile.warnings == (
        "W of stage 1 took less than half a microsecond and counts as 1 tick, the least that an operation may take",
    )
    assert profile.fused is None
    rounded = read_table(written(tmp_path, TABLE.replace("9,-10", "9,-9.4").replace("-20", "-20.6")))
    assert rounded.memory == ((30, 30), (-9, -9), (-21, -21))  # W takes what rounding left
    instance = profile.instance(devices=2, microbatches=4, placement="linear", limit=90)
    schedule = simulate(instance, HEURISTICS["zb-h1"].make(instance))
    assert validate(instance, schedule) == []


def test_a_table_with_fused_backwards_and_without_a_b_at_the_first_stage(tmp_path: Path) -> None:
    text = TABLE.replace("0,B,9,-10\n0,W,8,-20", "0,B,0,0\n0,W,16,-30") + "1,BW,7.6,\n"
    profile = read_table(written(tmp_path, text))
    assert (profile.backward, profile.weight, profile.fused) == ((0, 9), (16, 1), (16, 8))
    instance = profile.instance(devices=2, microbatches=4, placement="linear", limit=90)
    assert [instance.has(OpKind.B, stage) for stage in (0, 1)] == [False, True]
    assert [instance.duration(OpKind.BW, stage) for stage in (0, 1)] == [16, 8]
    schedule = solve(instance, "1f1b").schedule
    assert schedule is not None
    assert validate(instance, schedule) == []


def test_a_table_of_a_frozen_stage(tmp_path: Path) -> None:
    text = TABLE.replace("0,B,9,-10\n0,W,8,-20", "0,B,0,0\n0,W,0,0")
    profile = read_table(written(tmp_path, text))
    assert profile.memory == ((30, 30), (0, -10), (0, -20))
    assert not profile.instance(devices=2, microbatches=2, placement="linear").has_backward(0)


def test_a_table_without_memory(tmp_path: Path) -> None:
    text = "stage,kind,time,memory\n" + "".join(f"{s},{k},5,\n" for s in range(4) for k in "FBW")
    profile = read_table(written(tmp_path, text))
    assert profile.memory is None
    assert [text.split(":")[0] for text in profile.warnings] == [
        "communication was not measured",
        "memory was not measured",
    ]
    assert profile.instance(devices=2, microbatches=2).stages == 4
    with pytest.raises(InputError, match="devices = 0: must be at least 1"):
        profile.instance(devices=0, microbatches=2)
    with pytest.raises(InputError, match="the profile has no memory"):
        profile.instance(devices=2, microbatches=2, limit=5)
    with pytest.raises(InputError, match="devices = 3: must divide the number of profiled stages, 4"):
        profile.instance(devices=3, microbatches=2)


def test_a_table_may_say_what_beginning_an_operation_takes(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, TABLE)).start == 0
    assert read_table(written(tmp_path, f"{TABLE},start,0.6,0\n")).start == 1
    with pytest.raises(InputError, match=r"\.time = -1\.0: must be a number of microseconds, at least 0"):
        read_table(written(tmp_path, f"{TABLE},start,-1,0\n"))


def test_a_table_may_say_how_much_times_vary(tmp_path: Path) -> None:
    lines = TABLE.splitlines()
    assert read_table(written(tmp_path, TABLE)).variation is None
    spread = [
        f"{lines[0]},variation",
        *(f"{line},{k / 8}" for k, line in enumerate(lines[1:-1])),
        f"{lines[-1]},",
    ]
    profile = read_table(written(tmp_path, "\n".join(spread) + "\n"))
    assert profile.variation is not None
    assert [row[0] for row in profile.variation] == [0, 0.125, 0.25]
    with pytest.raises(InputError, match=r"line 2\.variation = -1\.0: must be .* at least 0"):
        read_table(written(tmp_path, "\n".join(spread).replace(",0.0\n", ",-1\n", 1)))
    with pytest.raises(InputError, match="must have 5 fields"):
        read_table(written(tmp_path, "\n".join(spread).replace(",0.0\n", "\n", 1)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("stage,kind", "stage;kind"), "line 1 = .*must begin with stage,kind,time,memory"),
        (("0,B,9,-10\n", ""), "times are missing: B of stage 0$"),
        (("1,", "3,"), "times are missing: F of stage 1, B of stage 1, W of stage 1, F of stage 2"),
        (("0,W,8,-20", "0,W,8,"), "memory are missing: W of stage 0"),
        (("10.4", "fast"), r"line 2\.time = 'fast': must be a number"),
        (("10.4", "nan"), r"line 2\.time = 'nan': must be a finite number"),
        (("10.4", "-10.4"), r"profile: line 2\.time = -10\.4: must be a number of microseconds, at least 0"),
        (("3.6", "-3.6"), r"line 9\.time = -3\.6: must be a number of microseconds, at least 0"),
        (("0.2,-20", "0.2,-21"), r"memory of stage 1 = \(30.0, -10.0, -21.0\): F, B and W sum to -1, must"),
        (
            ("0.2,-20", "0.2,20"),
            r"memory of stage 1 = \(30.0, -10.0, 20.0\): F must be at least 0, B and W at",
        ),
        (("stage,kind,time,memory\n", ""), "line 1 = '0,F,10.4,30': must begin with"),
        ((TABLE, ""), "profile: is empty"),
        (("0,F,10.4", "0,G,10.4"), r"line 2\.kind = 'G': must be one of F, B, W, BW, comm"),
        (("0,F,10.4", "x,F,10.4"), r"line 2\.stage = 'x'"),
        (("0,F,10.4,30", "0,F,10.4"), "line 2 = '0,F,10.4': must have 4 fields"),
    ],
)
def test_bad_tables(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_table(written(tmp_path, TABLE.replace(*change)))


def trace(**ranges: list[float]) -> str:
    events: list[dict[str, Any]] = [{"ph": "X", "name": "aten::mm", "dur": 1}, {"ph": "M", "name": "PP:0F0"}]
    for action, durations in ranges.items():
        stage, kind = action[1:].split("_", 1)
        events += [
            {"ph": "X", "name": f"PP:{stage}{kind}{m}", "ts": m, "dur": d} for m, d in enumerate(durations)
        ]
    return json.dumps({"traceEvents": events})


def test_traces_of_two_ranks_take_the_shortest_range(tmp_path: Path) -> None:
    first = written(
        tmp_path, trace(s0_F=[90.0, 10.0], s0_I=[1, 1], s0_W=[30, 20], s0_SEND_F=[1, 1]), "rank0.json"
    )
    second = tmp_path / "rank1.json.gz"
    second.write_bytes(gzip.compress(trace(s1_F=[12.2], s1_I=[11], s1_W=[9]).encode()))
    profile = read_chrome_trace(first, second, comm=5)
    assert (profile.forward, profile.backward, profile.weight) == ((10, 12), (0, 11), (20, 9))
    assert (profile.comm, profile.memory) == (5, None)
    assert [text.split(":")[0] for text in profile.warnings] == [
        "memory was not measured",
        "a range includes the wait for its receive",
    ]
    assert profile.fused is None
    mixed = written(
        tmp_path, trace(s0_F=[10], s0_B=[33], s1_F=[9], s1_I=[4], s1_W=[5], s1_B=[8]), "mixed.json"
    )
    profile = read_chrome_trace(mixed)
    assert (profile.backward, profile.weight, profile.fused) == ((0, 4), (33, 5), (33, 8))
    assert "comm is 0" in read_chrome_trace(first, second).warnings[0]


@pytest.mark.parametrize("place", [-1000.0, 50.0, 1000.0])
def test_forwards_of_validation_passes_do_not_count(place: float, tmp_path: Path) -> None:
    steps = [("F", 0, 0.0, 30.0), ("F", 1, 10.0, 32.0), ("I", 0, 20.0, 40.0), ("W", 0, 22.0, 9.0),
             ("I", 1, 24.0, 41.0), ("W", 1, 26.0, 10.0)]  # fmt: skip
    validation = [("F", microbatch, place + microbatch, 12.0) for microbatch in (0, 1, 2)]
    ran = steps + [(kind, m, 100 + start, took + 1) for kind, m, start, took in steps] + validation
    events = [
        {"ph": "X", "cat": cat, "name": f"PP:0{kind}{m}", "ts": 1e15 + start, "dur": took}
        for kind, m, start, took in ran
        for cat in ("user_annotation", "gpu_user_annotation")
    ]
    profile = read_chrome_trace(written(tmp_path, json.dumps(events)))
    assert (profile.forward, profile.backward, profile.weight) == ((30,), (0,), (9,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (trace(), "has no ranges PP:"),
        (trace(s0_F=[1]), "times are missing: F of stage 0, B of stage 0, W of stage 0$"),
        ('[{"ph": "X", "name": "PP:0F0", "dur": 1}]', r"PP:0F0\.ts = None: must be a number of microseconds"),
        (trace(s0_F=[1], s0_I=[1]), "times are missing: W of stage 0$"),
        (trace(s0_F=[1], s0_B=[1], s1_F=[1], s1_I=[1]), "times are missing: W of stage 1$"),
        (
            trace(s0_F=[1], s0_B=[1], s1_F=[1], s1_B=[1]),
            "times are missing: B of stage 1, W of stage 1; its backwards are fused",
        ),
        ("{", "not a Chrome trace, or truncated"),
        ('{"events": []}', "must be a Chrome trace"),
        ('[{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": "long"}]', r"PP:0F0\.dur = 'long'"),
        (trace(s0_F=[-3], s0_I=[1], s0_W=[1]), r"profile: PP:0F0\.dur = -3: .* at least 0"),
        ('[{"ph": "X", "name": "PP:0F0", "ts": 0, "dur": NaN}]', r"PP:0F0\.dur = nan"),
    ],
)
def test_bad_traces(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_chrome_trace(written(tmp_path, text))


LOG = f"""iteration 12 | loss 3.2
rank 2 Performing ILP with: f=([1, 1], [1, 1]),
 b=([1, 1], [1, 1]),
 w=([1, 1], [1, 1]),
 c=1,
 f_mem=([1, 1], [1, 1]),
 b_mem=([0, 0], [0, 0]),
 w_mem=([-1, -1], [-1, -1]),
 mem_limit=(4, 4)
{ZERO_BUBBLE_RECORD}iteration 13 | loss 3.1
"""


def test_the_zero_bubble_log_gives_its_last_record(tmp_path: Path) -> None:
    profile = read_zero_bubble_log(written(tmp_path, LOG))
    assert profile.forward == (29718, 29750, 29760, 29700)  # chunk 1 of device 0 is the last stage
    assert profile.weight == (19927, 19940, 19950, 19930)
    assert profile.comm == 527
    assert profile.memory is not None
    assert profile.memory[0] == (296 * 1024,) * 4
    assert profile.limits == (1536512, 1536512)
    instance = profile.instance(devices=2, microbatches=4)
    assert instance.memory_limit(0) == 1536512
    looped = read_zero_bubble_log(written(tmp_path, LOG), placement="loop")
    assert looped.forward == (29718, 29750, 29700, 29760)


def test_a_log_line_with_numbers_per_device(tmp_path: Path) -> None:
    line = "rank 0 Performing ILP with: f=(5, 6), b=(4, 4), w=(3, 3), c=1, f_mem=(9, 9), b_mem=(-4, -4), "
    profile = read_zero_bubble_log(written(tmp_path, line + "w_mem=(-5, -5), mem_limit=(40, 40)\nnext\n"))
    assert profile.forward == (5, 6)
    assert profile.instance(devices=2, microbatches=2, placement="linear").devices == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("Performing ILP", "Solving"), "has no record 'Performing ILP with:"),
        ((" c=527.4,\n", ""), "c: the record lacks c="),
        (("c=527.4", "c=fast"), "c = 'fast': must be a number or a tuple"),
        (("c=527.4", "c='x'"), "c = 'x': must be a number"),
        (("c=527.4", "c=-1"), "c = -1.0: must be a number of microseconds, at least 0"),
        (("29750, 29760", "29750, -29760"), r"f of stage 2 = -29760\.0: must be a number of microseconds"),
        (("w_mem=([-128.0,", "w_mem=([-100.0,"), r"memory of stage 0 = .*sum to 28672, must sum to 0"),
        (
            ("b=([29444, 29440], [29430, 29420])", "b=([29444, 29440],)"),
            "b: has no value for chunk 0 of device 1",
        ),
        (("b=([29444, 29440], [29430, 29420])", "b=()"), "must have a number for every device"),
    ],
)
def test_bad_logs(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_zero_bubble_log(written(tmp_path, ZERO_BUBBLE_RECORD.replace(*change)))
