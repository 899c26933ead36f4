"""Cases: what the planner understands of a row, and why some rows have no price."""

from __future__ import annotations

import math
import statistics
from statistics import NormalDist
from typing import Any

import pytest

from planner.hardware import device_names
from planner.schema.job import Precision, Stack
from planner.schema.model import (
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    Norm,
)
from planner.schema.strategy import ActivationCheckpointing, Offload, PipelineSchedule
from planner.units import GIB
from planner.validation.case import Case, case_of
from planner.validation.comparison import compare
from planner.validation.reasons import Assumption, Unpriceable, Unpriced
from planner.validation.row import run_comparison
from tests.measured_rows import KORTHIKANTI, MIXTURE, TORCHTITAN, a_run


def the_case(base: dict[str, Any] = TORCHTITAN, /, **changes: Any) -> Case:
    """The case of a row with changes."""
    return case_of(a_run(base, **changes))


def the_reason(base: dict[str, Any] = TORCHTITAN, /, **changes: Any) -> Unpriceable:
    """Why the row has no price."""
    with pytest.raises(Unpriced) as caught:
        case_of(a_run(base, **changes))
    return caught.value.reason


def test_a_row_becomes_the_model_that_it_describes() -> None:
    graph = the_case().graph
    assert graph.block_count == 32
    assert the_case().workload.parameter_count == 8_030_261_248  # of Llama-3-8B's checkpoint


def test_a_gpt_has_layer_norms_biases_and_learned_positions() -> None:
    graph = the_case(KORTHIKANTI).graph
    block = graph.runs[0].block
    assert (block.norm, graph.learned_position_count) == (Norm.LAYER, 2048)
    assert block.feed_forward == DenseFeedForward(ffn_size=49152, gated=False, bias=True)


def test_a_name_that_ships_stands_for_all_sizes() -> None:
    shape = dict.fromkeys(("layers", "hidden_size", "ffn_size", "heads", "vocab"))
    assert the_case(**shape).graph.block_count == 32


@pytest.mark.parametrize(
    ("name", "query_rank"),
    [("DeepSeek-V2-Lite", None), ("deepseek-v2", 1536), ("kimi-k2-instruct", 1536)],
)
def test_latent_attention_has_the_ranks_of_published_models(
    name: str, query_rank: int | None
) -> None:
    case = the_case(MIXTURE, model=name, attention_kind="mla", layers=4, heads=16)
    attention = case.graph.runs[0].block.attention
    assert isinstance(attention, LatentAttention)
    assert (attention.query_rank, attention.key_value_rank) == (query_rank, 512)
    assert attention.head_count == 16


