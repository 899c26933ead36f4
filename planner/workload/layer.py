"""Layer workload: what one block, the embedding or the head asks of the hardware, per token.

`planner.cost` divides these by the degrees; nothing here knows of devices. Tensors are grouped by
how tensor parallelism treats them:

- *sharded*: divided by the tensor-parallel degree;
- *replicated*: whole on every tensor-parallel rank (activations are divided under sequence
  parallel, all but the *gathered* ones);
- *expert*: belongs to routed experts: divided by the expert-parallel degree as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Parameters by how they shard. A tied head counts none of its own."""

    sharded: int
    replicated: int
    expert: int = 0

    def total(self) -> int:
        """Return all parameters of the layer."""
        return self.sharded + self.replicated + self.expert


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """One matrix product: every token's `inner_size` vector becomes one of `outer_size`.

    FLOPs per token are 2 x inner x outer x `tokens_ratio`. `tokens_ratio` is 1 for dense layers
    and experts_per_token for routed experts (whose tokens are then spread over `expert_count`
    groups). `split` says which size tensor parallelism divides. `shares_input`: an earlier product
    reads the same rows; `fused_outer_size` is the width of all that read them, where they are one.
    `in_16_bits`: it stays in 16 bits under fp8, as routers and heads do. `ends_block`: a residual
    alone reads what it puts out, so that backward needs none of it. `weightless`: both sides are
    activations, inside a fused scan.
    """

    name: str
    inner_size: int
    outer_size: int
    split: Literal["outer", "inner", "none"]
    tokens_ratio: float = 1.0
    expert_count: int = 0
    shares_input: bool = False
    fused_outer_size: int | None = None
    in_16_bits: bool = False
    ends_block: bool = False
    weightless: bool = False

    def flop_per_token(self) -> float:
        """Return forward FLOPs per token on one device without parallelism."""
        return 2.0 * self.inner_size * self.outer_size * self.tokens_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCore:
    """softmax(QK')V: what depends on the sequence. Heads are divided by tensor parallelism.

    Forward FLOPs per query token are 2 x head_count x (key_head_size + value_head_size) x keys,
    where keys is the mean number of keys a query sees. `key_value_width` is the elements of K and
    V per key token (what context parallelism has to exchange). A window is `window_tokens` keys to
    the left, and as many to the right where nothing is masked as causal, the token itself counted
    in both; tokens of one of the consecutive chunks of `chunk_tokens` see that chunk alone.
    Beside a window, a query may see one compressed entry for every `entry_tokens` before it, at
    most `entry_limit` of them, which products of `index_width` with all of them choose. Without
    entries these choose `window_tokens` of all keys before it. `gathered_width` is the elements a
    token of queries, their gates, keys and values, which tensor-parallel ranks gather if they are
    more than the key-value heads.
    """

    head_count: int
    key_head_size: int
    value_head_size: int
    key_value_width: int
    window_tokens: int | None = None
    causal: bool = True
    chunk_tokens: int | None = None
    entry_tokens: int | None = None
    entry_limit: int | None = None
    index_width: int = 0
    gathered_width: int = 0

    @property
    def key_value_head_count(self) -> float:
        """Return the heads of keys and values, half of one where keys are the values."""
        return self.key_value_width / (self.key_head_size + self.value_head_size)

    def mean_keys(self, key_count: int) -> float:
        """Return the mean number of keys, of `key_count`, that a query attends to.

        With s keys, as many queries, and a window w: causal (s + 1) / 2, or w - w (w - 1) / (2 s)
        for w < s; else s, or 2 w - 1 - w (w - 1) / s. Chunks: the mean over them, by length.
        Entries of m tokens: the mean of min(floor(t / m), limit) over t = 1 to s.
        """
        if self.entry_tokens is not None:
            entries = self._mean_entries(key_count, self.entry_limit)
            return self._mean_keys_of_one(key_count) + entries
        chunk = self.chunk_tokens
        if chunk is None or chunk >= key_count:
            return self._mean_keys_of_one(key_count)
        whole, rest = divmod(key_count, chunk)
        keys = whole * chunk * self._mean_keys_of_one(chunk)
        return (keys + (rest * self._mean_keys_of_one(rest) if rest else 0.0)) / key_count

    def _mean_keys_of_one(self, key_count: int) -> float:
        s, w = key_count, self.window_tokens
        if w is None or w >= s:
            return (s + 1) / 2 if self.causal else float(s)
        if self.causal:
            return w - w * (w - 1) / (2 * s)
        return 2 * w - 1 - w * (w - 1) / s

    def all_keys(self, key_count: int) -> int:
        """Return the keys that a query has before masking, compressed entries among them."""
        return key_count + (key_count // self.entry_tokens if self.entry_tokens else 0)

    def flop_per_token(self, key_count: int) -> float:
        """Return forward FLOPs per query token that has `key_count` keys before masking."""
        width = self.head_count * (self.key_head_size + self.value_head_size)
        indexed = self.index_width * self._mean_indexed(key_count) if self.index_width else 0.0
        return 2.0 * (width * self.mean_keys(key_count) + indexed)

    def _mean_indexed(self, key_count: int) -> float:
        """Return the mean number of entries, or of keys without them, that an index reads."""
        if self.entry_tokens is None:
            return (key_count + 1) / 2
        return self._mean_entries(key_count, None)

    def _mean_entries(self, key_count: int, limit: int | None) -> float:
        """Return the mean number of whole entries before a query, itself among their tokens."""
        tokens = self.entry_tokens or key_count
        length = key_count if limit is None else min(key_count, (limit + 1) * tokens - 1)
        whole, rest = divmod(length, tokens)
        total = tokens * whole * (whole - 1) // 2 + whole * (rest + 1)
        return (total + (limit or 0) * (key_count - length)) / key_count


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationElements:
    """Elements per token that forward keeps for backward, by how they shard.

    Multiply by the bytes of an element of the activation dtype. `gathered` is whole on every
    tensor-parallel rank, also under sequence parallel (inputs of column-split products, outputs of
    row-split ones before their reduction); `replicated` is whole without sequence parallel and
    divided under it; `sharded` is always divided. `float32` counts further elements kept in 4
    bytes whatever the dtype (log-sum-exp, router probabilities), divided as `sharded` is.
    `reduced` counts outputs of tensor-parallel reductions that selective checkpointing keeps: none
    where nothing is tensor parallel, else as `replicated`. `products` are rows that nothing but a
    matrix product reads, divided as `sharded` is. `routed` are rows of tokens sent to experts and
    as many back, which not every stack keeps, divided among the tensor-parallel ranks that do not
    split an expert. `norm_copies` and `row_copies` are what elementwise operations keep one by one
    and fused kernels do not, divided as `replicated` and as `sharded` are; `step_copies` and, of 4
    bytes, `wide_step_copies` are those of an activation in steps. `masks` counts bytes,
    one an element, that dropout keeps, divided as `replicated`. `key_values` are those of `sharded`
    of which tensor-parallel ranks beyond the key-value heads have copies.
    Expert parallelism changes none of them: dispatch keeps the number of tokens per device.
    """

    gathered: float
    replicated: float
    sharded: float
    float32: float = 0.0
    reduced: float = 0.0
    products: float = 0.0
    routed: float = 0.0
    norm_copies: float = 0.0
    row_copies: float = 0.0
    step_copies: float = 0.0
    wide_step_copies: float = 0.0
    masks: float = 0.0
    key_values: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """What each checkpointing choice keeps between forward and backward."""

    none: ActivationElements
    selective: ActivationElements
    full: ActivationElements


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationSteps:
    """What an activation in operations of its own adds to one kernel, per token.

    Elements read and written each way, and kernels of forward; of 4 bytes where `wide`. Divided by
    tensor parallelism.
    """

    forward: float
    backward: float
    kernel_count: int
    wide: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseTraffic:
    """Elements per token that non-GEMM kernels move through memory in forward (read + write).

    `unfused_replicated` and `unfused_sharded` are what plain torch moves beside, which runs each
    step of a norm and of rotary as a kernel of its own: `unfused_kernel_count` of all kernels.
    Norms are all of the first, `unfused_norms_sharded` of the second, and
    `unfused_norm_kernel_count` of the kernels.
    `routed` is what moving rows to routed experts and back takes: of a rank's own tokens, or of all
    tensor-parallel ranks' tokens where each of them has the others' inside its experts.
    `feed_forward_kernel_count` of them follow attention and routing. `steps` are of plain torch
    alone as well. `key_values` are those of `sharded` that ranks beyond the key-value heads repeat.
    """

    replicated: float
    sharded: float
    kernel_count: int
    routed: float = 0.0
    unfused_replicated: float = 0.0
    unfused_sharded: float = 0.0
    unfused_kernel_count: int = 0
    unfused_norms_sharded: float = 0.0
    unfused_norm_kernel_count: int = 0
    feed_forward_kernel_count: int = 0
    steps: ActivationSteps | None = None
    key_values: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAgain:
    """What backward runs again before its own kernels, whatever is checkpointed: products by name.

    `elementwise` is what runs again beside them. `attention`: so does attention's core, and
    `experts`: dispatch to experts and combination; `tensor_rounds` are the reductions over
    tensor-parallel ranks that do.
    """

    gemms: frozenset[str]
    elementwise: ElementwiseTraffic
    attention: bool = False
    experts: bool = False
    tensor_rounds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWorkload:
    """What a layer does for tokens that are not its own, per such token.

    In a block: keys and values of what a tower put out, and `attention` of the layer's queries to
    them. In the embedding: a tower's lookup, patch embedding or projection. `reduced_width` is the
    elements a token that tensor-parallel ranks sum once: forward for a lookup, backward for what
    is read across, whose keys and values they split. `tokens_per_sequence` None stands for the
    job's sequence length.
    """

    tokens_per_sequence: int | None
    reduced_width: int
    gemms: tuple[Gemm, ...]
    attention: AttentionCore | None
    elementwise: ElementwiseTraffic
    activations: LayerActivations
    selective_recompute_ratio: float = 0.0

    def token_count(self, sequence_length: int) -> int:
        """Return the tokens of one sequence of a job."""
        return self.tokens_per_sequence or sequence_length

    def forward_flop_per_sequence(self, sequence_length: int, *, query_count: int) -> float:
        """Return the forward FLOPs of one sequence whose layer asks with `query_count` tokens."""
        tokens = self.token_count(sequence_length)
        products = tokens * sum(gemm.flop_per_token() for gemm in self.gemms)
        if self.attention is None:
            return products
        return products + query_count * self.attention.flop_per_token(tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """What crosses a cut after a block: streams of (tokens per sequence, elements per token).

    Tokens None stand for the job's sequence length.
    """

    streams: tuple[tuple[int | None, int], ...]

    def elements(self, sequence_length: int) -> int:
        """Return the elements per sequence that go forward; their gradients come back."""
        return sum((tokens or sequence_length) * width for tokens, width in self.streams)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWorkload:
    """One layer, per token of its own.

    `tokens_per_sequence` None stands for the job's sequence length, of which a head may read the
    share `token_ratio`. `boundary` is what crosses a
    cut after it. `selective_recompute_ratio` is the share of the layer's forward GEMM FLOPs that
    selective checkpointing runs again; its elementwise work is run again whole. `again` are parts
    that are recomputed by themselves.
    """

    name: str
    hidden_size: int
    parameters: ParameterCounts
    gemms: tuple[Gemm, ...]
    attention: AttentionCore | None
    elementwise: ElementwiseTraffic
    activations: LayerActivations
    selective_recompute_ratio: float
    experts_per_token: int = 0
    tokens_per_sequence: int | None = None
    token_ratio: float = 1.0
    sources: tuple[SourceWorkload, ...] = ()
    boundary: Boundary = Boundary(streams=())
    again: RunAgain | None = None

    def token_count(self, sequence_length: int) -> int:
        """Return the layer's tokens in one sequence of a job."""
        return self.tokens_per_sequence or sequence_length

    def forward_flop_per_token(self, token_count: int) -> float:
        """Return forward FLOPs per own token: matrix products, and attention to `token_count`."""
        products = sum(gemm.flop_per_token() for gemm in self.gemms)
        if self.attention is None:
            return products
        return products + self.attention.flop_per_token(token_count)

    def forward_flop_per_sequence(self, sequence_length: int) -> float:
        """Return the forward FLOPs of one sequence of a job, sources included."""
        tokens = self.token_count(sequence_length)
        return self.token_ratio * tokens * self.forward_flop_per_token(tokens) + sum(
            source.forward_flop_per_sequence(sequence_length, query_count=tokens)
            for source in self.sources
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadWorkload:
    """Final norm, LM head and loss.

    The loss holds some bytes for each of `vocabulary_size` logits of a token. A tied head has no
    parameters of its own, but on a pipeline stage without the embedding it holds a copy of
    `tied_parameter_count`. `caps_logits`: a tangent is taken of them.
    """

    layer: LayerWorkload
    vocabulary_size: int
    tied_parameter_count: int = 0
    caps_logits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWorkload:
    """The chain: embedding, runs of blocks (workload, count), head with loss."""

    embedding: LayerWorkload
    runs: tuple[tuple[LayerWorkload, int], ...]
    head: HeadWorkload
    parameter_count: int

    @property
    def block_count(self) -> int:
        """Return the number of blocks."""
        return sum(count for _, count in self.runs)

    def model_flop_per_sequence(self, sequence_length: int) -> float:
        """Return the FLOPs that one sequence needs, forward and backward, as MFU counts them.

        3 x forward: backward is counted as twice forward, attention under its mask, nothing for
        recompute or for the embedding's lookup. Towers count with their own tokens.
        Source: Chowdhery et al. 2022 (PaLM), appendix B, with causal attention halved.
        """
        layers = (*self.runs, (self.embedding, 1), (self.head.layer, 1))
        return 3.0 * sum(
            count * layer.forward_flop_per_sequence(sequence_length) for layer, count in layers
        )

    def model_flop_per_token(self, sequence_length: int) -> float:
        """Return the FLOPs of one sequence for each of its `sequence_length` decoder tokens."""
        return self.model_flop_per_sequence(sequence_length) / sequence_length
