"""Numerics: the number format, the optimizer and the kernels that a configuration names."""

from __future__ import annotations

import re
from typing import Any

from planner.errors import DocumentError
from planner.importers.training.words import Words

_PRECISIONS = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "amp_bf16": "bf16",
    "mixed_precision": "bf16",
    "mixed_precisionsr": "bf16",
    "autocast": "bf16",
    "fp16": "fp16",
    "16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "amp_fp16": "fp16",
    "fp32": "fp32",
    "32": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "no": "fp32",
    "false": "fp32",
    "bf16_mixed": "bf16",
    "fp16_mixed": "fp16",
    "bf16sr": "bf16",
}
_FLOAT8 = re.compile(r"fp8|e4m3|e5m2|hybrid|true|1")
_WHOLE = {"bf16-true", "bf16sr", "16-true"}
_OPTIMIZERS = {
    "adam": "adamw",
    "adamw": "adamw",
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_apex_fused": "adamw",
    "adamw_hf": "adamw",
    "adamw_fp32optstate": "adamw",
    "adam_pax": "adamw",
    "cpuadam": "adamw",
    "fusedadam": "adamw",
    "fusedadamw": "adamw",
    "decoupled_adamw": "adamw",
    "distributed_fused_adam": "adamw",
    "mcore_distributed_optim": "adamw",
    "adamw_8bit": "adam8bit",
    "adamw_bnb_8bit": "adam8bit",
    "paged_adamw_8bit": "adam8bit",
    "ao_adamw_8bit": "adam8bit",
    "adamw_torch_8bit": "adam8bit",
    "adam8bit": "adam8bit",
    "adamw8bit": "adam8bit",
    "pagedadamw8bit": "adam8bit",
    "adafactor": "adafactor",
    "muon": "muon",
    "sgd": "sgd",
}


# Attention of products and a softmax: transformers, Megatron-Core, llm-foundry, MaxText.
_UNFUSED = {"eager", "math", "unfused", "attnbackend.unfused", "torch", "dot_product"}
_COLLECTIVES = (
    "overlapped_gradients",
    "overlapped_tensor_parallel",
    "copied_rows",
    "regathered_rows",
)
# torchtune's, and in how many chunks unless it is told
_CHUNKED_LOSS = re.compile(r"chunkedoutputloss$|\.linearcrossentropyloss$")
_LOSS_CHUNK_COUNT = 8


def precision_of(words: Words) -> dict[str, object]:
    """Return the job's number format, and whether all states have it.

    Raises:
        DocumentError: if two formats are switched on, or one is not known.
    """
    on = [name for name in ("bf16", "fp16") if name in words and words.flag(name)]
    if len(on) > 1:
        raise DocumentError(
            f"contradicts {words.place('bf16')}, which is on as well",
            field=words.place("fp16"),
            value=True,
            remedy="switch one of them off",
        )
    named = _named(words)
    if not on and named is None and words.flag("bf16"):  # as the framework has it
        on = ["bf16"]
    if on and named not in (None, on[0], "fp8"):
        raise DocumentError(
            f"contradicts {words.place(on[0])}, which is on",
            field=words.place("precision"),
            value=words.text("precision"),
            remedy="leave one of them out",
        )
    if words.get("fp8") not in (None, False):
        named = "fp8"
        if not _FLOAT8.search(str(words.get("fp8")).lower()):
            words.said.append(f"{words.place('fp8')} {words.get('fp8')} is priced as fp8")
    if not on and named is None:
        named = _loaded_in(words)
    if not on and named is None and "bf16" not in words and "fp16" not in words:
        words.said.append(f"{words.title}'s file says no number format: fp32")
    return _with_states(words, {"precision": named or (on[0] if on else "fp32")})


def _with_states(words: Words, job: dict[str, object]) -> dict[str, object]:
    """Return the number format with that of states, gradients and products in fp32."""
    loaded = bool(words.fixed.get("loads_in_compute_format")) and job["precision"] == "bf16"
    narrow = job["precision"] != "fp32" and words.flag("narrow_states")
    if _states_have_16_bits(words) or loaded or narrow:
        job["states_in_16_bits"] = True
    if _has_16_bits(words.text("gradients_precision")):
        job["gradients_in_16_bits"] = True
    if words.flag("tensor_float_32") and job["precision"] == "fp32":  # others have no such products
        job["tensor_float_32"] = True
    return job


def is_mixed(words: Words) -> bool:
    """Return whether products are cast from wider weights, as far as the file has it."""
    return any(words.flag(name) for name in ("bf16", "fp16")) or words.get("precision") is not None


def _loaded_in(words: Words) -> str | None:
    """Return the 16-bit format that a model is loaded in, which nothing is cast from then."""
    states = (words.text("states_precision") or "").rpartition(".")[2]
    return _PRECISIONS.get(states) if _has_16_bits(states) else None


def _named(words: Words) -> str | None:
    word = words.text("precision")
    if word is None:
        return None
    plain = word.rpartition(".")[2].removesuffix("-mixed").removesuffix("-true")
    if "fp8" in plain:
        return "fp8"
    if plain not in _PRECISIONS:
        raise DocumentError(
            "is not a number format that is modelled",
            field=words.place("precision"),
            value=word,
            remedy="use bf16, fp16, fp8 or fp32",
        )
    return _PRECISIONS[plain]


def _states_have_16_bits(words: Words) -> bool:
    whole = (words.text("precision") or "") in _WHOLE
    pure = words.flag("pure_bf16")
    return whole or pure or _has_16_bits(words.text("states_precision"))


def _has_16_bits(name: str | None) -> bool:
    return (name or "").rpartition(".")[2] in {"bf16", "bfloat16", "fp16", "float16"}


def optimizer_of(words: Words) -> dict[str, object]:
    """Return the job's optimizer; how one that is not modelled is priced is said."""
    given = words.text("optimizer")
    if given is None:
        return {}
    name = given.rpartition(".")[2].replace("-", "_")
    if name not in _OPTIMIZERS:
        words.said.append(f"{words.place('optimizer')} {given} is priced as adamw")
    return {"optimizer": _OPTIMIZERS.get(name, "adamw")}


def kernels_of(words: Words) -> dict[str, Any]:
    """Return what is said of kernels: Liger's fuse norms, and the loss with the head.

    torchtune's losses that take logits in chunks are compiled with the model.

    Source: transformers `training_args.py` (`use_liger_kernel`, `torch_compile`); Liger-Kernel
    `transformers/monkey_patch.py`; torchtune `modules/loss`, `training/_compile.py`.
    """
    liger, compiled, fused = (words.flag(word) for word in ("liger", "compile", "fused_loss"))
    job: dict[str, Any] = {}
    if liger or compiled or words.flag("fused_norms"):
        job["fused_elementwise"] = True
    if liger or fused:
        job["fused_linear_loss"] = True
    if _CHUNKED_LOSS.search(words.text("loss") or ""):
        job["loss_chunk_count"] = words.size("loss_chunks", _LOSS_CHUNK_COUNT)
        job["fused_loss"] = compiled
    if words.text("attention") in _UNFUSED:
        job["fused_attention"] = False
    if words.get("clipping") is not None:
        job["gradient_clipping"] = bool(words.number("clipping"))
    return job


def collectives_of(words: Words) -> dict[str, Any]:
    """Return what is said of collectives: what they run beside, and what is copied for them."""
    return {name: words.flag(name) for name in _COLLECTIVES if words.get(name) is not None}
