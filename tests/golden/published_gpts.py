"""GPT models on Selene's A100s with Megatron-LM, as two papers measured them, priced here.

Attention was not fused, and dropout was on; nodes of eight have eight links of 200 Gb/s.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.cost.step import predict
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.schema.job import Job, Precision, Stack
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
)
from planner.schema.strategy import ActivationCheckpointing, PipelineSchedule, Strategy
from planner.workload.model import model_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class GptRun:
    """The shape of a model and its layout; `chunks` above 1 are of the interleaved schedule."""

    blocks: int
    hidden: int
    heads: int
    tensor: int
    pipeline: int
    chunks: int = 1
    devices: int
    batch: int
    micro_batch: int

    def seconds(
        self, *, checkpointing: ActivationCheckpointing, sequence_parallel: bool = False
    ) -> float:
        """Return the step as priced."""
        interleaved = self.chunks > 1
        strategy = Strategy(
            tensor_parallel_degree=self.tensor,
            sequence_parallel=sequence_parallel,
            pipeline_parallel_degree=self.pipeline,
            virtual_pipeline_degree=self.chunks,
            pipeline_schedule=PipelineSchedule.INTERLEAVED
            if interleaved
            else PipelineSchedule.ONE_F_ONE_B,
            data_parallel_shard_degree=1,
            data_parallel_replicate_degree=self.devices // self.tensor // self.pipeline,
            micro_batch_size=self.micro_batch,
            zero_stage=0,
            activation_checkpointing=checkpointing,
        ).resolved(block_count=self.blocks, global_batch_size=self.batch)
        job = Job(
            global_batch_size=self.batch,
            sequence_length=2048,
            precision=Precision.FP16,
            stack=Stack.MEGATRON,
            fused_attention=False,
            dropout=True,
        )
        cluster = cluster_from_short_form(f"{self.devices // 8}x8xa100-sxm4-80gb")
        workload = model_workload(a_gpt(self.blocks, self.hidden, self.heads))
        return predict(workload, cluster_hardware(cluster), job, strategy).step_seconds.p50


def a_gpt(block_count: int, hidden_size: int, head_count: int) -> ModelGraph:
    """GPT-3's architecture with a vocabulary of 51,200 and 2,048 positions."""
    block = Block(
        attention=GroupedQueryAttention(
            head_count=head_count,
            key_value_head_count=head_count,
            head_size=hidden_size // head_count,
            query_key_value_bias=True,
            output_bias=True,
            rotary=False,
        ),
        feed_forward=DenseFeedForward(ffn_size=4 * hidden_size, gated=False, bias=True),
        norm=Norm.LAYER,
    )
    return ModelGraph(
        name="gpt",
        architecture="gpt2",
        hidden_size=hidden_size,
        vocabulary_size=51200,
        tied_embeddings=True,
        learned_position_count=2048,
        final_norm=Norm.LAYER,
        maximum_sequence_length=2048,
        runs=(BlockRun(block=block, block_count=block_count),),
    )
