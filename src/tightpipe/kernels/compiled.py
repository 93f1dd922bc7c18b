"""How inner loops are compiled: by numba, when one of them is first called.

Loading numba takes longer than many a command, so a decorated function is no more than a promise until it
is called. Where a loop calls another one, numba asks that one for its type by the protocol that any object
may follow: the attribute ``_numba_type_``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

# loops that allocate nothing need not count who uses an array: that doubles their speed, and lets threads
# share arrays without a fight for the counters
_WITHOUT_ARRAYS: dict[str, Any] = {"nogil": True, "_nrt": False}


class Loop:
    """A function that numba compiles, for each combination of argument types, when it is first called.

    Parameters
    ----------
    function
        What is compiled; its globals may be constants, NumPy, and other loops.
    options
        Keywords of `numba.njit`.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.called = False
        self._function, self._options = function, options

    def __call__(self, *arguments: Any) -> Any:
        self.called = True
        return self.dispatcher(*arguments)

    @cached_property
    def dispatcher(self) -> Any:
        """What numba makes of the function: it compiles, or takes from the cache, and calls."""
        from .cache import dispatcher_of  # loads numba

        return dispatcher_of(self._function, self._options)

    @property
    def _numba_type_(self) -> Any:
        from numba import types

        return types.Dispatcher(self.dispatcher)

    @property
    def misses(self) -> int:
        """How often this process had to compile the function, as the cache did not have it."""
        known = self.__dict__.get("dispatcher")  # asking must not make it
        return 0 if known is None else sum(known.stats.cache_misses.values())

    @property
    def signatures(self) -> list[Any]:
        """The combinations of argument types that are ready in this process."""
        known = self.__dict__.get("dispatcher")
        return [] if known is None else list(known.signatures)


LOADED_AT = time.time()
"""When this process began to read loops, in seconds of the system's clock."""

LOOPS: list[Loop] = []
"""Every loop of the modules that this process has loaded."""


def compiled(function: Function) -> Function:
    """Compile a function that allocates no array; it runs without the interpreter's lock."""
    return _loop(function, _WITHOUT_ARRAYS)


def compiled_inline(function: Function) -> Function:
    """Compile a function that allocates no array as a part of each loop that calls it.

    A call hands over every field of a tuple of arrays by itself: hundreds of numbers, which take longer than
    many a function does. So this is for small functions, and for those that one loop calls.
    """
    return _loop(function, {**_WITHOUT_ARRAYS, "forceinline": True})


def compiled_with_arrays(function: Function) -> Function:
    """Compile a function that allocates arrays."""
    return _loop(function, {})


def _loop(function: Function, options: dict[str, Any]) -> Function:
    LOOPS.append(Loop(function, options))
    return cast(Function, LOOPS[-1])
