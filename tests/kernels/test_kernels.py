"""Compiled loops: keyed by all sources, compiled once by one process before any clock, complete."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from llvmlite.binding import parse_bitcode
from numba import njit
from numba.core.caching import CompileResultCacheImpl

import tightpipe
from tightpipe import Instance, exercise, solve
from tightpipe.core.interruption import INTERRUPTED
from tightpipe.core.result import Result
from tightpipe.kernels import cache as kernel_cache
from tightpipe.kernels.compiled import compiled
from tightpipe.solving.ensure_compiled import _read

PACKAGE = Path(tightpipe.__file__).parent
TIGHTPIPE = str(Path(sys.executable).with_name("tightpipe"))


def environment(cache: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "NUMBA_CACHE_DIR": str(cache), **more}


def python(code: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def compiling(cache: Path, *run: str) -> Iterator[Any]:
    with subprocess.Popen(run, env=environment(cache), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


# what `tightpipe compile` does, with one loop alone, which waits for a file
COMPILE_ONE_LOOP = """
import sys, time
from pathlib import Path
import numpy as np
import tightpipe.exercise
from tightpipe.cli import main
from tightpipe.core.simulate_kernel import departure

go = Path(sys.argv.pop())

def exercise():
    while not go.exists():
        time.sleep(0.01)
    departure(5, -1, np.array([0.0]), 0)

tightpipe.exercise.exercise = exercise
main()
"""
COMPILES = "tightpipe: compiling the inner loops, once: it takes one to three minutes\n"
WAITS = "tightpipe: another process is compiling the inner loops: waiting for it\n"


def test_after_one_that_ctrl_c_has_ended_two_processes_at_once_compile_once(tmp_path: Path) -> None:
    with compiling(tmp_path, TIGHTPIPE, "compile") as process:
        assert process.stderr.readline() == COMPILES
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert (process.returncode, said.count("\n")) == (130, 1)
    assert said.startswith("tightpipe: interrupted")
    assert list(tmp_path.rglob("complete.json")) == []
    run = [sys.executable, "-c", COMPILE_ONE_LOOP, "compile", str(tmp_path / "go")]
    with compiling(tmp_path, *run) as one:
        assert one.stderr.readline() == COMPILES
        with compiling(tmp_path, *run) as other:
            assert other.stderr.readline() == WAITS
            (tmp_path / "go").touch()
            assert [process.communicate()[1] for process in (one, other)] == ["", ""]
    assert one.returncode == other.returncode == 0
    assert python(DEPARTURE, NUMBA_CACHE_DIR=str(tmp_path)) == "5 0"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder as `tightpipe compile` leaves it."""
    whole = kernel_cache.cache_folder()
    copy_of_compiled(whole, tmp_path / "tightpipe" / whole.name)
    return tmp_path


def copy_of_compiled(whole: Path, copy: Path) -> None:
    """Copy a cache without what was added since its stamp was written: tests call loops with other types."""
    complete = (whole / "complete.json").stat().st_mtime_ns

    def added(where: str, names: list[str]) -> list[str]:
        return [n for n in names if n.endswith(".nbc") and (Path(where) / n).stat().st_mtime_ns > complete]

    shutil.copytree(whole, copy, ignore=added)
    for index in copy.rglob("*.nbi"):  # numba's list of a loop's types and of the files with their code
        with index.open("rb") as file:
            version, (stamp, names) = pickle.load(file), pickle.load(file)
        kept = {types: name for types, name in names.items() if (index.parent / name).exists()}
        index.write_bytes(pickle.dumps(version) + pickle.dumps((stamp, kept)))


def test_the_copy_of_a_cache_lacks_what_was_added(cache: Path, tmp_path: Path) -> None:
    (whole,) = (cache / "tightpipe").iterdir()
    assert python(DEPARTURE, NUMBA_CACHE_DIR=str(cache)) == "5 1"  # no call of the package has these types
    copy_of_compiled(whole, tmp_path / "copy/tightpipe" / whole.name)
    assert python(DEPARTURE, NUMBA_CACHE_DIR=str(tmp_path / "copy")) == "5 1"


def test_no_loop_is_compiled_once_more_for_a_constant(cache: Path) -> None:
    signatures = list[str]()
    for index in cache.rglob("*.nbi"):
        with index.open("rb") as file:
            pickle.load(file)
            signatures += [str(types) for types, *_ in pickle.load(file)[1]]
    assert len(signatures) > 50
    assert not [types for types in signatures if "Literal" in types]


