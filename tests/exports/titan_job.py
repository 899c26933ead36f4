"""A torchtitan job as a user has it: the debug model on the corpus, plain and under a plan.

Its Trainer.Config functions read `TITAN_PLAN`; the loss of each step goes to `TITAN_OUT`.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import Llama3Model, model_registry
from torchtitan.trainer import Trainer

from executor.data import corpus_batches
from meshwright.integrations.torchtitan import planned
from tests.distributed.plans import GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH

STEPS, VOCABULARY = 3, 2048


class Rows(BaseDataLoader):
    """The rows of a data-parallel rank, micro-batch after micro-batch."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """Nothing to set."""

    def __init__(self, config: Config, **given: Any) -> None:
        del config
        self._rank, self._ranks = given["dp_rank"], given["dp_world_size"]
        self._size = given["local_batch_size"]

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Yield inputs and labels."""
        for inputs, targets in corpus_batches(
            global_batch_size=GLOBAL_BATCH_SIZE, sequence_length=SEQUENCE_LENGTH
        ):
            mine = slice(self._rank, None, self._ranks)
            for start in range(0, GLOBAL_BATCH_SIZE // self._ranks, self._size):
                rows = slice(start, start + self._size)
                yield {"input": inputs[mine][rows]}, targets[mine][rows]

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the job saves nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take nothing over."""


class Bytes(BaseTokenizer):
    """A tokenizer that nobody asks: the corpus is tokens already."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """Nothing to set."""

    def __init__(self, config: Config, **_given: Any) -> None:
        del config
        super().__init__()

    def encode(self, text: str) -> list[int]:
        """Return the bytes."""
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        """Return the text."""
        return bytes(tokens).decode()

    def get_vocab_size(self) -> int:
        """Return how many tokens there are."""
        return VOCABULARY


class Noted(MetricsProcessor):
    """Metrics that are written down in full."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):
        """Nothing more to set."""

    def log(self, step: int, global_avg_loss: float, *rest: Any, **named: Any) -> None:
        """Note the loss of the step, on the rank that has one."""
        with Path(os.environ["TITAN_OUT"], os.environ["RANK"]).open("a") as file:
            file.write(json.dumps({"step": step, "loss": global_avg_loss}) + "\n")
        super().log(step, global_avg_loss, *rest, **named)


def plain() -> Trainer.Config:
    """Return the job on one rank."""
    spec = model_registry("debugmodel")
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()  # which CPUs have
    return Trainer.Config(
        loss=CrossEntropyLoss.Config(global_vocab_size=VOCABULARY),
        model_spec=spec,
        optimizer=default_adamw(lr=1e-3, eps=1e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=0),
        training=TrainingConfig(
            local_batch_size=4,
            global_batch_size=GLOBAL_BATCH_SIZE,
            seq_len=SEQUENCE_LENGTH,
            steps=STEPS,
            mixed_precision_param="float32",
            disable_cuda_graphs=True,
        ),
        # its other backends, and its pipelines, are for a later torch than 2.13
        parallelism=ParallelismConfig(spmd_backend="partial_dtensor"),
        tokenizer=Bytes.Config(),
        dataloader=Rows.Config(),
        metrics=Noted.Config(log_freq=1),
        activation_checkpoint=None,
    )


def under_plan() -> Trainer.Config:
    """Return the job under the plan."""
    return planned(plain(), os.environ["TITAN_PLAN"])


def drawn_by_name(model: torch.nn.Module) -> None:
    """Give each parameter values that follow from its name, however it is sharded."""
    for name, parameter in model.named_parameters():
        bare = name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")
        generator = torch.Generator().manual_seed(zlib.crc32(bare.encode()))
        whole = 0.02 * torch.randn(parameter.shape, generator=generator)
        whole += float("norm" in bare)
        if isinstance(parameter, DTensor):
            whole = distribute_tensor(whole, parameter.device_mesh, parameter.placements)
        parameter.data.copy_(whole)


_init_weights = Llama3Model.init_weights


def _initialized(self: Any, **given: Any) -> None:
    _init_weights(self, **given)
    drawn_by_name(self)


Llama3Model.init_weights = _initialized
