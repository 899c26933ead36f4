"""Adapters: what low-rank adaptation (LoRA) changes of a layer, whose own parameters stay.

Beside a product of K inner and N outer elements an adapter of rank r puts two, K x r and r x N,
whose result is added to its own. Only adapters have gradients and optimizer states, and only they
are reduced over data-parallel ranks; frozen products have no weights' gradient, and their rows need
not be kept for one. Frozen weights may be stored in 4 or 8 bits, and are then unpacked to 16 for
each product that reads them. Embedding and head that are trained are copies, as PEFT has them,
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
_STEPS = 3  # dropout, scaling and addition, where each is a kernel
_UNPACKED_BYTES = 2.0
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
    stored = replace(held, element_bytes=wide if is_end else min(adapters.base_bytes, wide))
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
    return (
        tokens * gemm.outer_size / shares * per_element,
        tokens * gemm.inner_size / inner * per_element,
    )


def unpacking_seconds(gemm: Gemm, layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return the seconds to turn a frozen product's weights into 16 bits, forward and backward."""
    adapters = setting.job.adapters
    zero = np.zeros_like(setting.tokens)
    if adapters is None or adapters.base_bits == 16 or layer.name in _ENDS:
        return zero, zero
    tensor = setting.expert_tensor if gemm.expert_count else setting.tensor
    copies = np.maximum(gemm.expert_count / setting.expert, 1.0)
    weights = copies * gemm.inner_size * gemm.outer_size * (not gemm.weightless)
    weights = weights / np.where(gemm.split == "none", 1.0, tensor)
    one_kernel = (adapters.base_bytes + _UNPACKED_BYTES, True)
    moved_bytes, anew = _STEPPED.get(adapters.unpacking, one_kernel)
    seconds = np.asarray(weights * moved_bytes / setting.hardware.memory_bytes_per_second)
    return seconds, seconds if anew else zero


def added_kernel_count(layer: LayerWorkload, setting: Setting) -> int:
    """Return how many kernels adapters add to forward."""
    if not frozen(layer, setting.job):
        return 0
    products = sum(1 for _ in _all_adapters(layer, setting.job))
    return products + products // 2 * (_STEPS if setting.unfused else 1)


def kept_elements(
    elements: ActivationElements, layer: LayerWorkload, job: Job
) -> ActivationElements:
    """Return what forward keeps where only some products have adapters.

    The rows that a feed-forward without adapters reads are kept for its weights' gradients alone;
    an adapter keeps its own r elements.
    """
    if not frozen(layer, job) or job.adapters is None:
        return elements
    own = sum(g.outer_size for g in _all_adapters(layer, job) if g.name.endswith("_down"))
    if job.adapters.targets is AdapterTargets.ALL:
        return replace(elements, replicated=elements.replicated + own)
    return replace(
        elements,
        replicated=elements.replicated + own,
        gathered=max(elements.gathered - layer.hidden_size, 0.0),
        products=0.0,
    )


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
