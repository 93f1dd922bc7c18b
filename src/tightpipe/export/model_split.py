"""A model cut into stages, in the parts that training frameworks know: embedding, blocks and head.

A framework builds its model itself, and has to know only how many blocks each stage has, and which stages
have the embedding and the head. So each layer of a model is translated to one of these parts, by its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ..core.errors import InputError
from ..core.placement import Placement

EMBEDDING, BLOCK, MTP, HEAD = "EtmL"
"""One letter for each kind of part, as Megatron-LM writes them; MTP is a multi-token prediction block."""

_EMBEDDING_WORDS = {"embed", "embedding", "embeddings", "wte"}
_HEAD_WORDS = {"head", "logits", "loss", "norm", "output", "unembedding"}
_SEQUENCE = re.compile(f"{EMBEDDING}?{BLOCK}*{MTP}*{HEAD}?")


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
    """

    devices: tuple[int, ...]
    parts: tuple[str, ...]
    recomputed: tuple[tuple[int, ...], ...]

    @property
    def cuts(self) -> tuple[int, ...]:
        """Index of each stage's first part, counted over the model, and at the end the number of parts."""
        return (0, *accumulate(map(len, self.parts)))

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


def part_of(name: str) -> str:
    """Return the letter of the part to which a layer with this name is translated.

    The name is read as words of letters, in lower case. A name with the word ``mtp``, or with ``token
    prediction``, is a multi-token prediction block. A name whose first or last word is ``embed``,
    ``embedding``, ``embeddings`` or ``wte`` is the embedding; one whose first or last word is ``head``,
    ``logits``, ``loss``, ``norm``, ``output`` or ``unembedding`` is the head. Every other name is a block.
    """
    words = re.findall("[a-z]+", name.lower())
    outer = {*words[:1], *words[-1:]}
    if "mtp" in words or ("token", "prediction") in pairwise(words):
        return MTP
    if outer & _EMBEDDING_WORDS:
        return EMBEDDING
    return HEAD if outer & _HEAD_WORDS else BLOCK


def split_model(
    names: Sequence[str], cuts: Sequence[int], recomputed: Sequence[Sequence[int]], devices: Sequence[int]
) -> ModelSplit:
    """Return the split of a model, with its layers translated to parts by their names.

    If a model has no layer for the embedding or for the head, this part is added to the first or last stage,
    where frameworks have it.

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

    Raises
    ------
    InputError
        If the layers are not an embedding, blocks, multi-token prediction blocks and a head, in this
        sequence; the message names the first layer out of place.
    """
    letters = "".join(map(part_of, names))
    _check_sequence(names, letters)
    parts = [letters[first:end] for first, end in pairwise(cuts)]
    inside = [[index - first for index in stage] for first, stage in zip(cuts[:-1], recomputed, strict=True)]
    if not letters.startswith(EMBEDDING):
        parts[0] = EMBEDDING + parts[0]
        inside[0] = [index + 1 for index in inside[0]]
    if not letters.endswith(HEAD):
        parts[-1] += HEAD
    return ModelSplit(tuple(devices), tuple(parts), tuple(map(tuple, inside)))


def _check_sequence(names: Sequence[str], letters: str) -> None:
    wrong = next((i for i in range(len(letters)) if not _SEQUENCE.fullmatch(letters[: i + 1])), None)
    if wrong is not None:
        rule = (
            "frameworks know one embedding, then blocks, then multi-token prediction blocks, then one head "
            "(final norm, output projection and loss in one layer), by their names"
        )
        raise InputError(rule, key=f"layers[{wrong}].name", value=names[wrong])
