"""torchtitan: the strategy that its configuration says, TOML or a Python function.

Defaults and what the fields mean are of torchtitan 0.3.0 for Python and of 0.2.2 for TOML. Python
is read and never run: values have to be written out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.training.config import (
    Setting,
    TrainingConfig,
    Treatment,
    data_parallel_degree,
)
from planner.importers.training.format import words_of
from planner.importers.training.formats.torchtitan_keys import TORCHTITAN_KEYS
from planner.importers.training.torchtitan_flavors import family_in, require_flavor
from planner.importers.training.torchtitan_older import older_names
from planner.importers.training.torchtitan_python import bases_elsewhere, sections_of_python
from planner.importers.training.torchtitan_stages import stage_counts
from planner.importers.training.words import Words
from planner.schema.strategy import (
    ActivationCheckpointing,
    Offload,
    PipelineSchedule,
    Strategy,
)

NAMES = {
    "tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "sequence_parallel": "parallelism.enable_sequence_parallel",
    "pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "virtual_pipeline_degree": "parallelism.pipeline_parallel_layers_per_stage",
    "pipeline_schedule": "parallelism.pipeline_parallel_schedule",
    "context_parallel_degree": "parallelism.context_parallel_degree",
    "expert_parallel_degree": "parallelism.expert_parallel_degree",
    "expert_tensor_parallel_degree": "parallelism.expert_tensor_parallel_degree",
    "data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "micro_batch_size": "training.local_batch_size",
    "global_batch_size": "training.global_batch_size",
    "sequence_length": "training.seq_len",
    "zero_stage": "parallelism.fsdp_reshard_after_forward",
    "activation_checkpointing": "activation_checkpoint.mode",
}
_SCHEDULES = {
    "gpipe": PipelineSchedule.GPIPE,
    "1f1b": PipelineSchedule.ONE_F_ONE_B,
    "interleaved1f1b": PipelineSchedule.INTERLEAVED,
    "zbvzerobubble": PipelineSchedule.ZB_V,
    "dualpipev": PipelineSchedule.DUALPIPE_V,
}
_FLOAT8 = "float8"
_SECTIONS = ("training", "parallelism", "activation_checkpoint", "compile", "experimental")


def read_torchtitan_toml(text: str, setting: Setting, *, source: str) -> TrainingConfig:
    """Return the strategy and the job of a TOML file.

    Raises:
        DocumentError: naming the field, its value and the remedy.
    """
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DocumentError(
            f"is not valid TOML: {error}", field=source, remedy="correct the syntax"
        ) from None
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        raise DocumentError(
            "has a number of more digits, or more brackets in one another, than can be read",
            field=source,
            remedy="correct it: no setting needs them",
        ) from None
    sections = _checked(fields)
    said = [*older_names(sections), *_converters(fields)]
    words = words_of(TORCHTITAN_KEYS, {**fields, **sections})
    said += words.said
    model = fields.get("model")
    said += require_flavor(model if isinstance(model, dict) else {}, setting.graph)
    config = _Reading(fields=sections, setting=setting, legacy=True, assumptions=said).config()
    return _with_converters(config, fields, words)


def _with_converters(
    config: TrainingConfig, fields: Mapping[str, Any], words: Words
) -> TrainingConfig:
    """Return the configuration with products in 8 bits where a converter makes them.

    A recipe has gathers in 16 bits, and what asks for others beside one is told.
    """
    in_8_bits = any(_FLOAT8 in name for name in _converter_names(fields))
    job, recipe = dict(config.job), words.text("float8_recipe")
    if in_8_bits and job["precision"] == "bf16":
        job["precision"] = "fp8"
        if recipe is None and words.flag("float8_gather"):
            job["gathered_in_8_bits"] = True
        if recipe is not None and recipe.startswith("rowwise"):
            job["row_scaled_fp8"] = True
    if words.flag("float8_gather") and "gathered_in_8_bits" not in job:
        told = f"{words.place('float8_gather')} changes nothing beside the other keys"
        return replace(config, job=job, assumptions=(told, *config.assumptions))
    return replace(config, job=job)


def _converters(fields: Mapping[str, Any]) -> list[str]:
    """Return what is said of converters of the model that are priced as nothing."""
    names = [name for name in _converter_names(fields) if _FLOAT8 not in name]
    adapters = [name for name in names if "lora" in name]
    listed = ", ".join(name for name in names if name not in adapters)
    said = [f"model.converters {listed}: products are priced in bf16"] if listed else []
    said += [f"model.converters {name}: all parameters are priced as trained" for name in adapters]
    return said


def _converter_names(fields: Mapping[str, Any]) -> list[str]:
    model = fields.get("model")
    given = model.get("converters") if isinstance(model, dict) else None
    return list(map(str, given)) if isinstance(given, list) else []


def read_torchtitan_python(
    text: str, setting: Setting, *, source: str, function: str | None = None
) -> TrainingConfig:
    """Return the strategy and the job of one function of a Python file.

    Raises:
        DocumentError: naming the field, its value and the remedy.
    """
    sections = sections_of_python(text, source=source, function=function)
    checked = _checked(sections)
    newer = older_names(checked)
    config = _Reading(fields=checked, setting=setting, legacy=False).config()
    given = {name: sections.get(name, {}) for name in ("trainer", "float8")}
    words = words_of(TORCHTITAN_KEYS, {**checked, **given})
    config = _with_converters(config, sections, words)
    if "loss" in sections:
        config = replace(config, job={**config.job, "fused_linear_loss": True})
    model = {"name": family_in(f"{function} {source}"), **sections.get("model", {})}
    said = [
        *newer,
        *_converters(sections),
        *require_flavor(model, setting.graph),
        *words.said,
    ]
    said += [
        f"what {name}() of another file writes is not read: torchtitan's defaults are assumed"
        for name in bases_elsewhere(text, function)
    ]
    return replace(config, assumptions=(*said, *config.assumptions))


def _checked(fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {}
    for name in _SECTIONS:
        value = fields.get(name, {})
        if not isinstance(value, dict):
            raise DocumentError(
                "must be a section of fields", field=name, value=value, remedy=f"write [{name}]"
            )
        sections[name] = dict(value)
    return sections


@dataclass(slots=True, kw_only=True)
class _Reading:
    fields: dict[str, dict[str, Any]]
    setting: Setting
    legacy: bool
    assumptions: list[str] = field(default_factory=list)

    def section(self, name: str) -> Fields:
        return Fields(self.fields[name], section=name)

    def config(self) -> TrainingConfig:
        """Return all that the file says."""
        own = self.section("parallelism")
        tensor = own.size("tensor_parallel_degree", 1)
        pipeline = own.size("pipeline_parallel_degree", 1)
        context = own.size("context_parallel_degree", 1)
        replicate, shard = self._data(tensor, pipeline, context)
        schedule = self._schedule(pipeline)
        values = self.fields["parallelism"]
        counts = stage_counts(values, self.setting, pipeline=pipeline, schedule=schedule)
        expert = own.size("expert_parallel_degree", 1)
        zero = self._zero_stage(shard * context, pipeline)
        micro = self._micro_batch(pipeline, replicate * shard)
        strategy = Strategy(
            tensor_parallel_degree=tensor,
            sequence_parallel=tensor > 1
            and (self.legacy or own.flag("enable_sequence_parallel", True)),
            pipeline_parallel_degree=pipeline,
            virtual_pipeline_degree=len(counts) // pipeline,
            pipeline_schedule=schedule,
            context_parallel_degree=context,
            expert_parallel_degree=expert,
            expert_tensor_parallel_degree=self._expert_tensor(tensor, expert),
            data_parallel_replicate_degree=replicate,
            data_parallel_shard_degree=shard,
            micro_batch_size=micro,
            stages=self._treatment(zero).stages(counts),
        )
        return TrainingConfig(
            format="torchtitan TOML" if self.legacy else "torchtitan",
            strategy=strategy,
            job=self._job(replicate * shard),
            assumptions=tuple(self.assumptions),
            names=NAMES,
        )

    def _data(self, tensor: int, pipeline: int, context: int) -> tuple[int, int]:
        """Return replicas and the shard group; -1 is what is left of the ranks."""
        own = self.section("parallelism")
        replicate = own.size("data_parallel_replicate_degree", 1)
        left = data_parallel_degree(
            self.setting,
            {
                "parallelism.tensor_parallel_degree": tensor,
                "parallelism.pipeline_parallel_degree": pipeline,
                "parallelism.context_parallel_degree": context,
                "parallelism.data_parallel_replicate_degree": replicate,
            },
        )
        stated = self.fields["parallelism"].get("data_parallel_shard_degree", -1)
        if stated == -1:
            return replicate, left
        shard = own.size("data_parallel_shard_degree")
        if shard != left:
            raise DocumentError(
                f"and the other degrees do not multiply to the cluster's "
                f"{self.setting.device_count} devices: {left} would",
                field="parallelism.data_parallel_shard_degree",
                value=shard,
                remedy="give the cluster that the file is for, or -1 for what is left",
            )
        return replicate, shard

    def _schedule(self, pipeline: int) -> PipelineSchedule:
        word = self.section("parallelism").text("pipeline_parallel_schedule") or "1F1B"
        if pipeline == 1:
            return PipelineSchedule.ONE_F_ONE_B
        file = self.section("parallelism").text("pipeline_parallel_schedule_csv")
        if file:
            raise DocumentError(
                "has a schedule in a file of its own, which is not modelled",
                field="parallelism.pipeline_parallel_schedule_csv",
                value=file,
                remedy="name a schedule as parallelism.pipeline_parallel_schedule",
            )
        found = _SCHEDULES.get(word.lower())
        if found is None:
            raise DocumentError(
                "is not a schedule that is modelled",
                field="parallelism.pipeline_parallel_schedule",
                value=word,
                remedy="use GPipe, 1F1B, Interleaved1F1B, ZBVZeroBubble or DualPipeV",
            )
        return found

    def _expert_tensor(self, tensor: int, expert: int) -> int:
        """Return over how many ranks an expert is split; 0.3 splits it only without its axis."""
        if expert == 1:
            return tensor
        if not self.legacy:
            return 1
        return self.section("parallelism").size("expert_tensor_parallel_degree", 1)

    def _zero_stage(self, ranks: int, pipeline: int) -> int:
        word = self.section("parallelism").text("fsdp_reshard_after_forward") or "default"
        if word not in {"default", "always", "never"}:
            raise DocumentError(
                "is not a policy",
                field="parallelism.fsdp_reshard_after_forward",
                value=word,
                remedy="use default, always or never",
            )
        if ranks == 1:
            moved = self.section("training").flag("enable_cpu_offload", False)
            return 3 if moved and word == "always" else 0
        if pipeline == 1:
            return 2 if word == "never" else 3
        if word != "always":
            return 1
        self.assumptions.append(
            "gradients of stages that are resharded after forward are priced as sharded between "
            "micro-batches, and torchtitan keeps them whole"
        )
        return 3

    def _micro_batch(self, pipeline: int, data: int) -> int:
        training = self.section("training")
        local = training.size("local_batch_size", 8)
        batch = self._stated_batch(local * data)
        if batch % (local * data):
            raise DocumentError(
                f"is not a multiple of training.local_batch_size {local} x {data} data-parallel "
                "ranks",
                field="training.global_batch_size",
                value=batch,
                remedy=f"use a multiple of {local * data}",
            )
        if pipeline == 1:
            return self.setting.micro_batch_size or local
        size = self.section("parallelism").size("pipeline_parallel_microbatch_size", 1)
        if local % size:
            raise DocumentError(
                "does not divide training.local_batch_size",
                field="parallelism.pipeline_parallel_microbatch_size",
                value=size,
                remedy=f"use a divisor of {local}",
            )
        if batch > local * data:
            self.assumptions.append(
                f"{batch // (local * data)} passes through the pipeline are priced as one"
            )
        return self.setting.micro_batch_size or size

    def _stated_batch(self, least: int) -> int:
        stated = self.fields["training"].get("global_batch_size", -1)
        if stated == -1:
            return least
        return self.section("training").size("global_batch_size")

    def _treatment(self, zero_stage: int) -> Treatment:
        offload: tuple[Offload, ...] = ()
        if self.section("training").flag("enable_cpu_offload", False):
            offload = (Offload.OPTIMIZER,)
            if zero_stage == 3:
                offload = (Offload.OPTIMIZER, Offload.PARAMETERS)
            else:
                self.assumptions.append("parameters that stay gathered are priced on the device")
        kept, every = self._checkpointing()
        return Treatment(
            zero_stage=zero_stage, activation_checkpointing=kept, offload=offload, every_full=every
        )

    def _checkpointing(self) -> tuple[ActivationCheckpointing, int]:
        own = self.section("activation_checkpoint")
        mode = own.text("mode") or ("selective" if self.legacy else "none")
        if mode not in {"none", "selective", "full"}:
            raise DocumentError(
                "is not modelled",
                field="activation_checkpoint.mode",
                value=mode,
                remedy="use none, selective or full",
            )
        option = str(self.fields["activation_checkpoint"].get("selective_ac_option", "2"))
        if mode == "selective" and self.legacy and option.isdigit() and 0 < int(option) < 2**20:
            return ActivationCheckpointing.NONE, int(option)
        return ActivationCheckpointing(mode), 0

    def _compiles_the_model(self) -> bool:
        """Return whether blocks are compiled, and not the loss alone."""
        own = self.section("compile")
        components = own.texts("components")
        return own.flag("enable", False) and (components is None or "model" in components)

    def _job(self, data: int) -> dict[str, object]:
        training = self.section("training")
        local = training.size("local_batch_size", 8)
        whole = training.text("mixed_precision_param") == "float32"
        job: dict[str, object] = {
            "stack": "torch",
            "global_batch_size": self._stated_batch(local * data),
            "sequence_length": training.size("seq_len", 2048),
            "precision": "fp32" if whole else "bf16",
            "fused_elementwise": self._compiles_the_model(),
        }
        if training.text("dtype") == "bfloat16":
            job["states_in_16_bits"] = True
        if self._overlaps_tensor_parallel():
            job["overlapped_tensor_parallel"] = True
        return job

    def _overlaps_tensor_parallel(self) -> bool:
        """Return whether the compiler runs collectives beside products, which nothing else does."""
        name = "enable_async_tensor_parallel"
        asked = [one for one in ("parallelism", "compile") if self.section(one).flag(name, False)]
        if asked and not self._compiles_the_model():
            self.assumptions.append(
                f"{asked[0]}.{name} is priced as off: it needs a compiled model (compile.enable)"
            )
        return bool(asked) and self._compiles_the_model()
