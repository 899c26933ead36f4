"""transformers' own tensor-parallel plan of a model, as the declaration of its blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from executor.models.declaration import BlockDeclaration

_BLOCKS = "layers.*."
NORMS = ("input_layernorm", "post_attention_layernorm")
GATHERED: dict[str, str | None] = {"self_attn": "hidden_states", "mlp": None}
ROUTER = "mlp.gate"
EXPERTS = "mlp.experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The declaration of a block, and what of the plan has no counterpart in it, if anything."""

    block: BlockDeclaration
    obstacle: str | None = None


def read_plan(plan: Mapping[str, str], *, has_experts: bool) -> ReadPlan:
    """Return what `base_model_tp_plan` says of the blocks.

    Routed experts are left out: where they lie is the strategy's to say.
    """
    by_style: dict[str, list[str]] = {}
    for path, style in plan.items():
        if path.startswith(_BLOCKS) and not path.startswith(_BLOCKS + EXPERTS):
            by_style.setdefault(style, []).append(path.removeprefix(_BLOCKS))
    block = BlockDeclaration(
        norms=NORMS,
        gathered=GATHERED,
        column=tuple(by_style.pop("colwise", ())),
        row=tuple(by_style.pop("rowwise", ())),
        head_norms=tuple(by_style.pop("replicated_with_grad_allreduce", ())),
        routers=(ROUTER,) if has_experts else (),
        experts=EXPERTS if has_experts else None,
    )
    unknown = [f"{paths[0]} {style}" for style, paths in by_style.items()]
    obstacle = f"transformers' plan has {unknown[0]}" if unknown else None
    return ReadPlan(block=block, obstacle=obstacle)
