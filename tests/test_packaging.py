"""The declared packages are the folders, and dependencies point one way."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAPPED = {
    "tightpipe": ROOT / "src/tightpipe",
    "tightpipe.solver": ROOT / "solver",
    "tightpipe.heuristics": ROOT / "heuristics",
}
MAY_KNOW_ALL = {"solve.py", "solving.py"}  # the latter in cli/, for the bounds


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


def files_of(root_package: str) -> list[tuple[Path, str]]:
    folder = MAPPED[root_package]
    return [
        (f, ".".join([root_package, *f.parent.relative_to(folder).parts]))
        for f in sorted(folder.rglob("*.py"))
    ]


def breaches(root_package: str, forbidden: tuple[str, ...], exempt: set[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, package in files_of(root_package)
        if path.name not in exempt
        for name in imported_modules(path, package)
        if any(name == f or name.startswith(f + ".") for f in forbidden)
    ]


def test_core_imports_neither_solver_nor_heuristics() -> None:
    assert breaches("tightpipe", ("tightpipe.solver", "tightpipe.heuristics"), MAY_KNOW_ALL) == []


def test_heuristics_import_only_the_core() -> None:
    assert (
        breaches("tightpipe.heuristics", ("tightpipe.solver", "tightpipe.solve", "tightpipe.cli"), set())
        == []
    )


def test_solvers_import_only_the_core() -> None:
    assert (
        breaches("tightpipe.solver", ("tightpipe.heuristics", "tightpipe.solve", "tightpipe.cli"), set())
        == []
    )


def test_validator_shares_no_code_with_simulator_or_solvers() -> None:
    imported = imported_modules(MAPPED["tightpipe"] / "validate.py", "tightpipe")
    own = {name for name in imported if name.startswith("tightpipe")}
    assert own == {"tightpipe.instance", "tightpipe.operation", "tightpipe.schedule"}


@pytest.mark.parametrize("name", ["solver", "heuristics"])
def test_the_mapped_folders_refuse_to_be_imported_bare(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"import tightpipe.{name}, not {name}" in done.stderr
