"""Keys that users' files have beside the usual ones: DeepSpeed's older and rarer, NeMo's YAML."""

from __future__ import annotations

import json

import pytest

from planner.errors import DocumentError
from planner.importers.models import read_model
from planner.importers.training.config import Setting
from planner.importers.training.files import config_from_text
from planner.schema.strategy import Offload

LLAMA = read_model("llama-3-8b")[1]
NEMO = """
trainer: {num_nodes: 2, devices: 8, precision: PRECISION}
model:
  micro_batch_size: 2
  global_batch_size: 256
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
  encoder_seq_length: 2048
  max_position_embeddings: ${.encoder_seq_length}
  sequence_parallel: true
  activations_checkpoint_granularity: full
  activations_checkpoint_method: uniform
  activations_checkpoint_num_layers: 1
  optim: {name: distributed_fused_adam}
"""


def read(text, suffix):
    """What the text says of 16 devices."""
    setting = Setting(graph=LLAMA, device_count=16)
    return config_from_text(text, setting, source=f"given{suffix}", suffix=suffix)


def deepspeed(zero, **more):
    """What DeepSpeed's configuration with this section says."""
    fields = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, **more}
    return read(json.dumps(fields), ".json")


def test_deepspeeds_older_switches_offload_as_the_newer_sections_do():
    assert deepspeed({"stage": 2, "cpu_offload": True}).strategy.offload == (Offload.OPTIMIZER,)
    both = deepspeed({"stage": 3, "cpu_offload": True, "cpu_offload_params": True}).strategy
    assert both.offload == (Offload.OPTIMIZER, Offload.PARAMETERS)


def test_mics_shards_within_groups():
    strategy = deepspeed({"stage": 3, "mics_shard_size": 8}).strategy
    assert strategy.data_parallel_replicate_degree == 2
    assert strategy.data_parallel_shard_degree == 8


@pytest.mark.parametrize(("stage", "size"), [(2, 8), (3, 7)])
def test_mics_of_another_stage_or_of_a_group_that_does_not_divide_is_refused(stage, size):
    with pytest.raises(DocumentError, match="mics_shard_size"):
        deepspeed({"stage": stage, "mics_shard_size": size})


def test_bfloat16_is_deepspeeds_older_name_of_bf16():
    assert deepspeed({}, bfloat16={"enabled": True}).job["precision"] == "bf16"


@pytest.mark.parametrize(
    ("given", "priced"), [("AdamW", "adamw"), ("Muon", "muon"), ("SGD", "sgd"), ("Lion", "adamw")]
)
def test_the_optimizer_is_the_files(given, priced):
    config = deepspeed({}, optimizer={"type": given})
    assert config.job["optimizer"] == priced
    assert any(given in said for said in config.assumptions) == (given == "Lion")


@pytest.mark.parametrize(
    ("zero", "said"),
    [
        ({"offload_optimizer": {"device": "cpu", "ratio": 0.3}}, "ratio 0.3 is priced as 1"),
        ({"offload_optimizer": {"device": "cpu", "super_offload": True}}, "super_offload"),
        ({"zero_quantized_weights": True}, "zero_quantized_weights"),
        ({"zenflow": {"topk_ratio": 0.05}}, "zenflow"),
    ],
)
def test_what_is_not_priced_of_zero_is_said(zero, said):
    assert any(said in one for one in deepspeed({"stage": 3, **zero}).assumptions)


def test_nemos_recipe_has_megatrons_settings_as_keys():
    config = read(NEMO.replace("PRECISION", "bf16-mixed"), ".yaml")
    strategy = config.strategy
    assert (strategy.tensor_parallel_degree, strategy.pipeline_parallel_degree) == (4, 2)
    assert strategy.sequence_parallel
    assert strategy.micro_batch_size == 2
    layers = [group for stage in strategy.stages for group in stage.layers]
    assert {group.zero_stage for group in layers} == {1}
    assert {group.activation_checkpointing for group in layers} == {"full"}
    assert config.job["sequence_length"] == 2048
    assert config.job["precision"] == "bf16"


