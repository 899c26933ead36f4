"""Adapters: what low-rank adaptation (LoRA) changes of a layer, whose own parameters stay.

Beside a product of K inner and N outer elements an adapter of rank r puts two, K x r and r x N,
whose result is added to its own. Only adapters have gradients and optimizer states, and only they
are reduced over data-parallel ranks; frozen products have no weights' gradient, and their rows need
not be kept for one. Frozen weights may be stored in 4 or 8 bits, and are then unpacked to 16 for
each product that reads them, into rows of its own; they are gathered and fetched as they are stored
(in a container whose type sharding takes: fsdp_qlora `train.py`, bitsandbytes `quant_storage`), but
for what is no parameter: scales, where they stay whole, and GPTQ's weights.
Embedding and head that are trained are copies, as PEFT has them,
whose frozen originals stay beside; neither is stored in fewer bits. Tensor parallelism divides an
adapter as the product that it is of.

Source: Hu et al. 2021, arXiv:2106.09685; Dettmers et al. 2023, arXiv:2305.14314. Not modelled:
adapters of routed experts, and that nothing below the first adapter needs gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.cost.configuration import Floats
from planner.cost.setting import Setting
from planner.cost.states import LocalParameters
from planner.schema.job import Adapters, AdapterTargets, Job, Unpacking
from planner.workload.layer import ActivationElements, Gemm, LayerWorkload, ModelWorkload

_ENDS = frozenset({"embedding", "head"})
_FEED_FORWARD = ("ffn_", "shared_", "expert_", "router")
_ADDITION_PASSES = 3.0  # two rows read, and one written
_DROPPED_ELEMENTS = 1.5  # of 16 bits: what is left, and a mask of a byte
_DROPOUT_PASSES = 2.5  # read, written, and the mask
_STEPS = 3  # dropout, scaling and addition, where each is a kernel
_UNPACKED_BYTES = 2.0
_WHOLE_BITS = 16
# Bytes that unpacking by steps reads and writes of each weight, tables that stay in caches aside;
# beside them whether backward unpacks anew, or finds what forward left. auto_gptq shifts into 32
# bits, casts to 8, masks, gathers zeros, subtracts, gathers scales and multiplies; torchao shifts
# or masks, casts to 64 bits, looks up, spreads scales, multiplies and stacks.
# Source: auto_gptq/nn_modules/qlinear/qlinear_cuda.py; torchao/dtypes/nf4tensor.py
_STEPPED = {Unpacking.AUTO_GPTQ: (22.5, False), Unpacking.TORCHAO: (33.0, True)}


def frozen(layer: LayerWorkload, job: Job) -> bool:
    """Return whether the layer's own parameters stay as they are."""
    if job.adapters is None:
        return False
    return layer.name not in _ENDS or not job.adapters.trains_ends


def adapters_of(gemm: Gemm, adapters: Adapters) -> tuple[Gemm, ...]:
    """Return the two products of a product's adapter; none where it has none."""
    if gemm.expert_count or gemm.name == "router" or gemm.weightless:
        return ()
    if adapters.targets is AdapterTargets.ATTENTION and gemm.name.startswith(_FEED_FORWARD):
        return ()
    down = Gemm(
        name=f"{gemm.name}_adapter_down",
        inner_size=gemm.inner_size,
        outer_size=adapters.rank,
        split="inner" if gemm.split == "inner" else "none",
        in_16_bits=True,
    )
    up = Gemm(
        name=f"{gemm.name}_adapter_up",
        inner_size=adapters.rank,
        outer_size=gemm.outer_size,
        split="outer" if gemm.split == "outer" else "none",
        in_16_bits=True,
    )
    return (down, up)


def with_adapters(layer: LayerWorkload, held: LocalParameters, setting: Setting) -> LocalParameters:
    """Return what one device holds of the layer, `held` of it being its own parameters."""
    adapters = setting.job.adapters
    if adapters is None:
        return held
    is_end, wide = layer.name in _ENDS, float(setting.compute_bytes)
    each, undivided = min(adapters.base_bytes, wide), adapters.undivided_bytes
    if is_end:
        each, undivided = wide, 0.0
    stored = replace(held, element_bytes=each - undivided, undivided_bytes=undivided)
    if not frozen(layer, setting.job):
        return LocalParameters(dense=2.0 * held.dense, expert=held.expert, frozen=stored)
    added = np.zeros_like(setting.tokens)
    for gemm in _all_adapters(layer, setting.job):
        shares = setting.tensor if gemm.split != "none" else np.ones_like(setting.tensor)
        added = added + gemm.inner_size * gemm.outer_size / shares
    return LocalParameters(dense=held.dense + added, expert=held.expert, frozen=stored)