def test_only_what_loops_call_is_kept_in_a_form_that_they_can_be_linked_with(cache: Path) -> None:
    defined: dict[bool, list[int]] = {True: [], False: []}
    for index in cache.rglob("*.nbi"):
        with index.open("rb") as file:
            pickle.load(file)
            names = pickle.load(file)[1]
        for (*_, inner), name in names.items():
            (_, _, (_, code)), *_ = pickle.loads((index.parent / name).read_bytes())
            defined[inner].append(sum(not f.is_declaration for f in parse_bitcode(code).functions))
    assert min(defined[True]) > 0
    assert max(defined[False]) == 0


def test_only_what_python_calls_has_code_for_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    inner, outer = compiled(replaced), compiled(calls_another)
    monkeypatch.setitem(calls_another.__globals__, "replaced", inner)
    assert outer(1) == 3
    assert inner.__dict__.keys() & {"dispatcher", "_inner_dispatcher"} == {"_inner_dispatcher"}
    (called,), (part,) = outer.dispatcher.overloads.values(), inner._inner_dispatcher.overloads.values()
    assert any("cpython" in defined.name for defined in called.library.get_defined_functions())
    assert not any("cpython" in defined.name for defined in part.library.get_defined_functions())


def test_no_call_compiles_what_was_not_compiled_ahead(cache: Path) -> None:
    """In a process of its own: other tests compile as well."""
    run = [sys.executable, str(Path(__file__).parents[1] / "every_loop.py")]
    done = subprocess.run(run, env=environment(cache), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    counted = json.loads(done.stdout)
    assert counted["loops"] > 50
    assert counted["misses"] == {}
    (stamp,) = cache.rglob("complete.json")
    assert counted["called"] == json.loads(stamp.read_text())  # none was left out, so that none missed unseen


def test_loops_are_loaded_before_the_clock_starts(cache: Path) -> None:
    code = """
from tightpipe import Instance, solve
from tightpipe.kernels.compiled import LOOPS
from tightpipe.solving.ensure_compiled import ensure_compiled
from tightpipe.solving.methods import find_method
instance = Instance.uniform(devices=3, microbatches=6, forward=10, backward=12, weight=8, comm=1)
find_method("best").load()
ensure_compiled()
before = {loop.name: len(loop.signatures) for loop in LOOPS}
solve(instance, "best", time_limit=1)
print(sum(before.values()), [loop.name for loop in LOOPS if len(loop.signatures) > before[loop.name]])
"""
    loaded, late = python(code, NUMBA_CACHE_DIR=str(cache)).split(maxsplit=1)
    assert int(loaded) > 10
    assert late == "[]"


def test_machine_code_is_loaded_without_what_numba_needs_to_compile(cache: Path) -> None:
    code = """
import sys
from tightpipe import Instance, solve
solve(Instance.uniform(devices=3, microbatches=6, forward=10, backward=12, weight=8), "list")
wanted = {"numba.core.inline_closurecall", "numba.cpython.setobj", "numba.np.arrayobj", "numba.np.random.legacy"}
print(sorted(wanted & set(sys.modules)))
"""
    assert python(code, NUMBA_CACHE_DIR=str(cache)) == "[]"


def test_a_process_that_only_starts_solves_loads_no_loop() -> None:
    code = """
from tightpipe.cli import filling
from tightpipe.kernels.compiled import LOOPS
called = filling.compile_ahead()
print(len(called), sum(len(loop.signatures) for loop in LOOPS))
"""
    called, loaded = map(int, python(code).split())
    assert called > 10
    assert loaded == 0


# of the loops with arrays one that compiles fast, and one that calls it from another file
DEPARTURE = """
import numpy as np
from tightpipe.core.simulate_kernel import departure
print(departure(5, -1, np.array([0.0]), 0), departure.misses)
"""
DEPARTURES = """
import numpy as np
from tightpipe.explain.arrivals_kernel import departures
print(departures(np.array([5]), np.array([0, 1]), np.array([-1]), 0)[0], departures.misses)
"""


def test_an_edit_of_a_loop_reaches_loops_of_other_files(tmp_path: Path) -> None:
    package = shutil.copytree(PACKAGE, tmp_path / "tightpipe")
    environ = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert python(DEPARTURES, **environ) == "5 1"
    assert python(DEPARTURES, **environ) == "5 0"
    helper = package / "core/simulate_kernel.py"
    before = helper.read_text()
    helper.write_text(before.replace("        return end\n", "        return end + 1000\n"))
    assert python(DEPARTURES, **environ) == "1005 1"
    helper.write_text(before)
    assert python(DEPARTURES, **environ) == "5 0"


def test_sources_that_change_after_they_were_read_are_not_cached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel_cache, "cache_roots", lambda: [tmp_path])
    assert kernel_cache.cache_folder.__wrapped__().parent == tmp_path
    monkeypatch.setattr(kernel_cache, "LOADED_AT", 0.0)
    assert kernel_cache.cache_folder.__wrapped__().parent != tmp_path


