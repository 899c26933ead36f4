"""The tests on each version of Python that this machine has, with the wheel and not the tree.

    python -m tests.wheel.pythons [--versions 3.12 3.13] [--keep FOLDER] [-- PYTEST ARGUMENTS]

Each version gets an environment of its own with the wheel and all its extras, as constrained, and
runs unit and golden tests, the demo, a training script under a plan, and what commands say without
extras. Interpreters are looked for on the PATH and among those of pyenv; absent ones are named.
Ends with status 1 if a version fails, or there is none to test.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TESTS = (
    "tests/unit",
    "tests/golden",
    "tests/contract/test_cli_demo.py",
    "tests/contract/test_extras.py",
    "tests/contract/test_python_names.py",
    "tests/distributed/test_user_script.py",
)
_CLASSIFIER = "Programming Language :: Python :: "


def main(arguments: Sequence[str]) -> int:
    """Test every version that is asked for; return the exit status."""
    own, given = _split(list(arguments))
    parser = argparse.ArgumentParser(description="Run the tests on several versions of Python.")
    parser.add_argument("--versions", nargs="+", choices=VERSIONS, default=VERSIONS)
    parser.add_argument("--keep", type=Path, help="Make the environments there, or use those.")
    parsed = parser.parse_args(own)
    found = {version: interpreter(version) for version in parsed.versions}
    with tempfile.TemporaryDirectory(prefix="meshwright-pythons-") as directory:
        home = parsed.keep or Path(directory)
        outcomes = {
            version: _tested(python, home / version, given)
            for version, python in found.items()
            if python is not None
        }
    for version in parsed.versions:
        _say(f"Python {version}: {outcomes.get(version) or _absent(version)}")
    return 0 if outcomes and set(outcomes.values()) == {"passed"} else 1


def interpreter(version: str) -> Path | None:
    """Return an interpreter of `version` that starts, if there is one."""
    for path in _candidates(version):
        program = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
        done = subprocess.run([path, "-c", program], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return path
    return None


def _candidates(version: str) -> Iterator[Path]:
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)


def _tested(python: Path, home: Path, given: Sequence[str]) -> str:
    """Return how the tests ended on `python`."""
    _say(f"{python}: installing the wheel and its extras into {home}")
    own = home / "bin" / "python"
    if not own.exists() and subprocess.run([python, "-m", "venv", home], check=False).returncode:
        return "no environment could be made"
    install = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constrained = ["--constraint", ROOT / "constraints.txt", f"{ROOT}[service,executor,dev]"]
    if subprocess.run([*install, *constrained], check=False).returncode != 0:
        return "could not be installed"
    where = _output(own, "import sysconfig; print(sysconfig.get_path('purelib'))")
    # The tree comes after the wheel: tests are found there, and packages here.
    (Path(where) / "meshwright-tests.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    if not _output(own, "import planner; print(planner.__file__)").startswith(where):
        return "would have tested the tree"
    options = ["-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-o", "pythonpath="]
    tests = [ROOT / test for test in TESTS]
    command = [home / "bin" / "pytest", *options, "-p", "no:cacheprovider", *given, *tests]
    done = subprocess.run(command, cwd=home, env=_environment(), check=False)
    return "passed" if done.returncode == 0 else f"failed (pytest ended with {done.returncode})"


def _absent(version: str) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    is_claimed = f"{_CLASSIFIER}{version}" in project["classifiers"]
    claim = "although the classifiers claim it" if is_claimed else "and not claimed"
    return f"not tested, {claim}: python{version} is neither on the PATH nor among pyenv's"


def _output(python: Path, program: str) -> str:
    done = subprocess.run(
        [python, "-P", "-c", program],
        env=_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _environment() -> dict[str, str]:
    """Return this environment without what would have Python look elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before `--`, and those after it."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
