"""GPUs: asked of NVML's own bindings, with a small library in the driver's place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.executor_agent.test_configuration import SMALL, written

pytest.importorskip("pynvml", reason="no package nvidia-ml-py")
SOURCE = Path(__file__).with_name("libnvidia_ml.c")
REPORT = """
import json, sys
from pathlib import Path
from executor.agent.configuration import read_configuration
from executor.agent.devices import introduction
from executor.agent.errors import AgentError
try:
    report, words = introduction(read_configuration(Path(sys.argv[1])))
except AgentError as error:
    print(json.dumps({"words": str(error)}))
else:
    print(json.dumps({"words": words, **report.model_dump(mode="json")}))
"""


def reported(configuration: Path, libraries: Path) -> dict[str, Any]:
    """What a node reports where the driver's library lies in `libraries`."""
    answer = subprocess.run(
        [sys.executable, "-c", REPORT, str(configuration)],
        env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler is installed")
    folder = tmp_path_factory.mktemp("driver")
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_gpus_are_reported_as_the_driver_shows_them(tmp_path: Path, driver: Path) -> None:
    report = reported(written(tmp_path, SMALL), driver)

    assert report["words"] == "offers 4 x NVIDIA H100 80GB HBM3"
    assert [device["uuid"] for device in report["devices"]] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert {device["memory_bytes"] for device in report["devices"]} == {85_520_809_984}
    assert report["topology"]["links"] == [
        ["X", "NV2", "SYS", "unknown"],
        ["NV2", "X", "unknown", "SYS"],
        ["SYS", "unknown", "X", "NV4"],
        ["unknown", "SYS", "NV4", "X"],
    ]
    assert (report["versions"]["driver"], report["versions"]["cuda"]) == ("580.65.06", "13.0")


def test_fewer_gpus_than_asked_for_are_an_error_and_no_cpu_ranks(
    tmp_path: Path, driver: Path
) -> None:
    report = reported(written(tmp_path, SMALL + "[devices]\ncount = 8\n"), driver)
    assert report["words"].startswith(
        "devices.count: this node has fewer GPUs than this asks for (NVML shows 4)"
    )


def test_without_a_driver_cpu_ranks_are_offered_and_the_reason_is_said(tmp_path: Path) -> None:
    configuration = written(tmp_path, SMALL + "[devices]\ncount = 2\n")
    report = reported(configuration, tmp_path)
    if report["devices"][0]["uuid"]:
        pytest.skip("this machine has a driver")
    assert len(report["devices"]) == 2
    assert report["words"].startswith("offers 2 x ")
    assert "(CPU ranks; no GPU: NVML cannot be asked: " in report["words"]
