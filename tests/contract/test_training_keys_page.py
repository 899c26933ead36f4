"""The page of training files' keys is what the tables say now."""

from __future__ import annotations

from pathlib import Path

from planner.importers.training.formats.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "training-keys.md"


def test_page_is_up_to_date():
    """If not, write it anew with the command that stands in its first lines."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_keys_of_each_kind_stand_under_their_framework():
    sections = {part.partition("\n")[0]: part for part in page().split("\n## ")[1:]}
    neox = sections["GPT-NeoX (`gpt-neox`)"]
    assert "Read: " in neox
    assert "`pipe_parallel_size`" in neox.partition("Without")[0]
    megatron = sections["Megatron-LM's flags"]
    assert "`tensor-model-parallel-size`" in megatron.partition("Without")[0]
    assert "`log-interval`" in megatron.partition("files, logs and data")[2]
    assert "- `use_precision_aware_optimizer`: " in sections["In any file"]
