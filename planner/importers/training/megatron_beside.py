"""Megatron's other flags: which say nothing of what a step costs, and which sizes are the model's.

Names are those of Megatron-LM 0.19.2 (`megatron/training/arguments.py` and the dataclasses that it
reads), and of the launchers that stand before a script. What is neither read nor here is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.importers.fields import not_read
from planner.importers.training.config import require_models
from planner.importers.training.megatron_flags import Flags
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    ModelGraph,
    RunPart,
)

# The start of each name, without its dashes: of files, logs, schedules and data, of the model's
# own shape, and of kernels that the stack is priced with.
_FILES_AND_LOGS = """
    adlr- app-tag async- auto-detect ckpt- config-logger data- dataloader- dist-ckpt disable-ckpt
    disable-log disable-straggler disable-msc distributed-backend distributed-timeout dump-
    enable-ft enable-msc eval- exit finetune flight-recorder full-validation help init-
    initial-loss-scale load local-rank log- logging- manual-gc memory-snapshot merge-file mid-level
    min-loss mock-data multiple-validation no-check no-ckpt no-create-attention no-data no-init
    no-load no-log no-manual no-mmap no-one no-save non-persistent null-tokenizer num-dataset
    num-workers nvtx one-logger override- per-split persistent-save pretrained profile
    pytorch-profiler record- rerun- save seed skip-train split start-eval straggler- te-rng
    tensorboard- test- tiktoken- timing- titles- tokenizer- train- trust-remote use-checkpoint
    use-cpu-init use-dist-ckpt use-mcore use-mp-args use-persistent use-pytorch use-tokenizer valid
    vocab-extra vocab-file wandb- loss-scale hysteresis check- iterations-to eod-mask reset-
    calculate-per legacy- ft- use-one-sent chat-template empty-unused
    error-injection
"""
_SCHEDULES = """
    adam- decoupled- end-weight head-lr lion- lr min-lr muon- sgd- start-weight warmup weight-decay
    no-weight-decay apply-wd
"""
_OF_THE_MODEL = """
    activation-func add-qkv apply-layernorm apply-query apply-residual attention-output
    attention-softmax disable-bias dsa- embedding-init glu- group-query is-hybrid kv-lora linear-
    make-vocab mamba- max-position moe-aux moe-ffn moe-input moe-layer-freq moe-latent moe-router
    moe-shared moe-z mscale multi-latent mup- no-position no-rope norm normalization openai-gelu
    padded-vocab position-embedding q-lora qk- quick-geglu relative-attention rope- rotary-
    softmax-type spec squared-relu swiglu untie- use-mup use-rope use-rotary v-head vocab-size
    window- yarn-
"""
_KERNELS = """
    attention-backend moe-grouped moe-permute moe-flex moe-token-drop no-bias no-masked no-persist
    transformer-impl use-flash-attn overlap-param fp8-param use-precision-aware
"""
_LAUNCHERS = """
    nnodes nproc node-rank master- rdzv standalone max-restarts monitor- redirects tee role nodes
    ntasks gres gpus cpus job-name output error partition account time container exclusive mem
    export kill-on mpi label no-python
"""
_BESIDE = tuple(
    sorted({*(_FILES_AND_LOGS + _SCHEDULES + _OF_THE_MODEL + _KERNELS + _LAUNCHERS).split()})
)


def not_priced(names: Iterable[str]) -> tuple[str, ...]:
    """Return a line on the flags that are not read and may change what a step costs."""
    left = sorted({name for name in names if not name.removeprefix("--").startswith(_BESIDE)})
    return (not_read("Megatron-LM", left),) if left else ()


def hold_sizes(given: Flags, graph: ModelGraph) -> None:
    """Raise where a size of a flag is not that of any of the decoder's blocks.

    Raises:
        DocumentError: naming the flag, what it says and what the model has.
    """
    blocks = [run.block for run in graph.runs if run.part is RunPart.DECODER]
    found: dict[str, set[int]] = {"--num-experts": set()}
    for flag, size in (pair for block in blocks for pair in _sizes(block)):
        found.setdefault(flag, set()).add(size)
    if found["--num-experts"]:  # beside experts the flag may be of layers that are none
        found.pop("--ffn-hidden-size", None)
    if not given.has("--group-query-attention"):  # without, Megatron does not ask
        found.pop("--num-query-groups", None)
    for flag, sizes in found.items():
        word = given.word(flag) if given.has(flag) and not graph.is_measured else None
        if word is not None and word.isdigit() and int(word) not in sizes:
            require_models(flag, int(word), max(sizes, default=0))


def _sizes(block: Block) -> Iterator[tuple[str, int]]:
    attention, feed_forward = block.attention, block.feed_forward
    if isinstance(attention, GroupedQueryAttention | LatentAttention):
        yield "--num-attention-heads", attention.head_count
    if isinstance(attention, GroupedQueryAttention):
        yield "--num-query-groups", attention.key_value_head_count
        yield "--kv-channels", attention.head_size
    if isinstance(feed_forward, DenseFeedForward):
        yield "--ffn-hidden-size", feed_forward.ffn_size
    if isinstance(feed_forward, MixtureFeedForward):
        yield "--num-experts", feed_forward.expert_count
        yield "--moe-router-topk", feed_forward.experts_per_token
