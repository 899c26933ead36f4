"""DeepSpeed: the strategy that its JSON configuration says.

Keys and defaults are of DeepSpeed 0.19.8, `runtime/config.py` and `zero/config.py`. Its top level
takes unknown keys in silence, and `offload_param` below stage 3 as well: both are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from planner.errors import DocumentError
from planner.importers.fields import Fields, require_divides
from planner.importers.training.config import (
    Setting,
    TrainingConfig,
    data_parallel_degree,
)
from planner.importers.training.format import words_of
from planner.importers.training.formats.deepspeed_keys import DEEPSPEED_KEYS
from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    Offload,
    Strategy,
)

NAMES = {
    "tensor_parallel_degree": "tensor_parallel.autotp_size",
    "context_parallel_degree": "sequence_parallel_size",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "micro_batch_count": "gradient_accumulation_steps",
    "global_batch_size": "train_batch_size",
    "zero_stage": "zero_optimization.stage",
    "activation_checkpointing": "activation_checkpointing",
    "offload": "zero_optimization.offload_optimizer",
}
_BATCH, _MICRO = "train_batch_size", "train_micro_batch_size_per_gpu"
_ACCUMULATION = "gradient_accumulation_steps"
_READ = (
    _BATCH,
    _MICRO,
    _ACCUMULATION,
    "zero_optimization",
    "bf16",
    "bfloat16",
    "fp16",
    "gradient_clipping",
    "tensor_parallel",
    "sequence_parallel_size",
    "activation_checkpointing",
    "optimizer",
    "scheduler",
)


_NUMBER_FORMATS = ("bf16", "bfloat16", "fp16", _ACCUMULATION)
_OFFLOAD = "offload_optimizer"
_OLDER_OFFLOAD = {"offload_optimizer": "cpu_offload", "offload_param": "cpu_offload_params"}
_MICS_STAGE = 3
_OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "muon": "muon", "sgd": "sgd"}


def is_deepspeed(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields are a DeepSpeed configuration."""
    return any(name in fields for name in (_MICRO, "zero_optimization")) or (
        _BATCH in fields and any(name in fields for name in _NUMBER_FORMATS)
    )


def read_deepspeed(fields: Mapping[str, Any], setting: Setting) -> TrainingConfig:
    """Return the strategy and the job that the configuration says.

    Raises:
        DocumentError: naming the key, its value and the remedy.
    """
    return _Reading(fields=fields, setting=setting).config()


