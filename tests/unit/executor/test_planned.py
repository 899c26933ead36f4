"""Whether model and batches are the planned ones, and what a refused script prints."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from executor.errors import ModelMismatchError
from executor.models.declaration import ModelDeclaration
from executor.models.decoder import Decoder
from executor.planned import check_planned, planned_batch
from tests.distributed.group import ROOT
from tests.distributed.plans import small_model

TOKENS = torch.zeros((2, 16), dtype=torch.long)


def _declaration(**changes: int) -> ModelDeclaration:
    with torch.device("meta"):
        return Decoder(small_model().model_copy(update=changes)).declaration()


def test_the_planned_model_passes() -> None:
    check_planned(_declaration(), small_model())


@pytest.mark.parametrize(("name", "size"), [("hidden_size", 64), ("vocabulary_size", 512)])
def test_another_model_is_named_with_what_differs(name: str, size: int) -> None:
    with pytest.raises(ModelMismatchError, match=f"build_model {name}.*got {size}"):
        check_planned(_declaration(**{name: size}), small_model())


def test_a_batch_of_the_planned_length_passes_as_it_is() -> None:
    batch = (TOKENS, TOKENS)
    assert planned_batch(batch, sequence_length=16) is batch


def test_a_batch_of_other_sequences_is_refused() -> None:
    with pytest.raises(ModelMismatchError, match=r"sequences of 32 tokens \(got '?16 tokens"):
        planned_batch((TOKENS, TOKENS), sequence_length=32)


def test_pictures_are_the_scripts_business() -> None:
    pictures = torch.zeros(2, 3, 8, 8)
    assert planned_batch((pictures, TOKENS), sequence_length=1)[0] is pictures


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
        timeout=60,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == lines
    assert "Traceback" not in done.stderr
