"""Files: regular ones are replaced in one step, links followed, pipes and devices written to, - is standard."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers.cases import not_as_root
from helpers.command_line import Done, call

from tightpipe import InputError, load_instance, load_schedule
from tightpipe.base.files import (
    check_writable,
    csv_rows,
    make_folder,
    read_text,
    write_bytes,
    write_text,
)
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.study import read_rows
from tightpipe.export.formats import read_csv
from tightpipe.model.instance_file import load_lengths
from tightpipe.noise.models import load_spread
from tightpipe.planning.problem_file import load_problem
from tightpipe.runtime.profile_table import read_table

READ_AND_WRITE: dict[str, Callable[[str], object]] = {
    "cannot be read": read_text,
    "cannot be written": lambda path: write_text(path, ""),
    "cannot be made": make_folder,
}
TIGHTPIPE = str(Path(sys.executable).with_name("tightpipe"))
SMALL: dict[str, Any] = {
    "devices": 2,
    "microbatches": 4,
    "forward": 10,
    "backward": 12,
    "weight": 8,
    "comm": 1,
}


@pytest.mark.parametrize("said", READ_AND_WRITE)
def test_a_name_with_a_null_character_is_no_file(said: str) -> None:
    with pytest.raises(InputError, match=rf"^a\\x00b: {said}: embedded null"):
        READ_AND_WRITE[said]("a\0b")


def test_threads_that_write_a_file_at_once_write_one_of_their_texts(tmp_path: Path) -> None:
    texts = [letter * 300_000 for letter in "abcd"]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda text: write_text(tmp_path / "file", text), texts * 25))
    assert (tmp_path / "file").read_text() in texts
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def run(*arguments: str | Path, stdin: str = "", cwd: Path | None = None) -> Done:
    command = [TIGHTPIPE, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=cwd)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def schedule(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of a schedule file."""
    folder = tmp_path_factory.mktemp("schedule")
    (folder / "instance.json").write_text(json.dumps(SMALL))
    done = call("solve", folder / "instance.json", "--method", "greedy-v", "-o", folder / "schedule.json")
    assert done.returncode == 0, done.stderr
    return (folder / "schedule.json").read_text()


def test_a_regular_file_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(0o640)
    with target.open() as reader:
        write_text(target, "new")
        assert reader.read() == "old"  # who reads meanwhile, reads the old content whole
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    target, link, second = there / "real.txt", tmp_path / "link.txt", tmp_path / "second.txt"
    target.write_text("old")
    link.symlink_to(Path("there") / "real.txt")
    second.symlink_to(link)
    before = target.stat().st_ino
    write_text(second, "new")
    assert (link.is_symlink(), second.is_symlink(), target.is_symlink()) == (True, True, False)
    assert target.read_text() == "new"
    assert target.stat().st_ino != before  # replaced, not written over
    assert sorted(tmp_path.iterdir()) == [link, second, there]
    assert list(there.iterdir()) == [target]


def test_a_link_that_leads_nowhere_gets_its_target(tmp_path: Path) -> None:
    link = tmp_path / "link.txt"
    link.symlink_to("later.txt")
    check_writable(link)
    write_text(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "later.txt").read_text() == "new"


@pytest.mark.parametrize("read", [csv_rows, read_csv])
def test_a_table_with_an_open_quote_is_no_table(read: Callable[[str], object]) -> None:
    with pytest.raises(InputError, match="line 1: not a CSV table: field larger than field limit"):
        read('"' + "a" * 200_000)


