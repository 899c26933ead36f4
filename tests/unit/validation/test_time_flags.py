"""What a row's notes and knobs say of time reaches the job and the strategy."""

from __future__ import annotations

import pytest

from planner.schema.job import Precision, Stack
from planner.validation.case import case_of
from planner.validation.reasons import Assumption
from tests.measured_rows import KORTHIKANTI, MIXTURE, TORCHTITAN, a_run


@pytest.mark.parametrize(
    ("notes", "graphs", "overlapped"),
    [
        (None, False, False),
        ("cuda_graph_impl=full_iteration, cuda_graph_scope=[]", True, False),
        ("cuda_graph_impl=local", True, False),
        ("config via filename match nodes x gpus x GA; MCORE_CUDA_GRAPH=1", True, False),
        ("TP_COMM_OVERLAP=1, LAYER_CUDA_GRAPH=0", False, False),
        ("cuda_graph_impl=transformer_engine, moe_a2a_overlap=True", False, True),
        ("moe_a2a_overlap=False", False, False),
        ("recipe qwen3_30b_a3b_pretrain_8gpu_gb200_fp8mx_config at tag v0.6.0", True, True),
        ("recipe qwen3_30b_a3b_pretrain_8gpu_gb200_bf16_config at tag v0.6.0", False, False),
    ],
)
def test_notes_name_graphs_of_all_kernels_and_hidden_exchanges(
    notes: str | None, graphs: bool, overlapped: bool
) -> None:
    job = case_of(a_run(MIXTURE, notes=notes)).job
    assert (job.cuda_graphs, job.overlapped_experts) == (graphs, overlapped)


@pytest.mark.parametrize(
    ("notes", "overlapped"),
    [
        ("Table 4; 2D + AsyncTP", True),
        ("async TP; seq_len = config default", True),
        ("vanilla TP; seq_len = config default", False),
        ("TP_COMM_OVERLAP=True, LAYER_CUDA_GRAPH=0", True),
        ("TP_COMM_OVERLAP=False", None),
        (None, None),
    ],
)
def test_notes_say_that_collectives_run_beside_products(
    notes: str | None, overlapped: bool | None
) -> None:
    """Megatron hides some of backward's without the option too, and rows do not say otherwise."""
    assert case_of(a_run(MIXTURE, notes=notes)).job.overlapped_tensor_parallel is overlapped


def test_a_column_says_so_before_notes_and_programs() -> None:
    stated = a_run(KORTHIKANTI, notes="vanilla TP", tensor_parallel_overlap=True, copied_rows=True)
    job = case_of(stated).job
    assert (job.overlapped_tensor_parallel, job.copied_rows) == (True, True)


@pytest.mark.parametrize(
    ("framework", "overlapped", "copied"),
    [
        ("torchtitan (2025-06)", None, None),
        ("nanotron", None, False),
        ("AA-Scaling (Aleph Alpha)", None, False),
        ("Megatron-LM", None, None),
        ("Megatron-LM (2021-04)", False, None),
    ],
)
def test_programs_differ_in_what_they_hide_and_copy(
    framework: str, overlapped: bool | None, copied: bool | None
) -> None:
    job = case_of(a_run(TORCHTITAN, framework=framework)).job
    assert (job.overlapped_tensor_parallel, job.copied_rows) == (overlapped, copied)


@pytest.mark.parametrize(
    ("scope", "captured"),
    [
        ("['attn', 'moe_router', 'moe_preprocess']", True),
        ("['moe_router', 'moe_preprocess']", False),
        ("['attn']", False),
        ("[]", False),
    ],
)
def test_notes_name_graphs_of_attention_and_routing(scope: str, captured: bool) -> None:
    notes = f"cuda_graph_impl=transformer_engine, cuda_graph_scope={scope}"
    assert case_of(a_run(MIXTURE, notes=notes)).job.attention_graphs is captured


@pytest.mark.parametrize(
    ("notes", "fixed"),
    [
        ("container 25.09; variant tokendrop; router force-balanced", True),
        ("moe_pad_expert_input_to_capacity=True", True),
        ("container 25.09; variant dropless", False),
        (None, False),
    ],
)
def test_notes_say_that_tokens_beyond_a_capacity_are_dropped(
    notes: str | None, fixed: bool
) -> None:
    assert case_of(a_run(MIXTURE, notes=notes)).job.fixed_expert_tokens is fixed


@pytest.mark.parametrize(
    ("words", "gpus", "blocking"),
    [
        ("Omni-Path; CUDA_LAUNCH_BLOCKING=1 on multi-node runs", 16, True),
        ("Omni-Path; CUDA_LAUNCH_BLOCKING=1 on multi-node runs", 8, False),
        ("CUDA_LAUNCH_BLOCKING=1", 8, True),
        ("CUDA_LAUNCH_BLOCKING=0", 16, False),
        (None, 16, False),
    ],
)
def test_a_row_says_that_its_host_waited_for_kernels(
    words: str | None, gpus: int, blocking: bool
) -> None:
    changes = {"interconnect": words, "num_gpus": gpus, "dp": gpus, "tp": 1, "pp": 1, "vpp": None}
    run = a_run(KORTHIKANTI, **changes, mbs=1, gbs=gpus, layers=2)
    assert case_of(run).job.blocking_launches is blocking


