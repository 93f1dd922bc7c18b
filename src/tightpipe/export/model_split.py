"""A model cut into stages, in the parts that training frameworks know: embedding, blocks, head.

A framework builds its model itself, and has to know only how many blocks each stage has, and which stages
have the embedding and the head. So each layer of a model is translated to one of these parts: to the one that
its `kind` says, or else to the one that its name says. A wrong guess from a name would write a wrong layout
without a word. So a name is recognized only if everything in it agrees, and for every other name the user has
to give the kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise

from ..base.errors import InputError
from ..model.placement import Placement

EMBEDDING, BLOCK, MTP, HEAD = "EtmL"
"""One letter for each part of a model, as Megatron-LM writes them; MTP is a multi-token prediction block."""

KINDS = {"embedding": EMBEDDING, "block": BLOCK, "mtp": MTP, "norm": HEAD, "head": HEAD, "loss": HEAD}
"""The kinds of a layer, and the part to which each belongs: final norm, output and loss are the head."""

KNOWN_NAMES = (
    "embedding (e.g. embed_tokens, wte), block (e.g. layer, layers.0, LlamaDecoderLayer, h), "
    "mtp (e.g. multi-token prediction), norm (e.g. ln_f), head (e.g. lm_head, output, logits) "
    "or loss (e.g. cross entropy)"
)
"""The names that `part_of` recognizes, in words for a message."""

RESIDENT = 3
"""How many stages of a device stay gathered at once in PyTorch 2.13, which has no setting for it."""

_EMBEDDING_WORDS = {"emb", "embed", "embedder", "embedding", "embeddings", "wpe", "wte"}
_HEAD_WORDS = {
    *("crossentropy", "entropy", "head", "layernorm", "lmhead", "ln", "lnf", "logit", "logits", "loss"),
    *("norm", "out", "output", "outputs", "rmsnorm", "un", "unembed", "unembedding"),
}
_MTP_PAIRS = {("token", "prediction"), ("token", "predictor")}
_LAYER_WORDS = {"layer", "layers"}
_BLOCK_WORDS = {"blk", "block", "blocks"}
_BLOCK_NAMES = {"h", "mixture", "moe", "transformer"}
"""Names of a block where they are the whole name."""
_INNER_WORDS = {
    *("attention", "attn", "dropout", "expert", "experts", "feedforward", "ffn", "mlp", "multihead"),
    *("rope", "rotary", "router", "softmax"),
}
"""Words for something inside a block, of which a block may have several."""
_INNER_PAIRS = {("feed", "forward"), ("multi", "head")}
_UNCLEAR_WORDS = {
    *("classification", "classifier", "final", "input", "linear", "pooler", "pooling", "proj", "projection"),
    *("vocab", "vocabulary"),
}
"""Words with which a "layer" may be something else than a block."""

_ARGUMENTS = re.compile(r"(?<=\w)\(.*", re.DOTALL)
_PRINTED = re.compile(r"\(?([^():]*)\)?:(.*)", re.DOTALL)
_INDEX = re.compile(r"\d+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def part_of(name: str, kind: str | None = None) -> str | None:
    """Return the letter of the part of a model that a layer is, or None if its name is not recognized.

    A `kind` decides alone. Without one, the name is read as a person writes it (``lm_head``, ``Head with
    loss``), as a class (``LlamaDecoderLayer``, ``RMSNorm()``), as a path of modules (``model.layers.0``) or
    as PyTorch prints a module (``(0): TransformerBlock(``). Words end at capitals and at everything that is
    no letter.
    """
    if kind is not None:
        return KINDS[kind]
    text = _ARGUMENTS.sub("", name.strip())
    printed = _PRINTED.fullmatch(text)
    if printed is None:
        return _of_path(text)
    if any(_is_inner(_words(side)) for side in printed.groups()):
        return None
    found = {_of_path(side) for side in printed.groups()} - {None}
    return found.pop() if len(found) == 1 else None


def _of_path(path: str) -> str | None:
    """Return the part that the last module of a path is, unless the modules around it contradict.

    What is inside a block is no block: ``layers.0.norm`` is not recognized, but ``decoder.norm`` is.
    """
    names = [name.strip() for name in re.split(r"[./]", path)]
    while len(names) > 1 and _INDEX.fullmatch(names[-1]):
        names.pop()
    *outer, last = names
    around = {_of_name(name) for name in outer if name.lower() != "transformer"} - {None}
    part = _of_name(last)
    if around == {MTP} and part == BLOCK:
        return MTP
    return None if BLOCK in around or around - {part} else part


def _of_name(name: str) -> str | None:
    words = _words(name)
    if "".join(words[-1:]) in _BLOCK_NAMES and len(re.findall("[A-Za-z]+", name)) == 1:
        return BLOCK
    known, pairs = set(words), set(pairwise(words))
    outside = EMBEDDING * bool(known & _EMBEDDING_WORDS) + HEAD * bool(known & _HEAD_WORDS)
    if _is_inner(words) or len(outside) > 1:
        return None
    if "mtp" in known or pairs & _MTP_PAIRS:
        return None if outside else MTP
    if outside:  # an "output layer" is a head, but a "pre-norm block" is none
        return None if known & _BLOCK_WORDS or _is_decoder_layer(known) else outside
    if known & _BLOCK_WORDS or (known & _LAYER_WORDS and not known & _UNCLEAR_WORDS):
        return BLOCK
    return None


def _words(name: str) -> list[str]:
    """Return the words of a name in lower case; after the words that capitals divide comes the whole: moe."""
    words = []
    for run in re.findall("[A-Za-z]+", name):
        parts = [part.lower() for part in _CAMEL.findall(run)]
        words += parts if len(parts) == 1 else [*parts, run.lower()]
    return words


def _is_inner(words: Sequence[str]) -> bool:
    return bool(_INNER_WORDS & set(words) or _INNER_PAIRS & set(pairwise(words)))


def _is_decoder_layer(words: set[str]) -> bool:
    return bool(words & _LAYER_WORDS and words & {"decoder", "encoder", "transformer"})


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
    """Which parts of a model each stage has, which device runs the stage, and what is recomputed."""

    devices: tuple[int, ...]  #: for each stage the device that runs it
    #: for each stage the letters of its parts in sequence, e.g. ``Ettt``. The first stage begins with the
    #: embedding. The last stage ends with the head, which stands for the final norm, the output projection
    #: and the loss.
    parts: tuple[str, ...]
    #: for each stage the indices of the recomputed parts among its parts, ascending, each with the kind
    recomputed: tuple[tuple[tuple[int, str], ...], ...]
    #: number of microbatches that a pipeline takes in one step; None if a file does not say it
    microbatches: int | None
    #: number of microbatches that run on one stage of a device before the next one has its turn; None for the
    #: smallest number that a framework takes. Like the next entry it says how Megatron-LM is to run the
    #: split, and is no part of it.
    group: int | None = field(default=None, compare=False)
    #: whether the plan's schedule is combined 1F1B, with an F beside a BW
    combined: bool = field(default=False, compare=False)
    #: number of pipelines that share the parameters of a stage and gather them; None if each has all of them
    shards: int | None = None
    #: how many stages of a device stay gathered at once in the plan; no part of the split
    resident: int = field(default=RESIDENT, compare=False)

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

        Raise an InputError if it is not known; the message gives the `reason` why it is needed.
        """
        if self.microbatches is None:
            raise InputError(f"must be known: {reason}", key="microbatches", value=None)
        return self.microbatches


def split_model(
    names: Sequence[str],
    cuts: Sequence[int],
    recomputed: Sequence[Sequence[tuple[int, str]]],
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
        For each stage the indices of its recomputed layers, counted over the whole model, each with the kind.
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
        stage = _stage(names, letters, range(first, end), dict(again))
        parts.append("".join(letter for letter, _ in stage))
        inside.append([(i, kind) for i, (_, kind) in enumerate(stage) if kind is not None])
    if not letters.startswith(EMBEDDING):
        parts[0] = EMBEDDING + parts[0]
        inside[0] = [(index + 1, kind) for index, kind in inside[0]]
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


def _stage(
    names: Sequence[str], letters: str, layers: range, recomputed: dict[int, str]
) -> list[tuple[str, str | None]]:
    """Return the letter of each part of a stage with these layers, and the kind in which it is recomputed."""
    stage: list[tuple[str, str | None]] = []
    for letter, members in groupby(layers, key=letters.__getitem__):
        group = list(members)
        if letter not in (EMBEDDING, HEAD):
            stage += [(letter, recomputed.get(layer)) for layer in group]
            continue
        _check_together(names, letters, group, recomputed)
        stage.append((letter, recomputed.get(group[0])))
    return stage


def _check_together(names: Sequence[str], letters: str, group: list[int], recomputed: dict[int, str]) -> None:
    """Raise an InputError unless the layers of an embedding or a head are together on one stage."""
    everywhere = [i for i, letter in enumerate(letters) if letter == letters[group[0]]]
    shown = [names[i] for i in everywhere]
    if group != everywhere:
        rule = "frameworks have them on one stage, but the plan has a cut between them; make them one layer"
        raise InputError(rule, key="layers", value=shown)
    if len({recomputed.get(layer) for layer in group}) > 1:
        rule = "frameworks recompute all of them or none, but the plan not alike; make them one layer"
        raise InputError(rule, key="layers", value=shown)
