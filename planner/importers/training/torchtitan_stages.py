"""torchtitan's pipeline: how many blocks each virtual stage holds where the file does not say.

Source: `_get_pipeline_metadata` and `_generate_llm_fqn_per_model_part` of torchtitan 0.3.0,
`distributed/pipeline_parallel.py`; those of 0.2.2 say the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.training.config import Setting, require_counts, require_one_decoder
from planner.schema.strategy import PipelineSchedule

_BLOCK = re.compile(r"layers\.(\d{1,5})")
_PARTS = "module_fqns_per_model_part"


def stage_counts(
    values: Mapping[str, Any], setting: Setting, *, pipeline: int, schedule: PipelineSchedule
) -> list[int]:
    """Return the blocks of each virtual stage by the fields of `parallelism`.

    Raises:
        DocumentError: naming the field that does not go with the model or the schedule.
    """
    if pipeline == 1:
        return [setting.graph.block_count]
    fields = Fields(values, section="parallelism")
    degree = fields.spelling("pipeline_parallel_degree")
    require_one_decoder(setting, pipeline=pipeline, field_name=degree)
    if values.get(_PARTS):
        counts = _written_out(_parts(values[_PARTS]), fields.spelling(_PARTS))
    else:
        counts = _generated(fields, setting, pipeline=pipeline, schedule=schedule)
    if len(counts) % pipeline:
        raise DocumentError(
            f"makes {len(counts)} virtual stages, which {pipeline} ranks do not divide",
            field=fields.spelling(_PARTS),
            value=len(counts),
            remedy="give every rank as many virtual stages",
        )
    require_counts(counts, setting, field_name=fields.spelling(_PARTS))
    return counts


def _parts(value: object) -> list[list[str]]:
    if isinstance(value, list) and all(
        isinstance(part, list) and all(isinstance(item, str) for item in part) for part in value
    ):
        return value
    raise DocumentError(
        "must be a list of lists of modules",
        field=f"parallelism.{_PARTS}",
        value=type(value).__name__,
        remedy="write a list of names for each stage",
    )


def _written_out(parts: Sequence[Sequence[str]], name: str) -> list[int]:
    """Return the blocks that each part names; they must follow one another."""
    block = 0
    counts = []
    for part in parts:
        numbers = [int(match[1]) for item in part if (match := _BLOCK.fullmatch(item))]
        if numbers != list(range(block, block + len(numbers))):
            raise DocumentError(
                f"does not go on with layers.{block}",
                field=name,
                value=", ".join(part)[:80],
                remedy="name the blocks in their order, each once",
            )
        block += len(numbers)
        counts.append(len(numbers))
    return counts


def _generated(
    fields: Fields, setting: Setting, *, pipeline: int, schedule: PipelineSchedule
) -> list[int]:
    """Return what torchtitan makes: embedding and head count as so many blocks."""
    blocks = setting.graph.block_count
    first = fields.size("pipeline_parallel_first_stage_less_layers", 1, minimum=0, limit=blocks)
    last = fields.size("pipeline_parallel_last_stage_less_layers", 1, minimum=0, limit=blocks)
    each = fields.optional_size("pipeline_parallel_layers_per_stage", limit=blocks)
    single = schedule in {PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B}
    stages = pipeline * (1 if single else 2)
    if each is not None:
        stages = -(-(blocks + first + last) // each)
        _require_ranks(stages, pipeline, single=single, name="pipeline_parallel_layers_per_stage")
    whole, rest = divmod(blocks + first + last, stages)
    counts = [whole + (1 if index < rest else 0) for index in range(stages)]
    counts[0] -= first
    counts[-1] -= last
    if min(counts) < 1:
        raise DocumentError(
            f"leaves a stage of {stages} without a block of its own",
            field=fields.spelling("pipeline_parallel_degree"),
            value=pipeline,
            remedy="use fewer stages, or 0 for pipeline_parallel_first/last_stage_less_layers",
        )
    return counts


def _require_ranks(stages: int, pipeline: int, *, single: bool, name: str) -> None:
    per_rank, rest = divmod(stages, pipeline)
    if rest or (single and per_rank != 1) or (not single and per_rank < 2):
        wanted = "one" if single else "two or more"
        raise DocumentError(
            f"makes {stages} virtual stages on {pipeline} ranks, and the schedule has {wanted} on "
            "each",
            field=f"parallelism.{name}",
            value=stages,
            remedy="choose it so that the stages divide evenly",
        )
