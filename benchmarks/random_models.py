"""Random models: every shape that ships, and synthetic chains of several kinds of layers."""

from __future__ import annotations

from random import Random
from typing import Any

from planner.importers.models import model_names

SYNTHETIC_SHARE = 0.2
NOT_FOR_GPUS = frozenset({"tiny-llama-cpu"})

Reference = str | dict[str, Any]


def random_model(random: Random) -> Reference:
    """Return a known name, or the fields of a model graph."""
    if random.random() < SYNTHETIC_SHARE:
        return random.choice((dense_then_mixture, alternating))(random)
    return random.choice([name for name in model_names() if name not in NOT_FOR_GPUS])


def dense_then_mixture(random: Random) -> dict[str, Any]:
    """Return a chain of a few dense blocks, then mixtures of experts."""
    hidden = random.choice((2048, 4096, 6144))
    experts = random.choice((8, 32, 64, 128))
    dense = _block(hidden, {"kind": "dense", "ffn_size": 4 * hidden})
    mixture = _block(
        hidden,
        {
            "kind": "mixture",
            "expert_count": experts,
            "experts_per_token": random.choice((2, 4, 8)),
            "expert_ffn_size": 4 * hidden // (2 if experts == 8 else 8),
        },
    )
    runs = [
        {"block": dense, "block_count": random.randint(1, 4)},
        {"block": mixture, "block_count": random.randint(15, 60)},
    ]
    return _model("dense-then-mixture", hidden, runs)


def alternating(random: Random) -> dict[str, Any]:
    """Return a chain of windowed blocks with a full one after every few."""
    hidden = random.choice((2048, 4096, 8192))
    feed_forward = {"kind": "dense", "ffn_size": random.choice((3, 4)) * hidden}
    full = _block(hidden, feed_forward)
    windowed = _block(hidden, feed_forward, window=random.choice((512, 1024, 4096)))
    period = random.choice((1, 3, 5))
    runs: list[dict[str, Any]] = []
    for _ in range(random.randint(4, 48 // (period + 1))):
        runs.append({"block": windowed, "block_count": period})
        runs.append({"block": full, "block_count": 1})
    return _model(f"alternating-{period}-to-1", hidden, runs)


def repeated(*, block_count: int, hidden_size: int = 8192) -> dict[str, Any]:
    """Return a chain of equal dense blocks, as deep as asked for."""
    block = _block(hidden_size, {"kind": "dense", "ffn_size": 7 * hidden_size // 2})
    runs = [{"block": block, "block_count": block_count}]
    return _model(f"dense-{block_count}", hidden_size, runs)


def alternating_of(*, block_count: int, hidden_size: int = 4096) -> dict[str, Any]:
    """Return a chain of windowed and full blocks in turns, as deep as asked for."""
    feed_forward = {"kind": "dense", "ffn_size": 4 * hidden_size}
    pair = [_block(hidden_size, feed_forward, window=1024), _block(hidden_size, feed_forward)]
    runs = [{"block": pair[i % 2], "block_count": 1} for i in range(block_count)]
    return _model(f"alternating-{block_count}", hidden_size, runs)


def _block(
    hidden: int, feed_forward: dict[str, Any], *, window: int | None = None
) -> dict[str, Any]:
    attention: dict[str, Any] = {
        "kind": "grouped_query",
        "head_count": hidden // 128,
        "key_value_head_count": 8,
        "head_size": 128,
    }
    if window is not None:
        attention["sliding_window_tokens"] = window
    return {"attention": attention, "feed_forward": feed_forward}


def _model(name: str, hidden: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "architecture": "synthetic",
        "hidden_size": hidden,
        "vocabulary_size": 131072,
        "maximum_sequence_length": 131072,
        "runs": runs,
    }