NEMO_RL = """
policy:
  train_global_batch_size: 64
  train_micro_batch_size: 1
  precision: bfloat16
  dtensor_cfg: {enabled: false}
  megatron_cfg:
    enabled: true
    activation_checkpointing: false
    recompute_granularity: full
    tensor_model_parallel_size: 2
    optimizer: {optimizer: adam, optimizer_cpu_offload: true, optimizer_offload_fraction: FRACTION}
    distributed_data_parallel_config: {grad_reduce_in_fp32: WIDE}
"""


@pytest.mark.parametrize(("wide", "narrow"), [("false", True), ("true", False)])
def test_gradients_that_megatrons_buckets_reduce_in_16_bits_are_so_in_the_job(wide, narrow):
    job = read(NEMO_RL.replace("WIDE", wide).replace("FRACTION", "1.0"), ".yaml").job
    assert job.get("gradients_in_16_bits", False) is narrow


@pytest.mark.parametrize(("fraction", "moved"), [("0.0", ()), ("1.0", (Offload.OPTIMIZER,))])
def test_an_offload_of_no_part_moves_nothing_which_is_told(fraction, moved):
    config = read(NEMO_RL.replace("WIDE", "true").replace("FRACTION", fraction), ".yaml")
    (group,) = config.strategy.stages[0].layers
    assert group.offload == moved
    assert group.activation_checkpointing == "none"
    told = [one for one in config.assumptions if "moves nothing" in one]
    assert len(told) == (not moved)


@pytest.mark.parametrize(
    ("flags", "narrow"),
    [
        ("--fp16", True),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", False),
        ("--bf16", False),
        ("--bf16 --grad-reduce-in-bf16", True),
    ],
)
def test_megatron_reduces_gradients_of_fp16_in_16_bits_unless_asked(flags, narrow):
    job = read(f"pretrain_gpt.py --micro-batch-size 1 {flags}", ".sh").job
    assert job.get("gradients_in_16_bits", False) is narrow


@pytest.mark.parametrize(("flags", "copied"), [("", True), ("--fp8-param-gather", False)])
def test_megatron_copies_weights_to_8_bits_unless_it_gathers_them_so(flags, copied):
    job = read(
        f"pretrain_gpt.py --micro-batch-size 1 --bf16 --fp8-format hybrid {flags}", ".sh"
    ).job
    assert job.get("copies_in_8_bits", False) is copied


NANOTRON = """
parallelism: {dp: 16, pp: 1, tp: 1, expert_parallel_size: EXPERTS, tp_recompute_allgather: false}
tokens: {micro_batch_size: 1, batch_accumulation_per_replica: 1}
optimizer: {zero_stage: 1, accumulate_grad_in_fp32: WIDE}
model: {dtype: bfloat16}
"""


@pytest.mark.parametrize(("wide", "narrow"), [("false", True), ("true", False)])
def test_nanotron_updates_16_bit_parameters_unless_gradients_are_added_in_32(wide, narrow):
    config = read(NANOTRON.replace("WIDE", wide).replace("EXPERTS", "1"), ".yaml")
    assert config.job.get("states_in_16_bits", False) is narrow
    assert config.job["regathered_rows"] is False


def test_nanotrons_ranks_of_experts_alone_are_refused():
    with pytest.raises(DocumentError, match=r"parallelism\.expert_parallel_size"):
        read(NANOTRON.replace("WIDE", "true").replace("EXPERTS", "2"), ".yaml")


MAXTEXT = "per_device_batch_size: 1\nmax_target_length: 2048\nici_context_parallelism: 2\n"


@pytest.mark.parametrize(
    ("way", "kind", "told"),
    [("ring", "ring", False), ("ulysses", "all_to_all", False), ("all_gather", "ring", True)],
)
def test_how_maxtexts_ranks_share_a_sequence(way, kind, told):
    config = read(f"{MAXTEXT}context_parallel_strategy: {way}\n", ".yml")
    assert config.strategy.context_parallel_kind == kind
    assert any("passed round a ring" in said for said in config.assumptions) is told


