"""Precision: what is lost where a target's own configuration has no float8, or leaves it open."""

from __future__ import annotations

from planner.exporters.draft import Draft
from planner.schema.job import Precision


def without_float8(draft: Draft, configuration: str) -> Draft:
    """Return the draft, with float8 products as bf16 ones and the loss stated."""
    if draft.plan.job.resolved.precision is not Precision.FP8:
        return draft
    return draft.losing(
        f"{configuration} has no float8: it says bf16, whose products take longer and whose "
        "activations take more; convert the layers in your program"
    )


def with_the_recipes_precision(draft: Draft) -> Draft:
    """Return the draft, with the recipe's bf16 in place of another precision, stated."""
    precision = draft.plan.job.resolved.precision
    if precision is Precision.BF16:
        return draft
    return draft.losing(
        f"no override says {precision.value}: the recipe's own mixed_precision holds, which is bf16"
        " in most; set it in the recipe"
    )
