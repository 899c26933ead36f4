"""Complaints: what pydantic refuses a value for, in the words of this project.

Problem and remedy of every kind that a document, a request or an option can have stand in one
table; pydantic's own words name Python's types, which say nothing to who wrote the document. A rule
of ours says both itself, as `ValueError("problem; remedy")`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_READABLE_LENGTH = 60  # of a pattern
_MANY = 10_000  # from here on a number is written with separators
_FIELDS = ("must be an object of fields and values", "write fields and values")
_LIST = ("must be a list", "write a list of values")
_WHOLE = ("is not a whole number", "write a whole number")
_NUMBER = ("is not a number", "write a number")
_TRUTH = ("is neither true nor false", "write true or false")
_CHOICE = ("is not one of the choices", "use {expected}")
_TIME = ("is not a time", "write one such as 2026-11-27T09:30:00Z")
_WORDS: Mapping[str, tuple[str, str]] = {
    "missing": ("is required", "add the field"),
    "extra_forbidden": ("is not a known field", "remove the field or correct its spelling"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), _FIELDS),
    **dict.fromkeys(("tuple_type", "list_type", "frozen_set_type"), _LIST),
    "too_short": ("has too few entries", "give {min_length} or more"),
    "too_long": ("has too many entries", "give {max_length} or fewer"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), _WHOLE),
    "int_parsing_size": ("has too many digits", "write a smaller number"),
    **dict.fromkeys(("float_type", "float_parsing"), _NUMBER),
    "finite_number": ("is not a finite number", "write a finite number"),
    "greater_than_equal": ("is too small", "use {ge} or more"),
    "greater_than": ("is too small", "use more than {gt}"),
    "less_than_equal": ("is too large", "use {le} or less"),
    "less_than": ("is too large", "use less than {lt}"),
    **dict.fromkeys(("bool_type", "bool_parsing"), _TRUTH),
    "string_type": ("is not text", "write text"),
    "string_unicode": ("is not UTF-8 text", "write whole Unicode characters"),
    "string_too_short": ("is too short", "write {min_length} or more characters"),
    "string_too_long": ("is too long", "write at most {max_length} characters"),
    "string_pattern_mismatch": ("does not match {pattern}", "write it to match"),
    **dict.fromkeys(("enum", "literal_error"), _CHOICE),
    "union_tag_not_found": ("does not say of which kind it is", "add the field {discriminator}"),
    "union_tag_invalid": ("is of no known kind", "set {discriminator} to one of {expected_tags}"),
    **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), _TIME),
    **dict.fromkeys(("datetime_object_invalid", "timezone_aware"), _TIME),
    "json_invalid": ("is not valid JSON", "correct the syntax"),
    "invalid-json-value": ("is no value that JSON has", "write text, numbers, lists or objects"),
}
_HIDDEN = (
    "has a control or hidden character, or white space where none may be",
    "write it without what is not allowed",
)
_UNNAMED = ("is not a value of this field", "look the field up in docs/reference.md")


def complaint_words(complaint: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is wrong by one of pydantic's complaints, and what to do about it."""
    kind, context = complaint["type"], complaint.get("ctx", {})
    if kind == "value_error":
        problem, _, remedy = complaint["msg"].removeprefix("Value error, ").partition("; ")
        return problem, remedy or "correct it"
    if kind == "string_pattern_mismatch" and len(context["pattern"]) > _READABLE_LENGTH:
        return _HIDDEN
    shown = {name: _readable(value) for name, value in context.items()}
    problem, remedy = _WORDS.get(kind, _UNNAMED)
    return problem.format_map(shown), remedy.format_map(shown)


def _readable(value: object) -> object:
    """Return a bound as people write it: 1 for 1.0, and thousands apart."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int) and value >= _MANY else value
