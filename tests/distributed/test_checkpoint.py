"""A checkpoint of any layout continues in any other on the same loss curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.group import RankGroup

pytestmark = pytest.mark.distributed

ZERO3: dict[str, Any] = {"data_parallel_degree": 4, "zero_stage": 3}
TENSOR_PIPELINE: dict[str, Any] = {
    "tensor_parallel_degree": 2,
    "sequence_parallel": True,
    "pipeline_parallel_degree": 2,
    "micro_batch_size": 2,
}
REPLICATED: dict[str, Any] = {"data_parallel_degree": 2}


@pytest.mark.parametrize("kind", ["decoder", "tied", "llama"])
def test_training_continues_over_three_layouts(
    four_ranks: RankGroup, two_ranks: RankGroup, tmp_path: Path, kind: str
) -> None:
    """Two steps each: ZeRO-3 on four ranks, TP2 x PP2 on four, DP2 on two."""
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    runs = [
        four_ranks.run("resume", strategy=ZERO3, kind=kind, first_step=0, step_count=2, save=first),
        four_ranks.run(
            "resume",
            strategy=TENSOR_PIPELINE,
            kind=kind,
            first_step=2,
            step_count=2,
            load=first,
            save=second,
        ),
        two_ranks.run(
            "resume", strategy=REPLICATED, kind=kind, first_step=4, step_count=2, load=second
        ),
    ]
    losses = [loss for run in runs for loss in run["losses"]]
    assert losses == pytest.approx(runs[0]["reference_losses"], rel=1e-5)


def test_training_continues_between_layouts_with_data_ranks(
    four_ranks: RankGroup, tmp_path: Path
) -> None:
    """Three steps each: TP2 x replicated DP2, then PP2 x ZeRO-2."""
    directory = str(tmp_path / "checkpoint")
    tensor = {"tensor_parallel_degree": 2, "data_parallel_degree": 2, "micro_batch_size": 2}
    pipeline = {"pipeline_parallel_degree": 2, "data_parallel_degree": 2, "zero_stage": 2}
    runs = [
        four_ranks.run("resume", strategy=tensor, first_step=0, step_count=3, save=directory),
        four_ranks.run("resume", strategy=pipeline, first_step=3, step_count=3, load=directory),
    ]
    losses = [loss for run in runs for loss in run["losses"]]
    assert losses == pytest.approx(runs[0]["reference_losses"], rel=1e-5)


def test_a_directory_without_a_checkpoint_is_refused(two_ranks: RankGroup, tmp_path: Path) -> None:
    answer = two_ranks.run("refused_load", strategy=REPLICATED, directory=str(tmp_path / "nothing"))
    assert answer["error"] == "CheckpointError"
    assert "holds no complete checkpoint" in answer["message"]


def test_a_checkpoint_of_another_model_is_refused(two_ranks: RankGroup, tmp_path: Path) -> None:
    """The Hugging Face model names its parameters otherwise."""
    directory = str(tmp_path / "llama")
    two_ranks.run(
        "resume", strategy=REPLICATED, kind="llama", first_step=0, step_count=1, save=directory
    )
    answer = two_ranks.run("refused_load", strategy=REPLICATED, directory=directory)
    assert answer["error"] == "CheckpointError"
    assert "embedding.weight, which has shape [256, 32]" in answer["message"]
