"""Hugging Face decoders: the same weights and names, as a chain that the pipeline can split.

transformers' own forward needs all parts of a model and prepares caches that training does not
use. The chain calls the same layers, with rotary angles and, where a window is shorter than the
sequence, a mask. transformers is not imported: the model itself brings its classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from executor.errors import ModelMismatchError
from executor.models.declaration import ModelDeclaration, Shapes
from executor.models.experts import RoutedExperts
from executor.models.file_names import ExpertNames, FileNames
from executor.models.gpt2 import gpt2_chain
from executor.models.hugging_face_config import check_trainable, initial_value_of
from executor.models.huggingface_inputs import hugging_face_inputs
from executor.models.positions import WHOLE_SEQUENCE, SequencePart
from executor.models.segments import causal_mask
from executor.models.transformers_plan import read_plan

_PACKAGE = "transformers.models."
_ROTARY = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
    }
)
_GPT2 = "GPT2LMHeadModel"
# Source: transformers 5.23, `conversion_mapping.py`.
_EXPERT_NAMES = {
    "MixtralForCausalLM": ExpertNames(mixture="block_sparse_moe", gate="w1", up="w3", down="w2"),
    "Qwen3MoeForCausalLM": ExpertNames(
        mixture="mlp", gate="gate_proj", up="up_proj", down="down_proj"
    ),
}
HUGGING_FACE_CLASSES = tuple(sorted({*_ROTARY, _GPT2}))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class RotaryBackbone(nn.Module):
    """The parts of the base model, under their names there."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embed_tokens = model.embed_tokens
        self.layers = nn.ModuleDict({str(i): layer for i, layer in enumerate(model.layers)})
        self.norm = model.norm
        self.rotary_emb = model.rotary_emb


