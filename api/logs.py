"""Structured logs on stderr, each line with the id of its request."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def configure(log_format: Literal["text", "json"]) -> None:
    """Send all logs to stderr, for people or for programs."""
    shape = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            shape,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
