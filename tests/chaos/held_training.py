"""Held training: the shipped one, which waits for its later batches as long as a file is there.

held_training.py FILE
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from executor import rank_main
from executor.data import corpus_batches

BATCHES_BEFORE = 8


def held_batches(**sizes: Any) -> Iterator[Any]:
    """Yield the corpus's batches; those after the first few once the file is gone."""
    for index, batch in enumerate(corpus_batches(**sizes)):
        while index >= BATCHES_BEFORE and Path(sys.argv[1]).exists():
            time.sleep(0.1)
        yield batch


if __name__ == "__main__":
    rank_main.corpus_batches = held_batches  # type: ignore[attr-defined]
    rank_main.train_on_corpus()
