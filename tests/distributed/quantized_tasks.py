"""Tasks on frozen weights in 4 or 8 bits (QLoRA): PEFT's adapters beside bitsandbytes' linears."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import bitsandbytes
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.integrations.bitsandbytes import replace_with_bnb_linear

from executor.apply.tensor_parallel import PackedRowParallel
from executor.losses import next_token_loss
from executor.models.quantized_linear import replace_packed
from executor.session import Session
from planner.importers.hugging_face.config_json import graph_from_huggingface
from tests.distributed.plans import cpu_plan, small_model
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
            "evaluated": evaluated,
            "differences": said,
            "reloaded": again.evaluate(global_batches(9, 1)) == evaluated,
            "packed_bytes": trainer.parameter_bytes(),
        }
        if distributed.get_rank() == 0:
            answer |= _compared(folder, Path(out), packing, begun, is_wide=is_wide)
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


def _unpacked(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return the model with what its packed weights stand for, in torch's own linears."""
    for path, module in list(model.named_modules()):
        if type(module).__module__.startswith("bitsandbytes"):
            linear = nn.Linear(module.in_features, module.out_features, bias=False)
            linear.weight = nn.Parameter(_whole_weight(module), requires_grad=False)
            model.set_submodule(path, linear)
    return model.to(dtype)


def _whole_weight(module: Any) -> torch.Tensor:
    """Return a packed weight in fp32: of 4 bits the code of each times the scale of its block.

    The kernels of bitsandbytes for CPUs unpack rows alone that are whole blocks.
    """
    from bitsandbytes import functional as packed  # noqa: PLC0415 - needs the package

    weight = module.weight
    if not hasattr(weight, "quant_state"):
        scales = weight.SCB if module.state.SCB is None else module.state.SCB
        return weight.detach().float() * scales.unsqueeze(1) / 127.0
    state = weight.quant_state
    scales = state.absmax
    if state.nested:
        scales = packed.dequantize_blockwise(scales, state.state2) + state.offset
    pairs = weight.data.flatten().long()
    codes = packed.get_4bit_type(state.quant_type, device="cpu")
    numbers = codes[torch.stack((pairs >> 4, pairs & 15), dim=1).flatten()]
    return (numbers * scales.repeat_interleave(state.blocksize)[: len(numbers)]).view(state.shape)


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
    folder: str,
    out: Path,
    packing: BitsAndBytesConfig,
    begun: dict[str, torch.Tensor],
    *,
    is_wide: bool,
) -> dict[str, Any]:
    """Return what plain torch, PEFT and bitsandbytes make of it, narrow rows without its kernels.

    Those for CPUs are wrong where a row is no whole number of blocks.
    """
    exact_model = _unpacked(_plain(folder, packing, begun), torch.float64)
    exact = _losses(exact_model, 8)
    plain = {size: _plain(folder, packing, begun) for size in MICRO_BATCH_SIZES}
    if not is_wide:
        plain = {size: _unpacked(model, torch.float32) for size, model in plain.items()}
    errors = [loss_error(_losses(model, size), exact) for size, model in plain.items()]
    trained, wanted = (_trained(model) for model in (plain[8], exact_model))
    adapted = PeftModel.from_pretrained(packed_by_transformers(folder, packing), out / "adapters")
    found = _trained(adapted)
    ((inputs, targets),) = global_batches(9, 1)
    with torch.no_grad():
        tried = adapted.eval() if is_wide and packing.load_in_8bit else exact_model
        logits = tried(input_ids=inputs).logits
    evaluated = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    merged = AutoModelForCausalLM.from_pretrained(out / "merged", dtype=torch.float64)
    whole = with_lora(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
    return {
        "exact_losses": exact,
        "plain_evaluated": float(evaluated),
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


def rows_in_8_bits() -> dict[str, float]:
    """Compare a linear in 8 bits, split in columns, with bitsandbytes' whole one in evaluation.

    Inputs have outliers, which are multiplied in 16 bits, and the largest elements of their rows
    lie on one rank or another.
    """
    torch.manual_seed(SEED)
    whole = bitsandbytes.nn.Linear8bitLt(48, 24, has_fp16_weights=False, threshold=6.0)
    given = torch.randn(3, 6, 48)
    given[..., 7] *= 20.0
    twin = given.clone().requires_grad_()
    holder = nn.Sequential(copy.deepcopy(whole)).eval()
    wanted = whole.eval().to("cpu")(twin)
    wanted.square().sum().backward()
    holder.to("cpu")
    replace_packed(holder)
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    parallelize_module(holder, mesh, {"0": PackedRowParallel(input_layouts=Replicate())})
    own = given.clone().requires_grad_()
    found, plain = holder(own), _whole_weight(whole).to(given.dtype)
    found.square().sum().backward()
    return {
        "product": relative_error(found.detach(), wanted.detach()),
        "gradient": relative_error(own.grad, twin.grad),
        "scaled": relative_error(wanted.detach(), functional.linear(given, plain, whole.bias)),
    }


def adapter_layouts(
    *, strategies: list[dict[str, Any]], fields: dict[str, Any] | None, folder: str
) -> dict[str, Any]:
    """Train adapters of one small model under layouts of one mesh; return the losses of each.

    Frozen weights, those that are written to `folder`, are packed by `fields`, or stay whole.
    """
    planned = small_model(block_count=4)
    config = LlamaConfig(
        hidden_size=planned.hidden_size,
        intermediate_size=64,
        head_dim=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_hidden_layers=planned.block_count,
        vocab_size=planned.vocabulary_size,
        tie_word_embeddings=False,
        use_cache=False,
    )

    def build_model() -> nn.Module:
        model = LlamaForCausalLM(config)
        if fields is not None:
            model = replace_with_bnb_linear(model, ["lm_head"], BitsAndBytesConfig(**fields))
        return with_lora(model)

    bits = 16 if fields is None else 8 if "load_in_8bit" in fields else 4
    losses, mesh = [], None
    with floats_of(32):
        _written(config, folder)
        for strategy in strategies:
            plan = cpu_plan(model=planned, adapters={"rank": 4, "base_bits": bits}, **strategy)
            session = Session(plan, device=torch.device("cpu"), mesh=mesh)
            mesh = session.mesh
            try:
                trainer = session.parallelize(
                    build_model, next_token_loss, adamw, weights=folder, seed=SEED
                )
                batches = session.shard(global_batches(0, STEP_COUNT))
                losses.append([trainer.step(*batch).loss for batch in batches])
            except Exception as error:
                error.add_note(f"under {strategy}")
                raise
    return {"losses": losses}


QUANTIZED_TASKS = (quantized, rows_in_8_bits, adapter_layouts)
