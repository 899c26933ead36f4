"""Megatron's other flags: which say nothing of what a step costs, and which sizes are the model's.

Names are those of Megatron-LM 2.6 to 0.19.2 (`megatron/training/arguments.py` and the dataclasses
that it reads), and of the launchers that stand before a script. What is neither read nor here is
told.
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

# Flags of files, logs, schedules and data, of the model's own shape, of kernels that the stack is
# priced with, and of the launchers (torchrun, srun) that stand before a script; without dashes.
_FILES_AND_LOGS = """
    adlr-autoresume adlr-autoresume-interval app-tag-run-name app-tag-run-version
    async-ckpt-cpu-priority async-ckpt-io-priority async-ckpt-use-cpu-shm async-save async-strategy
    auto-detect-ckpt-format calculate-per-token-loss chat-template check-for-large-grads
    check-for-nan-in-grad check-for-nan-in-loss check-for-spiky-loss
    check-weight-hash-across-dp-replicas-interval ckpt-assume-constant-structure ckpt-convert-format
    ckpt-convert-save ckpt-convert-update-legacy-dist-opt-format ckpt-drop-redundant-extra-state
    ckpt-format ckpt-fully-parallel-load ckpt-fully-parallel-load-exchange-algo
    ckpt-fully-parallel-load-per-rank-objects ckpt-fully-parallel-load-process-group
    ckpt-fully-parallel-save ckpt-fully-parallel-save-process-group
    ckpt-load-validate-sharding-integrity ckpt-pg-tensors-cache-create ckpt-pg-tensors-cache-path
    ckpt-step config-logger-dir data-args-path data-cache-path data-impl data-path
    data-per-class-fraction dataloader-defer-npy-index-mmap dataloader-fast-cache-load
    dataloader-type disable-ckpt-load-validate-sharding-integrity
    disable-log-loss-scale-to-tensorboard disable-msc disable-straggler-on-startup dist-ckpt-format
    dist-ckpt-optim-fully-reshardable dist-ckpt-save-pre-mcore-014 dist-ckpt-strictness
    dist-ckpt-workers distributed-backend distributed-timeout-minutes
    distributed-timeout-seconds-after-init dump-param-to-param-group-map empty-unused-memory-level
    enable-ft-package enable-msc eod-mask-loss eval-global-batch-size eval-interval eval-iters
    eval-micro-batch-size exit-duration-in-mins exit-interval exit-on-missing-checkpoint exit-signal
    exit-signal-handler exit-signal-handler-for-dataloader exit-signal-handler-for-training finetune
    finetune-data-files finetune-data-split finetune-hf-dataset flight-recorder-dump-on-timeout
    flight-recorder-dump-path flight-recorder-extra-dump-on-exec flight-recorder-include-only-active
    flight-recorder-include-stack-trace flight-recorder-trace-buffer-size ft-num-warmup-iters
    full-validation hysteresis initial-loss-scale iterations-to-skip legacy-tokenizer load
    load-main-params-from-ckpt load-model-opt-format load-optim load-rng local-rank
    log-batch-size-to-tensorboard log-device-memory-used log-energy log-interval
    log-l2-norm-grad-to-tensorboard log-loss-scale-to-tensorboard log-max-attention-logit
    log-memory-interval log-memory-to-tensorboard log-num-zeros-in-grad log-params-norm log-progress
    log-runtime-to-tensorboard log-straggler log-throughput log-throughput-to-tensorboard
    log-timers-to-tensorboard log-validation-ppl-to-tensorboard log-world-size-to-tensorboard
    logging-level loss-scale loss-scale-window manual-gc manual-gc-eval manual-gc-interval
    memory-keys memory-profile memory-profile-path memory-snapshot-path merge-file
    mid-level-dataset-surplus min-loss-scale mock-data multiple-validation-sets
    no-check-for-nan-in-loss no-check-for-nan-in-loss-and-grad no-ckpt-fully-parallel-save
    no-ckpt-load-validate-sharding-integrity no-create-attention-mask-in-dataloader no-data-sharding
    no-initialization no-load-optim no-load-rng no-log-learnig-rate-to-tensorboard
    no-log-loss-scale-to-tensorboard no-manual-gc-eval no-mmap-bin-files no-one-logger no-save-optim
    no-save-rng no-save-tokenizer-assets non-persistent-ckpt-type non-persistent-global-ckpt-dir
    non-persistent-local-ckpt-algo non-persistent-local-ckpt-dir non-persistent-save-interval
    null-tokenizer-eod-id null-tokenizer-pad-id num-dataset-builder-threads num-workers nvtx-ranges
    one-logger-async one-logger-entity one-logger-project one-logger-run-name
    override-ckpt-iteration override-lr-scheduler override-opt-param-scheduler
    override-opt_param-scheduler per-split-data-args-path persistent-save-interval
    pretrained-checkpoint profile profile-ranks profile-step-end profile-step-start
    pytorch-profiler-collect-callstack pytorch-profiler-collect-chakra
    pytorch-profiler-collect-shapes record-memory-history record-shapes rerun-mode
    reset-position-ids save save-activations-interval save-config-filepath save-dgrads-interval
    save-interval save-optim save-params-interval save-retain-interval save-rng
    save-tokenizer-assets save-tokens-per-expert-interval save-wgrads-interval seed skip-train split
    start-eval-at-iter straggler-ctrlr-port straggler-minmax-count te-rng-tracker tensorboard-dir
    tensorboard-log-interval tensorboard-queue-size test-data-path tiktoken-num-special-tokens
    tiktoken-pattern tiktoken-special-tokens timers timing-log-level timing-log-option
    titles-data-path tokenizer-hf-include-special-tokens tokenizer-hf-no-include-special-tokens
    tokenizer-hf-no-use-fast tokenizer-hf-use-fast tokenizer-metadata tokenizer-model
    tokenizer-sentencepiece-ignore-extra-whitespaces tokenizer-sentencepiece-legacy
    tokenizer-special-tokens tokenizer-type train-data-path train-iters train-samples
    train-sync-interval trust-remote-code use-checkpoint-args use-checkpoint-lr-scheduler
    use-checkpoint-opt-param-scheduler use-checkpoint-opt_param-scheduler use-cpu-initialization
    use-dist-ckpt use-mcore-models use-mp-args-from-checkpoint-args use-one-sent-docs
    use-persistent-ckpt-worker use-pytorch-profiler use-tokenizer-model-from-checkpoint-args
    valid-data-path validation-set-names vocab-file wandb-entity wandb-exp-name wandb-project
    wandb-save-dir
