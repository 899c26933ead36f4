"""Model fields: which models a target's program trains, and what it does of all others.

An exported file seldom names the model: its program brings one, or whoever completes the file. What
a graph has that the program does not is refused where the program takes no other model, and told
where it does. `planner.space.frameworks` goes by the same, so that what is planned for a framework
can be exported to it.

Sources, beside those of `planner.exporters.strategy_fields`:

- torchtitan 0.3.0 and 0.2.2: `models/`, `models/common/decoder.py` (`update_from_config`),
  `models/gpt_oss/model/args.py`.
- Megatron-LM 0.19.2: its scripts `pretrain_*.py`; TransformerEngine,
  `attention/dot_product_attention/context_parallel.py` (`attn_forward_func_with_cp`); its ring
  takes latent attention, whose keys and values differ in size (`enable_mla` there).
- Accelerate 1.15.0: `big_modeling.py` (`_attach_context_parallel_hooks`).
- Axolotl 0.18: `loaders/model.py`, `utils/schemas/validation.py`; LLaMA-Factory 0.9.6:
  `model/loader.py`; verl 0.7: `utils/model.py` (`get_hf_auto_model_class`); NeMo-RL of August 2026:
  `models/automodel/setup.py`, `models/megatron/setup.py`.
- nanotron of April 2026: `trainer.py` (`CONFIG_TO_MODEL_CLASS`); MaxText of August 2026:
  `common/common_types.py` (`DecoderBlockType`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.errors import InputError
from planner.schema.model import GroupedQueryAttention, LatentAttention, ModelGraph
from planner.schema.model_kind import ModelKind, model_kind, scores_sequences, sees_ahead
from planner.schema.strategy import ContextParallelKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a program trains: its name, which kinds, and whether a tower may stand before them.

    `architectures` are those of its own models, None where it takes all of transformers'. Another
    model is brought by `brought_by`, and by nothing where that is None. `scores`: a head of one
    column is written as that of a reward model.
    """

    program: str
    kinds: frozenset[ModelKind] = frozenset({ModelKind.DECODER})
    architectures: frozenset[str] | None = None
    brought_by: str | None = None
    scores: bool = False


