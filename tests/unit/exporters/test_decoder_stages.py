"""Pipelines of models that are more than one decoder: written as the program counts, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import DocumentError, InputError
from planner.exporters.canonical import canonical
from planner.exporters.decoder_stages import pipeline_obstacle
from planner.exporters.registry import export
from planner.exporters.strategy_fields import STRATEGY_FIELDS
from planner.importers.training.config import Setting
from planner.importers.training.files import config_from_text
from planner.schema.hybrid_pattern import block_letters
from planner.schema.strategy import (
    ActivationCheckpointing,
    LayerGroup,
    PipelineSchedule,
    Stage,
    Strategy,
)
from tests.unit.exporters.plans import plan_of, resolved_model

BATCH = 64
# qwen2-vl-7b: 32 vision blocks, then 28 of the decoder, as its config.json says.
VISION, DECODER = 32, 28


def staged(*counts: int, **fields: Any) -> Strategy:
    """A pipeline of 16 devices whose stages hold so many blocks."""
    stages, first = [], 0
    for index, count in enumerate(counts):
        group = LayerGroup(first_block=first, block_count=count)
        stages.append(Stage(stage=index, layers=(group,)))
        first += count
    return Strategy(
        pipeline_parallel_degree=len(counts),
        data_parallel_shard_degree=16 // len(counts),
        stages=tuple(stages),
        **fields,
    )


def exported(strategy: Strategy, model: str, target: str) -> Any:
    """The plan, and its export on 16 devices."""
    plan = plan_of(strategy, model=model, cluster="2x8xh100-sxm5-80gb", batch=BATCH)
    return plan, export(plan, target)


@pytest.mark.parametrize(
    ("model", "blocks", "towers", "layers"),
    [
        ("qwen2-vl-7b", 60, 32, 28),
        ("gemma-3-27b", 89, 27, 62),
        ("flan-t5-xxl", 48, 24, 24),
        ("nemotron-h-56b", 64, 0, 118),
        ("llama-3-8b", 32, 0, 32),
    ],
)
def test_layers_are_counted_as_programs_count_them(
    model: str, blocks: int, towers: int, layers: int
) -> None:
    graph = resolved_model(model).resolved
    assert graph.block_count == blocks
    assert graph.tower_block_count == towers
    assert graph.decoder_layer_count == layers


def test_megatrons_layout_counts_decoder_layers_beside_the_tower() -> None:
    # 32 + 4 blocks on the first stage, then three times 8: of the decoder 4, 8, 8 and 8
    _, made = exported(staged(36, 8, 8, 8), "qwen2-vl-7b", "megatron-lm")
    assert "--pipeline-model-parallel-layout 'Et*4|(tttttttt|)*2t*8L'" in made.files[0].text


def test_as_many_decoder_layers_on_every_stage_need_no_layout() -> None:
    # 28 / 4 = 7 of the decoder on each, the first with 32 of the tower
    _, made = exported(staged(39, 7, 7, 7), "qwen2-vl-7b", "megatron-lm")
    assert "--pipeline-model-parallel-size 4" in made.files[0].text
    assert "layout" not in made.files[0].text


def test_a_first_stage_may_be_the_tower_alone() -> None:
    _, made = exported(staged(32, 28), "qwen2-vl-7b", "megatron-bridge")
    assert "model.pipeline_model_parallel_layout='E|t*28L'" in made.files[0].text


SUFFIXES = {
    "megatron-lm": ".sh",
    "megatron-bridge": "",
    "nemo": ".py",
    "verl-megatron": "",
    "nemo-rl-megatron": ".yaml",
}


@pytest.mark.parametrize("target", SUFFIXES)
@pytest.mark.parametrize("counts", [(36, 8, 8, 8), (39, 7, 7, 7), (32, 28)])
def test_pipelines_behind_towers_are_read_back(target: str, counts: tuple[int, ...]) -> None:
    plan, made = exported(staged(*counts), "qwen2-vl-7b", target)
    setting = Setting(graph=plan.model.resolved, device_count=16)
    found = config_from_text(
        made.files[0].text, setting, source=made.files[0].name, suffix=SUFFIXES[target]
    ).strategy
    whole = found.resolved(block_count=VISION + DECODER, global_batch_size=BATCH)
    assert canonical(whole) == canonical(made.strategy)


@pytest.mark.parametrize(
    ("model", "target", "counts", "words"),
    [
        ("qwen2-vl-7b", "torchtitan", (39, 21), "32 of qwen2-vl-7b's 60 blocks are of a tower"),
        ("qwen2-vl-7b", "torchtitan-0.2", (39, 21), "32 of qwen2-vl-7b's 60 blocks"),
        ("qwen2-vl-7b", "megatron-lm", (15, 45), "holds 15 of qwen2-vl-7b's 32 tower blocks"),
        ("flan-t5-xxl", "megatron-lm", (24, 24), "24 encoder blocks of flan-t5-xxl are read"),
        ("flan-t5-xxl", "torchtitan", (24, 24), "24 encoder blocks of flan-t5-xxl are read"),
        ("nemotron-h-56b", "megatron-bridge", (16, 16, 16, 16), "have 29, 30, 29, 30"),
        ("nemotron-h-56b", "torchtitan", (32, 32), "118 in 64 blocks"),
        ("qwen2-vl-7b", "nanotron", (39, 21), "32 of qwen2-vl-7b's 60 blocks are of a tower"),
        ("nemotron-h-56b", "nanotron", (32, 32), "118 in 64 blocks"),
        ("nemotron-h-56b", "nemo", (16, 16, 16, 16), "have 29, 30, 29, 30"),
        ("nemotron-h-56b", "nemo-rl-megatron", (16, 16, 16, 16), "have 29, 30, 29, 30"),
        ("qwen2-vl-7b", "nemo-rl-megatron", (15, 45), "holds 15 of qwen2-vl-7b's 32 tower blocks"),
    ],
)
def test_stages_that_the_target_does_not_have_are_refused(
    model: str, target: str, counts: tuple[int, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words) as refused:
        exported(staged(*counts), model, target)
    assert refused.value.field == "strategy.pipeline_parallel_degree"
    assert "limits.pipeline_parallel_degree 1" in str(refused.value.remedy)


# nemotron-h-56b: 64 blocks, of which the second of each pair of letters feeds forward
FIRST = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M"
THIRD = "M-M*-M-M-M-M-M*-M-M-M-M-M*-M-"


def test_stages_of_a_hybrid_are_cut_by_bars_and_read_back() -> None:
    plan, made = exported(staged(16, 16, 16, 16), "nemotron-h-56b", "megatron-lm")
    text = made.files[0].text
    pattern = text.split("--hybrid-layer-pattern '")[1].split("'")[0]
    stages = pattern.split("|")
    assert (len(stages), stages[0], stages[2]) == (4, FIRST, THIRD)
    assert len("".join(stages)) == 118
    assert "--pipeline-model-parallel-layout" not in text
    setting = Setting(graph=plan.model.resolved, device_count=16)
    found = config_from_text(text, setting, source="megatron.sh", suffix=".sh").strategy
    assert [stage.block_count for stage in found.stages or ()] == [16, 16, 16, 16]


def test_virtual_stages_of_a_hybrid_are_as_many_bars_as_ranks_hold() -> None:
    strategy = staged(16, 16, 16, 16).model_copy(
        update={
            "pipeline_parallel_degree": 2,
            "virtual_pipeline_degree": 2,
            "pipeline_schedule": PipelineSchedule.INTERLEAVED,
            "data_parallel_shard_degree": 8,
        }
    )
    _, made = exported(strategy, "nemotron-h-56b", "megatron-lm")
    text = made.files[0].text
    assert text.split("--hybrid-layer-pattern '")[1].split("'")[0].count("|") == 3
    assert "--num-virtual-stages-per-pipeline-rank" not in text


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("M-|M-", "is not the model, which is M-M-M-M"),
        ("{first}M|-{rest}", "ends a stage after layer 3, between what mixes and what feeds"),
        ("{whole}|{empty}|", "3 virtual stages, which 2 ranks do not divide"),
    ],
)
def test_a_hybrids_pattern_that_is_another_models_or_cuts_a_block_is_refused(
    pattern: str, words: str
) -> None:
    graph = resolved_model("nemotron-h-56b").resolved
    whole = "".join(block_letters(graph) or ())
    text = pattern.format(first=whole[:2], rest=whole[4:], whole=whole, empty="")
    setting = Setting(graph=graph, device_count=16)
    flags = f"--pipeline-model-parallel-size 2 --hybrid-layer-pattern '{text}' --micro-batch-size 1"
    with pytest.raises(DocumentError, match=words) as refused:
        config_from_text(flags, setting, source="m.sh", suffix=".sh")
    assert refused.value.field == "--hybrid-layer-pattern"


def test_a_hybrids_pattern_without_bars_is_spread_evenly_over_ranks() -> None:
    graph = resolved_model("nemotron-h-56b").resolved
    whole = "".join(block_letters(graph) or ())
    setting = Setting(graph=graph, device_count=16)
    flags = f"--pipeline-model-parallel-size 2 --hybrid-override-pattern '{whole}'"
    # 59 letters of either half are 27 blocks of two and 5 of one
    found = config_from_text(flags, setting, source="m.sh", suffix=".sh").strategy
    assert [stage.block_count for stage in found.stages or ()] == [32, 32]


def test_a_hybrid_recomputed_in_megatron_keeps_an_input_of_each_of_its_layers() -> None:
    full = Strategy(data_parallel_shard_degree=16, activation_checkpointing="full")
    _, made = exported(full, "nemotron-h-56b", "megatron-lm")
    assert any("each of 118 layers" in loss and "of 64 blocks" in loss for loss in made.losses)


def test_some_blocks_behind_a_tower_are_recomputed_as_all() -> None:
    groups = (
        LayerGroup(
            first_block=0, block_count=40, activation_checkpointing=ActivationCheckpointing.FULL
        ),
        LayerGroup(first_block=40, block_count=20),
    )
    strategy = Strategy(data_parallel_shard_degree=16, stages=(Stage(stage=0, layers=groups),))
    _, made = exported(strategy, "qwen2-vl-7b", "megatron-lm")
    assert "--recompute-method uniform" in made.files[0].text
    assert any("where the plan has less on 20 of 60 blocks" in loss for loss in made.losses)


@pytest.mark.parametrize("model", ["flan-t5-xxl", "nemotron-h-56b"])
def test_a_megatron_pipeline_of_other_layers_than_blocks_is_not_read(model: str) -> None:
    setting = Setting(graph=resolved_model(model).resolved, device_count=16)
    text = "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64"
    with pytest.raises(DocumentError, match="not Megatron's decoder layers") as refused:
        config_from_text(text, setting, source="megatron.sh", suffix=".sh")
    assert refused.value.field == "--pipeline-model-parallel-size"


PIPELINES = {
    "torchtitan": (
        ".toml",
        "[training]\nlocal_batch_size = 1\n[parallelism]\npipeline_parallel_degree = 2\n",
        "parallelism.pipeline_parallel_degree",
    ),
    "nanotron": (
        ".yaml",
        "parallelism: {dp: 8, pp: 2, tp: 1}\ntokens: {micro_batch_size: 1}\n",
        "parallelism.pp",
    ),
    "gpt-neox": (
        ".yaml",
        "pipe_parallel_size: 2\nmodel_parallel_size: 1\ntrain_micro_batch_size_per_gpu: 1\n",
        "pipe_parallel_size",
    ),
    "maxtext": (
        ".yaml",
        """
