"""The command `library`: what it prints, and how it says no."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import SMALL, Done, call, write
from helpers.small_library import (
    OPTIMUM,
    files,
    no_proof,
    proof_of,
    schedule_of,
    small_library,
    unknown_schedule,
)

from tightpipe.base.files import read_text, write_text
from tightpipe.library import Library
from tightpipe.library.record import markdown, widest_first


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return small_library(tmp_path / "library")


def run(library: Library, *words: str | Path) -> Done:
    name, *rest = words
    return call("library", name, "--library", library.root, *rest)


def submitted(library: Library, content: Any, *words: str) -> Done:
    path = write(library.root.parent, content, "file.json")
    return run(library, "submit", path, "--by", "Ada", *words)


def test_list_and_show_tell_what_is_known(library: Library) -> None:
    lines = run(library, "list").stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].split()[:7] == ["small", "2", "4", "1", "284", "244", "14.0845%"]
    shown = run(library, "show", "small")
    assert "cost by" in shown.stdout
    assert "\nobjective " in shown.stdout
    assert str(library.root / "tests.json.xz") in shown.stdout
    known = json.loads(run(library, "show", "small", "--json").stdout)
    assert (known["cost"]["value"], known["bound"]["value"]) == (284, 244)
    assert Path(known["file"]) == library.root / "tests.json.xz"
    (listed,) = json.loads(run(library, "list", "--json").stdout)["instances"]
    assert listed.items() <= known.items()


def test_a_name_may_have_any_characters(library: Library) -> None:
    path = write(library.root.parent, schedule_of("modulo"), "file.json")
    assert run(library, "submit", path, "--by", " Ada\n|<b>[/x] ").returncode == 0
    assert "modulo, Ada |<b>[/x]" in run(library, "list").stdout
    assert "| modulo, Ada &vert;&lt;b&gt;[/x] |" in markdown(library.records())


def test_a_name_is_needed(library: Library) -> None:
    path = write(library.root.parent, schedule_of("modulo"), "file.json")
    done = run(library, "submit", path, "--by", " ")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tightpipe: by = ' ': must be the name of who found it\n"


def test_open_problems_stand_by_gap_behind_those_without_a_schedule(library: Library) -> None:
    record = library.record("small")
    assert record.cost is not None
    closer, unsolved = replace(record, cost=replace(record.cost, value=248)), replace(record, cost=None)
    assert widest_first([closer, record, unsolved]) == [unsolved, record, closer]
    library.put(replace(unsolved, id="unsolved"))
    for words, first in (((), "small"), (("--status", "open"), "unsolved")):
        assert json.loads(run(library, "list", "--json", *words).stdout)["instances"][0]["id"] == first


def test_list_chooses_by_family_and_status(library: Library) -> None:
    def count(*words: str) -> int:
        return len(json.loads(run(library, "list", "--json", *words).stdout)["instances"])

    assert count("--status", "open", "--family", "tests") == 1
    assert count("--status", "closed") == 0
    wrong = run(library, "list", "--family", "none")
    assert (wrong.returncode, wrong.stderr) == (2, "tightpipe: family = 'none': must be of tests\n")


def test_submit_says_what_it_accepted_and_check_verifies_it(library: Library) -> None:
    done = submitted(library, schedule_of("cpsat"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "accepted: small has cost 246, bound 244: open\n"
    assert json.loads(submitted(library, proof_of(OPTIMUM), "--json").stdout)["status"] == "closed"
    checked = run(library, "check")
    assert (checked.returncode, checked.stdout) == (0, "1 of 1 instances verified\n")
    assert checked.stderr == "[1/1] small: closed, cost 246 verified, bound 246 verified\n"
    assert json.loads(run(library, "check", "small", "--json").stdout) == {"checked": 1, "failed": {}}


def test_show_writes_files_that_other_commands_read(library: Library, tmp_path: Path) -> None:
    submitted(library, schedule_of("cpsat"))
    submitted(library, proof_of(OPTIMUM))
    schedule, proof = tmp_path / "s.json.gz", tmp_path / "p.json"
    assert run(library, "show", "small", "--schedule", schedule, "--certificate", proof).returncode == 0
    assert call("validate", schedule).returncode == 0
    assert call("check", proof, schedule).returncode == 0


def test_show_writes_nothing_that_is_not_known(tmp_path: Path) -> None:
    library = small_library(tmp_path / "library", cost=None)
    for option, message in (
        ("--schedule", "small: no schedule is known"),
        ("--certificate", "small: the bound 244 has no certificate"),
    ):
        done = run(library, "show", "small", option, tmp_path / "file.json")
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"tightpipe: {message}\n")
    assert not (tmp_path / "file.json").exists()


@pytest.mark.parametrize(
    ("make", "status", "message"),
    [
        (lambda: schedule_of("1f1b-v"), 1, "small: a schedule of cost 284 is known, this costs 284"),
        (no_proof, 1, "not verified: the bound 246 rests on 'cp-sat', which has no proof here"),
        (unknown_schedule, 1, "the library has no such instance"),
        (lambda: "{", 2, "not JSON, or truncated"),
        (lambda: "[]", 2, "must be a table of keys and values"),
        (lambda: {"devices": []}, 2, "missing key 'instance'"),
        (lambda: schedule_of("1f1b-v") | {"instance": {"devices": 2}}, 2, "missing key 'forward'"),
        (lambda: schedule_of("1f1b-v") | {"devices": [[], []]}, 2, "devices"),
        (lambda: schedule_of("1f1b-v") | {"devices": 7}, 2, "devices = 7: must be a list of 2 devices"),
        (lambda: proof_of(OPTIMUM) | {"format": "other"}, 2, "format: this checker reads"),
        (lambda: proof_of(OPTIMUM) | {"more": 1}, 2, "unknown or missing keys"),
        (lambda: proof_of(OPTIMUM) | {"devices": 1}, 2, "unknown or missing keys"),
        (lambda: {"proof": {}, "instance": SMALL}, 2, "unknown or missing keys"),
        (lambda: SMALL, 2, "is an instance file, must be a schedule file"),
    ],
)
def test_what_is_not_accepted_is_one_line_and_changes_nothing(
    make: Callable[[], Any], status: int, message: str, library: Library
) -> None:
    before = files(library)
    done = submitted(library, make())
    assert (done.returncode, done.stdout) == (status, "")
    assert "file.json: " in done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert files(library) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("submit", "none.json", "--by", "Ada"), "none.json: no such file"),
        (("submit", "none.json"), "Missing option '--by'"),
        (("show", "large"), "id = 'large': the library has no instance of this name"),
        (("check", "small", "large"), "id = 'large': the library has no instance of this name"),
        (("list", "--status", "shut"), "'shut' is not one of"),
    ],
)
def test_bad_words_are_one_line(words: tuple[str, ...], message: str, library: Library) -> None:
    done = run(library, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_record_that_stands_twice_is_refused(library: Library) -> None:
    """The next write would keep one of them."""
    path = library.root / "tests.json.xz"
    line = read_text(path).splitlines()[1]
    change(library, line, f"{line},\n{line}")
    done = run(library, "list")
    assert done.returncode == 2
    assert done.stderr == f"tightpipe: {path}: id = 'small': stands 2 times in the file\n"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = call("library", "list", "--library", tmp_path / "none")
    assert done.returncode == 2
    assert done.stderr == f"tightpipe: {tmp_path}/none: there is no library: no such folder\n"


def change(library: Library, old: str, new: str) -> Path:
    path = library.root / "tests.json.xz"
    text = read_text(path)
    assert old in text
    write_text(path, text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"value":284', '"value":283', "small: the schedule costs 284, not 283"),
        ('"order":["F0 ', '"order":["F0 F0 ', "small: "),
        ('"order":["F0 ', '"order":["G0 ', "small: 'G0.0': "),
        ('"order":["F0 ', '"order":["F0.x ', "small: 'F0.x': "),
        ('"order":["F0 ', f'"order":["F0.{"9" * 5000} ', "small: 'F0.99"),
        ('"order":["F0 ', '"order":["", "F0 ', "small: order = "),
        ('"limit":8', '"limit":2', "small: the schedule is invalid: "),
    ],
)
def test_check_fails_on_what_somebody_has_changed(old: str, new: str, message: str, library: Library) -> None:
    path = change(library, old, new)
    done = run(library, "check", "--json")
    assert done.returncode == 1
    assert f"{path}: {message}" in json.loads(done.stdout)["failed"]["small"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"value":284', '"value":"x"', "cost.value = 'x': must be an integer"),
        ('"value":284', '"value":243', "instances[0]: small: a schedule costs 243, below the bound 244"),
        ('"by":"somebody"', '"by":7', "cost.by = 7: must be a text"),
        ('"seconds":0.5', '"seconds":-1', "cost.seconds = -1: must be a number of seconds, at least 0"),
        ('"certified":false', '"certified":0', "certified = 0: must be true or false"),
        ('"certified":false', '"certified":true', "proof = None: must be the certificate, as certified says"),
        ('"order":[', '"order":null,"order":[', "key 'order' stands twice"),
        ('"family":"tests"', '"family":"other"', "family = 'other': must be 'tests', as in the file's name"),
        ('"devices":2', '"devices":0', "instance.devices = 0: "),
        ('"bound":{', '"bound":{"more":1,', "more = 1: unknown key in bound"),
        ('{"instances":[', '{"records":[', "records = "),
    ],
)
def test_a_record_that_cannot_be_read_is_named(old: str, new: str, message: str, library: Library) -> None:
    path = change(library, old, new)
    done = run(library, "list")
    assert done.returncode == 2
    assert done.stderr.startswith(f"tightpipe: {path}: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_cut_off_is_named(library: Library) -> None:
    path = library.root / "tests.json.xz"
    path.write_bytes(path.read_bytes()[:-40])
    done = run(library, "list")
    assert done.returncode == 2
    assert done.stderr.startswith(f"tightpipe: {path}: cannot be read: ")
