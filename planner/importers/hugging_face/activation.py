"""Activations of transformers' models that are operations of their own and not one kernel.

`gelu_new` is, and so is what gated feed-forwards of T5's line call gelu. Which activation a
configuration has that names none is its class's default.

Source: transformers 5.23 `activations.py` (`NewGELUActivation`), `configuration_<type>.py`,
`models/t5/configuration_t5.py` (`dense_act_fn`), `models/openai/modeling_openai.py` (`ACT_FNS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.schema.model import Activation, Block, DenseFeedForward, ModelGraph

_FIELDS = ("activation_function", "hidden_act", "feed_forward_proj", "afn")
_WRITTEN_OUT = frozenset({"gelu_new", "gated-gelu"})
_BY_TYPE = {
    "big_bird": "gelu_new",
    "codegen": "gelu_new",
    "gpt2": "gelu_new",
    "gpt_neo": "gelu_new",
    "gptj": "gelu_new",
    "mt5": "gated-gelu",
    "phi": "gelu_new",
    "umt5": "gated-gelu",
}


def with_activation(graph: ModelGraph, config: Mapping[str, Any]) -> ModelGraph:
    """Return the graph of `config` with activations in steps where its class writes them out.

    Towers and what is behind them have configurations of their own, and are left as they are.
    """
    if graph.towers() or not _is_written_out(config):
        return graph
    return activated_by(graph, Activation.GELU_STEPS)


def activated_by(graph: ModelGraph, activation: Activation) -> ModelGraph:
    """Return the graph with the activation in all dense feed-forwards."""
    runs = tuple(
        run.model_copy(update={"block": _activated_by(run.block, activation)}) for run in graph.runs
    )
    return graph.model_copy(update={"runs": runs})


def _activated_by(block: Block, activation: Activation) -> Block:
    own = block.feed_forward
    if not isinstance(own, DenseFeedForward):
        return block
    changed = own.model_copy(update={"activation": activation})
    return block.model_copy(update={"feed_forward": changed})


def _is_written_out(config: Mapping[str, Any]) -> bool:
    model_type = config.get("model_type")
    named = next((config[field] for field in _FIELDS if config.get(field)), None)
    if model_type == "openai-gpt":  # whose gelu is that of gelu_new
        return named in {None, "gelu"}
    return (_BY_TYPE.get(str(model_type)) if named is None else named) in _WRITTEN_OUT
