"""Toy packages with heuristics, installed as pip does it: a module, and a folder of metadata beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tightpipe.solving.installed import GROUP, installed_heuristics, warn

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
    metadata = folder / f"{name}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = [f"{key} = {value}" for key, value in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.syspath_prepend(folder)
        patch.delitem(sys.modules, name, raising=False)
        _forget()
        yield module
    sys.modules.pop(name, None)
    _forget()


def _forget() -> None:
    installed_heuristics.cache_clear()
    warn.cache_clear()
