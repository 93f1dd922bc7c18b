"""The library of this repository: it has all its instances, and everything in it verifies."""

from __future__ import annotations

import re
import runpy
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call, write
from helpers.small_library import FORMULA, INSTANCE, OPTIMUM, claim, schedule_of

from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.grid import tasks_of
from tightpipe.experiments.study import load_study
from tightpipe.library import Library, Record, State, check_record, default_library, submit
from tightpipe.model.instance_file import instance_to_dict
from tightpipe.model.placement import Placement

pytestmark = pytest.mark.source_tree
ROOT = Path(__file__).parents[2]
SAMPLE = 15
ENGINE = re.compile(r"\d+\.\d+\.\d+\+[0-9a-f]{7,8}")
MOST_BYTES = 600_000


def script() -> dict[str, Any]:
    """The names of the script that fills the library."""
    return runpy.run_path(str(ROOT / "benchmarks/library.py"))


@pytest.fixture(scope="module")
def library() -> Library:
    assert default_library() == ROOT / "library"
    return Library(ROOT / "library")


def test_a_sample_verifies(library: Library) -> None:
    records = sorted(library.records(), key=lambda r: r.instance.stages * r.instance.microbatches)
    for record in records[: -len(records) // 4 : len(records) * 3 // 4 // SAMPLE]:  # not the largest quarter
        check_record(library, record)


def test_it_has_the_instances_of_all_families(library: Library) -> None:
    known = {(r.id, r.family, r.source): r.instance for r in library.records()}
    assert known == {(e.id, e.family, e.source): e.instance for e in script()["entries"]()}


def test_the_script_enters_an_instance_and_closes_it(tmp_path: Path) -> None:
    names, new = script(), Library(tmp_path)
    names["begin"](new, names["Entry"]("small", "tests", "a test", INSTANCE))
    begun = new.record("small")
    assert begun.cost is not None
    assert (begun.cost.method, begun.cost.value, begun.bound.value) == ("v-half", OPTIMUM, FORMULA)
    assert names["is_left"](begun, 9.0)
    assert not names["is_left"](replace(begun, searched=9.0), 9.0)
    done = names["search"](new, "small", 9.0, 1)
    assert (done.state, done.bound.value, done.searched) == (State.CLOSED, OPTIMUM, 9.0)
    assert not names["is_left"](done, 99.0)
    assert check_record(new, done)


def test_the_script_enters_what_studies_have_found(tmp_path: Path) -> None:
    """The script's folder of results is replaced, in its own names, by one with a study of the instance."""
    (tmp_path / "library").mkdir()
    names, new = script(), Library(tmp_path / "library")
    instance = replace(INSTANCE, placement=Placement("loop", 2))
    names["begin"](new, names["Entry"]("small", "tests", "a test", instance))
    write(tmp_path, instance_to_dict(instance), "small.json")
    experiment = 'instances = ["small.json"]\nmethods = ["best"]\ntime_limits = [20]\nthreads = 1\n'
    (tmp_path / "study.toml").write_text(experiment)
    done = call("sweep", tmp_path / "study.toml", "-o", tmp_path / "results/study")
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(tmp_path / "results/study/store.sqlite")) as store:
        store.execute("UPDATE solve SET engine = '0.1.0+abcdef01', seconds = NULL")
        store.commit()
    names["enter_studies"].__globals__["RESULTS"] = tmp_path / "results"
    names["enter_studies"](new)
    found = new.record("small")
    assert found.cost is not None
    assert (found.cost.value, found.bound.value, found.cost.method) == (256, 256, "best")
    assert (found.cost.engine, found.cost.seconds) == ("0.1.0+abcdef01", None)


def test_no_study_knows_more_than_the_library(library: Library, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / "experiments", tmp_path / "experiments"))
    known = {record.instance: record for record in library.records()}
    compared = 0
    for path in sorted((ROOT / "results").glob("*/experiment.toml")):
        declared = folder / f"{path.parent.name}.toml"  # whose paths are relative to its folder
        declared.write_bytes(path.read_bytes())
        instances = {t.row.instance_hash: t.instance for t in tasks_of(load_experiment(declared), declared)}
        for row in load_study(path.parent).rows:
            record = known.get(instances[row.instance_hash])
            if record is not None and record.cost is not None and row.cost is not None:
                assert record.cost.value <= row.cost, record.id
                assert record.bound.value >= (row.bound or 0), record.id
                compared += 1
    assert compared


def test_the_script_hands_on_schedules_to_more_memory_and_bounds_to_less(tmp_path: Path) -> None:
    new = Library(tmp_path)
    assert INSTANCE.memory is not None
    for limit in (7, 8, 9, 10):
        instance = replace(INSTANCE, memory=replace(INSTANCE.memory, limit=limit))
        new.put(Record(f"at-{limit}", "tests", "a test", instance, None, claim(200 + 10 * (limit == 10))))
    submit(new, schedule_of("cpsat"), by="Ada")
    script()["share"](new)
    records = {limit: new.record(f"at-{limit}") for limit in (7, 8, 9, 10)}
    costs = {limit: known and known.value for limit, record in records.items() for known in (record.cost,)}
    assert costs == {7: None, 8: OPTIMUM, 9: OPTIMUM, 10: OPTIMUM}
    assert {record.bound.value for record in records.values()} == {210}
    assert all(check_record(new, record) for record in records.values())
    for shared in (records[9].cost, records[10].cost):
        assert shared is not None
        assert (shared.by, shared.engine, shared.seconds) == ("Ada", None, None)


def test_no_file_is_a_stranger_and_all_together_are_small(library: Library) -> None:
    expected = {library.path(record) for record in library.records()}
    found = {path for path in library.root.rglob("*") if path.is_file() and path.name != ".lock"}
    assert found == expected
    assert sum(path.stat().st_size for path in found) < MOST_BYTES


def test_every_claim_says_who_found_it_when_and_with_which_engine(library: Library) -> None:
    for record in library.records():
        for known in (record.cost, record.bound):
            if known is not None:
                assert re.fullmatch(r"\d{4}-\d\d-\d\d", known.date), record.id
                assert known.engine is None or ENGINE.fullmatch(known.engine), record.id


def test_more_memory_never_costs_more(library: Library) -> None:
    """A schedule of little memory is one of more memory too, so that no bound there may be above its cost."""
    groups: dict[object, list[Record]] = {}
    for record in library.records():
        if record.family in ("published", "frontier"):
            groups.setdefault(replace(record.instance, memory=None), []).append(record)
    assert max(map(len, groups.values())) > 1
    for group in groups.values():
        group.sort(key=limit)
        for less, more in pairwise(group):
            assert less.cost is not None
            assert more.bound.value <= less.cost.value, (less.id, more.id)


def limit(record: Record) -> int:
    found = record.instance.memory_limit(0)
    assert found is not None
    return found
