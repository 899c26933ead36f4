"""What all documents share: frozen, closed to unknown fields, finite numbers, a digest.

Bytes become a document here and nowhere else, so that size, syntax and field errors read alike
whether they came from a file or over the network.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from planner.errors import DocumentError
from planner.schema.complaints import complaint_words
from planner.schema.files import file_content
from planner.schema.json_text import from_json
from planner.units import parse_bytes, parse_seconds

DOCUMENT_BYTES_LIMIT = 4 * 2**20
NESTING_LIMIT = 64


def _bytes_or_text(value: object) -> object:
    return _quantity(value, parse_bytes)


def _seconds_or_text(value: object) -> object:
    return _quantity(value, parse_seconds)


def _quantity(value: object, parse: Callable[[str], float]) -> object:
    """Return a number from text with a unit; YAML also hands `450e9` over as text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return parse(value)


Bytes = Annotated[float, BeforeValidator(_bytes_or_text), Field(ge=0, le=1e18)]
PositiveBytes = Annotated[float, BeforeValidator(_bytes_or_text), Field(gt=0, le=1e18)]
BytesPerSecond = Annotated[float, BeforeValidator(_bytes_or_text), Field(gt=0, le=1e18)]
Seconds = Annotated[float, BeforeValidator(_seconds_or_text), Field(ge=0, le=1e9)]
Count = Annotated[int, Field(ge=0, le=2**40)]
PositiveCount = Annotated[int, Field(ge=1, le=2**40)]
Degree = Annotated[int, Field(ge=1, le=2**20)]
# 0 and "yes" are no truth values, here as in the JSON schema
Flag = Annotated[bool, Field(strict=True)]
Ratio = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Part(BaseModel):
    """A piece of a document."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        protected_namespaces=(),
        defer_build=True,  # validators are built when they are first used: an import needs none
    )

    @model_validator(mode="before")
    @classmethod
    def _no_truth_values_for_numbers(cls, fields: Any) -> Any:
        """Have true and false refused where numbers are due: Python counts them as 1 and 0."""
        if not isinstance(fields, dict):
            return fields
        wrong = [name for name, value in fields.items() if _has_truth_value(value)]
        spelled = {name: _spelled(fields[name]) for name in wrong if name in _numbers_of(cls)}
        return {**fields, **spelled} if spelled else fields


def _has_truth_value(value: object) -> bool:
    """Return whether a value is true or false, or a list with one of them."""
    if isinstance(value, (list, tuple)):
        return True in map(_is_truth_value, value)
    return _is_truth_value(value)


def _is_truth_value(value: object) -> bool:
    return value is True or value is False


def _spelled(value: Any) -> Any:
    """Return words in the place of truth values, which no number is read from."""
    if isinstance(value, (list, tuple)):
        return [_spelled(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else value


@cache
def _numbers_of(part: type[Part]) -> frozenset[str]:
    """Return the fields of a part that hold numbers and no truth values."""
    kinds = {name: set(_plain_types(field.annotation)) for name, field in part.model_fields.items()}
    return frozenset(name for name, own in kinds.items() if own & {int, float} and bool not in own)


def _plain_types(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation is made of."""
    yield annotation
    for argument in get_args(annotation):
        yield from _plain_types(argument)


