"""Decoders of Hugging Face that are one half of a model whose other half is not read.

transformers' automatic class for decoders builds them alone of the whole configuration; where
`architectures` names no such class, what is left out is said.
"""

from __future__ import annotations

from planner.importers.fields import Fields
from planner.importers.hugging_face.gated_latent import ALIASES, dots3_note_text
from planner.importers.hugging_face.gemma3n import gemma3n_text
from planner.importers.hugging_face.llama_kin import emu3_text
from planner.importers.hugging_face.qwen4 import qwen4_exp_text
from planner.schema.model import ModelGraph

_TOWERS = "the towers of pictures and of sound are"


def dots3_note(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of a dots3_note."""
    text = fields.section("text_config", aliases=ALIASES)
    return _half(fields, dots3_note_text(text, name), _TOWERS)


def emu3(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of an emu3, whose images are tokens of its vocabulary."""
    text = fields.section("text_config")
    return _half(fields, emu3_text(text, name), "what makes tokens of images is")


def gemma3n(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of a gemma3n, which alone of these may be tied unless told."""
    text = fields.section("text_config")
    tied = fields.flag("tie_word_embeddings", True)
    graph = gemma3n_text(text, name).model_copy(update={"tied_embeddings": tied})
    return _half(fields, graph, _TOWERS)


def qwen4_exp(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of a qwen4_exp."""
    text = fields.section("text_config")
    return _half(fields, qwen4_exp_text(text, name), "the tower of pictures is")


def _half(fields: Fields, graph: ModelGraph, what: str) -> ModelGraph:
    """Return `graph` by the name of the whole, with what is left out of it."""
    said = f"{what} left out: neither memory nor work of it is counted"
    alone = (fields.first_text("architectures") or "").endswith("ForCausalLM")
    return graph.model_copy(
        update={
            "architecture": fields.text("model_type") or graph.architecture,
            "assumptions": graph.assumptions if alone else (*graph.assumptions, said),
        }
    )
