"""Measurement: what a row measured, in seconds and bytes, or why that is not compared.

Time: the stated step, else tokens or samples a second, else what was derived from them, else
TFLOP/s. A TFLOP/s figure counts 6 N + 12 L h s FLOPs a token (attention whole), and 4/3 of that
where recomputed FLOPs are counted under full recomputation. Megatron-Bridge counts what the causal
mask leaves of attention, 6 L h s: so its rows say that have tokens a second as well. Where a row
says that its sequences differ in length, neither tokens nor FLOPs a second tell the step: how many
tokens it had is not stated.

Source: Narayanan et al. 2021, arXiv:2104.04473, equation 3.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.schema.measured_run import MeasuredRun
from planner.schema.model import GroupedQueryAttention, LatentAttention
from planner.units import GIB
from planner.validation.case import Case
from planner.validation.reasons import SetAside

TINY_TIER = "ci_small"
BULK_TIER = "bulk"
_RECOMPUTED_RATIO = 4.0 / 3.0


def measured_seconds(case: Case) -> float | SetAside:
    """Return the measured seconds of a step, or why they are not compared."""
    run = case.run
    if run.outcome in {"oom", "failed"}:
        return SetAside.NOT_MEASURED
    seconds = step_seconds(case)
    if seconds is None:
        rates = (run.tokens_per_s_per_gpu, run.calc_tokens_per_s_per_gpu, run.tflops_per_gpu)
        unknown = run.varied_lengths and any(rate is not None for rate in rates)
        return SetAside.TOKENS_UNKNOWN if unknown else SetAside.NOT_MEASURED
    if run.tier == TINY_TIER:
        return SetAside.LAUNCH_BOUND
    return SetAside.DISTRUSTED if run.ready_time is False else seconds


def step_seconds(case: Case) -> float | None:
    """Return the seconds of a step that the row states in one way or another."""
    ways: tuple[Callable[[Case], float | None], ...] = (_stated, _from_rate, _from_flop)
    return next((seconds for way in ways if (seconds := way(case)) is not None), None)


def time_is_from_flop(case: Case) -> bool:
    """Return whether the seconds of a step come from TFLOP/s alone."""
    return _stated(case) is None and _from_rate(case) is None and _from_flop(case) is not None


def _sequence_length(case: Case) -> int:
    return case.job.sequence_length or 1  # a case always has one


def _stated(case: Case) -> float | None:
    return case.run.step_time_s


def _from_rate(case: Case) -> float | None:
    run = case.run
    batch = case.job.global_batch_size or 1
    tokens = batch * _sequence_length(case) / case.hardware.device_count
    if run.tokens_per_s_per_gpu is not None and not run.varied_lengths:
        return tokens / run.tokens_per_s_per_gpu
    if run.samples_per_s is not None:
        return batch / run.samples_per_s
    if run.varied_lengths:
        return None
    if run.calc_step_time_s is not None:
        return run.calc_step_time_s
    rate = run.calc_tokens_per_s_per_gpu
    return None if rate is None else tokens / rate


def _from_flop(case: Case) -> float | None:
    run = case.run
    if run.tflops_per_gpu is None or run.tflops_counts not in {"model", "hardware"}:
        return None
    if case.job.adapters is not None:  # sources differ in what they count of frozen weights
        return None
    if run.varied_lengths:
        return None
    flop = (case.job.global_batch_size or 1) * _sequence_length(case) * _flop_per_token(case)
    if run.tflops_counts == "hardware" and run.recompute == "full":
        flop *= _RECOMPUTED_RATIO
    return flop / (run.tflops_per_gpu * 1e12 * case.hardware.device_count)


def _flop_per_token(case: Case) -> float:
    """Return 6 N + 12 L h s, or 6 N + 6 L h s, with N the parameters that a token meets."""
    layers = [(layer, count) for layer, count in case.workload.runs]
    layers.append((case.workload.head.layer, 1))
    products = sum(count * gemm.flop_per_token() for layer, count in layers for gemm in layer.gemms)
    widths = sum(
        part.block_count * _attention_width(part.block.attention) for part in case.graph.runs
    )
    whole = case.run.tflops_attention != "causal"
    return 3.0 * products + (12.0 if whole else 6.0) * widths * _sequence_length(case)


def _attention_width(attention: object) -> int:
    if isinstance(attention, GroupedQueryAttention):
        return attention.head_count * attention.head_size
    if isinstance(attention, LatentAttention):
        per_head = attention.no_position_head_size + attention.rotary_head_size
        return attention.head_count * (per_head + attention.value_head_size) // 2
    return 0


def measured_peak_bytes(run: MeasuredRun) -> float | SetAside:
    """Return the measured peak of device memory, or why it is not compared."""
    if run.peak_mem_gib is None or run.outcome in {"oom", "failed"}:
        return SetAside.NOT_MEASURED
    return SetAside.DISTRUSTED if run.ready_memory is False else run.peak_mem_gib * GIB


def measured_fit(run: MeasuredRun) -> bool | SetAside:
    """Return whether the run fitted, or why that is not compared.

    That a tiny model of a test suite fits says nothing.
    """
    if run.outcome == "failed":
        return SetAside.OUTCOME_OTHER
    if run.outcome is None:
        return SetAside.NOT_MEASURED
    if run.tier == TINY_TIER:
        return SetAside.LAUNCH_BOUND
    return SetAside.DISTRUSTED if run.ready_fit is False else run.outcome == "ok"
