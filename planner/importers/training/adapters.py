"""Adapters: what a training configuration says of LoRA and of a frozen base in 4 or 8 bits."""

from __future__ import annotations

from typing import Any

from planner.errors import DocumentError
from planner.importers.training.words import Words
from planner.schema.job import BaseFormat, Unpacking

_LORA = {"lora", "qlora", "dora", "rslora", "lora+"}
_WHOLE = {"full", "none", "false", "no", "base"}
_ATTENTION = {
    "q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "output_proj", "out_proj", "wqkv", "c_attn",
    "query_key_value", "linear_qkv", "linear_proj", "wq", "wk", "wv", "wo", "w_pack", "attn",
}  # fmt: skip
_QUERIES_AND_KEYS = {
    "qkv_proj",
    "wqkv",
    "c_attn",
    "query_key_value",
    "linear_qkv",
    "w_pack",
    "attn",
}
_OUTPUTS = {"o_proj", "output_proj", "out_proj", "wo", "c_proj", "dense", "linear_proj", "attn"}
_UP = {"up_proj", "gate_up_proj", "w3", "w1", "fc1", "c_fc", "dense_h_to_4h", "linear_fc1"}
_DOWN = {"down_proj", "w2", "fc2", "c_proj", "dense_4h_to_h", "linear_fc2"}
_EVERY = {"all", "all-linear", "all_linear", "linear"}
_LIBRARY = {"bnb", "bitsandbytes"}
_FORMATS = {"gptq": BaseFormat.GPTQ, "awq": BaseFormat.GPTQ, "hqq": BaseFormat.HQQ}
_TORCHAO = "torchao"
_UNPACKED_AS_PRICED = {*_LIBRARY, _TORCHAO, "hqq", "eetq", "aqlm"}
_BITS = (4, 8, 16)


def adapters_of(words: Words) -> dict[str, Any]:
    """Return the job's `adapters`, empty where all parameters are trained.

    Raises:
        DocumentError: if something else than LoRA is trained, or frozen weights have no adapters.
    """
    bits = _base_bits(words)
    if not _trains_adapters(words):
        if bits != 16:
            raise DocumentError(
                f"stores weights in {bits} bits, which nothing trains without adapters",
                field=_place_of_bits(words),
                value=bits,
                remedy="say that LoRA is trained, or leave the bits out",
            )
        return {}
    adapters: dict[str, Any] = {
        "rank": words.size("lora_rank", 8),
        "targets": _targets(words),
        "base_bits": bits,
        "dropout": bool(words.number("lora_dropout")),
        "trains_ends": bool(words.get("lora_whole")),
    }
    if bits == 4:
        adapters |= _base_format(words)
    if words.flag("lora_dora"):
        words.said.append(f"{words.place('lora_dora')}: DoRA is priced as LoRA")
    return {"adapters": adapters}


def _trains_adapters(words: Words) -> bool:
    kind = words.text("adapter")
    if kind is not None and kind.rpartition(".")[2] not in _LORA | _WHOLE:
        raise DocumentError(
            "is not modelled",
            field=words.place("adapter"),
            value=kind,
            remedy="use lora, or full to train all parameters",
        )
    if kind is not None:
        return kind.rpartition(".")[2] in _LORA
    if words.get("use_lora") is not None:
        return words.flag("use_lora")
    if "use_lora" in words.places or "adapter" in words.places:
        return False
    return "lora_rank" in words and words.size("lora_rank", minimum=0) > 0


def _base_bits(words: Words) -> int:
    """Return the bits in which frozen weights are stored."""
    found = [bits for bits in (4, 8) if words.flag(f"in_{bits}_bits")]
    if words.text("adapter") == "qlora" and not found:
        found = [4]
    if words.optional_size("base_bits", minimum=0):
        found.append(words.size("base_bits"))
    if len(set(found)) > 1 or (found and found[0] not in _BITS):
        raise DocumentError(
            "is not a width that is modelled" if len(found) == 1 else "contradict one another",
            field=_place_of_bits(words),
            value=", ".join(map(str, found)),
            remedy="use 4 or 8",
        )
    method = words.text("quantization_method")
    if found and method is not None and method not in _UNPACKED_AS_PRICED:
        words.said.append(
            f"{words.place('quantization_method')} {method}: unpacking is priced as bitsandbytes'"
        )
    return found[0] if found else 16


def _base_format(words: Words) -> dict[str, Any]:
    """Return how weights of 4 bits are stored, where it is not as the job has it by default.

    torchao's have steps that a compiler makes one kernel, and scales that are cut as weights are.
    """
    method = words.text("quantization_method") or "bnb"
    if method == _TORCHAO:
        return {} if words.flag("compile") else {"unpacking": Unpacking.TORCHAO.value}
    if method in _LIBRARY:
        nested = words.flag("nested_scales")
        return {"whole_scales": True} | ({} if nested else {"base_format": BaseFormat.BNB.value})
    if method in _FORMATS:
        found = {"base_format": _FORMATS[method].value}
        return found | ({"whole_scales": True} if method == "hqq" else {})
    words.said.append(
        f"{words.place('quantization_method')} {method}: weights are priced in the bits of "
        "bitsandbytes' blocks whose scales are quantized too"
    )
    return {}


def _place_of_bits(words: Words) -> str:
    given = ("in_4_bits", "in_8_bits", "base_bits", "adapter")
    return words.place(next((word for word in given if word in words), "base_bits"))


def _targets(words: Words) -> str:
    """Return which products have adapters, by the names of the modules.

    That some of them have none is said.
    """
    given = words.get("lora_targets")
    names = given.split(",") if isinstance(given, str) else given if given is not None else []
    last = {str(name).strip().lower().rpartition(".")[2].strip("*") for name in names}
    linear, feed_forward = words.flag("lora_everywhere"), words.get("lora_feed_forward")
    everything = linear or bool(feed_forward)
    if everything or (last and not last <= _ATTENTION):
        whole = linear or bool(last & _EVERY) or not last
        whole = whole or (_is_whole_attention(last) and (feed_forward or _has_both_ends(last)))
        return _priced_as("all", "every product", words, is_whole=bool(whole))
    if not last:
        words.said.append(
            f"{words.place('lora_targets')} is not given: adapters on the products of attention"
        )
        return "attention"
    is_whole = _is_whole_attention(last)
    return _priced_as("attention", "every product of attention", words, is_whole=is_whole)


def _priced_as(targets: str, what: str, words: Words, *, is_whole: bool) -> str:
    if not is_whole:
        words.said.append(
            f"{words.place('lora_targets')} names some products: adapters on {what} are priced"
        )
    return targets


def _is_whole_attention(names: set[str]) -> bool:
    apart = all(names & one for one in ({"q_proj", "wq"}, {"k_proj", "wk"}, {"v_proj", "wv"}))
    return (apart or bool(names & _QUERIES_AND_KEYS)) and bool(names & _OUTPUTS)


def _has_both_ends(names: set[str]) -> bool:
    return bool(names & _UP) and bool(names & _DOWN)
