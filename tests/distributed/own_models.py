"""Modules as a user writes them, who has not heard of the executor, and their plain runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import distributed, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from executor.apply.materialise import unsplit_name
from executor.models.own import Declaration
from executor.models.positions import SequencePart
from executor.session import Session
from executor.trainer import Trainer
from planner.errors import InputError
from tests.distributed.families import hugging_face_graph, hugging_face_model
from tests.distributed.plans import (
    BLOCK_COUNT,
    FEWEST_BLOCKS,
    GLOBAL_BATCH_SIZE,
    SEQUENCE_LENGTH,
    cpu_plan,
)
from tests.distributed.reference import SEED, STEP_COUNT, adamw, floats_differences, global_batches

WIDTH, HEADS, VOCABULARY = 32, 8, 256
Batch = tuple[torch.Tensor, torch.Tensor]


class Attention(nn.Module):
    """Causal attention with one projection for each of queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what each token gathers."""
        batch, length, _ = hidden.shape
        split = (
            projection(hidden).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(*split, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Perceptron(nn.Module):
    """Two matrices with GELU between."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return each token's own transformation."""
        return self.down(functional.gelu(self.up(hidden)))


class Layer(nn.Module):
    """Attention and two matrices, each behind a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = Perceptron()
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        hidden = hidden + self.attention(self.norm1(hidden))
        return hidden + self.scale * self.mlp(self.norm2(hidden))


class Words(nn.Module):
    """A language model whose forward hands one tensor from part to part."""

    def __init__(self, block_count: int = FEWEST_BLOCKS) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.trunk = nn.Module()
        self.trunk.layers = nn.ModuleList(Layer() for _ in range(block_count))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens)
        for layer in self.trunk.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


class Placed(Words):
    """The same with learned positions, added between the embedding and the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(SEQUENCE_LENGTH, WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens) + self.positions
        for layer in self.trunk.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


class Told(Words):
    """The same with learned positions in the layers' common input, of the tokens that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = PlacedEmbedding()


class PlacedEmbedding(nn.Module):
    """Words and positions; which tokens are here it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(SEQUENCE_LENGTH, WIDTH)
        self.part = SequencePart()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the tokens' vectors."""
        return self.words(tokens) + self.places(self.part.positions(tokens.shape[1]))


def tell(module: nn.Module, part: SequencePart) -> None:
    """Tell the embedding which tokens it has, where it knows places and is on this rank."""
    if isinstance(getattr(module, "embed", None), PlacedEmbedding):
        module.embed.part = part


class ByHand(Words):
    """The same with attention that torch's attention does not compute."""

    def __init__(self) -> None:
        super().__init__()
        for layer in self.trunk.layers:
            layer.attention = AttentionByHand()


class AttentionByHand(Attention):
    """One head, and no mask."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what each token gathers."""
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2)
        return self.out(scores.softmax(-1) @ self.value(hidden))