@pytest.mark.parametrize("read", [load_lengths, load_spread, read_table, read_rows])
def test_files_of_tables_are_refused_in_a_line(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "open.csv"
    path.write_text('"' + "a" * 200_000)
    with pytest.raises(InputError, match="not a CSV table") as error:
        read(path)
    assert str(error.value).startswith(str(path))


def test_rows_have_the_numbers_of_their_lines() -> None:
    assert csv_rows('a,b\n\n1,"2\n3"\n4,5\n') == [
        (1, ["a", "b"]),
        (2, []),
        (4, ["1", "2\n3"]),
        (5, ["4", "5"]),
    ]


def test_a_named_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    check_writable(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_bytes(pipe, b"through the pipe")
    reader.join()
    assert read == [b"through the pipe"]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_device_stays_a_device() -> None:
    write_text("/dev/null", "nothing")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none/a.txt", "there is no such folder"),
        ("file/a.txt", "there is no such folder"),
        ("folder", "it is a folder"),
        ("to_folder", "it is a folder"),
        ("nowhere", "there is no such folder"),
        ("circle", "Too many levels of symbolic links"),
        ("n" * 300, "File name too long"),
    ],
)
def test_what_cannot_be_written_is_named_and_left_alone(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to_folder").symlink_to("folder")
    (tmp_path / "nowhere").symlink_to("none/a.txt")
    (tmp_path / "circle").symlink_to("circle")
    before = sorted(tmp_path.rglob("*"))
    for attempt in (check_writable, lambda path: write_text(path, "new")):
        with pytest.raises(InputError, match=f"cannot be written: .*{why}") as error:
            attempt(tmp_path / name)
        assert error.value.source == str(tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before


@not_as_root
def test_what_is_read_only_is_refused(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept.txt", tmp_path / "folder"
    kept.write_text("old")
    kept.chmod(0o400)
    folder.mkdir(mode=0o500)
    for path, why in ((kept, "it is read-only"), (folder / "new.txt", "the folder is read-only")):
        with pytest.raises(InputError, match=why):
            write_text(path, "new")
    assert kept.read_text() == "old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_device_is_named() -> None:
    with pytest.raises(InputError, match="/dev/full: cannot be written: No space left on device"):
        write_text("/dev/full", "new")


def test_standard_input_is_read_once_and_known_ever_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Übung\r\n".encode())))
    assert [read_text("-"), read_text("-")] == ["Übung\n", "Übung\n"]
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="-: cannot be read: standard input is closed"):
        read_text("-")


def test_a_file_named_like_standard_output_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_text("./-", "new")
    assert (tmp_path / "-").read_text() == read_text("./-") == "new"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("output", ["-", "/dev/stdout"])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_solve_from_standard_input_to_standard_output(output: str, more: list[str], tmp_path: Path) -> None:
    done = run(
        "solve", "-", "--method", "greedy-v", "-o", output, *more, stdin=json.dumps(SMALL), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)  # the schedule and nothing else
    assert (data["method"], data["cost"]) == ("greedy-v", 244)
    assert "244" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert run("validate", "-", stdin=done.stdout).returncode == 0


def test_a_schedule_goes_through_a_link_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "instance.json").write_text(json.dumps(SMALL))
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    link = tmp_path / "link.json"
    done = call("solve", tmp_path / "instance.json", "--method", "greedy-v", "-o", link)
    assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["cost"] == 244


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (["lower"], b'{"'),
        (["program", "overlap"], b'{"'),
        (["export", "--target", "torch-csv"], b"0F0"),
        (["plot"], b"\x89PNG"),
        (["report", "--no-relax"], b"<!doctype html>"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_read_standard_input_and_write_standard_output(
    arguments: list[str], begins: bytes, schedule: str, tmp_path: Path
) -> None:
    command = [TIGHTPIPE, *arguments, "-", "-o", "-", "--json"]
    done = subprocess.run(command, input=schedule.encode(), capture_output=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.lower().startswith(begins.lower())
    assert json.loads(done.stderr.splitlines()[-1])["output"] == "-"
    assert list(tmp_path.iterdir()) == []


def test_a_warm_start_is_taken_from_standard_input(schedule: str, tmp_path: Path) -> None:
    (tmp_path / "instance.json").write_text(json.dumps(SMALL))
    arguments = ["solve", tmp_path / "instance.json", "--method", "cpsat", "--time-limit", "0"]
    done = run(*arguments, "--warm-start", "-", "--json", stdin=schedule)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cost"] == 244


def test_a_reader_that_has_left_gets_no_file_and_is_no_error(schedule: str) -> None:
    command = [TIGHTPIPE, "export", "-", "--target", "csv", "-o", "-"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write(schedule)
    process.stdin.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


def test_fresh_rows_go_where_the_link_leads(tmp_path: Path) -> None:
    link, real = tmp_path / "table.csv", tmp_path / "there" / "real.csv"
    real.parent.mkdir()
    link.symlink_to(real)
    arguments = ("compare", "--settings", "toy-4x8", "--methods", "greedy-v", "-o", link)
    for _ in range(2):
        done = call(*arguments)
        assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    assert real.read_text().count("\n") == 2


def test_the_suffix_gz_compresses_a_text_into_the_same_bytes_at_any_time(tmp_path: Path) -> None:
    path, text = tmp_path / "a.json.gz", "äöü\n" * 1000
    write_text(path, text)
    first = path.read_bytes()
    assert len(first) < 100
    assert gzip.decompress(first) == text.encode()
    assert first[4:8] == bytes(4)  # gzip has the time of writing there
    assert read_text(path) == text


MARK = b"\xef\xbb\xbf"
READERS: dict[str, Callable[[Path], Any]] = {
    "instance.json": load_instance,
    "instance.json.gz": load_instance,
    "instance.toml": load_instance,
    "schedule.json": load_schedule,
    "model.toml": load_problem,
    "experiment.toml": load_experiment,
    "table.csv": read_text,
}


@pytest.mark.parametrize("name", READERS)
def test_a_byte_order_mark_changes_nothing_for_any_reader(name: str, tmp_path: Path) -> None:
    said = []
    for mark in (b"", MARK):
        content, path = mark + json.dumps(SMALL).encode(), tmp_path / name
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        try:
            said.append(READERS[name](path))
        except InputError as error:
            said.append(str(error))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"text", mtime=0)[:-9], gzip.compress(b"text", mtime=0)[:12] + b"?" * 9],
)
def test_what_gzip_cannot_read_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.gz: cannot be read: "):
        read_text(path)
