"""The cache of compiled loops: one folder per user, version of the sources and kind of machine.

Numba's own cache only looks at the file that a function stands in. If that function calls one in another
file, the machine code contains both functions, but an edit of the other file would have no effect. So here
the name of the folder is a digest of everything that machine code is made from.
"""

from __future__ import annotations

import atexit
import hashlib
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import llvmlite
import numba
from numba import types
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

from .compiled import LOADED_AT
from .user_cache import cache_roots

_PACKAGE = Path(__file__).parent.parent
_HOLDS_LOOPS = re.compile(rb"^from \S*\bcompiled import", re.MULTILINE)
_SHARED = (
    "kernels/compiled.py",
    "core/operation.py",
    "core/graph.py",
    "core/graph_arrays.py",
    "core/inputs.py",
    "planning/model_arrays.py",
)  # loops also depend on compiler options, the numbers of kinds of operations, the graph, a constant of plans
_DAMAGED = EOFError, UnpicklingError  # errors of a file that is incomplete, e.g. after a power failure
_KEPT = 3  # number of folders that are kept, because several versions may be in use side by side


def dispatcher_of(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return the object by which numba compiles and calls a function, with the cache of this module."""
    dispatcher = numba.njit(**options)(function)
    if not is_disabled():
        dispatcher._cache = _Cache(function, inner=False)
    return dispatcher


def inner_dispatcher_of(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return the object by which numba compiles a function as a part of other loops.

    Numba would compile the function anew for each constant that a loop passes; this object does not.
    """
    dispatcher = numba.njit(**options)(function)
    dispatcher._cache = _Cache(function, inner=True)
    template_of = dispatcher.get_call_template

    def template_of_any_value(arguments: Iterable[Any], keywords: dict[str, Any]) -> Any:
        any_value = {name: types.unliteral(kind) for name, kind in keywords.items()}
        return template_of(tuple(map(types.unliteral, arguments)), any_value)

    dispatcher.get_call_template = template_of_any_value
    return dispatcher


def is_disabled() -> bool:
    """Return whether the environment variable NUMBA_DISABLE_JIT asks for plain Python."""
    return bool(config.DISABLE_JIT)


@cache
def sources(package: Path = _PACKAGE) -> list[Path]:
    """Return the files below the folder `package` that compiled loops are made from, sorted by path."""
    return [
        path
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).as_posix() in _SHARED or _HOLDS_LOOPS.search(path.read_bytes())
    ]


@cache
def digest() -> str:
    """Return a hash of the sources of all loops, the versions of the compiler, and the processor."""
    versions = numba.__version__, llvmlite.__version__, platform.python_version()
    found = hashlib.sha256(repr((versions, cpu_target.target_context.codegen().magic_tuple())).encode())
    for path in sources():
        found.update(f"\0{path.relative_to(_PACKAGE).as_posix()}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


@cache
def cache_folder() -> Path:
    """Return the cache folder that is named after `digest`.

    If the sources were edited since this process loaded them, or no folder can be written, the process gets a
    temporary folder of its own.
    """
    for root in () if _edited() else cache_roots():
        folder = root / f"loops-{digest()}"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            return folder
    own = tempfile.mkdtemp(prefix="tightpipe-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


def _edited() -> bool:
    """Return whether sources have changed since this process read them, which makes `digest` wrong."""
    return any(path.stat().st_mtime > LOADED_AT for path in sources())


def remove_old_folders() -> None:
    """Remove all cache folders but the `_KEPT` ones that were used last."""
    folders = sorted(cache_folder().parent.glob("loops-*"), key=_used, reverse=True)
    for folder in folders[_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


def _used(folder: Path) -> float:
    with suppress(OSError):  # another process may have removed the folder
        return folder.stat().st_mtime
    return 0.0


class _Locator(UserProvidedCacheLocator):
    """The object that tells numba the folder for the machine code of a module's loops."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(cache_folder() / function.__module__)  # does not depend on where files lie

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, file)


class _Files(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  # as in the base class


class _FilesOfCalled(_Files):
    """Cache files of functions that Python calls, without the parts that only a compiled caller would need.

    Numba stores two more things with a compiled function. One is the code that is needed to compile another
    function that calls this function. No loop needs that code, because loops call the objects of
    `inner_dispatcher_of`. The other is a record of constants for each function that was compiled into this
    function, and reading even an empty record imports the compiler. Reading both would take most of the time
    in which a process loads its loops.
    """

    def reduce(self, result: Any) -> tuple[Any, ...]:
        """Return the parts of a compiled function that are pickled into its file."""
        (name, kind, (machine_code, _)), *middle, records = super().reduce(result)
        own = result.environment.env_name  # a call from Python needs this record even if it is empty
        kept = tuple(record for record in records if record.consts or record.env_name == own)
        return (name, kind, (machine_code, _naming(result.fndesc.llvm_cpython_wrapper_name))), *middle, kept


def _naming(function: str) -> bytes:
    """Return bitcode that defines nothing but the name `function`.

    Numba looks this name up before it loads the machine code.
    """
    code: bytes = llvmlite.binding.parse_assembly(f'@"{function}" = global i8 0').as_bitcode()
    return code


class _Cache(FunctionCache):
    """Numba's cache of a function; where the disk fails, the function is compiled and no error is raised."""

    def __init__(self, function: Callable[..., Any], inner: bool) -> None:
        self._impl_class = _Files if inner else _FilesOfCalled
        super().__init__(function)
        self._inner = inner

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return *super()._index_key(signature, codegen), self._inner

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the machine code for a combination of argument types, or None if the cache does not have it.

        The method of numba would first load all that compiling needs, which takes 0.3 s in every process. To
        run machine code, only the functions that manage the memory of arrays are needed.
        """
        rtsys.initialize(context)
        with suppress(OSError):
            try:
                return self._load_overload(signature, context)
            except _DAMAGED:
                self.flush()  # so that the file is written again
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        with suppress(OSError):
            super().save_overload(signature, result)

    def signatures(self) -> list[Any]:
        """Return the combinations of argument types for which the cache has machine code."""
        with suppress(OSError, *_DAMAGED):
            index = self._cache_file._load_index()
            return [signature for signature, *_, inner in index if inner == self._inner]
        return []
