"""Whether model and batches are the planned ones, and what a refused script prints."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from executor.batch import check_given
from executor.errors import ModelMismatchError
from executor.models.declaration import ModelDeclaration
from executor.models.declared import declared
from executor.models.decoder import Decoder
from executor.models.forward_inputs import ForwardInputs
from executor.planned import PlannedBatch, check_planned
from planner.schema.model import DenseFeedForward, GroupedQueryAttention, ModelGraph
from tests.distributed.families import (
    HUGGING_FACE_FIELDS,
    hugging_face_graph,
    hugging_face_model,
)
from tests.distributed.group import ROOT
from tests.distributed.mixture import small_mixture
from tests.distributed.plans import small_model

TOKENS = torch.zeros((2, 16), dtype=torch.long)


def _declaration(**changes: int) -> ModelDeclaration:
    with torch.device("meta"):
        return Decoder(small_model().model_copy(update=changes)).declaration()


def test_the_planned_model_passes() -> None:
    check_planned(_declaration(), small_model())


@pytest.mark.parametrize(
    ("name", "size"), [("hidden_size", 64), ("vocabulary_size", 512), ("tied_embeddings", True)]
)
def test_another_model_is_named_with_what_differs(name: str, size: int) -> None:
    with pytest.raises(ModelMismatchError, match=f"build_model {name}.*got {size}"):
        check_planned(_declaration(**{name: size}), small_model())


def _with_blocks(**changes: object) -> ModelGraph:
    (run,) = small_model().runs
    run = run.model_copy(update={"block": run.block.model_copy(update=changes)})
    return small_model().model_copy(update={"runs": (run,)})


OTHER_BLOCKS: dict[str, tuple[ModelGraph, str, int, int]] = {
    "wider": (_with_blocks(feed_forward=DenseFeedForward(ffn_size=96)), "ffn_size", 96, 64),
    "heads": (
        _with_blocks(
            attention=GroupedQueryAttention(head_count=16, key_value_head_count=4, head_size=4)
        ),
        "head_count",
        16,
        8,
    ),
    "key-value-heads": (
        _with_blocks(
            attention=GroupedQueryAttention(head_count=8, key_value_head_count=8, head_size=8)
        ),
        "key_value_head_count",
        8,
        4,
    ),
    "mixture": (small_mixture(tied=False, block_count=2), "expert_count", 8, 0),
}


@pytest.mark.parametrize(
    ("built", "name", "found", "expected"), OTHER_BLOCKS.values(), ids=OTHER_BLOCKS.keys()
)
def test_a_model_with_other_blocks_is_another_model(
    built: ModelGraph, name: str, found: int, expected: int
) -> None:
    said = f"build_model {name}: .*whose {name} is {expected} .*got {found}"
    with torch.device("meta"):
        declaration = Decoder(built).declaration()
    with pytest.raises(ModelMismatchError, match=said):
        check_planned(declaration, small_model())


def test_blocks_of_several_shapes_are_planned_by_each() -> None:
    """A dense block beside mixtures, whose shared expert is narrower than it."""
    with torch.device("meta"):
        check_planned(
            Decoder(small_mixture(tied=False, block_count=2)).declaration(),
            small_mixture(tied=False, block_count=2),
        )


@pytest.mark.parametrize("family", sorted(HUGGING_FACE_FIELDS))
@pytest.mark.parametrize("tied", [False, True])
def test_a_model_of_transformers_is_the_one_that_its_configuration_plans(
    family: str, tied: bool
) -> None:
    with torch.device("meta"):
        _, declaration = declared(hugging_face_model(family, tied=tied))
    check_planned(declaration, hugging_face_graph(family, tied=tied))


def test_a_module_of_ones_own_is_planned_by_width_and_vocabulary() -> None:
    other = _with_blocks(feed_forward=DenseFeedForward(ffn_size=96))
    check_planned(_declaration(), other, is_own=True)


PLANNED = PlannedBatch(sequence_count=2, sequence_length=16, vocabulary_size=8)
PICTURES = torch.zeros(2, 3, 8, 8)


def _check(planned: PlannedBatch, given: Any, *, may_be_short: bool = False) -> None:
    """Read a batch as a chain takes it, and check it."""
    check_given(given, field="loader")
    batch = ForwardInputs().read(given, target_name="labels", field="loader")
    planned.check(batch, may_be_short=may_be_short)


@pytest.mark.parametrize(
    "batch", [(TOKENS, TOKENS), [TOKENS + 7, TOKENS], (PICTURES, TOKENS[:, 0])]
)
def test_a_batch_of_the_planned_shape_passes(batch: object) -> None:
    """Pictures are the script's business, but for how many they are."""
    _check(PLANNED, batch)


