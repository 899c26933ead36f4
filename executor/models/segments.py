"""Segments: which keys a query sees beside being before it, as one number for each token, [B, S].

    query i sees key j  <=>  segment_j = max(segment_i, 0)

A token that an attention mask leaves out is in segment -1, all others in 0. Documents that are
packed into one row are segments 0, 1, 2 and so on. Numbers take no memory beside a mask's, S x S,
and can be split among ranks that share a sequence.

Source: `find_packed_sequence_indices` and `create_causal_mask` in transformers/masking_utils.py.
"""

from __future__ import annotations

import torch

from executor.models.positions import SequencePart


def of_mask(mask: torch.Tensor) -> torch.Tensor | None:
    """Return the segments of an attention mask [B, S], `None` where it leaves nothing out."""
    return _unless_alike((mask != 0).long() - 1)


def of_positions(positions: torch.Tensor) -> torch.Tensor | None:
    """Return the segments of positions [B, S] that restart with each document, `None` for one."""
    steps = torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1)
    return _unless_alike((steps != 1).cumsum(-1))


def visible(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return which keys, of segments [B, T], queries of segments [B, S] may see, [B, 1, S, T]."""
    same: torch.Tensor = keys[:, None, None, :] == queries.clamp(min=0)[:, None, :, None]
    return same


def causal_mask(segments: torch.Tensor | None, part: SequencePart) -> torch.Tensor | None:
    """Return what torch's attention is to mask, `None` where causal attention is enough.

    It is the keys that each query sees, [B, 1, S, S]. Where ranks share sequences it is the
    segments of whole ones, [B, S], of which attention over the ranks makes a mask.
    """
    if segments is None or part.count > 1:
        return segments
    before = torch.ones(segments.shape[1:] * 2, dtype=torch.bool, device=segments.device).tril()
    return visible(segments, segments) & before


def _unless_alike(segments: torch.Tensor) -> torch.Tensor | None:
    """Return the segments, `None` where all tokens are in the first: causal attention is enough."""
    return segments if bool((segments != 0).any()) else None
