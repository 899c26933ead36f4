"""GPU cases: small jobs that between them have every technique of a single GPU.

Widths are those of models that people train, with as many blocks as have room on 80 GB: dense 1B
and 3B models, blocks of 8B and 70B models, a small model whose kernels are short, a mixture.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planner.schema.job import Job
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
)
from planner.schema.strategy import Strategy

STEP_MICRO_BATCHES = 2  # gradients are accumulated, as they mostly are


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCase:
    """A model, and fields of the job and strategy that it is trained with."""

    name: str
    graph: ModelGraph
    sequence_length: int
    job: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)
    micro_batch_count: int = STEP_MICRO_BATCHES

    @property
    def is_plain(self) -> bool:
        """Return whether a script of a few lines does the same by hand."""
        return not self.job and set(self.strategy) == {"micro_batch_size"}

    def job_document(self) -> Job:
        """Return the job."""
        fields = {
            "global_batch_size": self.micro_batch_count * self.strategy.get("micro_batch_size", 1),
            "sequence_length": self.sequence_length,
            "gradient_clipping": False,
        }
        return Job.model_validate(fields | self.job)

    def strategy_document(self) -> Strategy:
        """Return the strategy."""
        return Strategy.model_validate(self.strategy)


def _dense(  # noqa: PLR0913 - each is a size of a model
    name: str,
    *,
    hidden: int,
    blocks: int,
    heads: int,
    keys: int,
    ffn: int,
    vocabulary: int,
    head_size: int = 128,
    tied: bool = False,
) -> ModelGraph:
    block = Block(
        attention=GroupedQueryAttention(
            head_count=heads, key_value_head_count=keys, head_size=head_size
        ),
        feed_forward=DenseFeedForward(ffn_size=ffn),
    )
    return ModelGraph(
        name=name,
        architecture="llama",
        hidden_size=hidden,
        vocabulary_size=vocabulary,
        maximum_sequence_length=32768,
        tied_embeddings=tied,
        runs=(BlockRun(block=block, block_count=blocks),),
    )


def _mixture() -> ModelGraph:
    graph = _dense(
        "mixture", hidden=1024, blocks=12, heads=16, keys=8, ffn=64, vocabulary=32000, head_size=64
    )
    (run,) = graph.runs
    experts = MixtureFeedForward(expert_count=16, experts_per_token=2, expert_ffn_size=1536)
    block = run.block.model_copy(update={"feed_forward": experts})
    return graph.model_copy(update={"runs": (run.model_copy(update={"block": block}),)})


_SMALL = _dense(
    "small",
    hidden=768,
    blocks=12,
    heads=12,
    keys=12,
    ffn=2048,
    vocabulary=50304,
    head_size=64,
    tied=True,
)
_ONE = _dense(
    "one-billion",
    hidden=2048,
    blocks=16,
    heads=32,
    keys=8,
    ffn=8192,
    vocabulary=128256,
    head_size=64,
    tied=True,
)
_THREE = _dense(
    "three-billion",
    hidden=3072,
    blocks=28,
    heads=24,
    keys=8,
    ffn=8192,
    vocabulary=128256,
    tied=True,
)
_EIGHT = _dense(
    "blocks-of-8b", hidden=4096, blocks=8, heads=32, keys=8, ffn=14336, vocabulary=32000
)
_SEVENTY = _dense(
    "blocks-of-70b", hidden=8192, blocks=3, heads=64, keys=8, ffn=28672, vocabulary=32000
)
_MIXTURE = _mixture()
_FULL: dict[str, Any] = {"activation_checkpointing": "full"}
_SELECTIVE: dict[str, Any] = {"activation_checkpointing": "selective"}
_COMPILED = {"fused_elementwise": True}
# Of torch 2.11 on CUDA: `torch.nn.RMSNorm` is one kernel, and attention is cuDNN's, at about the
# rates of FlashAttention's third generation.
_KERNELS = {"fused_norms": True, "flash_attention_generation": 3}
_IN_8_BITS = {**_COMPILED, "precision": "fp8"}


def gpu_cases() -> tuple[GpuCase, ...]:
    """Return the cases, those first that say most."""
    return (
        _case("1b", _ONE, 4096, 2),
        _case("1b-full", _ONE, 4096, 4, **_FULL),
        _case("1b-selective", _ONE, 4096, 4, **_SELECTIVE),
        _case("8b-blocks", _EIGHT, 8192, 1),
        _case("70b-blocks", _SEVENTY, 4096, 1),
        _case("small", _SMALL, 1024, 16),
        _case("small-narrow", _SMALL, 1024, 1),
        _case("mixture", _MIXTURE, 2048, 4),
        _case("1b-compiled", _ONE, 4096, 2, job=_COMPILED),
        _case("1b-full-compiled", _ONE, 4096, 4, job=_COMPILED, **_FULL),
        _case("1b-offloaded-activations", _ONE, 4096, 4, offload=["activations"], **_FULL),
        _case("1b-offloaded-optimizer", _ONE, 4096, 2, offload=["optimizer"]),
        _case(
            "1b-offloaded-parameters",
            _ONE,
            4096,
            2,
            offload=["optimizer", "parameters"],
            zero_stage=3,
        ),
        _case("1b-all-activations-offloaded", _ONE, 2048, 2, offload=["activations"]),
        _case("1b-zero3", _ONE, 4096, 2, zero_stage=3),
        _case("3b-full", _THREE, 4096, 1, **_FULL),
        _case("3b-selective", _THREE, 2048, 2, **_SELECTIVE),
        _case("8b-blocks-full", _EIGHT, 8192, 2, **_FULL),
        _case("70b-blocks-full", _SEVENTY, 4096, 2, **_FULL),
        _case("1b-long", _ONE, 16384, 1, **_FULL),
        _case("1b-fp32", _ONE, 2048, 1, job={"precision": "fp32"}),
        _case("1b-fp16", _ONE, 4096, 2, job={"precision": "fp16"}),
        _case("1b-sgd", _ONE, 4096, 2, job={"optimizer": "sgd"}),
        _case("1b-foreach", _ONE, 4096, 2, job={"foreach_optimizer": True}),
        _case("1b-clipped", _ONE, 4096, 2, job={"gradient_clipping": True}),
        _case("mixture-full", _MIXTURE, 2048, 8, **_FULL),
        _case("small-compiled", _SMALL, 1024, 16, job=_COMPILED),
        _case("1b-fp8", _ONE, 4096, 2, job=_IN_8_BITS),
        _case("1b-full-fp8", _ONE, 4096, 4, job=_IN_8_BITS, **_FULL),
        _case("8b-blocks-compiled", _EIGHT, 8192, 1, job=_COMPILED),
        _case("8b-blocks-fp8", _EIGHT, 8192, 1, job=_IN_8_BITS),
        _case("8b-blocks-fp8-rows", _EIGHT, 8192, 1, job={**_IN_8_BITS, "row_scaled_fp8": True}),
        _case("70b-blocks-compiled", _SEVENTY, 4096, 1, job=_COMPILED),
        _case("70b-blocks-fp8", _SEVENTY, 4096, 1, job=_IN_8_BITS),
        _case("1b-too-large", _ONE, 8192, 8),
    )


def _case(
    name: str,
    graph: ModelGraph,
    sequence_length: int,
    micro_batch_size: int,
    *,
    job: dict[str, Any] | None = None,
    **strategy: Any,
) -> GpuCase:
    return GpuCase(
        name=name,
        graph=graph,
        sequence_length=sequence_length,
        job={**_KERNELS, **(job or {})},
        strategy={"micro_batch_size": micro_batch_size, **strategy},
    )
