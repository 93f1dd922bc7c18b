"""The cache of compiled loops: a folder for each file with loops, its sources and the kind of machine.

Numba's own cache only looks at the file that a function stands in. If that function calls one in another
file, the machine code contains both functions, but an edit of the other file would have no effect. So here
the name of the folder is a digest of everything that the machine code of a file's loops is made from: the
file, the files that it imports constants or loops from, and the file that you read, which decides in what
form machine code is kept. An edit makes the loops of these files new, and no others. One process at a time
compiles, so that of several that need the same loop only one compiles it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import llvmlite
import numba
from numba import types
from numba.core import config, ir
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import get_definition, guard
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.untyped_passes import IRProcessing

from ..base.sources import cache_roots
from .compiled import LOADED_AT

_PACKAGE = Path(__file__).parent.parent
_HOLDS_LOOPS = re.compile(rb"^from \S*\bcompiled import", re.MULTILINE)
_SHARED = (
    "kernels/compiled.py",
    "model/operation.py",
    "model/graph.py",
    "model/graph_arrays.py",
    "planning/model_arrays.py",
    "solver/improve/lines.py",
)  # loops also depend on compiler options, kinds of operations, the graph, constants of plans and of rules
_DAMAGED = EOFError, UnpicklingError  # errors of a file that is incomplete, e.g. after a power failure
_KEPT = 3  # number of versions that are kept of everything, because several may be in use side by side
_IMPORTED = re.compile(rb"^from (\.*)([\w.]*) import", re.MULTILINE)
_subjects: list[str] = []  # for what loops are compiled now; the last one is said when compiling begins


def dispatcher_of(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return the object by which numba compiles and calls a function, with the cache of this module."""
    dispatcher = numba.njit(pipeline_class=_Compiler, **options)(function)
    if is_disabled():
        return dispatcher
    dispatcher._cache = _Cache(function, inner=False)
    compile_or_load = dispatcher.compile

    def compile_or_leave(signature: Any) -> Any:
        try:
            return compile_or_load(signature)
        except BaseException:  # so that other processes need not wait for this one any longer
            _lock().release(force=True)
            raise

    dispatcher.compile = compile_or_leave
    return dispatcher


