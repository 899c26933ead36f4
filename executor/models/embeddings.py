"""Embeddings: settings of torch's whose effect depends on how a batch is shared out."""

from __future__ import annotations

from torch import nn

from executor.errors import UnsupportedPlanError

_PROBLEMS = {
    "sparse": "has sparse gradients, which ranks do not average",
    "scale_grad_by_freq": "counts the tokens of a micro-batch on a rank, and not of the batch",
    "max_norm": "shortens the rows that a rank reads, on that rank alone",
}


def check_embeddings(model: nn.Module) -> None:
    """Return if the embeddings of `model` are alike in every layout.

    Raises:
        UnsupportedPlanError: naming the first setting that stands in the way.
    """
    for path, module in model.named_modules():
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag):
            continue
        for setting, problem in _PROBLEMS.items():
            value = getattr(module, setting)
            if value:
                raise UnsupportedPlanError(
                    problem,
                    field=f"build_model {path}.{setting}",
                    value=value,
                    remedy=f"build the embedding without {setting}",
                )
