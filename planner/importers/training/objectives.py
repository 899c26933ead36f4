"""Training objectives: what a file trains, held against the model that it is used with.

A reward model or a classifier has other columns than tokens; a file of a step of preferences has
pairs and a second model. Sources: LLaMA-Factory 0.9.6, `hparams/finetuning_args.py` (`stage`,
`freeze_vision_tower`); ms-swift 3.10, `llm/argument` (`rlhf_type`, `task_type`, `freeze_vit`);
Axolotl 0.18, `utils/schemas/validation.py` (`set_reward_model_defaults`).
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.training.config import require_models
from planner.importers.training.words import Words
from planner.schema.model import ModelGraph
from planner.schema.model_kind import head_columns

_PREDICTS = frozenset({"sft", "pt", "causal_lm"})
_PAIRED = frozenset({"dpo", "orpo", "simpo", "cpo", "kto", "rm"})
_CLASSIFIES = frozenset({"seq_cls", "sequence_classification"})


def hold_to_model(words: Words, graph: ModelGraph) -> None:
    """Say what of the objective is not priced, where the file is for the model at all.

    Raises:
        DocumentError: if its sizes or its head are another model's.
    """
    for word, found in (("layers", graph.block_count), ("width", graph.hidden_size)):
        if word in words:
            require_models(words.place(word), words.size(word), found)
    _hold_head(words, graph)
    _say_objective(words)
    if graph.tower_block_count and words.flag("frozen_tower"):
        words.said.append(f"{words.place('frozen_tower')}: the tower is priced as trained")


def _hold_head(words: Words, graph: ModelGraph) -> None:
    columns = head_columns(graph)
    if "labels" in words:
        require_models(words.place("labels"), words.size("labels"), columns)
    for word, wanted in (("scores", 1), ("classes", 2)):
        if words.flag(word) and "labels" not in words:
            _require_classifier(words, word, graph, is_one=columns == wanted)
    task = words.text("task")
    if task in _CLASSIFIES:
        _require_classifier(words, "task", graph, is_one=columns != graph.vocabulary_size)
    elif task is not None and task not in _PREDICTS:
        words.said.append(f"{words.place('task')} {task}: its loss is not priced")


def _require_classifier(words: Words, word: str, graph: ModelGraph, *, is_one: bool) -> None:
    if is_one:
        return
    raise DocumentError(
        f"trains a classifier, and the head of {graph.name} has {head_columns(graph)} columns",
        field=words.place(word),
        value=words.get(word),
        remedy="give a config.json whose architectures end in ForSequenceClassification, with "
        "num_labels",
    )


def _say_objective(words: Words) -> None:
    objective = words.text("objective")
    if objective is None or objective in _PREDICTS:
        return
    place = f"{words.place('objective')} {objective}"
    if objective in _PAIRED:
        words.said.append(
            f"{place}: pairs of sequences and a reference model are not priced, the training step "
            "of single sequences is"
        )
    else:
        words.said.append(f"{place}: other models and sampling are not priced, the step is")
