"""Toy packages with heuristics, installed as pip does it: a module, and a folder of metadata beside it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tightpipe.registry.own_heuristics import GROUP, heuristic_at, installed_heuristics, warn

SERIAL = '''\
"""Microbatch after microbatch."""

from tightpipe import Instance, Order


def serial(instance: Instance) -> Order:
    lists = [[] for _ in range(instance.devices)]
    for m in range(instance.microbatches):
        for kind, stages in (("F", range(instance.stages)), ("B", reversed(range(instance.stages)))):
            for stage in stages:
                text = f"F{stage}.{m}" if kind == "F" else f"B{stage}.{m} W{stage}.{m}"
                lists[instance.device(stage, m)].append(text)
    return Order.parse("\\n".join(" ".join(texts) for texts in lists))
'''


@contextmanager
def installed(
    folder: Path, entries: Mapping[str, str], code: str = SERIAL, name: str = "toy"
) -> Iterator[Path]:
    """A package of one module that lists `entries`, for this process and those that it starts."""
    folder.mkdir(exist_ok=True)
    module = folder / f"{name}.py"
    module.write_text(code)
    _write_metadata(folder, name, "1.2", entries)
    with importable(folder):
        yield module


def install_project(folder: Path) -> None:
    """Do to an importable folder what ``pip install -e`` does with its pyproject.toml."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    _write_metadata(folder, project["name"], project["version"], project["entry-points"][GROUP])
    _forget()


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """A folder whose modules and packages are seen, by this process and those that it starts."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.syspath_prepend(folder)
        _forget()
        yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(folder):
            del sys.modules[name]
    _forget()


def _write_metadata(folder: Path, name: str, version: str, entries: Mapping[str, str]) -> None:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{key} = {value}" for key, value in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))


def _forget() -> None:
    installed_heuristics.cache_clear()
    heuristic_at.cache_clear()
    warn.cache_clear()
