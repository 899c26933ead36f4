"""The wheel, as a user meets it: built, looked into, installed into a clean environment, used.

    python -m tests.wheel.smoke [--keep FOLDER]

Needs the network, or whatever pip is configured with, for the runtime's dependencies. Prints one
line a step and ends with status 0, or with the first thing that does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

from tests.calibration_rows import TRUTH, measured_fields
from tests.command_walk import ALONE, MODULES, NEEDY

ROOT = Path(__file__).parents[2]
PACKAGES = {"meshwright", "planner", "api", "executor", "profiles", "migrations"}
PLAN = ["plan", "llama-3-8b", "8xh100-sxm5-80gb", "--global-batch-size", "64"]
USE = """
import sys
import meshwright
assert not {"numpy", "pydantic", "planner.planning"} & set(sys.modules), sys.modules
job = meshwright.Job(global_batch_size=4, sequence_length=128)
model, cluster = meshwright.read_model("tiny-llama-cpu"), meshwright.read_cluster("2xcpu-gloo")
answer = meshwright.plan(model, cluster, job)
assert answer.certificate.gap_ratio == 0, answer.certificate
from planner.planning import plan, resolved_cluster, resolved_model
again = plan(resolved_model("tiny-llama-cpu"), resolved_cluster("2xcpu-gloo"), job)
assert again.strategy == answer.strategy
heavy = {"torch", "fastapi", "sqlalchemy"} & set(sys.modules)
assert not heavy, heavy
"""


def main(arguments: Sequence[str]) -> int:
    """Run all steps; return the exit status."""
    parser = argparse.ArgumentParser(description="Build, install and use the wheel.")
    parser.add_argument("--keep", type=Path, help="Leave wheel and environment there.")
    kept = parser.parse_args(arguments).keep
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        _steps(kept)
        return 0
    with tempfile.TemporaryDirectory(prefix="meshwright-wheel-") as directory:
        _steps(Path(directory))
    return 0


def _steps(home: Path) -> None:
    started = time.monotonic()
    wheel = _built(home / "dist")
    _check_content(wheel)
    _say(started, f"built {wheel.name}, {wheel.stat().st_size // 1024} KiB")
    python = _installed(wheel, home / "venv")
    _say(started, "installed into a clean environment")
    _check_beside_others(python)
    _check_used(python, home)
    _say(started, "planned from another folder, by command and from Python")
    _check_extras_named(python, home)
    _say(started, "named the extra that each other command and entry point needs")
    _check_overwritten(python)
    _say(started, "named the neighbour that overwrote a module")


def _built(folder: Path) -> Path:
    """Return the wheel of the tree, built with the tools at hand."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    _run([*command, "--wheel-dir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("meshwright-*.whl")
    return wheel


def _check_content(wheel: Path) -> None:
    """Raise unless the wheel has the packages, their data files and metadata, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(archive.read(metadata).decode())
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    _require(tops == PACKAGES, f"top-level packages are {sorted(tops)}")
    for data in (
        "profiles/devices/h100-sxm5-80gb.yaml",
        "profiles/models/llama-3-8b.json",
        "meshwright/py.typed",
        "planner/py.typed",
    ):
        _require(data in names, f"{data} is missing")
    _require(not any("__pycache__" in name for name in names), "has compiled files")
    _require(any(name.endswith("LICENSE") for name in names), "has no license")
    for field in ("Summary", "Requires-Python", "Description-Content-Type"):
        _require(bool(fields.get(field)), f"metadata have no {field}")
    _require({"service", "executor"} <= set(fields.get_all("Provides-Extra") or ()), "extras")


def _installed(wheel: Path, home: Path) -> Path:
    """Return the interpreter of a new environment that has the wheel and its dependencies."""
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*command, "--constraint", str(ROOT / "constraints.txt"), str(wheel)])
    _run([str(python), "-m", "pip", "check"])
    return python


def _check_beside_others(python: Path) -> None:
    """Raise if another installed package has a file of ours."""
    program = (
        "import json, importlib.metadata as m; print(json.dumps({d.metadata['Name']: "
        "[str(f) for f in d.files or ()] for d in m.distributions()}))"
    )
    files = json.loads(_run([str(python), "-c", program]))
    own = {file for file in files.pop("meshwright") if not file.startswith("../")}
    for name, others in files.items():
        shared = own & set(others)
        _require(not shared, f"{name} has the same files: {sorted(shared)[:3]}")


def _check_used(python: Path, home: Path) -> None:
    """Raise unless the command and the library work where packages of the same names lie about."""
    elsewhere = home / "elsewhere"
    for package in ("api", "migrations", "profiles"):
        (elsewhere / package).mkdir(parents=True, exist_ok=True)
        (elsewhere / package / "__init__.py").write_text("raise ImportError('not ours')\n")
    lines = map(json.dumps, measured_fields(TRUTH, noise=0.03))
    (elsewhere / "runs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    command = str(python.parent / "meshwright")
    for arguments in (["--version"], ["--help"], *([name, *rest] for name, rest in ALONE.items())):
        _require(bool(_run([command, *arguments], cwd=elsewhere)), f"{arguments} says nothing")
    _run([str(python), "-P", "-m", "meshwright", *PLAN], cwd=elsewhere)
    _run([str(python), "-P", "-c", USE], cwd=elsewhere)


def _check_extras_named(python: Path, home: Path) -> None:
    """Raise unless every command and entry point that needs an extra ends with one line on it."""
    folder = home / "without-extras"
    folder.mkdir(exist_ok=True)
    command = str(python.parent / "meshwright")
    shutil.copy(home / "elsewhere" / "made.json", folder / "plan.json")
    calls = [
        ([command, *name.split(), *words], f"meshwright {name}: {said}")
        for name, (words, said) in NEEDY.items()
    ]
    calls += [
        ([str(python), "-m", name], f"python -m {name}: {said}") for name, said in MODULES.items()
    ]
    for words, said in calls:
        done = _ended(words, cwd=folder)
        ended = (done.returncode, done.stdout, done.stderr)
        _require(ended == (1, "", f"error: {said}\n"), f"{' '.join(words)}: {ended}")


def _check_overwritten(python: Path) -> None:
    """Raise unless a command that fails names the distribution that has overwritten its module.

    A wheel written by hand is installed for it: pip asks nobody.
    """
    wheel = python.parents[2] / "neighbour-1.0-py3-none-any.whl"
    files = {
        "profiles/devices/h100-sxm5-80gb.yaml": "not: ours\n",
        "planner/planning.py": "raise RuntimeError('not ours')\n",
        "neighbour-1.0.dist-info/METADATA": "Metadata-Version: 2.1\n"
        "Name: neighbour\nVersion: 1.0\n",
        "neighbour-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, "neighbour-1.0.dist-info/RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**files, "neighbour-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    _run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)])
    command = [str(python.parent / "meshwright"), *PLAN]
    done = _ended(command)
    _require(done.returncode == 1, f"an overwritten module is no failure: {done.stdout}")
    _require("neighbour has files in `planner`" in done.stderr, done.stderr)


def _ended(command: Sequence[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    done = _ended(command, cwd)
    _require(done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def _require(holds: bool, problem: str) -> None:
    if not holds:
        sys.exit(f"wheel: {problem}")


def _say(started: float, what: str) -> None:
    sys.stdout.write(f"{time.monotonic() - started:5.1f} s  {what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
