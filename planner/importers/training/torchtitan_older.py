"""torchtitan's older TOML: fields that have moved since, put where later versions have them.

Up to 0.0.2 the degrees stood under `training` and `experimental`, and `compile` under `training`;
`batch_size` became `local_batch_size` in 0.2. Source: `torchtitan/config_manager.py` of these.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from planner.errors import DocumentError
from planner.importers.fields import Fields

_AXES = (
    "data_parallel_replicate_degree",
    "data_parallel_shard_degree",
    "fsdp_reshard_after_forward",
    "tensor_parallel_degree",
    "context_parallel_degree",
    "pipeline_parallel_degree",
    "pipeline_parallel_schedule",
    "pipeline_parallel_microbatch_size",
    "pipeline_parallel_layers_per_stage",
    "pipeline_parallel_first_stage_less_layers",
    "pipeline_parallel_last_stage_less_layers",
    "expert_parallel_degree",
    "expert_tensor_parallel_degree",
    "module_fqns_per_model_part",
    "enable_async_tensor_parallel",
)
_TRAINING = ("local_batch_size", "global_batch_size", "seq_len", "enable_cpu_offload")


def older_names(sections: dict[str, dict[str, Any]]) -> list[str]:
    """Move older fields of `sections` to their later places; return a line on each.

    Raises:
        DocumentError: if a field is all but one that is known.
    """
    moved = [
        _move(sections, (section, name), ("parallelism", name))
        for section in ("training", "experimental")
        for name in _AXES
        if name in sections[section]
    ]
    if "batch_size" in sections["training"]:
        moved.append(_move(sections, ("training", "batch_size"), ("training", "local_batch_size")))
    if isinstance(sections["training"].get("compile"), bool):
        moved.append(_move(sections, ("training", "compile"), ("compile", "enable")))
    if "pipeline_parallel_microbatches" in sections["experimental"]:
        moved.append(_counted_micro_batches(sections))
    if "num_tokens_per_microbatch_per_dp_rank" in sections["training"]:
        moved.append(_batches_of_tokens(sections))
    _require_spelled(sections)
    return moved


def _counted_micro_batches(sections: dict[str, dict[str, Any]]) -> str:
    """Put the size of micro-batches in the place of their number."""
    name = "pipeline_parallel_microbatches"
    count = Fields(sections["experimental"], section="experimental").size(name)
    local = Fields(sections["training"], section="training").size("local_batch_size", 8)
    if local % count:
        raise DocumentError(
            f"does not divide training.local_batch_size {local}",
            field=f"experimental.{name}",
            value=count,
            remedy=f"use a divisor of {local}",
        )
    del sections["experimental"][name]
    sections["parallelism"].setdefault("pipeline_parallel_microbatch_size", local // count)
    return f"experimental.{name} {count} is read as micro-batches of {local // count}"


def _batches_of_tokens(sections: dict[str, dict[str, Any]]) -> str:
    """Put sequences in the place of the tokens that 0.5 counts batches in."""
    training, parallelism = sections["training"], sections["parallelism"]
    own = Fields(training, section="training")
    length = own.size("max_context_length", 2048)
    tokens = own.size("num_tokens_per_microbatch_per_dp_rank")
    count = Fields(parallelism, section="parallelism").size("num_pp_microbatches", 1)
    stated = training.get("num_tokens_per_train_step", -1)
    for name, number in (
        ("num_tokens_per_microbatch_per_dp_rank", tokens),
        ("num_tokens_per_train_step", length if stated == -1 else stated),
    ):
        if not isinstance(number, int) or number < 1 or number % length:
            raise DocumentError(
                f"is not a multiple of training.max_context_length {length}",
                field=f"training.{name}",
                value=number,
                remedy="give whole sequences, which are what is priced",
            )
    training |= {"local_batch_size": tokens // length * count, "seq_len": length}
    if stated != -1:
        training["global_batch_size"] = stated // length
    parallelism.setdefault("pipeline_parallel_microbatch_size", tokens // length)
    return f"batches in tokens are read as whole sequences of {length}"


def _move(sections: dict[str, dict[str, Any]], old: tuple[str, str], new: tuple[str, str]) -> str:
    value = sections[old[0]].pop(old[1])
    sections[new[0]].setdefault(new[1], value)
    return f"{'.'.join(old)} is read as {'.'.join(new)}"


def _require_spelled(sections: dict[str, dict[str, Any]]) -> None:
    for section, known in (("parallelism", _AXES), ("training", _TRAINING)):
        for name in sections[section]:
            near = get_close_matches(name, known, n=1, cutoff=0.93)
            if near and name not in known:
                raise DocumentError(
                    "is not a field of torchtitan",
                    field=f"{section}.{name}",
                    remedy=f"did you mean {near[0]}?",
                )
