"""torchtitan's older TOML: fields that have moved since, put where later versions have them.

Up to 0.0.2 the degrees stood under `training` and `experimental`, and `compile` under `training`;
`batch_size` became `local_batch_size` in 0.2. Source: `torchtitan/config_manager.py` of these.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from planner.errors import DocumentError

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
    _require_spelled(sections)
    return moved


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
                    "is no field of torchtitan",
                    field=f"{section}.{name}",
                    remedy=f"did you mean {near[0]}?",
                )