@pytest.mark.parametrize(("framework", "overlapped"), [("InternEvo", True), ("DeepSpeed", None)])
def test_internevo_reduces_gradients_under_backward_and_broadcasts_parameters(
    framework: str, overlapped: bool | None
) -> None:
    job = case_of(a_run(MIXTURE, framework=framework)).job
    assert job.overlapped_gradients is overlapped
    assert job.parameter_broadcasts is bool(overlapped)


@pytest.mark.parametrize(
    ("stated", "by_rows"), [("fp8-rowwise", True), ("fp8", False), (None, False)]
)
def test_a_format_says_whether_rows_have_scales_of_their_own(
    stated: str | None, by_rows: bool
) -> None:
    job = case_of(a_run(MIXTURE, precision="fp8", precision_raw=stated)).job
    assert job.row_scaled_fp8 is by_rows


@pytest.mark.parametrize(("module", "runs_again"), [("mlp", False), ("moe", True)])
def test_a_mixture_runs_its_experts_again_under_their_own_name(
    module: str, runs_again: bool
) -> None:
    """`mlp` is that of dense layers."""
    changes = {"recompute": "selective", "recompute_detail": f"modules=['{module}']"}
    ((layer, _),) = case_of(a_run(MIXTURE, **changes)).workload.runs
    assert (layer.again is not None) is runs_again


def test_a_dense_model_runs_its_mlp_again() -> None:
    changes = {"recompute": "selective", "recompute_detail": "modules=['mlp']"}
    ((layer, _),) = case_of(a_run(KORTHIKANTI, flash_attention=True, **changes)).workload.runs
    assert layer.again is not None
    assert "ffn_down" in layer.again.gemms


@pytest.mark.parametrize(
    ("framework", "compiled", "fused", "generation"),
    [
        ("torchtitan", True, True, None),
        ("torchtitan", None, None, None),
        ("nanotron", None, True, None),
        ("composer/llm-foundry (PyTorch FSDP)", None, None, 1),
        ("MaxText JAX", None, True, None),
    ],
)
def test_a_framework_says_what_its_kernels_are(
    framework: str, compiled: bool | None, fused: bool | None, generation: int | None
) -> None:
    job = case_of(a_run(framework=framework, compile=compiled)).job
    assert (job.fused_elementwise, job.flash_attention_generation) == (fused, generation)


@pytest.mark.parametrize(
    ("columns", "field", "expected"),
    [
        ({"norm_kernel": "unfused"}, "fused_norms", False),
        ({"norm_kernel": "fused"}, "fused_norms", True),
        ({"attention_kernel": "flash3"}, "flash_attention_generation", 3),
        ({"attention_kernel": "cudnn"}, "fused_attention", True),
        ({"attention_kernel": "unfused"}, "fused_attention", False),
        ({"loss_kernel": "in_place"}, "fused_loss", True),
        ({"loss_kernel": "plain", "framework": "litgpt"}, "fused_loss", False),
        ({"loss_kernel": "linear"}, "fused_linear_loss", True),
        ({"loss_kernel": "shifted"}, "shifted_logits", True),
        ({"framework": "HF Trainer"}, "shifted_logits", True),
        ({"framework": "HF Trainer", "model": "qwen-7b"}, "shifted_logits", False),
        ({"framework": "ms-swift", "model": "qwen-7b"}, "shifted_logits", True),
        ({"framework": "HF Trainer", "loss_kernel": "plain"}, "shifted_logits", False),
        ({"framework": "torchtitan"}, "shifted_logits", False),
        ({"vocab_parallel_loss": False}, "vocabulary_parallel_loss", False),
        ({"cuda_graphs": "full"}, "cuda_graphs", True),
        ({"cuda_graphs": "attention"}, "attention_graphs", True),
        ({"cuda_graphs": "none", "framework": "MaxText"}, "cuda_graphs", False),
        ({"master_weights": False}, "states_in_16_bits", True),
        ({"master_weights": True, "framework": "torchtune"}, "states_in_16_bits", False),
        ({"gradient_dtype": "bf16"}, "gradients_in_16_bits", True),
        ({"gradient_dtype": "fp32", "framework": "NeMo"}, "gradients_in_16_bits", False),
        ({"sharding": "ddp (fp32 gradient all-reduce)"}, "summed_gradients", True),
        ({"framework": "MaxText", "flash_attention": False}, "softmax", "reductions"),
        ({"framework": "MaxText"}, "softmax", None),
        (
            {"framework": "DeepSpeed/Megatron-LM v1.1.5", "flash_attention": False},
            "softmax",
            "masked",
        ),
        ({"framework": "Megatron-DeepSpeed", "flash_attention": False}, "softmax", None),
        ({"dispatcher": "flex"}, "deduplicated_dispatch", True),
        ({"dispatcher": "alltoall"}, "deduplicated_dispatch", False),
        ({"notes": "moe_flex_dispatcher_backend=hybridep"}, "deduplicated_dispatch", True),
        ({"stack": "deepspeed"}, "stack", "deepspeed"),
        ({"notes": "a run with use_fused_rms_norm=False"}, "fused_norms", False),
        ({"notes": "flash_attention2 + RMS kernel"}, "fused_norms", True),
        ({"notes": "flash_attention2 + RMS kernel"}, "fused_elementwise", None),
        ({"notes": "norm kernel: flash_attention2; x"}, "fused_norms", False),
        ({"notes": "flash_attentionv1.0.8"}, "flash_attention_generation", 1),
        ({"notes": "FULL_CUDA_GRAPH=1"}, "cuda_graphs", True),
        ({"notes": "FULL_CUDA_GRAPH=0"}, "cuda_graphs", False),
        ({"blocking_launches": True}, "blocking_launches", True),
        (
            {"blocking_launches": False, "notes": "CUDA_LAUNCH_BLOCKING=1"},
            "blocking_launches",
            False,
        ),
        ({"fixed_expert_tokens": True}, "fixed_expert_tokens", True),
        ({"notes": "variant tokendrop"}, "fixed_expert_tokens", True),
        ({"overlapped_experts": True}, "overlapped_experts", True),
        (
            {"overlapped_experts": False, "notes": "moe_a2a_overlap=True"},
            "overlapped_experts",
            False,
        ),
        ({"steps_in_backward": True}, "steps_in_backward", True),
        ({"optimizer": "AdamW, layerwise"}, "steps_in_backward", True),
    ],
)
def test_what_a_row_states_of_its_program_counts_before_what_its_name_says(
    columns: dict[str, object], field: str, expected: object
) -> None:
    assert getattr(case_of(a_run(**columns)).job, field) == expected


