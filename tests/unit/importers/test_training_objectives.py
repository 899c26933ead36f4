"""What a file trains is held against the model: its head, pairs of sequences, frozen towers."""

from __future__ import annotations

import pytest

from planner.errors import DocumentError
from planner.importers.training.config import Setting, TrainingConfig
from planner.importers.training.files import config_from_text
from tests.unit.exporters.plans import resolved_model

LLAMA_FACTORY = "stage: {}\nfinetuning_type: full\ntemplate: llama3\ncutoff_len: 4096\nbf16: true\n"
AXOLOTL = "base_model: it\nmicro_batch_size: 1\nsequence_len: 4096\nbf16: true\n{}\n"
NEMO_RL = (
    "policy:\n  train_micro_batch_size: 1\n  train_global_batch_size: 64\n"
    "  reward_model_cfg: {{enabled: {}, reward_model_type: bradley_terry}}\n"
    "  dtensor_cfg: {{enabled: true, tensor_parallel_size: 1}}\n"
)
SWIFT = "swift sft --model it --dataset d --train_type full --torch_dtype bfloat16 {}"


def read(text: str, *, model: str = "llama-3-8b", columns: int | None = None) -> TrainingConfig:
    """The file of 8 devices, used with a model whose head may have other columns."""
    graph = resolved_model(model).resolved
    if columns is not None:
        graph = graph.model_copy(update={"head_size": columns})
    setting = Setting(graph=graph, device_count=8, global_batch_size=64)
    return config_from_text(
        text, setting, source="it", suffix=".sh" if "swift" in text else ".yaml"
    )


@pytest.mark.parametrize(
    ("text", "field", "columns"),
    [
        (AXOLOTL.format("reward_model: true"), "reward_model", 1),
        (AXOLOTL.format("process_reward_model: true"), "process_reward_model", 2),
        (AXOLOTL.format("num_labels: 3"), "num_labels", 3),
        (NEMO_RL.format("true"), "policy.reward_model_cfg.enabled", 1),
        (SWIFT.format("--num_labels 5"), "num_labels", 5),
        (SWIFT.format("--task_type seq_cls"), "task_type", 5),
    ],
)
def test_a_file_of_a_classifier_is_not_read_for_a_model_that_predicts_tokens(
    text: str, field: str, columns: int
) -> None:
    with pytest.raises(DocumentError, match="128256") as refused:
        read(text)
    assert refused.value.field.lstrip("-").replace("-", "_") == field
    assert read(text, columns=columns).job["global_batch_size"] == 64


def test_a_step_of_preferences_is_told_to_be_priced_as_one_of_single_sequences() -> None:
    said = read(LLAMA_FACTORY.format("dpo")).assumptions
    assert any(line.startswith("stage dpo: pairs of sequences and a reference") for line in said)
    said = read(SWIFT.replace("sft", "rlhf").format("--rlhf_type grpo")).assumptions
    assert any("rlhf_type grpo: other models and sampling are not priced" in line for line in said)
    assert not any("stage" in line for line in read(LLAMA_FACTORY.format("sft")).assumptions)


@pytest.mark.parametrize("given", ["", "freeze_vision_tower: true\n"])
def test_a_tower_that_the_framework_freezes_is_told_to_be_priced_as_trained(given: str) -> None:
    text = LLAMA_FACTORY.format("sft") + given
    told = "freeze_vision_tower: the tower is priced as trained"
    assert told in read(text, model="qwen2-vl-7b").assumptions
    assert told not in read(text).assumptions
    trained = LLAMA_FACTORY.format("sft") + "freeze_vision_tower: false\n"
    assert told not in read(trained, model="qwen2-vl-7b").assumptions
