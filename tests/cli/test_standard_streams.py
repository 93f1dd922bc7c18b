"""Every command where standard output is full or closed, where its reader has left, and where stderr is full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO
from unittest.mock import patch

import pytest
from helpers.command_line import SMALL, Done, call, write
from helpers.every_command import CALLS, arguments, commands, with_json, write_inputs

from tightpipe.cli import main

TIGHTPIPE = str(Path(sys.executable).with_name("tightpipe"))
FULL = Path("/dev/full")
NO_SPACE = "tightpipe: standard output: cannot be written: No space left on device\n"
CLOSED = "tightpipe: standard output: cannot be written: it is closed; for no output, send it to /dev/null\n"
COMMANDS = list(commands())
EXTENDS = {"compare", "paper realistic", "sweep"}  # read what is there, or have a folder
WRITES_ONE_FILE = [name for name, words in CALLS.items() if "-o" in words.split() and name not in EXTENDS]
STARTS = [["--help"], ["--version"], ["methods"], ["methods", "--json"], ["solve", "--help"]]

needs_full_device = pytest.mark.skipif(not FULL.exists(), reason="a device of Linux")
needs_shell = pytest.mark.skipif(os.name == "nt", reason="closes streams as a Unix shell does")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


@pytest.fixture
def folder(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all inputs, in which the test runs."""
    copy = tmp_path / "copy"
    shutil.copytree(inputs, copy)
    monkeypatch.chdir(copy)
    return copy


@contextmanager
def full_device() -> Iterator[TextIO]:
    stream = FULL.open("w")
    yield stream
    stream.close()  # raises if the command has left something in the buffer, as Python would at its end


@contextmanager
def pipe_without_reader() -> Iterator[TextIO]:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    yield stream
    stream.close()


