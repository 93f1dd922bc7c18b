"""Inner loops are compiled by numba when they are first called.

Importing numba takes longer than many commands, so a decorated function does not import it before it is
called. Where a loop calls another one, numba asks the other one for its type through the attribute
``_numba_type_``, a protocol that any object may follow. A function that a loop calls is compiled without the
code by which Python would call it. If Python calls the same function too, it is compiled twice.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """Mark a function as a loop that numba compiles when it is first called.

    The function may not allocate arrays, and runs without the lock of the Python interpreter.
    """
    return _loop(function, _WITHOUT_ARRAYS)


def compiled_inline(function: Function) -> Function:
    """Mark a function that allocates no array as a loop that numba compiles into each loop that calls it.

    An ordinary call passes every field of a tuple of arrays separately. That can be hundreds of numbers, and
    passing them can take longer than running the function. Functions that are compiled into their callers
    need no such call. This decorator is for small functions, and for functions that only one loop calls.
    """
    return _loop(function, {**_WITHOUT_ARRAYS, "forceinline": True})


def compiled_with_arrays(function: Function) -> Function:
    """Mark a function, which may allocate arrays, as a loop that numba compiles when it is first called."""
    return _loop(function, {})


def _loop(function: Function, options: dict[str, Any]) -> Function:
    LOOPS.append(Loop(function, options))
    return cast(Function, LOOPS[-1])
