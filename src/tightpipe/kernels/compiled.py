"""Inner loops are compiled by numba when they are first called, or ahead of a clock that starts.

Loops are compiled once for each user and version of their sources; the machine code is kept in a cache
folder. Beside it, a list for each group of `tightpipe.exercise` names the loops that the group calls, and
says that they are compiled.

Importing numba takes longer than many commands, so a decorated function does not import it before it is
called. Where a loop calls another one, numba asks the other one for its type through the attribute
``_numba_type_``, a protocol that any object may follow. A function that a loop calls is compiled without the
code by which Python would call it. If Python calls the same function too, it is compiled twice.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, update_wrapper
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

# A loop that allocates nothing need not count the references to an array. Without the counting it is twice as
# fast, and threads that share arrays do not slow each other down by changing the same counters.
_WITHOUT_ARRAYS: dict[str, Any] = {"nogil": True, "_nrt": False}


# Leave out the code by which C, or Python, would call a loop: where the arguments are tuples of many arrays,
# that code can take longer to compile than the loop itself.
_NOT_FROM_C: dict[str, Any] = {"no_cfunc_wrapper": True}
_NOT_FROM_PYTHON: dict[str, Any] = {"no_cpython_wrapper": True}


class Loop:
    """A function that numba compiles, for each combination of argument types, when it is first called.

    - `function`: the function to compile; its globals may be constants, NumPy, and other loops.
    - `options`: keyword arguments of `numba.njit`.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._function, self._options = function, {**options, **_NOT_FROM_C}

    def __call__(self, *arguments: Any) -> Any:
        for calls in _RECORDS:
            types = tuple(self.dispatcher.typeof_pyval(argument) for argument in arguments)
            calls.add((self.name, short_name(types)))
        return self.dispatcher(*arguments)

    @cached_property
    def dispatcher(self) -> Any:
        """The object by which numba calls the function, after compiling it or taking it from the cache."""
        from .cache import dispatcher_of  # imported late because it loads numba

        return dispatcher_of(self._function, self._options)

    @cached_property
    def _inner_dispatcher(self) -> Any:
        from .cache import inner_dispatcher_of

        return inner_dispatcher_of(self._function, {**self._options, **_NOT_FROM_PYTHON})

    @property
    def _numba_type_(self) -> Any:
        from numba import types

        return types.Dispatcher(self._inner_dispatcher)

    @property
    def misses(self) -> int:
        """Number of times that this process compiled the function because the cache did not have it."""
        # reading the properties would create the dispatchers
        known = (self.__dict__.get(name) for name in ("dispatcher", "_inner_dispatcher"))
        return sum(sum(each.stats.cache_misses.values()) for each in known if each is not None)

    @property
    def signatures(self) -> list[Any]:
        """The combinations of argument types that are ready in this process for a call from Python."""
        known = self.__dict__.get("dispatcher")
        return [] if known is None else list(known.signatures)


Call = tuple[str, str]
"""The name of a loop that Python calls, and the `short_name` of the types of the arguments."""

_RECORDS: list[set[Call]] = []


@contextmanager
def recorded_calls() -> Iterator[set[Call]]:
    """Yield a set to which every call of a loop from Python is added until the block ends."""
    calls: set[Call] = set()
    _RECORDS.append(calls)
    try:
        yield calls
    finally:
        _RECORDS[:] = [other for other in _RECORDS if other is not calls]


def short_name(types: tuple[Any, ...]) -> str:
    """Return a hash that stands for a combination of argument types; their text has thousands of letters."""
    return hashlib.sha256(str(types).encode()).hexdigest()[:16]


LOADED_AT = time.time()
"""When this process began to import loops, in seconds of the system's clock."""

LOOPS: list[Loop] = []
"""All loops of the modules that this process has imported."""


def compiled(function: Function) -> Function:
    """Mark a function as a loop for numba: it may allocate no arrays, and runs without Python's lock."""
    return _loop(function, _WITHOUT_ARRAYS)


def compiled_inline(function: Function) -> Function:
    """Mark a function that allocates no array as a loop that numba compiles into each loop that calls it.

    An ordinary call passes every field of a tuple of arrays separately, hundreds of numbers, which can take
    longer than running the function. So this is for small functions, and for those that only one loop calls.
    """
    return _loop(function, {**_WITHOUT_ARRAYS, "forceinline": True})


def compiled_with_arrays(function: Function) -> Function:
    """Mark a function, which may allocate arrays, as a loop that numba compiles when it is first called."""
    return _loop(function, {})


def _loop(function: Function, options: dict[str, Any]) -> Function:
    LOOPS.append(Loop(function, options))
    return cast(Function, LOOPS[-1])


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
    from .cache import is_disabled

    return is_disabled() or all(_known(group) is not None for group in groups)


def compile_ahead(groups: Iterable[str] | None = None) -> dict[str, frozenset[Call]]:
    """Compile the loops of some groups, None for all, and return the calls of loops that each group makes.

    The result is empty where numba is told not to compile.
    """
    from .cache import is_disabled  # imported late: loads numba

    if is_disabled():
        return {}
    if groups is None:
        from ..exercise import EXERCISES

        groups = EXERCISES
    return {group: _known(group) or _compile(group) for group in dict.fromkeys(groups)}


def _known(group: str) -> frozenset[Call] | None:
    """Return the calls of a group whose loops are compiled, else None, and mark the list as in use."""
    from .cache import list_of_group

    path = list_of_group(group)
    with suppress(OSError, ValueError, TypeError):
        calls = frozenset((name, types) for name, types in json.loads(path.read_text()))
        os.utime(path)
        return calls
    return None


def _compile(group: str) -> frozenset[Call]:
    """Run the loops of a group, which compiles those that are not compiled, and write the group's list."""
    from ..exercise import EXERCISES
    from .cache import compiled_for, list_of_group, remove_old_versions

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
