"""ZeRO stages synchronise as often as they should, and no more.

The small model has four parts (two blocks, embedding, head) and two micro-batches a step. All parts
fit into one bucket of gradients that are reduced whole. Once a step ranks tell each other what of
the batch each has, and once which parameters it has used.
"""

from __future__ import annotations

import pytest

from tests.distributed.group import RankGroup

pytestmark = pytest.mark.distributed

EXPECTED = {
    0: {"all_reduce": 1 + 2},
    1: {"all_gather": 4, "reduce_scatter": 4, "all_reduce": 2},
    2: {"all_gather": 4, "reduce_scatter": 8, "all_reduce": 2},
    3: {"all_gather": 16, "reduce_scatter": 8, "all_reduce": 2},
}
OF_HALF = {
    0: {"all_reduce": 1 + 2},
    1: {"all_gather": 2, "reduce_scatter": 2, "all_reduce": 2},
    2: {"all_gather": 2, "reduce_scatter": 4, "all_reduce": 2},
    3: {"all_gather": 8, "reduce_scatter": 4, "all_reduce": 2},
}


@pytest.mark.parametrize("zero_stage", EXPECTED)
def test_a_lone_stage_synchronises_as_its_zero_stage_says(
    four_ranks: RankGroup, zero_stage: int
) -> None:
    """ZeRO-3 gathers each part twice a micro-batch; ZeRO-1 and 2 gather once a step."""
    counts = four_ranks.run(
        "collectives", strategy={"data_parallel_degree": 4, "zero_stage": zero_stage}
    )
    assert counts == EXPECTED[zero_stage]


@pytest.mark.parametrize("zero_stage", EXPECTED)
def test_a_pipeline_stage_synchronises_as_its_zero_stage_says(
    four_ranks: RankGroup, zero_stage: int
) -> None:
    """Stage 0 holds a block and the embedding: half of the parts."""
    strategy = {
        "pipeline_parallel_degree": 2,
        "data_parallel_degree": 2,
        "micro_batch_size": 2,
        "zero_stage": zero_stage,
    }
    counts = four_ranks.run("collectives", strategy=strategy)
    assert counts == OF_HALF[zero_stage]
