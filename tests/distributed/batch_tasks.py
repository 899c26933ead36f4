"""Batches as collators of transformers make them, and what training on them must come to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch import distributed, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import (
    DataCollatorForSeq2Seq,
    DataCollatorWithFlattening,
    PreTrainedTokenizerFast,
)

from executor.apply.materialise import materialise, unsplit_name
from executor.losses import next_token_loss
from executor.models.declared import declared
from executor.models.first_values import DrawnValues
from executor.session import Session
from planner.errors import InputError
from tests.builders import a_job
from tests.distributed.families import hugging_face_graph, hugging_face_model
from tests.distributed.plans import (
    FEWEST_BLOCKS,
    GLOBAL_BATCH_SIZE,
    SEQUENCE_LENGTH,
    block_count_of,
    cpu_plan,
    plan_of,
)
from tests.distributed.reference import MASKED, SEED, adamw
from tests.distributed.rounding import relative_error

STEPS = 2
VOCABULARY = 256
Mapped = dict[str, torch.Tensor]


def exact_model(family: str, block_count: int = FEWEST_BLOCKS) -> nn.Module:
    """Return a model of transformers whose norms keep fp64, which transformers' own round."""
    model = hugging_face_model(family, tied=False, block_count=block_count)
    for path, module in list(model.named_modules()):
        if type(module).__name__.endswith("RMSNorm"):
            size = module.weight.shape
            model.set_submodule(path, nn.RMSNorm(size, eps=module.variance_epsilon))
    return model


def batches(shape: str, *, last_rows: int = GLOBAL_BATCH_SIZE) -> list[Mapped]:
    """Return global batches of `shape`, the last with so many rows."""
    made = [SHAPES[shape](seed) for seed in range(STEPS)]
    made[-1] = {name: tensor[:last_rows] for name, tensor in made[-1].items()}
    return made


def padded(side: str, seed: int, *, to_longest: bool = False) -> Mapped:
    """Return what the collator of a fine-tuning script makes of texts of other lengths.

    Filled up `to_longest`, rows have 13 tokens and then 11.
    """
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({str(i): i for i in range(VOCABULARY)})),
        pad_token="0",
        padding_side=side,
    )
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, SEQUENCE_LENGTH + 1, (GLOBAL_BATCH_SIZE,), generator=generator)
    if to_longest:
        lengths = lengths.clamp(max=13 - 2 * seed)
    texts = []
    for length in lengths.tolist():
        tokens = torch.randint(1, VOCABULARY, (length,), generator=generator).tolist()
        prompt = length // 3
        texts.append({"input_ids": tokens, "labels": [MASKED] * prompt + tokens[prompt:]})
    filled = True if to_longest else "max_length"
    collator = DataCollatorForSeq2Seq(tokenizer, padding=filled, max_length=SEQUENCE_LENGTH)
    return dict(collator(texts))


def packed(seed: int) -> Mapped:
    """Return rows of documents one behind another, whose positions restart."""
    generator = torch.Generator().manual_seed(seed)
    shape = (GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH)
    tokens = torch.randint(0, VOCABULARY, shape, generator=generator)
    starts = torch.randint(2, SEQUENCE_LENGTH - 1, (GLOBAL_BATCH_SIZE, 1), generator=generator)
    places = torch.arange(SEQUENCE_LENGTH).expand(shape)
    positions = torch.where(places < starts, places, places - starts)
    return {
        "input_ids": tokens,
        "labels": tokens.masked_fill(positions == 0, MASKED),
        "position_ids": positions,
    }


SHAPES: dict[str, Callable[[int], Mapped]] = {
    "right": lambda seed: padded("right", seed),
    "left": lambda seed: padded("left", seed),
    "longest": lambda seed: padded("right", seed, to_longest=True),
    "packed": packed,
}