def inner_dispatcher_of(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return the object by which numba compiles a function as a part of other loops.

    Numba would compile the function anew for each constant that a loop passes; this object does not.
    """
    dispatcher = numba.njit(pipeline_class=_Compiler, **options)(function)
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
    return _digest_of(sources())


@cache
def digest_of_module(module: str) -> str:
    """Return a hash of all that the machine code of a module's loops is made from."""
    return _digest_of(_closure(module))


def _digest_of(paths: Iterable[Path]) -> str:
    versions = numba.__version__, llvmlite.__version__, platform.python_version()
    found = hashlib.sha256(repr((versions, cpu_target.target_context.codegen().magic_tuple())).encode())
    for path in (_PACKAGE / "kernels/cache.py", *paths):  # this file says in which form machine code is kept
        found.update(f"\0{path.relative_to(_PACKAGE).as_posix()}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _closure(module: str) -> list[Path]:
    """Return the source of a module and the `sources` that it imports, also by others, sorted by path.

    The loops of a module that is none of the sources, such as a test, are made from all sources.
    """
    relative = {path: path.relative_to(_PACKAGE).with_suffix("") for path in sources()}
    known = {".".join([_PACKAGE.name, *name.parts]): path for path, name in relative.items()}
    if module not in known:
        return sources()
    reached, new = set[str](), {module}
    while new:
        reached |= new
        new = {name for each in new for name in _imports(each, known[each]) & known.keys()} - reached
    return sorted(known[name] for name in reached)


def _imports(module: str, path: Path) -> set[str]:
    """Return the absolute names of the modules from which a module imports at its top."""
    parts, found = module.split("."), set()
    for dots, name in _IMPORTED.findall(path.read_bytes()):
        base = parts[: len(parts) - len(dots)] if dots else []
        found.add(".".join([*base, name.decode()]))
    return found


@cache
def _root() -> Path:
    """Return the first folder that can be written; without one, the process gets a temporary folder."""
    for root in cache_roots():
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=root).close()
            return root
    return _own_folder()


@cache
def _own_folder() -> Path:
    own = tempfile.mkdtemp(prefix="tightpipe-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


@cache
def folder_of_module(module: str) -> Path:
    """Return the folder for the machine code of a module's loops, and mark it as in use.

    If one of the sources was edited since this process loaded them, which makes the digest wrong, the
    process gets a temporary folder of its own.
    """
    edited = any(path.stat().st_mtime > LOADED_AT for path in _closure(module))
    folder = (_own_folder() if edited else _root()) / "loops" / f"{module}-{digest_of_module(module)}"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    return folder


def list_of_group(group: str) -> Path:
    """Return the file that lists the calls of a group of loops, and is there if these loops are compiled."""
    edited = any(path.stat().st_mtime > LOADED_AT for path in sources())
    return (_own_folder() if edited else _root()) / "groups" / f"{group}-{digest()}"


def remove_old_versions() -> None:
    """Remove all versions of machine code, and of lists of groups, but the `_KEPT` that were used last."""
    for folder in (_root() / "loops", _root() / "groups"):
        versions = defaultdict[str, list[Path]](list)
        for path in folder.glob("*-*"):
            versions[path.name.rpartition("-")[0]].append(path)
        for same in versions.values():
            for path in sorted(same, key=_used, reverse=True)[_KEPT:]:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def _used(path: Path) -> float:
    with suppress(OSError):  # another process may have removed it
        return path.stat().st_mtime
    return 0.0


def _wait_for_others() -> None:
    """Wait until no other process compiles, and keep others from compiling until the lock is released."""
    from filelock import Timeout

    try:
        try:
            _lock().acquire(timeout=0)
        except Timeout:
            say("another process is compiling inner loops: waiting for it")
            _lock().acquire()
    except (OSError, NotImplementedError):  # on a file system without locks, compiling twice does no harm
        pass


@cache
def _lock() -> Any:
    from filelock import FileLock

    return FileLock(_root() / "lock", thread_local=False)


@contextmanager
def compiled_for(group: str) -> Iterator[None]:
    """Say once, when a loop is compiled within the block, that the loops of this group are compiled."""
    _subjects.append(f"the inner loops of {group}")
    try:
        yield
    finally:
        _subjects.clear()


def _say_subject(loop: str) -> None:
    subject = _subjects[-1] if _subjects else f"the inner loop {loop}"
    if subject:
        say(f"compiling {subject}, once")
    if _subjects:
        _subjects[-1] = ""  # it has been said


def say(text: str) -> None:
    """Print a line about compiling on stderr."""
    print(f"tightpipe: {text}", file=sys.stderr, flush=True)


@register_pass(mutates_CFG=False, analysis_only=False)
class _MissingFields(FunctionPass):
    """Makes fields that are None constants, where a loop reads them from a named tuple among its arguments.

    Numba leaves out what follows `if` of a constant before it infers types. So a loop is compiled without
    what the types of its arguments say that it does not need.
    """

    _name = "missing_fields"

    def __init__(self) -> None:  # which the base class leaves to its subclasses
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for found in block.find_insts(ir.Assign):
                if self._is_missing(state, found.value):
                    constant = ir.Const(None, found.loc)
                    known = state.func_ir._definitions[found.target.name]
                    known[known.index(found.value)] = found.value = constant
        return True

    @staticmethod
    def _is_missing(state: Any, value: Any) -> bool:
        if not isinstance(value, ir.Expr) or value.op != "getattr":
            return False
        source = guard(get_definition, state.func_ir, value.value)
        kind = state.args[source.index] if isinstance(source, ir.Arg) else None
        if not isinstance(kind, types.BaseNamedTuple) or value.attr not in kind.fields:
            return False
        return isinstance(kind.types[kind.fields.index(value.attr)], types.NoneType)


class _Compiler(CompilerBase):
    """The compiler of numba with one pass more."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_MissingFields, IRProcessing)
        passes.finalize()
        return [passes]


class _Locator(UserProvidedCacheLocator):
    """The object that tells numba the folder for the machine code of a module's loops."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(folder_of_module(function.__module__))  # does not depend on where files lie

    def get_source_stamp(self) -> str:
        """Return what tells a version of the source from another, which the name of the folder does."""
        return ""

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, file)


class _Files(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  # as in the base class


class _FilesOfCalled(_Files):
    """Cache files of functions that Python calls, without the parts that only a compiled caller would need.

    Numba also stores the code that is needed to compile a caller of the function, which no loop needs, as
    loops call the objects of `inner_dispatcher_of`; and a record of constants for each function that was
    compiled into it, of which reading even an empty one imports the compiler. Reading both would take most of
    the time in which a process loads its loops.
    """

    def reduce(self, result: Any) -> tuple[Any, ...]:
        """Return the parts of a compiled function that are pickled into its file."""
        (name, kind, (machine_code, _)), *middle, records = super().reduce(result)
        own = result.environment.env_name  # a call from Python needs this record even if it is empty
        kept = tuple(record for record in records if record.consts or record.env_name == own)
        return (name, kind, (machine_code, _naming(result.fndesc.llvm_cpython_wrapper_name))), *middle, kept


def _naming(function: str) -> bytes:
    """Return bitcode that only defines the name `function`, which numba looks up before it loads code."""
    code: bytes = llvmlite.binding.parse_assembly(f'@"{function}" = global i8 0').as_bitcode()
    return code


class _Cache(FunctionCache):
    """Numba's cache of a function; where the disk fails, the function is compiled and no error is raised."""

    def __init__(self, function: Callable[..., Any], inner: bool) -> None:
        self._impl_class = _Files if inner else _FilesOfCalled
        super().__init__(function)
        self._inner = inner
        self._name = function.__name__.strip("_")

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return *super()._index_key(signature, codegen), self._inner

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the machine code for a combination of argument types, or None if the cache does not have it.

        Where this process then has to compile a loop that Python calls, it first waits for other processes
        that compile. One of them may have compiled this loop, so the cache is asked once more.
        """
        found = self._loaded(signature, context)
        if found is None and not self._inner:
            _wait_for_others()
            found = self._loaded(signature, context)
            if found is None:
                _say_subject(self._name)
            else:
                _lock().release()
        return found

    def _loaded(self, signature: Any, context: Any) -> Any:
        """Return what the cache has.

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
        try:
            with suppress(OSError):
                super().save_overload(signature, result)
        finally:
            if not self._inner:
                _lock().release()

    def signatures(self) -> list[Any]:
        """Return the combinations of argument types for which the cache has machine code."""
        with suppress(OSError, *_DAMAGED):
            index = self._cache_file._load_index()
            return [signature for signature, *_, inner in index if inner == self._inner]
        return []
