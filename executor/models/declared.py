"""Declared: the chain and the declaration of whatever model a script builds."""

from __future__ import annotations

from torch import nn

from executor.errors import ModelMismatchError
from executor.models.declaration import ModelDeclaration
from executor.models.decoder import Decoder
from executor.models.huggingface import is_hugging_face_llama, llama_chain


def declared(model: nn.Module) -> tuple[nn.Module, ModelDeclaration]:
    """Return `model` as a chain that can lose parts, and what it declares.

    Raises:
        ModelMismatchError: if the model's class declares nothing.
    """
    if isinstance(model, Decoder):
        return model, model.declaration()
    if is_hugging_face_llama(model):
        return llama_chain(model)
    raise ModelMismatchError(
        "declares no sharding",
        field="build_model",
        value=type(model).__qualname__,
        remedy="build executor.models.decoder.Decoder or a Hugging Face LlamaForCausalLM",
    )
