"""Adapter fields: what files that make LoRA say of a plan's adapters, and what they lose of them.

Sources: Axolotl 0.18, `utils/schemas/peft.py`; LLaMA-Factory 0.9.6, `hparams/finetuning_args.py`
and `model_args.py`; verl 0.7, `trainer/config/model/hf_model.yaml`; NeMo-RL of August 2026,
`examples/configs/grpo_math_1B.yaml`; NeMo 2.5, `nemo/collections/llm/peft/lora.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.exporters.yaml_lines import Fields
from planner.schema.job import Adapters, AdapterTargets, BaseFormat

# How often a dropped value is dropped, which no plan says: PEFT's examples have it so.
DROPOUT_RATIO = 0.05
ATTENTION_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj")
MEGATRON_ATTENTION_MODULES = ("linear_qkv", "linear_proj")
ENDS = ("embed_tokens", "lm_head")
_ALL = frozenset(Adapters.model_fields)
# Formats of files that hold weights of 4 bits already, which no key of a trainer makes
_UNWRITTEN = frozenset(
    ("base_format", kind) for kind in BaseFormat if not kind.value.startswith("bnb")
)
# Whose bases of 4 bits are bitsandbytes', which say nothing of scales that stay whole: all do.
_OF_BITSANDBYTES = ("axolotl", "axolotl-deepspeed", "llama-factory")
ADAPTER_FIELDS: Mapping[str, frozenset[str]] = {
    **{target: _ALL - {"unpacking", "whole_scales"} for target in _OF_BITSANDBYTES},
    "verl": frozenset({"rank", "targets"}),
    "nemo": frozenset({"rank", "targets", "dropout"}),
    "nemo-rl": frozenset({"rank", "targets", "dropout"}),
    "nemo-rl-megatron": frozenset({"rank", "targets", "dropout"}),
}


def adapter_losses(adapters: Adapters, target: str) -> tuple[str, ...]:
    """Return a sentence for each field of the adapters that the target's files do not say."""
    usual = {name: field.default for name, field in Adapters.model_fields.items()}
    usual["whole_scales"] = target in _OF_BITSANDBYTES and adapters.base_bits == 4
    return tuple(
        f"no file says adapters.{name} {str(value).lower()}, which the plan counts on: the "
        "program has to have it so"
        for name, default in usual.items()
        if (name not in ADAPTER_FIELDS[target] or (name, getattr(adapters, name)) in _UNWRITTEN)
        and (value := getattr(adapters, name)) != default
    )


def axolotl_adapters(adapters: Adapters) -> Fields:
    """Return Axolotl's keys of LoRA, or of QLoRA where the base has 4 bits."""
    everything = adapters.targets is AdapterTargets.ALL
    fields: Fields = {
        "adapter": "qlora" if adapters.base_bits == 4 else "lora",
        "lora_r": adapters.rank,
        "lora_alpha": 2 * adapters.rank,
    }
    if everything:
        fields["lora_target_linear"] = True
    else:
        fields["lora_target_modules"] = list(ATTENTION_MODULES)
    if adapters.dropout:
        fields["lora_dropout"] = DROPOUT_RATIO
    if adapters.trains_ends:
        fields["lora_modules_to_save"] = list(ENDS)
    if adapters.base_bits < 16:
        fields[f"load_in_{adapters.base_bits}bit"] = True
    if adapters.base_format is BaseFormat.BNB:
        fields["bnb_config_kwargs"] = {"bnb_4bit_use_double_quant": False}
    return fields


def llama_factory_adapters(adapters: Adapters | None) -> Fields:
    """Return LLaMA-Factory's keys of what is trained."""
    if adapters is None:
        return {"finetuning_type": "full"}
    everything = adapters.targets is AdapterTargets.ALL
    fields: Fields = {
        "finetuning_type": "lora",
        "lora_rank": adapters.rank,
        "lora_target": "all" if everything else ",".join(ATTENTION_MODULES),
    }
    if adapters.dropout:
        fields["lora_dropout"] = DROPOUT_RATIO
    if adapters.trains_ends:
        fields["additional_target"] = ",".join(ENDS)
    if adapters.base_bits < 16:
        fields |= {"quantization_bit": adapters.base_bits, "quantization_method": "bnb"}
    if adapters.base_format is BaseFormat.BNB:
        fields["double_quantization"] = False
    return fields
