"""Lightning settled: what Lightning's strategies can run of a plan, applied by our integration.

Rules: `DDPStrategy` and `ModelParallelStrategy` of Lightning 2.6, which take no pipelines and no
experts, and tensor parallelism as the module itself applies it.
"""

from __future__ import annotations

from planner.exporters.draft import (
    Draft,
    first_draft,
    refusal,
    with_one_zero_stage,
    zero_stages,
)
from planner.exporters.fully_sharded import is_sharded
from planner.schema.job import Precision
from planner.schema.plan import Plan


def settled_for_lightning(plan: Plan, target: str) -> Draft:
    """Return what Lightning can run of the plan, with what is lost.

    Raises:
        InputError: if it can run nothing like it.
    """
    draft = first_draft(plan, target)
    _refuse_replicas(draft)
    _refuse_formats(draft)
    shares = is_sharded(draft) and draft.shares_states
    if not shares or zero_stages(draft.strategy) <= {2, 3}:
        return draft
    return with_one_zero_stage(draft, (2, 3), why="Lightning reduces each micro-batch's gradients")


def _refuse_replicas(draft: Draft) -> None:
    strategy = draft.strategy
    if strategy.tensor_parallel_degree > 1 and strategy.replicate_degree > 1:
        raise refusal(
            draft,
            field="data_parallel_replicate_degree",
            value=strategy.replicate_degree,
            problem="Lightning has no replicas beside tensor parallelism",
            remedy="plan with limits.data_parallel_replicate_degree 1",
        )


def _refuse_formats(draft: Draft) -> None:
    """Refuse what Lightning has no format for, or none beside `fully_shard`."""
    precision = draft.plan.job.resolved.precision
    if precision is Precision.FP8 or (precision is Precision.FP16 and is_sharded(draft)):
        raise refusal(
            draft,
            field="precision",
            value=precision.value,
            problem="Lightning's strategies do not train in it",
            remedy="plan in bf16",
        )
