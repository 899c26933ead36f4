"""A throwaway PostgreSQL server on a Unix socket, for tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

USER = "meshwright"
_UNSAFE_BUT_QUICK = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off"


def server_programs() -> Path | None:
    """Return the directory of the newest installed server's programs."""
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    if installed:
        return installed[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


@contextmanager
def running_server(
    programs: Path,
    *,
    settings: str = _UNSAFE_BUT_QUICK,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Start a server and yield the URL of its first database; root starts it as `postgres`."""
    home = Path(tempfile.mkdtemp(prefix="mw-pg-"))
    account = {"user": "postgres", "group": "postgres", "extra_groups": []}
    as_account = account if os.geteuid() == 0 else {}
    if as_account:
        shutil.chown(home, "postgres", "postgres")

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), *arguments]
        with (home.parent / f"{home.name}.log").open("ab") as log:
            subprocess.run(
                command, check=True, cwd="/", stdout=log, stderr=log, **as_account,
                env={**os.environ, **environment},
            )  # fmt: skip

    data = str(home / "data")
    options = f"-k {home} -c listen_addresses= {settings}"
    try:
        run("initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        run("pg_ctl", "start", "-w", "-D", data, "-l", str(home / "server.log"), "-o", options)
        try:
            yield f"postgresql://{USER}@/postgres?host={home}"
        finally:
            run("pg_ctl", "stop", "-m", "immediate", "-D", data)
    finally:
        shutil.rmtree(home)
        (home.parent / f"{home.name}.log").unlink()


@contextmanager
def restarted(
    programs: Path,
    url: str,
    *,
    mode: str = "fast",
    settings: str = _UNSAFE_BUT_QUICK,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[None]:
    """Stop the server behind `url` in that mode of `pg_ctl`, and start it again at the end."""
    home = _home(url)
    account = {"user": "postgres", "group": "postgres", "extra_groups": []}
    as_account = account if os.geteuid() == 0 else {}

    def control(*arguments: str) -> None:
        command = [str(programs / "pg_ctl"), *arguments, "-D", str(home / "data")]
        with (home / "control.log").open("ab") as log:
            subprocess.run(
                command, check=True, cwd="/", stdout=log, stderr=log, **as_account,
                env={**os.environ, **environment},
            )  # fmt: skip

    control("stop", "-m", mode)
    try:
        yield
    finally:
        options = f"-k {home} -c listen_addresses= {settings}"
        control("start", "-w", "-l", str(home / "server.log"), "-o", options)


@contextmanager
def silent(url: str) -> Iterator[None]:
    """Have no process of the server behind `url` run, as on a machine that hangs."""
    postmaster = int((_home(url) / "data" / "postmaster.pid").read_text().split()[0])
    listed = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    processes = [postmaster, *map(int, listed)]
    for process in processes:
        _send(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            _send(process, signal.SIGCONT)


def _send(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _home(url: str) -> Path:
    return Path(url.partition("?host=")[2])