@pytest.mark.parametrize("policy", ["none", "custom"])
def test_maxtexts_policies_that_leave_open_what_is_recomputed_are_refused(policy):
    with pytest.raises(DocumentError, match=r"remat_policy: leaves open"):
        read(f"{MAXTEXT}remat_policy: {policy}\n", ".yml")


@pytest.mark.parametrize("key", ["shard_optimizer_over_data: true", "ici_diloco_parallelism: 2"])
def test_what_maxtext_shards_in_a_way_that_is_not_modelled_is_refused(key):
    with pytest.raises(DocumentError, match=key.partition(":")[0]):
        read(f"{MAXTEXT}{key}\n", ".yml")


def test_megatrons_own_yaml_has_the_same_keys_elsewhere():
    text = "model_parallel:\n  tensor_model_parallel_size: 2\nmicro_batch_size: 1\nbf16: true\n"
    config = read(text + "global_batch_size: 64\n", ".yaml")
    assert config.strategy.tensor_parallel_degree == 2
    assert config.job["global_batch_size"] == 64


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("tensor_model_parallel_size: 4", "tensor_model_paralel_size: 4", "paralel"),
        ("pipeline_model_parallel_size: 2", "pipeline_model_parallel_size: ${x}", "pipeline"),
        ("tensor_model_parallel_size: 4", "tensor_model_parallel_size: 7", "tensor"),
    ],
)
def test_a_bad_key_of_nemos_is_named_with_its_path(old, new, field):
    with pytest.raises(DocumentError) as caught:
        read(NEMO.replace("PRECISION", "bf16").replace(old, new), ".yaml")
    assert field in caught.value.field
    assert caught.value.remedy


ACCELERATE = "mixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n"
TRAINER = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": True}
REGISTRY = """
def llama3_8b():
    return Trainer.Config(
        training=TrainingConfig(local_batch_size=2, seq_len=8192),
        parallelism=ParallelismConfig(tensor_parallel_degree=2, pipeline_parallel_degree=2),
        activation_checkpoint=FullAC.Config(),
    )
def wider():
    config = llama3_8b()
    config.parallelism.tensor_parallel_degree = 4
    return config
def elsewhere():
    config = llama3_70b()
    config.parallelism.tensor_parallel_degree = 8
    return config
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {}),
        ({"torch_compile": True}, {"fused_elementwise": True}),
        ({"use_liger_kernel": True}, {"fused_elementwise": True, "fused_linear_loss": True}),
    ],
)
def test_a_trainers_kernels_reach_the_job(arguments, expected):
    job = read(json.dumps({**TRAINER, **arguments}), ".json").job
    flags = ("fused_elementwise", "fused_linear_loss")
    assert {name: job[name] for name in flags if name in job} == expected


def trainer(**more):
    """What `TrainingArguments` with these keywords say."""
    return read(json.dumps({**TRAINER, **more}), ".json")


def of_function(name):
    """What a function of torchtitan's registry says."""
    setting = Setting(graph=LLAMA, device_count=16)
    return config_from_text(REGISTRY, setting, source="r.py", suffix=".py", function=name)


def test_a_function_has_what_the_one_that_it_changes_writes():
    config = of_function("wider")
    assert config.strategy.tensor_parallel_degree == 4
    assert config.strategy.pipeline_parallel_degree == 2
    assert config.job["sequence_length"] == 8192
    assert config.assumptions == ()


def test_a_function_of_another_file_is_said_not_to_be_read():
    assert any("llama3_70b()" in said for said in of_function("elsewhere").assumptions)


@pytest.mark.parametrize(
    ("name", "priced", "said"),
    [("float8", "fp8", False), ("quantize.linear.float8", "fp8", False), ("mx", "bf16", True)],
)
def test_a_converter_to_8_bits_is_priced_and_another_said_not_to_be(name, priced, said):
    config = read(f"[model]\nconverters=['{name}']\n[training]\nlocal_batch_size=1\n", ".toml")
    assert config.job["precision"] == priced
    told = f"model.converters {name}: products are priced in bf16" in config.assumptions
    assert told is said


