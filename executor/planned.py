"""Planned: whether the model that was built, and the batches that come, are those of the plan."""

from __future__ import annotations

from executor.data import Batch
from executor.errors import ModelMismatchError
from executor.models.declaration import ModelDeclaration
from planner.schema.model import ModelGraph


def check_planned(declaration: ModelDeclaration, graph: ModelGraph) -> None:
    """Return if the declared model has the sizes of the planned one, as far as both are known.

    Raises:
        ModelMismatchError: naming the first size that differs.
    """
    if declaration.is_whole or graph.is_measured:
        return
    built, planned = declaration.shapes, graph
    sizes = {
        "hidden_size": (built.hidden_size, planned.hidden_size),
        "vocabulary_size": (built.vocabulary_size, planned.vocabulary_size),
    }
    for name, (found, expected) in sizes.items():
        known = found > 1  # a declaration that does not say has 1
        if known and found != expected:
            raise ModelMismatchError(
                f"the plan is for {graph.name}, whose {name} is {expected}",
                field=f"build_model {name}",
                value=found,
                remedy="build the model that was planned, or plan for this one",
            )


def planned_batch(batch: Batch, *, sequence_length: int | None) -> Batch:
    """Return `batch` if its tokens [B, S] have the planned sequence length.

    What is not rows of whole numbers is no text, and its shape is the script's business.

    Raises:
        ModelMismatchError: if they have another.
    """
    inputs, _ = batch
    is_text = inputs.dim() == 2 and not inputs.is_floating_point()
    if is_text and sequence_length is not None and inputs.shape[1] != sequence_length:
        raise ModelMismatchError(
            f"the plan has sequences of {sequence_length} tokens",
            field="loader",
            value=f"{inputs.shape[1]} tokens",
            remedy="yield sequences of the planned length, or plan for this one",
        )
    return batch
