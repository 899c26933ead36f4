"""The files that put the service into containers agree with the service."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml

from api.settings import ENVIRONMENT_PREFIX, Settings

ROOT = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]


def variables() -> dict[str, str]:
    """Return what image and composition set for the service."""
    words = [word for name, rest in INSTRUCTIONS if name == "ENV" for word in shlex.split(rest)]
    image = dict(word.split("=", 1) for word in words)
    return {**image, **COMPOSE["services"]["api"]["environment"]}


def test_every_variable_that_is_set_is_a_setting():
    known = {ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields}

    assert set(variables()) <= known


def test_the_service_is_published_to_this_machine_only():
    assert COMPOSE["services"]["api"]["ports"] == ["127.0.0.1:8000:8000"]
    assert "ports" not in COMPOSE["services"]["database"]


def test_the_service_waits_for_a_healthy_database():
    waits = COMPOSE["services"]["api"]["depends_on"]["database"]

    assert waits == {"condition": "service_healthy"}
    assert "healthcheck" in COMPOSE["services"]["database"]


def test_no_password_is_written_down():
    password = COMPOSE["services"]["database"]["environment"]["POSTGRES_PASSWORD"]

    assert password.startswith("${POSTGRES_PASSWORD:?")
    assert ":${POSTGRES_PASSWORD}@" in variables()["MESHWRIGHT_DATABASE_URL"]


def test_everything_that_the_image_copies_exists_and_reaches_the_build():
    copied = [
        source for name, rest in INSTRUCTIONS if name == "COPY" for source in rest.split()[:-1]
    ]
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()

    assert copied
    for source in copied:
        assert (ROOT / source).exists()
        assert f"!{source}" in sent


def test_the_image_runs_the_service_without_privileges():
    assert ["USER", "meshwright"] in INSTRUCTIONS
    assert INSTRUCTIONS[-1] == ["CMD", '["python", "-m", "api"]']
