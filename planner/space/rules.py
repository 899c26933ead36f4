"""Rules: what is legal and yet left out of the searched space, and why. All of it is here.

A space of up to 262,144 configurations (`WIDE_SPACE_MOST`; half of it where the limit of time is
below `WIDE_SPACE_SECONDS`) has everything that is legal but for the last two of these. In a larger
one there is left out, unless a limit of the job asks for it, the first four of these, or three of
them if that is few enough (`HELD_IN_TURN`):

- tensor parallelism beyond the innermost network level: every layer waits for collectives of its
  activations, which have a tenth of the bandwidth there. Searched if the limit's least exceeds the
  level's domain.
- context parallelism with fewer than 2,048 tokens a rank, whose products lose rate. Searched if the
  limit's least exceeds 1.
- shard groups other than of all data-parallel ranks, or of as many as one domain of a level holds:
  of two groups within one level the larger holds less and talks over the same links. Searched if
  the shard or the replicate degree has a limit.
- micro-batches of more than 64 sequences: kernels are at their best rate far below. Searched if the
  limit's least exceeds 64.
- virtual stages and checkpointing of some schedules, which `planner.space.schedules` says.
- experts split over some of the tensor-parallel ranks, where these could have whole experts of as
  many groups instead: e groups of a ranks hold as much as e a groups of one, compute as much, send
  as many tokens as far, and gather some besides (`test_whole_experts_are_no_worse.py` compares
  them). Searched if the expert-tensor degree has a limit, where the experts do not divide into e a
  groups, and where a limit forbids so many groups.

What was left out that way stands in the certificate (`not_searched`), but for the last, which is
never better. In spaces of any size the pipeline comes back to a kind of device that it has left as
often as `limits.device_returns` says, by default never, since each change of kind crosses the
slowest network; of the orders in which it may, `ORDERS_MOST` are searched.
"""

from __future__ import annotations

from enum import StrEnum
from math import gcd

from planner.hardware import ClusterHardware
from planner.schema.job import DegreeLimit, Limits
from planner.space.divisibility import divisors

CONTEXT_TOKENS_LEAST = 2048
MICRO_BATCH_SIZE_LIMIT = 64
VIRTUAL_PIPELINE_DEGREE_LIMIT = 8
# The most that leave the usual search done in a few seconds. Of 37 random cases that were cut with
# all four rules at 131,072, 19 have faster plans, by up to 10 %; the median takes 3.2 s, 1.4 then.
WIDE_SPACE_MOST = 2**18
# In less there may be no bound at all: of eight such cases three had none after 2 s, one with half.
WIDE_SPACE_SECONDS = 5.0


class Rule(StrEnum):
    """A rule that left something out, in the words of the certificate."""

    TENSOR = "tensor parallelism beyond the innermost network level"
    CONTEXT = f"context parallelism with fewer than {CONTEXT_TOKENS_LEAST} tokens a rank"
    SHARDS = "shard groups that are neither all data-parallel ranks nor a network level's"
    MICRO_BATCHES = f"micro-batches of more than {MICRO_BATCH_SIZE_LIMIT} sequences"
    VIRTUAL_STAGES = (
        f"more than {VIRTUAL_PIPELINE_DEGREE_LIMIT} virtual stages on a rank, or as many as divide "
        "no rank's blocks"
    )
    CHECKPOINTED = "checkpointed blocks under zb_v and dualpipe_v"
    GPIPE = "gpipe where 1f1b runs"
    KINDS = "more returns of the pipeline to a kind of device than limits.device_returns"


_BY_SIZE = frozenset({Rule.TENSOR, Rule.CONTEXT, Rule.SHARDS, Rule.MICRO_BATCHES})
# The one of shard groups is lifted first: it had cost most, 10 % of a step on 4,096 B200.
HELD_IN_TURN = (frozenset[Rule](), _BY_SIZE - {Rule.SHARDS}, _BY_SIZE)
"""What rules hold in spaces from the widest to the narrowest."""

ANY_DEGREE = DegreeLimit()


def wide_space_most(limits: Limits) -> int:
    """Return how many configurations a space may have in which no rule of large ones holds."""
    is_short = limits.solver_seconds < WIDE_SPACE_SECONDS
    return WIDE_SPACE_MOST // 2 if is_short else WIDE_SPACE_MOST


def tensor_parallel_domain(hardware: ClusterHardware) -> int:
    """Return the devices of the smallest innermost domain of all kinds of devices."""
    return min(kind.levels[0].device_count for kind in hardware.kinds)


def searches_tensor_degree(degree: int, hardware: ClusterHardware, limits: Limits) -> bool:
    """Return whether ranks of one tensor are searched so far apart where this rule holds."""
    domain = tensor_parallel_domain(hardware)
    return degree <= domain or limits.tensor_parallel_degree.min > domain


def searches_context_degree(degree: int, sequence_length: int, limits: Limits) -> bool:
    """Return whether a sequence is searched in so many parts where this rule holds."""
    long_enough = sequence_length // degree >= CONTEXT_TOKENS_LEAST
    return degree == 1 or long_enough or limits.context_parallel_degree.min > 1


def searches_micro_batch_size(size: int, limits: Limits) -> bool:
    """Return whether so large a micro-batch is searched where this rule holds."""
    return size <= MICRO_BATCH_SIZE_LIMIT or limits.micro_batch_size.min > MICRO_BATCH_SIZE_LIMIT


def searches_expert_split(split: int, *, expert: int, expert_count: int, limits: Limits) -> bool:
    """Return whether experts of so many groups are searched split over a part of the ranks."""
    whole_instead = expert * split
    is_beaten = expert_count % whole_instead == 0
    is_beaten = is_beaten and limits.expert_parallel_degree.allows(whole_instead)
    return not is_beaten or limits.expert_tensor_parallel_degree != ANY_DEGREE


def searched_shard_degrees(
    data: int, *, stride: int, hardware: ClusterHardware, limits: Limits
) -> tuple[int, ...]:
    """Return the shard groups of `data` ranks, `stride` devices apart, where this rule holds.

    All ranks, and for each level the most that share an aligned part of one domain.
    """
    free = (ANY_DEGREE, ANY_DEGREE)
    if (limits.data_parallel_shard_degree, limits.data_parallel_replicate_degree) != free:
        return divisors(data)
    domains = {level.device_count for kind in hardware.kinds for level in kind.levels}
    fills = {gcd(domain // stride, data) for domain in domains if domain % stride == 0}
    return tuple(sorted({data, *(fill for fill in fills if fill > 1)}))
