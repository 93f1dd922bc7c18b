"""How inner loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])

# the loops allocate nothing, so arrays need not be counted: that doubles their speed, and lets threads
# share arrays without a fight for the counters
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}


def compiled(function: Function) -> Function:
    """Compile a function that allocates no array; it runs without the interpreter's lock."""
    return njit(**_OPTIONS)(function)  # type: ignore[no-any-return]
