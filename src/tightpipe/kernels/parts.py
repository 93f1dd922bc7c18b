"""Functions that are compiled as parts of loops are linked into the loops, and optimised only there.

Numba would optimise such a function, and make machine code of it, before it links its code into a caller. A
function that is called through several others would be optimised once on each level, with all that is below
it, and only the outermost machine code ever runs. So each part is optimised alone: without that,
some loops run 15 % longer.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
from numba.core.compiler import Compiler


class _Part(JITCodeLibrary):
    """The code of a function that is only linked into others."""

    def finalize(self) -> None:
        """Optimise the code alone, without what it calls, and make no machine code of it."""
        _optimise(self)
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """What numba tells where the record of constants of a function is."""
        return _Uncallable

    def get_pointer_to_function(self, _: str) -> int:
        """Return 0: Python cannot call the function."""
        return 0


class _Uncallable:
    @staticmethod
    def set_env(*_: Any) -> None:
        """Take no record of constants, because the function has none."""


class _Loop(JITCodeLibrary):
    """The code of a function that Python calls, with all that it is linked with."""

    def finalize(self) -> None:
        """Link the parts, and the parts of the parts, each once, and make machine code."""
        found: dict[CPUCodeLibrary, None] = {}
        todo = list(self._linking_libraries)
        while todo:
            library = todo.pop()
            if library not in found:
                found[library] = None
                todo += library._linking_libraries if isinstance(library, _Part) else ()
        self._linking_libraries = list(found)
        super().finalize()  # type: ignore[no-untyped-call]

    def _optimize_final_module(self) -> None:
        """Optimise once; numba optimises twice, because most of its users' loops count references."""
        _optimise(self)


def _optimise(library: CPUCodeLibrary) -> None:
    passes, builder = library._codegen._module_pass_manager()  # type: ignore[no-untyped-call]
    passes.run(library._final_module, builder)


_numbers = count()


class _CompilerOf(Compiler):
    library: type[CPUCodeLibrary]

    def __init__(self, typing_context: Any, target_context: Any, library: Any, *rest: Any) -> None:
        library = self.library(target_context.codegen(), f"loop{next(_numbers)}")
        library.enable_object_caching()
        super().__init__(typing_context, target_context, library, *rest)  # type: ignore[no-untyped-call]


class PartCompiler(_CompilerOf):
    """Compiles a function that is only called by loops."""

    library = _Part


class LoopCompiler(_CompilerOf):
    """Compiles a function that Python calls."""

    library = _Loop
