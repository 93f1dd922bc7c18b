"""The loops that a call needs are compiled and loaded before its clock starts.

They are compiled once for each user and version of their sources; the machine code is kept in a cache folder.
Beside it, a list for each group of `tightpipe.exercise` names the loops that the group calls, and says that
they are compiled.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ..kernels.compiled import LOOPS, Call, recorded_calls, short_name

_loaded: set[Call] = set()


def ensure_compiled(groups: Iterable[str] | None = None) -> None:
    """Compile the loops of some groups of `tightpipe.exercise`, None for all, and load them.

    Whatever is timed must come after this call. Of several processes that need the same loop, the first
    compiles it and the others wait for it.
    """
    for group, calls in compile_ahead(groups).items():
        if not _load(calls - _loaded):  # e.g. since a file of the cache was damaged
            _compile(group)


def are_compiled(groups: Iterable[str]) -> bool:
    """Return whether the cache has the loops of these groups; also where numba is told not to compile."""
    from ..kernels.cache import is_disabled

    return is_disabled() or all(_known(group) is not None for group in groups)


def compile_ahead(groups: Iterable[str] | None = None) -> dict[str, frozenset[Call]]:
    """Compile the loops of some groups, None for all, and return the calls of loops that each group makes.

    The result is empty where numba is told not to compile.
    """
    from ..kernels.cache import is_disabled  # imported late: loads numba

    if is_disabled():
        return {}
    if groups is None:
        from ..exercise import EXERCISES

        groups = EXERCISES
    return {group: _known(group) or _compile(group) for group in dict.fromkeys(groups)}


def _known(group: str) -> frozenset[Call] | None:
    """Return the calls of a group whose loops are compiled, else None, and mark the list as in use."""
    from ..kernels.cache import list_of_group

    path = list_of_group(group)
    with suppress(OSError, ValueError, TypeError):
        calls = frozenset((name, types) for name, types in json.loads(path.read_text()))
        os.utime(path)
        return calls
    return None


def _compile(group: str) -> frozenset[Call]:
    """Run the loops of a group, which compiles those that are not compiled, and write the group's list."""
    from ..exercise import EXERCISES
    from ..kernels.cache import compiled_for, list_of_group, remove_old_versions

    with compiled_for(group), recorded_calls() as calls, _no_collection():
        EXERCISES[group]()
    _loaded.update(calls)
    path = list_of_group(group)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError):  # e.g. where the disk is full; the next process runs the loops again
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(sorted(calls)))
        partial.replace(path)
    remove_old_versions()
    return frozenset(calls)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Leave garbage where it is until the block ends: the compiler makes little, and looks for it often."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _load(calls: Iterable[Call]) -> bool:
    """Load the machine code for calls of loops of the imported modules; return whether the cache has all."""
    wanted: dict[str, set[str]] = {}
    for name, types in calls:
        wanted.setdefault(name, set()).add(types)
    complete = True
    for loop in [loop for loop in LOOPS if loop.name in wanted]:
        ready = {short_name(signature): signature for signature in loop.dispatcher._cache.signatures()}
        for types in wanted[loop.name]:
            if types in ready:
                loop.dispatcher.compile(ready[types])
                _loaded.add((loop.name, types))
            else:
                complete = False
    return complete