def plain_run(family: str, given: list[Mapped]) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train as transformers does: its own forward, and the mean over labels that count."""
    model = initialised(family)
    optimizer = adamw(model.parameters())
    losses = []
    for batch in given:
        optimizer.zero_grad()
        value = plain_loss(model, batch)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses, {name: value.detach() for name, value in model.named_parameters()}


def plain_loss(model: nn.Module, batch: Mapped) -> torch.Tensor:
    """Return the loss of transformers' model in fp64, where transformers' own is in fp32."""
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    logits = model(**inputs).logits[:, :-1]
    return functional.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())


def initialised(family: str, block_count: int = FEWEST_BLOCKS) -> nn.Module:
    """Return the model with the values that the executor gives it, as its own class."""
    with torch.device("meta"):
        chain, declaration = declared(exact_model(family, block_count))
    assert declaration.initial_value is not None
    values = DrawnValues(declaration.initial_value, seed=SEED)
    materialise(chain, declaration=declaration, device=torch.device("cpu"), values=values)
    model = exact_model(family, block_count)
    values = dict(chain.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name].view_as(parameter))
    return model


def batch_parity(
    *,
    strategy: dict[str, Any],
    shape: str,
    family: str = "llama",
    last_rows: int = GLOBAL_BATCH_SIZE,
) -> dict[str, Any]:
    """Train on batches of `shape` under a plan, and as transformers does; compare both."""
    given = batches(shape, last_rows=last_rows)
    session, trainer = _trained(strategy, family)
    losses = [trainer.step(batch).loss for batch in session.shard(given)]
    plain_losses, expected = plain_run(family, given)
    return {
        "losses": losses,
        "plain_losses": plain_losses,
        "parameter_error": _parameter_error(trainer, expected),
    }


def _parameter_error(trainer: Any, expected: dict[str, torch.Tensor]) -> float:
    """Return the largest error of a parameter on any rank."""
    error = torch.zeros((), dtype=torch.float64)
    for name, parameter in trainer.model.named_parameters():
        whole = parameter.detach()
        whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
        known_as = unsplit_name(name, trainer.declaration)
        error = error.clamp(min=relative_error(whole, expected[known_as].detach()))
    distributed.all_reduce(error, op=distributed.ReduceOp.MAX)
    return float(error)


def own_loaders(*, strategy: dict[str, Any], directory: str) -> dict[str, Any]:
    """Train with a loader on each rank, stop and go on, and compare with global batches."""
    rows = [row for seed in range(4) for row in _rows(packed(seed))]
    session, trainer = _trained(strategy, "llama")
    size = GLOBAL_BATCH_SIZE // session.data_degree
    sampler = session.sampler(rows, shuffle=False)

    def loader() -> StatefulDataLoader:
        return StatefulDataLoader(rows, batch_size=size, sampler=sampler)

    shards = session.shard(loader(), per_rank=True)
    losses = [trainer.step(next(shards)).loss for _ in range(2)]
    trainer.save(directory)
    session, trainer = _trained(strategy, "llama")
    trainer.load(directory)
    losses += [trainer.step(batch).loss for batch in session.shard(loader(), per_rank=True)]
    session, trainer = _trained(strategy, "llama")
    trainer.load(directory)
    mixed = _refusal(session.shard(loader()), trainer)
    session, trainer = _trained(strategy, "llama")
    trainer.load(directory)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        next(session.shard([packed(seed) for seed in range(4)]))
    # A sampler takes every other row, so that its batches have the same rows in another order.
    session, trainer = _trained(strategy, "llama")
    whole = session.shard([packed(seed) for seed in range(4)])
    return {
        "losses": losses,
        "global_losses": [trainer.step(batch).loss for batch in whole],
        "mixed": mixed,
        "warned": [str(item.message) for item in caught],
    }


def flattened_parity(*, strategy: dict[str, Any], per_rank: bool) -> dict[str, Any]:
    """Train on rows that transformers' collator makes of documents, and as transformers does.

    It takes what the collator says of documents by kernels' lengths; plain transformers is told
    positions alone. Ranks' own rows have other lengths.
    """
    rows = strategy.get("data_parallel_degree", 1)
    graph = hugging_face_graph("llama", tied=False, block_count=FEWEST_BLOCKS)
    job = a_job(
        global_batch_size=rows,
        sequence_length=SEQUENCE_LENGTH,
        precision="fp32",
        gradient_clipping=False,
    )
    session = Session(plan_of(graph, job, strategy), device=torch.device("cpu"))
    trainer = session.parallelize(lambda: exact_model("llama"), next_token_loss, adamw, seed=SEED)
    collator = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
    given = [[collator(_documents(step, row)) for row in range(rows)] for step in range(STEPS)]
    own = [step[session.data_index] for step in given] if per_rank else [step[0] for step in given]
    losses = [trainer.step(batch).loss for batch in session.shard(own, per_rank=per_rank)]
    model = initialised("llama")
    optimizer = adamw(model.parameters())
    plain_losses = []
    for step in given:
        optimizer.zero_grad()
        counts = [int((batch["labels"][:, 1:] != MASKED).sum()) for batch in step]
        total = torch.zeros((), dtype=torch.float64)
        for batch, count in zip(step, counts, strict=True):
            told = {name: batch[name] for name in ("input_ids", "labels", "position_ids")}
            total = total + plain_loss(model, told) * count / sum(counts)
        total.backward()
        optimizer.step()
        plain_losses.append(total.item())
    return {
        "losses": losses,
        "plain_losses": plain_losses,
        "parameter_error": _parameter_error(trainer, dict(model.named_parameters())),
    }


def _documents(step: int, row: int) -> list[dict[str, list[int]]]:
    """Return documents of other lengths, of 16 tokens in all at most."""
    generator = torch.Generator().manual_seed(10 * step + row)
    lengths = [5, 1, 7] if row else [3, 6, 7]
    return [
        {"input_ids": torch.randint(1, VOCABULARY, (length,), generator=generator).tolist()}
        for length in lengths
    ]


def _rows(batch: Mapped) -> list[Mapped]:
    return [{name: item[row] for name, item in batch.items()} for row in range(GLOBAL_BATCH_SIZE)]


def own_loader_refusals(*, strategy: dict[str, Any]) -> dict[str, str]:
    """Return what loaders are refused with whose ranks are to read the same, and do not."""
    rows = _rows(packed(0)) * 2
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    session, trainer = _trained(strategy, "llama")
    size = GLOBAL_BATCH_SIZE // session.data_degree
    sampler = DistributedSampler(rows, ranks, rank, shuffle=False)
    by_rank = DataLoader(rows, batch_size=size, sampler=sampler)
    other_rows = _refusal(session.shard(by_rank, per_rank=True), trainer)
    session, trainer = _trained(strategy, "llama")
    shards = session.shard([packed(0)] * (1 + rank), per_rank=True)
    trainer.step(next(shards))
    return {
        "other rows": other_rows,
        "other number": _refusal(shards, trainer),
        "other evaluation": _refused(lambda: trainer.evaluate([packed(rank)])),
    }


def batch_refusals(*, strategy: dict[str, Any]) -> dict[str, str]:
    """Return what each batch that the model cannot take is refused with."""
    session, trainer = _trained(strategy, "llama")
    whole = packed(0)
    cases = {
        "unknown": {**whole, "token_type_ids": whole["input_ids"]},
        "no labels": {"input_ids": whole["input_ids"]},
        "mask of scores": {**whole, "attention_mask": torch.ones(GLOBAL_BATCH_SIZE, 1, 16, 16)},
        "no tensor": {**whole, "position_ids": [0, 1]},
    }
    return {name: _refusal(session.shard([batch]), trainer) for name, batch in cases.items()}


def _refusal(shards: Iterator[Any], trainer: Any) -> str:
    return _refused(lambda: trainer.step(next(shards)))


def _refused(action: Callable[[], Any]) -> str:
    try:
        action()
    except InputError as error:
        return str(error)
    return ""


def _trained(strategy: dict[str, Any], family: str) -> tuple[Session, Any]:
    block_count = block_count_of(strategy)
    graph = hugging_face_graph(family, tied=False, block_count=block_count)
    session = Session(cpu_plan(model=graph, **strategy), device=torch.device("cpu"))
    build = lambda: exact_model(family, block_count)  # noqa: E731
    return session, session.parallelize(build, next_token_loss, adamw, seed=SEED)


def forward_parity(*, strategy: dict[str, Any], family: str = "llama") -> dict[str, Any]:
    """Evaluate, run forward and generate between two steps, as plain transformers does."""
    first, second = batches("left")
    held_out = [padded("right", 7), {name: item[:3] for name, item in padded("left", 8).items()}]
    prompts = first["input_ids"][:3, -5:]
    session, trainer = _trained(strategy, family)
    parts = session.shard([first, second])
    losses = [trainer.step(next(parts)).loss]
    mean = trainer.evaluate(held_out)
    with trainer.inference() as model:
        logits = model(input_ids=first["input_ids"], attention_mask=first["attention_mask"])
    text = trainer.generate(prompts, new_tokens=4)
    drawn = trainer.generate(prompts, new_tokens=2, temperature=1.0, seed=3)
    losses.append(trainer.step(next(parts)).loss)
    losses.append(trainer.evaluate(held_out))
    own = initialised(family, block_count_of(strategy))
    plain = _plain_forward(own, [first, second], held_out, prompts)
    visible = first["attention_mask"].bool()
    return {
        "losses": [mean, *losses],
        "plain_losses": plain["losses"],
        "logits_error": relative_error(logits[visible], plain["logits"][visible]),
        "text": text.tolist(),
        "plain_text": plain["text"],
        "drawn": [drawn.shape == (3, 7), bool((drawn[:, :5] == prompts).all())],
        "batches": trainer.position.taken,
    }


def _plain_forward(
    model: nn.Module, steps: list[Mapped], held_out: list[Mapped], prompts: torch.Tensor
) -> dict[str, Any]:
    """Do the same with transformers' model alone."""
    optimizer = adamw(model.parameters())
    losses: list[float] = []
    for index, batch in enumerate(steps):
        optimizer.zero_grad()
        value = plain_loss(model, batch)
        value.backward()
        optimizer.step()
        losses.append(value.item())
        if index == 0:
            with torch.no_grad():
                losses.insert(0, _plain_mean(model, held_out))
                inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
                logits = model(**inputs).logits
                text = prompts
                for _ in range(4):
                    following = model(input_ids=text).logits[:, -1].argmax(-1, keepdim=True)
                    text = torch.cat([text, following], dim=1)
    losses.append(_plain_mean(model, held_out))
    return {"losses": losses, "logits": logits, "text": text.tolist()}


def _plain_mean(model: nn.Module, held_out: list[Mapped]) -> float:
    """Return the mean loss over all labels of `held_out` that count."""
    counts = [int((batch["labels"][:, 1:] != MASKED).sum()) for batch in held_out]
    with torch.no_grad():
        means = [plain_loss(model, batch).item() for batch in held_out]
    total = sum(count * mean for count, mean in zip(counts, means, strict=True))
    return total / sum(counts)


BATCH_TASKS = (
    batch_parity,
    batch_refusals,
    flattened_parity,
    forward_parity,
    own_loaders,
    own_loader_refusals,
)
