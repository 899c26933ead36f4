"""Every kind of model is trained by a target, told to be brought, or refused: none in silence."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InputError
from planner.exporters.model_fields import OF_THE_MODEL, OF_THE_TARGET
from planner.exporters.registry import JOBS, TARGETS, export
from planner.schema.job import Job
from planner.schema.model import (
    Block,
    BlockRun,
    Entry,
    ModelGraph,
    Product,
    SelectiveScanMixer,
)
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy
from planner.space.frameworks import framework_limits
from tests.unit.exporters.plans import plan_of, resolved_model

LAUNCHERS = {"torchrun", "slurm", "kubeflow", "skypilot"}
PROGRAMS = [target for target in TARGETS if target not in LAUNCHERS]
# Whose program is one's own, so that any model goes there.
ANY = {"deepspeed", "accelerate", "hf-trainer", "lightning-trainer"}
# Who takes a model from elsewhere, and is told to.
OPEN = {"torchtitan", "torchtitan-0.2", "megatron-lm", "megatron-bridge", "nemo"}
CLOSED = set(PROGRAMS) - ANY - OPEN
SCORES = {"axolotl", "axolotl-deepspeed", "nemo-rl"}
ZERO_1 = Strategy(data_parallel_shard_degree=8, zero_stage=1)


def llama(**changes: Any) -> ModelGraph:
    """Llama-3-8B with other fields, unchecked."""
    return resolved_model("llama-3-8b").resolved.model_copy(update=changes)


def with_attention(**changes: Any) -> ModelGraph:
    """Llama-3-8B whose attention has other fields."""
    (run,) = llama().runs
    attention = run.block.attention.model_copy(update=changes)
    block = run.block.model_copy(update={"attention": attention})
    return llama(runs=(run.model_copy(update={"block": block}),))


SHARED = Strategy(tensor_parallel_degree=8, sequence_parallel=True, zero_stage=1)


@pytest.mark.parametrize("target", TARGETS)
def test_programs_without_megatron_core_have_no_more_ranks_than_key_value_heads(
    target: str,
) -> None:
    plan = plan_of(SHARED, model="qwen3-30b-a3b", stack="megatron")
    if target in {"megatron-lm", "megatron-bridge", "nemo", "verl-megatron", "nemo-rl-megatron"}:
        assert export(plan, target).strategy.tensor_parallel_degree == 8
        return
    with pytest.raises(InputError) as refused:
        export(plan, target)
    assert refused.value.field != "strategy.stages"


def plan_for(graph: ModelGraph, strategy: Strategy = ZERO_1) -> Plan:
    """A plan of 8 devices for the graph, which has as many blocks as Llama-3-8B."""
    plan = plan_of(strategy)
    return plan.model_copy(update={"model": plan.model.model_copy(update={"resolved": graph})})


def pictures() -> ModelGraph:
    """An encoder of pictures: patches of 16 x 16 x 3 in, nothing after the blocks."""
    (run,) = llama().runs
    entry = Entry(products=(Product(inner_size=768, outer_size=4096),))
    return llama(vocabulary_size=0, head_size=1000, runs=(run.model_copy(update={"entry": entry}),))


KINDS = {
    "a classifier of 2 columns": llama(head_size=2),
    "a model without a head": llama(head_size=0),
    "an encoder, whose tokens see those after them": with_attention(causal=False),
    "a model that reads no tokens": pictures(),
}


def test_no_field_of_a_model_is_forgotten() -> None:
    own = set(ModelGraph.model_fields) - {"runs"}
    own |= set(BlockRun.model_fields) - {"block"} | set(Block.model_fields)
    assert own == OF_THE_MODEL | OF_THE_TARGET
    assert not OF_THE_MODEL & OF_THE_TARGET


@pytest.mark.parametrize("words", KINDS)
@pytest.mark.parametrize("target", PROGRAMS)
def test_a_model_that_predicts_no_tokens_is_told_or_refused(target: str, words: str) -> None:
    usual = export(plan_for(llama()), target)
    if target in CLOSED:
        with pytest.raises(InputError, match=words) as refused:
            export(plan_for(KINDS[words]), target)
        assert refused.value.field == "model"
        assert "hf-trainer" in str(refused.value.remedy)
        return
    made = export(plan_for(KINDS[words]), target)
    told = [loss for loss in made.losses if loss not in usual.losses]
    assert len(told) == (target in OPEN)
    assert all(words in loss and "has to bring" in loss for loss in told)


@pytest.mark.parametrize("target", PROGRAMS)
def test_an_encoder_decoder_is_told_or_refused(target: str) -> None:
    plan = plan_of(ZERO_1, model="flan-t5-xxl")
    if target in CLOSED:
        with pytest.raises(InputError, match="an encoder-decoder"):
            export(plan, target)
    else:
        told = [loss for loss in export(plan, target).losses if "an encoder-decoder" in loss]
        assert len(told) == (target in OPEN)


@pytest.mark.parametrize("target", sorted(SCORES))
def test_a_head_of_one_column_is_written_as_that_of_a_reward_model(target: str) -> None:
    text = export(plan_for(llama(head_size=1)), target).files[0].text
    written = {
        "nemo-rl": "  reward_model_cfg:\n    enabled: true\n    reward_model_type: bradley_terry\n"
    }
    expected = "model_type: AutoModelForSequenceClassification\nnum_labels: 1\nreward_model: true\n"
    assert written.get(target, expected) in text
    assert "reward_model" not in export(plan_for(llama()), target).files[0].text


def test_a_head_of_one_column_is_refused_by_all_others_that_predict_tokens() -> None:
    for target in sorted(CLOSED - SCORES):
        with pytest.raises(InputError, match="a classifier of 1 columns"):
            export(plan_for(llama(head_size=1)), target)


@pytest.mark.parametrize("target", ["nanotron", "maxtext", "torchtitan", "torchtitan-0.2"])
def test_an_architecture_that_the_program_has_no_model_of_is_told(target: str) -> None:
    words = "has no model of architecture phi3 that is known of"
    assert any(
        words in loss for loss in export(plan_for(llama(architecture="phi3")), target).losses
    )
    assert not any("architecture" in loss for loss in export(plan_for(llama()), target).losses)


def test_the_script_of_megatron_starts_what_trains_the_model() -> None:
    def started(plan: Plan) -> str:
        return export(plan, "megatron-lm").files[0].text.splitlines()[-1]

    assert " pretrain_gpt.py " in started(plan_for(llama()))
    assert " pretrain_hybrid.py " in started(plan_of(ZERO_1, model="nemotron-h-56b"))
    for plan in (plan_of(ZERO_1, model="qwen2-vl-7b"), plan_for(llama(head_size=2))):
        assert ' "${PROGRAM:?' in started(plan)
    (tower,) = (loss for loss in export(plan_of(ZERO_1, model="qwen2-vl-7b"), "megatron-lm").losses)
    assert "a tower stands before qwen2-vl-7b's decoder" in tower


@pytest.mark.parametrize("target", ["torchtitan", "torchtitan-0.2"])
def test_torchtitan_has_no_pipeline_of_tied_embeddings(target: str) -> None:
    staged = Strategy(pipeline_parallel_degree=2, data_parallel_shard_degree=4)
    assert export(plan_for(llama(), staged), target).files
    with pytest.raises(InputError, match="ties its embeddings") as refused:
        export(plan_for(llama(tied_embeddings=True), staged), target)
    assert refused.value.field == "strategy.pipeline_parallel_degree"
    assert export(plan_for(llama(tied_embeddings=True)), target).files


RING = {"context_parallel_degree": 2, "data_parallel_shard_degree": 4}
HEADS = {**RING, "context_parallel_kind": "all_to_all"}
WINDOWS = "has no windows|attends by windows"
CONTEXTS = [
    ("accelerate", RING, {"causal": False}, "see later ones"),
    ("hf-trainer", RING, {"sliding_window_tokens": 4096}, WINDOWS),
    ("nemo-rl", RING, {"chunk_tokens": 4096}, WINDOWS),
    ("torchtitan-0.2", RING, {"sliding_window_tokens": 4096}, WINDOWS),
    ("megatron-lm", RING, {"sliding_window_tokens": 4096}, WINDOWS),
    ("megatron-bridge", RING, {"sliding_window_tokens": 4096}, WINDOWS),
]


@pytest.mark.parametrize(("target", "degrees", "changes", "words"), CONTEXTS)
def test_ranks_that_share_sequences_attend_as_the_model_or_the_target_refuses(
    target: str, degrees: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    zero = 3 if target in {"accelerate", "hf-trainer", "nemo-rl"} else 1
    shared = Strategy(**degrees, zero_stage=zero)
    assert export(plan_for(llama(), shared), target).files
    with pytest.raises(InputError, match=words) as refused:
        export(plan_for(with_attention(**changes), shared), target)
    assert refused.value.field == "strategy.context_parallel_degree"


def test_megatron_exchanges_heads_of_windows_and_says_so_where_it_refuses_a_ring() -> None:
    windows = with_attention(sliding_window_tokens=4096)
    assert export(plan_for(windows, Strategy(**HEADS)), "megatron-lm").files
    with pytest.raises(InputError) as refused:
        export(plan_for(windows, Strategy(**RING)), "megatron-lm")
    assert "limits.context_parallel_kinds [all_to_all]" in str(refused.value.remedy)


@pytest.mark.parametrize("framework", ["axolotl", "llama-factory"])
def test_a_framework_is_not_searched_for_a_model_that_it_does_not_train(framework: str) -> None:
    job = Job(framework=framework)
    with pytest.raises(InputError, match="a classifier of 2 columns"):
        framework_limits(job, llama(head_size=2))
    assert framework_limits(job, llama())


def test_the_search_for_a_framework_shares_no_sequences_that_it_would_refuse() -> None:
    job = Job(framework="accelerate")
    masked = framework_limits(job, with_attention(causal=False))
    assert {part.context_parallel_degree.max for part in masked} == {1}
    windows = framework_limits(Job(framework="megatron-lm"), with_attention(chunk_tokens=64))
    assert {part.context_parallel_kinds for part in windows} == {("all_to_all",)}
    tied = framework_limits(Job(framework="torchtitan"), llama(tied_embeddings=True))
    assert {part.pipeline_parallel_degree.max for part in tied} == {1}


def test_nemo_rl_splits_no_sequence_twice() -> None:
    twice = Strategy(
        tensor_parallel_degree=2,
        sequence_parallel=True,
        context_parallel_degree=2,
        data_parallel_shard_degree=2,
        zero_stage=3,
    )
    with pytest.raises(InputError, match="beside context parallelism") as refused:
        export(plan_for(llama(), twice), "nemo-rl")
    assert refused.value.field == "strategy.sequence_parallel"


def test_llama_factory_freezes_no_tower_of_a_plan_that_trains_it() -> None:
    text = export(plan_of(ZERO_1, model="qwen2-vl-7b"), "llama-factory").files[0].text
    assert "freeze_vision_tower: false\nfreeze_multi_modal_projector: false\n" in text
    assert "freeze" not in export(plan_for(llama()), "llama-factory").files[0].text


def test_a_traced_module_is_told_where_the_program_brings_models() -> None:
    traced = plan_for(llama(runs=(BlockRun.model_construct(block_count=32, measured=True),)))
    told = {
        target for target in PROGRAMS
        if any("is a traced module" in loss for loss in export(traced, target).losses)
    }  # fmt: skip
    assert told == set(PROGRAMS) - ANY
    assert set(JOBS) <= set(PROGRAMS)


def test_a_hybrid_of_layers_without_letters_has_no_pipeline_in_megatron() -> None:
    (run,) = llama().runs
    scan = SelectiveScanMixer(inner_width=8192, step_rank=256)
    block = run.block.model_copy(update={"mixer": scan})
    plan = plan_for(
        llama(runs=(run.model_copy(update={"block": block}),)),
        Strategy(pipeline_parallel_degree=2, data_parallel_shard_degree=4),
    )
    with pytest.raises(InputError, match="its stages are of whole layers"):
        export(plan, "megatron-lm")


def test_verl_has_no_hybrid_on_megatron_core_however_it_is_split() -> None:
    plan = plan_of(Strategy(data_parallel_shard_degree=8), model="nemotron-h-56b")
    with pytest.raises(InputError, match="verl has none on Megatron-Core") as refused:
        export(plan, "verl-megatron")
    assert refused.value.field == "model"
