"""Entry: products, norms and tables that stand beside or outside the parts of a block."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.schema.document import Count, Part, PositiveCount
from planner.schema.norm import Norm, TokenCount


class Product(Part):
    """A matrix product of its own, over `tokens_per_sequence` rows (`null`: the run's)."""

    inner_size: PositiveCount
    outer_size: PositiveCount
    bias: bool = False
    tokens_per_sequence: TokenCount | None = None


class Entry(Part):
    """What stands before a run's first block: patch embedding, norms, learned tables.

    `table_elements` counts learned positions, a class token, biases by relative position. A tower
    whose entry has products reads its own input (patches, audio); else it reads token embeddings.
    A block has one `beside` its parts, and a head one before it.
    """

    products: Annotated[tuple[Product, ...], Field(max_length=16)] = ()
    norm: Norm = Norm.LAYER
    norm_widths: Annotated[tuple[PositiveCount, ...], Field(max_length=16)] = ()
    table_elements: Count = 0


class Exit(Entry):
    """What stands after a tower's last block: its final norm, a projection to the decoder.

    `output_size` and `output_tokens_per_sequence` are what it puts out, `null` for what the run
    itself has.
    """

    output_size: PositiveCount | None = None
    output_tokens_per_sequence: TokenCount | None = None
