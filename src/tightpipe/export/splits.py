"""The export targets for the cut of a model, by name, and the functions that write and read their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.files import read_text, write_text
from .megatron_layout import MEGATRON_LAYOUT
from .model_split import ModelSplit
from .split_target import SplitTarget
from .target import check_options
from .torchtitan import TORCHTITAN

SPLITS: dict[str, SplitTarget] = {target.name: target for target in (TORCHTITAN, MEGATRON_LAYOUT)}
"""The targets by name."""


def export_split(split: ModelSplit, target: str, path: str | Path, **options: Any) -> None:
    """Write the cut of a model as a file of another program.

    Parameters
    ----------
    split
        Parts, device and recomputation of each stage.
    target
        Name of the file format in `SPLITS`.
    path
        File to write.
    options
        Options of the target, e.g. ``layout_only=True`` for ``megatron-layout``.

    Raises
    ------
    InputError
        If the other program cannot express the split, the target or an option is unknown, or the file cannot
        be written.
    """
    write_text(path, split_text(split, target, **options))


def split_text(split: ModelSplit, target: str, **options: Any) -> str:
    """Return the text that `export_split` writes; raise errors as `export_split` does."""
    chosen = _target(target)
    check_options(target, chosen.options, options)
    text = chosen.write(split, **options)
    back = chosen.read(text)
    if options.get("layout_only"):  # such a text does not say what is recomputed
        back = replace(back, recomputed=split.recomputed)
    if back.microbatches is None:  # nor do the arguments of Megatron-LM say how many microbatches there are
        back = replace(back, microbatches=split.microbatches)
    if back != split:
        raise AssertionError(f"{target} does not read back as it was written")
    return text


def read_split(path: str | Path, target: str) -> ModelSplit:
    """Return the cut of a model that an exported file describes.

    Raises
    ------
    InputError
        If the target is unknown or the file is not of its format.
    """
    chosen = _target(target)
    try:
        return chosen.read(read_text(path))
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None


def _target(name: str) -> SplitTarget:
    if name not in SPLITS:
        raise InputError(f"must be one of {', '.join(SPLITS)}", key="target", value=name)
    return SPLITS[name]
