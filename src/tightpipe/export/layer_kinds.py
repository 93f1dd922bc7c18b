"""What a layer of a model is to a training framework, which its `kind` says, or else its name.

A wrong guess would write a wrong layout without a word. So a name is recognized only if everything in it
agrees, and for every other name the user has to give the kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

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
    """Return the part that the name of one module says it is."""
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
