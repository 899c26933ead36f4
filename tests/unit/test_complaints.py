"""Complaints: every kind of error that a document, a request or a form can have is in our words."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core.core_schema import ErrorType

import api
import planner.schema
from planner.schema.complaints import complaint_words

# What pydantic can find wrong with a value of each kind of core schema, by its documentation.
BY_KIND = {
    "int": {"int_type", "int_parsing", "int_from_float", "int_parsing_size"},
    "float": {"float_type", "float_parsing", "finite_number"},
    "bool": {"bool_type", "bool_parsing"},
    "str": {"string_type", "string_unicode"},
    "tuple": {"tuple_type", "missing"},
    "list": {"list_type"},
    "dict": {"dict_type"},
    "frozenset": {"frozen_set_type"},
    "enum": {"enum"},
    "literal": {"literal_error"},
    "datetime": {
        "datetime_type",
        "datetime_parsing",
        "datetime_from_date_parsing",
        "datetime_object_invalid",
    },
    "model": {"model_type", "model_attributes_type"},
    "model-fields": {"missing", "extra_forbidden"},
    "tagged-union": {"union_tag_not_found", "union_tag_invalid"},
    "function-before": {"value_error"},
    "function-after": {"value_error"},
}
NO_COMPLAINT = {"default", "nullable", "definitions", "definition-ref", "any", "union", "none"}
NO_COMPLAINT |= {"json-or-python", "lax-or-strict", "is-instance", "no-info", "model-field"}
BOUNDS = {
    "ge": "greater_than_equal",
    "gt": "greater_than",
    "le": "less_than_equal",
    "lt": "less_than",
}
LENGTHS = {"str": ("string_too_short", "string_too_long")}


def test_every_error_that_a_schema_can_have_is_in_our_words():
    found = {kind for schema in schemas() for kind in errors_of(schema)}

    assert {"int_parsing", "enum", "missing", "union_tag_invalid", "too_long"} <= found
    assert found <= set(get_args(ErrorType))
    unsaid = {kind for kind in found - {"value_error"} if words_of(kind)[0] == UNNAMED}
    assert not unsaid


UNNAMED = "is not a value of this field"


def test_an_error_of_another_kind_is_not_in_pydantics_words():
    assert words_of("uuid_parsing") == (UNNAMED, "look the field up in docs/reference.md")


@pytest.mark.parametrize(
    ("kind", "value", "problem", "remedy"),
    [
        (int, "many", "is not a whole number", "write a whole number"),
        (int, 1.5, "is not a whole number", "write a whole number"),
        (Annotated[int, Field(le=2**24)], 2**25, "is too large", "use 16,777,216 or less"),
        (Annotated[float, Field(gt=0)], 0, "is too small", "use more than 0"),
        (Annotated[str, Field(min_length=1)], "", "is too short", "write 1 or more characters"),
        (Annotated[str, Field(pattern="^[a-z]{2}$")], "A", "does not match ^[a-z]{2}$", None),
        (Annotated[list[int], Field(max_length=1)], [1, 2], "has too many entries", None),
    ],
)
def test_a_complaint_says_what_is_wrong_and_what_to_do(kind, value, problem, remedy):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    said = complaint_words(caught.value.errors()[0])

    assert said[0] == problem
    assert remedy is None or said[1] == remedy


def test_a_rule_says_its_problem_and_its_remedy():
    words = {"type": "value_error", "msg": "Value error, a is beside b; leave one of them out"}
    assert complaint_words(words) == ("a is beside b", "leave one of them out")


def words_of(kind: str) -> tuple[str, str]:
    """The words for a kind of error, with something in every place of theirs."""
    named = ("ge", "gt", "le", "lt", "expected", "pattern", "discriminator", "expected_tags")
    context = dict.fromkeys((*named, "min_length", "max_length", "tag"), "x")
    return complaint_words({"type": kind, "msg": "Input should be something", "ctx": context})


def schemas() -> Iterator[Any]:
    """The core schemas of every document, and of what the service and its forms read."""
    for package in (planner.schema, api):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith(("__main__", "serve")):
                yield from schemas_in(importlib.import_module(module.name))


def schemas_in(module: Any) -> Iterator[Any]:
    for value in vars(module).values():
        is_own = isinstance(value, type) and issubclass(value, BaseModel)
        if is_own and value.__module__ == module.__name__:
            value.model_rebuild()
            yield value.__pydantic_core_schema__


def errors_of(schema: Any) -> Iterator[str]:
    """Yield the kinds of errors that a core schema and what it is made of can have."""
    if isinstance(schema, (list, tuple)):
        for part in schema:
            yield from errors_of(part)
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if isinstance(kind, str):
        assert kind in BY_KIND or kind in NO_COMPLAINT, f"what can be wrong with {kind}?"
    if isinstance(kind, str) and kind in BY_KIND:
        yield from BY_KIND[kind]
        yield from (error for bound, error in BOUNDS.items() if bound in schema)
        shortest, longest = LENGTHS.get(kind, ("too_short", "too_long"))
        yield from [shortest] * ("min_length" in schema) + [longest] * ("max_length" in schema)
        yield from ["string_pattern_mismatch"] * ("pattern" in schema)
    for name, part in schema.items():
        if name not in {"serialization", "metadata", "cls", "ref"}:
            yield from errors_of(part)
