"""Planned: whether the model that was built, and the batches that come, are those of the plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NoReturn

import torch
from torch import nn

from executor.batch import TARGETS, Batch
from executor.errors import ModelMismatchError
from executor.losses import USUALLY_IGNORED
from executor.models.declaration import ModelDeclaration
from planner.schema.model import ModelGraph

_ATTENTION_SIZES = ("head_count", "key_value_head_count")
_FEED_FORWARD_SIZES = ("expert_count", "expert_ffn_size")


def check_planned(
    declaration: ModelDeclaration, graph: ModelGraph, *, is_own: bool = False
) -> None:
    """Return if the declared model has the sizes of the planned one, as far as both are known.

    A module of one's own (`is_own`) is planned as a model of its width and vocabulary, whose blocks
    may have other parts.

    Raises:
        ModelMismatchError: naming the first size that differs.
    """
    if declaration.is_whole or graph.is_measured:
        return
    built = declaration.shapes
    columns = graph.vocabulary_size if is_own else graph.logit_count  # others predict tokens
    planned = {"hidden_size": graph.hidden_size, "vocabulary_size": columns}
    for name, expected in planned.items():
        found = getattr(built, name)
        if found > 1 and found != expected:  # a declaration that does not say has 1
            raise _other_model(graph, name, found=found, expected=expected)
    if is_own:
        return
    for name, expected in _block_sizes(graph).items():
        if getattr(built, name) != expected:
            raise _other_model(graph, name, found=getattr(built, name), expected=expected)
    if declaration.tied_embeddings is not graph.tied_embeddings:
        is_tied = declaration.tied_embeddings
        raise _other_model(graph, "tied_embeddings", found=is_tied, expected=graph.tied_embeddings)


def check_trainable(model: nn.Module) -> None:
    """Return if some parameter of the whole `model` is to be trained.

    Raises:
        ModelMismatchError: if all of them are frozen.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ModelMismatchError(
            "has no parameter that requires a gradient, so that nothing would be trained",
            field="build_model",
            value=type(model).__qualname__,
            remedy="leave requires_grad of what is to be trained as it is",
        )


def _block_sizes(graph: ModelGraph) -> dict[str, int]:
    """Return the sizes that all planned blocks with such a part share; 0 where none has it."""
    attentions = [run.block.attention for run in graph.runs]
    halves = [run.block.feed_forward for run in graph.runs]
    values = {name: _sizes(attentions, name) for name in _ATTENTION_SIZES}
    values |= {name: _sizes(halves, name) or {0} for name in _FEED_FORWARD_SIZES}
    values["ffn_size"] = _sizes(halves, "ffn_size") | _sizes(halves, "shared_ffn_size") or {0}
    return {name: sizes.pop() for name, sizes in values.items() if len(sizes) == 1}


def _sizes(parts: Iterable[object], name: str) -> set[int]:
    return {size for part in parts if (size := getattr(part, name, 0))}


