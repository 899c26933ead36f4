"""Settings come from the environment, and keep the service off the network by default."""

from __future__ import annotations

import pytest

from api.settings import Settings, check_address, read_settings
from planner.errors import InputError


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_addresses_are_accepted(host):
    check_address(Settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org", ""])  # noqa: S104
def test_other_addresses_need_a_word_of_their_own(host):
    with pytest.raises(InputError) as caught:
        check_address(Settings(host=host))

    assert caught.value.field == "MESHWRIGHT_HOST"
    assert "no authentication" in str(caught.value)
    assert "MESHWRIGHT_ALLOW_PUBLIC" in caught.value.remedy
    check_address(Settings(host=host, allow_public=True))


def test_the_environment_decides(monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_PORT", "8123")
    monkeypatch.setenv("MESHWRIGHT_SOLVER_PROCESSES", "3")
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", "postgresql://example/plans")

    settings = read_settings()

    assert (settings.port, settings.solver_processes, settings.embedded) == (8123, 3, False)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PORT", "eighty"),
        ("PORT", "65536"),
        ("SOLVER_PROCESSES", "0"),
        ("SOLVE_SECONDS_LIMIT", "nan"),
        ("ALLOW_PUBLIC", "perhaps"),
        ("LOG_FORMAT", "xml"),
    ],
)
def test_a_variable_that_cannot_be_understood_is_named(monkeypatch, variable, value):
    monkeypatch.setenv(f"MESHWRIGHT_{variable}", value)

    with pytest.raises(InputError) as caught:
        read_settings()

    assert caught.value.field == f"MESHWRIGHT_{variable}"
    assert value in str(caught.value)
