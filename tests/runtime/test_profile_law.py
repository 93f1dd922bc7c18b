"""Laws that `tightpipe costs profile` fits to costs measured at several lengths."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.command_line import call

from tightpipe import InputError, Placement
from tightpipe.cli import costs
from tightpipe.model.instance_file import load_law
from tightpipe.model.operation import COMPUTES
from tightpipe.runtime import Profile, TransformerShape, fit_law, read_table, read_tables

TIMES: dict[str, Callable[[int], float]] = {
    "F": lambda x: 100 + 0.5 * x + 2e-4 * x * x,
    "B": lambda x: 120 + 0.6 * x + 4e-4 * x * x,
    "W": lambda x: 90 + 0.5 * x,
    "BW": lambda x: 150 + 1.0 * x + 4e-4 * x * x,
}
MEMORY = {"F": 6, "B": -4, "W": -2}


def table(lengths: tuple[int, ...]) -> str:
    """The costs of two stages, of which the second takes twice as long as the first."""
    rows = ["length,stage,kind,time,memory"]
    for length in lengths:
        for stage in (0, 1):
            for kind, time in TIMES.items():
                held = MEMORY[kind] * length if kind in MEMORY else ""
                rows.append(f"{length},{stage},{kind},{(1 + stage) * time(length):.3f},{held}")
        rows.append(f"{length},,comm,{20 + 0.01 * length},")
    return "\n".join(rows) + "\n"


def test_a_table_with_lengths_is_a_law_that_holds_at_other_lengths(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table((512, 1024, 2048, 4096)))
    words = ("costs", "profile", "--table", "t.csv", "--devices", "2", "--placement", "linear")
    done = call(*words, "--limit", "90000", "-o", "law.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["stages"], said["lengths"]) == (2, 4)
    assert said["error"] < 0.01
    instance = load_law(tmp_path / "law.json").instance([3000, 100])
    for c, length in enumerate((3000, 100)):
        for kind in COMPUTES:
            for stage in (0, 1):
                expected = (1 + stage) * TIMES[kind.name](length)
                assert instance.duration(kind, stage, c) == pytest.approx(expected, rel=0.01)
        assert [instance.memory_delta(kind, 0, c) for kind in COMPUTES] == [
            6 * length,
            -4 * length,
            -2 * length,
            -6 * length,
        ]
    assert instance.comm(0, 1) == pytest.approx(20 + 0.01 * 1550, abs=1)
    assert instance.memory_limit(0) == 90000


def test_costs_that_no_law_fits_are_warned_of(tmp_path: Path) -> None:
    rows = table((512, 1024, 2048)).replace("1024,0,F,821.", "1024,0,F,1821.")
    (tmp_path / "t.csv").write_text(rows)
    words = ("costs", "profile", "--table", "t.csv", "--devices", "2", "--placement", "linear")
    done = call(*words, "-o", "law.json", "--json", cwd=tmp_path)
    assert any("the law misses a measured value by" in text for text in json.loads(done.stdout)["warnings"])


@pytest.mark.parametrize(("messages", "expected"), [((0, 0, 0), 0), ((3, 0, 0), 1), ((1, 0, 1), 1)])
def test_messages_too_short_to_be_measured_take_a_tick_beside_others(
    messages: tuple[int, int, int], expected: int
) -> None:
    one = Profile((10, 10), (10, 10), (8, 8))
    profiles = {(10 * i,): replace(one, comm=comm) for i, comm in enumerate(messages, 1)}
    law, error = fit_law(profiles, Placement("linear", 2))
    assert [round(law.comm.at(total, 0)) for total in (10, 20, 30)] == [expected] * 3
    assert (error > 0.1) == (max(messages) > 1)  # so that a warning says that no law fits


def test_profiles_that_make_no_law_are_refused() -> None:
    one = Profile((10, 20), (10, 20), (8, 16))
    where = Placement("linear", 2)
    with pytest.raises(InputError, match="must be 3 or more different numbers of tokens"):
        fit_law({(10,): one, (5, 5): one, (20,): one}, where)
    partly = Profile((10, 20), (10, 20), (8, 0))
    with pytest.raises(InputError, match=r"weight = \(16, 16, 0\): must be above 0 at all lengths or 0"):
        fit_law({(10,): one, (20,): one, (30,): partly}, where)
    with pytest.raises(InputError, match="limit = 9: the profile has no memory"):
        fit_law({(10,): one, (20,): one, (30,): one}, where, limit=9)
    with pytest.raises(InputError, match="forward = 2: has 2 entries, must have one per stage: 4"):
        fit_law({(10,): one, (20,): one, (30,): one}, Placement("v", 2))


def test_a_table_of_two_lengths_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table((512, 1024)))
    words = ("costs", "profile", "--table", "t.csv", "--devices", "2", "--placement", "linear")
    done = call(*words, "-o", "law.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tightpipe: lengths = [512, 1024]: must be 3 or more different numbers of tokens, to fit a law\n"
    )
    assert not (tmp_path / "law.json").exists()


def test_stages_measured_with_several_rows_have_the_squares_of_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(shape: TransformerShape, stages: int, **_: object) -> Profile:
        cost = 100 + shape.microbatch * (shape.sequence + shape.sequence**2 // 100)
        return Profile((cost,) * stages, (cost,) * stages, (cost,) * stages, comm=5)

    monkeypatch.setattr(costs, "profile_stages", measured)
    shape = ("--layers", "2", "--hidden", "32", "--heads", "2", "--microbatch", "2")
    lengths = [word for length in (100, 200, 400) for word in ("--sequence", str(length))]
    words = ("costs", "profile", "--devices", "2", "--placement", "linear", *shape, *lengths)
    done = call(*words, "-o", "law.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    law = load_law(tmp_path / "law.json")
    assert law.instance([[300, 300]]).costs.forward == (100 + 2 * (300 + 900),) * 2
    assert law.instance([600]).costs.forward == (100 + 600 + 3600,) * 2
    for wrong in (("--microbatches", "4"), ("--vocabulary", "10")):
        done = call(*words, *wrong, "-o", "law.json", cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("512,0,F", "0,0,F"), r"line 2.length = '0': must be a number of tokens, at least 1"),
        (("512,0,F", "x,0,F"), r"line 2.length = 'x'"),
        (("512,0,F", "512,a,F"), r"line 2.stage = 'a'"),
        (("length,stage", "tokens,stage"), "must begin with"),
    ],
)
def test_bad_tables_of_lengths(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(table((512, 1024, 2048)).replace(*change, 1))
    with pytest.raises(InputError, match=message):
        read_tables(path)


def test_a_table_with_lengths_is_no_profile_of_one_length(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(table((512, 1024, 2048)))
    with pytest.raises(InputError, match="has a column length, of which the costs of one length are wanted"):
        read_table(path)
