"""What a layer is to a framework: by its kind, else by a name that says it, and never by a guess."""

from __future__ import annotations

import pytest

from tightpipe.export.model_split import KINDS, KNOWN_NAMES, part_of

EMBEDDINGS = [
    *("embedding", "tok_embeddings", "embed_tokens", "Embedding 2", "wte", "wpe", "WTE", "embedding_layer"),
    *("VocabParallelEmbedding", "LanguageModelEmbedding", "tokEmbeddings", "EmbeddingLayer()", "tok_emb"),
    *("(embed_tokens): Embedding(32000, 4096)", "Embedding(32000, 4096)", "GPTEmbedding("),
    *("model.embed_tokens", "transformer.wte", "embedding.word_embeddings", "(word_embeddings): Something()"),
]
BLOCKS = [
    *("block", "layer", "layer12", "block-1024", "LAYER", "h", "h0", "h 3", "mixture", "moe", "MoE"),
    *("transformer", "MoE block", "Transformer block, dense", "decoder layer"),
    *("TransformerBlock", "TransformerLayer()", "LlamaDecoderLayer", "Qwen2MoeDecoderLayer", "T5Block"),
    *("MoELayer", "BertLayer", "GPT2Block", "NemotronHBlock", "DecoderLayer 7"),
    *("(0): LlamaDecoderLayer", "(0): LlamaDecoderLayer(", "(0-31): 32 x LlamaDecoderLayer("),
    *("(layers.0): LlamaDecoderLayer", "layers.0: LlamaDecoderLayer", "(decoder): TransformerBlock"),
    *("layers.3", "model.layers.0", "h.0", "transformer.h.11", "blk.3", "blocks.7", "encoder.layer.3"),
    *("decoder.layers.7", "module.module.decoder.layers.3", "layers/4", "model.layers[3]"),
]
MTPS = [
    *("mtp", "mtp_block", "multi-token prediction", "MultiTokenPredictionLayer", "MTPBlock", "mtp.0"),
    *("model.mtp.0", "mtp.layers.0", "DeepseekV3MTPLayer"),
]
HEADS = [
    *("head", "lm_head", "Head with loss", "Head (with loss)", "output", "output projection", "output_layer"),
    *("LMHead", "lmHead", "LMHead()", "ParallelLMHead", "OutputLayer", "logits", "unembedding"),
    *("(lm_head): Linear(in_features=4096, out_features=32000, bias=False)", "(output): Linear"),
    *("norm", "final norm", "ln_f", "LnF", "norm_f", "layer norm", "RMSNorm", "LayerNorm()", "TELayerNorm"),
    *("LlamaRMSNorm((4096,), eps=1e-05)", "(norm): RMSNorm()", "transformer.ln_f", "model.norm"),
    *("decoder.final_layernorm", "loss", "CrossEntropyLoss()", "cross_entropy"),
]
UNKNOWN = [
    *("", "3", "(0)", "x", "foo", "stem", "body", "adapter", "Identity()", "vision_encoder", "decoder", "塊"),
    *("attention", "mlp", "multi-head attention", "MultiHeadAttention", "SelfAttention", "attention block"),
    *("FeedForward", "feed forward layer", "FeedForwardBlock", "dropout", "(layer): Dropout(p=0.1)"),
    *("(self_attn): LlamaAttention", "block: attention", "rotary_emb", "linear layer", "Linear(3, 4)"),
    *("model.layers.0.self_attn", "model.layers.0.input_layernorm", "h.0.ln_1", "layers.0.norm"),
    *("layers.0.foo", "transformer.drop", "(mlp): MLP(", "mtp.layers.0.enorm"),
    *("embedding_norm", "embed_out", "output embedding", "PreNormBlock", "PreNormTransformerLayer"),
    *("MTP head", "mtp norm", "final layer", "input_layer", "classification layer"),
]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (name, part)
        for part, names in (("E", EMBEDDINGS), ("t", BLOCKS), ("m", MTPS), ("L", HEADS), (None, UNKNOWN))
        for name in names
    ],
)
def test_the_part_of_a_layer_is_told_by_its_name_or_not_at_all(name: str, part: str | None) -> None:
    assert part_of(name) == part


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_decides_whatever_the_name_is(kind: str) -> None:
    parts = {"embedding": "E", "block": "t", "mtp": "m", "norm": "L", "head": "L", "loss": "L"}
    for name in ("foo", "attention", "embedding", "lm_head", "block"):
        assert part_of(name, kind) == parts[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_name_of_every_kind_is_known_and_told(kind: str) -> None:
    assert part_of(kind) == KINDS[kind]
    assert f"{kind} (e.g. " in KNOWN_NAMES


def test_a_name_is_read_alike_in_any_case_and_with_any_separator() -> None:
    for name, part in (("decoder layer", "t"), ("final norm", "L"), ("token embedding", "E")):
        first, second = name.split()
        for join in (" ", "_", "-", ""):
            assert part_of(f"{first.capitalize()}{join}{second.capitalize()}") == part
            if join:
                assert part_of(f"{first}{join}{second}") == part_of(f"{first}{join}{second}".upper()) == part
