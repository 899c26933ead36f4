"""In situ: a machine's profile as steps say it is that its own ranks trained.

`meshwright profile` measures kernels alone. What they lose inside a step (caches that others fill,
operators that wait for Python, ranks that share cores) only steps tell: three small models are
trained for some rounds in two to four layouts each, all layouts in turn, and the rates of the
profile are scaled to what fits those steps best. No rate leaves what is physically possible:
products and attention are not faster than alone, operators not quicker launched, memory not faster
than what reads it (on a GPU, than alone), and no network faster than the memory that it runs
through.

The last rounds count if they agree, else all. How far each step is from what all others say is
the error that the profile states, with how much its rounds differed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.calibration.fit import Prior, fit_of, fitted
from planner.calibration.parts import COUNT, NAMES, Parts, scalars_of
from planner.calibration.row import Row
from planner.errors import InputError
from planner.hardware import profile_of
from planner.network import LevelProfile
from planner.planning import estimates, plan
from planner.requests.resolution import cluster_document, model_document
from planner.schema.cluster import Cluster
from planner.schema.job import Job, Limits, Precision
from planner.schema.measured_run import MeasuredRun
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    ModelGraph,
)
from planner.schema.plan import Plan
from planner.schema.scalars import Scalars
from planner.schema.strategy import Strategy
from planner.schema.trial import Trial, agreed, round_seconds, typical_seconds
from planner.validation.case import case_of

BUSY_RATIO = 0.1
"""Rounds that differ by more were not of one machine: what else it did changed meanwhile."""

_SEQUENCES_PER_RANK = 4
_BYTES_AN_ADDITION = 12.0
_SOLVER_SECONDS = 5.0
# Rates of kernels alone are off by up to a factor of two or three, launches inside of modules by
# up to ten; steps of one round to the next differ by a few percent.
_RATE_DEVIATION, _HOST_DEVIATION, _NOISE_DEVIATION = 0.7, 1.5, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """How large a model is: its blocks' width and number, and the length of its sequences."""

    name: str
    hidden: int
    blocks: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """What is trained on a kind of device: models whose steps are launches, products, attention.

    `fused_norms` says that their `torch.nn.RMSNorm` is one kernel there.
    """

    fused_norms: bool
    precision: Precision
    head_size: int
    vocabulary_size: int
    sizes: tuple[_Size, ...]