def test_sequences_may_be_shorter_than_planned_but_not_longer() -> None:
    _check(PLANNED, (TOKENS[:, :12], TOKENS[:, :12]))
    longer = TOKENS.repeat(1, 2)
    with pytest.raises(ModelMismatchError, match=r"16 tokens at most \(got '?32 .*; cut sequences"):
        _check(PLANNED, (longer, longer))


@pytest.mark.parametrize("batch", [(TOKENS[:1], TOKENS[:1]), (TOKENS[:0], TOKENS[:0])])
def test_a_batch_may_be_short_where_it_is_allowed(batch: object) -> None:
    _check(PLANNED, batch, may_be_short=True)
    with pytest.raises(ModelMismatchError, match="a global batch of 2 sequences"):
        _check(PLANNED, batch)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ((TOKENS[:1], TOKENS), "a global batch of 2 sequences .*got '?1 sequences of inputs"),
        ((TOKENS, TOKENS[:1]), "a global batch of 2 sequences .*got '?1 sequences of targets"),
        ((PICTURES[:1], TOKENS), "got '?1 sequences of inputs"),
        ((TOKENS + 8, TOKENS), "embedding has 8 tokens, from 0 .*got '?token 8"),
        ((TOKENS - 1, TOKENS), "embedding has 8 tokens, from 0 .*got '?token -1"),
        ((TOKENS,), r"tensors, inputs before targets, .*got '?tuple of Tensor"),
        ({"input_ids": TOKENS}, "targets under 'labels' .*got '?input_ids"),
        ({"labels": TOKENS}, "forward begins with input_ids .*got '?targets alone"),
        (TOKENS, "tensors, inputs before targets, .*got '?Tensor"),
        ((TOKENS, 3), "tensors, inputs before targets, .*got '?tuple of Tensor, int"),
        ((TOKENS, TOKENS, TOKENS), "model takes input_ids .*got '?2 inputs before the targets"),
        ((TOKENS, torch.zeros(())), "got '?0 sequences of targets"),
    ],
)
def test_any_other_batch_is_refused_with_the_remedy(batch: object, said: str) -> None:
    with pytest.raises(ModelMismatchError, match=f"loader: .*{said}.*; yield "):
        _check(PLANNED, batch)


LEFT_OUT = TOKENS.index_fill(1, torch.tensor([0, 3]), -100)


def test_targets_that_the_script_leaves_out_pass() -> None:
    _check(replace(PLANNED, ignored_target=-100), (TOKENS, LEFT_OUT))


@pytest.mark.parametrize(
    ("ignored", "targets", "said"),
    [
        (None, LEFT_OUT, r"depend on the layout .*target -100.*; pass ignored_target=-100 to"),
        (-1, LEFT_OUT, r"head has 8 tokens, from 0 .*target -100.*; yield targets"),
        (None, TOKENS + 8, r"head has 8 tokens, from 0 .*target 8.*; yield targets"),
        (-100, TOKENS + 8, r"head has 8 tokens, from 0 .*target 8.*; yield targets"),
    ],
)
def test_targets_that_are_no_tokens_are_refused(
    ignored: int | None, targets: torch.Tensor, said: str
) -> None:
    with pytest.raises(ModelMismatchError, match=f"loader: .*{said}"):
        _check(replace(PLANNED, ignored_target=ignored), (TOKENS, targets))


def test_targets_of_another_shape_are_the_scripts_business() -> None:
    _check(PLANNED, (TOKENS, TOKENS[:, :2] + 8))


@pytest.mark.parametrize("inputs", [TOKENS, PICTURES], ids=["text", "pictures"])
def test_no_targets_may_be_left_out_unknown(inputs: torch.Tensor) -> None:
    with pytest.raises(ModelMismatchError, match=r"target -100.*pass ignored_target=-100"):
        _check(replace(PLANNED, vocabulary_size=None), (inputs, LEFT_OUT[:, 0]))


def test_a_step_on_what_is_not_a_ranks_share_is_refused() -> None:
    share = PLANNED.share(sequence_count=1)
    _check(share, (TOKENS[:1], TOKENS[:1]))
    said = r"trainer.step: a rank takes .* 1 sequences .*; give it what session.shard"
    with pytest.raises(ModelMismatchError, match=said):
        _check(share, (TOKENS, TOKENS))


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_an_error_of_ours_is_one_line_of_rank_0(rank: str, lines: int) -> None:
    source = (
        "from executor.excepthook import speak_once\n"
        "from executor.errors import LaunchError\n"
        "speak_once()\n"
        "raise LaunchError('is wrong', field='here', remedy='mend it')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=ROOT,
        env={**os.environ, "RANK": rank},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == lines
    assert "Traceback" not in done.stderr
