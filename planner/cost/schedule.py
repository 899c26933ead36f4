"""Schedule: what a pipeline schedule means for the step and for memory.

    step = sum_r fill_r + repeats · max_r t_r + max_r u_r
    fill_r = max over forms of (a F_r + b I_r + c W_r), not less than 0

with F, I and W a rank's seconds per micro-batch for forward, for gradients of inputs with their
recompute, and for gradients of weights, t_r = F_r + I_r + W_r, and u_r its seconds once a step.
Below, p is the pipeline-parallel degree, v the virtual stages of a rank, m the micro-batches, and
n = (p - 1) / p.

- GPipe, 1F1B: a = b = c = 1, m - 1 repeats. Source: Narayanan et al. 2021, arXiv:2104.04473,
  section 2.2; with uneven stages the fill passes every stage once, and the slowest sets the pace.
- Interleaved: a = b = c = 1/v, m - 1/v repeats. Source: the same, section 2.2.
- ZB-V and DualPipeV: m repeats, and of the forms the largest; found by simulating the orders that
  torch runs (`planner.cost.simulation`). ZB-V that is not full has m - 1, as 1F1B. While F and W
  are no more than I, ZB-V idles (p - 1) max(I/2, I - W): it is without a bubble only where ranks
  need not wait for one another at the end of the step.

docs/decisions/0005 says how far the forms are from the simulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from planner.cost.configuration import Configuration, Floats
from planner.cost.orders import ActionKind, Order, interleaved_order, interleaved_round, rank_order
from planner.schema.job import Stack
from planner.schema.strategy import V_SCHEDULES, PipelineSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class FillWeights:
    """How much of a rank's forward, input- and weight-gradient seconds fills and drains.

    `forms` are weights of the three in this order; the largest weighted sum counts. Summed over
    layers one by one the fill is no less than that of their sum, and equal where layers are alike.
    """

    forms: tuple[tuple[float, float, float], ...]

    def of(self, forward: Floats, input_gradient: Floats, weight_gradient: Floats) -> Floats:
        """Return the largest weighted sum, not less than 0; arrays of one shape."""
        parts = np.stack(np.broadcast_arrays(forward, input_gradient, weight_gradient))
        sums = np.tensordot(np.array(self.forms), parts, axes=1)
        return np.asarray(np.maximum(sums.max(axis=0), 0.0))

    def of_one(self, forward: float, input_gradient: float, weight_gradient: float) -> float:
        """Return the same of single numbers."""
        sums = (f * forward + i * input_gradient + w * weight_gradient for f, i, w in self.forms)
        return max(0.0, *sums)


def fill_weights(
    schedule: PipelineSchedule,
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
) -> FillWeights:
    """Return the weights of the fill."""
    if schedule is PipelineSchedule.ZB_V:
        return FillWeights(forms=_zb_v_forms(pipeline_parallel_degree, micro_batch_count))
    if schedule is PipelineSchedule.DUALPIPE_V:
        return FillWeights(forms=_dualpipe_v_forms(pipeline_parallel_degree))
    share = 1.0 / virtual_pipeline_degree if schedule is PipelineSchedule.INTERLEAVED else 1.0
    return FillWeights(forms=((share, share, share),))


def _zb_v_forms(degree: int, count: int) -> tuple[tuple[float, float, float], ...]:
    """Return ZB-V's forms; the first two are exact where F and W are no more than I.

    With 2 p - 1 micro-batches or more they are (0, n/2, 0) and (0, n, -n): the last gradients of
    inputs go round while weight gradients fill the gaps. Each micro-batch less fills one gap less,
    and below p micro-batches forwards leave gaps too: the first then passes every rank at its own
    pace, as in 1F1B, and the slowest holds up those behind it alone.
    """
    n = (degree - 1) / degree
    missing = min(max(0, 2 * degree - 1 - count), degree - 1) / degree
    gaps_forward = max(0, degree - count) / degree
    forms = (
        (0.0, (n + missing) / 2.0, -missing / 2.0),
        (gaps_forward, n, missing - n),
        (n, -n / 2.0, 0.0),
        (n, 0.0, -n),
        (0.0, 0.0, n / 2.0),
    )
    first = 1.0 / degree if count < degree else 0.0
    return tuple((f + first, i + first, w + first) for f, i, w in forms)


def _dualpipe_v_forms(degree: int) -> tuple[tuple[float, float, float], ...]:
    """Return DualPipeV's forms with forward and backward of a pair one after the other.

    The first is (p - 1) (F + 2 I - W) / 2 - F / 2, all but the last term as DeepSeek has it for
    pairs without overlap. Source: DeepSeek-AI 2024, arXiv:2412.19437, table 2.
    """
    n = (degree - 1) / degree
    return (
        ((degree - 2) / (2.0 * degree), n, -n / 2.0),
        (n, n / 2.0, -n / 2.0),
        (n, 0.0, 0.0),
    )


def repeat_count(
    schedule: PipelineSchedule,
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
) -> float:
    """Return how often the slowest rank's pace counts beside the fill.

    An interleaved pipeline that is not full waits for every micro-batch that is missing, on all
    virtual stages but one: (1 - 1/v) max(0, p - m) more. Of a ZB-V that is not full the first
    micro-batch is in the fill.
    """
    if schedule is PipelineSchedule.INTERLEAVED:
        share = 1.0 / virtual_pipeline_degree
        missing = max(0, pipeline_parallel_degree - micro_batch_count)
        return micro_batch_count - share + (1.0 - share) * missing
    is_full = micro_batch_count >= pipeline_parallel_degree
    if schedule is PipelineSchedule.DUALPIPE_V or (schedule is PipelineSchedule.ZB_V and is_full):
        return float(micro_batch_count)
    return micro_batch_count - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryShares:
    """What each of two neighbours pays of a boundary's seconds, forward and back together.

    `pace` is paid with every micro-batch, `fill` once: they are shares (0..1) of the seconds of
    sending one micro-batch over the boundary and its gradient back.
    """

    pace: float
    fill: float


def boundary_shares(schedule: PipelineSchedule, stack: Stack) -> BoundaryShares:
    """Return the shares of a stack that sends while it computes, as torch and Megatron do.

    1F1B waits for each message: a rank has just as many micro-batches ahead as ranks follow, so
    that the way there and back is in its pace. DualPipeV hands over in pairs and waits as long,
    over twice the boundaries. GPipe, the interleaved schedule and ZB-V run further ahead, and wait
    only while they fill and drain; ZB-V's way back crosses the V once more. Found by simulation;
    docs/decisions/0005 has the errors. Where sending blocks, as in DeepSpeed, both shares are 1.
    """
    if stack is Stack.DEEPSPEED:
        return BoundaryShares(pace=1.0, fill=1.0)
    match schedule:
        case PipelineSchedule.ONE_F_ONE_B:
            return BoundaryShares(pace=0.5, fill=0.5)
        case PipelineSchedule.DUALPIPE_V:
            return BoundaryShares(pace=0.25, fill=0.5)
        case PipelineSchedule.ZB_V:
            return BoundaryShares(pace=0.0, fill=0.625)
        case PipelineSchedule.GPIPE | PipelineSchedule.INTERLEAVED:
            return BoundaryShares(pace=0.0, fill=0.5)


def sending_share(stack: Stack, *, shares_cores: bool) -> float:
    """Return the share of a message's seconds that each of its two ranks is busy with.

    1 where both stand still until it has come, as in DeepSpeed. Half where ranks share cores: the
    one's sending and the other's receiving take turns on them. 0 where it passes beside compute.
    """
    if stack is Stack.DEEPSPEED:
        return 1.0
    return 0.5 if shares_cores else 0.0


def in_flight(
    schedule: PipelineSchedule,
    *,
    micro_batch_count: int,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    stage: int,
) -> float:
    """Return how many micro-batches' activations a rank holds at its peak.

    Counted in micro-batches of all the layers that the rank holds, its virtual stages holding
    alike; `peak_holdings` has them one by one. With r the rank:

        GPipe m; 1F1B min(m, p - r); interleaved min((v - 1) k + 2 (p - 1 - r) + 1, m v) / v with
        k micro-batches a round; ZB-V min(m, p, (m + 1 + r) / 2); DualPipeV p + 1/2.

    A lone rank runs micro-batches one after another under any schedule.
    """
    m, p, v = micro_batch_count, pipeline_parallel_degree, virtual_pipeline_degree
    if p == 1:
        return 1.0
    match schedule:
        case PipelineSchedule.GPIPE:
            return float(m)
        case PipelineSchedule.ONE_F_ONE_B:
            return float(min(m, p - stage))
        case PipelineSchedule.INTERLEAVED:
            length = -(-m // max(1, m // p))
            return min((v - 1) * length + 2 * (p - 1 - stage) + 1, m * v) / v
        case PipelineSchedule.ZB_V:
            return min(m, p, (m + 1 + stage) / 2.0)
        case PipelineSchedule.DUALPIPE_V:
            return min(float(m), p + 0.5)


def rank_of_virtual_stage(
    schedule: PipelineSchedule, *, pipeline_parallel_degree: int, virtual_stage: int
) -> int:
    """Return the pipeline rank that holds a virtual stage: round and round, or there and back."""
    rank = virtual_stage % pipeline_parallel_degree
    back = virtual_stage // pipeline_parallel_degree % 2 == 1
    if schedule in V_SCHEDULES and back:
        return pipeline_parallel_degree - 1 - rank
    return rank


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTiming:
    """What a rank's fill counts, how often the slowest pace does, and who pays for boundaries.

    All but what is paid for boundaries have q, `path_ratio`, in them.
    """

    path_ratio: float
    weights: FillWeights
    repeat_count: float
    shares: BoundaryShares


def schedule_timing(
    configuration: Configuration, stack: Stack, *, lone_speed_ratio: float
) -> ScheduleTiming:
    """Return the timing of a configuration on ranks that are `lone_speed_ratio` as fast alone.

        step = q (sum_r fill_r + repeats · max_r t_r) + max_r u_r

    Ranks' seconds are those while all ranks are busy. Where ranks share cores, as four CPU ranks on
    two, one that waits leaves its share to the others: the critical path C then passes as fast as
    lone ranks are, k times, but all work W takes as long as cores are there for. With a micro-batch
    of a stage for the unit, p stages and m micro-batches,

        q = min(1, max(1 / k, (W + L) / C)),   W = m,   L = sum over a < p / k of (1 / k - a / p)

    where L is what fill and drain leave idle while a stages, fewer than cores, have work. Of a
    single micro-batch W + L is at most p / k: stages work one after another, each as fast as alone.
    q is that of even stages; where they are uneven the slowest still counts as if cores were its
    own. Ranks with a device each have k = 1, and q = 1. Messages do not pass faster for idle cores:
    each rank works on them, `sending_share` of the time, with every micro-batch.

    Source: Graham 1966, doi:10.1002/j.1538-7305.1966.tb01709.x, whose two bounds, work and critical
    path, these are.
    """
    schedule, count = configuration.pipeline_schedule, configuration.micro_batch_count
    degree = configuration.pipeline_parallel_degree
    size = {
        "pipeline_parallel_degree": degree,
        "virtual_pipeline_degree": configuration.virtual_pipeline_degree,
        "micro_batch_count": count,
    }
    weights, repeats = fill_weights(schedule, **size), repeat_count(schedule, **size)
    shares = boundary_shares(schedule, stack)
    if lone_speed_ratio <= 1.0 or degree == 1:
        return ScheduleTiming(path_ratio=1.0, weights=weights, repeat_count=repeats, shares=shares)
    path = degree * weights.of_one(1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0) + repeats
    ratio = _path_ratio(path, degree=degree, count=count, lone_speed_ratio=lone_speed_ratio)
    sending = sending_share(stack, shares_cores=True)
    return ScheduleTiming(
        path_ratio=ratio,
        weights=FillWeights(
            forms=tuple((ratio * f, ratio * i, ratio * w) for f, i, w in weights.forms)
        ),
        repeat_count=ratio * repeats,
        shares=BoundaryShares(pace=sending / ratio, fill=sending),
    )


def _path_ratio(path: float, *, degree: int, count: int, lone_speed_ratio: float) -> float:
    """Return q for a critical path of `path` micro-batches of one stage."""
    alone = 1.0 / lone_speed_ratio
    if count == 1:  # one stage after another, but for what a schedule lets run beside them
        return max(alone, min(degree * alone, 1.0) / path)
    idle = alone - 1.0 / degree  # below 0 where two stages on a core lose more than half each
    stages = 2
    while stages < degree / lone_speed_ratio:
        idle += alone - stages / degree
        stages += 1
    return min(1.0, max(alone, (count + idle) / path))


Holding = tuple[int, ...]
"""Micro-batches held at one moment, by the rank's virtual stages in the order of the chain."""


