"""Tasks on frozen weights in 4 or 8 bits (QLoRA): PEFT's adapters beside bitsandbytes' linears."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import distributed, nn
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.integrations.bitsandbytes import replace_with_bnb_linear

from executor.losses import next_token_loss
from executor.session import Session
from planner.importers.hugging_face.config_json import graph_from_huggingface
from tests.distributed.plans import cpu_plan
from tests.distributed.reference import (
    SEED,
    STEP_COUNT,
    adamw,
    floats_differences,
    floats_of,
    global_batches,
)
from tests.distributed.rounding import (
    MICRO_BATCH_SIZES,
    SUMMED_LOSS,
    TIMES_AS_FAR,
    loss_error,
    relative_error,
)
from tests.distributed.state_tasks import everyone
from tests.distributed.weight_tasks import adapters_of

# Rows of whole blocks of 64, on each of two ranks too.
WIDE = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 16}
# Rows of 32 and 96: blocks of 64 reach over several.
NARROW = {"hidden_size": 32, "intermediate_size": 96, "head_dim": 4}


def configuration(*, is_wide: bool, block_count: int) -> LlamaConfig:
    """Return the configuration of a small Llama."""
    return LlamaConfig(
        **(WIDE if is_wide else NARROW),
        num_attention_heads=8,
        num_key_value_heads=4,
        num_hidden_layers=block_count,
        vocab_size=256,
        tie_word_embeddings=False,
        use_cache=False,
    )


def quantized(
    *,
    strategy: dict[str, Any],
    folder: str,
    out: str,
    is_wide: bool = True,
    fields: dict[str, Any] | None = None,
    is_loaded: bool = False,
) -> dict[str, Any]:
    """Train adapters on packed weights, and compare with plain torch, PEFT and bitsandbytes.

    The model is packed from the folder's weights, or by transformers as `build_model` loads them.
    """
    fields = fields or {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    packing = BitsAndBytesConfig(**fields)
    base_bits = 4 if packing.load_in_4bit else 8
    with floats_of(32):
        config = configuration(is_wide=is_wide, block_count=strategy.pop("block_count", 2))
        _written(config, folder)

        def build_model() -> nn.Module:
            if is_loaded:
                torch.manual_seed(SEED)  # ranks begin with the same adapters
                with torch.device("cpu"):
                    return with_lora(packed_by_transformers(folder, packing))
            model = replace_with_bnb_linear(LlamaForCausalLM(config), ["lm_head"], packing)
            return with_lora(model)

        plan = cpu_plan(
            model=graph_from_huggingface(config.to_dict(), name="llama"),
            adapters={"rank": 4, "base_bits": base_bits},
            **strategy,
        )
        session = Session(plan, device=torch.device("cpu"))
        weights = None if is_loaded else folder
        trainer = session.parallelize(
            build_model, next_token_loss, adamw, weights=weights, seed=SEED
        )
        begun = adapters_of(trainer)
        losses = [trainer.step(*b).loss for b in session.shard(global_batches(0, STEP_COUNT))]
        said = floats_differences(everyone(list(session.report().differences_from_plan)))
        trainer.export(f"{out}/adapters")
        trainer.export(f"{out}/merged", merged=True)
        evaluated = trainer.evaluate(global_batches(9, 1))
        trainer.save(f"{out}/saved")
        again = Session(plan, device=torch.device("cpu"), mesh=session.mesh).parallelize(
            build_model, next_token_loss, adamw, weights=weights, seed=SEED + 1,
            checkpoint_follows=True,
        )  # fmt: skip
        again.load(f"{out}/saved")
        answer: dict[str, Any] = {
            "losses": losses,
            "differences": said,
            "reloaded": again.evaluate(global_batches(9, 1)) == evaluated,
            "packed_bytes": trainer.parameter_bytes(),
        }
        if distributed.get_rank() == 0:
            answer |= _compared(folder, Path(out), packing, begun)
        distributed.barrier()
    return answer


def _written(config: LlamaConfig, folder: str) -> None:
    if distributed.get_rank() == 0:
        torch.manual_seed(5)
        LlamaForCausalLM(config).save_pretrained(folder)
    distributed.barrier()


def packed_by_transformers(folder: str, packing: BitsAndBytesConfig) -> nn.Module:
    """Return what transformers makes of the weights in `folder`, in fp32 but for packed ones."""
    model: nn.Module = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=copy.deepcopy(packing), dtype=torch.float32, device_map="cpu"
    )
    return model


def with_lora(model: nn.Module) -> nn.Module:
    """Return the model with adapters beside the linears of its blocks."""
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    config = LoraConfig(r=4, lora_alpha=16, target_modules=names)
    wrapped: nn.Module = get_peft_model(model, config, autocast_adapter_dtype=False)
    return wrapped


def _plain(folder: str, packing: BitsAndBytesConfig, begun: dict[str, torch.Tensor]) -> nn.Module:
    model = with_lora(packed_by_transformers(folder, packing))
    values = dict(model.get_base_model().named_parameters())
    with torch.no_grad():
        for name, value in begun.items():
            values[name].copy_(value)
    return model.train()


def _unpacked(model: nn.Module) -> nn.Module:
    """Return the model in fp64 with what its packed weights stand for."""
    from peft.utils.integrations import dequantize_bnb_weight  # noqa: PLC0415 - needs the package

    for path, module in list(model.named_modules()):
        if type(module).__module__.startswith("bitsandbytes"):
            whole = dequantize_bnb_weight(module.weight, state=getattr(module, "state", None))
            linear = nn.Linear(module.in_features, module.out_features, bias=False)
            linear.weight = nn.Parameter(whole.detach().double(), requires_grad=False)
            model.set_submodule(path, linear)
    return model.double()


def _losses(model: nn.Module, micro_batch_size: int) -> list[float]:
    optimizer = adamw(p for p in model.parameters() if p.requires_grad)
    losses = []
    for inputs, targets in global_batches(0, STEP_COUNT):
        optimizer.zero_grad()
        pieces = list(
            zip(inputs.split(micro_batch_size), targets.split(micro_batch_size), strict=True)
        )
        total = 0.0
        for tokens, wanted in pieces:
            logits = model(input_ids=tokens).logits
            loss = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()) / len(pieces)
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def _compared(
    folder: str, out: Path, packing: BitsAndBytesConfig, begun: dict[str, torch.Tensor]
) -> dict[str, Any]:
    exact_model = _unpacked(_plain(folder, packing, begun))
    exact = _losses(exact_model, 8)
    plain = {size: _plain(folder, packing, begun) for size in MICRO_BATCH_SIZES}
    errors = [loss_error(_losses(model, size), exact) for size, model in plain.items()]
    trained, wanted = (_trained(model) for model in (plain[8], exact_model))
    adapted = PeftModel.from_pretrained(packed_by_transformers(folder, packing), out / "adapters")
    found = _trained(adapted)
    ((inputs, _),) = global_batches(9, 1)
    merged = AutoModelForCausalLM.from_pretrained(out / "merged", dtype=torch.float64)
    whole = with_lora(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    return {
        "exact_losses": exact,
        "loss_bar": SUMMED_LOSS + TIMES_AS_FAR * max(errors),
        "adapter_bar": TIMES_AS_FAR * max(relative_error(trained[n], wanted[n]) for n in wanted),
        "adapter_error": max(relative_error(found[n], wanted[n]) for n in wanted),
        "merged_error": relative_error(
            merged(input_ids=inputs).logits.detach(), exact_model(input_ids=inputs).logits.detach()
        ),
        "unpacked_loss": _losses(whole, 8)[0],
    }


def _trained(model: nn.Module) -> dict[str, torch.Tensor]:
    named = model.get_base_model().named_parameters()
    return {name: item.detach().double() for name, item in named if ".lora_" in name}


QUANTIZED_TASKS = (quantized,)