per_device_batch_size: 1
ici_pipeline_parallelism: 2
num_layers_per_pipeline_stage: 16
max_target_length: 4096
""",
        "ici_pipeline_parallelism",
    ),
}


@pytest.mark.parametrize("model", ["qwen2-vl-7b", "flan-t5-xxl", "nemotron-h-56b"])
@pytest.mark.parametrize("program", PIPELINES)
def test_a_pipeline_of_one_decoders_layers_is_not_read_of_other_blocks(
    program: str, model: str
) -> None:
    suffix, text, field = PIPELINES[program]
    setting = Setting(
        graph=resolved_model(model).resolved, device_count=16, global_batch_size=BATCH
    )
    with pytest.raises(DocumentError, match="layers of one decoder") as refused:
        config_from_text(text, setting, source="it", suffix=suffix)
    assert refused.value.field == field
    llama = Setting(
        graph=resolved_model("llama-3-8b").resolved, device_count=16, global_batch_size=BATCH
    )
    found = config_from_text(text, llama, source="it", suffix=suffix)
    assert found.strategy.pipeline_parallel_degree == 2


def test_megatrons_number_of_layers_is_the_decoders() -> None:
    setting = Setting(graph=resolved_model("qwen2-vl-7b").resolved, device_count=16)
    text = "--num-layers 28 --hidden-size 3584 --micro-batch-size 1 --global-batch-size 64"
    assert config_from_text(text, setting, source="m.sh", suffix=".sh").format == "megatron-lm"


@pytest.mark.parametrize(
    "target",
    [
        target
        for target, fields in STRATEGY_FIELDS.items()
        if fields["pipeline_parallel_degree"].values != (1,)
        and target not in {"megatron-lm", "megatron-bridge", "nemo", "nemo-rl-megatron"}
    ],
)
def test_every_other_program_with_pipelines_counts_a_hybrids_layers(target: str) -> None:
    assert pipeline_obstacle(resolved_model("nemotron-h-56b").resolved, target) is not None


@pytest.mark.parametrize("target", ["megatron-bridge", "nemo", "nemo-rl-megatron"])
def test_stages_of_a_hybrid_that_hold_as_many_layers_need_no_layout(target: str) -> None:
    """59 layers of either half of nemotron-h-56b, which are 32 blocks each."""
    _, made = exported(staged(32, 32), "nemotron-h-56b", target)
    text = made.files[0].text
    assert "pipeline_model_parallel_size" in text
    assert "layout" not in text