def most_held(order: Order) -> float:
    """Return the most micro-batches held, in all of the rank's layers.

    One of the rank's v virtual stages counts 1/v, as if they held alike.
    """
    return max((sum(held) / len(held) for held in _moments(order)), default=0.0)


@lru_cache(maxsize=4096)
def peak_holdings(
    schedule: PipelineSchedule,
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
    rank: int,
) -> tuple[Holding, ...]:
    """Return the moments of a rank of which no other holds as much in every virtual stage.

    Activations are held from a forward to the end of its weight gradient. When that is most depends
    on the order of the rank's actions alone, and not on how long they take.

    `peak_activation_bytes` is what they come to. Where the bytes of a micro-batch do not fall along
    the rank's virtual stages, that is no more than `schedule.in_flight` times their sum, and where
    they fall it is more: earlier virtual stages hold more micro-batches. One alone holds what the
    schedule has in flight.

    Raises:
        ValueError: as `planner.cost.orders.rank_orders`.
    """
    if pipeline_parallel_degree == 1:
        return ((1,) * virtual_pipeline_degree,)
    if virtual_pipeline_degree == 1:
        held = in_flight(
            schedule,
            micro_batch_count=micro_batch_count,
            pipeline_parallel_degree=pipeline_parallel_degree,
            virtual_pipeline_degree=virtual_pipeline_degree,
            stage=rank,
        )
        return ((int(held),),)
    order = _short_order(
        schedule,
        rank,
        pipeline_parallel_degree=pipeline_parallel_degree,
        virtual_pipeline_degree=virtual_pipeline_degree,
        micro_batch_count=micro_batch_count,
    )
    return _largest(set(_moments(order)))