@pytest.mark.parametrize("section", ["float8", "quantize.linear.float8"])
@pytest.mark.parametrize(
    ("keys", "job"),
    [
        ("enable_fsdp_float8_all_gather=true", {"gathered_in_8_bits": True}),
        ("enable_fsdp_float8_all_gather=false", {}),
        ("recipe_name='rowwise'", {"row_scaled_fp8": True}),
        ("recipe_name='tensorwise'", {}),
        ("", {}),
    ],
)
def test_a_converter_to_8_bits_says_how_weights_are_gathered_and_scaled(section, keys, job):
    text = "[training]\nlocal_batch_size=1\n"
    config = read(f"[model]\nconverters=['{section}']\n{text}[{section}]\n{keys}\n", ".toml")
    names = ("gathered_in_8_bits", "row_scaled_fp8")
    assert {name: config.job[name] for name in names if name in config.job} == job
    assert not any("float8" in said for said in config.assumptions)


@pytest.mark.parametrize(
    ("converters", "recipe"), [("", ""), ("converters=['float8']", "recipe_name='rowwise'")]
)
def test_a_gather_in_8_bits_that_nothing_makes_is_told(converters, recipe):
    config = read(
        f"[model]\n{converters}\n[training]\nlocal_batch_size=1\n"
        f"[float8]\nenable_fsdp_float8_all_gather=true\n{recipe}\n",
        ".toml",
    )
    assert "gathered_in_8_bits" not in config.job
    told = "float8.enable_fsdp_float8_all_gather changes nothing beside the other keys"
    assert told in config.assumptions


def test_axolotl_gathers_in_8_bits_what_it_trains_whole():
    text = (
        "base_model: x\nmicro_batch_size: 1\nfp8: true\nfsdp_version: 2\n"
        "fp8_enable_fsdp_float8_all_gather: true\n"
    )
    assert read(text, ".yaml").job["gathered_in_8_bits"] is True
    adapted = read(f"{text}adapter: lora\nlora_r: 8\n", ".yaml")
    assert "gathered_in_8_bits" not in adapted.job
    assert any(said.startswith("fp8_enable_fsdp") for said in adapted.assumptions)


def test_a_compiled_loss_alone_fuses_no_blocks():
    whole, loss = (
        read(f"[training]\nlocal_batch_size=1\n[compile]\nenable=true\n{given}", ".toml")
        for given in ("", "components=['loss']\n")
    )
    assert (whole.job["fused_elementwise"], loss.job["fused_elementwise"]) == (True, False)


@pytest.mark.parametrize(
    ("fields", "overlapped"),
    [
        ("[parallelism]\nenable_async_tensor_parallel=true\n[compile]\nenable=true", True),
        ("[compile]\nenable=true\nenable_async_tensor_parallel=true", True),
        ("[experimental]\nenable_async_tensor_parallel=true\n[compile]\nenable=true", True),
        ("[compile]\nenable=true", None),
        ("[parallelism]\nenable_async_tensor_parallel=true", None),
    ],
)
def test_torchtitans_asynchronous_tensor_parallelism_is_priced_where_a_model_is_compiled(
    fields, overlapped
):
    config = read(f"[training]\nlocal_batch_size=1\n{fields}\n", ".toml")
    assert config.job.get("overlapped_tensor_parallel") is overlapped
    told = any("is priced as off: it needs a compiled model" in one for one in config.assumptions)
    assert told is ("compile" not in fields)


OVERLAPPED = {
    "arguments.sh": "pretrain_gpt.py --micro-batch-size 1 --bf16 --tp-comm-overlap",
    "arguments.yaml": """
tensor_model_parallel_size: 2
micro_batch_size: 1
bf16: true
tp_comm_overlap: true
""",
    "bridge.yaml": """
model: {tensor_model_parallel_size: 2}
train: {micro_batch_size: 1}
comm_overlap: {tp_comm_overlap: true}
""",
    "nemo.yaml": """
trainer: {devices: 8, num_nodes: 2}
model: {tensor_model_parallel_size: 2, micro_batch_size: 1, ub_tp_comm_overlap: true}
""",
}