class Clamping(Words):
    """The same, whose forward bounds the weights of its head."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        with torch.no_grad():
            self.head.weight.clamp_(-0.05, 0.05)
        return super().forward(tokens)


class Dropping(Words):
    """The same with dropout in every layer and behind the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        for layer in self.trunk.layers:
            layer.mlp = nn.Sequential(layer.mlp, nn.Dropout(0.2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.drop(self.embed(tokens))
        for layer in self.trunk.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


class Sharing(Words):
    """The same with a matrix in both layers, one at both ends, and a scalar in each layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embed.weight
        first, second = self.trunk.layers
        second.mlp.up.weight = first.mlp.up.weight
        for layer in self.trunk.layers:
            del layer.scale
            layer.scale = nn.Parameter(torch.tensor(0.5))


class Pictures(nn.Module):
    """Convolutions, of which nothing is a list of blocks; two of them share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.third = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.third.weight = self.second.weight
        self.answer = nn.Linear(8, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores of ten kinds."""
        hidden = functional.relu(self.first(images))
        hidden = functional.relu(self.third(functional.relu(self.second(hidden))))
        return self.answer(hidden.mean((2, 3)))


WORDS = Declaration(
    embedding="embed",
    blocks="trunk.layers",
    final_norm="norm",
    head="head",
    norms=("norm1", "norm2"),
    column=("attention.query", "attention.key", "attention.value", "mlp.up"),
    row=("attention.out", "mlp.down"),
    head_count=HEADS,
)


def adapted_words() -> nn.Module:
    """Return the module as PEFT wraps it, with adapters beside some of its linears."""
    config = LoraConfig(r=4, target_modules=["query", "out", "up", "down"])
    return get_peft_model(Words(), config, autocast_adapter_dtype=False)


KINDS: dict[str, tuple[Callable[[], nn.Module], Declaration | None]] = {
    "words": (Words, WORDS),
    "deep-words": (partial(Words, BLOCK_COUNT), WORDS),
    "told": (Told, replace(WORDS, tell_sequence_part=tell)),
    "unplaced": (Words, replace(WORDS, tell_sequence_part=tell)),
    "told-bare": (Told, Declaration(blocks="trunk.layers", tell_sequence_part=tell)),
    "by-hand": (ByHand, Declaration(blocks="trunk.layers", tell_sequence_part=tell)),
    "placed": (Placed, Declaration(blocks="trunk.layers")),
    "sharing": (Sharing, Declaration(blocks="trunk.layers", embedding="embed")),
    "sharing-undeclared": (Sharing, None),
    "clamping": (Clamping, None),
    "pictures": (Pictures, None),
    "undeclared": (Words, None),
    "adapted": (adapted_words, WORDS),
    "dropping": (Dropping, Declaration(blocks="trunk.layers")),
    # As transformers configures it where nothing is said.
    "gpt2-dropping": (
        partial(
            hugging_face_model, "gpt2", tied=True, embd_pdrop=0.1, resid_pdrop=0.1, attn_pdrop=0.1
        ),
        None,
    ),
    "gpt2": (partial(hugging_face_model, "gpt2", tied=True), None),
    "mistral": (partial(hugging_face_model, "mistral", tied=False), None),
}
# All others are planned as the small model, whose width and vocabulary they have.
PLANNED = {
    "gpt2-dropping": hugging_face_graph("gpt2", tied=True),
    "gpt2": hugging_face_graph("gpt2", tied=True),
    "mistral": hugging_face_graph("mistral", tied=False),
}


def batches(kind: str) -> list[Batch]:
    """Return the global batches of every run of `kind`."""
    if kind != "pictures":
        return global_batches(0, STEP_COUNT)
    generator = torch.Generator().manual_seed(7)
    return [
        (
            torch.randn(GLOBAL_BATCH_SIZE, 3, 6, 6, generator=generator),
            torch.randint(0, 10, (GLOBAL_BATCH_SIZE,), generator=generator),
        )
        for _ in range(STEP_COUNT)
    ]


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy over all but the last axis."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def plain_run(build: Callable[[], nn.Module], seed: int, taken: Iterable[Batch]) -> dict[str, Any]:
    """Train on the `taken` batches as a script without the executor would."""
    torch.manual_seed(seed)
    model = build()
    optimizer = adamw(model.parameters())
    losses = []
    for inputs, targets in taken:
        optimizer.zero_grad()
        value = loss(model(inputs), targets)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    parameters = {
        name.removeprefix("base_model.model."): value.detach()
        for name, value in model.named_parameters()
    }
    return {"losses": losses, "parameters": parameters}


def own_parity(*, strategy: dict[str, Any], kind: str) -> dict[str, Any]:
    """Train a few steps of a user's module under a plan and compare with its plain run."""
    adapters = {"rank": 4} if kind == "adapted" else None
    plan = cpu_plan(model=PLANNED.get(kind), adapters=adapters, **strategy)
    session = Session(plan, device=torch.device("cpu"))
    build, declaration = KINDS[kind]
    trainer = session.parallelize(build, loss, adamw, declaration=declaration, seed=SEED)
    losses = [trainer.step(*batch).loss for batch in session.shard(batches(kind))]
    plain = plain_run(build, SEED, batches(kind))
    return {
        "losses": losses,
        "plain_losses": plain["losses"],
        "parameter_error": parameter_error(trainer, plain["parameters"]),
        "differences": floats_differences(session.report().differences_from_plan),
    }


def parameter_error(
    trainer: Trainer, expected: Mapping[str, torch.Tensor], *, is_trained: bool | None = None
) -> float:
    """Return how far any rank's parameters are from those expected, by their largest element.

    They are all of them, or those that are trained, or those that are not.
    """
    error = 0.0
    for name, parameter in trainer.model.named_parameters():
        if is_trained is not None and parameter.requires_grad is not is_trained:
            continue
        whole = parameter.detach()
        whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
        wanted = expected[unsplit_name(name, trainer.declaration)]
        error = max(error, float((whole - wanted).abs().max() / wanted.abs().max()))
    largest = torch.tensor(error, dtype=torch.float64)
    distributed.all_reduce(largest, op=distributed.ReduceOp.MAX)
    return float(largest)


def own_draws(*, strategy: dict[str, Any], directory: str) -> dict[str, Any]:
    """Train a module with dropout at one go, and again with a stop and other draws in between."""
    whole, _ = _drawn(strategy, "dropping", 4)
    first, is_undisturbed = _drawn(strategy, "dropping", 2, save=directory)
    torch.manual_seed(99)
    second, _ = _drawn(strategy, "dropping", 4, load=directory)
    without, _ = _drawn(strategy, "words", 1)
    parts = [*first, *second]
    return {"whole": whole, "parts": parts, "undisturbed": is_undisturbed, "without": without}


def own_recomputed_draws(*, strategy: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the losses of a module with dropout by how its blocks are checkpointed."""
    return {
        mode: _drawn({**strategy, "activation_checkpointing": mode}, kind, STEP_COUNT)[0]
        for mode in ("none", "selective", "full")
    }


def _drawn(
    strategy: dict[str, Any],
    kind: str,
    steps: int,
    *,
    load: str | None = None,
    save: str | None = None,
) -> tuple[list[float], bool]:
    """Return the losses up to step `steps`, and whether the script's own draws go on as before."""
    build, declaration = KINDS[kind]
    session = Session(cpu_plan(model=PLANNED.get(kind), **strategy), device=torch.device("cpu"))
    trainer = session.parallelize(
        build,
        loss,
        adamw,
        declaration=declaration,
        seed=SEED,
        checkpoint_follows=load is not None,
    )
    if load is not None:
        trainer.load(load)
    before = torch.get_rng_state()
    losses = [trainer.step(*batch).loss for batch in session.shard(global_batches(0, steps))]
    is_undisturbed = bool((torch.get_rng_state() == before).all())
    if save is not None:
        trainer.save(save)
    return losses, is_undisturbed


def own_beginnings(*, kind: str) -> dict[str, Any]:
    """Return what a model is refused with that the script of each rank has drawn for itself."""
    torch.manual_seed(distributed.get_rank())
    model = hugging_face_model("llama", tied=False) if kind == "llama" else Words()
    graph = hugging_face_graph("llama", tied=False) if kind == "llama" else None
    plan = cpu_plan(model=graph, data_parallel_degree=2)
    weights = model.state_dict() if kind == "weights" else None
    build = Words if kind == "weights" else lambda: model
    try:
        Session(plan, device=torch.device("cpu")).parallelize(build, loss, adamw, weights=weights)
    except InputError as error:
        return {"message": str(error)}
    return {"message": ""}


def own_refusal(*, strategy: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return what a user's module is refused with, on every rank."""
    session = Session(cpu_plan(model=PLANNED.get(kind), **strategy), device=torch.device("cpu"))
    build, declaration = KINDS[kind]
    try:
        trainer = session.parallelize(build, loss, adamw, declaration=declaration)
        trainer.step(*next(session.shard(batches(kind))))
    except InputError as error:
        return {"kind": type(error).__name__, "message": str(error)}
    return {"kind": None, "message": ""}