@pytest.mark.parametrize(
    ("gpu", "device"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("H100-80GB-SXM", "h100-sxm5-80gb"),
        ("H200 SXM5 141GB", "h200-sxm5-141gb"),
        ("AMD MI300X", "mi300x-192gb"),
        ("l40s-48gb", "l40s-48gb"),
        ("A100-40", "a100-sxm4-40gb"),
        ("A100-PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("H100 NVL", "h100-nvl-94gb"),
        ("DGX B200", "b200-sxm-180gb"),
        ("GB200 NVL72", "gb200-nvl72"),
        ("AMD Instinct MI250X", "mi250x-128gb"),
        ("GeForce RTX4090", "rtx-4090-24gb"),
        ("RTX 4090 D", "rtx-4090d-24gb"),
        ("RTX-5090", "rtx-5090-32gb"),
        ("A5000 24GB", "rtx-a5000-24gb"),
        ("RTX PRO 6000", "rtx-pro-6000-96gb"),
        ("RTX 6000 Ada", "rtx-6000-ada-48gb"),
        ("Tesla-V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("V100-PCIe", "v100-pcie-32gb"),
        ("H200 NVL", "h200-nvl-141gb"),
        ("MI300A", "mi300a-128gb"),
        ("TPU-v5p", "tpu-v5p-95gb"),
        ("Trainium2", "trainium2-96gb"),
    ],
)
def test_names_of_gpus_may_have_vendor_memory_and_socket(gpu: str, device: str) -> None:
    assert the_case(MIXTURE, gpu=gpu, gpu_mem_gb=None).hardware.kinds[0].device == device


@pytest.mark.parametrize("gpu", ["TPU-v3", "gb", "-80gb", "40", "P100"])
def test_what_has_no_profile_is_named(gpu: str) -> None:
    with pytest.raises(Unpriced, match=gpu) as caught:
        the_case(MIXTURE, gpu=gpu)
    assert caught.value.reason is Unpriceable.DEVICE


def test_latent_attention_comes_from_the_model_of_that_name() -> None:
    case = the_case(MIXTURE, model="deepseek-v3", attention_kind="mla", layers=61)
    attention = case.graph.runs[0].block.attention
    assert isinstance(attention, LatentAttention)
    assert attention.key_value_rank == 512


def test_few_dense_layers_come_first() -> None:
    graph = the_case(MIXTURE, moe_dense_layers=3).graph
    kinds = [(type(r.block.feed_forward), r.block_count) for r in graph.runs]
    assert kinds == [(DenseFeedForward, 3), (MixtureFeedForward, 29)]


def test_half_dense_layers_alternate() -> None:
    graph = the_case(MIXTURE, moe_dense_layers=16).graph
    assert [run.block_count for run in graph.runs] == [1] * 32


def test_a_prediction_layer_is_one_block_more() -> None:
    case = the_case(MIXTURE, mtp_layers=1)
    assert case.graph.block_count == 33
    assert Assumption.EXTRA_PREDICTION_LAYER in case.assumptions


def test_data_parallelism_follows_from_the_other_degrees() -> None:
    strategy = the_case(KORTHIKANTI, dp=None, num_gpus=128, gbs=128).strategy
    assert (strategy.shard_degree, strategy.micro_batch_count) == (2, 64)


def test_one_device_is_not_split() -> None:
    alone = {"num_gpus": 1, "gpus_per_node": None, "dp": None, "gbs": 8}
    strategy = the_case(**alone, tp=None, pp=None).strategy
    assert (strategy.tensor_parallel_degree, strategy.pipeline_parallel_degree) == (1, 1)


def test_programs_that_shard_states_alone_have_data_parallelism_alone() -> None:
    stated = {"tp": None, "pp": None, "dp": None, "sharding": None}
    case = the_case(**stated, framework="HF Trainer")
    assert (case.strategy.shard_degree, case.strategy.tensor_parallel_degree) == (64, 1)
    assert Assumption.DATA_PARALLEL_ALONE in case.assumptions
    assert the_reason(**stated, framework="NeMo") is Unpriceable.LAYOUT


@pytest.mark.parametrize(
    ("changes", "alone"),
    [
        ({"framework": "DeepSpeed", "zero_stage": 3}, True),
        ({"framework": "DeepSpeed", "zero_stage": 2}, True),
        ({"framework": "BMTrain", "zero_stage": None}, True),
        ({"framework": "ColossalAI", "sharding": "gemini", "zero_stage": None}, True),
        ({"framework": "Lit-GPT", "zero_stage": None}, True),
        ({"framework": "DeepSpeed", "zero_stage": 1}, False),
        ({"framework": "Megatron-LM", "zero_stage": 3}, False),
    ],
)
def test_stages_2_and_3_of_zero_split_no_layer(changes: dict[str, Any], alone: bool) -> None:
    stated = {"tp": None, "pp": None, "dp": None, "sharding": None, **changes}
    if not alone:
        assert the_reason(**stated) is Unpriceable.LAYOUT
        return
    case = the_case(**stated)
    assert case.strategy.tensor_parallel_degree == case.strategy.pipeline_parallel_degree == 1
    assert Assumption.DATA_PARALLEL_ALONE in case.assumptions


def test_experts_that_leave_no_ranks_to_share_them_are_whole() -> None:
    """Mixtral on 8 ranks of tensor parallel 2 and expert parallel 8: 16 would be too many."""
    row = {
        "num_gpus": 8,
        "gpus_per_node": 8,
        "tp": 2,
        "pp": 1,
        "dp": 4,
        "ep": 8,
        "etp": None,
        "gbs": 4,
    }
    assert the_case(MIXTURE, **row).strategy.expert_tensor_parallel_degree == 1
    assert the_case(MIXTURE, **{**row, "ep": 4}).strategy.expert_tensor_parallel_degree == 2
    assert the_reason(MIXTURE, **{**row, "etp": 2}) is Unpriceable.EXPERTS


def test_a_degree_that_is_not_stated_is_what_the_others_leave() -> None:
    tensor = the_case(tp=None, pp=4, dp=8, gbs=64).strategy
    pipeline = the_case(tp=4, pp=None, dp=8, gbs=64).strategy
    assert (tensor.tensor_parallel_degree, tensor.pipeline_parallel_degree) == (2, 4)
    assert (pipeline.tensor_parallel_degree, pipeline.pipeline_parallel_degree) == (4, 2)
    assert the_reason(tp=3, pp=None, dp=8, framework="NeMo") is Unpriceable.LAYOUT


def test_a_batch_that_is_not_stated_is_a_micro_batch_on_each_rank_without_a_pipeline() -> None:
    case = the_case(gbs=None, grad_accum=None, dp=64, mbs=2)
    assert case.job.global_batch_size == 128
    assert Assumption.NO_ACCUMULATION in case.assumptions
    assert the_reason(KORTHIKANTI, gbs=None, grad_accum=None) is Unpriceable.BATCH


def test_a_sequence_on_each_rank_is_a_micro_batch_of_one() -> None:
    strategy = the_case(mbs=None, grad_accum=None, gbs=64).strategy
    assert (strategy.micro_batch_size, strategy.micro_batch_count) == (1, 1)


def test_nodes_that_are_not_stated_are_of_eight_or_as_many_as_divide() -> None:
    sizes = [
        the_case(num_gpus=count, gpus_per_node=None, dp=None, gbs=count)
        .cluster.node_groups[0]
        .devices_per_node
        for count in (6, 12, 64)
    ]
    assert sizes == [6, 4, 8]


@pytest.mark.parametrize(
    ("words", "schedule"),
    [
        ("Interleaved 1F1B", PipelineSchedule.INTERLEAVED),
        ("ZB_V", PipelineSchedule.ZB_V),
        ("1f1b (deepspeed)", PipelineSchedule.ONE_F_ONE_B),
        ("AFAB", PipelineSchedule.GPIPE),
    ],
)
def test_schedules_have_several_spellings(words: str, schedule: PipelineSchedule) -> None:
    case = the_case(KORTHIKANTI, pp_schedule=words, vpp=None)
    assert case.strategy.pipeline_schedule is schedule


def test_a_shard_group_leaves_replicas() -> None:
    strategy = the_case(shard_group_size=8).strategy
    assert (strategy.shard_degree, strategy.replicate_degree) == (8, 8)


def test_the_schedule_and_virtual_stages_are_the_rows() -> None:
    strategy = the_case(KORTHIKANTI).strategy
    assert strategy.pipeline_schedule is PipelineSchedule.INTERLEAVED
    assert strategy.virtual_pipeline_degree == 3


def test_virtual_stages_without_a_block_are_left_out() -> None:
    case = the_case(KORTHIKANTI, layers=90, vpp=12)
    assert case.strategy.virtual_pipeline_degree == 11
    assert Assumption.FEWER_VIRTUAL_STAGES in case.assumptions


def test_embedding_and_loss_are_virtual_stages_where_they_make_up_the_number() -> None:
    """94 layers and both ends on 8 ranks of 12 virtual stages."""
    case = the_case(KORTHIKANTI, layers=94, vpp=12)
    stages = case.strategy.stages
    assert stages is not None
    assert [stage.block_count for stage in stages] == [0] + [1] * 94 + [0]
    assert [stage.layers[0].first_block for stage in stages[1:-1]] == list(range(94))
    assert case.strategy.virtual_pipeline_degree == 12
    assert case.strategy.pipeline_schedule is PipelineSchedule.INTERLEAVED
    assert Assumption.ENDS_AS_STAGES in case.assumptions


def test_a_row_with_virtual_stages_without_a_layer_is_told() -> None:
    answer = run_comparison(compare(the_case(KORTHIKANTI, layers=94, vpp=12)))
    stages = answer.model_dump(mode="json")["strategy"]["stages"]
    assert [len(stage["layers"]) for stage in stages] == [0] + [1] * 94 + [0]
    assert "virtual stages without a layer: the embedding is the first, the loss the last" in (
        answer.assumptions
    )


def test_two_virtual_stages_are_interleaved_though_one_of_the_first_rank_has_no_layer() -> None:
    """14 layers and both ends on 8 ranks."""
    strategy = the_case(KORTHIKANTI, layers=14, vpp=2).strategy
    assert strategy.virtual_pipeline_degree == 2
    assert strategy.pipeline_schedule is PipelineSchedule.INTERLEAVED


def test_virtual_stages_of_a_layer_each_leave_no_rank_waiting_for_a_longer_one() -> None:
    """Ranks between hold 12 layers and pass each micro-batch in turns; ends hold 11 and less.

    All but filling and draining is the pace of 12 layers, as the closed form has it.
    """
    prediction = the_case(KORTHIKANTI, layers=94, vpp=12).price()
    assert prediction.simulated is not None
    assert abs(prediction.simulated.closed_form_error_ratio) < 0.01
    paces = [stage.forward_seconds + stage.backward_seconds for stage in prediction.stages]
    assert paces[1:-1] == pytest.approx([paces[1]] * 6)
    assert paces[0] < paces[1]


@pytest.mark.parametrize(
    ("changes", "fused"),
    [
        ({"gpu": "A100-SXM"}, False),
        ({"gpu": "A100-SXM", "flash_attention": True}, False),
        ({"gpu": "A100-SXM", "attention_kernel": "flash2"}, True),
        ({"gpu": "A100-SXM", "framework": "torchtitan"}, True),
        ({"gpu": "H100-SXM"}, True),
        ({"gpu": "A100-SXM", "attention_kind": "gqa"}, True),
    ],
)
def test_transformer_engine_fuses_latent_attention_on_hopper_and_later(
    changes: dict[str, Any], fused: bool
) -> None:
    """Its keys are of 192 elements and its values of 128."""
    latent = {"model": "deepseek-v2-lite", "layers": 4, "heads": 16, "attention_kind": "mla"}
    case = the_case(MIXTURE, **{**latent, **changes})
    assert case.job.fused_attention is fused
    assert (Assumption.ATTENTION_UNFUSED_HEADS in case.assumptions) is not fused


def test_selective_recomputation_of_megatron_is_none_of_ours_where_attention_is_fused() -> None:
    """It recomputes the attention core, as flash attention always does."""
    stated = {"recompute": "selective", "recompute_detail": "core attention only"}
    fused = the_case(KORTHIKANTI, **stated, flash_attention=True)
    unfused = the_case(KORTHIKANTI, **stated, flash_attention=False)
    kept = [case.strategy.stages[0].layers[0] for case in (fused, unfused)]
    assert kept[0].activation_checkpointing is ActivationCheckpointing.NONE
    assert kept[1].activation_checkpointing is ActivationCheckpointing.SELECTIVE
    assert (fused.job.fused_attention, unfused.job.fused_attention) == (True, False)


def test_selective_recomputation_of_torch_is_ours() -> None:
    group = the_case().strategy.stages[0].layers[0]
    assert group.activation_checkpointing is ActivationCheckpointing.SELECTIVE


def test_offloaded_activations_of_some_layers() -> None:
    case = the_case(offload="activations_cpu:8 layers", offload_activations=True)
    groups = [(g.first_block, g.block_count, g.offload) for g in case.strategy.stages[0].layers]
    assert groups == [(0, 8, (Offload.ACTIVATIONS,)), (8, 24, ())]


@pytest.mark.parametrize(
    ("framework", "sharding", "stack"),
    [
        ("Megatron-DeepSpeed", None, Stack.DEEPSPEED),
        ("NeMo 24.07", None, Stack.MEGATRON),
        ("InternEvo", None, Stack.DEEPSPEED),
        ("Megatron-SWIFT (Megatron-Core)", None, Stack.MEGATRON),
        ("PyTorch", "ddp", Stack.TORCH),
        (None, "deepspeed_zero2", Stack.DEEPSPEED),
        (None, "fsdp:FULL_SHARD", Stack.TORCH),
        ("PyTorch, ROCm 7.0.1", "distributed_optimizer", Stack.MEGATRON),
        ("composer/llm-foundry (PyTorch FSDP)", None, Stack.TORCH),
        ("HF Trainer + peft (+DeepSpeed)", "deepspeed_zero3", Stack.DEEPSPEED),
        ("HF Trainer + peft (+DeepSpeed)", "none", Stack.TORCH),
        ("TRL + DeepSpeed", None, Stack.DEEPSPEED),
        ("Axolotl (FSDP)", None, Stack.TORCH),
    ],
)
def test_the_stack_follows_the_framework(
    framework: str | None, sharding: str | None, stack: Stack
) -> None:
    assert the_case(framework=framework, sharding=sharding).job.stack is stack


def test_a_submission_to_mlperf_with_nvidias_configuration_runs_nemo() -> None:
    source = "mlcommons/training_results implementations/config_G894-AD1_8x8x1xtp4pp1cp2.sh"
    assert the_case(framework="CUDA 12.3", source=source).job.stack is Stack.MEGATRON
    noted = the_case(framework="PyTorch 2.8.0, ROCm 7.0", notes="FP8=True, TP_COMM_OVERLAP=False")
    assert (noted.job.stack, noted.others) == (Stack.MEGATRON, ())


@pytest.mark.parametrize(
    ("framework", "sharding"),
    [
        ("an own program", None),
        ("OneFlow", "ddp"),
        ("own code", "zero1"),
        ("PyTorch NVIDIA Release 25.09", None),
        ("PyTorch 2.8.0.dev20251001+rocm7.0.0", None),
    ],
)
def test_a_program_that_is_not_known_may_be_of_any_stack(
    framework: str, sharding: str | None
) -> None:
    case = the_case(framework=framework, sharding=sharding)
    assert [one.job.stack for one in (case, *case.others)] == list(Stack)
    assert Assumption.STACK_UNKNOWN in case.assumptions


@pytest.mark.parametrize(("stated", "torch"), [(None, False), (True, True), (False, False)])
def test_a_program_that_is_not_known_asks_plain_torch_for_a_divided_loss(
    stated: bool | None, torch: bool
) -> None:
    case = the_case(framework="an own program", sharding=None, vocab_parallel_loss=stated)
    divided = [one.job.vocabulary_parallel_loss for one in (case, *case.others)]
    assert divided == [torch, stated is not False, stated is not False]
    assert the_case(vocab_parallel_loss=stated).job.vocabulary_parallel_loss == (
        stated is not False
    )


def test_the_prediction_of_an_unknown_stack_is_the_mean_of_all_and_wider() -> None:
    """Logarithms are averaged, and what is between the stacks comes to the variance of each."""
    case = the_case(framework="an own program", sharding=None)
    each = [one.price().step_seconds for one in (case, *case.others)]
    mixed = compare(case).prediction.step_seconds
    logs = [math.log(one.p50) for one in each]
    widths = [math.log(one.p90 / one.p50) for one in each]
    assert math.log(mixed.p50) == pytest.approx(statistics.fmean(logs))
    width = math.log(mixed.p90 / mixed.p50)
    between = statistics.pvariance(logs) * NormalDist().inv_cdf(0.9) ** 2
    assert width**2 == pytest.approx(statistics.fmean(w**2 for w in widths) + between)
    chances = [one.price().fits_probability for one in (case, *case.others)]
    assert compare(case).prediction.fits_probability == pytest.approx(statistics.fmean(chances))


@pytest.mark.parametrize(
    ("changes", "narrow"),
    [
        ({"precision": "tf32"}, True),
        ({"precision": "fp32"}, False),
        ({"precision": "bf16", "framework": "Megatron-LM"}, False),
        ({"precision": "fp32", "framework": "Megatron-LM"}, True),
        ({"precision": "tf32", "gpu": "V100-SXM", "gpu_mem_gb": 32}, False),
    ],
)
def test_products_of_fp32_are_on_tensor_cores_where_row_or_program_says(
    changes: dict[str, Any], *, narrow: bool
) -> None:
    """A V100 has no TF32."""
    assert the_case(**changes).job.tensor_float_32 is narrow


def test_a_port_whose_number_is_not_stated_is_one_or_the_profiles_network() -> None:
    """100 Gb/s of a node of eight are 12.5 GB/s, of which 0.73 are reached."""
    words = {"framework": "torchtitan", "interconnect": "NVLink; InfiniBand 100 Gb/s"}
    case = the_case(num_gpus=16, dp=16, **words)
    rates = [
        one.hardware.kinds[0].levels[-1].bandwidth_bytes_per_second for one in (case, *case.others)
    ]
    usual = the_case(num_gpus=16, dp=16).hardware.kinds[0].levels[-1].bandwidth_bytes_per_second
    assert rates == pytest.approx([usual, 0.73 * 12.5e9 / 8])
    assert Assumption.PORTS_UNKNOWN in case.assumptions
    inside = the_case(num_gpus=8, dp=8, **words)
    assert (inside.others, Assumption.PORTS_UNKNOWN in inside.assumptions) == ((), False)


@pytest.mark.parametrize(
    ("framework", "stack"),
    [
        ("ColossalAI", Stack.DEEPSPEED),
        ("BMTrain", Stack.DEEPSPEED),
        ("ms-swift", Stack.TORCH),
        ("litgpt", Stack.TORCH),
    ],
)
def test_frameworks_are_known_by_their_names(framework: str, stack: Stack) -> None:
    case = the_case(framework=framework, sharding=None)
    assert (case.job.stack, case.others) == (stack, ())
    assert Assumption.STACK_UNKNOWN not in case.assumptions


@pytest.mark.parametrize(
    ("spelling", "precision"),
    [
        ("bfloat16", Precision.BF16),
        ("bf16-mixed", Precision.BF16),
        ("16-mixed", Precision.FP16),
        ("float16", Precision.FP16),
        ("tf32", Precision.FP32),
        ("fp8:blockwise", Precision.FP8),
        ("MXFP8", Precision.FP8),
    ],
)
def test_number_formats_have_several_spellings(spelling: str, precision: Precision) -> None:
    assert the_case(precision=spelling).job.precision is precision


@pytest.mark.parametrize("spelling", ["nvfp4", "mxfp4", "int8", "nf4", "b"])
def test_number_formats_that_are_not_modelled_are_named(spelling: str) -> None:
    with pytest.raises(Unpriced, match=spelling) as caught:
        the_case(precision=spelling)
    assert caught.value.reason is Unpriceable.PRECISION


def test_every_second_block_has_the_window_that_a_row_states() -> None:
    graph = the_case(attention_kind="gqa+alternating_sliding_window_128").graph
    attentions = [run.block.attention for run in graph.runs]
    windows = [a.sliding_window_tokens for a in attentions if isinstance(a, GroupedQueryAttention)]
    assert windows == [128, None] * 16


def test_every_block_has_the_window_that_a_row_states_without_turns() -> None:
    (run,) = the_case(attention_kind="gqa+sliding_window_4096").graph.runs
    assert isinstance(run.block.attention, GroupedQueryAttention)
    assert run.block.attention.sliding_window_tokens == 4096


@pytest.mark.parametrize(
    ("activation", "gated"),
    [("SwiGLU", True), ("gated-silu", True), ("gelu_pytorch_tanh", False), ("Squared ReLU", False)],
)
def test_activations_are_known_by_their_spellings(activation: str, gated: bool) -> None:
    feed_forward = the_case(activation=activation).graph.runs[0].block.feed_forward
    assert isinstance(feed_forward, DenseFeedForward)
    assert feed_forward.gated is gated


@pytest.mark.parametrize("position", ["rope", "RoPE", "rotary (25 %)"])
def test_rotary_positions_are_known_by_their_spellings(position: str) -> None:
    attention = the_case(position=position).graph.runs[0].block.attention
    assert isinstance(attention, GroupedQueryAttention)
    assert attention.rotary


@pytest.mark.parametrize("model", ["nemotron-3-super", "Nemotron-H-8B", "falcon-mamba-7b"])
def test_models_whose_names_say_state_spaces_are_not_priced_as_attention(model: str) -> None:
    assert the_reason(model=model) is Unpriceable.ATTENTION


@pytest.mark.parametrize(
    ("model", "shipped"),
    [("Nemotron-H-56B", "nemotron-h-56b"), ("nemotron-3-nano", "nemotron-3-nano-30b-a3b")],
)
def test_state_spaces_of_a_shipped_model_are_priced_by_its_name(model: str, shipped: str) -> None:
    graph = the_case(model=model, framework="Megatron-LM").graph
    assert graph.name == shipped
    assert any(run.block.mixer is not None for run in graph.runs)


def test_what_a_row_does_not_state_is_the_reason() -> None:
    assert the_reason(gpu=None) is Unpriceable.DEVICE
    assert the_reason(seq_len=None) is Unpriceable.SEQUENCE


def test_a_field_that_cannot_be_read_is_the_reason() -> None:
    with pytest.raises(Unpriced, match=r"recompute: .*got some") as caught:
        the_case(recompute="some")
    assert caught.value.reason is Unpriceable.FIELD


def test_block_scaled_numbers_are_fp8_and_said() -> None:
    case = the_case(precision="mxfp8", gpu="B200")
    assert case.job.precision is Precision.FP8
    assert Assumption.MICROSCALED in case.assumptions


@pytest.mark.parametrize("device", [name for name in device_names() if name != "cpu-gloo"])
def test_every_device_may_have_run(device: str) -> None:
    assert the_case(MIXTURE, gpu=device, gpu_mem_gb=None).hardware.kinds[0].device == device


@pytest.mark.parametrize(
    ("gpu", "gigabytes", "device", "memory_bytes"),
    [
        ("A100-SXM", 80, "a100-sxm4-80gb", None),
        ("A100-SXM", 40, "a100-sxm4-40gb", None),
        ("B200", 183359, "b200-sxm-180gb", None),
        ("H100-SXM", 96, "h100-sxm5-80gb", 0.985 * 96 * GIB),
        ("a100-sxm4-80gb", None, "a100-sxm4-80gb", None),
    ],
)
def test_a_gpu_is_a_profile_with_its_own_memory(
    gpu: str, gigabytes: float | None, device: str, memory_bytes: float | None
) -> None:
    (group,) = the_case(gpu=gpu, gpu_mem_gb=gigabytes).cluster.node_groups
    assert group.device == device
    assert group.memory_bytes == (None if memory_bytes is None else pytest.approx(memory_bytes))


@pytest.mark.parametrize(
    ("devices", "domain"), [(32, 32), (72, 72), (144, 72), (256, 64), (192, 64)]
)
def test_a_rack_is_used_in_equal_parts(devices: int, domain: int) -> None:
    """Of racks of 72, 256 devices fill 64 each, so that a group of 64 lies in one."""
    case = the_case(gpu="GB200", gpus_per_node=4, num_gpus=devices, dp=devices, gbs=devices)
    (kind,) = case.hardware.kinds
    assert kind.levels[0].device_count == domain


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "TPU v3"}, Unpriceable.DEVICE),
        ({"gpu": "mixed"}, Unpriceable.MIXED_DEVICES),
        ({"num_gpus": None}, Unpriceable.DEVICE_COUNT),
        ({"num_gpus": 60, "dp": 60}, Unpriceable.DEVICE_COUNT),
        ({"layers": None, "model": "mine"}, Unpriceable.SHAPE),
        ({"vocab": None}, Unpriceable.SHAPE),
        ({"attention_kind": "mamba"}, Unpriceable.ATTENTION),
        ({"attention_kind": "mla", "model": "mine"}, Unpriceable.ATTENTION),
        ({"arch_note": "hybrid MEMEM*EMEMEM*E"}, Unpriceable.ATTENTION),
        ({"arch_note": "encoder-decoder"}, Unpriceable.PARTS),
        ({"model": "t5-11b"}, Unpriceable.PARTS),
        ({"model": "my-vl-7b"}, Unpriceable.PARTS),
        ({"arch_note": "vision-language, a CLIP tower"}, Unpriceable.PARTS),
        ({"activation": None}, Unpriceable.FEED_FORWARD),
        ({"tp": None, "dp": None, "sharding": None, "framework": "NeMo"}, Unpriceable.LAYOUT),
        ({"tp": 8}, Unpriceable.PRODUCT),
        ({"ep": 8}, Unpriceable.EXPERTS),
        ({"pp": 64, "dp": 1, "gbs": 64}, Unpriceable.STAGES),
        ({"mbs": None, "gbs": 128}, Unpriceable.MICRO_BATCH),
        ({"gbs": None, "mbs": None}, Unpriceable.BATCH),
        ({"gbs": 100}, Unpriceable.BATCH_DIVISION),
        ({"precision": "nvfp4"}, Unpriceable.PRECISION),
        ({"recompute": "partial"}, Unpriceable.RECOMPUTE),
        ({"offload": "activations_cpu:fine_grained"}, Unpriceable.OFFLOAD),
        ({"optimizer": "shampoo"}, Unpriceable.OPTIMIZER),
        ({"layers": 4096, "hidden_size": 2**30, "ffn_size": 2**30}, Unpriceable.LIMITS),
    ],
)
def test_a_row_without_an_honest_price_has_its_reason(
    changes: dict[str, Any], reason: Unpriceable
) -> None:
    assert the_reason(**changes) is reason


