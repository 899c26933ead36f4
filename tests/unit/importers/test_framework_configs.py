"""Configurations of training frameworks: what each sample says of Llama 3 8B on 16 devices.

Expected are the fields of the strategy and of the job that differ from a plain run, by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import DocumentError
from planner.importers.models import read_model
from planner.importers.training.config import Setting
from planner.importers.training.files import config_from_fields, config_from_text, strategy_from
from planner.importers.training.format import leaves_of
from planner.importers.training.formats.deepspeed_keys import DEEPSPEED_KEYS
from planner.importers.training.formats.registry import FORMATS, NOT_READ
from planner.schema.document import read_fields
from planner.schema.job import Job

SAMPLES = Path(__file__).parent / "samples" / "training"
LLAMA = read_model("llama-3-8b")[1]
PLAIN = {
    "tensor": 1, "sequence": False, "pipeline": 1, "virtual": 1, "context": 1, "ring": True,
    "replicate": 1, "shard": 1, "micro": 1, "zero": 0, "kept": "none", "moved": [],
}  # fmt: skip
BF16 = {"precision": "bf16"}


def adapters(rank, *, targets="all", bits=16, dropout=False, **fields):
    """The job's adapters."""
    return {"rank": rank, "targets": targets, "base_bits": bits, "dropout": dropout,
            "trains_ends": False, **fields}  # fmt: skip


