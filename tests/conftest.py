"""What all tests share: drawn examples are the same in every run, and may be slow to draw."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "meshwright",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("meshwright")
