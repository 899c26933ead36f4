"""Compressed attention: one key and value head, long past compressed (DeepSeek-V4)."""

from __future__ import annotations

from typing import Literal

from planner.schema.document import Part, PositiveCount


class KeyIndex(Part):
    """A small attention that picks `entries_per_token` compressed keys for each token."""

    head_count: PositiveCount
    head_size: PositiveCount
    entries_per_token: PositiveCount


class KeyCompression(Part):
    """One compressed key, which is its value as well, for every `tokens` tokens.

    It is a weighed sum, whose weights a second projection and a table of positions give. Where
    windows `overlap`, tokens have two rows, of which the next window reads the second.
    """

    tokens: PositiveCount
    overlap: bool = False
    index: KeyIndex | None = None


class CompressedAttention(Part):
    """Attention to the last tokens and to compressed ones before, by one head of keys.

    Queries come through `query_rank`; each of `output_group_count` groups of heads is projected to
    `output_rank`, and all of these to the row. Keys are values, and are normed; each head has a
    learned sink.
    """

    kind: Literal["compressed"] = "compressed"
    head_count: PositiveCount
    head_size: PositiveCount
    query_rank: PositiveCount
    output_group_count: PositiveCount
    output_rank: PositiveCount
    sliding_window_tokens: PositiveCount
    compression: KeyCompression | None = None