EXPECTED = {
    "automodel-stages.yaml": (
        {"pipeline": 2, "virtual": 4, "shard": 8, "micro": 2, "zero": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 64, "optimizer": "adamw", **BF16},
    ),
    "openrlhf-sections.sh": (
        {"shard": 16, "micro": 2, "zero": 3, "kept": "full"},
        {"stack": "deepspeed", "global_batch_size": 256, "sequence_length": 4096,
         "adapters": adapters(16), **BF16},
    ),
    "verl-sft-megatron.sh": (
        {"tensor": 2, "sequence": True, "pipeline": 2, "shard": 4, "micro": 2, "zero": 1},
        {"stack": "megatron", "global_batch_size": 64, "sequence_length": 2048,
         "overlapped_gradients": False, "gradient_clipping": True, "gradients_in_16_bits": True,
         **BF16},
    ),
    "accelerate-deepspeed.yaml": (
        {"shard": 16, "zero": 3},
        {"stack": "deepspeed", "global_batch_size": 32, "gradient_clipping": False, **BF16},
    ),
    "accelerate-hsdp.yaml": (
        {"replicate": 2, "shard": 8, "micro": 2, "zero": 2, "kept": "full"},
        {"stack": "torch", "global_batch_size": 128, **BF16},
    ),
    "accelerate-replicas.yaml": (
        {"replicate": 16, "micro": 4},
        {"stack": "torch", "global_batch_size": 64, "precision": "fp16"},
    ),
    "deepspeed-autotp.json": (
        {"tensor": 2, "shard": 8, "micro": 2, "zero": 1, "kept": "full"},
        {"stack": "deepspeed", "global_batch_size": 64, "gradient_clipping": False,
         "optimizer": "adamw", **BF16},
    ),
    "deepspeed-ulysses.json": (
        {"context": 4, "ring": False, "replicate": 2, "shard": 2, "zero": 3},
        {"stack": "deepspeed", "global_batch_size": 32, "gradient_clipping": False,
         "precision": "fp16"},
    ),
    "hf-trainer-deepspeed.json": (
        {"shard": 16, "zero": 2, "moved": ["optimizer"]},
        {"stack": "deepspeed", "global_batch_size": 128, "precision": "fp16"},
    ),
    "hf-trainer-fsdp.json": (
        {"shard": 16, "micro": 2, "zero": 3, "kept": "full", "moved": ["optimizer", "parameters"]},
        {"stack": "torch", "global_batch_size": 128, "optimizer": "adafactor",
         "fused_elementwise": True, **BF16},
    ),
    "lightning-fsdp.py": (
        {"shard": 16, "micro": 3, "zero": 2, "kept": "full"},
        {"stack": "torch", "global_batch_size": 96, **BF16},
    ),
    "lightning-replicas.py": (
        {"replicate": 16, "micro": 4},
        {"stack": "torch", "global_batch_size": 64, "precision": "fp16"},
    ),
    "llama-factory-cli.sh": (
        {"replicate": 16, "micro": 4, "kept": "full"},
        {"stack": "torch", "global_batch_size": 128, "sequence_length": 1024, "precision": "fp16",
         "adapters": adapters(4, targets="attention")},
    ),
    "llama-factory-fsdp.yaml": (
        {"shard": 16, "micro": 2, "zero": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 32, "sequence_length": 2048,
         "optimizer": "adam8bit", "fused_elementwise": True, "fused_linear_loss": True, **BF16},
    ),
    "maxtext-args.sh": (
        {"replicate": 2, "shard": 8, "micro": 2, "zero": 3, "kept": "selective"},
        {"stack": "torch", "global_batch_size": 32, "sequence_length": 4096, **BF16},
    ),
    "megatron-args.yaml": (
        {"tensor": 2, "sequence": True, "pipeline": 2, "virtual": 4, "shard": 4, "zero": 1},
        {"stack": "megatron", "dropout": True,
         "global_batch_size": 64, "overlapped_gradients": False, **BF16},
    ),
    "megatron-bridge-overrides.txt": (
        {"tensor": 2, "sequence": True, "context": 2, "shard": 4, "zero": 1},
        {"stack": "megatron", "global_batch_size": 32, "sequence_length": 16384,
         "overlapped_gradients": True, **BF16},
    ),
    "megatron-deepspeed.sh": (
        {"tensor": 2, "shard": 8, "kept": "full"},
        {"stack": "megatron", "dropout": True,
         "global_batch_size": 32, "overlapped_gradients": False,
         "precision": "fp16", "gradients_in_16_bits": True},
    ),
    "megatron-fsdp.sh": (
        {"context": 2, "ring": False, "shard": 8, "micro": 2, "zero": 3},
        {"stack": "megatron", "dropout": True,
         "global_batch_size": 64, "sequence_length": 4096,
         "overlapped_gradients": False, **BF16},
    ),
    "ms-swift-qlora.sh": (
        {"replicate": 16, "micro": 2},
        {"stack": "torch", "global_batch_size": 64, "sequence_length": 1024,
         "adapters": adapters(16, bits=4, whole_scales=True), **BF16},
    ),
    "nemo-recipe.yaml": (
        {"tensor": 4, "sequence": True, "shard": 4, "micro": 2, "zero": 1, "kept": "full"},
        {"stack": "megatron", "global_batch_size": 64, "sequence_length": 4096,
         "overlapped_gradients": False, **BF16},
    ),
    "nemo-rl-base.yaml": (
        {"shard": 16, "zero": 3},
        {"stack": "torch", "global_batch_size": 128, "sequence_length": 2048, **BF16},
    ),
    "nemo-rl-fragment.yaml": (
        {"tensor": 4, "sequence": True, "shard": 4, "micro": 2, "zero": 3},
        {"stack": "torch", "global_batch_size": 128, "sequence_length": 2048, **BF16},
    ),
    "nemo2-recipe.py": (
        {"tensor": 4, "sequence": True, "pipeline": 2, "shard": 2, "zero": 1},
        {"stack": "megatron", "global_batch_size": 64, "sequence_length": 8192,
         "overlapped_gradients": True, **BF16},
    ),
    "nemo2-assigned.py": (
        {"tensor": 2, "shard": 8, "micro": 2, "zero": 1, "kept": "full"},
        {"stack": "megatron", "global_batch_size": 128, "sequence_length": 4096,
         "overlapped_gradients": False, **BF16},
    ),
    "primus-fp8.yaml": (
        {"shard": 16},
        {"stack": "megatron", "global_batch_size": 32, "sequence_length": 8192,
         "overlapped_gradients": False, "precision": "fp8"},
    ),
    "torchtitan-hsdp.toml": (
        {"tensor": 2, "sequence": True, "replicate": 2, "shard": 4, "micro": 2, "zero": 2,
         "kept": "full"},
        {"stack": "torch", "global_batch_size": 16, "sequence_length": 8192,
         "fused_elementwise": True, **BF16},
    ),
    "torchtitan-older.toml": (
        {"tensor": 2, "sequence": True, "pipeline": 2, "shard": 4, "micro": 2, "zero": 1},
        {"stack": "torch", "global_batch_size": 16, "sequence_length": 4096,
         "fused_elementwise": False, **BF16},
    ),
    "torchtitan-tokens.py": (
        {"tensor": 2, "sequence": True, "shard": 8, "micro": 2, "zero": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 64, "sequence_length": 4096,
         "fused_elementwise": True, **BF16},
    ),
    "torchtune-lora.yaml": (
        {"shard": 16, "micro": 3, "zero": 3, "moved": ["optimizer", "parameters"]},
        {"stack": "torch", "global_batch_size": 48, "sequence_length": 2048, "optimizer": "adamw",
         "adapters": adapters(16, targets="attention"), **BF16},
    ),
    "accelerate-trl-fsdp1.yaml": (
        {"shard": 16, "zero": 3},
        {"stack": "torch", "global_batch_size": 16, **BF16},
    ),
    "axolotl-nd.yaml": (
        {"tensor": 2, "replicate": 2, "shard": 4, "zero": 2},
        {"stack": "torch", "global_batch_size": 16, "sequence_length": 4096,
         "optimizer": "muon", "states_in_16_bits": True, **BF16},
    ),
    "axolotl-qlora-fsdp.yaml": (
        {"shard": 16, "micro": 2, "zero": 3, "kept": "full", "moved": ["optimizer", "parameters"]},
        {"stack": "torch", "global_batch_size": 96, "sequence_length": 2048, "optimizer": "adamw",
         "adapters": adapters(24, bits=4, dropout=True, whole_scales=True),
         **BF16},
    ),
    "axolotl-zero2.yaml": (
        {"shard": 16, "zero": 2, "kept": "full"},
        {"stack": "deepspeed", "global_batch_size": 64, "sequence_length": 8192,
         "optimizer": "adam8bit", "fused_linear_loss": True, **BF16},
    ),
    "deepspeed-zero3.json": (
        {"shard": 16, "micro": 2, "zero": 3, "moved": ["optimizer", "parameters"]},
        {"overlapped_gradients": True,
         "stack": "deepspeed", "global_batch_size": 64, "gradient_clipping": True, **BF16},
    ),
    "gpt-neox-pipeline.yml": (
        {"tensor": 2, "pipeline": 4, "shard": 2, "micro": 4, "zero": 1, "kept": "full"},
        {"overlapped_gradients": True,
         "stack": "deepspeed", "global_batch_size": 256, "sequence_length": 4096,
         "optimizer": "adamw", "gradient_clipping": True, **BF16},
    ),
    "gpt-neox-zero3.yml": (
        {"shard": 16, "micro": 2, "zero": 3, "moved": ["optimizer"]},
        {"stack": "deepspeed", "global_batch_size": 128, "sequence_length": 2048,
         "precision": "fp16"},
    ),
    "llama-factory-lora.yaml": (
        {"replicate": 16, "micro": 2, "kept": "full"},
        {"stack": "torch", "global_batch_size": 192, "sequence_length": 3072,
         "adapters": adapters(12), **BF16},
    ),
    "llama-factory-megatron.yaml": (
        {"tensor": 4, "sequence": True, "pipeline": 2, "shard": 2, "zero": 1, "kept": "full"},
        {"stack": "megatron", "global_batch_size": 32, "sequence_length": 8192,
         "overlapped_gradients": True, **BF16},
    ),
    "llama-factory-qlora.yaml": (
        {"replicate": 16},
        {"stack": "torch", "global_batch_size": 128, "sequence_length": 1024,
         "adapters": adapters(16, targets="attention", bits=4, whole_scales=True), **BF16},
    ),
    "llama-factory-zero3.yaml": (
        {"shard": 16, "zero": 3, "kept": "full", "moved": ["optimizer", "parameters"]},
        {"stack": "deepspeed", "global_batch_size": 32, "sequence_length": 4096, **BF16},
    ),
    "llm-foundry-full.yaml": (
        {"shard": 16, "micro": 4, "zero": 2},
        {"stack": "torch", "global_batch_size": 256, "sequence_length": 2048,
         "optimizer": "adamw", "gradient_clipping": True,
         "gradients_in_16_bits": True, **BF16},
    ),
    "llm-foundry-lora.yaml": (
        {"shard": 16, "zero": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 32, "sequence_length": 4096,
         "adapters": adapters(48, targets="attention"), **BF16},
    ),
    "maxtext-kept.yaml": (
        {"context": 2, "replicate": 2, "shard": 4, "zero": 3},
        {"stack": "torch", "global_batch_size": 16, "sequence_length": 2048, **BF16},
    ),
    "maxtext.yaml": (
        {"tensor": 4, "shard": 4, "micro": 16, "zero": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 64, "sequence_length": 8192, **BF16},
    ),
    "megatron-bridge.yaml": (
        {"tensor": 4, "sequence": True, "pipeline": 2, "shard": 2, "zero": 1, "kept": "full"},
        {"stack": "megatron", "global_batch_size": 128, "sequence_length": 8192,
         "overlapped_gradients": True, **BF16},
    ),
    "megatron-variables.sh": (
        {"tensor": 4, "shard": 4, "micro": 2, "zero": 1},
        {"stack": "megatron", "dropout": True,
         "global_batch_size": 128, "sequence_length": 4096,
         "overlapped_gradients": False, **BF16},
    ),
    "ms-swift-lora.sh": (
        {"shard": 16, "zero": 3, "kept": "full"},
        {"stack": "deepspeed", "global_batch_size": 256, "sequence_length": 2048,
         "adapters": adapters(8), **BF16},
    ),
    "ms-swift-megatron.sh": (
        {"tensor": 4, "sequence": True, "pipeline": 2, "shard": 2, "micro": 2, "zero": 1,
         "kept": "full"},
        {"stack": "megatron", "global_batch_size": 32, "sequence_length": 8192,
         "overlapped_gradients": False, **BF16},
    ),
    "nanotron-3d.yaml": (
        {"tensor": 4, "sequence": True, "pipeline": 2, "shard": 2, "micro": 2, "zero": 1,
         "kept": "full"},
        {"stack": "torch", "global_batch_size": 32, "sequence_length": 4096, "optimizer": "adamw",
         "gradient_clipping": True, "copied_rows": False, "overlapped_tensor_parallel": True,
         "regathered_rows": True, **BF16},
    ),
    "nemo-automodel-fsdp.yaml": (
        {"tensor": 2, "sequence": True, "replicate": 2, "shard": 4, "micro": 3, "zero": 3},
        {"stack": "torch", "global_batch_size": 96, "optimizer": "adamw", **BF16},
    ),
    "nemo-automodel-qlora.yaml": (
        {"shard": 16, "micro": 2, "zero": 3},
        {"stack": "torch", "global_batch_size": 32, "sequence_length": 4096,
         "adapters": adapters(20, bits=4, dropout=True, whole_scales=True),
         **BF16},
    ),
    "nemo-rl-dtensor.yaml": (
        {"tensor": 2, "sequence": True, "shard": 8, "micro": 2, "zero": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 512, "sequence_length": 4096,
         "optimizer": "adamw", "gradient_clipping": True, **BF16},
    ),
    "nemo-rl-megatron-kept.yaml": (
        {"tensor": 2, "shard": 8, "zero": 1},
        {"stack": "megatron", "global_batch_size": 64, "sequence_length": 4096,
         "overlapped_gradients": True, "optimizer": "adamw", **BF16},
    ),
    "nemo-rl-megatron.yaml": (
        {"tensor": 4, "sequence": True, "pipeline": 2, "shard": 2, "zero": 1, "kept": "full"},
        {"stack": "megatron", "global_batch_size": 256, "sequence_length": 8192,
         "overlapped_gradients": False, "optimizer": "adamw", **BF16},
    ),
    "neuronx-llama.yaml": (
        {"tensor": 8, "sequence": True, "shard": 2, "zero": 1, "kept": "full"},
        {"stack": "megatron", "global_batch_size": 64, "sequence_length": 8192,
         "optimizer": "adamw", "gradient_clipping": True, "overlapped_gradients": False, **BF16},
    ),
    "openrlhf-lora.sh": (
        {"context": 2, "shard": 8, "zero": 3},
        {"stack": "deepspeed", "global_batch_size": 64, "sequence_length": 2048,
         "adapters": adapters(16), **BF16},
    ),
    "openrlhf-sft.sh": (
        {"shard": 16, "micro": 2, "zero": 2, "kept": "full", "moved": ["optimizer"]},
        {"stack": "deepspeed", "global_batch_size": 128, "sequence_length": 4096, **BF16},
    ),
    "primus-llama.yaml": (
        {"tensor": 2, "shard": 8, "micro": 4, "zero": 1, "kept": "full"},
        {"stack": "megatron", "global_batch_size": 256, "sequence_length": 8192,
         "overlapped_gradients": True, **BF16},
    ),
    "torchtune-full.yaml": (
        {"tensor": 2, "shard": 8, "micro": 2, "zero": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 64, "sequence_length": 4096, "optimizer": "adamw",
         "fused_elementwise": True, "loss_chunk_count": 8, "fused_loss": True,
         "states_in_16_bits": True, **BF16},
    ),
    "torchtune-qlora.yaml": (
        {"shard": 16, "micro": 4, "zero": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 128, "optimizer": "adamw",
         "loss_chunk_count": 16, "fused_loss": False,
         "adapters": adapters(8, bits=4, unpacking="torchao"), **BF16},
    ),
    "trl-peft.yaml": (
        {"replicate": 16, "micro": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 192, "sequence_length": 2048,
         "adapters": adapters(
             32, targets="attention", bits=4, base_format="bnb", whole_scales=True
         ), **BF16},
    ),
    "trl-sft.sh": (
        {"replicate": 16, "micro": 2, "kept": "full"},
        {"stack": "torch", "global_batch_size": 256, "sequence_length": 4096,
         "adapters": adapters(64), **BF16},
    ),
    "verl-fsdp.sh": (
        {"context": 2, "ring": False, "shard": 8, "micro": 4, "zero": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 320, "sequence_length": 4096, **BF16},
    ),
    "verl-hsdp.sh": (
        {"context": 2, "ring": False, "replicate": 2, "shard": 4, "zero": 2, "kept": "full"},
        {"stack": "torch", "global_batch_size": 64, **BF16},
    ),
    "verl-megatron.sh": (
        {"tensor": 4, "sequence": True, "pipeline": 2, "shard": 2, "micro": 2, "zero": 1,
         "kept": "full"},
        {"stack": "megatron", "global_batch_size": 512, "sequence_length": 2048,
         "overlapped_gradients": False, **BF16},
    ),
    "verl-sft.yaml": (
        {"shard": 16, "micro": 2, "zero": 3, "kept": "full"},
        {"stack": "torch", "global_batch_size": 64, "sequence_length": 2048,
         "gradient_clipping": True, "adapters": adapters(32), **BF16},
    ),
}  # fmt: skip
SETTING = Setting(graph=LLAMA, device_count=16, folder=SAMPLES)
TABLES = (*FORMATS, DEEPSPEED_KEYS)
# Of Megatron-LM's hundreds of flags only those that are nearly one of a split are refused.
MAPPINGS = [
    name
    for name in EXPECTED
    if name.endswith((".yaml", ".yml", ".json")) and name != "megatron-args.yaml"
]