@dataclass(slots=True, kw_only=True)
class _Reading:
    fields: Mapping[str, Any]
    setting: Setting
    assumptions: list[str] = field(default_factory=list)

    def config(self) -> TrainingConfig:
        """Return all that the configuration says."""
        self._require_spelled()
        own = Fields(self.fields)
        tensor = self._section("tensor_parallel").size("autotp_size", 1, minimum=0) or 1
        context = own.size("sequence_parallel_size", 1)
        data = data_parallel_degree(
            self.setting,
            {"tensor_parallel.autotp_size": tensor, "sequence_parallel_size": context},
        )
        batch, micro = self._batch(data)
        zero = self._section("zero_optimization")
        stage = zero.size("stage", 0, minimum=0, limit=3)
        sharded = self._sharded(zero, stage, data)
        kept, activations = self._checkpointing()
        strategy = Strategy(
            tensor_parallel_degree=tensor,
            context_parallel_degree=context,
            context_parallel_kind=ContextParallelKind.ALL_TO_ALL
            if context > 1
            else ContextParallelKind.RING,
            data_parallel_replicate_degree=data // sharded,
            data_parallel_shard_degree=sharded,
            micro_batch_size=micro,
            zero_stage=stage,
            activation_checkpointing=kept,
            offload=(*self._offload(zero, stage), *activations),
        )
        job = self._job(batch)
        return TrainingConfig(
            format="deepspeed",
            strategy=strategy,
            job=job,
            assumptions=tuple(self.assumptions),
            names=NAMES,
        )

    def _require_spelled(self) -> None:
        for name in self.fields:
            near = get_close_matches(str(name), _READ, n=1, cutoff=0.9)
            if near and name not in _READ:
                raise DocumentError(
                    "is not a key of DeepSpeed's, which ignores it in silence",
                    field=str(name),
                    remedy=f"did you mean {near[0]}?",
                )
        self.assumptions.extend(words_of(DEEPSPEED_KEYS, self.fields).said)
        if "pipeline" in self.fields:
            self.assumptions.append("pipeline: the program makes stages, which are not priced")
        if self._section("amp").flag("enabled", False):
            self.assumptions.append("amp.enabled: Apex's mixture is not priced; fp32 is")

    def _section(self, name: str) -> Fields:
        value = self.fields.get(name)
        value = {} if value is None else value
        if not isinstance(value, Mapping):
            raise DocumentError(
                "must be a mapping of fields", field=name, value=value, remedy="write an object"
            )
        return Fields(value, section=name)

    def _number(self, name: str) -> int | None:
        """Return the number under `name`, None where it is absent or left to the program."""
        if self.fields.get(name) in (None, "auto"):
            return None
        return Fields(self.fields).size(name)

    def _batch(self, data: int) -> tuple[int, int]:
        """Return the sequences of a step and of a micro-batch; two of three keys say the third."""
        batch, micro = self._number(_BATCH), self._number(_MICRO)
        steps = self._number(_ACCUMULATION)
        if batch is not None and micro is not None and steps is not None:
            self._require_product(batch, micro, steps, data)
        micro = self.setting.micro_batch_size or micro
        if micro is None and batch is not None:
            micro = self._micro_batch(batch, steps or 1, data)
        if micro is None and self.fields.get(_MICRO) == "auto":
            micro = 1
            self.assumptions.append(f"{_MICRO} is auto, which the training program fills in: 1")
        if micro is None:
            raise DocumentError(
                "is left open, and the batch cannot be known without it",
                field=_MICRO,
                value=self.fields.get(_MICRO),
                remedy="write its number",
            )
        return batch or micro * (steps or 1) * data, micro

    def _require_product(self, batch: int, micro: int, steps: int, data: int) -> None:
        if batch != micro * steps * data:
            raise DocumentError(
                f"is not {_MICRO} {micro} x {_ACCUMULATION} {steps} x {data} data-parallel ranks "
                f"= {micro * steps * data}",
                field=_BATCH,
                value=batch,
                remedy="correct one of them, or give the cluster that the file is for",
            )

    def _micro_batch(self, batch: int, steps: int, data: int) -> int:
        if batch % (steps * data):
            raise DocumentError(
                f"is not a multiple of {_ACCUMULATION} {steps} x {data} data-parallel ranks",
                field=_BATCH,
                value=batch,
                remedy=f"use a multiple of {steps * data}",
            )
        return batch // (steps * data)

    def _sharded(self, zero: Fields, stage: int, data: int) -> int:
        """Return over how many ranks states are sharded: all, or those of a group of MiCS."""
        group = zero.size("mics_shard_size", -1, minimum=-1)
        if group < 1:
            return data
        field = "zero_optimization.mics_shard_size"
        if stage < _MICS_STAGE:
            raise DocumentError(
                "needs stage 3", field=field, value=f"stage {stage}", remedy="use stage 3"
            )
        require_divides(field, group, "the data-parallel ranks", data)
        return group

    def _offload(self, zero: Fields, stage: int) -> tuple[Offload, ...]:
        found = []
        for name, item, least in (
            ("offload_optimizer", Offload.OPTIMIZER, 1),
            ("offload_param", Offload.PARAMETERS, 3),
        ):
            if self._device(zero, name) == "none":
                continue
            if stage < least:
                raise DocumentError(
                    f"needs stage {least} or more, and DeepSpeed ignores it in silence below",
                    field=f"zero_optimization.{name}",
                    value=f"stage {stage}",
                    remedy=f"use stage {least}, or remove it",
                )
            found.append(item)
        self._say_what_is_not_priced(zero)
        return tuple(found)

    def _say_what_is_not_priced(self, zero: Fields) -> None:
        section = "zero_optimization"
        if zero.size("zero_hpz_partition_size", 1) > 1:
            self.assumptions.append(
                "zero_optimization.zero_hpz_partition_size: the second copy of parameters within "
                "a node is not priced"
            )
        for name in ("zero_quantized_weights", "zero_quantized_gradients"):
            if zero.flag(name, False):
                self.assumptions.append(f"{section}.{name}: messages are priced at full width")
        if zero.is_mapping("zenflow"):
            self.assumptions.append(f"{section}.zenflow: its updates on the device are not priced")
        if self._device(zero, "offload_optimizer") == "none" or not zero.is_mapping(_OFFLOAD):
            return
        own = zero.section(_OFFLOAD)
        ratio = own.number("ratio", 1.0)
        if ratio < 1:
            self.assumptions.append(f"{section}.{_OFFLOAD}.ratio {ratio:g} is priced as 1")
        if own.flag("super_offload", False):
            self.assumptions.append(f"{section}.{_OFFLOAD}.super_offload is not priced")

    def _device(self, zero: Fields, name: str) -> str:
        if name not in zero or self.fields["zero_optimization"][name] is None:
            return "cpu" if zero.flag(_OLDER_OFFLOAD[name], False) else "none"
        device = zero.section(name).text("device") or "none"
        if device not in {"none", "cpu", "nvme"}:
            raise DocumentError(
                "is not a place to offload to",
                field=f"zero_optimization.{name}.device",
                value=device,
                remedy="use none, cpu or nvme",
            )
        return device

    def _checkpointing(self) -> tuple[ActivationCheckpointing, tuple[Offload, ...]]:
        own = self._section("activation_checkpointing")
        moved = own.flag("cpu_checkpointing", False)
        if moved or own.optional_size("number_checkpoints") is not None:
            return ActivationCheckpointing.FULL, (Offload.ACTIVATIONS,) if moved else ()
        self.assumptions.append(
            "the file does not say whether the program checkpoints: none is assumed; "
            "activation_checkpointing.number_checkpoints says that it does"
        )
        return ActivationCheckpointing.NONE, ()

    def _job(self, batch: int) -> dict[str, object]:
        zero = self._section("zero_optimization")
        job: dict[str, object] = {
            "stack": "deepspeed",
            "global_batch_size": batch,
            "precision": self._precision(),
            "gradient_clipping": bool(self.fields.get("gradient_clipping")),
        }
        optimizer = self._section("optimizer").text("type")
        if optimizer is not None:
            job["optimizer"] = self._optimizer(optimizer)
        if "nvme" in {self._device(zero, name) for name in ("offload_optimizer", "offload_param")}:
            job["offload_to"] = "nvme"
        if zero.size("stage", 0, minimum=0, limit=3) and self._states("overlap_comm"):
            job["overlapped_gradients"] = zero.flag("overlap_comm", False)
        return job

    def _states(self, name: str) -> bool:
        """Return whether ZeRO's section has a value for the key, and does not leave it open."""
        return self.fields["zero_optimization"].get(name) not in (None, "auto")

    def _optimizer(self, given: str) -> str:
        if given.lower() in _OPTIMIZERS:
            return _OPTIMIZERS[given.lower()]
        self.assumptions.append(f"optimizer.type {given} is priced as adamw")
        return "adamw"

    def _precision(self) -> str:
        """Return the precision that is switched on; of two left to the program, bf16."""
        given = {
            name.replace("bfloat16", "bf16"): self.fields[name]
            for name in ("fp16", "bfloat16", "bf16")
            if self.fields.get(name) and self._section(name)
        }
        left = [name for name, own in given.items() if own.get("enabled") == "auto"]
        on = [
            name
            for name, own in given.items()
            if name not in left and Fields(own, section=name).flag("enabled", False)
        ]
        if on or not left:
            return on[-1] if on else "fp32"
        self.assumptions.append(
            f"{left[-1]}.enabled is auto, which the training program fills in: {left[-1]}"
        )
        return left[-1]