@pytest.mark.parametrize(
    ("columns", "assumption"),
    [
        ({"dispatcher": "allgather"}, Assumption.DISPATCH_ALLGATHER),
        ({"attention_kernel": "cudnn"}, Assumption.ATTENTION_CUDNN),
    ],
)
def test_a_kernel_that_is_priced_as_another_is_said(
    columns: dict[str, object], assumption: Assumption
) -> None:
    assert assumption in case_of(a_run(**columns)).assumptions
    assert assumption not in case_of(a_run()).assumptions


def test_what_megatron_deepspeed_does_not_state_is_its_default() -> None:
    """`--bf16` and `--use-flash-attn` are options; dropout is 0.1 unless turned off."""
    changes = {"framework": "Megatron-DeepSpeed", "precision": None, "flash_attention": None}
    case = case_of(a_run(KORTHIKANTI, **changes, activation="relu"))
    assert (case.job.precision, case.job.fused_attention) == (Precision.FP32, False)
    assert case.job.dropout
    assert Assumption.PRECISION_32_BIT in case.assumptions
    assert Assumption.ATTENTION_UNFUSED_BY_DEFAULT in case.assumptions


@pytest.mark.parametrize(
    ("framework", "stated", "expected"),
    [
        ("NeMo 24.07", None, 12),
        ("NeMo 24.07", 3, 3),
        ("Megatron-LM", None, 1),
        ("Megatron-Bridge/Megatron-Core (26.02 NeMo Container)", None, 1),
    ],
)
def test_nemos_recipes_interleave_where_they_do_not_say(
    framework: str, stated: int | None, expected: int
) -> None:
    """96 layers on 8 stages; as many micro-batches as go round."""
    run = a_run(KORTHIKANTI, framework=framework, vpp=stated, pp_schedule=None)
    case = case_of(run)
    assert case.strategy.virtual_pipeline_degree == expected
    assert (Assumption.VIRTUAL_STAGES_MOST in case.assumptions) == (expected == 12)


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [
        ("4 x 100 Gb/s Ethernet per node", 0.4 * 400 / 8 / 8),
        ("4 x 100 Gb/s RoCE Ethernet per node", 0.73 * 400 / 8 / 8),
    ],
)
def test_sockets_reach_less_of_ethernet_than_remote_access(text: str, gigabytes: float) -> None:
    (kind,) = case_of(a_run(interconnect=text)).hardware.kinds
    assert kind.levels[-1].bandwidth_bytes_per_second == pytest.approx(gigabytes * 1e9)


def test_gpt_neox_runs_on_deepspeed_and_fuses_attention_on_request() -> None:
    job = case_of(a_run(KORTHIKANTI, framework="GPT-NeoX", flash_attention=None)).job
    assert (job.stack, job.fused_attention) == (Stack.DEEPSPEED, False)


def test_recipes_of_mixtures_are_laid_out_by_hand() -> None:
    run = a_run(MIXTURE, framework="NeMo 2 / Megatron-Core", pp=2, dp=None, vpp=None)
    assert case_of(run).strategy.virtual_pipeline_degree == 1
