"""The files that put the service into containers agree with the service and with their formats."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from api.settings import ENVIRONMENT_PREFIX, Settings

ROOT = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
IMAGES = ("Dockerfile", "Dockerfile.agent")
# Those that a builder knows; the reference of Dockerfiles lists them.
KNOWN = frozenset(
    {
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK"),
        *("LABEL", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    }
)


def instructions(image: str) -> list[list[str]]:
    """Return each instruction of the image with the rest of its line."""
    text = (ROOT / image).read_text(encoding="utf-8").replace("\\\n", " ")
    return [
        line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")
    ]


def variables() -> dict[str, str]:
    """Return what image and composition set for the service."""
    words = [
        word
        for name, rest in instructions("Dockerfile")
        if name == "ENV"
        for word in shlex.split(rest)
    ]
    image = dict(word.split("=", 1) for word in words)
    return {**image, **SERVICES["api"]["environment"]}


def test_the_composition_is_of_the_format():
    """By the schema of the compose specification, which check-jsonschema brings along."""
    schema = ["--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *schema, str(ROOT / "docker-compose.yml")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def test_every_variable_that_is_set_is_a_setting():
    known = {ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields}
    ours = {name for name in variables() if name.startswith(ENVIRONMENT_PREFIX)}

    assert ours
    assert ours <= known


def test_two_processes_of_the_service_stand_behind_a_proxy():
    proxy = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")

    assert SERVICES["api"]["deploy"]["replicas"] == 2
    assert "ports" not in SERVICES["api"]
    assert SERVICES["proxy"]["ports"] == ["127.0.0.1:8000:8080"]
    assert "server api:8000 resolve max_fails=0;" in proxy
    # without these nginx keeps the addresses that it began with, and refuses `resolve`
    assert re.search(r"resolver 127\.0\.0\.11 ", proxy)
    assert re.search(r"upstream api \{\s+zone ", proxy)
    assert "listen 8080;" in proxy
    assert proxy.count("{") == proxy.count("}")


def test_only_the_proxy_is_published_and_to_this_machine_only():
    published = {name: item["ports"] for name, item in SERVICES.items() if "ports" in item}

    assert list(published) == ["proxy"]
    assert all(port.startswith("127.0.0.1:") for port in published["proxy"])


def test_the_service_waits_for_a_healthy_database():
    waits = SERVICES["api"]["depends_on"]["database"]

    assert waits == {"condition": "service_healthy"}
    assert "healthcheck" in SERVICES["database"]


def test_no_password_is_written_down():
    password = SERVICES["database"]["environment"]["POSTGRES_PASSWORD"]
    url = variables()["MESHWRIGHT_DATABASE_URL"]

    assert password.startswith("${POSTGRES_PASSWORD:?")
    assert ":${POSTGRES_PASSWORD:?" in url


def test_every_service_refers_to_what_exists():
    for name, item in SERVICES.items():
        for other in item.get("depends_on", ()):
            assert other in SERVICES, name
        build = item.get("build")
        if build is not None:
            image = build.get("dockerfile") if isinstance(build, dict) else "Dockerfile"
            assert (ROOT / image).exists()
        for volume in item.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / source).exists(), volume


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_made_of_known_instructions_and_begins_with_its_base(image):
    names = [name for name, _ in instructions(image)]

    assert names[0] == "FROM"
    assert set(names) <= KNOWN
    assert not re.search(r":latest\b", (ROOT / image).read_text(encoding="utf-8"))


@pytest.mark.parametrize("image", IMAGES)
def test_everything_that_an_image_copies_exists_and_reaches_the_build(image):
    copied = [
        source
        for name, rest in instructions(image)
        if name == "COPY"
        for source in rest.split()[:-1]
    ]
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()

    assert copied
    for source in copied:
        assert (ROOT / source).exists()
        assert f"!{source.split('/')[0]}" in sent


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_without_privileges(image):
    assert ["USER", "meshwright"] in instructions(image)
    assert instructions(image)[-1][0] == "CMD"


def test_the_agents_script_is_one_that_a_shell_reads():
    subprocess.run(["/bin/sh", "-n", str(ROOT / "deploy" / "agent.sh")], check=True)


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (503, False)])
def test_the_image_tells_its_health_by_readyz(status, is_healthy):
    asked = []

    class Service(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            """Keep quiet."""

    (check,) = (rest for name, rest in instructions("Dockerfile") if name == "HEALTHCHECK")
    program, *arguments = json.loads(check.partition("CMD ")[2])
    with HTTPServer(("127.0.0.1", 0), Service) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        environment = {**os.environ, "MESHWRIGHT_PORT": str(server.server_port)}
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, check=False
        )
        server.shutdown()

    assert program == "python"
    assert asked == ["/readyz"]
    assert (done.returncode == 0) == is_healthy