def test_a_schedule_that_is_not_modelled_is_a_reason() -> None:
    assert the_reason(KORTHIKANTI, pp_schedule="v-half") is Unpriceable.SCHEDULE


def test_interleaved_micro_batches_that_make_no_equal_rounds_are_a_reason() -> None:
    """67 micro-batches on 8 stages are eight rounds and three left over."""
    assert the_reason(KORTHIKANTI, gbs=67) is Unpriceable.SCHEDULE


def test_experts_need_the_ranks_that_hold_them() -> None:
    assert the_reason(MIXTURE, ep=64) is Unpriceable.EXPERTS


def test_a_batch_near_whole_micro_batches_is_rounded_and_said() -> None:
    case = the_case(gbs=6399)
    assert case.job.global_batch_size == 6400
    assert Assumption.BATCH_ROUNDED in case.assumptions


def test_an_illegal_strategy_is_priced_and_its_breach_is_kept() -> None:
    case = the_case(KORTHIKANTI, ffn_size=49156)
    assert case.breaches == ("tensor_parallel_degree",)
    assert case.price().step_seconds.p50 > 0


def test_attention_whose_core_a_recipe_recomputes_was_not_fused() -> None:
    unstated = {"recompute": "selective", "flash_attention": None}
    detail = "selective applies to attention core"
    case = the_case(KORTHIKANTI, **unstated, recompute_detail=detail)
    assert not case.job.fused_attention
    assert Assumption.ATTENTION_UNFUSED in case.assumptions
    other = the_case(KORTHIKANTI, **unstated, recompute_detail="moe_act")
    assert other.job.fused_attention


