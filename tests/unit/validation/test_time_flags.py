"""What a row's notes and knobs say of time reaches the job and the strategy."""

from __future__ import annotations

import pytest

from planner.schema.strategy import ActivationCheckpointing
from planner.validation.case import case_of
from tests.measured_rows import KORTHIKANTI, MIXTURE, a_run


@pytest.mark.parametrize(
    ("notes", "graphs", "overlapped"),
    [
        (None, False, False),
        ("cuda_graph_impl=full_iteration, cuda_graph_scope=[]", True, False),
        ("cuda_graph_impl=local", True, False),
        ("cuda_graph_impl=transformer_engine, moe_a2a_overlap=True", False, True),
        ("moe_a2a_overlap=False", False, False),
    ],
)
def test_notes_name_graphs_of_all_kernels_and_hidden_exchanges(
    notes: str | None, graphs: bool, overlapped: bool
) -> None:
    job = case_of(a_run(MIXTURE, notes=notes)).job
    assert (job.cuda_graphs, job.overlapped_experts) == (graphs, overlapped)


@pytest.mark.parametrize(
    ("module", "expected"),
    [("mlp", ActivationCheckpointing.NONE), ("moe", ActivationCheckpointing.SELECTIVE)],
)
def test_a_mixture_runs_its_experts_again_under_their_own_name(
    module: str, expected: ActivationCheckpointing
) -> None:
    """`mlp` is that of dense layers."""
    changes = {"recompute": "selective", "recompute_detail": f"modules=['{module}']"}
    strategy = case_of(a_run(MIXTURE, **changes)).strategy
    assert strategy.stages is not None
    kinds = {group.activation_checkpointing for s in strategy.stages for group in s.layers}
    assert kinds == {expected}


def test_a_dense_model_runs_its_mlp_again() -> None:
    changes = {"recompute": "selective", "recompute_detail": "modules=['mlp']"}
    strategy = case_of(a_run(KORTHIKANTI, flash_attention=True, **changes)).strategy
    assert strategy.stages is not None
    kinds = {group.activation_checkpointing for s in strategy.stages for group in s.layers}
    assert kinds == {ActivationCheckpointing.SELECTIVE}