def seen(config):
    """The strategy's fields by short names, those of its first block among them."""
    own = config.strategy
    first = own.stages[0].layers[0] if own.stages else own
    return {
        "tensor": own.tensor_parallel_degree,
        "sequence": own.sequence_parallel,
        "pipeline": own.pipeline_parallel_degree,
        "virtual": own.virtual_pipeline_degree,
        "context": own.context_parallel_degree,
        "ring": own.context_parallel_kind == "ring",
        "replicate": own.replicate_degree,
        "shard": own.shard_degree,
        "micro": own.micro_batch_size,
        "zero": first.zero_stage,
        "kept": first.activation_checkpointing.value,
        "moved": [item.value for item in first.offload or ()],
    }


def test_every_sample_has_an_expectation():
    assert {path.name for path in SAMPLES.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_frameworks_file_says_its_strategy_and_job(name):
    strategy, job = EXPECTED[name]
    found = strategy_from(SAMPLES / name, SETTING)
    assert seen(found) == PLAIN | strategy
    assert dict(found.job) == job
    Job.from_fields(dict(found.job), source=name)


def sections(fields, path=()):
    """The paths of all mappings in a mapping, its own first."""
    yield path
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from sections(value, (*path, name))


def with_key(fields, path, key):
    """The fields with a key that no framework has, in the section at a path."""
    if not path:
        return {**fields, key: 3}
    return {**fields, path[0]: with_key(fields[path[0]], path[1:], key)}


@pytest.mark.parametrize("name", MAPPINGS)
def test_an_unknown_key_of_any_section_that_is_read_is_named_or_refused(name):
    fields = read_fields(SAMPLES / name)
    leaves = leaves_of(fields)
    table = next((one for one in TABLES if one.recognises(leaves)), None)
    for path in sections(fields):
        section = ".".join(path).replace("-", "_")
        read = table is None or any(one.startswith(f"{section}.") for one in table.sets)
        of_others = table is not None and f"{section}.*" in table.beside.split()
        if path and (not read or of_others):
            continue
        try:
            found = config_from_fields(with_key(fields, path, "zz_strange"), SETTING, source=name)
        except DocumentError as error:
            assert "zz_strange" in str(error)  # noqa: PT017 - some formats refuse such keys
        else:
            assert any("zz_strange" in line for line in found.assumptions)


@pytest.mark.parametrize("table", FORMATS, ids=lambda table: table.name)
def test_a_key_that_is_nearly_one_of_a_tables_is_refused(table):
    path = next(one for one in table.sets if len(one.rpartition(".")[2]) > 11)
    given = {mark.partition("=")[0]: mark.partition("=")[2] or 1
             for mark in table.signature[0] if not mark.startswith("!")}  # fmt: skip
    fields = nested({f"{path}s": 1, **given})
    with pytest.raises(DocumentError, match="did you mean"):
        config_from_fields(fields, SETTING, source="given")


def nested(flat):
    """A mapping of sections from paths."""
    fields = {}
    for path, value in flat.items():
        *parts, last = path.split(".")
        inner = fields
        for part in parts:
            inner = inner.setdefault(part, {}) if isinstance(inner.get(part, {}), dict) else {}
        inner.setdefault(last, value)
    return fields


@pytest.mark.parametrize("known", NOT_READ, ids=lambda known: known.title)
def test_a_framework_that_is_known_and_not_read_is_refused_by_name(known):
    given = {mark.partition("=")[0]: mark.partition("=")[2] or 1 for mark in known.signature[0]}
    with pytest.raises(DocumentError, match=known.title) as caught:
        config_from_fields(nested(given), SETTING, source="given.yaml")
    assert caught.value.remedy


def test_the_documentation_lists_the_frameworks_that_are_read():
    text = (Path(__file__).parents[3] / "docs" / "exports.md").read_text()
    table = text[text.index("| framework | its files |") :]
    listed = {line.split("|")[1].strip() for line in table.splitlines()[2:] if line[:1] == "|"}
    others = {"torchtitan", "Megatron-LM", "DeepSpeed"}
    families = {table.title.split(" on ")[0].split(" with ")[0] for table in FORMATS}
    families = {"verl" if name.startswith("verl") else name for name in families}
    assert listed == families | others


@pytest.mark.parametrize(
    ("section", "name"),
    [("parallelism", "zz_strange"), ("training", "zz_strange"), ("compile", "zz_strange"),
     ("experimental", "zz_strange"), ("activation_checkpoint", "zz_strange"),
     ("model", "zz_strange"), ("zz_section", "zz_strange"), ("parallelism.inner", "zz_strange")],
)  # fmt: skip
def test_an_unknown_key_of_torchtitan_is_named(section, name):
    text = f"[{section}]\n{name} = 3\n"
    found = config_from_text(text, SETTING, source="run.toml", suffix=".toml")
    assert any(f"{section}.{name}" in line for line in found.assumptions)


@pytest.mark.parametrize(
    ("text", "suffix", "field"),
    [
        ("--micro-batch-size 1 --bf16 --fp16", ".sh", "--fp16"),
        ("--micro-batch-size 1 --use-megatron-fsdp --use-torch-fsdp2", ".sh", "--use-torch-fsdp2"),
        ("--micro-batch-size 1 --num-layers 40", ".sh", "--num-layers"),
        ("--micro-batch-size 1 --hidden-size 5120", ".sh", "--hidden-size"),
        ('[model]\nname = "llama3"\nflavor = "70B"\n', ".toml", "model.flavor"),
        ('{"per_device_train_batch_size": 1, "bf16": true, "fp16": true}', ".json", "fp16"),
        ('{"per_device_train_batch_size": 1, "load_in_4bit": true}', ".json", "load_in_4bit"),
        ("base_model: x\nmicro_batch_size: 1\nadapter: ia3\n", ".yaml", "adapter"),
        ("policy: {dtensor_cfg: {enabled: true}}\ndefaults: base.yaml\n", ".yaml", "defaults"),
        ("distributed_type: FSDP\nnum_processes: 8\n", ".yaml", "num_processes"),
        ("some_trainer: {tensor_model_parallel_size: 2}\n", ".yaml",
         "some_trainer.tensor_model_parallel_size"),
        ("zz: 1\nyy: 2\n", ".yaml", "given"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_or_its_model_is_refused(text, suffix, field):
    with pytest.raises(DocumentError) as caught:
        config_from_text(text, SETTING, source="given", suffix=suffix)
    assert caught.value.field == field
    assert caught.value.remedy


def test_embedding_and_loss_may_count_as_blocks_of_a_pipeline():
    flags = (
        "--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split "
        "--account-for-loss-in-pipeline-split --micro-batch-size 1 --bf16"
    )
    found = config_from_text(flags, SETTING, source="given", suffix=".sh")
    assert [stage.block_count for stage in found.strategy.stages] == [16, 16]
    ends = flags.replace("--account-for-loss-in-pipeline-split ", "")
    with pytest.raises(DocumentError, match="evenly"):
        config_from_text(ends, SETTING, source="given", suffix=".sh")


def test_older_micro_batches_and_slurm_numbers_are_put_in():
    text = "#SBATCH --nodes=8\nrun --micro-batch-size 1 --global-batch-size $((SLURM_NNODES * 16))"
    found = config_from_text(text, SETTING, source="given", suffix=".sh")
    assert found.job["global_batch_size"] == 128


def test_the_defaults_that_a_framework_takes_are_said():
    found = strategy_from(SAMPLES / "primus-llama.yaml", SETTING)
    assert any("bf16 is not given: true, as Primus has it" in line for line in found.assumptions)
    plain = config_from_text("--micro-batch-size 1", SETTING, source="given", suffix=".sh")
    assert any("fp32" in line for line in plain.assumptions)


def test_a_deepspeed_file_beside_is_read(tmp_path):
    (tmp_path / "ds").mkdir()
    (tmp_path / "ds" / "mine.json").write_text('{"zero_optimization": {"stage": 1}}')
    file = tmp_path / "axolotl.yaml"
    file.write_text("base_model: x\nmicro_batch_size: 2\nbf16: true\ndeepspeed: ds/mine.json\n")
    assert strategy_from(file, SETTING).strategy.zero_stage == 1


def test_zero_of_megatron_deepspeed_is_the_flags_and_its_file_is_told():
    text = "--micro-batch-size 1 --bf16 --deepspeed --zero-stage 2 --deepspeed_config ds.json"
    found = config_from_text(text, SETTING, source="given", suffix=".sh")
    assert seen(found)["zero"] == 2
    assert any("ds.json is not read" in line for line in found.assumptions)


def test_a_frameworks_batch_on_other_devices_is_its_own():
    fields = {"pipe_parallel_size": 4, "model_parallel_size": 2, "fp16": {"enabled": True},
              "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 32}  # fmt: skip
    found = config_from_fields(fields, Setting(graph=LLAMA, device_count=96), source="neox.yml")
    assert found.job["global_batch_size"] == 1536


def test_arguments_of_accelerates_launcher_say_how_states_are_sharded():
    text = (
        "accelerate launch --use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP train.py "
        "--per_device_train_batch_size 1 --bf16"
    )
    assert seen(config_from_text(text, SETTING, source="given", suffix=".sh"))["zero"] == 2


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("--micro-batch-size 2 --global-batch-size $UNSET --bf16", ".sh"),
        ('{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 7}', ".json"),
    ],
)
def test_a_batch_given_beside_the_file_holds_over_it(text, suffix):
    setting = Setting(graph=LLAMA, device_count=16, global_batch_size=96)
    found = config_from_text(text, setting, source="given", suffix=suffix)
    assert found.job["global_batch_size"] == 96
    assert found.strategy.micro_batch_size == 2


def test_a_key_that_other_keys_make_idle_is_told():
    text = "base_model: x\nmicro_batch_size: 1\nbf16: true\nlora_r: 8\n"
    found = config_from_text(text, SETTING, source="given", suffix=".yaml")
    assert "adapters" not in found.job
    assert "lora_r 8 changes nothing beside the other keys" in found.assumptions


@pytest.mark.parametrize(
    ("text", "narrow"),
    [
        ("per_device_train_batch_size: 1\ntf32: true\n", True),
        ("per_device_train_batch_size: 1\ntf32: false\n", None),
        ("per_device_train_batch_size: 1\nbf16: true\ntf32: true\n", None),
        ("base_model: x\nmicro_batch_size: 1\nbf16: false\ntf32: true\n", True),
        ("stage: sft\ntemplate: x\ncutoff_len: 64\nfinetuning_type: full\ntf32: true\n", True),
    ],
)
def test_tf32_is_of_products_in_fp32_alone(text, narrow):
    found = config_from_text(text, SETTING, source="given", suffix=".yaml")
    assert found.job.get("tensor_float_32") is narrow
    assert not any("tf32" in line for line in found.assumptions)


_AXOLOTL = "base_model: x\nmicro_batch_size: 1\nadapter: qlora\nload_in_4bit: true\n"
_FACTORY = "stage: sft\ntemplate: x\ncutoff_len: 64\nquantization_bit: 4\n"
_TUNE = (
    "model: {_component_: torchtune.models.llama3.qlora_llama3_8b, lora_rank: 8}\nbatch_size: 1\n"
)
_TRL = "use_peft: true\nload_in_4bit: true\nper_device_train_batch_size: 1\n"


@pytest.mark.parametrize(
    ("text", "base_format", "whole"),
    [
        (f"{_AXOLOTL}bnb_config_kwargs: {{bnb_4bit_use_double_quant: false}}\n", "bnb", True),
        (_FACTORY, None, True),
        (f"{_FACTORY}double_quantization: false\n", "bnb", True),
        (f"{_FACTORY}quantization_method: hqq\n", "hqq", True),
        ("train_type: lora\nquant_bits: 4\nquant_method: awq\nmax_length: 64\n", "gptq", None),
        (f"{_TRL}use_bnb_nested_quant: true\n", None, True),
        (_TRL, "bnb", True),
        (_TUNE, None, None),
    ],
)
def test_scales_of_four_bits_are_as_the_framework_has_them(text, base_format, whole):
    found = config_from_text(text, SETTING, source="given", suffix=".yaml")
    assert found.job["adapters"].get("base_format") == base_format
    assert found.job["adapters"].get("whole_scales") is whole


@pytest.mark.parametrize(("compiled", "unpacking"), [("false", "torchao"), ("true", None)])
def test_torchao_s_weights_are_unpacked_by_steps_unless_a_compiler_joins_them(compiled, unpacking):
    found = config_from_text(
        f"{_TUNE}compile: {compiled}\n", SETTING, source="given", suffix=".yaml"
    )
    assert found.job["adapters"].get("unpacking") == unpacking
    assert not any("unpacking" in line for line in found.assumptions)
