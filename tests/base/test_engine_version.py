"""The name of the engine: the version, and a hash of its sources that only a change of code changes."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import tightpipe
from tightpipe.base import sources as naming
from tightpipe.base.sources import (
    PLANNING,
    ROOMS,
    engine_version,
    name_engine,
    planner_version,
    source_digest,
)

CODE = 'def f(x, *y):\n    """Text."""\n    return [f"{x:>{len(y)}}", 1e3, None, ...] if y else -1\n'
SAME = "def f(x, *y):  # said\n\n    return (\n    [f'{x:>{len(y)}}', 1000.0, None, ...]\n    if y else -1)"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for room in (*ROOMS, *PLANNING):
        (tmp_path / room).mkdir()
        (tmp_path / room / "a.py").write_text(CODE)
    (tmp_path / "settings/a.toml").write_text("a = 1\n")
    return tmp_path


def test_the_name_has_the_version_and_eight_digits(package: Path) -> None:
    assert engine_version() == name_engine(version("tightpipe"), Path(tightpipe.__file__).parent)
    release, digits = name_engine("1.2.3", package).split("+")
    assert (release, len(digits)) == ("1.2.3", 8)
    assert int(digits, 16) >= 0


@pytest.mark.parametrize("room", ROOMS)
def test_every_source_counts_also_those_in_inner_folders(room: str, package: Path) -> None:
    names = {name_engine("1", package)}
    inner = package / room / "inner/b.py"
    inner.parent.mkdir()
    for text in ("", "a = 1", "a = 2"):
        inner.write_text(text)
        names.add(name_engine("1", package))
    inner.rename(inner.with_name("c.py"))
    names.add(name_engine("1", package))
    assert len(names) == 5


def changed(package: Path, file: str, change: Callable[[str], str]) -> bool:
    before = name_engine("1", package)
    path = package / file
    path.write_text(change(path.read_text()))
    return name_engine("1", package) != before


def test_comments_docstrings_and_formatting_do_not_count(package: Path) -> None:
    assert not changed(package, "solver/a.py", lambda _: SAME)
    assert not changed(package, "solver/a.py", lambda text: f'"""A module."""\n{text}')
    assert changed(package, "solver/a.py", lambda text: text.replace("-1", "-2"))
    assert changed(package, "solver/a.py", lambda text: text.replace("{x:", "x{x:"))
    assert not changed(package, "settings/a.toml", lambda text: f"# said\n{text}")
    assert changed(package, "settings/a.toml", lambda text: text.replace("1", "2"))


def test_other_files_and_other_rooms_do_not_count(package: Path) -> None:
    before = name_engine("1", package)
    (package / "drawing").mkdir()
    for file in ("drawing/a.py", "solver/a.nbi", "solver/notes.txt"):
        (package / file).write_text("what no solve runs")
    assert name_engine("1", package) == before


@pytest.mark.parametrize("room", PLANNING)
def test_what_only_plans_run_changes_the_name_of_the_planner_alone(room: str, package: Path) -> None:
    def names() -> tuple[str, str]:
        return name_engine("1", package), name_engine("1", package, (*ROOMS, *PLANNING), "planner")

    engine, planner = names()
    (package / room / "a.py").write_text("a = 1")
    assert names()[0] == engine
    assert names()[1] != planner
    (package / "solver/a.py").write_text("a = 1")
    assert {*names()}.isdisjoint({engine, planner})
    assert planner_version() != engine_version()


def test_the_hash_is_the_same_with_every_version_of_python(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"{CODE}\n\nclass C(object):\n    x: int = 0\n")
    assert source_digest([tmp_path / "a.py"], tmp_path)[:8] == "726c8b87"


def test_sources_that_are_known_are_not_parsed_again(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = name_engine("1", package)
    digest, parsed = naming.source_digest, []
    monkeypatch.setattr(naming, "source_digest", lambda *what: parsed.append(what) or digest(*what))
    assert (name_engine("1", package), parsed) == (first, [])
    (package / "model/a.py").write_text("a = 1")
    assert name_engine("1", package) == name_engine("1", package) != first
    assert len(parsed) == 1


@pytest.mark.parametrize("kept", [b"", b"a b c", b"\0", b"\xff", None])
def test_without_a_cache_that_can_be_used_the_name_is_the_same(
    kept: bytes | None, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = name_engine("1", package)
    root = tmp_path / "root"
    if kept is None:
        root.write_text("in the way")
    else:
        root.mkdir()
        (root / "engine.txt").write_bytes(kept)
    monkeypatch.setattr(naming, "cache_roots", lambda: iter([root]))
    assert name_engine("1", package) == expected
