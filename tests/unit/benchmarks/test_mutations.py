"""Mutations: documents are changed, repeatably, and those they are made from stay whole."""

from __future__ import annotations

import copy
from random import Random

from benchmarks.fuzz_corpus import CLUSTERS, MODELS, STRATEGIES, fuzzed_request
from benchmarks.mutations import WRONG_TYPES, mistaken, mutated, mutated_text


def _random(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - a draw of documents, no secret


def test_the_documents_that_are_broken_stay_whole() -> None:
    before = copy.deepcopy((MODELS, CLUSTERS, STRATEGIES, WRONG_TYPES))
    for index in range(500):
        fuzzed_request(_random(index), solver_seconds=0.1)
    assert before == (MODELS, CLUSTERS, STRATEGIES, WRONG_TYPES)


def test_the_same_seed_breaks_a_document_in_the_same_way() -> None:
    first, second = (repr(mutated(MODELS[0], _random(7))) for _ in range(2))
    assert first == second


def test_most_mutations_change_the_document() -> None:
    changed = sum(repr(mutated(MODELS[1], _random(i))) != repr(MODELS[1]) for i in range(200))
    assert changed > 180


def test_a_mistake_keeps_the_shape_of_a_document() -> None:
    for index in range(50):
        found = mistaken(MODELS[4], _random(index))
        assert found.keys() == MODELS[4].keys()


def test_damaged_text_is_bytes_of_every_kind_of_damage() -> None:
    found = {mutated_text('{"a": 1, "b": 2}', _random(index)) for index in range(200)}
    assert len(found) > 40