"""
_SCHEDULES = """
    adam-beta1 adam-beta2 adam-eps apply-wd-to-qk-layernorm decoupled-lr decoupled-min-lr
    decoupled-weight-decay end-weight-decay head-lr-mult lion-beta1 lion-beta2 lr lr-decay-iters
    lr-decay-samples lr-decay-steps lr-decay-style lr-mult-router lr-warmup-fraction
    lr-warmup-init lr-warmup-iters lr-warmup-samples lr-warmup-steps lr-wsd-decay-iters
    lr-wsd-decay-samples lr-wsd-decay-style min-lr muon-coefficient-type muon-extra-scale-factor
    muon-fp32-matmul-prec muon-momentum muon-nesterov muon-no-split-qkv muon-num-ns-steps
    muon-scalar-optimizer muon-scale-mode muon-split-qkv muon-use-nesterov muon-use-syrk
    no-weight-decay-cond-type sgd-momentum start-weight-decay warmup weight-decay
    weight-decay-incr-style
"""
_OF_THE_MODEL = """
    activation-func activation-func-clamp-value add-qkv-bias apply-layernorm-1p
    apply-query-key-layer-scaling apply-residual-connection-post-layernorm attention-output-gate
    attention-softmax-in-fp32 data-parallel-random-init disable-bias-linear dsa-indexer-head-dim
    dsa-indexer-k-norm-epsilon dsa-indexer-k-norm-fp32 dsa-indexer-loss-coeff dsa-indexer-n-heads
    dsa-indexer-rope-interleaved dsa-indexer-rotate-activation dsa-indexer-scoring-relu
    dsa-indexer-skip-topk-offset dsa-indexer-topk dsa-indexer-topk-freq dsa-indexer-use-sparse-loss
    dsa-kernel-backend embedding-init-method embedding-init-method-std glu-linear-offset init-method
    init-method-std init-method-xavier-uniform is-hybrid-model kv-lora-rank linear-attention-freq
    linear-conv-kernel-dim linear-key-head-dim linear-num-key-heads linear-num-value-heads
    linear-scaler-end linear-scaler-start linear-value-head-dim make-vocab-size-divisible-by
    mamba-head-dim mamba-inference-conv-states-dtype mamba-inference-ssm-states-dtype
    mamba-num-groups mamba-num-heads mamba-state-dim max-position-embeddings moe-aux-loss-coeff
    moe-ffn-hidden-size moe-input-jitter-eps moe-latent-size moe-layer-freq
    moe-router-bias-update-rate moe-router-dtype moe-router-enable-expert-bias
    moe-router-force-biased moe-router-force-load-balancing moe-router-fusion moe-router-group-topk
    moe-router-load-balancing-type moe-router-num-groups moe-router-pre-softmax
    moe-router-score-function moe-router-topk-limited-devices moe-router-topk-scaling-factor
    moe-shared-expert-gate moe-shared-expert-glu-interleave-size moe-shared-expert-intermediate-size
    moe-z-loss-coeff mscale mscale-all-dim multi-latent-attention mup-attn-scale-power
    mup-base-head-dim mup-base-hidden-size mup-embedding-mult mup-output-mult mup-width-mult
    no-position-embedding no-rope-freq no-rope-fusion norm-epsilon normalization
    normalize-router-logits openai-gelu output-layer-init-method padded-vocab-size
    position-embedding-type q-lora-rank qk-head-dim qk-l2-norm qk-layernorm qk-pos-emb-head-dim
    quick-geglu relative-attention-max-distance relative-attention-num-buckets rope-scaling-factor
    rope-type rotary-base rotary-interleaved rotary-percent rotary-scaling-factor
    rotary-seq-len-interpolation-factor softmax-type spec special-tokens squared-relu swiglu
    untie-embeddings-and-output-weights use-mup use-rope-scaling use-rotary-position-embeddings
    v-head-dim vocab-extra-ids vocab-size window-attn-skip-freq window-size yarn-beta-fast
    yarn-beta-slow yarn-correction-range-round-to-int yarn-original-max-position-embeddings
