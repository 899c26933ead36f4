"""Encoder-decoders of Hugging Face: t5 and its kin, and whisper.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23). The job's sequence_length counts the decoder's tokens.
"""

from __future__ import annotations

from itertools import groupby

from planner.errors import DocumentError
from planner.importers.fields import LAYER_LIMIT, POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import multi_head
from planner.schema.model import (
    Block,
    BlockRun,
    CrossAttention,
    DenseFeedForward,
    Entry,
    Exit,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
    Product,
    RunPart,
)

T5_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}
D_MODEL_ALIASES = {name: own for name, own in T5_ALIASES.items() if name != "head_dim"}
WHISPER_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
_KERNEL_WIDTH = 3  # of whisper's two convolutions, the second of stride 2
_CONVOLUTION_STRIDE = 2
AS_LONG = "the encoder was assumed to read as many tokens as the decoder, sequence_length"


def t5(fields: Fields, name: str) -> ModelGraph:
    """Return a t5, gated or not."""
    return _t5(fields, name, activation="relu")


def mt5(fields: Fields, name: str) -> ModelGraph:
    """Return an mt5, which is a gated t5 with a large vocabulary."""
    return _t5(fields, name, activation="gated-gelu")


def umt5(fields: Fields, name: str) -> ModelGraph:
    """Return a umt5, which is an mt5 whose blocks each have their own biases by position."""
    return _t5(fields, name, activation="gated-gelu", shared_tables=False)


def longt5(fields: Fields, name: str) -> ModelGraph:
    """Return a longt5: a t5 whose encoder sees blocks to either side, and may see sums of blocks.

    Sums are counted as parameters, and as no work; that is said.
    """
    graph = _t5(fields, name, activation="relu")
    run, decoder = graph.runs
    radius = fields.size("local_radius", 127, limit=POSITION_LIMIT)
    attention = run.block.attention.model_copy(update={"sliding_window_tokens": radius + 1})
    update: dict[str, object] = {"attention": attention}
    said = graph.assumptions
    entry = run.entry or Entry()
    if _sums_blocks(fields):
        heads = fields.size("num_heads")
        tables = heads * fields.size("relative_attention_num_buckets", 32)
        entry = entry.model_copy(update={"table_elements": entry.table_elements + tables})
        update["beside"] = Entry(norm=Norm.RMS, norm_widths=(graph.hidden_size,))
        said = (*said, "attention of the encoder to sums of blocks is left out")
    run = run.model_copy(update={"block": run.block.model_copy(update=update), "entry": entry})
    return graph.model_copy(update={"runs": (run, decoder), "assumptions": said})


def _sums_blocks(fields: Fields) -> bool:
    """Return whether the encoder of a longt5 sees sums of blocks.

    Raises:
        DocumentError: if its attention is of neither kind.
    """
    kind = fields.text("encoder_attention_type") or "local"
    if kind not in {"local", "transient-global"}:
        raise DocumentError(
            "is not a kind of attention that its class has",
            field=fields.spelling("encoder_attention_type"),
            value=kind[:40],
            remedy="write local or transient-global",
        )
    return kind != "local"


def pop2piano(fields: Fields, name: str) -> ModelGraph:
    """Return a pop2piano: a gated t5 with a table of composers, whose head is not tied."""
    filled = fields.filled({"d_ff": 2048}).replaced({"tie_word_embeddings": False})
    graph = _t5(filled, name, activation="gated-gelu")
    run, decoder = graph.runs
    entry = run.entry or Entry()
    composers = fields.size("composer_vocab_size", 21) * graph.hidden_size
    entry = entry.model_copy(update={"table_elements": entry.table_elements + composers})
    return graph.model_copy(update={"runs": (run.model_copy(update={"entry": entry}), decoder)})


def switch_transformers(fields: Fields, name: str) -> ModelGraph:
    """Return a switch_transformers: a t5 some of whose layers route each token to one expert."""
    graph = _t5(fields, name, activation="relu")
    count = fields.size("num_experts", 8)
    mixture = MixtureFeedForward(
        expert_count=count,
        experts_per_token=1,
        expert_ffn_size=fields.size("d_ff"),
        gated=False,
        router_bias=fields.flag("router_bias", False),
    )
    encoder, decoder = graph.runs
    runs = [
        *_routed(encoder, mixture, fields.size("num_sparse_encoder_layers", 3, minimum=0)),
        *_routed(decoder, mixture, fields.size("num_sparse_decoder_layers", 3, minimum=0)),
    ]
    return graph.model_copy(update={"runs": tuple(runs)})


