"""A config that somebody pastes to see it beside plans: read, priced, and carried in a URL.

In links it is packed (zlib, base64url), so that a page with it can be sent to others and nothing
has to be stored; a short one may stand there as it is.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from dataclasses import dataclass

from planner.errors import InputError
from planner.importers.training.config import Setting, TrainingConfig
from planner.importers.training.files import config_from_text
from planner.planning import estimate
from planner.schema.job import Job
from planner.schema.plan import Estimate, Plan

TEXT_LENGTH_LIMIT = 100_000
_PACKED_LENGTH_LIMIT = 6_000
_MARK = "z."
_SIGNS = (
    (".toml", re.compile(r"^\s*\[[A-Za-z_.]+\]\s*$", re.MULTILINE)),
    (".py", re.compile(r"^(def|from|import) \w", re.MULTILINE)),
    ("", re.compile(r"(?:^|\s)--[a-z][a-z0-9-]+")),
    ("", re.compile(r"^\s*\w+\.\w[\w.]*=", re.MULTILINE)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastedConfig:
    """What was pasted, and its price or what is wrong with it."""

    text: str = ""
    estimate: Estimate | None = None
    problem: InputError | None = None
    format: str = ""
    assumptions: tuple[str, ...] = ()


def pasted_config(text: str, baseline: Plan) -> PastedConfig:
    """Return the text with its price in the baseline's place, or with what is wrong with it."""
    try:
        config, price = priced_config(text, baseline)
        return PastedConfig(
            text=text, estimate=price, format=config.format, assumptions=config.assumptions
        )
    except InputError as error:
        return PastedConfig(text=text, problem=error)


def priced_config(text: str, baseline: Plan) -> tuple[TrainingConfig, Estimate]:
    """Return what was pasted and what it costs, on the baseline's cluster.

    What the config says of the job (its batch, say) holds; the rest is as in the baseline.

    Raises:
        InputError: if it cannot be read, or is not legal there.
    """
    setting = Setting(
        graph=baseline.model.resolved,
        device_count=baseline.cluster.resolved.device_count,
        global_batch_size=None if "batch" in text else baseline.job.resolved.global_batch_size,
    )
    if not text.strip():
        raise InputError("is empty", field="config", remedy="paste a strategy or training config")
    config = config_from_text(text, setting, source="config", suffix=_suffix(text))
    fields = {**baseline.job.resolved.model_dump(mode="json"), **config.job}
    job = Job.from_fields(fields, source="config")
    return config, estimate(baseline.model, baseline.cluster, job, config.strategy)


def _suffix(text: str) -> str:
    """Return how a file of such a text is called: what distinguishes the formats."""
    if text.lstrip().startswith("{"):
        return ".json"
    return next((suffix for suffix, sign in _SIGNS if sign.search(text)), ".yaml")


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