class Document(Part):
    """A whole document: it says which version of its schema it follows."""

    schema_version: int = Field(default=1, ge=1, le=1)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the document in the JSON or YAML file at `path`.

        Raises:
            DocumentError: if the file is missing, too large, malformed, or has a bad field.
        """
        return cls.from_fields(read_fields(path), source=str(path))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], *, source: str) -> Self:
        """Return the document with `fields`; `source` names where they came from in errors.

        Raises:
            DocumentError: naming the first bad field, its value and the remedy.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise document_error(error, source=source, kind=cls) from None

    def to_json(self) -> str:
        """Return the document as indented JSON with a final newline."""
        return self.model_dump_json(indent=2) + "\n"

    def digest(self) -> str:
        """Return the SHA-256 of the document's canonical JSON, in hexadecimal."""
        canonical = json.dumps(
            self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        return hashlib.sha256(canonical.encode()).hexdigest()


def read_fields(path: Path) -> dict[str, Any]:
    """Return the mapping in the JSON or YAML file at `path`.

    Raises:
        DocumentError: if it is missing, no file or pipe, larger than the limit, or malformed.
    """
    content = file_content(
        path, bytes_limit=DOCUMENT_BYTES_LIMIT, missing="check the path or use a known name"
    )
    return parse_fields(content, source=str(path), yaml_allowed=path.suffix in {".yaml", ".yml"})


def parse_fields(content: bytes, *, source: str, yaml_allowed: bool = False) -> dict[str, Any]:
    """Return the mapping that `content` spells in JSON (or YAML where allowed).

    Raises:
        DocumentError: if it is too large, not UTF-8, malformed, nested too deep, not a mapping,
            has a field twice, or has a number that is not finite or text that is not Unicode.
    """
    if len(content) > DOCUMENT_BYTES_LIMIT:
        raise DocumentError(
            f"document is larger than {DOCUMENT_BYTES_LIMIT} bytes",
            field=source,
            value=f"{len(content)} bytes",
            remedy="give the configuration alone, without weights or vocabulary",
        )
    fields = _decoded(content, source=source, yaml_allowed=yaml_allowed)
    if not isinstance(fields, dict):
        raise DocumentError(
            "must be a mapping of fields",
            field=source,
            value=type(fields).__name__,
            remedy='write an object such as {"schema_version": 1, ...}',
        )
    return fields


def _decoded(content: bytes, *, source: str, yaml_allowed: bool) -> object:
    try:
        text = content.decode("utf-8-sig")
        fields = _from_yaml(text, source=source) if yaml_allowed else from_json(text, source=source)
        check_values(fields, source=source)
    except UnicodeDecodeError as error:
        problem, where = "is not UTF-8 text", f"byte {error.start}"
    except json.JSONDecodeError as error:
        problem, where = (
            f"is not valid JSON: {error.msg}",
            f"line {error.lineno} column {error.colno}",
        )
    except (RecursionError, ValueError):
        problem, where = "is nested too deep or has an absurd number", "unknown place"
    else:
        return fields
    raise DocumentError(
        problem, field=source, value=where, remedy="correct the syntax; is the file complete?"
    )


def _from_yaml(text: str, *, source: str) -> object:
    from planner.schema.yaml_text import from_yaml  # noqa: PLC0415  (10 ms: most read no YAML)

    return from_yaml(text, source=source)


def check_values(value: object, *, source: str, path: tuple[str, ...] = ()) -> None:
    """Refuse what no document of ours can hold, however deep in `value` it is.

    Raises:
        DocumentError: at a number that is not finite, text that is not Unicode, or nesting too
            deep.
    """
    if len(path) > NESTING_LIMIT:
        raise DocumentError(
            "is nested too deep",
            field=source,
            value=f"{len(path)} levels",
            remedy=f"keep nesting under {NESTING_LIMIT} levels",
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise DocumentError(
            "must be a finite number",
            field=".".join(path) or source,
            value=value,
            remedy=f"write a finite number in {source}",
        )
    if isinstance(value, str):
        _check_text(value, source=source, path=path)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_text(str(key), source=source, path=(*path, str(key)))
            check_values(item, source=source, path=(*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            check_values(item, source=source, path=(*path, str(index)))


def _check_text(text: str, *, source: str, path: tuple[str, ...]) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DocumentError(
            "has half of a surrogate pair in a string",
            field=".".join(path) or source,
            value=text,
            remedy="write whole Unicode characters",
        ) from None


def document_error(
    error: ValidationError, *, source: str, kind: type[Part] | None = None
) -> DocumentError:
    """Return the first of pydantic's complaints as one of ours; `kind` knows what fields exist."""
    found = error.errors(include_url=False)
    for each in found:
        if each["type"] == "less_than_equal" and each["loc"][-1:] == ("schema_version",):
            return DocumentError(
                f"{source} is of a later version than {each['ctx']['le']}, the last that is known "
                "here",
                field=field_path(each["loc"]),
                value=each["input"],
                remedy="upgrade Meshwright, or make the document anew with this one",
            )
    first = found[0]
    field = field_path(first["loc"]) or source
    message, remedy = complaint_words(first)
    remedy = f"{remedy} in {source}"
    if first["type"] == "extra_forbidden" and kind is not None:
        remedy = meant(first["loc"], kind) + remedy
    count = error.error_count()
    more = "" if count == 1 else f" ({count - 1} more after this)"
    value = first["input"]
    plain = value is None or isinstance(value, (str, int, float, bool))
    shown = value if plain else _KINDS.get(type(value), type(value).__name__)
    # what a rule over several fields was given is all of them, which shows nothing
    if first["type"] == "missing" or (first["type"] == "value_error" and not plain):
        shown = None
    return DocumentError(message + more, field=field, value=shown, remedy=remedy)


def meant(location: Sequence[str | int], kind: type[BaseModel]) -> str:
    """Return the question which known field an unknown one may be, '' if none is alike."""
    from difflib import get_close_matches  # noqa: PLC0415  (20 ms: only errors need it)

    kinds: set[type[BaseModel]] = {kind}
    for name in location[:-1]:
        own = [part.model_fields[name] for part in kinds if name in part.model_fields]
        if own:
            found = [each for field in own for each in _plain_types(field.annotation)]
            kinds = {
                each for each in found if isinstance(each, type) and issubclass(each, BaseModel)
            }
    known = sorted({name for part in kinds for name in part.model_fields})
    near = get_close_matches(str(location[-1])[:200], known, n=3, cutoff=0.8)
    return f"did you mean {' or '.join(near)}? " if near else ""


_KINDS: dict[type, str] = {dict: "an object", list: "a list", tuple: "a list"}


def field_path(location: Sequence[str | int]) -> str:
    """Return pydantic's location as a dotted path: `stages.0.layers.1.zero_stage`."""
    return ".".join(str(part) for part in location)
