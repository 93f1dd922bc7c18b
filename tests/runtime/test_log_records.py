"""Readers of text logs find their lines behind whatever loggers and launchers put before them."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.traces import TIMERS, ZERO_BUBBLE_RECORD

from tightpipe.measuring import is_timer_log, read_timers
from tightpipe.runtime import read_zero_bubble_log

PROFILE = f"iteration 12 | loss 3.2\n{ZERO_BUBBLE_RECORD}iteration 13 | loss 3.1\n"
READERS: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "timers": (read_timers, TIMERS, "times across ranks"),
    "profile": (read_zero_bubble_log, PROFILE, "Performing ILP"),
}
"""The reader of each kind of log, a log, and with what the first line of its records begins."""

each_reader = pytest.mark.parametrize("kind", READERS)


def read(kind: str, text: str, folder: Path) -> Any:
    (folder / "train.log").write_text(text)
    return READERS[kind][0](folder / "train.log")


def plain(kind: str, folder: Path) -> Any:
    return read(kind, READERS[kind][1], folder)


def launcher(rank: int, chance: random.Random) -> Callable[[], str]:
    """What a launcher puts before the lines of a rank: a new text for each line, as times go on."""

    def clock() -> str:
        time = f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"
        day = f"20{chance.randrange(10, 40)}-0{chance.randrange(1, 10)}-1{chance.randrange(10)}"
        return f"{day}{between}{time}{parts}"

    between, parts = chance.choice(" T"), chance.choice(("", ",123", ".5Z"))
    form = chance.choice(
        (
            lambda: f"{rank}: ",
            lambda: f"worker-{rank}: ",
            lambda: f"10.0.0.{rank}: ",
            lambda: f"[default{rank}]:",
            lambda: f"[rank{rank}]: ",
            lambda: f"[1,{rank}]<stdout>:",
            lambda: f"node{rank} | b=(1, 2), rank  7: 3.25 ",  # resembles content, and is none
            lambda: f"\x1b[3{rank % 8}m[{rank}]\x1b[0m ",
            lambda: f"(Worker pid={4000 + rank}) ",
        )
    )
    return chance.choice(
        (
            form,
            lambda: f"{clock()} {form()}",
            lambda: f"{form()}{clock()} ",
            lambda: f"[{chance.uniform(0, 1e5):12.6f}] {form()}",
        )
    )


def logged(kind: str, text: str, chance: random.Random) -> list[str]:
    """The lines of a log, of which a logger puts its own prefix before the first of each message."""
    logger = chance.choice(("", "INFO:megatron.core.timers:", "INFO - ", "[INFO] timers.py:12] "))
    return [logger + line if READERS[kind][2] in line else line for line in text.splitlines()]


def mixed(streams: Sequence[Sequence[str]], chance: random.Random) -> str:
    """The lines of several streams, each in its own sequence."""
    turns = [number for number, stream in enumerate(streams) for _ in stream]
    chance.shuffle(turns)
    left = [iter(stream) for stream in streams]
    return "\n".join(next(left[turn]) for turn in turns) + "\n"


@each_reader
def test_a_log_reads_the_same_behind_the_prefixes_of_loggers_and_launchers(kind: str, tmp_path: Path) -> None:
    chance, right = random.Random(1), plain(kind, tmp_path)
    for _ in range(150):
        prefix = launcher(chance.randrange(12), chance)
        lines = [prefix() + line for line in logged(kind, READERS[kind][1], chance)]
        assert read(kind, "\n".join(lines), tmp_path) == right, lines


@each_reader
def test_lines_of_other_ranks_between_those_of_a_record_do_not_count(kind: str, tmp_path: Path) -> None:
    chance, right = random.Random(2), plain(kind, tmp_path)
    noise = [
        "  warning:",
        "  loading:",
        "a line",
        "",
        " c=1,",
        " f=(1, 1), b=(2, 2)",
        "     rank  0: 1.00 ms",
    ]
    for _ in range(150):
        state, rank = chance.getrandbits(32), chance.randrange(12)
        own, others = (launcher(number, random.Random(state)) for number in (rank, rank + 1))
        streams = [
            [own() + line for line in logged(kind, READERS[kind][1], chance)],
            [others() + chance.choice(noise) for _ in range(12)],
        ]
        text = mixed(streams, chance)
        assert read(kind, text, tmp_path) == right, text


@each_reader
def test_records_of_several_ranks_may_be_mixed_line_by_line(kind: str, tmp_path: Path) -> None:
    chance, right = random.Random(3), plain(kind, tmp_path)
    warm_up, last = TIMERS[: TIMERS.index(" iteration 2")], TIMERS[TIMERS.index(" iteration 2") :]
    for _ in range(100):
        state = chance.getrandbits(32)
        ranks = [launcher(number, random.Random(state)) for number in (1, 2, 11)]
        text = last if kind == "timers" else PROFILE
        streams = [[rank() + line for line in logged(kind, text, chance)] for rank in ranks]
        whole = (warm_up if kind == "timers" else "") + mixed(streams, chance)
        found = read(kind, whole, tmp_path)
        if kind == "timers":
            assert (found.devices, found.blocks) == (right.devices, 3), whole
        else:
            assert found == right, whole


@each_reader
@pytest.mark.parametrize(
    "prefixes", [("0: ", "1: "), ("[default0]:", "", "INFO:root:"), ("x {}> ",), ("{}",)]
)
def test_prefixes_that_tell_no_stream_leave_the_lines_in_their_sequence(
    kind: str, prefixes: tuple[str, ...], tmp_path: Path
) -> None:
    chance, right = random.Random(4), plain(kind, tmp_path)
    for _ in range(50):
        text = "\n".join(
            chance.choice(prefixes).format(chance.randrange(10**6)) + line
            for line in READERS[kind][1].splitlines()
        )
        assert read(kind, text, tmp_path) == right, text


@each_reader
def test_a_log_may_be_compressed_and_have_bytes_that_are_no_text(kind: str, tmp_path: Path) -> None:
    right = plain(kind, tmp_path)
    torn = b"\xe2\x96 12%|\xff\n" + b"\xe2\x96".join(
        b"[rank0]: " + line for line in READERS[kind][1].encode().splitlines(keepends=True)
    )
    for content in (torn, gzip.compress(torn)):
        (tmp_path / "train.log").write_bytes(content)
        assert READERS[kind][0](tmp_path / "train.log") == right
        assert is_timer_log(tmp_path / "train.log") == (kind == "timers")


def test_a_log_that_ends_within_a_block_of_timers_counts_the_others(tmp_path: Path) -> None:
    lines = TIMERS.splitlines()
    last = lines[lines.index(" iteration 2/ 10 | elapsed time per iteration (ms): 99.0 |") :]
    right = plain("timers", tmp_path)
    for count in range(9):  # the last of the needed times is the tenth line after the header
        assert read("timers", "\n".join([*lines, *last[: 2 + count], ""]), tmp_path) == right


def test_a_log_of_timers_is_known_wherever_they_begin(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    for begin in (0, 1, 2**20 - 40, 2**20 - 20, 2**20 - 5, 3 * 2**20):
        log.write_text("[rank0]:" + "x" * begin + "\n" + TIMERS)
        assert is_timer_log(log)
    log.write_text("[rank0]:" + "x" * 3 * 2**20)
    assert not is_timer_log(log)
    for trace in ('[{"name": "%s"}]', ' {"name": "%s"}'):
        log.write_text(trace % "times across ranks (ms):")
        assert not is_timer_log(log)


def test_a_long_log_is_read_in_time_that_grows_with_its_length(tmp_path: Path) -> None:
    numbered = [f"{number} | {line}" for number, line in enumerate((TIMERS * 3000).splitlines())]
    assert read("timers", "\n".join(numbered), tmp_path).blocks == 5999
