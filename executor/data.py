"""Data: global batches, this rank's rows of them, and the shipped corpus.

Every rank reads the same global batches and keeps its own rows, so that a run sees the same
sequences whatever its layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import resources

import torch

from executor.errors import ModelMismatchError

Batch = tuple[torch.Tensor, torch.Tensor]
BYTE_VALUES = 256


def shard(
    loader: Iterable[Batch],
    *,
    global_batch_size: int,
    data_degree: int,
    data_index: int,
    device: torch.device,
) -> Iterator[Batch]:
    """Yield rows `data_index` of `data_degree` of each global batch, on `device`.

    Raises:
        ModelMismatchError: if a batch has not the planned number of sequences.
    """
    rows = global_batch_size // data_degree
    first = data_index * rows
    for inputs, targets in loader:
        if inputs.shape[0] != global_batch_size:
            raise ModelMismatchError(
                f"the plan has a global batch of {global_batch_size} sequences",
                field="loader",
                value=f"{inputs.shape[0]} sequences",
                remedy="yield whole global batches, the same on every rank",
            )
        yield (
            inputs[first : first + rows].to(device),
            targets[first : first + rows].to(device),
        )


def corpus_tokens() -> torch.Tensor:
    """Return the shipped corpus, one token a byte."""
    content = resources.files("executor.corpus").joinpath("shakespeare.txt").read_bytes()
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).long()


def corpus_batches(
    *, global_batch_size: int, sequence_length: int, seed: int = 0
) -> Iterator[Batch]:
    """Yield windows of the corpus without end: tokens and the tokens that follow, each [B, S].

    Raises:
        ModelMismatchError: if the corpus is shorter than one sequence.
    """
    tokens = corpus_tokens()
    starts_count = len(tokens) - sequence_length
    if starts_count <= 0:
        raise ModelMismatchError(
            f"the shipped corpus has {len(tokens)} tokens",
            field="job.sequence_length",
            value=sequence_length,
            remedy="plan a shorter sequence, or train on your own data with a script",
        )
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.arange(sequence_length + 1)
    while True:
        starts = torch.randint(starts_count, (global_batch_size, 1), generator=generator)
        windows = tokens[starts + offsets]
        yield windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
