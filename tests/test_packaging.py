"""The declared packages are the folders, and dependencies point one way."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tightpipe.base.sources import ROOMS

pytestmark = pytest.mark.source_tree
ROOT = Path(__file__).parent.parent
MAPPED = {
    "tightpipe": ROOT / "src/tightpipe",
    "tightpipe.solver": ROOT / "solver",
    "tightpipe.heuristics": ROOT / "heuristics",
}


def packages_on_disk() -> set[str]:
    found = set()
    for name, folder in MAPPED.items():
        for init in folder.rglob("__init__.py"):
            inner = init.parent.relative_to(folder).parts
            found.add(".".join([name, *inner]))
    return found


def test_declared_packages_are_the_folders() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(declared) == sorted(packages_on_disk())


def imported_modules(path: Path, package: str) -> set[str]:
    """Absolute names of the modules that a file imports; `package` is the one that it lies in."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            names.add(".".join([*base, node.module] if node.module else base))
    return names


FLOORS = [
    {"base"},
    {"kernels"},
    {"params"},
    {"model"},
    {"noise"},
    {"settings", "program", "drawing", "terminal", "heuristics", "solver"},
    {"certificates", "export", "registry"},
    {"explain", "experiments", "library", "runtime", "steps"},
    {"measuring", "planning"},
    {"report", "exercise"},
    {"cli"},
]
"""The rooms of the package from the ground up, as docs/architecture.md draws them."""
UPWARDS = {
    # notebooks and `display` ask a schedule for its picture; the import waits until they do
    ("model/result.py", "drawing"),
    ("model/schedule.py", "drawing"),
    # a result has a certificate made when somebody asks for it
    ("model/result.py", "certificates"),
    # what is compiled ahead of time is compiled by use
    ("kernels/compiled.py", "exercise"),
}
"""The imports that go up, each inside a function."""


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def files_of_rooms() -> list[tuple[str, Path, str]]:
    """Each file's name from the package on, its path, and the package that it lies in."""
    found = []
    for name, folder in MAPPED.items():
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder)
            package = ".".join([name, *inside.parent.parts])
            found.append((Path(*package.split(".")[1:], path.name).as_posix(), path, package))
    return found


def floor_of(room: str) -> int:
    return next(floor for floor, rooms in enumerate(FLOORS) if room in rooms)


def test_imports_point_to_lower_floors() -> None:
    breaches, upwards = [], set()
    for file, path, package in files_of_rooms():
        mine = room_of(package) or path.stem
        if mine == "__init__":  # tightpipe itself, which knows all public names
            continue
        for module in imported_modules(path, package):
            theirs = room_of(module)
            if not module.startswith("tightpipe.") or theirs == mine or floor_of(theirs) < floor_of(mine):
                continue
            if (file, theirs) in UPWARDS:
                upwards.add((file, theirs))
            else:
                breaches.append(f"{file} imports {module}")
    assert breaches == []
    assert upwards == UPWARDS


NO_PART_OF_AN_ANSWER = {"terminal", "exercise", "drawing", "certificates"}
"""Rooms for progress, compiling ahead, pictures and proofs of results; none decides what a solve finds."""


def test_the_engine_is_all_that_a_solve_rests_on() -> None:
    used: dict[str, set[str]] = {}
    for _, path, package in files_of_rooms():
        named = {name for name in imported_modules(path, package) if name.startswith("tightpipe.")}
        used.setdefault(room_of(package) or path.stem, set()).update(map(room_of, named))
    reached, new = set(), {"registry"}
    while new:
        reached |= new
        new = {room for mine in new for room in used[mine] if room} - reached - NO_PART_OF_AN_ANSWER
    results = {"settings", "noise"}  # instances of results, and the samples behind results/noise.csv
    assert set(ROOMS) == reached | results


def test_imports_that_go_up_wait_until_they_are_needed() -> None:
    for name, room in UPWARDS:
        path = MAPPED["tightpipe"] / name
        at_once = ast.Module(ast.parse(path.read_text()).body, [])
        top = [node for node in at_once.body if isinstance(node, ast.ImportFrom)]
        assert all(room not in (node.module or "").split(".") for node in top), name


SOLVER_FLOORS = [
    {"copies"},
    {"outcome", "queues"},
    {"bounds.relaxed"},
    {"bounds.formulas"},
    {"programs", "windows"},
    {"engine", "bounds.energetic_kernel"},
    {"prefixes"},
    {"bounds.destructive"},
    {"cpsat", "milp"},
    {"improve"},
    {"blocks"},
    {"best"},
]
"""The rooms of solver/ from the ground up."""


def solver_room(module: str) -> str:
    """Return the room of a module of solver/: its first name, in bounds/ its first two."""
    inside = module.removeprefix("tightpipe.solver.").split(".")
    return ".".join(inside[: 2 if inside[0] == "bounds" else 1])


def solver_floor(module: str) -> int:
    return next(floor for floor, rooms in enumerate(SOLVER_FLOORS) if solver_room(module) in rooms)


def files_of_solver() -> list[tuple[str, Path, str]]:
    """Each module of solver/ that may import others, its path, and the package that it lies in."""
    found = []
    for name, path, package in files_of_rooms():
        if name.startswith("solver/") and name not in ("solver/__init__.py", "solver/bounds/__init__.py"):
            module = package if path.stem == "__init__" else f"{package}.{path.stem}"
            found.append((module, path, package))
    return found


def test_imports_inside_the_solver_point_to_lower_floors() -> None:
    breaches = []
    for module, path, package in files_of_solver():
        for other in imported_modules(path, package):
            if not other.startswith("tightpipe.solver.") or solver_room(other) == solver_room(module):
                continue
            if solver_floor(other) >= solver_floor(module):
                breaches.append(f"{module} imports {other}")
    assert breaches == []


def test_only_rooms_that_load_cpsat_before_highspy_use_it() -> None:
    loading = {
        module
        for module, path, package in files_of_solver()
        if any(other.startswith("ortools.sat") for other in imported_modules(path, package))
        and "import_cp_model()" not in (path.parent / "__init__.py").read_text()
    }
    assert {path for path in loading if path != "tightpipe.solver.milp"} == set()  # which says why it does


def test_compiled_loops_are_recognised_by_the_name_of_their_file() -> None:
    for name, path, _ in files_of_rooms():
        loops = [
            node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef)
            for decorator in node.decorator_list
            if ast.unparse(decorator).startswith("compiled")
        ]
        assert bool(loops) == name.endswith("_kernel.py"), name


def test_validator_shares_no_code_with_simulator_or_solvers() -> None:
    imported = imported_modules(MAPPED["tightpipe"] / "model/validate.py", "tightpipe.model")
    own = {name for name in imported if name.startswith("tightpipe")}
    assert own == {"tightpipe.model.instance", "tightpipe.model.operation", "tightpipe.model.schedule"}


@pytest.mark.parametrize("name", ["solver", "heuristics"])
def test_the_mapped_folders_refuse_to_be_imported_bare(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"import tightpipe.{name}, not {name}" in done.stderr
