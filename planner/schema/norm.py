"""Norm: which normalisation, and where a block has it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from planner.schema.document import PositiveCount

TokenCount = Annotated[PositiveCount, Field(le=2**24)]


class Norm(StrEnum):
    """Which normalisation: `rms` has a weight, `layer` a weight and a bias.

    `rms_float32` is an rms whose weight multiplies before the row is narrowed from fp32 (Gemma,
    OLMo-2), so that backward keeps the wide row. `weightless` has neither weight nor bias (OLMo).
    """

    RMS = "rms"
    RMS_FLOAT32 = "rms_float32"
    LAYER = "layer"
    WEIGHTLESS = "weightless"


class NormPlacement(StrEnum):
    """Where a block norms: what attention and feed-forward read, what they write, or both.

    `before` is Llama, `after` OLMo-2, `both` Gemma-2. `shared`: attention and feed-forward read the
    row of one norm before them, side by side (GPT-J, Falcon, Phi-2, Command R).
    """

    BEFORE = "before"
    AFTER = "after"
    BOTH = "both"
    SHARED = "shared"
