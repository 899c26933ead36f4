"""Inference: a trainer's model forward, and tokens drawn one after another, in every layout.

Every rank is given the same inputs and gets the same outputs: what a script does with them does not
depend on the layout. All ranks call together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed
from torch.distributed.tensor import DTensor

from executor.apply.forward_pass import ForwardPass
from executor.batch import Batch
from executor.batch_reader import BatchReader
from executor.errors import ModelMismatchError
from executor.mesh import CONTEXT, PIPELINE, RankMesh
from executor.models.positions import SEQUENCE_DIMENSION, SequencePart

_OF_TEXT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """A model that only runs forward.

    Sequences are filled up on the right, as ranks that share them need: what comes behind a token
    of a causal model does not change what it puts out.
    """

    forward: ForwardPass
    reader: BatchReader
    mesh: RankMesh
    device: torch.device

    def __call__(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
        """Return what the model puts out of whole `inputs`, by place or by name, on every rank.

        Raises:
            ModelMismatchError: if it does not take such inputs.
        """
        return self._outputs(self._batch(inputs, named))

    def generate(
        self,
        prompts: torch.Tensor,
        *,
        new_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        end_token: int | None = None,
    ) -> torch.Tensor:
        """Return `prompts` [B, S] with up to `new_tokens` behind each, the same on every rank.

        Each is the likeliest, or drawn at a `temperature` above 0. Behind its `end_token` a row has
        nothing but that. Whole sequences are computed for each token.

        Raises:
            ModelMismatchError: if prompts are not rows of tokens.
        """
        if prompts.dim() != _OF_TEXT or prompts.is_floating_point() or prompts.shape[1] == 0:
            raise ModelMismatchError(
                "prompts are rows of tokens, all of one length",
                field="trainer.generate",
                value=f"{prompts.dtype} of shape {tuple(prompts.shape)}",
                remedy="give whole numbers [B, S], and prompts of another length by themselves",
            )
        generator = torch.Generator().manual_seed(seed)
        tokens = prompts.to(self.device)
        is_over = torch.zeros(len(tokens), 1, dtype=torch.bool, device=self.device)
        for _ in range(new_tokens):
            logits = self._outputs(self._batch((tokens,), {}))[:, -1]
            chosen = _chosen(logits.float().cpu(), temperature, generator).to(self.device)
            distributed.broadcast(chosen, src=0)  # ranks may round to another likeliest one
            if end_token is not None:
                chosen = chosen.masked_fill(is_over, end_token)
                is_over |= chosen == end_token
            tokens = torch.cat([tokens, chosen], dim=1)
            if bool(is_over.all()):
                break
        return tokens

    def _batch(self, inputs: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]) -> Batch:
        """Return a batch whose targets, which nothing reads, are its first tensor."""
        values = [*inputs, *named.values()]
        if not values:
            raise ModelMismatchError(
                "takes the model's inputs", field="inference", remedy="give tensors [B, ...]"
            )
        name = self.reader.target_name
        if named:
            first = dict(zip((self.reader.inputs.first,), inputs, strict=False))
            given: Any = {**first, **named, name: values[0]}
        else:
            given = (*inputs, values[0])
        batch = self.reader.read(given, field="inference")
        return batch.changed(lambda tensor: tensor.to(self.device)).with_targets(batch.first)

    def _outputs(self, batch: Batch) -> Any:
        multiple = self.reader.length_multiple
        length = batch.first.shape[SEQUENCE_DIMENSION] if multiple > 1 else 0
        missing = -length % multiple
        if missing:
            batch = self.reader.filled_up(batch, missing, field="inference")
        prepared = self.reader.inputs.prepare(batch)
        outputs = self._on_all_stages(self._whole(self.forward.run(self.reader.part_of(prepared))))
        return outputs[:, :length] if missing else outputs

    def _whole(self, outputs: Any) -> Any:
        """Return outputs of all tokens and of the whole vocabulary."""
        if isinstance(outputs, DTensor):
            outputs = outputs.full_tensor()
        degree = self.reader.part.count
        if outputs is None or degree == 1:
            return outputs
        parts = [torch.empty_like(outputs) for _ in range(degree)]
        group = self.mesh.axis(CONTEXT).get_group()
        distributed.all_gather(parts, outputs.contiguous(), group=group)
        own = self.reader.part
        places = torch.cat(
            [
                SequencePart(index=index, count=degree, balanced=own.balanced).positions(
                    outputs.shape[SEQUENCE_DIMENSION], outputs.device
                )
                for index in range(degree)
            ]
        )
        joined = torch.cat(parts, dim=SEQUENCE_DIMENSION)
        return joined[:, places.argsort()]

    def _on_all_stages(self, outputs: Any) -> Any:
        """Return on every rank of a pipeline what the last stage has put out."""
        if self.mesh.degrees[PIPELINE] == 1:
            return outputs
        group, source = self.mesh.axis(PIPELINE).get_group(), self.forward.last_owner
        form = [None if outputs is None else (outputs.shape, outputs.dtype)]
        distributed.broadcast_object_list(form, group=group, group_src=source)
        assert form[0] is not None  # noqa: S101 - the last stage has outputs
        shape, dtype = form[0]
        if outputs is None:
            outputs = torch.empty(shape, dtype=dtype, device=self.device)
        distributed.broadcast(outputs.contiguous(), group=group, group_src=source)
        return outputs


def _chosen(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> torch.Tensor:
    """Return one token for each row of logits [B, V], [B, 1]."""
    if temperature <= 0.0:
        return logits.argmax(dim=-1, keepdim=True)
    return torch.multinomial((logits / temperature).softmax(dim=-1), 1, generator=generator)
