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
from pkgutil import walk_packages
from typing import Any

import pytest
from llvmlite.binding import parse_bitcode
from numba import njit
from numba.core.caching import CompileResultCacheImpl

import tightpipe
from tightpipe import Instance, exercise, solve
from tightpipe.base.interruption import INTERRUPTED
from tightpipe.kernels import cache as kernel_cache
from tightpipe.kernels.compiled import LOOPS, _known, compiled, short_name
from tightpipe.model.result import Result

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
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(run, env=environment(cache), **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


# what a command does that needs one group, with one loop, which waits for a file after it was compiled
COMPILE_ONE_LOOP = """
import sys, time
from pathlib import Path
import numpy as np
import tightpipe.exercise
from tightpipe.model.simulate_kernel import departure
from tightpipe.kernels import cache
from tightpipe.kernels.compiled import ensure_compiled

compiled, go = cache._Cache.save_overload, Path(sys.argv[1])

def save_overload(self, *result):
    while not go.exists():
        time.sleep(0.01)
    compiled(self, *result)

cache._Cache.save_overload = save_overload
tightpipe.exercise.EXERCISES["one"] = lambda: departure(5, -1, np.array([0.0]), 0)
ensure_compiled(["one"])
print(departure.misses)
"""
COMPILES = "tightpipe: compiling the inner loops of {}, once\n"
WAITS = "tightpipe: another process is compiling inner loops: waiting for it\n"


def test_ctrl_c_ends_compiling_with_one_line_and_lists_no_group_that_is_not_complete(tmp_path: Path) -> None:
    with compiling(tmp_path, TIGHTPIPE, "compile") as process:
        assert process.stderr.readline() == COMPILES.format("times")
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert (process.returncode, said.count("\n")) == (130, 1)
    assert said.startswith("tightpipe: interrupted")
    assert list(tmp_path.rglob("groups/*")) == []


def test_of_two_processes_at_once_one_compiles_and_the_other_waits(tmp_path: Path) -> None:
    run = [sys.executable, "-c", COMPILE_ONE_LOOP, str(tmp_path / "go")]
    with compiling(tmp_path, *run) as one:
        assert one.stderr.readline() == COMPILES.format("one")
        with compiling(tmp_path, *run) as other:
            assert other.stderr.readline() == WAITS
            (tmp_path / "go").touch()
            assert [process.communicate() for process in (one, other)] == [("1\n", ""), ("0\n", "")]
    assert one.returncode == other.returncode == 0
    assert python(DEPARTURE, NUMBA_CACHE_DIR=str(tmp_path)) == "5 0"


FAILS = """
import numpy as np
from tightpipe.model.simulate_kernel import departure
try:
    departure(5, -1, "no array", 1)
except Exception:
    print("failed", flush=True)
input()
"""


def test_a_process_that_fails_to_compile_does_not_hold_up_others(tmp_path: Path) -> None:
    run = [sys.executable, "-c", FAILS]
    with subprocess.Popen(
        run, env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "failed\n"
        assert python(DEPARTURE, NUMBA_CACHE_DIR=str(tmp_path)) == "5 1"
        process.communicate("\n")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder as `tightpipe compile` leaves it."""
    whole = kernel_cache.list_of_group("times").parents[1]
    copy_of_compiled(whole, tmp_path / "tightpipe")
    return tmp_path


def copy_of_compiled(whole: Path, copy: Path) -> None:
    """Copy the present version of a cache without what no group calls: tests call loops with other types."""
    copy.mkdir(parents=True)
    for module in walk_packages(tightpipe.__path__, "tightpipe."):
        if module.name.endswith("_kernel"):
            import_module(module.name)  # loops are known once their module is imported
    for name in {loop.name.rpartition(".")[0] for loop in LOOPS}:
        folder = kernel_cache.folder_of_module(name)
        if folder.is_relative_to(whole):
            shutil.copytree(folder, copy / "loops" / folder.name)
    called = {call for group in exercise.EXERCISES for call in _known(group) or ()}
    (copy / "groups").mkdir()
    for group in exercise.EXERCISES:
        path = kernel_cache.list_of_group(group)
        shutil.copy(path, copy / "groups" / path.name)
    for index in copy.rglob("*.nbi"):  # numba's list of a loop's types and of the files with their code
        version, (stamp, names) = read_index(index)
        loop = f"{index.parent.name.rpartition('-')[0]}.{index.name.partition('-')[0].rpartition('.')[2]}"
        kept = {key: name for key, name in names.items() if key[-1] or (loop, short_name(key[0])) in called}
        for name in set(names.values()) - set(kept.values()):
            (index.parent / name).unlink()
        index.write_bytes(pickle.dumps(version) + pickle.dumps((stamp, kept)))


def read_index(index: Path) -> tuple[Any, Any]:
    with index.open("rb") as file:
        version, content = pickle.load(file), pickle.load(file)
    return version, pickle.loads(content) if isinstance(content, bytes) else content


def test_the_copy_of_a_cache_lacks_what_was_added(cache: Path) -> None:
    assert python(DEPARTURE) in ("5 0", "5 1")  # no call of the package has these types
    again = cache / "again"
    copy_of_compiled(kernel_cache.list_of_group("times").parents[1], again / "tightpipe")
    assert python(DEPARTURE, NUMBA_CACHE_DIR=str(again)) == "5 1"


def test_no_loop_is_compiled_once_more_for_a_constant(cache: Path) -> None:
    signatures = list[str]()
    for index in cache.rglob("*.nbi"):
        signatures += [str(types) for types, *_ in read_index(index)[1][1]]
    assert len(signatures) > 50
    assert not [types for types in signatures if "Literal" in types]


def test_only_what_loops_call_is_kept_in_a_form_that_they_can_be_linked_with(cache: Path) -> None:
    defined: dict[bool, list[int]] = {True: [], False: []}
    for index in cache.rglob("*.nbi"):
        for (*_, inner), name in read_index(index)[1][1].items():
            (_, _, (_, code)), *_ = pickle.loads((index.parent / name).read_bytes())
            defined[inner].append(sum(not f.is_declaration for f in parse_bitcode(code).functions))
    assert min(defined[True]) > 0
    assert max(defined[False]) == 0


def test_only_what_python_calls_has_code_for_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel_cache, "folder_of_module", lambda _: tmp_path)
    inner, outer = compiled(replaced), compiled(calls_another)
    monkeypatch.setitem(calls_another.__globals__, "replaced", inner)
    assert outer(1) == 3
    assert inner.__dict__.keys() & {"dispatcher", "_inner_dispatcher"} == {"_inner_dispatcher"}
    (called,), (part,) = outer.dispatcher.overloads.values(), inner._inner_dispatcher.overloads.values()
    assert any("cpython" in defined.name for defined in called.library.get_defined_functions())
    assert not any("cpython" in defined.name for defined in part.library.get_defined_functions())


def test_no_call_compiles_what_its_groups_did_not_compile_ahead(cache: Path) -> None:
    """In a process of its own: other tests compile as well."""
    run = [sys.executable, str(Path(__file__).parents[1] / "helpers/every_loop.py")]
    done = subprocess.run(run, env=environment(cache), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    counted = json.loads(done.stdout)
    assert counted["loops"] > 50
    assert counted["misses"] == {}
    assert counted["undeclared"] == {}
    compiled_ahead = {name for group in exercise.EXERCISES for name, _ in _known(group) or ()}
    assert counted["called"] == sorted(compiled_ahead)  # none was left out, so that none missed unseen


def test_loops_are_loaded_before_the_clock_starts(cache: Path) -> None:
    code = """
from tightpipe import Instance, solve
from tightpipe.kernels.compiled import LOOPS
from tightpipe.kernels.compiled import ensure_compiled
from tightpipe.registry.methods import find_method, loops_of
instance = Instance.uniform(devices=3, microbatches=6, forward=10, backward=12, weight=8, comm=1)
best = find_method("best")
best.load()
ensure_compiled(loops_of(best, instance, "best"))
before = {loop.name: len(loop.signatures) for loop in LOOPS}
solve(instance, "best", time_limit=1)
print(sum(before.values()), [loop.name for loop in LOOPS if len(loop.signatures) > before[loop.name]])
"""
    loaded, late = python(code, NUMBA_CACHE_DIR=str(cache)).split(maxsplit=1)
    assert int(loaded) > 10
    assert late == "[]"


GREEDY = """
from tightpipe import Instance, solve
from tightpipe.kernels.compiled import LOOPS
solve(Instance.uniform(devices=3, microbatches=6, forward=10, backward=12, weight=8), "greedy-v")
print(*sorted(loop.name.removeprefix("tightpipe.") for loop in LOOPS if loop.misses))
"""


def test_a_heuristic_compiles_its_own_loops_and_those_that_time_a_schedule_and_nothing_twice(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GREEDY], env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert done.stderr == COMPILES.format("greedy-v")
    allowed = ("heuristics.greedy_v_kernel.", "model.simulate_kernel.")
    assert done.stdout.split() == [name for name in done.stdout.split() if name.startswith(allowed)] != []
    assert python(GREEDY, NUMBA_CACHE_DIR=str(tmp_path)) == ""


CLOSED = """
from tightpipe import Instance, Memory, solve
from tightpipe.kernels.compiled import LOOPS
costs = {"forward": 10, "backward": 10, "weight": 6, "comm": 1, "memory": Memory(10, -4, -6, 40)}
instance = Instance.uniform(devices=2, microbatches=4, placement="v", **costs)
print(solve(instance, "best", warm_start="greedy-v", time_limit=20).status)
print(*sorted({loop.name.rpartition(".")[0].removeprefix("tightpipe.") for loop in LOOPS if loop.misses}))
"""


def test_a_search_that_starts_from_an_optimal_schedule_compiles_no_loops_of_searches(tmp_path: Path) -> None:
    said = python(CLOSED, NUMBA_CACHE_DIR=str(tmp_path)).splitlines()
    assert said == ["optimal", "heuristics.greedy_v_kernel model.simulate_kernel"]


def test_a_group_whose_machine_code_is_gone_is_compiled_before_the_clock(tmp_path: Path) -> None:
    environ = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert python(GREEDY, **environ) != ""
    for folder in (tmp_path / "tightpipe/loops").glob("*greedy_v_kernel*"):
        shutil.rmtree(folder)
    code = "from tightpipe.heuristics.greedy_v_kernel import run_pass\n"
    code += "from tightpipe.kernels.compiled import ensure_compiled\n"
    code += "ensure_compiled(['greedy-v'])\nprint(run_pass.misses, len(run_pass.signatures))"
    assert python(code, **environ) == "1 1"


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
from tightpipe.experiments import study
from tightpipe.kernels.compiled import LOOPS
called = study.compile_ahead(["greedy-v", "list"])
print(len(called), sum(len(loop.signatures) for loop in LOOPS))
"""
    assert python(code) == "2 0"


# of the loops with arrays one that compiles fast, and one that calls it from another file
DEPARTURE = """
import numpy as np
from tightpipe.model.simulate_kernel import departure
print(departure(5, -1, np.array([0.0]), 0), departure.misses)
"""
DEPARTURES = """
import numpy as np
from tightpipe.explain.idle_kernel import departures
print(departures(np.array([5]), np.array([0, 1]), np.array([-1]), 0)[0], departures.misses)
"""


def test_an_edit_of_a_loop_reaches_loops_of_other_files(tmp_path: Path) -> None:
    package = shutil.copytree(PACKAGE, tmp_path / "tightpipe")
    environ = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert python(DEPARTURES, **environ) == "5 1"
    assert python(DEPARTURES, **environ) == "5 0"
    helper = package / "model/simulate_kernel.py"
    before = helper.read_text()
    helper.write_text(before.replace("        return end\n", "        return end + 1000\n"))
    assert python(DEPARTURES, **environ) == "1005 1"
    helper.write_text(before)
    assert python(DEPARTURES, **environ) == "5 0"


def test_sources_that_change_after_they_were_read_are_not_cached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel_cache, "_root", lambda: tmp_path)
    folder, module = kernel_cache.folder_of_module.__wrapped__, "tightpipe.model.simulate_kernel"
    assert folder(module).is_relative_to(tmp_path)
    assert kernel_cache.list_of_group("times").is_relative_to(tmp_path)
    monkeypatch.setattr(kernel_cache, "LOADED_AT", 0.0)
    assert not folder(module).is_relative_to(tmp_path)
    assert not kernel_cache.list_of_group("times").is_relative_to(tmp_path)


def test_an_edit_compiles_only_the_loops_anew_that_are_made_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = shutil.copytree(PACKAGE, tmp_path / "tightpipe")
    monkeypatch.setattr(kernel_cache, "_PACKAGE", package)
    files = kernel_cache.sources.__wrapped__(package)
    monkeypatch.setattr(kernel_cache, "sources", lambda: files)
    names = [path.relative_to(package).with_suffix("").parts for path in files]
    modules = [".".join(["tightpipe", *parts]) for parts in names]
    digest = kernel_cache.digest_of_module.__wrapped__

    def changed_by(edited: str) -> set[str]:
        before = {module: digest(module) for module in modules}
        with (package / edited).open("a") as source:
            source.write("\n")
        return {module for module in modules if digest(module) != before[module]}

    changed = changed_by("solver/windows/agenda_kernel.py")
    windows = {f"tightpipe.solver.windows.{name}_kernel" for name in ("agenda", "orders", "propagate")}
    assert windows <= changed
    assert {module.split(".")[1] for module in changed} == {"solver"}
    assert not any("improve" in module or "prefixes" in module for module in changed)
    assert changed_by("kernels/cache.py") == set(modules)  # it decides in what form machine code is kept


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
    read_by_all |= {"model.simulate_kernel", "model.operation"}
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


FOLDER = "from tightpipe.kernels.cache import _root; print(_root())"


def test_the_cache_is_the_users_or_where_numba_is_told(tmp_path: Path) -> None:
    home = {"XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": ""}
    assert Path(python(FOLDER, **home)) == tmp_path / "tightpipe"
    told = {**home, "NUMBA_CACHE_DIR": str(tmp_path / "told")}
    assert Path(python(FOLDER, **told)) == tmp_path / "told" / "tightpipe"


def test_without_a_home_loops_are_compiled_all_the_same(tmp_path: Path) -> None:
    home = {"XDG_CACHE_HOME": "/dev/null/none", "NUMBA_CACHE_DIR": "", "TMPDIR": str(tmp_path)}
    assert python(DEPARTURE, **home) == "5 1"
    assert python(DEPARTURE, **home) == "5 0"
    shared = Path(python(FOLDER, **home))
    assert shared == tmp_path / f"tightpipe-{os.getuid()}"
    assert shared.stat().st_mode & 0o077 == 0  # what lies there is run
    shutil.rmtree(shared)
    shared.write_text("in the way")
    assert python(DEPARTURE, **home) == "5 1"
    assert list(tmp_path.iterdir()) == [shared]


def test_earlier_versions_are_removed_but_for_those_used_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("loops", "groups"):
        for name in ("a", "b-c"):
            for age in range(5):
                path = tmp_path / folder / f"{name}-{age}"
                path.mkdir(parents=True) if folder == "loops" else path.touch()
                os.utime(path, (1e9 - age, 1e9 - age))
        (tmp_path / folder).with_name("groups").mkdir(exist_ok=True)
    monkeypatch.setattr(kernel_cache, "_root", lambda: tmp_path)
    kernel_cache.remove_old_versions()
    for folder in ("loops", "groups"):
        left = sorted(path.name for path in (tmp_path / folder).iterdir())
        assert left == [f"{name}-{age}" for name in ("a", "b-c") for age in range(3)]


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


def test_ctrl_c_within_a_method_ends_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(instance: Instance, *_: object, **__: object) -> Result:
        return replace(solve(instance, "list"), reason=INTERRUPTED)

    monkeypatch.setattr(import_module("tightpipe.solver.improve"), "improve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exercise.EXERCISES["improve"]()


@pytest.mark.parametrize("content", ["{", "", "[1]"])
def test_a_list_of_a_group_that_cannot_be_read_is_no_fault(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "times"
    path.write_text(content)
    monkeypatch.setattr(kernel_cache, "list_of_group", lambda _: path)
    assert _known("times") is None