def call_into(stdout: TextIO | None, words: list[str], stderr: TextIO | None = None) -> int:
    """Run the command line in this process with these streams, and return its exit status."""
    with (
        redirect_stdout(stdout),
        redirect_stderr(stderr or sys.stderr),
        patch.object(sys, "argv", ["tightpipe", *words]),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    return int(stop.value.code or 0)


def last_line(said: pytest.CaptureFixture[str]) -> str:
    return said.readouterr().err.splitlines(keepends=True)[-1]


def test_the_calls_are_of_commands_that_exist() -> None:
    assert set(CALLS) <= set(COMMANDS)


@needs_full_device
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("words_of", [arguments, with_json], ids=["text", "json"])
def test_a_full_standard_output_is_one_line_and_exit_2(
    command: str, words_of: object, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(words_of)
    with full_device() as stream:
        status = call_into(stream, words_of(command))
    assert (status, last_line(capsys)) == (2, NO_SPACE)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_left_ends_every_command_silently_with_141(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pipe_without_reader() as stream:
        status = call_into(stream, arguments(command))
    assert status == 141
    said = capsys.readouterr().err
    assert "standard output" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_standard_output_is_refused_before_any_work(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert call_into(None, arguments(command)) == 2
    assert capsys.readouterr().err == CLOSED
    assert sorted(folder.rglob("*")) == before


@needs_full_device
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_standard_error_changes_no_answer(command: str, folder: Path) -> None:
    out = folder / "out.txt"
    with full_device() as errors, out.open("w") as stream:
        status = call_into(stream, arguments(command), errors)
    assert status == 0
    assert out.stat().st_size > 0


@needs_full_device
@pytest.mark.parametrize("command", WRITES_ONE_FILE)
def test_a_full_output_file_is_named_in_one_line(command: str, folder: Path) -> None:
    words = arguments(command)
    target = words[words.index("-o") + 1]
    target = "output.svg" if target == "-" else target  # the suffix says what a file holds
    words[words.index("-o") + 1] = target
    (folder / target).unlink(missing_ok=True)
    (folder / target).symlink_to(FULL)
    done = call(*words)
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr.splitlines()[-1]


def shell(
    line: str, *words: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a shell, in whose line ``"$@"`` stands for it."""
    return subprocess.run(
        ["bash", "-c", line, "bash", TIGHTPIPE, *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
    )


@needs_full_device
@pytest.mark.parametrize("words", STARTS, ids=" ".join)
def test_the_installed_command_leaves_nothing_that_python_could_not_write(words: list[str]) -> None:
    for line, said in (('"$@" > /dev/full', NO_SPACE), ('"$@" >&-', CLOSED)):
        done = shell(line, *words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    for line in ('"$@" 2> /dev/full', '"$@" 2>&-'):
        done = shell(line, *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


@needs_shell
def test_the_installed_command_says_nothing_to_a_reader_that_has_left() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for words in STARTS:
        done = subprocess.run([TIGHTPIPE, *words], stdout=writer, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (141, "")
    os.close(writer)


@needs_full_device
def test_the_completion_of_a_shell_into_a_full_device_is_one_line() -> None:
    for line, said in (('"$@" > /dev/full', NO_SPACE), ('"$@" >&-', CLOSED)):
        done = shell(line, _TIGHTPIPE_COMPLETE="bash_source")
        assert (done.returncode, done.stderr) == (2, said)


@needs_full_device
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_buffering_does_not_matter(unbuffered: str, inputs: Path) -> None:
    done = shell(
        '"$@" > /dev/full', "bound", "instance.json", "--json", cwd=inputs, PYTHONUNBUFFERED=unbuffered
    )
    assert (done.returncode, done.stderr) == (2, NO_SPACE)


@needs_shell
def test_bad_input_is_exit_2_where_nobody_can_be_told() -> None:
    for line in ('"$@" 2>&-', '"$@" 2> /dev/full', '"$@" >&- 2>&-', '"$@" <&- >&- 2>&-'):
        done = shell(line, "bound", "none.json")
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@needs_shell
def test_a_file_never_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """The file that a command opens first would get the number of standard error."""
    path = write(tmp_path, SMALL)
    plain = shell('"$@"', "solve", str(path), "--method", "greedy-v", "-o", str(tmp_path / "plain.json"))
    closed = shell(
        '"$@" <&- 2>&-', "solve", str(path), "--method", "greedy-v", "-o", str(tmp_path / "s.json")
    )
    assert plain.returncode == closed.returncode == 0
    assert (tmp_path / "s.json").read_bytes() == (tmp_path / "plain.json").read_bytes()


IMPORT = ("--target", "csv", "--instance", "instance.json")
STRANGE = [
    "new\nline",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "a\rb",
    "tab\tbed",
    "\udcff\udcfe",
    "übergröße 日本",
    "right\u202eleft",
    "[bold]x[/bold] [/]",
    "\u2028",
]


@pytest.mark.parametrize("name", STRANGE, ids=ascii)
@pytest.mark.parametrize("words", [["bound"], ["validate"], ["explain"], ["report", "-o", "p.html"]])
def test_a_name_that_cannot_be_shown_is_escaped_in_a_message(words: list[str], name: str) -> None:
    done = call(*words, f"none{name}")
    assert done.returncode == 2
    assert done.stderr.isascii() or name.startswith("ü")
    assert done.stderr.count("\n") == 1
    assert done.stderr.removesuffix("\n").isprintable()
    assert "none" in done.stderr


def shown(done: Done | subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


@needs_shell
@pytest.mark.parametrize("name", [name for name in STRANGE if "/" not in name], ids=ascii)
@pytest.mark.parametrize("command", [name for name, words in CALLS.items() if ".json" in words])
@pytest.mark.sampled(3)
def test_files_of_any_name_are_read_and_told_without_a_character_that_a_terminal_obeys(
    command: str, name: str, folder: Path
) -> None:
    words = arguments(command)
    for place, word in enumerate(words):
        path = folder / word
        if word != "-" and path.suffix == ".json" and words[place - 1] != "-o" and path.is_file():
            words[place] = f"{name}{word}"
            path.rename(folder / words[place])
    if "-o" in words and "." in words[words.index("-o") + 1]:
        words[words.index("-o") + 1] = f"{name}{words[words.index('-o') + 1]}"
    elif "-" in words:
        words[words.index("-")] = f"{name}.csv"
    done = call(*words)
    assert done.returncode == 0, done.stderr
    assert all(line.isprintable() for line in shown(done).replace("\t", " ").split("\n"))


@needs_shell
@pytest.mark.parametrize(
    "words",
    [
        "compare {0}instance.json --methods greedy-v -o {0}rows.csv --latex {0}rows.tex",
        "sweep {0}experiment.toml --at-once 1",
        "plot {0}schedule.json better.json -o {0}plot.svg",
        "program replay --noise jitter:0.1 --samples 4 {0}schedule.json better.json",
    ],
    ids=lambda words: words.split()[0],
)
def test_names_that_are_no_text_go_into_tables_and_pictures(words: str, folder: Path) -> None:
    name = "\udcff\x1b"
    for file in ("instance.json", "schedule.json"):
        (folder / file).rename(folder / f"{name}{file}")
    (folder / f"{name}experiment.toml").write_text('instances = ["*instance.json"]\nmethods = ["v-half"]\n')
    done = call(*words.format(name).split(" "))
    assert done.returncode == 0, done.stderr
    assert all(line.isprintable() for line in shown(done).split("\n"))


@needs_shell
@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}])
def test_what_an_encoding_lacks_is_escaped(locale: dict[str, str], inputs: Path, tmp_path: Path) -> None:
    names = ("new\nline\x1b[31m\udcff", "ü")
    for name in names:
        missing = shell('"$@"', "bound", f"none{name}", **locale)
        assert missing.returncode == 2, missing.stderr
        assert missing.stderr.isascii()
        assert missing.stderr.count("\n") == 1
    target = tmp_path / f"{''.join(names)}.json"
    done = shell(
        '"$@"', "program", "import", "schedule.csv", *IMPORT, "-o", str(target), cwd=inputs, **locale
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert target.exists()
