"""The rows: each measures one thing that a user waits for."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.exhaustive import sweep
from benchmarks.measurement import Measurement, median_seconds
from planner import planning
from planner.resolution import resolved_cluster, resolved_model, resolved_request
from planner.schema.job import Job
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy

PLAN_REPEAT_COUNT = 7
LARGE_REPEAT_COUNT = 3
INTERPRETER_REPEAT_COUNT = 7
ESTIMATE_COUNT = 200
SWEEP_SECONDS_LIMIT = 20.0
SEQUENCE_LENGTH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to plan."""

    model: str
    cluster: str
    global_batch_size: int

    def job(self) -> Job:
        """Return the job: this batch of 4096-token sequences."""
        return Job(global_batch_size=self.global_batch_size, sequence_length=SEQUENCE_LENGTH)

    def plan(self) -> Plan:
        """Return the plan.

        Raises:
            RuntimeError: if nothing fits: the row is then meaningless.
        """
        answer = planning.plan(
            resolved_model(self.model), resolved_cluster(self.cluster), self.job()
        )
        if not isinstance(answer, Plan):
            raise RuntimeError(f"{self.model} does not fit on {self.cluster}")  # noqa: TRY004
        return answer


LLAMA_8B = Question(model="llama-3-8b", cluster="8xh100-sxm5-80gb", global_batch_size=512)
QWEN3_30B = Question(model="qwen3-30b-a3b", cluster="8x8xh100-sxm5-80gb", global_batch_size=1024)
LLAMA_405B = Question(
    model="llama-3.1-405b", cluster="2048x8xh100-sxm5-80gb", global_batch_size=2048
)
DEEPSEEK_V3 = Question(model="deepseek-v3", cluster="256x8xh100-sxm5-80gb", global_batch_size=15360)


def import_planning() -> Measurement:
    """Measure `import planner.planning` in fresh interpreters, without the interpreter's start."""
    program = (
        "import time; t = time.perf_counter(); import planner.planning; "
        "print(time.perf_counter() - t)"
    )
    times = [float(_output(["-c", program])) for _ in range(INTERPRETER_REPEAT_COUNT)]
    return Measurement(
        seconds=statistics.median(times), bar_seconds=0.3, note="fresh process, median of 7"
    )


def show_help() -> Measurement:
    """Measure `meshwright --help` from start to end."""
    seconds = median_seconds(
        lambda: _output(["-m", "planner.cli", "--help"]), repeat_count=INTERPRETER_REPEAT_COUNT
    )
    return Measurement(seconds=seconds, bar_seconds=0.5, note="whole process, median of 7")


def plan_llama_8b() -> Measurement:
    """Measure planning Llama-3-8B on eight H100, beside pricing every uniform strategy."""
    plan = LLAMA_8B.plan()
    seconds = median_seconds(LLAMA_8B.plan, repeat_count=PLAN_REPEAT_COUNT)
    request = resolved_request(
        resolved_model(LLAMA_8B.model), resolved_cluster(LLAMA_8B.cluster), LLAMA_8B.job()
    )
    found = sweep(request, seconds_limit=SWEEP_SECONDS_LIMIT)
    step, best = plan.prediction.step_seconds.p50, found.best_step_seconds
    return Measurement(
        seconds=seconds,
        bar_seconds=0.1,
        baseline_seconds=found.whole_seconds,
        note=f"{_proof(plan)}; baseline prices {found.strategy_count} uniform strategies one by "
        f"one ({found.priced_count} timed), best {_ratio(best, step)} of the plan's step",
        holds=plan.certificate.gap_ratio == 0.0 and (best is None or step <= best * (1 + 1e-9)),
    )


def plan_qwen3_30b() -> Measurement:
    """Measure planning Qwen3-30B-A3B on 64 H100."""
    return _proven(QWEN3_30B, bar_seconds=None)


def plan_llama_405b() -> Measurement:
    """Measure planning Llama-3.1-405B on 16,384 H100."""
    return _proven(LLAMA_405B, bar_seconds=1.0)


def plan_deepseek_v3() -> Measurement:
    """Measure planning DeepSeek-V3 on 2,048 H100."""
    return _proven(DEEPSEEK_V3, bar_seconds=3.0)


def estimate_strategy() -> Measurement:
    """Measure one estimate among many of the same model and cluster."""
    model, cluster = resolved_model(LLAMA_8B.model), resolved_cluster(LLAMA_8B.cluster)
    job = LLAMA_8B.job()
    strategies = [
        Strategy(
            tensor_parallel_degree=tensor,
            data_parallel_shard_degree=8 // tensor,
            zero_stage=zero,
        )
        for tensor in (1, 2, 4, 8)
        for zero in (0, 1, 2, 3)
    ]

    def price_all() -> None:
        for index in range(ESTIMATE_COUNT):
            planning.estimate(model, cluster, job, strategies[index % len(strategies)])

    seconds = median_seconds(price_all, repeat_count=LARGE_REPEAT_COUNT) / ESTIMATE_COUNT
    return Measurement(
        seconds=seconds, bar_seconds=1e-3, note=f"each of {ESTIMATE_COUNT}, one after another"
    )


ROWS: dict[str, tuple[str, Callable[[], Measurement]]] = {
    "import": ("import planner.planning", import_planning),
    "help": ("meshwright --help", show_help),
    "llama-3-8b": ("plan Llama-3-8B on 8 H100", plan_llama_8b),
    "qwen3-30b-a3b": ("plan Qwen3-30B-A3B on 64 H100", plan_qwen3_30b),
    "llama-3.1-405b": ("plan Llama-3.1-405B on 16,384 H100", plan_llama_405b),
    "deepseek-v3": ("plan DeepSeek-V3 on 2,048 H100", plan_deepseek_v3),
    "estimate": ("estimate one strategy", estimate_strategy),
}


def _output(arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def _proven(question: Question, *, bar_seconds: float | None) -> Measurement:
    plan = question.plan()
    return Measurement(
        seconds=median_seconds(question.plan, repeat_count=LARGE_REPEAT_COUNT),
        bar_seconds=bar_seconds,
        note=_proof(plan),
        holds=plan.certificate.gap_ratio == 0.0,
    )


def _proof(plan: Plan) -> str:
    certificate = plan.certificate
    return (
        f"gap {certificate.gap_ratio:.2%}, {certificate.configurations_total} configurations, "
        f"{certificate.milp_count} programs"
    )


def _ratio(value: float | None, base: float) -> str:
    return "none" if value is None else f"{value / base:.3f} x"