_EXTENTS = {
    "cpu": _Extent(
        fused_norms=False,
        precision=Precision.FP32,
        head_size=32,
        vocabulary_size=256,
        sizes=(
            _Size(name="narrow", hidden=128, blocks=4, length=128),
            _Size(name="wide", hidden=320, blocks=4, length=128),
            _Size(name="long", hidden=192, blocks=4, length=256),
        ),
    ),
    "cuda": _Extent(
        fused_norms=True,
        precision=Precision.BF16,
        head_size=128,
        vocabulary_size=8192,
        sizes=(
            _Size(name="narrow", hidden=768, blocks=8, length=512),
            _Size(name="wide", hidden=3072, blocks=2, length=2048),
            _Size(name="long", hidden=2048, blocks=2, length=8192),
        ),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InSitu:
    """The corrected cluster, the scalars that it was corrected by, and what the steps were like.

    `error_ratio` is the standard deviation of the logarithm of measured over predicted steps that
    had no part in the fit, `variation_ratio` by how much rounds differed.
    """

    cluster: Cluster
    scalars: Scalars
    error_ratio: float
    variation_ratio: float

    @property
    def was_busy(self) -> bool:
        """Return whether the machine did other things meanwhile."""
        return self.variation_ratio > BUSY_RATIO


def probes(cluster: Cluster) -> tuple[Plan, ...]:
    """Return the plans whose steps tell what kernels alone do not, for the ranks of `cluster`."""
    where = cluster_document(cluster.name, cluster)
    extent = _EXTENTS[profile_of(cluster, cluster.devices[0]).kind]
    found: list[Plan] = []
    for size in extent.sizes:
        graph = _graph(size, extent)
        model = model_document(graph.name, graph)
        job = _job(cluster.device_count, size.length, extent)
        answer = plan(model, where, job)
        if not isinstance(answer, Plan):
            continue
        listed = estimates(model, where, job, list(_layouts(graph, cluster.device_count)))
        found += [
            answer.model_copy(update={"strategy": one.strategy, "prediction": one.prediction})
            for one in listed
            if not isinstance(one, InputError) and one.prediction.fits
        ]
    return tuple(found)


def corrected(cluster: Cluster, plans: Sequence[Plan], trials: Sequence[Trial]) -> InSitu:
    """Return `cluster` with its device's rates scaled to the steps of `plans`.

    Raises:
        InputError: if fewer than two models were trained.
    """
    trials = agreed(trials)
    seconds = typical_seconds(trials)
    rows = [_row(one, took) for one, took in zip(plans, seconds, strict=True) if took is not None]
    if len({row.model for row in rows}) < 2:
        refusals = sorted({trial.refusal for trial in trials if trial.refusal})
        raise InputError(
            "trained too few models to tell what kernels lose inside a step",
            field="meshwright profile",
            value=f"{len(rows)} of {len(plans)} plans; {'; '.join(refusals) or 'no refusal'}",
            remedy="profile more ranks, or with more free memory",
        )
    prior = _prior(cluster)
    factors, parts = fitted(rows, prior)
    rounds = round_seconds(trials)
    spread = statistics.pstdev(np.log(rounds))
    error = math.hypot(_left_out_error(rows, parts, prior), spread)
    scalars = scalars_of(factors)
    return InSitu(
        cluster=_scaled(cluster, scalars, error),
        scalars=scalars,
        error_ratio=error,
        variation_ratio=max(rounds) / min(rounds) - 1.0,
    )


def _left_out_error(rows: Sequence[Row], parts: Parts, prior: Prior) -> float:
    """Return the root mean square of log(measured / predicted) of steps left out of the fit."""
    errors = np.zeros(len(rows))
    for left in range(len(rows)):
        kept = [place for place in range(len(rows)) if place != left]
        factors = fit_of(parts.some(kept), prior)
        errors[left] = parts.some([left]).log_errors(factors)[0][0]
    return float(np.sqrt(np.mean(errors**2)))


def _prior(cluster: Cluster) -> Prior:
    """Return how far rates are likely, and how far they can be, from those of kernels alone.

    The memory of a CPU moves no more than 12 bytes (two numbers read, one written) for each
    addition that products make, that of a GPU no more than alone, and a network no more than it.
    """
    profile = profile_of(cluster, cluster.devices[0])
    (level,) = profile.levels
    rates = [level.bandwidth_gb_per_second]
    rates += [own.bandwidth_gb_per_second for own in level.collectives.values()]
    fastest = max(rates)
    memory = profile.memory_bandwidth_gb_per_second
    additions = 1e3 * profile.peak_tflop_per_second[Precision.FP32] / 2.0
    on_cpu = profile.kind == "cpu"
    memory_most = max(_BYTES_AN_ADDITION * additions / memory, 1.0) if on_cpu else 1.0
    least = {
        "memory_efficiency_ratio": -math.log(memory_most),
        "communication_efficiency_ratio": -math.log(max(memory * memory_most / fastest, 1.0)),
    }
    deviations = np.full(COUNT, _RATE_DEVIATION)
    deviations[NAMES.index("host_overhead_ratio")] = _HOST_DEVIATION
    return Prior(
        deviations=deviations,
        noise_deviation=_NOISE_DEVIATION,
        least=np.array([least.get(name, 0.0) for name in NAMES]),
    )


def _scaled(cluster: Cluster, scalars: Scalars, error_ratio: float) -> Cluster:
    """Return the cluster with the scalars in its device's profile, and the error that is left."""
    profile = profile_of(cluster, cluster.devices[0])
    alone, launch = profile.in_situ_efficiency or 1.0, profile.host_us_per_kernel or 0.0
    memory, attention = profile.memory_bandwidth_gb_per_second, profile.attention
    wire, own = scalars.communication_efficiency_ratio, scalars.attention_efficiency_ratio
    changed = profile.model_copy(
        update={
            "in_situ_efficiency": alone * scalars.compute_efficiency_ratio,
            "memory_bandwidth_gb_per_second": memory * scalars.memory_efficiency_ratio,
            "host_us_per_kernel": launch * scalars.host_overhead_ratio,
            "attention": attention.model_copy(
                update={
                    "forward_tflop_per_second": attention.forward_tflop_per_second * own,
                    "backward_tflop_per_second": attention.backward_tflop_per_second * own,
                }
            ),
            "levels": tuple(_faster(level, wire) for level in profile.levels),
            "step_error_ratio": error_ratio,
        }
    )
    fields = changed.model_dump(mode="json")
    return cluster.model_copy(update={"device_profiles": {profile.device: fields}})


def _faster(level: LevelProfile, ratio: float) -> LevelProfile:
    """Return the level with `ratio` of its bandwidth, in all collectives."""
    name = "bandwidth_gb_per_second"
    collectives = {
        kind: own.model_copy(update={name: own.bandwidth_gb_per_second * ratio})
        for kind, own in level.collectives.items()
    }
    bandwidth = level.bandwidth_gb_per_second * ratio
    return level.model_copy(update={name: bandwidth, "collectives": collectives})


def _row(answer: Plan, seconds: float) -> Row:
    run = MeasuredRun(id=answer.id, family="in situ", plan=answer, step_time_s=seconds)
    return Row(case=case_of(run), measured_seconds=seconds)


def _layouts(graph: ModelGraph, ranks: int) -> Iterator[Strategy]:
    """Yield how a model is split: by data, also in small micro-batches, in stages, and its own."""
    batch = _SEQUENCES_PER_RANK * ranks
    yield _strategy(data=ranks, micro_batch=_SEQUENCES_PER_RANK)
    yield _strategy(data=ranks, micro_batch=1)
    if ranks == 1:
        return
    if ranks % 2 == 0:
        yield _strategy(pipeline=2, data=ranks // 2, micro_batch=_SEQUENCES_PER_RANK)
    if graph.name == "narrow":
        yield _strategy(pipeline=ranks, data=1, micro_batch=max(batch // ranks // 2, 1))
    elif graph.name == "wide" and ranks % 2 == 0:
        yield _strategy(tensor=2, data=ranks // 2, micro_batch=_SEQUENCES_PER_RANK)
    else:
        yield _strategy(data=ranks, micro_batch=_SEQUENCES_PER_RANK, zero_stage=3)


def _strategy(
    *, data: int, micro_batch: int, tensor: int = 1, pipeline: int = 1, zero_stage: int = 0
) -> Strategy:
    fields = {
        "tensor_parallel_degree": tensor,
        "sequence_parallel": tensor > 1,
        "pipeline_parallel_degree": pipeline,
        "data_parallel_shard_degree": data,
        "micro_batch_size": micro_batch,
        "zero_stage": zero_stage,
        "activation_checkpointing": "none",
    }
    return Strategy.model_validate(fields)


def _job(ranks: int, length: int, extent: _Extent) -> Job:
    return Job(
        global_batch_size=_SEQUENCES_PER_RANK * ranks,
        sequence_length=length,
        precision=extent.precision,
        fused_norms=extent.fused_norms,
        limits=Limits(solver_seconds=_SOLVER_SECONDS, accepted_gap_ratio=0.5, simplicity_ratio=0.0),
    )


def _graph(size: _Size, extent: _Extent) -> ModelGraph:
    heads = size.hidden // extent.head_size
    block = Block(
        attention=GroupedQueryAttention(
            head_count=heads, key_value_head_count=heads, head_size=extent.head_size
        ),
        feed_forward=DenseFeedForward(ffn_size=3 * size.hidden),
    )
    return ModelGraph(
        name=size.name,
        architecture="llama",
        hidden_size=size.hidden,
        vocabulary_size=extent.vocabulary_size,
        maximum_sequence_length=max(size.length, 1024),
        runs=(BlockRun(block=block, block_count=size.blocks),),
    )