def addition_seconds(gemm: Gemm, tokens: Floats, setting: Setting) -> tuple[Floats, Floats]:
    """Return the seconds to add an adapter's rows to those of its product, forward and backward."""
    shares = np.where(gemm.split == "outer", setting.tensor, 1.0)
    inner = np.where(gemm.split == "inner", setting.tensor, 1.0)
    per_element = (
        _ADDITION_PASSES * setting.compute_bytes / setting.hardware.memory_bytes_per_second
    )
    adapters = setting.job.adapters
    dropped = _DROPOUT_PASSES / _ADDITION_PASSES if adapters and adapters.dropout else 0.0
    added, read = gemm.outer_size / shares, gemm.inner_size / inner
    return (
        tokens * (added + dropped * read) * per_element,
        tokens * (1.0 + dropped) * read * per_element,
    )


def unpacking_seconds(gemm: Gemm, layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return the seconds to turn a frozen product's weights into 16 bits, forward and backward."""
    adapters = setting.job.adapters
    zero = np.zeros_like(setting.tokens)
    if adapters is None or adapters.base_bits == _WHOLE_BITS or layer.name in _ENDS:
        return zero, zero
    weights = _unpacked_weights(gemm, setting)
    one_kernel = (adapters.base_bytes + _UNPACKED_BYTES, True)
    moved_bytes, anew = _STEPPED.get(adapters.unpacking, one_kernel)
    seconds = np.asarray(weights * moved_bytes / setting.hardware.memory_bytes_per_second)
    return seconds, seconds if anew else zero


def _unpacked_weights(gemm: Gemm, setting: Setting) -> Floats:
    """Return how many weights of a product one device unpacks."""
    tensor = setting.expert_tensor if gemm.expert_count else setting.tensor
    copies = np.maximum(gemm.expert_count / setting.expert, 1.0)
    weights = copies * gemm.inner_size * gemm.outer_size * (not gemm.weightless)
    return weights / np.where(gemm.split == "none", 1.0, tensor)


def unpacked_bytes(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return what unpacked weights take in 16 bits: to backward, and while a product runs.

    Backward either unpacks anew, and one product's weights are there at a time, or reads those that
    forward left, all of the layer's; an expert is unpacked by itself.
    """
    adapters, zero = setting.job.adapters, np.zeros_like(setting.tokens)
    if adapters is None or adapters.base_bits == _WHOLE_BITS or layer.name in _ENDS:
        return zero, zero
    each = [_UNPACKED_BYTES * _unpacked_weights(gemm, setting) for gemm in layer.gemms]
    if not _STEPPED.get(adapters.unpacking, (0.0, True))[1]:
        return np.asarray(sum(each, zero)), zero
    single = [
        taken / np.maximum(gemm.expert_count / setting.expert, 1.0)
        for gemm, taken in zip(layer.gemms, each, strict=True)
    ]
    return zero, np.asarray(max(single, key=np.max, default=zero))


def added_kernel_count(layer: LayerWorkload, setting: Setting) -> int:
    """Return how many kernels adapters add to forward."""
    if not frozen(layer, setting.job):
        return 0
    products = sum(1 for _ in _all_adapters(layer, setting.job))
    return products + products // 2 * (_STEPS if setting.unfused else 1)


def kept_elements(
    elements: ActivationElements, layer: LayerWorkload, job: Job
) -> ActivationElements:
    """Return what forward keeps where frozen products have adapters, or some of them.

    Rows that products alone read are kept for their weights' gradients, and here for those of
    adapters: an adapter keeps its own r elements beside, and rows that a feed-forward without
    adapters reads are not kept. Under dropout each adapter has a row of its own in place of what
    its product shares with others, and a mask of a byte an element.
    Source: PEFT `tuners/lora/layer.py` (`Linear.forward`), which drops out what each layer reads.
    """
    if not frozen(layer, job) or job.adapters is None:
        return elements
    downs = [gemm for gemm in _all_adapters(layer, job) if gemm.name.endswith("_down")]
    own = replace(elements, replicated=elements.replicated + sum(g.outer_size for g in downs))
    if job.adapters.dropout:
        whole = sum(gemm.inner_size for gemm in downs if gemm.split != "inner")
        split = sum(gemm.inner_size for gemm in downs if gemm.split == "inner")
        return replace(
            own,
            gathered=_DROPPED_ELEMENTS * whole,
            sharded=own.sharded + _DROPPED_ELEMENTS * split,
            products=0.0,
        )
    if job.adapters.targets is AdapterTargets.ALL:
        return own
    return replace(own, gathered=max(own.gathered - layer.hidden_size, 0.0), products=0.0)


def needed_flop_per_token(workload: ModelWorkload, job: Job, sequence_length: int) -> float:
    """Return the FLOPs that one token needs: no weights' gradients of what is frozen.

    Adapters' own products are left out, as small.
    """
    whole = workload.model_flop_per_token(sequence_length)
    layers = (*workload.runs, (workload.embedding, 1), (workload.head.layer, 1))
    spared = sum(
        count * layer.token_count(sequence_length) * gemm.flop_per_token()
        for layer, count in layers
        if frozen(layer, job)
        for gemm in layer.gemms
        if not gemm.weightless
    )
    return whole - spared / sequence_length


def _all_adapters(layer: LayerWorkload, job: Job) -> Iterator[Gemm]:
    if job.adapters is not None and layer.name not in _ENDS:
        for gemm in layer.gemms:
            yield from adapters_of(gemm, job.adapters)
