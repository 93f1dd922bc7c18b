"""The work and the memory that a file can make the checker spend are limited, whatever the file says."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tightpipe.certificates import check_proof
from tightpipe.certificates.check_proof import CheckError, InputError, Problem, RefutedError, Windows, check

CHECKER = Path(check_proof.__file__)
LATE = 10**9  # a target that leaves everything open


def instance(devices: int, chunks: int, microbatches: int, *, alike: bool = False) -> dict[str, Any]:
    """A linear instance; if the W's of a device are not `alike`, each stage has its own queue of them."""
    return {
        "devices": devices,
        "chunks": chunks,
        "microbatches": microbatches,
        "placement": "linear",
        "forward": 10,
        "backward": 10,
        "weight": 10 if alike else [10 + s for s in range(devices * chunks)],
        "memory": {"forward": 2, "backward": -1, "weight": -1, "limit": 10**6},
    }


def proof(about: dict[str, Any], steps: list[Any]) -> dict[str, Any]:
    what = {"kind": "windows", "anchor": 0, "steps": steps}
    return {"format": check_proof.FORMAT, "instance": about, "bound": LATE, "proof": what}


def opcodes_of(action: Callable[[], None]) -> int:
    """How many instructions of the checker's code the action executes."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except (CheckError, RefutedError):
        pass
    finally:
        sys.settrace(before)
    return count


CHUNKS, MANY = 30, 3000
WIDE, LONG = instance(1, CHUNKS, 1), instance(1, 1, MANY, alike=True)
OPEN = {1: [[0, 1, 0, 1]] * (3 * CHUNKS), MANY: [[0, MANY, 0, MANY]] * 3}
STEPS = {
    "arrive": ["arrive", 5],
    "depart": ["depart", 5],
    "walk": ["walk", 0],
    "preceded": ["preceded", CHUNKS, [0] * (3 * CHUNKS)],
    "followed": ["followed", 0, [1] * (3 * CHUNKS)],
    "frame": ["frame", 5],
    "order": ["order", 0, 1],
    "chain": ["chain", 0, 1, 2],
    "memory": ["memory", 5, 2 * CHUNKS],
    "pool": ["pool", 5, 2 * CHUNKS, 2 * CHUNKS],
    "fill": ["fill", 5, 2 * CHUNKS],
    "suppose": ["suppose", 1, 0, []],
    "overload": ["overload", 0, 0, OPEN[1], 9, OPEN[1]],
    "progress": ["progress", 0, [0, 5, 9], [OPEN[1]] * 3, [0, 1]],
    "room": ["room", 0],
    "a progress of many ended operations": ["progress", 0, [0, 9], [OPEN[MANY]] * 2, [1]],
    "a supposition that moves many operations": ["suppose", MANY - 1, MANY, []],
    "a supposition that is taken back": ["suppose", 0, 3 * MANY - 1, [["suppose", 2 * MANY - 1, 0, []]]],
}
MOST_OPCODES = 150  # per unit of work: some 5 microseconds


def test_every_rule_has_a_step_here() -> None:
    assert set(check_proof.RULES) <= set(STEPS)


@pytest.mark.parametrize("name", STEPS)
def test_no_step_does_more_work_than_it_is_charged_for(name: str) -> None:
    windows = Windows(Problem(WIDE if name in check_proof.RULES else LONG), LATE, 0)
    opcodes = opcodes_of(lambda: windows.run([STEPS[name]]))
    assert opcodes > 0
    assert opcodes <= MOST_OPCODES * windows.effort


def test_a_state_that_is_impossible_at_once_is_charged_too() -> None:
    """Within a supposition such a step closes a branch, and a file can have any number of branches."""
    windows = Windows(Problem(WIDE), LATE, 0)
    for i in (0, 1):  # two operations that run at tick 5
        windows.early[i] = windows.late[i] = 0
    counts = [[0, 0, 1, 1]] * 2 + OPEN[1][2:]
    opcodes = opcodes_of(lambda: windows.run([["overload", 0, 5, counts, 5, counts]]))
    assert windows.effort > (3 * CHUNKS) ** 2
    assert opcodes <= MOST_OPCODES * windows.effort


def test_work_is_refused_before_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = Windows(Problem(WIDE), LATE, 0)
    monkeypatch.setattr(check_proof, "MOST_EFFORT", 1000)

    def refused() -> None:
        with pytest.raises(InputError, match="steps: too much work"):
            windows.run([STEPS["progress"]])

    assert opcodes_of(refused) < 2 * MOST_OPCODES * 1000


def test_a_narrow_window_never_leaves_64_bits() -> None:
    """The largest times and counts that a file can have fit into the arrays of the windows."""
    largest = {**instance(2, 1, 2, alike=True), "forward": 10**12, "backward": 10**12, "weight": 10**12}
    largest |= {"comm": 10**12, "memory": None}
    bound = {**proof(largest, [["walk", 0], ["frame", 0], ["walk", 1]]), "bound": check_proof.LATEST}
    with pytest.raises(CheckError, match="no contradiction"):
        check(bound)


MEASURED = """
import resource, runpy, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def answer(path: Path, megabytes: int) -> str:
    """What the checker says about bad input, in one line, with so much memory and a minute of a processor."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", MEASURED, str(megabytes * 2**20), str(CHECKER), str(path)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


LARGE = {
    "one device with as many stages as there can be": instance(1, 333_333, 1, alike=True),
    "many devices with many stages": {**instance(1024, 325, 1, alike=True), "placement": "loop"},
    "many stages with a few microbatches": instance(3, 3000, 30, alike=True),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_short_file_of_a_large_instance_takes_little_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(proof(LARGE[name], [])))
    assert path.stat().st_size < 1000
    assert "instance: too large for this checker" in answer(path, 190)


def test_suppositions_of_a_short_file_take_little_memory(tmp_path: Path) -> None:
    """Each of the two moves half a million values, which have to be kept in order to be taken back."""
    path, many = tmp_path / "proof.json", 250_000
    inner = ["suppose", 2 * many - 1, 2 * many, [["walk", 0]]]
    steps = [["suppose", many - 1, many, [inner]]]
    path.write_text(json.dumps(proof(instance(1, 1, many, alike=True), steps)))
    assert "steps: too much work" in answer(path, 190)


def test_the_worst_megabyte_of_steps_ends_within_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(proof(instance(1024, 1, 1, alike=True), [["walk", 0]] * 90_000)))
    assert path.stat().st_size > 10**6
    assert "steps: too much work" in answer(path, 950)


CONTENTS = {
    "nested lists": "[[]],",
    "empty lists": "[],",
    "deep lists": "[" * 900 + "]" * 900 + ",",
    "empty tables": "{},",
    "tables": '{"":0},',
    "long lists of numbers": "999,",
    "texts": '"\u0100",',
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_large_file_takes_less_than_a_gigabyte(name: str, tmp_path: Path) -> None:
    """Both where the file has as many values as may be, and where it has as many bytes."""
    entry = CONTENTS[name]
    size = len(entry.encode())
    values = sum(map(entry.count, "[{,"))
    for most in (check_proof.MOST_BYTES // size, check_proof.MOST_VALUES // 3 // values):
        for path in (tmp_path / "proof.json", tmp_path / "proof.json.gz"):
            content = f"[{entry * (most - 2)}0]".encode()
            path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
            assert "not enough memory" not in answer(path, 950)


def test_where_memory_is_short_the_checker_says_so(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_text(f"[{'999,' * 1_500_000}0]")
    assert answer(path, 40) == "bad input: not enough memory\n"
