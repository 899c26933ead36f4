"""The rows: each measures one thing that a user waits for."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from benchmarks import question
from benchmarks.exhaustive import sweep
from benchmarks.measurement import Measurement, median_seconds
from benchmarks.memory import peak_resident_bytes
from benchmarks.question import LLAMA_8B, Question
from planner import planning
from planner.errors import InputError
from planner.requests.resolution import resolved_cluster, resolved_model, resolved_request
from planner.schema.plan import Infeasible, Plan
from planner.schema.strategy import ActivationCheckpointing, Strategy
from planner.units import counted

PLAN_REPEAT_COUNT = 5
INTERPRETER_REPEAT_COUNT = 7
ESTIMATE_CLUSTER = "8x8xh100-sxm5-80gb"
ESTIMATE_COUNT = 1000
SWEEP_SECONDS_LIMIT = 20.0
REFUSAL_SECONDS_BAR = 2.0


def import_planning() -> Measurement:
    """Measure `import planner.planning` in fresh interpreters, without the interpreter's start.

    What is imported is compiled once before, as pip compiles what it installs.
    """
    program = (
        "import time; t = time.perf_counter(); import planner.planning; "
        "print(time.perf_counter() - t)"
    )
    with _compiled() as compiled:
        _output(["-c", program], compiled)
        times = [float(_output(["-c", program], compiled)) for _ in range(INTERPRETER_REPEAT_COUNT)]
    return Measurement(
        seconds=statistics.median(times),
        bar_seconds=0.3,
        note="fresh process, compiled before, median of 7",
    )


def show_help() -> Measurement:
    """Measure `meshwright --help` from start to end, compiled before as an installed one is."""
    command = ["-m", "planner.cli", "--help"]
    with _compiled() as compiled:
        _output(command, compiled)
        seconds = median_seconds(
            lambda: _output(command, compiled), repeat_count=INTERPRETER_REPEAT_COUNT
        )
    return Measurement(
        seconds=seconds, bar_seconds=0.5, note="whole process, compiled before, median of 7"
    )


def plan_llama_8b() -> Measurement:
    """Measure planning Llama-3-8B on eight H100, beside pricing every uniform strategy."""
    plan = LLAMA_8B.plan()
    seconds = median_seconds(LLAMA_8B.plan, repeat_count=PLAN_REPEAT_COUNT)
    request = resolved_request(
        resolved_model(LLAMA_8B.model), resolved_cluster(LLAMA_8B.cluster), LLAMA_8B.job()
    )
    peak = peak_resident_bytes()
    found = sweep(request, seconds_limit=SWEEP_SECONDS_LIMIT)
    step, best = plan.prediction.step_seconds.p50, found.best_step_seconds
    return Measurement(
        seconds=seconds,
        bar_seconds=0.1,
        baseline_seconds=found.whole_seconds,
        note=f"{_proof(plan)}; a sweep prices {found.strategy_count} uniform strategies one by "
        f"one ({found.priced_count} timed), best {_ratio(best, step)} of the plan's step",
        holds=plan.certificate.gap_ratio == 0.0 and (best is None or step <= best * (1 + 1e-9)),
        peak_resident_bytes=peak,
    )


def estimate_strategy() -> Measurement:
    """Measure one estimate among many of the same model and cluster, and one by itself."""
    model, cluster = resolved_model(LLAMA_8B.model), resolved_cluster(ESTIMATE_CLUSTER)
    job = LLAMA_8B.job()
    strategies = [
        Strategy(
            tensor_parallel_degree=tensor,
            pipeline_parallel_degree=pipeline,
            data_parallel_shard_degree=64 // (tensor * pipeline),
            zero_stage=zero,
            activation_checkpointing=checkpointing,
        )
        for tensor in (1, 2, 4, 8)
        for pipeline in (1, 2, 4, 8)
        for zero in (0, 1, 2)
        for checkpointing in ActivationCheckpointing
    ]
    many = [strategies[index % len(strategies)] for index in range(ESTIMATE_COUNT)]

    def price_all() -> None:
        for answer in planning.estimates(model, cluster, job, many):
            if isinstance(answer, InputError):
                raise answer

    def price_one() -> None:
        planning.estimate(model, cluster, job, strategies[0])

    seconds = median_seconds(price_all, repeat_count=PLAN_REPEAT_COUNT) / ESTIMATE_COUNT
    alone = median_seconds(price_one, repeat_count=PLAN_REPEAT_COUNT)
    return Measurement(
        seconds=seconds,
        bar_seconds=1e-3,
        note=f"each of {ESTIMATE_COUNT} in a batch; by itself {alone * 1e3:.1f} ms",
    ).with_peak()


Row = tuple[str, Callable[[], Measurement]]


def _planned(asked: Question, bar_seconds: float | None = None) -> Callable[[], Measurement]:
    return lambda: _proven(asked, bar_seconds=bar_seconds)


def _refused(asked: Question) -> Callable[[], Measurement]:
    return lambda: _helped(asked)


ROWS: dict[str, Row] = {
    "import": ("import planner.planning", import_planning),
    "help": ("meshwright --help", show_help),
    "llama-3-8b": ("Llama-3-8B on 8 H100", plan_llama_8b),
    "qwen3-30b-a3b": ("Qwen3-30B-A3B on 64 H100", _planned(question.QWEN3_30B)),
    "llama-3.1-405b": ("Llama-3.1-405B on 16,384 H100", _planned(question.LLAMA_405B, 1.0)),
    "deepseek-v3": ("DeepSeek-V3 on 2,048 H100", _planned(question.DEEPSEEK_V3, 3.0)),
    "64+64": ("Llama-3-70B on 64 H100 + 64 A100", _planned(question.TWO_KINDS, 5.0)),
    "256+256": ("Llama-3.1-405B on 256 H100 + 256 A100", _planned(question.LARGE_TWO_KINDS)),
    "64+64+64": ("Llama-3-70B on 64 H100 + 64 A100 + 64 H200", _planned(question.THREE_KINDS)),
    "dense-then-mixture": (
        "DeepSeek-V3 (2 kinds of blocks) on 512 H100",
        _planned(question.DENSE_THEN_MIXTURE),
    ),
    "tower-then-decoder": (
        "Qwen2-VL-7B (tower and decoder) on 64 H100",
        _planned(question.TOWER_THEN_DECODER),
    ),
    "alternating": (
        "gpt-oss-120b (36 runs of 2 kinds) on 64 H100",
        _planned(question.ALTERNATING),
    ),
    "many-runs": ("Gemma-3-27B (22 runs of 3 kinds) on 64 H100", _planned(question.MANY_RUNS)),
    "no-405b": (
        "Llama-3.1-405B on 8 A100 40 GB: nothing fits",
        _refused(question.LLAMA_405B_ON_A_NODE),
    ),
    "no-deepseek-v3": (
        "DeepSeek-V3 on 8 H100: nothing fits",
        _refused(question.DEEPSEEK_V3_ON_A_NODE),
    ),
    "no-70b": (
        "Llama-3-70B on 8 RTX 4090: nothing fits",
        _refused(question.LLAMA_70B_ON_RTX_4090),
    ),
    "no-gpt-oss": (
        "gpt-oss-120b on 8 L40S: nothing fits",
        _refused(question.GPT_OSS_120B_ON_L40S),
    ),
    "no-gemma-3": ("Gemma-3-27B on 2 L40S: nothing fits", _refused(question.GEMMA_3_27B_ON_L40S)),
    "no-qwen2-vl": ("Qwen2-VL-7B on 1 T4: nothing fits", _refused(question.QWEN2_VL_7B_ON_T4)),
    "estimate": ("estimate one strategy", estimate_strategy),
}


@contextmanager
def _compiled() -> Iterator[Mapping[str, str]]:
    """Yield an environment in which what is imported is compiled once, whatever this one says.

    A shell that forbids bytecode would have every process compile the whole program anew.
    """
    with TemporaryDirectory() as folder:
        yield {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}


def _output(arguments: list[str], environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **(environment or {})},
    )
    return done.stdout


def _proven(asked: Question, *, bar_seconds: float | None) -> Measurement:
    LLAMA_8B.plan()  # a warm process: imports and profiles are read
    plans: list[Plan] = []
    seconds = median_seconds(lambda: plans.append(asked.plan()), repeat_count=PLAN_REPEAT_COUNT)
    plan = plans[-1]
    return Measurement(
        seconds=seconds,
        bar_seconds=bar_seconds,
        note=_proof(plan),
        holds=plan.certificate.gap_ratio == 0.0,
    ).with_peak()


def _helped(asked: Question) -> Measurement:
    """Measure the answer where nothing fits: what binds, and the smallest changes that help.

    It holds if the time cut nothing off, and more nodes are among the changes.
    """
    LLAMA_8B.plan()
    answers: list[Infeasible] = []
    seconds = median_seconds(
        lambda: answers.append(asked.refusal()), repeat_count=PLAN_REPEAT_COUNT
    )
    answer = answers[-1]
    first, *others = (change.description for change in answer.relaxations)
    more = f", and {counted(len(others), 'other change')}" if others else ""
    nodes = [change for change in answer.relaxations if change.field.endswith(".node_count")]
    return Measurement(
        seconds=seconds,
        bar_seconds=REFUSAL_SECONDS_BAR,
        note=f"{answer.configurations_total} configurations; {first}{more}",
        holds=bool(nodes) and not answer.relaxations_cut_by_time,
    ).with_peak()


def _proof(plan: Plan) -> str:
    certificate = plan.certificate
    return (
        f"gap {certificate.gap_ratio:.2%}, {certificate.configurations_total} configurations, "
        f"{certificate.milp_count} programs"
    )


def _ratio(value: float | None, base: float) -> str:
    return "none" if value is None else f"{value / base:.3f} x"
