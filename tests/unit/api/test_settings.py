"""Settings come from the environment, and nobody is let in from elsewhere without a key."""

from __future__ import annotations

import pytest

from api.caller import Scope
from api.services.limits import RateLimits
from api.settings import Settings, check_address, check_keys, read_settings
from planner.errors import InputError

PUBLIC = ["0.0.0.0", "::", "192.0.2.7", "example.org", ""]  # noqa: S104


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_on_a_loopback_address_one_may_read_and_plan_without_a_key(host):
    settings = Settings(host=host)

    check_address(settings)
    check_keys(settings, any_usable=False)
    assert settings.scopes_without_key == {Scope.READ, Scope.PLAN}


@pytest.mark.parametrize("host", PUBLIC)
def test_elsewhere_everybody_needs_a_key(host):
    settings = Settings(host=host)

    check_address(settings)
    assert settings.scopes_without_key == frozenset()


@pytest.mark.parametrize("host", PUBLIC)
def test_elsewhere_nothing_starts_that_lets_everybody_in(host):
    with pytest.raises(InputError) as caught:
        check_address(Settings(host=host, anonymous_scopes=(Scope.READ,)))

    assert caught.value.field == "MESHWRIGHT_ANONYMOUS_SCOPES"
    assert "without a key" in str(caught.value)
    assert "MESHWRIGHT_HOST=127.0.0.1" in caught.value.remedy


@pytest.mark.parametrize("host", PUBLIC)
def test_elsewhere_nothing_starts_before_there_is_a_key(host):
    with pytest.raises(InputError) as caught:
        check_keys(Settings(host=host), any_usable=False)

    assert caught.value.field == "MESHWRIGHT_HOST"
    assert "meshwright keys create" in caught.value.remedy
    check_keys(Settings(host=host), any_usable=True)


def test_the_environment_decides(monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_PORT", "8123")
    monkeypatch.setenv("MESHWRIGHT_SOLVER_PROCESSES", "3")
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", "postgresql://example/plans")
    monkeypatch.setenv("MESHWRIGHT_ALLOWED_HOSTS", "plans.example, other.example")
    monkeypatch.setenv("MESHWRIGHT_ANONYMOUS_SCOPES", "")

    settings = read_settings()

    assert (settings.port, settings.solver_processes, settings.embedded) == (8123, 3, False)
    assert settings.allowed_hosts == ("plans.example", "other.example")
    assert settings.scopes_without_key == frozenset()


def test_a_secret_is_not_shown(monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_SESSION_SECRET", "do-not-tell-this-to-anybody-at-all")

    assert "do-not-tell-this-to-anybody-at-all" not in repr(read_settings())


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PORT", "eighty"),
        ("PORT", "65536"),
        ("SOLVER_PROCESSES", "0"),
        ("SOLVE_SECONDS_LIMIT", "nan"),
        ("FIRST_KEY", "perhaps"),
        ("LOG_FORMAT", "xml"),
        ("REQUESTS_PER_MINUTE", "0"),
    ],
)
def test_a_variable_that_cannot_be_understood_is_named(monkeypatch, variable, value):
    monkeypatch.setenv(f"MESHWRIGHT_{variable}", value)

    with pytest.raises(InputError) as caught:
        read_settings()

    assert caught.value.field == f"MESHWRIGHT_{variable}"
    assert value in str(caught.value)


def test_a_scope_that_does_not_exist_is_named(monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_ANONYMOUS_SCOPES", "read,root")

    with pytest.raises(InputError) as caught:
        read_settings()

    assert caught.value.field.startswith("MESHWRIGHT_ANONYMOUS_SCOPES")


def test_a_secret_that_can_be_guessed_is_refused_and_not_shown(monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_SESSION_SECRET", "hunter2")

    with pytest.raises(InputError, match="write 32 characters or more") as caught:
        read_settings()

    assert caught.value.field == "MESHWRIGHT_SESSION_SECRET"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["ANONYMOUS_SCOPE", "ANONYMUS_SCOPES", "DATABASE_URI"])
def test_a_variable_that_is_misspelt_is_told_with_the_one_that_was_meant(monkeypatch, name):
    monkeypatch.setenv(f"MESHWRIGHT_{name}", "")

    with pytest.raises(InputError, match=r"MESHWRIGHT_(ANONYMOUS_SCOPES|DATABASE_URL)") as caught:
        read_settings()

    assert caught.value.field == f"MESHWRIGHT_{name}"


@pytest.mark.parametrize("name", ["MESHWRIGHT_SERVER", "MESHWRIGHT_CHECKPOINT_STEPS", "PORTS"])
def test_variables_of_other_programs_are_left_alone(monkeypatch, name):
    monkeypatch.setenv(name, "7")

    assert read_settings() == Settings()


@pytest.mark.parametrize("uri", ["foo://x", "redis", "memcached://127.0.0.1:1"])
def test_a_storage_that_cannot_count_is_named(uri):
    with pytest.raises(InputError) as caught:
        RateLimits(Settings(rate_limit_storage=uri))

    assert caught.value.field == "MESHWRIGHT_RATE_LIMIT_STORAGE"
    assert uri in str(caught.value)


@pytest.mark.parametrize("user", ["", "counter"])
def test_the_password_of_a_storage_is_not_repeated(user):
    with pytest.raises(InputError) as caught:
        RateLimits(Settings(rate_limit_storage=f"memcached://{user}:hunter2@127.0.0.1:1"))

    assert "127.0.0.1:1" in str(caught.value)
    assert "hunter2" not in str(caught.value)