def peak_activation_bytes(holdings: Sequence[Holding], bytes_kept: Sequence[float]) -> float:
    """Return the most that a rank keeps: the largest of sum_j held_j a_j over its moments.

    `bytes_kept` is a_j, what each of the rank's virtual stages keeps per micro-batch.
    """
    return max(
        sum(held * kept for held, kept in zip(moment, bytes_kept, strict=True))
        for moment in holdings
    )


def _short_order(
    schedule: PipelineSchedule,
    rank: int,
    *,
    pipeline_parallel_degree: int,
    virtual_pipeline_degree: int,
    micro_batch_count: int,
) -> Order:
    """Return the rank's order with just so many micro-batches that it has every moment.

    Once the pipeline is full, moments repeat: those of the interleaved schedule from the third
    round on, those of V-shaped ones from the 2 p-th micro-batch on.
    """
    degree, count = pipeline_parallel_degree, micro_batch_count
    if schedule is PipelineSchedule.INTERLEAVED:
        length = interleaved_round(degree, count)
        return interleaved_order(
            rank,
            degree,
            virtual_pipeline_degree=virtual_pipeline_degree,
            micro_batch_count=min(count, 3 * length),
            round_length=length,
        )
    return rank_order(
        schedule,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=virtual_pipeline_degree,
        micro_batch_count=min(count, 2 * degree) if schedule in V_SCHEDULES else count,
        rank=rank,
    )


def _moments(order: Order) -> Iterator[Holding]:
    """Yield what is held after each forward."""
    stages = sorted({action.virtual_stage for action in order})
    place = {stage: index for index, stage in enumerate(stages)}
    held = [0] * len(stages)
    for action in order:
        if action.kind is ActionKind.FORWARD:
            held[place[action.virtual_stage]] += 1
            yield tuple(held)
        elif action.kind is not ActionKind.INPUT_GRADIENT:
            held[place[action.virtual_stage]] -= 1


def _largest(moments: set[Holding]) -> tuple[Holding, ...]:
    return tuple(
        sorted(
            held
            for held in moments
            if not any(
                other != held and all(a >= b for a, b in zip(other, held, strict=True))
                for other in moments
            )
        )
    )