@pytest.mark.parametrize("name", OVERLAPPED)
def test_megatrons_overlap_of_tensor_parallelism_reaches_the_job(name):
    text, suffix = OVERLAPPED[name], name[name.index(".") :]
    assert read(text, suffix).job["overlapped_tensor_parallel"] is True
    off = read(text.replace("true", "false").replace(" --tp-comm-overlap", ""), suffix)
    assert "overlapped_tensor_parallel" not in off.job


RECIPE = """
def trainer(tensor=1, num_nodes=1):
    strategy = run.Config(MegatronStrategy, tensor_model_parallel_size=tensor)
    return run.Config(nl.Trainer, devices=8, num_nodes=num_nodes, strategy=strategy)
def pretrain_recipe(num_nodes=2, performance_mode=False):
    recipe = run.Partial(pretrain, trainer=trainer(tensor=4, num_nodes=num_nodes))
    recipe.data.global_batch_size = 64
    if performance_mode:
        recipe.trainer.strategy.tensor_model_parallel_size = 8
    return recipe
def finetune_recipe(peft_scheme='lora'):
    recipe = pretrain_recipe()
    if peft_scheme is None or peft_scheme.lower() == 'none':
        recipe.data.global_batch_size = 256
    elif peft_scheme.lower() == 'lora':
        recipe.data.global_batch_size = 32
    return recipe
"""


@pytest.mark.parametrize(("function", "batch"), [("pretrain_recipe", 64), ("finetune_recipe", 32)])
def test_a_recipe_of_nemos_is_what_its_parameters_and_its_calls_make_it(function, batch):
    setting = Setting(graph=LLAMA, device_count=16)
    config = config_from_text(RECIPE, setting, source="r.py", suffix=".py", function=function)
    assert config.strategy.tensor_parallel_degree == 4
    assert config.job["global_batch_size"] == batch


def of_registry(flavor, converters=""):
    """What a function of a registry of Llama 3 says, with a flavor and converters."""
    text = (
        "def llama3_8b():\n"
        f"    spec = model_registry({flavor!r}, converters=[{converters}])\n"
        "    return Trainer.Config(\n"
        "        loss=ChunkedLossWrapper.Config(), model_spec=spec,\n"
        "        training=TrainingConfig(local_batch_size=1, seq_len=8192),\n"
        "        parallelism=ParallelismConfig(tensor_parallel_degree=2),\n"
        "    )\n"
    )
    setting = Setting(graph=LLAMA, device_count=16)
    return config_from_text(text, setting, source="r.py", suffix=".py", function="llama3_8b")


@pytest.mark.parametrize(
    ("converters", "priced", "told"),
    [
        ("", {"precision": "bf16"}, False),
        (
            "Float8LinearConverter.Config(recipe_name='rowwise')",
            {"precision": "fp8", "row_scaled_fp8": True},
            False,
        ),
        (
            "Float8LinearConverter.Config(enable_fsdp_float8_all_gather=True, emulate=False)",
            {"precision": "fp8", "gathered_in_8_bits": True},
            False,
        ),
        ("MXFP8LinearConverter.Config()", {"precision": "bf16"}, True),
    ],
)
def test_a_registrys_converters_and_loss_reach_the_job(converters, priced, told):
    config = of_registry("8B", converters)
    names = ("precision", "row_scaled_fp8", "gathered_in_8_bits")
    assert {name: config.job[name] for name in names if name in config.job} == priced
    assert config.job["fused_linear_loss"] is True
    assert any("products are priced in bf16" in said for said in config.assumptions) is told


