"""Documents: those that a collator has put one behind another into one row, by their lengths.

transformers' `DataCollatorWithFlattening` tells kernels for sequences of other lengths where each
document begins: `cu_seq_lens_q` and `cu_seq_lens_k` [documents + 1], `max_length_q` and
`max_length_k`, and `seq_idx` [1, S], the document of each token. Positions that restart say the
same of each token alone, so that ranks can split a row.

Source: transformers/data/data_collator.py and modeling_flash_attention_utils.py (5.23).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from executor.batch import GivenBatch
from executor.errors import ModelMismatchError

_BOUNDS = ("cu_seq_lens_q", "cu_seq_lens_k")
_LONGEST = ("max_length_q", "max_length_k")
_INDEX, _TOKENS, _MASK, _POSITIONS = "seq_idx", "input_ids", "attention_mask", "position_ids"


def with_positions(given: GivenBatch) -> GivenBatch:
    """Return a batch with positions in place of the documents' lengths, where it has these.

    Raises:
        ModelMismatchError: if lengths are not those of one row, or other fields contradict them.
    """
    if not isinstance(given, Mapping) or all(given.get(name) is None for name in _BOUNDS):
        return given
    held = {str(name): value for name, value in given.items() if value is not None}
    bounds = _bounds(held)
    lengths = torch.diff(bounds)
    places = torch.arange(int(bounds[-1]), device=bounds.device)
    positions = (places - bounds[:-1].repeat_interleave(lengths)).unsqueeze(0)
    longest = int(lengths.max())
    for name in _LONGEST:
        if int(held.get(name, longest)) < longest:
            raise _contradicted(name, held[name], f"has a document of {longest} tokens")
    index = held.get(_INDEX)
    if index is not None and not _begin_alike(index, 0, positions):
        raise _contradicted(_INDEX, "other documents", "has the documents of cu_seq_lens_q")
    known = held.get(_POSITIONS)
    if known is not None and not _begin_alike(known, 1, positions):
        raise _contradicted(_POSITIONS, "other documents", "restarts where cu_seq_lens_q says")
    if (mask := held.get(_MASK)) is not None and bool((mask == 0).any()):
        raise _contradicted(_MASK, "tokens that are left out", "has no padding between documents")
    told = {*_BOUNDS, *_LONGEST, _INDEX, _MASK}
    kept = {name: value for name, value in held.items() if name not in told}
    return {_POSITIONS: positions, **kept}


def _bounds(held: Mapping[str, Any]) -> torch.Tensor:
    """Return where each document begins, and the last one ends."""
    tokens = torch.as_tensor(held.get(_TOKENS, 0))
    count = tokens.numel()
    each = [held[name] for name in _BOUNDS if name in held]
    bounds = torch.as_tensor(each[0]).flatten().long()
    is_known = all(torch.equal(torch.as_tensor(item).flatten().long(), bounds) for item in each)
    is_row = tuple(tokens.shape) == (1, count)
    ends = (int(bounds[0]), int(bounds[-1])) if len(bounds) > 1 else (0, 0)
    if is_known and is_row and ends == (0, count) and bool((torch.diff(bounds) > 0).all()):
        return bounds.to(tokens.device)
    raise ModelMismatchError(
        f"are where the documents of one row of {count} tokens begin and end, alike for queries "
        "and keys",
        field="cu_seq_lens_q and cu_seq_lens_k",
        value=bounds.tolist(),
        remedy="yield one row a rank, as transformers' DataCollatorWithFlattening does, with "
        "micro_batch_size 1, or rows with position_ids that restart",
    )


def _begin_alike(numbers: Any, step: int, positions: torch.Tensor) -> bool:
    """Return whether `numbers` go up by `step`, but where a document begins."""
    if not isinstance(numbers, torch.Tensor) or tuple(numbers.shape) != tuple(positions.shape):
        return False
    goes_on = torch.diff(numbers.long(), dim=-1) == step
    return torch.equal(goes_on, (positions[:, 1:] != 0).to(goes_on.device))


def _contradicted(name: str, value: object, whole: str) -> ModelMismatchError:
    return ModelMismatchError(
        f"contradicts cu_seq_lens_q: the row {whole}",
        field=name,
        value=value,
        remedy=f"yield {name} as transformers' collator does, or leave it out",
    )
