"""`python -m benchmarks.routing`: how unevenly the mixtures of `benchmarks.regret` are routed.

Their experts are untrained, and nothing balances what they take. Of the first batch, with the
weights that a run begins with, this counts the tokens of the fuller of two expert-parallel ranks
over their mean, in the mean over layers, which is the `expert_load_ratio` of the contests.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import distributed, nn

from benchmarks.regret import job_of
from benchmarks.regret_models import Contest, contests, unseen_contests
from executor.data import corpus_batches
from executor.losses import next_token_loss
from executor.mesh import RankMesh
from executor.models.decoder import Decoder
from executor.models.experts import RoutedExperts
from executor.optimizers import adamw
from executor.session import Session
from planner import planning
from planner.requests.resolution import model_document, resolved_cluster
from planner.schema.plan import Plan

_RANKS = 2


def main() -> int:
    """Print each mixture's ratio."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{Path(folder) / 'store'}"
        distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        for contest in (*contests(), *unseen_contests()):
            loads = [_fullest(share) for share in _shares(contest)]
            if loads:
                layers = ", ".join(f"{load:.2f}" for load in loads)
                print(f"{contest.name}: {fmean(loads):.2f} (layers {layers})")
        distributed.destroy_process_group()
    return 0


def _fullest(counts: torch.Tensor) -> float:
    """Return the tokens of the fullest rank over their mean, from those of each expert."""
    by_rank = counts.view(_RANKS, -1).sum(dim=1)
    return float(by_rank.max() * _RANKS / by_rank.sum())


def _shares(contest: Contest) -> list[torch.Tensor]:
    """Return how many tokens each expert takes in a step on one rank, layer by layer."""
    model = model_document(contest.graph.name, contest.graph)
    plan = planning.plan(model, resolved_cluster("1xcpu-gloo"), job_of(contest))
    assert isinstance(plan, Plan)
    device = torch.device("cpu")
    session = Session(plan, device=device, mesh=RankMesh.of(plan.strategy, device.type))
    trainer = session.parallelize(
        lambda: Decoder(contest.graph), next_token_loss, partial(adamw, learning_rate=1e-4)
    )
    counts: list[torch.Tensor] = []

    def count(experts: nn.Module, given: tuple[Any, ...]) -> None:
        assert isinstance(experts, RoutedExperts)
        expert_count = experts.gate_up_proj.shape[0]
        counts.append(torch.bincount(given[1].flatten(), minlength=expert_count))

    for module in trainer.model.modules():
        if isinstance(module, RoutedExperts):
            module.register_forward_pre_hook(count)
    size = {
        "global_batch_size": contest.global_batch_size,
        "sequence_length": contest.sequence_length,
    }
    (batch,) = session.shard(islice(corpus_batches(**size), 1))
    trainer.step(*batch)
    return counts


if __name__ == "__main__":
    sys.exit(main())
