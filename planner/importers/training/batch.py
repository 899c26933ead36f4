"""Batch: the sequences of a micro-batch and of a step, and their length, as a file says them."""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.training.config import Setting
from planner.importers.training.words import Words

_MICRO, _STEPS, _GLOBAL = "micro_batch", "accumulation", "global_batch"


def sequence_length_of(words: Words) -> int | None:
    """Return the length of sequences, None where the file does not say it."""
    parts = [words.optional_size(name) for name in ("prompt_length", "response_length")]
    if "sequence_length" not in words and any(parts):
        return sum(part for part in parts if part) if all(parts) else None
    return words.optional_size("sequence_length")


def batch_of(words: Words, setting: Setting, data: int) -> tuple[int, int]:
    """Return the sequences of a step and of a micro-batch over `data` data-parallel ranks.

    Raises:
        DocumentError: if the numbers do not go together, or none says them.
    """
    if setting.global_batch_size is not None:  # given beside the file, and holds over it
        given = setting.micro_batch_size or _micro_batch(words, setting, data)
        return setting.global_batch_size, given or 1
    steps = _steps(words)
    batch = words.optional_size(_GLOBAL)
    if batch is not None:
        batch *= words.size("samples_per_prompt", 1)
    stated = _micro_batch(words, setting, data)
    micro = setting.micro_batch_size or stated
    if micro is None and batch is not None and steps is not None:
        micro = _quotient(words, batch, steps * data)
    if micro is None:
        words.said.append(f"{words.place(_MICRO)} is not given: 1")
        micro = 1
    if batch is None:
        return micro * (steps or 1) * data, micro
    if batch % (micro * data):
        _quotient(words, batch, micro * data)
    if stated is not None and steps is not None and batch != stated * steps * data:
        raise DocumentError(
            f"is not {words.place(_MICRO)} {stated} x {words.place(_STEPS)} {steps} x {data} "
            f"data-parallel ranks = {stated * steps * data}",
            field=words.place(_GLOBAL),
            value=batch,
            remedy="correct one of them, or give the cluster that the file is for",
        )
    return batch, micro


def _steps(words: Words) -> int | None:
    """Return the micro-batches of a step, of those too that a pipeline divides each into."""
    steps, waves = words.optional_size(_STEPS), _pipeline_micro_batches(words)
    if waves == 1:
        return steps
    if (steps or 1) > 1:
        words.said.append(f"{words.place(_STEPS)} {steps}: the pipeline is priced as filled once")
    return (steps or 1) * waves


def _micro_batch(words: Words, setting: Setting, data: int) -> int | None:
    """Return the micro-batch as it stands, over all ranks, for each device, or in tokens."""
    pipeline = words.optional_size("pipeline_micro_batch")
    if pipeline is not None and words.size("pipeline", 1, minimum=0) > 1:
        return pipeline
    stated = words.optional_size(_MICRO)
    whole = words.optional_size("micro_batch_of_all_ranks")
    if stated is None and whole is not None:
        if whole % data:
            raise DocumentError(
                f"is not a multiple of {data} data-parallel ranks",
                field=words.place("micro_batch_of_all_ranks"),
                value=whole,
                remedy=f"use a multiple of {data}",
            )
        return whole // data
    by_device = _micro_batch_by_device(words, setting, data)
    return by_device or micro_batch_by_tokens(words, data) or stated


def _micro_batch_by_device(words: Words, setting: Setting, data: int) -> int | None:
    """Return the micro-batch where a number counts all devices, also those that split a sequence.

    Raises:
        DocumentError: if a data-parallel rank would have a part of a sequence.
    """
    share = words.number("micro_batch_per_device")
    if share is None:
        return None
    found = share * setting.device_count / data / _pipeline_micro_batches(words)
    if found != int(found) or found < 1:
        raise DocumentError(
            f"gives each of {data} data-parallel ranks {found:g} sequences",
            field=words.place("micro_batch_per_device"),
            value=share,
            remedy=f"use a multiple of {data * _pipeline_micro_batches(words)}"
            f"/{setting.device_count}",
        )
    return int(found)


def _pipeline_micro_batches(words: Words) -> int:
    """Return into how many micro-batches a pipeline divides what is accumulated once.

    As many as it has stages where the file leaves it open (MaxText).
    """
    stages = words.size("pipeline", 1, minimum=0)
    if stages <= 1 or "pipeline_micro_batches" not in words.places:
        return 1
    given = words.size("pipeline_micro_batches", -1, minimum=-1)
    count = stages if given == -1 else max(given, 1)
    if count % stages:
        raise DocumentError(
            f"must be a multiple of the pipeline's {stages} stages",
            field=words.place("pipeline_micro_batches"),
            value=count,
            remedy=f"use a multiple of {stages}",
        )
    return count


def micro_batch_by_tokens(words: Words, data: int) -> int | None:
    """Return how many whole sequences a micro-batch of so many tokens holds, if it is one.

    They divide those that a rank of `data` has in a step.
    """
    tokens, length = words.optional_size("micro_batch_tokens"), sequence_length_of(words)
    if not words.flag("batches_by_tokens") or tokens is None or length is None:
        return None
    found = max(1, tokens // length)
    batch = (words.optional_size(_GLOBAL) or 0) * words.size("samples_per_prompt", 1)
    share = batch // data
    found = max((one for one in range(1, found + 1) if share and share % one == 0), default=found)
    words.said.append(
        f"{words.place('micro_batch_tokens')} {tokens}: priced as {found} whole sequences of "
        f"{length} tokens"
    )
    return found


def _quotient(words: Words, batch: int, ranks: int) -> int:
    if batch % ranks:
        raise DocumentError(
            f"is not a multiple of {ranks}, the sequences that all data-parallel ranks "
            f"take at once",
            field=words.place(_GLOBAL),
            value=batch,
            remedy=f"use a multiple of {ranks}, or give the cluster that the file is for",
        )
    return batch // ranks
