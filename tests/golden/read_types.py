"""Which types of transformers' automatic classes are read: `python -m tests.golden.read_types`.

A type counts where some test of `tests/golden` compares its parameters with those of its class.
"""

from __future__ import annotations

import sys

from transformers.models.auto import modeling_auto

from planner.importers.hugging_face.readers import READERS

COLUMNS = {
    "causal language models": (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,),
    "images and text": (modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,),
    "sequences to sequences, and speech": (
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    ),
    "masked language models": (modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,),
}
# Of this a part is left out, which assumptions say, so that no count can be compared.
IN_PART = {"gemma3n"}


def read_of(column: str) -> tuple[set[str], set[str]]:
    """Return the types of a column that are read exactly, and all of them."""
    types = {model_type for mapping in COLUMNS[column] for model_type in mapping}
    return types & (set(READERS) - IN_PART), types


def sentence() -> str:
    """Return what the page says of all columns."""
    counts = ((column, *map(len, read_of(column))) for column in COLUMNS)
    return ", ".join(f"{read} of {of} {column}" for column, read, of in counts)


def report() -> str:
    """Return the sentence, and the types of each column that are not read."""
    unread = {column: every - exact for column in COLUMNS for exact, every in [read_of(column)]}
    lines = (
        f"not read of {column}: {', '.join(sorted(types))}" for column, types in unread.items()
    )
    return "\n".join((sentence(), *lines, ""))


if __name__ == "__main__":
    sys.stdout.write(report())
