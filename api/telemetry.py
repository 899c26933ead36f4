"""OpenTelemetry: traces of requests, where an exporter is configured.

Everything is configured as OpenTelemetry itself says: `OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, and the like.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec

from fastapi import FastAPI

from planner.errors import InputError

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_NEEDED = "opentelemetry.instrumentation"
_NOT_TRACED = "healthz,readyz,metrics"
_SERVICE_NAME = "meshwright"


def instrument(app: FastAPI) -> Callable[[], None] | None:
    """Have requests traced; return what sends the last traces, at the end.

    Nothing happens, and nothing is returned, where no endpoint is configured.

    Raises:
        InputError: if an endpoint is configured and what is needed is not installed.
    """
    configured = next((name for name in _ENDPOINTS if os.environ.get(name)), None)
    if configured is None or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if find_spec("opentelemetry") is None or find_spec(_NEEDED) is None:
        raise InputError(
            "is set, and OpenTelemetry is not installed",
            field=configured,
            value=os.environ[configured],
            remedy="pip install 'meshwright[telemetry]', or leave the variable out",
        )
    return _instrumented(app)


def _instrumented(app: FastAPI) -> Callable[[], None]:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    name = os.environ.get("OTEL_SERVICE_NAME", _SERVICE_NAME)
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    FastAPIInstrumentor.instrument_app(
        app, tracer_provider=provider, excluded_urls=_NOT_TRACED, exclude_spans=["receive", "send"]
    )
    return provider.shutdown