def _other_model(
    graph: ModelGraph, name: str, *, found: object, expected: object
) -> ModelMismatchError:
    return ModelMismatchError(
        f"the plan is for {graph.name}, whose {name} is {expected}",
        field=f"build_model {name}",
        value=found,
        remedy="build the model that was planned, or plan for this one",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """What a batch must be: the plan's global one, or what a rank takes of it.

    `vocabulary_size` is that of inputs and targets, where it is known; targets may be
    `ignored_target` as well.
    """

    sequence_count: int
    sequence_length: int | None
    vocabulary_size: int | None
    ignored_target: int | None = None
    field: str = "loader"
    owner: str = "the plan has a global batch of"
    remedy: str = "yield whole global batches of the planned length, the same on every rank"

    def share(self, *, sequence_count: int) -> PlannedBatch:
        """Return what a rank takes: so many sequences."""
        return replace(
            self,
            sequence_count=sequence_count,
            field="trainer.step",
            owner="a rank takes of each global batch",
            remedy="give it what session.shard(loader) yields",
        )

    def of_rank(self, data_degree: int) -> PlannedBatch:
        """Return what a loader of a rank yields, where each of `data_degree` has its own."""
        return replace(
            self,
            sequence_count=self.sequence_count // data_degree,
            owner="each data rank takes of a global batch",
            remedy=f"give the loader batch_size={self.sequence_count // data_degree} and "
            "session.sampler(dataset)",
        )

    def check(self, batch: Batch, *, may_be_short: bool = False) -> None:
        """Return if every tensor of `batch` has the planned shape, or fewer sequences if it may.

        Sequences may be shorter, as collators fill them up to the longest of a batch. What is not
        rows of whole numbers is no text: then only its first dimension is known. Tokens that lie on
        a GPU already are not looked at, which would wait for it.

        Raises:
            ModelMismatchError: naming what is otherwise.
        """
        is_short = may_be_short and batch.row_count < self.sequence_count
        expected = batch.row_count if is_short else self.sequence_count
        for name, tensor in batch:
            rows = tensor.shape[0] if tensor.dim() else 0
            if rows != expected:
                is_beside = name != TARGETS and tensor is not batch.first
                raise self._refusal(
                    f"{self.owner} {self.sequence_count} sequences",
                    f"{rows} sequences of {name}",
                    f"yield {name} with a row for each sequence, as of shape [{expected}, ...]"
                    if is_beside
                    else self.remedy,
                )
        inputs, targets = batch.first, batch.targets
        if is_text(inputs):
            self._check_length(inputs)
            self._check_tokens(inputs)
            if is_text(targets) and targets.shape == inputs.shape:
                self._check_targets(targets)
        self._check_none_left_out(targets)

    def refuse_short(self, row_count: int) -> NoReturn:
        """Refuse a batch of so few sequences that was not the loader's last.

        Raises:
            ModelMismatchError: always.
        """
        raise self._refusal(
            f"{self.owner} {self.sequence_count} sequences, and only a loader's last batch may "
            "have fewer",
            f"{row_count} sequences before others",
            "call session.shard() for each pass over the data, or leave short batches out by "
            "drop_last=True",
        )

    def _check_length(self, inputs: torch.Tensor) -> None:
        length = self.sequence_length
        if length is not None and inputs.shape[1] > length:
            raise self._refusal(
                f"the plan has sequences of {length} tokens at most",
                f"{inputs.shape[1]} tokens",
                f"cut sequences to {length} tokens, or plan for longer ones",
            )

    def _check_tokens(self, inputs: torch.Tensor) -> None:
        beyond = self._beyond_vocabulary(inputs)
        if beyond is not None:
            raise self._refusal(
                f"the model's embedding has {self.vocabulary_size} tokens, from 0",
                f"token {beyond}",
                "yield tokens of the planned vocabulary, or plan a model with a larger one",
            )

    def _check_targets(self, targets: torch.Tensor) -> None:
        ignored = self.ignored_target
        counted = targets if ignored is None else targets[targets != ignored]
        beyond = self._beyond_vocabulary(counted)
        if beyond is None:
            return
        if beyond < 0 and ignored is None:
            raise self._left_out(beyond)
        raise self._refusal(
            f"the model's head has {self.vocabulary_size} tokens, from 0",
            f"target {beyond}",
            "yield targets of the planned vocabulary, or plan a model with a larger one",
        )

    def _check_none_left_out(self, targets: torch.Tensor) -> None:
        is_known = self.ignored_target is not None or targets.is_floating_point()
        if not is_known and _is_on_host(targets) and bool((targets == USUALLY_IGNORED).any()):
            raise self._left_out(USUALLY_IGNORED)

    def _left_out(self, target: int) -> ModelMismatchError:
        return self._refusal(
            "targets that a loss leaves out make its mean depend on the layout",
            f"target {target}",
            f"pass ignored_target={target} to session.parallelize()",
        )

    def _beyond_vocabulary(self, tokens: torch.Tensor) -> int | None:
        """Return a token that the vocabulary does not have, None where there is none."""
        known = self.vocabulary_size
        if known is None or not _is_on_host(tokens) or tokens.numel() == 0:
            return None
        low, high = (int(bound) for bound in tokens.aminmax())
        if high >= known:
            return high
        return low if low < 0 else None

    def _refusal(self, problem: str, value: str, remedy: str) -> ModelMismatchError:
        return ModelMismatchError(problem, field=self.field, value=value, remedy=remedy)


def _is_on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def is_text(tensor: torch.Tensor) -> bool:
    """Return whether it is rows of whole numbers."""
    return tensor.dim() == 2 and not tensor.is_floating_point()