@pytest.mark.parametrize(
    ("changes", "copied"),
    [
        ({"framework": "Megatron-LM", "precision": "fp8"}, True),
        ({"framework": "Megatron-LM", "precision": "bf16"}, False),
        ({"framework": "Megatron-LM", "precision": "fp8", "model": "weekly_native_fp8"}, False),
        ({"framework": "Megatron-LM", "precision": "fp8", "notes": "--fp8-param-gather"}, False),
        ({"framework": "Megatron-LM", "precision": "fp8", "copies_in_8_bits": False}, False),
        ({"framework": "NeMo 24.07", "precision": "fp8"}, False),
        ({"framework": "NeMo 24.07", "precision": "fp8", "copies_in_8_bits": True}, True),
        ({"framework": "torchtitan", "precision": "fp8"}, False),
    ],
)
def test_megatron_alone_keeps_weights_in_16_bits_beside_copies_in_8(
    changes: dict[str, Any], copied: bool
) -> None:
    assert the_case(**changes).job.copies_in_8_bits is copied


@pytest.mark.parametrize(
    ("changes", "gathered"),
    [
        ({"precision": "fp8", "notes": "tensorwise with float8 all-gather"}, True),
        ({"precision": "fp8", "notes": "rowwise with bfloat16 all-gather"}, False),
        ({"precision": "fp8", "gathered_in_8_bits": True}, True),
        ({"precision": "bf16", "gathered_in_8_bits": True}, False),
        ({"precision": "fp8", "framework": "NeMo 24.07", "gathered_in_8_bits": True}, False),
    ],
)
def test_fully_shard_gathers_in_8_bits_where_a_row_says_so(
    changes: dict[str, Any], gathered: bool
) -> None:
    case = the_case(**{"framework": "torchtitan", **changes})
    assert case.job.gathered_in_8_bits is gathered
