"""Rendering: templates into responses that may load nothing from anywhere else."""

from __future__ import annotations

import re
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from structlog.contextvars import get_contextvars

from api.dashboard.assets import PLOTLY, assets
from api.dashboard.quantities import FILTERS
from api.dashboard.visit import (
    form_token_field,
    is_administrator,
    is_signed_in,
    is_visited,
    may,
    visitor,
)
from planner.errors import shorten
from planner.schema.service import Problem

_STYLE_ID = re.compile(r'getElementById\("([0-9a-f]{64})"\)')
_CODE = re.compile(r"`([^`]+)`")
_HERE = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def page(template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Return the page that `template` makes of `context`."""
    return HTMLResponse(part(template, **context), status_code=status, headers=_HEADERS)


def part(template: str, **context: Any) -> Markup:
    """Return what `template` makes of `context`, for a page to contain."""
    return Markup(_environment().get_template(template).render(**context))  # noqa: S704 - escaped


def see(path: str) -> RedirectResponse:
    """Return the answer to a form that sends the browser on to the page at `path`."""
    return RedirectResponse(path, status_code=HTTPStatus.SEE_OTHER)


def problem_page(problem: Problem) -> HTMLResponse:
    """Return the page that tells a person what is wrong and what to do."""
    request_id = get_contextvars().get("request_id")
    return page("problem.html", status=problem.status, problem=problem, request_id=request_id)


@cache
def plotly_style_ids() -> tuple[str, ...]:
    """Return the ids of the style elements that plotly's script adds unless they exist.

    The content security policy forbids to add them, and charts of bars do without.
    """
    script = assets()[PLOTLY].content.decode()
    return tuple(sorted(set(_STYLE_ID.findall(script))))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS, coded=coded, shortened=shorten)
    environment.globals.update(
        asset=_asset_url,
        plotly_url=_plotly_url,
        plotly_style_ids=plotly_style_ids,
        form_token_field=form_token_field,
        is_administrator=is_administrator,
        is_signed_in=is_signed_in,
        is_visited=is_visited,
        may=may,
        visitor=visitor,
    )
    return environment


def coded(text: str) -> Markup:
    """Return text with what it has between backticks as code, as commands and fields are."""
    parts = _CODE.split(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part
        for place, part in enumerate(parts)
    )


@cache
def prepare() -> None:
    """Compile all pages and read what they share, which the first visitor would wait for."""
    environment = _environment()
    for name in environment.list_templates():
        environment.get_template(name)
    plotly_style_ids()


def _asset_url(name: str) -> str:
    """Return the URL of a static file, different whenever its content is."""
    return assets()[name].url


def _plotly_url() -> str:
    return _asset_url(PLOTLY)
