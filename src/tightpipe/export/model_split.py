"""A model cut into stages, in the parts that training frameworks know: embedding, blocks and head.

A framework builds its model itself, and has to know only how many blocks each stage has, and which stages
have the embedding and the head. So each layer of a model is translated to one of these parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from ..core.errors import InputError
from ..core.placement import Placement
from .layer_kinds import BLOCK, EMBEDDING, HEAD, KINDS, KNOWN_NAMES, MTP, part_of

_SEQUENCE = re.compile(f"{EMBEDDING}*{BLOCK}*{MTP}*{HEAD}*")
_UNKNOWN = (
    f"does not say what the layer is; known are {KNOWN_NAMES}; "
    f"or give the layer the key kind, one of {', '.join(KINDS)}"
)
_OUT_OF_PLACE = (
    "out of place: frameworks know the embedding, then blocks, then multi-token prediction blocks, "
    "then the head (final norm, output, loss)"
)


@dataclass(frozen=True, slots=True)
class ModelSplit:
    """Which parts of a model each stage has, which device runs the stage, and what is recomputed.

    Parameters
    ----------
    devices
        For each stage the device that runs it.
    parts
        For each stage the letters of its parts in sequence, e.g. ``Ettt``. The first stage begins with the
        embedding. The last stage ends with the head, which stands for the final norm, the output projection
        and the loss.
    recomputed
        For each stage the indices of the recomputed parts among its parts, ascending.
    microbatches
        Number of microbatches that a pipeline takes in one step; None if it is not known, because a file does
        not say it.
    group
        Number of microbatches that run on one stage of a device before the next one has its turn; None for
        the smallest number that a framework takes.
    """

    devices: tuple[int, ...]
    parts: tuple[str, ...]
    recomputed: tuple[tuple[int, ...], ...]
    microbatches: int | None
    group: int | None = None

    @property
    def cuts(self) -> tuple[int, ...]:
        """Index of each stage's first part, counted over the model, and at the end the number of parts."""
        return (0, *accumulate(map(len, self.parts)))

    @property
    def blocks(self) -> int:
        """Number of blocks of the model, those of multi-token prediction not counted."""
        return sum(stage.count(BLOCK) for stage in self.parts)

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return max(self.devices) + 1

    def runs_as(self, placement: str) -> bool:
        """Return whether each stage is on the device where a placement of this name has it."""
        chunks, rest = divmod(len(self.devices), self.device_count)
        try:
            return not rest and Placement(placement, self.device_count, chunks).routes == (self.devices,)
        except InputError:  # the placement does not allow this number of stages per device
            return False

    def known_microbatches(self, reason: str) -> int:
        """Return the number of microbatches.

        Raises
        ------
        InputError
            If it is not known; the message gives the `reason` why it is needed.
        """
        if self.microbatches is None:
            raise InputError(f"must be known: {reason}", key="microbatches", value=None)
        return self.microbatches


def split_model(
    names: Sequence[str],
    cuts: Sequence[int],
    recomputed: Sequence[Sequence[int]],
    devices: Sequence[int],
    *,
    microbatches: int | None,
    kinds: Sequence[str | None] | None = None,
) -> ModelSplit:
    """Return the split of a model, with its layers translated to parts by their kinds or names.

    If a model has no layer for the embedding or for the head, this part is added to the first or last stage,
    where frameworks have it. If it has several, e.g. a final norm and an output projection, they are one part
    together.

    Parameters
    ----------
    names
        Names of the layers in sequence.
    cuts
        Index of the first layer of each stage, and at the end the number of layers.
    recomputed
        For each stage the indices of its recomputed layers, counted over the whole model.
    devices
        For each stage the device that runs it.
    microbatches
        Number of microbatches that a pipeline takes in one step.
    kinds
        For each layer its kind, or None where its name says it; None if no layer has a kind.

    Raises
    ------
    InputError
        If the name of a layer is not recognized, the layers are not embeddings, blocks, multi-token
        prediction blocks and heads, in this sequence, or a part is divided or there twice; the message names
        the layer.
    """
    letters = _letters(names, kinds or [None] * len(names))
    parts, inside = [], []
    for (first, end), again in zip(pairwise(cuts), recomputed, strict=True):
        stage = _stage(names, letters, range(first, end), set(again))
        parts.append("".join(letter for letter, _ in stage))
        inside.append([i for i, (_, recompute) in enumerate(stage) if recompute])
    if not letters.startswith(EMBEDDING):
        parts[0] = EMBEDDING + parts[0]
        inside[0] = [index + 1 for index in inside[0]]
    if not letters.endswith(HEAD):
        parts[-1] += HEAD
    return ModelSplit(tuple(devices), tuple(parts), tuple(map(tuple, inside)), microbatches)


def _letters(names: Sequence[str], kinds: Sequence[str | None]) -> str:
    """Return the letter of each layer, after a check that each is known, in its place, and no copy."""
    letters = ""
    for index, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        part = part_of(name, kind)
        if part is None:
            raise InputError(_UNKNOWN, key=f"name of layer {index}", value=name)
        letters += part
        if not _SEQUENCE.fullmatch(letters):
            told = "name" if kind is None else "kind"
            raise InputError(f"by its {told} the layer is {_OUT_OF_PLACE}", key=f"layer {index}", value=name)
        if part in (EMBEDDING, HEAD) and (name, kind) in zip(names[:index], kinds, strict=False):
            rule = "is there twice, and frameworks have one such layer; make them one layer"
            raise InputError(rule, key=f"layer {index}", value=name)
    return letters


def _stage(names: Sequence[str], letters: str, layers: range, recomputed: set[int]) -> list[tuple[str, bool]]:
    """Return the letter of each part of a stage with these layers, and whether it is recomputed."""
    stage = []
    for letter, members in groupby(layers, key=letters.__getitem__):
        group = list(members)
        if letter not in (EMBEDDING, HEAD):
            stage += [(letter, layer in recomputed) for layer in group]
            continue
        _check_together(names, letters, group, recomputed)
        stage.append((letter, group[0] in recomputed))
    return stage


def _check_together(names: Sequence[str], letters: str, group: list[int], recomputed: set[int]) -> None:
    """Raise an InputError unless the layers of an embedding or a head are together on one stage."""
    everywhere = [i for i, letter in enumerate(letters) if letter == letters[group[0]]]
    shown = [names[i] for i in everywhere]
    if group != everywhere:
        rule = "frameworks have them on one stage, but the plan has a cut between them; make them one layer"
        raise InputError(rule, key="layers", value=shown)
    if 0 < len(recomputed.intersection(group)) < len(group):
        rule = "frameworks recompute all of them or none, but the plan only some; make them one layer"
        raise InputError(rule, key="layers", value=shown)
