"""No flag of a Megatron script passes in silence: it is read, held against the model, or named."""

from __future__ import annotations

import pytest

from planner.errors import DocumentError
from planner.exporters.registry import export
from planner.importers.training.config import Setting, TrainingConfig
from planner.importers.training.files import config_from_text
from planner.planning import estimate, resolved_cluster
from planner.schema.job import Job
from planner.schema.strategy import Strategy
from tests.unit.exporters.plans import plan_of, resolved_model

BATCH = "--micro-batch-size 1 --global-batch-size 64 --bf16 "


def read(flags: str, *, model: str = "llama-3-8b") -> TrainingConfig:
    """What the script says of a model on 8 devices."""
    setting = Setting(graph=resolved_model(model).resolved, device_count=8)
    return config_from_text(BATCH + flags, setting, source="m.sh", suffix=".sh")


def test_flags_that_may_change_what_a_step_costs_are_named() -> None:
    said = read("--mtp-num-layers 1 --exp-avg-dtype fp8").assumptions
    names = "--exp-avg-dtype, --mtp-num-layers"
    assert f"not read of Megatron-LM, and not priced: {names}" in said


def test_flags_of_files_schedules_launchers_and_the_models_shape_are_not_named() -> None:
    flags = (
        "--lr 1e-4 --lr-decay-style cosine --adam-beta1 0.9 --weight-decay 0.1 --train-iters 10 "
        "--save /x --load /x --log-interval 1 --tensorboard-dir /x --wandb-project x --seed 1 "
        "--tokenizer-type HuggingFaceTokenizer --data-path x --split 99,1,0 --swiglu "
        "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
        "--position-embedding-type rope --rotary-base 500000 --max-position-embeddings 8192 "
        "--use-mcore-models --attention-backend flash --nproc_per_node 8 --nnodes 1 --rdzv-id 1"
    )
    assert not [line for line in read(flags).assumptions if "not read" in line]


@pytest.mark.parametrize(
    ("model", "flag", "given", "own"),
    [
        ("llama-3-8b", "--num-attention-heads", 64, 32),
        ("llama-3-8b", "--group-query-attention --num-query-groups", 4, 8),
        ("llama-3-8b", "--kv-channels", 64, 128),
        ("llama-3-8b", "--ffn-hidden-size", 28672, 14336),
        ("llama-3-8b", "--num-experts", 8, 0),
        ("mixtral-8x7b", "--num-experts", 16, 8),
        ("mixtral-8x7b", "--moe-router-topk", 1, 2),
    ],
)
def test_a_size_that_is_not_the_models_is_refused(
    model: str, flag: str, given: int, own: int
) -> None:
    with pytest.raises(DocumentError, match=f"is not the model's, {own}") as refused:
        read(f"{flag} {given}", model=model)
    assert refused.value.field == flag.rsplit(maxsplit=1)[-1]
    if own:
        assert read(f"{flag} {own}", model=model).format == "megatron-lm"


def test_a_script_may_have_more_tensor_parallel_ranks_than_query_groups() -> None:
    flags = "--group-query-attention --num-query-groups 4 --tensor-model-parallel-size 8"
    found = read(f"{flags} --sequence-parallel", model="qwen3-30b-a3b")
    assert found.strategy.tensor_parallel_degree == 8
    graph = resolved_model("qwen3-30b-a3b")
    priced = estimate(graph, resolved_cluster("8xh100-sxm5-80gb"), Job(**found.job), found.strategy)
    assert "8 tensor-parallel ranks share 4 key-value heads" in priced.assumptions[-1]


def test_what_megatron_does_not_ask_of_a_script_is_not_held_against_the_model() -> None:
    assert read("--num-query-groups 1 --num-attention-heads $HEADS").strategy is not None
    assert read("--ffn-hidden-size 4096", model="mixtral-8x7b").strategy is not None


@pytest.mark.parametrize(
    ("flag", "field", "value"),
    [
        ("--optimizer sgd", "optimizer", "sgd"),
        ("--optimizer dist_muon", "optimizer", "muon"),
        ("--clip-grad 0.0", "gradient_clipping", False),
        ("--cross-entropy-loss-fusion", "fused_loss", True),
        ("--grad-reduce-in-bf16", "gradients_in_16_bits", True),
    ],
)
def test_flags_of_a_steps_numbers_reach_the_job(flag: str, field: str, value: object) -> None:
    assert field not in read("").job
    assert read(flag).job[field] == value


@pytest.mark.parametrize(
    ("flags", "silent"),
    [
        ("", "--attention-dropout and --hidden-dropout"),
        ("--hidden-dropout 0.0", "--attention-dropout"),
    ],
)
def test_megatrons_own_dropout_is_priced_where_a_script_is_silent(flags: str, silent: str) -> None:
    found = read(flags)
    assert found.job["dropout"] is True
    said = f"without {silent} Megatron-LM drops out 0.1, whose masks are priced"
    assert said in found.assumptions


@pytest.mark.parametrize(("ratio", "drops"), [("0.0", False), ("0.05", True)])
def test_a_script_that_says_its_dropout_is_priced_so(ratio: str, drops: bool) -> None:
    found = read(f"--hidden-dropout {ratio} --attention-dropout {ratio}")
    assert found.job.get("dropout", False) is drops
    assert not [line for line in found.assumptions if "drops out" in line]


def test_an_optimizer_that_is_not_modelled_is_told() -> None:
    found = read("--optimizer lion --clip-grad 1.0")
    assert "--optimizer lion is priced as adamw" in found.assumptions
    assert not {"optimizer", "gradient_clipping"} & found.job.keys()


def test_a_script_of_our_own_has_no_flag_that_is_not_read() -> None:
    offloaded = Strategy(data_parallel_shard_degree=8, zero_stage=1, offload=("optimizer",))
    text = export(plan_of(offloaded), "megatron-lm").files[0].text
    assert "--optimizer-cpu-offload" in text
    assert not [line for line in read(text).assumptions if "not read" in line]
