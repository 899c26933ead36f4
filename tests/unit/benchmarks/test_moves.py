"""The adversary's moves: drafts are strategies and back, and no move leaves the searched space."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from benchmarks.draft import draft_of, even_cuts, strategy_of, virtual_stage_count
from benchmarks.moves import Moves
from benchmarks.outside import lifted_limits
from benchmarks.random_clusters import mixed_cluster
from benchmarks.random_models import alternating_of
from planner.planning import resolved_cluster, resolved_model
from planner.requests.resolution import Request, resolved_request
from planner.schema.job import Job, Limits
from planner.space.legality import breaches


def _request(*, limits: Limits | None = None) -> Request:
    """Twelve blocks in turns on four H100 and four A100: pipelines of two kinds."""
    cluster = mixed_cluster({"h100-sxm5-80gb": 4, "a100-sxm4-80gb": 4}, devices_per_node=4)
    job = Job(global_batch_size=16, sequence_length=4096, limits=limits or Limits())
    model = alternating_of(block_count=12, hidden_size=2048)
    return resolved_request(resolved_model(model), resolved_cluster(cluster), job)


def _random(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - a draw of moves, no secret


def test_even_cuts_differ_by_one_block_at_most() -> None:
    assert even_cuts(10, 4) == (0, 2, 5, 7, 10)


def test_a_draft_is_its_strategy_and_back() -> None:
    request = _request()
    moves = Moves.of(request)
    for seed in range(40):
        random = _random(seed)
        configuration = moves.configurations[random.randrange(len(moves.configurations))]
        draft = moves.start(configuration, random.choice(moves.choices(configuration)))
        draft = moves.random(draft, random)
        assert draft_of(strategy_of(draft, request.hardware), request.hardware) == draft


def test_two_hundred_moves_in_a_row_stay_legal_and_inside_the_space() -> None:
    request = _request()
    moves, random = Moves.of(request), _random(5)
    inside = set(moves.configurations)
    draft = moves.start(moves.configurations[0], moves.choices(moves.configurations[0])[0])
    job = request.job.resolved
    for _ in range(200):
        draft = moves.random(draft, random)
        assert draft.configuration in inside
        assert len(draft.cuts) == virtual_stage_count(draft.configuration) + 1
        assert all(a < b for a, b in pairwise(draft.cuts))
        strategy = strategy_of(draft, request.hardware)
        found = breaches(request.model.resolved, request.hardware, job, strategy)
        assert next(found, None) is None


def test_a_move_touches_every_part_of_a_draft_in_time() -> None:
    moves, random = Moves.of(_request()), _random(1)
    start = moves.start(moves.configurations[-1], moves.blocks[0])
    seen = [moves.random(start, random) for _ in range(300)]
    for part in ("configuration", "cuts", "choices", "embedding", "head"):
        assert any(getattr(draft, part) != getattr(start, part) for draft in seen), part


def test_lifting_a_rule_of_large_spaces_asks_for_what_a_small_one_has() -> None:
    request = _request()
    lifted = lifted_limits(request.job.resolved.limits, request.hardware)
    searched = set(Moves.of(request).configurations)
    shorter = Moves.of(request, limits=lifted["short contexts"])
    assert shorter.configurations
    assert all(c.context_parallel_degree > 1 for c in shorter.configurations)
    assert searched.issuperset(shorter.configurations)


def test_a_limit_of_the_jobs_own_is_not_lifted() -> None:
    request = _request(limits=Limits.model_validate({"context_parallel_degree": 1}))
    assert "short contexts" not in lifted_limits(request.job.resolved.limits, request.hardware)
