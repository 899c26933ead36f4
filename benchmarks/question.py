"""Questions: what the rows of the benchmark plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.random_clusters import mixed_cluster
from planner import planning
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job, Limits, Precision
from planner.schema.plan import Infeasible, Plan

SECONDS_LIMIT = 60.0
SMALL_MEMORY_GIB = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to plan: a job of so many sequences on a cluster."""

    model: str | dict[str, Any]
    cluster: str | dict[str, Any]
    global_batch_size: int
    sequence_length: int = 4096
    precision: Precision = Precision.BF16

    def job(self) -> Job:
        """Return the job."""
        return Job(
            global_batch_size=self.global_batch_size,
            sequence_length=self.sequence_length,
            precision=self.precision,
            limits=Limits(solver_seconds=SECONDS_LIMIT),
        )

    def plan(self) -> Plan:
        """Return the plan.

        Raises:
            RuntimeError: if nothing fits: the row is then meaningless.
        """
        answer = self._answer()
        if not isinstance(answer, Plan):
            raise RuntimeError(f"{self.model} does not fit on {self.cluster}")  # noqa: TRY004
        return answer

    def refusal(self) -> Infeasible:
        """Return what binds and what would help.

        Raises:
            RuntimeError: if something fits: the row is then meaningless.
        """
        answer = self._answer()
        if not isinstance(answer, Infeasible):
            raise RuntimeError(f"{self.model} fits on {self.cluster}")  # noqa: TRY004
        return answer

    def _answer(self) -> Plan | Infeasible:
        return planning.plan(resolved_model(self.model), resolved_cluster(self.cluster), self.job())


H100, A100, H200 = "h100-sxm5-80gb", "a100-sxm4-80gb", "h200-sxm5-141gb"

LLAMA_8B = Question(model="llama-3-8b", cluster=f"8x{H100}", global_batch_size=512)
QWEN3_30B = Question(model="qwen3-30b-a3b", cluster=f"8x8x{H100}", global_batch_size=1024)
LLAMA_405B = Question(model="llama-3.1-405b", cluster=f"2048x8x{H100}", global_batch_size=2048)
DEEPSEEK_V3 = Question(model="deepseek-v3", cluster=f"256x8x{H100}", global_batch_size=15360)

TWO_KINDS = Question(
    model="llama-3-70b", cluster=mixed_cluster({H100: 64, A100: 64}), global_batch_size=1024
)
LARGE_TWO_KINDS = Question(
    model="llama-3.1-405b", cluster=mixed_cluster({H100: 256, A100: 256}), global_batch_size=1024
)
THREE_KINDS = Question(
    model="llama-3-70b",
    cluster=mixed_cluster({H100: 64, A100: 64, H200: 64}),
    global_batch_size=1536,
)

DENSE_THEN_MIXTURE = Question(model="deepseek-v3", cluster=f"64x8x{H100}", global_batch_size=4096)
TOWER_THEN_DECODER = Question(model="qwen2-vl-7b", cluster=f"8x8x{H100}", global_batch_size=512)
ALTERNATING = Question(model="gpt-oss-120b", cluster=f"8x8x{H100}", global_batch_size=512)
MANY_RUNS = Question(model="gemma-3-27b", cluster=f"8x8x{H100}", global_batch_size=512)

LLAMA_2_7B = Question(
    model="llama-2-7b",
    cluster=f"8x{A100}",
    global_batch_size=64,
    precision=Precision.FP16,
)

LLAMA_2_7B_IN_24_GIB = Question(
    model="llama-2-7b",
    cluster={
        "name": "8xa800-24gib",
        "node_groups": [
            {
                "name": "a800",
                "device": "a800-sxm4-80gb",
                "node_count": 1,
                "devices_per_node": 8,
                "memory_bytes": SMALL_MEMORY_GIB * 2**30,
            }
        ],
    },
    global_batch_size=64,
    sequence_length=2048,
)

OPT_350M = Question(
    model={
        "model_type": "gpt2",
        "_name_or_path": "opt-350m-like",
        "n_embd": 1024,
        "n_head": 16,
        "n_layer": 24,
        "n_inner": 4096,
        "n_positions": 2048,
        "vocab_size": 50272,
    },
    cluster="32x4xa100-sxm4-40gb",
    global_batch_size=1024,
    sequence_length=2048,
    precision=Precision.FP16,
)

LLAMA_405B_ON_A_NODE = Question(
    model="llama-3.1-405b", cluster="8xa100-sxm4-40gb", global_batch_size=1024
)
DEEPSEEK_V3_ON_A_NODE = Question(model="deepseek-v3", cluster=f"8x{H100}", global_batch_size=1024)
LLAMA_70B_ON_RTX_4090 = Question(
    model="llama-3-70b", cluster="8xrtx-4090-24gb", global_batch_size=1024
)
GPT_OSS_120B_ON_L40S = Question(model="gpt-oss-120b", cluster="8xl40s-48gb", global_batch_size=1024)
GEMMA_3_27B_ON_L40S = Question(model="gemma-3-27b", cluster="2xl40s-48gb", global_batch_size=1024)
QWEN2_VL_7B_ON_T4 = Question(model="qwen2-vl-7b", cluster="1xt4-16gb", global_batch_size=1024)
