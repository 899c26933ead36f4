"""A service on this machine, a real Chromium, and a watch on what pages ask for and complain of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    expect,
    sync_playwright,
)

from tests.browser.seeds import store, the_seeds

ROOT = Path(__file__).parents[2]
CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
# What a page must show comes at once on a quiet machine, and late on a busy one.
PATIENCE_SECONDS = 300
PATIENCE_MS = 1000 * PATIENCE_SECONDS
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-quic",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no other host is ever reached
]


@dataclass
class Service:
    """Where the service is, and the pipe that its gated solves wait for."""

    url: str
    gate: Path

    def open_gate(self) -> None:
        """Let the one solve that waits go on."""
        self.gate.write_text("go", encoding="utf-8")


@dataclass
class Watch:
    """What went wrong in a browser, besides the statuses that a test foresees."""

    foreseen: set[int] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def console(self, kind: str, text: str) -> None:
        """Take a line of the console."""
        refused = any(
            f"the server responded with a status of {code}" in text for code in self.foreseen
        )
        if kind in {"error", "warning"} and not refused:
            self.complaints.append(f"{kind}: {text}")

    def request(self, url: str, service_url: str) -> None:
        """Take what a page asks for; to look at each request first would switch caches off."""
        if not url.startswith((service_url, "data:")):
            self.foreign.append(url)

    def check(self) -> None:
        """Fail if another host was asked for anything, or a console complained."""
        assert self.foreign == []
        assert self.complaints == []


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A Chromium that ends with its folder: while it runs, no test can run a loop of its own."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The dashboard over a store with four answers."""
    folder = tmp_path_factory.mktemp("service")
    database_url, gate = f"sqlite:///{folder}/meshwright.db", folder / "gate"
    os.mkfifo(gate)
    store(database_url, *the_seeds())
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.browser.serve", database_url, str(gate)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        port = process.stdout.readline().strip()
        assert port, "the service did not start"
        url = f"http://127.0.0.1:{port}"
        httpx.get(f"{url}/readyz", timeout=PATIENCE_SECONDS).raise_for_status()
        yield Service(url=url, gate=gate)
        process.stdin.close()
        process.wait()


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    """What speaks REST with the service: an agent, say."""
    with httpx.Client(base_url=service.url, timeout=PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Nothing may be asked of another host, and no console may complain."""
    watch = Watch()
    yield watch
    watch.check()


@pytest.fixture
def make_page(browser: Browser, service: Service, watch: Watch) -> Iterator[Callable[..., Page]]:
    """Open pages in contexts of their own: `javascript`, `color_scheme`, `viewport`."""
    with contexts_of(browser, service, watch) as make:
        yield make


@contextmanager
def contexts_of(browser: Browser, service: Service, watch: Watch) -> Iterator[Callable[..., Page]]:
    """Open pages in contexts of their own, all of which end with the block."""
    contexts: list[BrowserContext] = []

    def make(*, javascript: bool = True, **options: object) -> Page:
        context = browser.new_context(
            base_url=service.url, java_script_enabled=javascript, **options
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.on("request", lambda request: watch.request(request.url, service.url))
        page = context.new_page()
        page.on("console", lambda message: watch.console(message.type, message.text))
        page.on("pageerror", lambda error: watch.complaints.append(str(error)))
        return page

    try:
        yield make
    finally:
        for context in contexts:
            context.close()


@pytest.fixture
def page(make_page: Callable[..., Page]) -> Page:
    return make_page()
