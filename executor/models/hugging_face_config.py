"""What of a Hugging Face configuration no layout can train, and how its parameters begin."""

from __future__ import annotations

from typing import Any

import torch

from executor.errors import UnsupportedPlanError
from executor.models.declaration import InitialValue

# Those of GPT-2 are no obstacle: no plan splits its heads over ranks.
_CHANCES = ("attention_dropout", "router_jitter_noise")


def check_trainable(config: Any) -> None:
    """Return if a model of `config` trains alike in every layout.

    Raises:
        UnsupportedPlanError: naming the field that stands in the way.
    """
    attention = config._attn_implementation  # noqa: SLF001 - transformers has no public name
    if attention != "sdpa":
        raise UnsupportedPlanError(
            "the executor needs torch's scaled dot product attention",
            field="config.attn_implementation",
            value=attention,
            remedy='build with a configuration of attn_implementation="sdpa"',
        )
    for name in _CHANCES:
        chance = getattr(config, name, None)
        if chance:
            raise UnsupportedPlanError(
                "what is drawn for heads and routers would be alike on ranks that share a layer",
                field=f"config.{name}",
                value=chance,
                remedy=f"build with {name}=0.0",
            )
    if getattr(config, "output_router_logits", False):
        raise UnsupportedPlanError(
            "the load-balancing loss multiplies the experts' shares over all layers and the whole "
            "batch, which no stage and no micro-batch knows before its backward",
            field="config.output_router_logits",
            value=True,
            remedy="build with output_router_logits=False",
        )


def initial_value_of(
    standard_deviation: float, residual_deviation: float | None = None
) -> InitialValue:
    """Return how parameters begin: ones for norms, zeros for biases, else normal.

    Matrices that add to the residual stream have a deviation of their own in GPT-2.
    """

    def initial_value(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
        if name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight")):
            return torch.ones(shape)
        if name.endswith("bias"):
            return torch.zeros(shape)
        deviation = standard_deviation
        if residual_deviation is not None and name.endswith("c_proj.weight"):
            deviation = residual_deviation
        return torch.empty(shape).normal_(std=deviation, generator=generator)

    return initial_value
