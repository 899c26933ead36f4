"""`python -m benchmarks.rules`: what the rules of large spaces would leave out of smaller ones.

Each job is planned as users have it, and once more under the rules that `planner.space.rules` keeps
for spaces of more than `WIDE_SPACE_MOST` configurations. The exit code is 1 if a plan under the
rules is proven to be better, which would be a bug.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import AbstractContextManager
from functools import partial
from unittest.mock import patch

from benchmarks.machine import machine, machine_line
from benchmarks.question import H100, Question
from planner.schema.plan import Plan
from planner.space.degrees import enumerate_configurations

JOBS = {
    "Llama-3-8B on 1,024 H100, 1,024 x 8,192": Question(
        model="llama-3-8b", cluster=f"128x8x{H100}", global_batch_size=1024, sequence_length=8192
    ),
    "GPT-2 XL on 256 A100, 512 x 1,024": Question(
        model="gpt2-xl",
        cluster="32x8xa100-sxm4-80gb",
        global_batch_size=512,
        sequence_length=1024,
    ),
    "Llama-3-70B on 16 nodes of one GH200, 4 x 8,192": Question(
        model="llama-3-70b", cluster="16x1xgh200-96gb", global_batch_size=4, sequence_length=8192
    ),
    "Llama-3.1-405B on 16,384 H100, 2,048 x 4,096": Question(
        model="llama-3.1-405b", cluster=f"2048x8x{H100}", global_batch_size=2048
    ),
    "Llama-3-8B on 128 H100, 16 x 8,192": Question(
        model="llama-3-8b", cluster=f"16x8x{H100}", global_batch_size=16, sequence_length=8192
    ),
    "GPT-2 on 8 A100, 16,384 x 64": Question(
        model="gpt2", cluster="8xa100-sxm4-80gb", global_batch_size=16384, sequence_length=64
    ),
    "Qwen3-30B-A3B on 64 H100, 1,024 x 4,096": Question(
        model="qwen3-30b-a3b", cluster=f"8x8x{H100}", global_batch_size=1024
    ),
}


def main() -> int:
    """Plan every job twice and return 1 if the rules have a better plan than all of the space."""
    argparse.ArgumentParser(prog="python -m benchmarks.rules", description=__doc__).parse_args()
    print(machine_line(machine()))
    print("\n| job | with the rules | without | configurations | seconds of CPU |")
    print("|---|---|---|---|---|")
    failures = 0
    for title, asked in JOBS.items():
        with under_the_rules():
            narrow, narrow_cpu = _planned(asked)
        wide, wide_cpu = _planned(asked)
        counts = f"{_configurations(narrow):,}, {_configurations(wide):,}"
        cpu = f"{narrow_cpu:.2f}, {wide_cpu:.2f}"
        print(f"| {title} | {_said(narrow)} | {_said(wide)} | {counts} | {cpu} |", flush=True)
        failures += _step(narrow) < wide.certificate.lower_bound_seconds * (1.0 - 1e-9)
    return 1 if failures else 0


def under_the_rules() -> AbstractContextManager[object]:
    """Search no space as a small one, whatever its size."""
    narrow = partial(enumerate_configurations, wide_most=0)
    return patch("planner.ilp.pricing.enumerate_configurations", narrow)


def _planned(asked: Question) -> tuple[Plan, float]:
    started = time.process_time()
    return asked.plan(), time.process_time() - started


def _configurations(plan: Plan) -> int:
    return plan.certificate.configurations_total


def _step(plan: Plan) -> float:
    return plan.prediction.step_seconds.p50


def _said(plan: Plan) -> str:
    strategy, gap = plan.strategy, plan.certificate.gap_ratio
    degrees = {
        "TP": strategy.tensor_parallel_degree,
        "PP": strategy.pipeline_parallel_degree,
        "CP": strategy.context_parallel_degree,
        "shard": strategy.data_parallel_shard_degree,
        "replicate": strategy.data_parallel_replicate_degree,
    }
    named = " x ".join(
        f"{name} {degree}" for name, degree in degrees.items() if degree and degree > 1
    )
    return f"{_step(plan):.4g} s, {named}{f', gap {gap:.1%}' if gap else ''}"


if __name__ == "__main__":
    sys.exit(main())