"""
_KERNELS = """
    async-tensor-model-parallel-allreduce attention-backend
    moe-flex-dispatcher-backend
    moe-flex-dispatcher-num-sms moe-grouped-gemm moe-permute-fusion moe-permute-fusion-into-hybridep
    no-bias-dropout-fusion no-bias-gelu-fusion no-bias-swiglu-fusion no-masked-softmax-fusion
    no-persist-layer-norm overlap-param-gather transformer-impl use-flash-attn
    use-precision-aware-optimizer
"""
_LAUNCHERS = """
    account chdir container-env container-image container-mounts container-name container-remap-root
    container-workdir container-writable cpu-bind cpus-per-task error exclude exclusive export
    gpu-bind gpus gpus-per-node gpus-per-task gres hostfile include job-name kill-on-bad-exit label
    local-addr local-ranks-filter log-dir master-addr master-port max-restarts mem mem-per-gpu
    module monitor-interval mpi nnodes no-container-entrypoint no-container-mount-home
    no-container-remap-root no-python node-rank nodelist nodes nproc-per-node ntasks ntasks-per-node
    num-gpus num-nodes output overlap partition qos rdzv-backend rdzv-conf rdzv-endpoint rdzv-id
    redirects role run-path standalone start-method tee time wait
"""
GROUPS = {
    "files, logs and data": _FILES_AND_LOGS.split(),
    "schedules": _SCHEDULES.split(),
    "the model's shape": _OF_THE_MODEL.split(),
    "kernels that the stack is priced with": _KERNELS.split(),
    "launchers": _LAUNCHERS.split(),
}
_BESIDE = frozenset(f"--{name}" for names in GROUPS.values() for name in names)


def not_priced(names: Iterable[str]) -> tuple[str, ...]:
    """Return a line on the flags that are not read and may change what a step costs."""
    left = sorted({*names} - _BESIDE)
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