class RotaryChain(nn.Module):
    """Tokens [B, S] to logits [B, S, V], or what is left of it after a pipeline split."""

    def __init__(self, causal_model: Any) -> None:
        super().__init__()
        self.model = RotaryBackbone(causal_model.model)
        self.lm_head = causal_model.lm_head
        self.sequence_parts = 1
        self.sequence_part = WHOLE_SEQUENCE
        self.windows = [
            _window(causal_model.config, index) for index in range(len(self.model.layers))
        ]

    def forward(
        self,
        tokens_or_hidden: torch.Tensor,
        segments: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return logits on the last stage, hidden states on the others."""
        hidden = tokens_or_hidden
        if self.model.embed_tokens is not None:
            hidden = self.model.embed_tokens(hidden)
        length = hidden.shape[1] * self.sequence_parts
        places = self.sequence_part.positions(length, hidden.device)
        positions = places.unsqueeze(0) if position_ids is None else position_ids
        angles = self.model.rotary_emb(hidden, position_ids=positions)
        shared = causal_mask(segments, self.sequence_part)
        for name, layer in self.model.layers.items():
            mask = self._mask(self.windows[int(name)], places, shared)
            hidden = layer(hidden, attention_mask=mask, position_embeddings=angles)
        if self.lm_head is not None:
            hidden = self.lm_head(self.model.norm(hidden))
        return hidden

    def _mask(
        self, window: int | None, places: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor | None:
        """Return which keys a query sees by `mask` and window, [B, 1, S, S], `None` where all."""
        if window is None or len(places) * self.sequence_part.count <= window:
            return mask
        distance = places.unsqueeze(1) - places.unsqueeze(0)
        near = ((distance >= 0) & (distance < window))[None, None]
        return near if mask is None or self.sequence_part.count > 1 else near & mask


def is_hugging_face(model: nn.Module) -> bool:
    """Return whether `model` is one of transformers' classes that become a chain."""
    kind = type(model)
    return kind.__module__.startswith(_PACKAGE) and kind.__name__ in HUGGING_FACE_CLASSES


def hugging_face_chain(causal_model: Any) -> tuple[nn.Module, ModelDeclaration]:
    """Return the model's chain and how it shards.

    Raises:
        UnsupportedPlanError: if its configuration asks for what no chain does.
        ModelMismatchError: if a script has changed what the chain does not take over.
    """
    check_trainable(causal_model.config)
    make = gpt2_chain if type(causal_model).__name__ == _GPT2 else _rotary_chain
    chain, declaration = make(causal_model)
    prefix = causal_model.base_model_prefix
    for path in ("", prefix):
        _check_taken_over(causal_model.get_submodule(path), chain.get_submodule(path), path=path)
    return chain, declaration


def _rotary_chain(causal_model: Any) -> tuple[nn.Module, ModelDeclaration]:
    config = causal_model.config
    has_experts = _adopt_experts(causal_model)
    plan = read_plan(config.base_model_tp_plan or {}, has_experts=has_experts)
    declaration = ModelDeclaration(
        embedding="model.embed_tokens",
        blocks="model.layers",
        final_norm="model.norm",
        head="lm_head",
        tied_embeddings=bool(config.tie_word_embeddings),
        block=plan.block,
        shapes=_shapes(causal_model, has_experts=has_experts),
        block_count=config.num_hidden_layers,
        file_names=FileNames.of(causal_model, _EXPERT_NAMES.get(type(causal_model).__name__)),
        initial_value=initial_value_of(float(config.initializer_range)),
        tell_sequence_parts=_tell_sequence_parts,
        restore_buffers=_restore_rotary,
        tell_sequence_part=_tell_sequence_part,
        inputs=hugging_face_inputs(),
        tensor_parallel_obstacle=plan.obstacle,
    )
    return RotaryChain(causal_model), declaration


def _check_taken_over(given: nn.Module, taken: nn.Module, *, path: str) -> None:
    """Return if a script has added nothing to `given` that `taken`, in its place, has not.

    Raises:
        ModelMismatchError: if hooks, another forward, modules or tensors would be lost.
    """
    kept = {name for name, _ in taken.named_children()}
    added = [name for name, _ in given.named_children() if name not in kept]
    added += [name for name, _ in given.named_parameters(recurse=False)]
    added += [name for name, _ in given.named_buffers(recurse=False)]
    added += ["forward"] if "forward" in vars(given) else []
    added += ["a hook" for hooks in _HOOKS if getattr(given, hooks)][:1]
    if added:
        raise ModelMismatchError(
            f"has {added[0]}, which would be lost: the executor calls the parts of a "
            f"{type(given).__name__} itself",
            field="build_model",
            value=f"{added[0]} of {path}" if path else added[0],
            remedy="change its layers, embedding, norm or head, or return a module of your own "
            "around the model",
        )


def _adopt_experts(causal_model: Any) -> bool:
    """Let the executor's experts hold the weights of transformers', and return if there are any.

    Both name them alike; the executor has gate and up as two matrices of each expert, [E, 2, F, D],
    where transformers has them as one, [E, 2 F, D]: tensor parallelism has to split both.
    """
    found = False
    for layer in causal_model.model.layers:
        experts = getattr(layer.mlp, "experts", None)
        if experts is None:
            continue
        packed = experts.gate_up_proj
        count, _, hidden_size = packed.shape
        apart = packed.detach().view(count, 2, -1, hidden_size)
        layer.mlp.experts = RoutedExperts(
            nn.Parameter(apart, requires_grad=packed.requires_grad),
            experts.down_proj,
            activation=experts.act_fn,
        )
        found = True
    return found


def _shapes(causal_model: Any, *, has_experts: bool) -> Shapes:
    config = causal_model.config
    dense = [layer.mlp for layer in causal_model.model.layers if hasattr(layer.mlp, "gate_proj")]
    first = next(
        (layer.mlp.experts for layer in causal_model.model.layers if hasattr(layer.mlp, "experts")),
        None,
    )
    count, _, width, _ = first.gate_up_proj.shape if has_experts and first is not None else (0,) * 4
    return Shapes(
        hidden_size=config.hidden_size,
        vocabulary_size=config.vocab_size,
        head_count=config.num_attention_heads,
        key_value_head_count=config.num_key_value_heads,
        ffn_size=dense[0].gate_proj.out_features if dense else 0,
        expert_count=count,
        expert_ffn_size=width,
    )


def _window(config: Any, index: int) -> int | None:
    """Return how many keys to the left layer `index` sees, `None` for all."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and kinds[index] != "sliding_attention":
        return None
    window: int | None = getattr(config, "sliding_window", None)
    return window


def _tell_sequence_parts(chain: nn.Module, count: int) -> None:
    assert isinstance(chain, RotaryChain)  # noqa: S101
    chain.sequence_parts = count


def _tell_sequence_part(chain: nn.Module, part: SequencePart) -> None:
    assert isinstance(chain, RotaryChain)  # noqa: S101
    chain.sequence_part = part


def _restore_rotary(chain: nn.Module, device: torch.device) -> None:
    """Compute the rotary frequencies again: no checkpoint holds them."""
    assert isinstance(chain, RotaryChain)  # noqa: S101
    rotary: Any = chain.model.rotary_emb
    chain.model.rotary_emb = type(rotary)(rotary.config).to(device)