def _routed(run: BlockRun, mixture: MixtureFeedForward, sparse: int) -> list[BlockRun]:
    """Return the run's blocks of which `sparse` route, the last of every so many."""
    step = max(run.block_count // sparse, 1) if sparse else run.block_count
    routes = [_routes(index, step, sparse) for index in range(run.block_count)]
    routed = run.block.model_copy(update={"feed_forward": mixture})
    runs = [
        run.model_copy(
            update={
                "block": routed if each else run.block,
                "block_count": len(list(same)),
                "entry": None,
                "exit": None,
            }
        )
        for each, same in groupby(routes)
    ]
    runs[0] = runs[0].model_copy(update={"entry": run.entry})
    runs[-1] = runs[-1].model_copy(update={"exit": run.exit})
    return runs


def _routes(index: int, step: int, sparse: int) -> bool:
    if not sparse:
        return False
    return index % step == 1 if step > 1 else True


def _t5(fields: Fields, name: str, *, activation: str, shared_tables: bool = True) -> ModelGraph:
    """Return an encoder-decoder with biases by relative position in place of positions.

    Each half has one table of them, or each block. The head shares the embedding unless
    `tie_word_embeddings` is false, as version 1.1 has it (transformers 5.23 ties them whatever the
    field says).
    Source: google-research/text-to-text-transfer-transformer, released_checkpoints.md.
    """
    hidden_size, heads = fields.size("d_model"), fields.size("num_heads")
    size = fields.size("d_kv", 64)
    attention = GroupedQueryAttention(
        head_count=heads, key_value_head_count=heads, head_size=size, rotary=False
    )
    feed_forward = DenseFeedForward(
        ffn_size=fields.size("d_ff"), gated=_is_gated(fields, activation)
    )
    table = Entry(table_elements=heads * fields.size("relative_attention_num_buckets", 32))
    own = None if shared_tables else table
    encoder = Block(
        attention=attention.model_copy(update={"causal": False}),
        feed_forward=feed_forward,
        beside=own,
    )
    cross = CrossAttention(
        head_count=heads, key_value_head_count=heads, head_size=size, source_width=hidden_size
    )
    decoder = Block(
        attention=attention, feed_forward=feed_forward, cross_attention=cross, beside=own
    )
    layers = fields.size("num_layers", limit=LAYER_LIMIT)
    return ModelGraph(
        name=name,
        architecture=fields.text("model_type") or "t5",
        hidden_size=hidden_size,
        vocabulary_size=fields.size("vocab_size"),
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        maximum_sequence_length=fields.size("n_positions", 512, limit=POSITION_LIMIT),
        runs=(
            BlockRun(
                block=encoder,
                block_count=layers,
                part=RunPart.ENCODER,
                entry=table if shared_tables else None,
                exit=Exit(norm=Norm.RMS, norm_widths=(hidden_size,)),
            ),
            BlockRun(
                block=decoder,
                block_count=fields.size("num_decoder_layers", layers, limit=LAYER_LIMIT),
                entry=table if shared_tables else None,
            ),
        ),
        assumptions=(AS_LONG,),
    )


def _is_gated(fields: Fields, default: str) -> bool:
    """Return whether `feed_forward_proj` names a gated activation.

    Raises:
        DocumentError: if it is neither `ACTIVATION` nor `gated-ACTIVATION`.
    """
    value = fields.text("feed_forward_proj") or default
    first, *rest = value.split("-")
    if len(rest) > 1 or (rest and first != "gated"):
        raise DocumentError(
            "is not a kind of feed-forward that can be read",
            field=fields.spelling("feed_forward_proj"),
            value=value,
            remedy="write an activation such as relu, or a gated one such as gated-gelu",
        )
    return bool(rest)


def whisper(fields: Fields, name: str) -> ModelGraph:
    """Return a whisper: two convolutions over the spectrum, then an encoder-decoder.

    Keys have no bias, all else has. Positions of both halves are tables.
    """
    hidden_size = fields.size("d_model")
    source_tokens = fields.size("max_source_positions", 1500, limit=POSITION_LIMIT)
    target_tokens = fields.size("max_target_positions", 448, limit=POSITION_LIMIT)
    attention = whisper_attention(fields, "encoder_attention_heads")
    encoder = Block(
        attention=attention.model_copy(update={"causal": False}),
        feed_forward=whisper_feed_forward(fields, "encoder_ffn_dim"),
        norm=Norm.LAYER,
    )
    own = whisper_attention(fields, "decoder_attention_heads")
    cross = CrossAttention(
        head_count=own.head_count,
        key_value_head_count=own.head_count,
        head_size=own.head_size,
        source_width=hidden_size,
        source_tokens_per_sequence=source_tokens,
        query_key_value_bias=True,
        key_bias=False,
        output_bias=True,
    )
    decoder = Block(
        attention=own,
        feed_forward=whisper_feed_forward(fields, "decoder_ffn_dim"),
        norm=Norm.LAYER,
        cross_attention=cross,
    )
    return ModelGraph(
        name=name,
        architecture="whisper",
        hidden_size=hidden_size,
        vocabulary_size=fields.size("vocab_size"),
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        learned_position_count=target_tokens,
        final_norm=Norm.LAYER,
        maximum_sequence_length=target_tokens,
        runs=(
            BlockRun(
                block=encoder,
                block_count=fields.size("encoder_layers", limit=LAYER_LIMIT),
                part=RunPart.ENCODER,
                tokens_per_sequence=source_tokens,
                entry=spectrum_entry(fields, hidden_size, source_tokens),
                exit=Exit(norm_widths=(hidden_size,)),
            ),
            BlockRun(block=decoder, block_count=fields.size("decoder_layers", limit=LAYER_LIMIT)),
        ),
        assumptions=(f"{source_tokens} encoder positions of audio a sequence were assumed",),
    )


def spectrum_entry(fields: Fields, hidden_size: int, tokens: int) -> Entry:
    """Return the convolutions over time: the first over frames, the second over every other."""
    bins = fields.size("num_mel_bins", 80)
    return Entry(
        products=(
            Product(
                inner_size=_KERNEL_WIDTH * bins,
                outer_size=hidden_size,
                bias=True,
                tokens_per_sequence=_CONVOLUTION_STRIDE * tokens,
            ),
            Product(inner_size=_KERNEL_WIDTH * hidden_size, outer_size=hidden_size, bias=True),
        ),
        table_elements=tokens * hidden_size,
    )


def whisper_attention(fields: Fields, heads: str) -> GroupedQueryAttention:
    """Return attention with biases but for keys."""
    return multi_head(fields, heads, "d_model").model_copy(
        update={
            "query_key_value_bias": True,
            "key_bias": False,
            "output_bias": True,
            "rotary": False,
        }
    )


def whisper_feed_forward(fields: Fields, name: str) -> DenseFeedForward:
    """Return a feed-forward with biases and without a gate."""
    return DenseFeedForward(ffn_size=fields.size(name), gated=False, bias=True)