def test_a_part_of_a_trainer_that_is_not_read_is_told():
    more = "model_converters=some(), metrics=Metrics(),"
    given = REGISTRY.replace("activation_checkpoint=", f"{more} activation_checkpoint=")
    setting = Setting(graph=LLAMA, device_count=16)
    config = config_from_text(given, setting, source="r.py", suffix=".py", function="llama3_8b")
    assert config.assumptions == (
        "not read of torchtitan, and not priced: trainer.model_converters",
    )


@pytest.mark.parametrize(
    "more", [{"auto_find_batch_size": True}, {"accelerator_config": {"split_batches": True}}]
)
def test_what_changes_a_trainers_batch_is_told(more):
    told = [said for said in trainer(**more).assumptions if "batch" in said]
    assert len(told) == 1
    assert not trainer(auto_find_batch_size=False).assumptions


def test_a_registrys_flavor_of_another_model_is_refused():
    with pytest.raises(DocumentError, match="has 80 blocks of 8192"):
        of_registry("70B")


def test_a_schedule_in_a_file_of_its_own_is_refused():
    text = "[parallelism]\npipeline_parallel_degree=4\npipeline_parallel_schedule_csv='s.csv'\n"
    with pytest.raises(DocumentError, match="pipeline_parallel_schedule_csv"):
        read(text, ".toml")


@pytest.mark.parametrize("fsdp", [True, "full_shard auto_wrap"])
@pytest.mark.parametrize(
    "said",
    [
        {"gradient_checkpointing": True},
        {"activation_checkpointing": True, "gradient_checkpointing": False},
        {"activation_checkpointing": None, "gradient_checkpointing": True},
    ],
)
def test_the_trainer_checkpoints_sharded_models_too(fsdp, said):
    strategy = trainer(fsdp=fsdp, **said).strategy
    assert strategy.activation_checkpointing == "full"
    assert strategy.zero_stage == 3


def test_the_trainers_words_of_fsdp_say_what_is_sharded_and_moved():
    assert trainer(fsdp="shard_grad_op auto_wrap").strategy.zero_stage == 2
    moved = trainer(fsdp="full_shard offload").strategy
    assert moved.offload == (Offload.OPTIMIZER, Offload.PARAMETERS)


@pytest.mark.parametrize("fsdp", ["hybrid_shard auto_wrap", "full_shart"])
def test_words_of_fsdp_that_leave_something_open_are_refused(fsdp):
    with pytest.raises(DocumentError, match="fsdp: "):
        trainer(fsdp=fsdp)


def test_the_trainers_deepspeed_has_its_auto_filled_in():
    automatic = {
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": "auto"},
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
    }
    config = trainer(deepspeed=automatic, gradient_checkpointing=True)
    assert config.strategy.zero_stage == 2
    assert config.strategy.micro_batch_size == 2
    assert config.strategy.activation_checkpointing == "full"
    assert (config.job["precision"], config.job["global_batch_size"]) == ("bf16", 2 * 4 * 16)
    assert config.assumptions == ()


@pytest.mark.parametrize(
    ("given", "priced"), [("adamw_torch_fused", "adamw"), ("paged_adamw_8bit", "adam8bit")]
)
def test_the_trainers_optimizer_is_priced(given, priced):
    assert trainer(optim=given).job["optimizer"] == priced


def test_accelerates_heads_are_exchanged_through_deepspeed():
    text = f"distributed_type: DEEPSPEED\n{ACCELERATE}deepspeed_config: {{zero_stage: 3}}\n"
    config = read(text + "parallelism_config: {parallelism_config_sp_size: 4}\n", ".yaml")
    assert config.strategy.context_parallel_degree == 4
    assert config.strategy.data_parallel_shard_degree == 4


@pytest.mark.parametrize(
    "more", ["fsdp_config: {fsdp_reshard_after_foward: true}\n", "tp_config: {tp_size: 4}\n"]
)
def test_accelerates_keys_that_would_be_passed_over_are_refused(more):
    with pytest.raises(DocumentError) as caught:
        read(f"distributed_type: FSDP\n{ACCELERATE}{more}", ".yaml")
    assert caught.value.remedy
