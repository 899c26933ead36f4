"""A strategy that somebody pastes to see it beside plans: read, priced, and carried in a URL.

In links it is packed (zlib, base64url), so that a page with it can be sent to others and nothing
has to be stored; a short one may stand there as it is.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass

from planner.errors import InputError
from planner.planning import estimate
from planner.schema.document import parse_fields
from planner.schema.plan import Estimate, Plan
from planner.schema.strategy import Strategy

TEXT_LENGTH_LIMIT = 100_000
_PACKED_LENGTH_LIMIT = 6_000
_MARK = "z."


@dataclass(frozen=True, slots=True, kw_only=True)
class PastedConfig:
    """What was pasted, and its price or what is wrong with it."""

    text: str = ""
    estimate: Estimate | None = None
    problem: InputError | None = None


def pasted_config(text: str, baseline: Plan) -> PastedConfig:
    """Return the text with its price in the baseline's place, or with what is wrong with it."""
    try:
        return PastedConfig(text=text, estimate=priced_config(text, baseline))
    except InputError as error:
        return PastedConfig(text=text, problem=error)


def priced_config(text: str, baseline: Plan) -> Estimate:
    """Return what the pasted strategy costs, for the baseline's model, cluster and job.

    Raises:
        InputError: if it cannot be read, or is not legal there.
    """
    job = baseline.job.resolved
    return estimate(baseline.model, baseline.cluster, job, read_config(text))


def read_config(text: str) -> Strategy:
    """Return the strategy that was pasted.

    Raises:
        InputError: if it cannot be read.
    """
    if not text.strip():
        raise InputError("is empty", field="config", remedy="paste a strategy as JSON")
    fields = parse_fields(text.encode(errors="replace"), source="config", yaml_allowed=True)
    nested = fields.get("strategy")
    return Strategy.from_fields(nested if isinstance(nested, dict) else fields, source="config")


def packed(text: str) -> str:
    """Return the text as it stands in links.

    Raises:
        InputError: if no link could hold it.
    """
    code = base64.urlsafe_b64encode(zlib.compress(text.encode(errors="replace"), 9))
    link = _MARK + code.decode("ascii").rstrip("=")
    if len(text) > TEXT_LENGTH_LIMIT or len(link) > _PACKED_LENGTH_LIMIT:
        raise InputError(
            "is too long for a link",
            field="config",
            value=f"{len(text):,} characters",
            remedy="paste the parallelism settings alone",
        )
    return link


def unpacked(link: str) -> str:
    """Return the text that a link holds.

    Raises:
        InputError: if the link is damaged.
    """
    if not link.startswith(_MARK):
        return link
    code = link.removeprefix(_MARK)
    reader = zlib.decompressobj()
    try:
        content = base64.urlsafe_b64decode(code + "=" * (-len(code) % 4))
        text = reader.decompress(content, TEXT_LENGTH_LIMIT).decode()
    except (binascii.Error, ValueError, zlib.error):
        raise _damaged(link) from None
    if not reader.eof:
        raise _damaged(link)
    return text


def _damaged(link: str) -> InputError:
    return InputError("is damaged", field="config", value=link, remedy="paste the config again")