_TITAN = frozenset(
    {"llama", "deepseek_v3", "gpt_oss", "qwen3", "qwen3_moe", "qwen3_5_text", "qwen3_5_moe_text"}
)
_TITAN_TOWERS = frozenset({"qwen3_5", "qwen3_5_moe", "kimi_k25"})
_TITAN_BEFORE = frozenset({"llama", "llama4_text", "deepseek_v3", "gpt_oss", "qwen3", "qwen3_moe"})
_MAXTEXT = frozenset(
    {
        *("llama", "llama4", "llama4_text", "mistral", "mixtral", "deepseek_v2", "deepseek_v3"),
        *("deepseek_v4", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text"),
        *("qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_vl"),
        *("gpt_oss", "olmo3"),
    }
)
_MEGATRON = Trained(
    program="Megatron-LM's pretrain_gpt.py", brought_by="PROGRAM, which the script starts,"
)
TRAINED: Mapping[str, Trained] = {
    "torchtitan": Trained(
        program="torchtitan",
        architectures=_TITAN | _TITAN_TOWERS,
        brought_by="BASE_CONFIG",
    ),
    "torchtitan-0.2": Trained(
        program="torchtitan up to 0.2.2", architectures=_TITAN_BEFORE, brought_by="model.name"
    ),
    "megatron-lm": _MEGATRON,
    "megatron-bridge": Trained(program="a recipe for GPT", brought_by="your recipe"),
    "nemo": Trained(program="a recipe for GPT", brought_by="your recipe"),
    "axolotl": Trained(program="Axolotl", scores=True),
    "axolotl-deepspeed": Trained(program="Axolotl", scores=True),
    "llama-factory": Trained(program="LLaMA-Factory"),
    "verl": Trained(program="verl's actor"),
    "verl-megatron": Trained(program="verl's actor"),
    "nemo-rl": Trained(program="NeMo-RL", scores=True),
    "nemo-rl-megatron": Trained(program="NeMo-RL on Megatron"),
    "nanotron": Trained(
        program="nanotron",
        architectures=frozenset({"llama", "qwen2", "starcoder2"}),
    ),
    "maxtext": Trained(program="MaxText", architectures=_MAXTEXT),
}
# Whose context-parallel ranks have the causal mask alone, and no rows of a tower.
_CAUSAL_ALONE = {
    "accelerate": "Accelerate's context parallelism",
    "hf-trainer": "Accelerate's context parallelism",
    "nemo-rl": "NeMo-RL's context parallelism",
}
_OF_MEGATRON_CORE = ("megatron-lm", "megatron-bridge", "nemo", "verl-megatron", "nemo-rl-megatron")
# Whose context-parallel ranks have no windows, beside the kinds of context parallelism that this
# holds for.
_WITHOUT_WINDOWS: Mapping[str, tuple[str, frozenset[ContextParallelKind]]] = {
    "torchtitan-0.2": ("torchtitan up to 0.2.2", frozenset(ContextParallelKind)),
    **{
        target: ("TransformerEngine's ring", frozenset({ContextParallelKind.RING}))
        for target in _OF_MEGATRON_CORE
    },
}
# What a program's own model has, and no file says: whoever completes the file brings the same one.
OF_THE_MODEL = frozenset(
    {
        *("schema_version", "assumptions", "maximum_sequence_length", "hidden_size"),
        *("learned_position_count", "final_norm", "head_bias", "final_logit_softcapping"),
        *("head_token_ratio", "embedding_size", "before_head", "measured_embedding"),
        *("measured_head", "tokens_per_sequence", "carried_width", "entry", "exit", "norm"),
        *("norm_placement", "residual_stream_count", "layer_input_size", "beside"),
        *("second_set_elements", "residual_mixing"),
    }
)
# What of a graph decides whether a target trains the model, and with which degrees.
OF_THE_TARGET = frozenset(
    {
        *("name", "architecture", "vocabulary_size", "tied_embeddings", "head_size"),
        *("part", "measured", "block_count"),
        *("attention", "cross_attention", "mixer", "feed_forward"),
    }
)
OWN_PROGRAMS = "accelerate, hf-trainer, deepspeed, lightning-trainer or torchrun"


def refuse_model(graph: ModelGraph, target: str) -> None:
    """Raise if the target's program trains no such model and takes none from elsewhere.

    verl's models on Megatron-Core are those of `models/mcore/registry.py`, no hybrid among them.

    Raises:
        InputError: naming the model, and what it is.
    """
    if target == "verl-megatron" and graph.is_hybrid:
        raise InputError(
            "is a hybrid, and verl has none on Megatron-Core",
            field="model",
            value=graph.name,
            remedy="export to verl, which takes those of transformers on FSDP",
        )
    trained = TRAINED.get(target)
    kind = model_kind(graph)
    if trained is None or trained.brought_by is not None or _is_of(trained, graph, kind):
        return
    if kind is ModelKind.TRACED:
        return
    raise InputError(
        f"is {_phrase(graph, kind)}, and {trained.program} trains decoders that predict tokens",
        field="model",
        value=graph.name,
        remedy=f"export to {OWN_PROGRAMS}, whose program is yours",
    )


def model_losses(graph: ModelGraph, target: str) -> tuple[str, ...]:
    """Return what the program has to bring of the model, in a sentence; nothing where it has it."""
    trained = TRAINED.get(target)
    said = None if trained is None else _brought(graph, trained)
    return () if said is None else (said,)


def _brought(graph: ModelGraph, trained: Trained) -> str | None:
    kind, own = model_kind(graph), trained.architectures
    if kind is ModelKind.TRACED:
        return (
            f"{graph.name} is a traced module, of which it is not known whether "
            f"{trained.program} trains it"
        )
    what = None
    if not _is_of(trained, graph, kind):
        what = f"{graph.name} is {_phrase(graph, kind)}"
    elif own is None and trained.brought_by is not None and graph.tower_block_count:
        what = f"a tower stands before {graph.name}'s decoder"
    if what is not None:
        brought = f"{trained.brought_by} has to bring what does"
        return f"{what}, which {trained.program} does not train: {brought}"
    if own is None or graph.architecture in own:
        return None
    return (
        f"{trained.program} has no model of architecture {graph.architecture} that is known of: "
        f"{trained.brought_by or 'its code'} has to bring one"
    )


def context_obstacle(graph: ModelGraph, target: str, kind: ContextParallelKind) -> str | None:
    """Return why context-parallel ranks of the program do not attend as the model does."""
    if target in _CAUSAL_ALONE:
        who = _CAUSAL_ALONE[target]
        if graph.tower_block_count:
            return f"{who} splits rows of tokens, and a tower's rows stand among {graph.name}'s"
        if any(sees_ahead(run.block) for run in graph.runs):
            return f"{who} has the causal mask alone, and tokens of {graph.name} see later ones"
        if _has_windows(graph):
            return f"{who} has the causal mask alone, and {graph.name} attends by windows"
    if target in _WITHOUT_WINDOWS:
        who, kinds = _WITHOUT_WINDOWS[target]
        if kind in kinds and _has_windows(graph):
            return f"{who} has no windows, by which {graph.name} attends"
    return None


def tensor_obstacle(graph: ModelGraph, target: str, degree: int) -> str | None:
    """Return why the program's tensor-parallel ranks are more than its key-value heads can be."""
    kinds = [run.block.attention for run in graph.runs if run.measured is None]
    heads = [kind.key_value_head_count for kind in kinds if isinstance(kind, GroupedQueryAttention)]
    fewest = min(heads, default=degree)
    if fewest >= degree or target in _OF_MEGATRON_CORE:
        return None
    return (
        f"{degree} tensor-parallel ranks share {graph.name}'s {fewest} key-value heads, which "
        "Megatron-Core's alone do"
    )


def _is_of(trained: Trained, graph: ModelGraph, kind: ModelKind) -> bool:
    return kind in trained.kinds or (trained.scores and scores_sequences(graph))


def _phrase(graph: ModelGraph, kind: ModelKind) -> str:
    if kind is ModelKind.CLASSIFIER:
        return f"{kind.value} of {graph.logit_count} columns"
    return kind.value


def _has_windows(graph: ModelGraph) -> bool:
    attentions = [run.block.attention for run in graph.runs if run.measured is None]
    return any(
        isinstance(one, GroupedQueryAttention | LatentAttention)
        and one.sliding_window_tokens is not None
        for one in attentions
    ) or any(
        isinstance(one, GroupedQueryAttention) and one.chunk_tokens is not None
        for one in attentions
    )
