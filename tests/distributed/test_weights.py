"""Fine-tuning from a folder into a folder equals plain transformers and torch, in every layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.families import hugging_face_model
from tests.distributed.group import RankGroup
from tests.distributed.parity import cases
from tests.distributed.reference import planned_model
from tests.distributed.rounding import EXACT

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders as transformers writes them, by kind of model."""
    return {kind: _written(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


KINDS = ("llama", "llama-4", "llama-tied", "mixtral", "qwen3_moe", "gpt2-tied")


def _written(kind: str, folder: Path) -> str:
    torch.manual_seed(5)
    family, _, variant = kind.partition("-")
    block_count = planned_model(kind).block_count
    model = hugging_face_model(family, tied=variant == "tied", block_count=block_count)
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases too are unlike any first value
            parameter.add_(0.02 * torch.randn_like(parameter))
    model.save_pretrained(folder, max_shard_size="100KB")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return str(folder)


LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "dp4": ("llama", {"data_parallel_degree": 4}),
    "zero3": ("llama-tied", {"data_parallel_degree": 4, "zero_stage": 3}),
    "tp2-pp2": (
        "llama-tied",
        {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "micro_batch_size": 2},
    ),
    "tp2-zero3": (
        "llama",
        {"tensor_parallel_degree": 2, "data_parallel_degree": 2, "zero_stage": 3},
    ),
    "interleaved": (
        "llama-4",
        {
            "pipeline_parallel_degree": 2,
            "data_parallel_degree": 2,
            "pipeline_schedule": "interleaved_1f1b",
            "virtual_pipeline_degree": 2,
        },
    ),
    "gpt2-pp2": (
        "gpt2-tied",
        {"pipeline_parallel_degree": 2, "data_parallel_degree": 2, "micro_batch_size": 2},
    ),
    "ep2": (
        "mixtral",
        {"expert_parallel_degree": 2, "data_parallel_degree": 4, "zero_stage": 3},
    ),
    "ep2-tp2": (
        "qwen3_moe",
        {
            "expert_parallel_degree": 2,
            "expert_tensor_parallel_degree": 1,
            "tensor_parallel_degree": 2,
            "data_parallel_degree": 2,
            "micro_batch_size": 2,
        },
    ),
}


@pytest.mark.parametrize(
    "name", cases({n: n for n in LAYOUTS}, always={"zero3", "tp2-pp2", "ep2-tp2"})
)
def test_from_folder_to_folder(
    name: str, pretrained: dict[str, str], four_ranks: RankGroup, tmp_path: Path
) -> None:
    """Losses, what transformers loads from the exported folder, and its logits are the same."""
    kind, strategy = LAYOUTS[name]
    answer = four_ranks.run(
        "fine_tuned",
        strategy=strategy,
        kind=kind,
        folder=pretrained[kind],
        out=str(tmp_path / "out"),
        max_file_bytes=200_000,
    )
    assert answer["differences"] == []
    assert answer["losses"] == pytest.approx(answer["reference_losses"], rel=EXACT)
    assert answer["loading"] == {}
    assert answer["parameter_error"] <= EXACT
    assert answer["logit_error"] <= EXACT
    assert {"config.json", "tokenizer.json", "model.safetensors.index.json"} <= {*answer["files"]}


OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "tp2-pp2": (
        "words",
        {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "micro_batch_size": 2},
    ),
    "undeclared-zero3": ("pictures", {"data_parallel_degree": 4, "zero_stage": 3}),
}


@pytest.mark.parametrize("name", cases({n: n for n in OWN}, always={"tp2-pp2"}))
def test_an_own_module_begins_from_a_file(name: str, four_ranks: RankGroup, tmp_path: Path) -> None:
    """Its buffers are read and written with its parameters."""
    kind, strategy = OWN[name]
    (tmp_path / "in").mkdir()
    answer = four_ranks.run(
        "own_fine_tuned",
        strategy=strategy,
        kind=kind,
        folder=str(tmp_path / "in"),
        out=str(tmp_path / "out"),
    )
    assert answer["losses"] == pytest.approx(answer["reference_losses"], rel=EXACT)
    assert answer["names"] == []
    assert answer["error"] <= EXACT


def test_weights_begin_a_run_however_they_are_given(
    pretrained: dict[str, str], two_ranks: RankGroup
) -> None:
    answer = two_ranks.run("begun", folder=pretrained["llama"], kind="llama")
    assert answer == {"state dict": [], "loaded": [], "new head": ["lm_head.weight"]}


ADAPTED: dict[str, tuple[str, dict[str, Any]]] = {
    "dp4-zero0": ("llama", {"data_parallel_degree": 4}),
    "zero3": ("gpt2-tied", {"data_parallel_degree": 4, "zero_stage": 3}),
    "tp2-sp-pp2": (
        "llama-tied",
        {
            "tensor_parallel_degree": 2,
            "sequence_parallel": True,
            "pipeline_parallel_degree": 2,
            "micro_batch_size": 2,
        },
    ),
    "tp2-zero2": (
        "llama",
        {
            "tensor_parallel_degree": 2,
            "data_parallel_degree": 2,
            "zero_stage": 2,
            "micro_batch_size": 2,
        },
    ),
    "ep2-zero1": (
        "mixtral",
        {"data_parallel_degree": 4, "expert_parallel_degree": 2, "zero_stage": 1},
    ),
    "experts-tp2-pp2": (
        "qwen3_moe",
        {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "micro_batch_size": 2},
    ),
}


@pytest.mark.parametrize(
    "name", cases({n: n for n in ADAPTED}, always={"zero3", "tp2-sp-pp2", "ep2-zero1"})
)
def test_adapters_train_as_plain_peft_does(
    name: str, pretrained: dict[str, str], four_ranks: RankGroup, tmp_path: Path
) -> None:
    """On frozen weights from a folder; PEFT reads what is exported, merged or not."""
    kind, strategy = ADAPTED[name]
    answer = four_ranks.run(
        "adapted", strategy=strategy, kind=kind, folder=pretrained[kind], out=str(tmp_path)
    )
    assert answer["differences"] == []
    assert answer["first_b"] == 0.0
    assert answer["trained"]
    assert all(".lora_" in item for item in answer["trained"])
    assert answer["losses"] == pytest.approx(answer["reference_losses"], rel=EXACT)
    assert answer["losses"][-1] != answer["losses"][0]
    assert answer["base_again"] == pretrained[kind]
    for error in ("parameter_error", "logit_error", "merged_error", "begun_again_error"):
        assert answer[error] <= EXACT
