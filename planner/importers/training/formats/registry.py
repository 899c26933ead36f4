"""Registry: the formats that are read by a table, and those that are known and not read.

The first that recognises a file reads it, so that those with more of their own keys stand first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.importers.training.format import Format, KnownFormat
from planner.importers.training.formats.accelerate import ACCELERATE
from planner.importers.training.formats.automodel import AUTOMODEL
from planner.importers.training.formats.axolotl import AXOLOTL
from planner.importers.training.formats.gpt_neox import GPT_NEOX
from planner.importers.training.formats.hf_trainer import HF_TRAINER, TRL
from planner.importers.training.formats.lightning import LIGHTNING
from planner.importers.training.formats.llama_factory import LLAMA_FACTORY, LLAMA_FACTORY_MEGATRON
from planner.importers.training.formats.llm_foundry import LLM_FOUNDRY
from planner.importers.training.formats.maxtext import MAXTEXT
from planner.importers.training.formats.megatron_bridge import MEGATRON_BRIDGE
from planner.importers.training.formats.ms_swift import MS_SWIFT, MS_SWIFT_MEGATRON
from planner.importers.training.formats.nanotron import NANOTRON
from planner.importers.training.formats.nemo import MEGATRON_YAML, NEMO
from planner.importers.training.formats.nemo_python import NEMO_PYTHON
from planner.importers.training.formats.nemo_rl import NEMO_RL_DTENSOR, NEMO_RL_MEGATRON
from planner.importers.training.formats.neuronx import NEURONX
from planner.importers.training.formats.openrlhf import OPENRLHF, OPENRLHF_SECTIONS
from planner.importers.training.formats.primus import PRIMUS
from planner.importers.training.formats.torchtune import TORCHTUNE
from planner.importers.training.formats.verl import (
    VERL_FSDP,
    VERL_MEGATRON,
    VERL_SFT,
    VERL_SFT_MEGATRON,
)

FORMATS: tuple[Format, ...] = (
    ACCELERATE,
    NEMO_PYTHON,
    LIGHTNING,
    VERL_MEGATRON,
    VERL_FSDP,
    NEMO_RL_MEGATRON,
    NEMO_RL_DTENSOR,
    PRIMUS,
    NEURONX,
    AUTOMODEL,
    GPT_NEOX,
    NANOTRON,
    LLM_FOUNDRY,
    TORCHTUNE,
    MAXTEXT,
    AXOLOTL,
    LLAMA_FACTORY_MEGATRON,
    LLAMA_FACTORY,
    MS_SWIFT_MEGATRON,
    MS_SWIFT,
    OPENRLHF,
    OPENRLHF_SECTIONS,
    VERL_SFT_MEGATRON,
    VERL_SFT,
    NEMO,
    MEGATRON_BRIDGE,
    TRL,
    HF_TRAINER,
    MEGATRON_YAML,
)
_DEGREES = "write a strategy with the same degrees"
NOT_READ: tuple[KnownFormat, ...] = (
    KnownFormat(
        title="Oumi",
        signature=(("model.model_name", "training.trainer_type"), ("fsdp.enable_fsdp",)),
        remedy="write a strategy with training.per_device_train_batch_size and fsdp's ZeRO stage",
    ),
    KnownFormat(
        title="torchforge",
        signature=(("trainer.parallelism", "trainer.training"),),
        remedy="give the section trainer by itself: its keys are torchtitan's",
    ),
    KnownFormat(
        title="Ray Train",
        signature=(("scaling_config.num_workers",),),
        remedy="give the configuration of the framework that its workers run",
    ),
    KnownFormat(
        title="Unsloth",
        signature=(("use_gradient_checkpointing=unsloth",), ("FastLanguageModel",)),
        remedy="give the Trainer's arguments alone: Unsloth's kernels are priced as torch's",
    ),
    KnownFormat(
        title="Primus on another framework than Megatron-LM",
        signature=tuple(
            (f"modules.{trainer}.framework={framework}",)
            for trainer in ("pre_trainer", "post_trainer", "trainer")
            for framework in ("torchtitan", "maxtext", "megatron_bridge")
        ),
        remedy="give that framework's own configuration with the same values",
    ),
    KnownFormat(
        title="LLaMA-Factory v1",
        signature=(("dist_config.name",), ("model_class", "train_dataset")),
        remedy="give the arguments of llamafactory-cli train, or write a strategy",
    ),
    KnownFormat(
        title="LitGPT",
        signature=(
            ("checkpoint_dir", "train.micro_batch_size"),
            ("train.micro_batch_size", "precision"),
        ),
        remedy="write a strategy with FSDP's ZeRO stage and train.micro_batch_size",
    ),
    KnownFormat(
        title="PaddleFormers",
        signature=(
            ("tensor_parallel_degree", "sharding", "do_train"),
            ("tensor_model_parallel_size", "sharding", "model_name_or_path"),
        ),
        remedy=_DEGREES,
    ),
    KnownFormat(
        title="OLMo",
        signature=(("global_train_batch_size", "device_train_microbatch_size", "fsdp"),),
        remedy=_DEGREES,
    ),
    KnownFormat(
        title="Colossal-AI",
        signature=(("plugin", "zero_stage", "tp"), ("parallel.tensor.size", "parallel.pipeline")),
        remedy=_DEGREES,
    ),
    KnownFormat(
        title="InternEvo",
        signature=(("parallel.zero1.size",),),
        remedy=_DEGREES,
    ),
    KnownFormat(
        title="Levanter",
        signature=(("trainer.tensor_parallel_axes",), ("trainer.train_batch_size", "trainer.mp")),
        remedy=_DEGREES,
    ),
    KnownFormat(
        title="fairseq",
        signature=(("distributed_training", "optimization"), ("distributed_training.ddp_backend",)),
        remedy=_DEGREES,
    ),
    KnownFormat(
        title="verl on another engine than FSDP and Megatron-Core",
        signature=tuple(
            (f"actor_rollout_ref.actor.strategy={engine}",)
            for engine in ("veomni", "torchtitan", "mindspeed", "automodel")
        ),
        remedy=_DEGREES,
    ),
    KnownFormat(
        title="VeOmni",
        signature=(("train.data_parallel_mode",), ("train.ulysses_parallel_size",)),
        remedy=_DEGREES,
    ),
)


def format_of(leaves: Mapping[str, Any]) -> Format | None:
    """Return the first format whose keys these are, None if they are those of none."""
    return next((one for one in FORMATS if one.recognises(leaves)), None)


def known_format_of(leaves: Mapping[str, Any]) -> KnownFormat | None:
    """Return the framework that is known and not read whose keys these are, or None."""
    return next((one for one in NOT_READ if one.recognises(leaves)), None)
