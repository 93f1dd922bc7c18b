"""An export target for the cut of a model: a file format, with functions that write and read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .model_split import ModelSplit


@dataclass(frozen=True, slots=True)
class SplitTarget:
    """A file format by which another program learns how a model is cut into stages.

    Parameters
    ----------
    name
        Name of the format, as given to `export_split` and on the command line.
    summary
        Description of the format in one line.
    write
        Function that takes a split and options, and returns the text of the file. It raises `InputError` if
        the other program cannot express the split.
    read
        Function that takes the text of a file and returns its split.
    options
        Names of the options that `write` takes.
    """

    name: str
    summary: str
    write: Callable[..., str]
    read: Callable[[str], ModelSplit]
    options: tuple[str, ...] = ()
