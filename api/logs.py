"""Structured logs on stderr, each line with the id of its request, and none with a secret."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any, Literal

import structlog
from structlog.typing import EventDict, Processor

HIDDEN = "[hidden]"
# A traceback is many lines; nothing else is, whatever a client sends.
_MANY_LINES = frozenset({"exception", "stack"})
_LINE_CHARACTERS = frozenset("\n\t")
# keys, agents' and enrolment tokens; a password within a URL; what links and headers carry
_SECRETS = re.compile(
    r"(?P<key>\bmw[a-z]?_[A-Za-z0-9]{4,12})_[A-Za-z0-9_-]{16,}"
    r"|(?P<url>://[^/\s:@]*:)[^/\s@]+(?=@)"
    r"|(?P<named>\b(?:token|key|password|secret)=)[^&\s\"']+"
    r"|(?P<header>\bBearer )\S+"
)


def configure(log_format: Literal["text", "json"]) -> None:
    """Send all logs to stderr, also the web server's, for people or for programs."""
    shapes: list[Processor] = (
        [structlog.processors.JSONRenderer()]
        if log_format == "json"
        else [spell_out, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = [structlog.processors.format_exc_info, hide_secrets, *shapes]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    _take_over_standard_logs(shared, last)


def hide_secrets(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Return the event with every secret in its texts replaced."""
    return {
        name: without_secrets(value) if isinstance(value, str) else value
        for name, value in event.items()
    }


def without_secrets(text: str) -> str:
    """Return `text` with every secret in it replaced."""
    return _SECRETS.sub(lambda found: (found[found.lastgroup or 0] or "") + HIDDEN, text)


def spell_out(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Return the event with what a terminal would obey, such as ESC, written as an escape."""
    return {
        name: _spelled_out(value, kept=_LINE_CHARACTERS if name in _MANY_LINES else frozenset())
        if isinstance(value, str)
        else value
        for name, value in event.items()
    }


def _spelled_out(text: str, *, kept: frozenset[str]) -> str:
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
        for each in text
    )


class _StderrHandler(logging.Handler):
    """Writes to what is stderr at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)  # noqa: T201 - this is the log


def _take_over_standard_logs(shared: list[Processor], last: list[Processor]) -> None:
    handler = _StderrHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.INFO)