def names_of_loops(tree: ast.Module) -> set[str]:
    """Names that the compiled functions of a module read, annotations aside."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any("compiled" in ast.dump(d) for d in node.decorator_list):
            names |= {n.id for line in node.body for n in ast.walk(line) if isinstance(n, ast.Name)}
    return names


def test_what_loops_import_is_part_of_the_key() -> None:
    hashed = kernel_cache.sources()
    modules = {path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".") for path in hashed}
    read_by_all = {f"solver.windows.{name}_kernel" for name in ("propagate", "window_state")}
    read_by_all |= {"core.simulate_kernel", "core.operation"}
    assert read_by_all <= modules
    for path in hashed:
        tree = ast.parse(path.read_text())
        package = ["tightpipe", *path.relative_to(PACKAGE).parent.parts]
        read = names_of_loops(tree)
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and read & {alias.name for alias in node.names}:
                base = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*base, node.module or ""])
                assert module.removeprefix("tightpipe.") in modules, f"{path.name} reads {module}"


def test_every_compiled_function_is_in_a_file_of_the_key() -> None:
    hashed = {path.relative_to(PACKAGE) for path in kernel_cache.sources()}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert "njit(" not in text or path.name == "cache.py", path
        if "\n@compiled" in text:
            assert path.relative_to(PACKAGE) in hashed


FOLDER = "from tightpipe.kernels.cache import cache_folder; print(cache_folder())"


def test_the_cache_is_the_users_or_where_numba_is_told(tmp_path: Path) -> None:
    home = {"XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": ""}
    assert Path(python(FOLDER, **home)).parent == tmp_path / "tightpipe"
    told = {**home, "NUMBA_CACHE_DIR": str(tmp_path / "told")}
    assert Path(python(FOLDER, **told)).parent == tmp_path / "told" / "tightpipe"


def test_without_a_home_loops_are_compiled_all_the_same(tmp_path: Path) -> None:
    home = {"XDG_CACHE_HOME": "/dev/null/none", "NUMBA_CACHE_DIR": "", "TMPDIR": str(tmp_path)}
    assert python(DEPARTURE, **home) == "5 1"
    assert python(DEPARTURE, **home) == "5 0"
    shared = Path(python(FOLDER, **home)).parent
    assert shared == tmp_path / f"tightpipe-{os.getuid()}"
    assert shared.stat().st_mode & 0o077 == 0  # what lies there is run
    shutil.rmtree(shared)
    shared.write_text("in the way")
    assert python(DEPARTURE, **home) == "5 1"
    assert list(tmp_path.iterdir()) == [shared]


def test_folders_of_earlier_versions_are_removed_but_for_those_used_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for age in range(5):
        folder = tmp_path / f"loops-{age}"
        folder.mkdir()
        os.utime(folder, (1e9 - age, 1e9 - age))
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path / "loops-0")
    kernel_cache.remove_old_folders()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loops-0", "loops-1", "loops-2", "other"]


def test_a_damaged_cache_is_a_miss(tmp_path: Path) -> None:
    environ = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert python(DEPARTURE, **environ) == "5 1"
    for path in tmp_path.rglob("*.nb[ic]"):
        path.write_bytes(path.read_bytes()[:10])
    assert python(DEPARTURE, **environ) == "5 1"
    assert python(DEPARTURE, **environ) == "5 0"


def test_other_peoples_functions_keep_numbas_own_cache() -> None:
    loop = compiled(replaced)
    assert isinstance(loop.dispatcher._cache, kernel_cache._Cache)
    assert not isinstance(njit(cache=True)(replaced)._cache, kernel_cache._Cache)
    assert kernel_cache._Locator not in CompileResultCacheImpl._locator_classes


def replaced(value: int) -> int:
    return value + 1


def calls_another(value: int) -> int:
    return replaced(value) + 1


def test_loops_run_as_plain_python_where_numba_is_told_so() -> None:
    code = """
from tightpipe import Instance, solve
instance = Instance.uniform(devices=2, microbatches=2, forward=10, backward=12, weight=8, placement="linear")
print(solve(instance, "1f1b").status)
"""
    assert python(code, NUMBA_DISABLE_JIT="1") in ("feasible", "optimal")


def test_ctrl_c_ends_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(instance: Instance, *_: object, **__: object) -> Result:
        return replace(solve(instance, "list"), reason=INTERRUPTED)

    monkeypatch.setattr(import_module("tightpipe.solver.improve"), "improve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exercise.exercise()


def test_a_stamp_that_cannot_be_read_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "complete.json").write_text("{")
    assert _read(tmp_path / "complete.json") == frozenset()
