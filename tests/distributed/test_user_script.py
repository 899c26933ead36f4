"""A user's script trains alike alone and under a plan, from which it differs in few lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from difflib import ndiff
from pathlib import Path
from runpy import run_path

import pytest

import executor
import planner.planning as planner
from planner.importers.clusters import cluster_from_short_form
from planner.requests.resolution import cluster_document, model_document
from planner.schema.job import Job, Limits
from planner.schema.plan import Plan
from planner.schema.run import RunReport
from tests.distributed.forking_launches import ForkingLaunches
from tests.distributed.group import ROOT
from tests.distributed.plans import cpu_plan
from tests.distributed.reference import floats_differences

pytestmark = pytest.mark.distributed

PLAIN = ROOT / "examples" / "train_plain.py"
PLANNED = ROOT / "examples" / "train_planned.py"
LIMIT_SECONDS = 800
LOSS = re.compile(r"step (\d+): loss ([\d.]+)")
LAST_PLACE = 1.001e-6  # of a printed loss: two that are the same may be rounded up and down


def _code(path: Path) -> list[str]:
    """The script's lines without its docstring."""
    return path.read_text(encoding="utf-8").split('"""', 2)[2].splitlines()


def test_ten_lines_are_new_at_most() -> None:
    new = [line for line in ndiff(_code(PLAIN), _code(PLANNED)) if line.startswith("+ ")]
    assert 0 < len([line for line in new if line.strip("+ ")]) <= 10


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )


def _in_fp64(script: Path, folder: Path) -> str:
    """Return the path of a copy whose default format is fp64, where little is left to rounding."""
    text = script.read_text(encoding="utf-8")
    changed = text.replace("\nVOCABULARY,", "\ntorch.set_default_dtype(torch.float64)\nVOCABULARY,")
    assert changed != text
    path = folder / script.name
    path.write_text(changed, encoding="utf-8")
    return str(path)


def _losses(text: str) -> list[float]:
    return [float(loss) for _, loss in LOSS.findall(text)]


def test_it_trains_alike_alone_and_under_a_plan(tmp_path: Path) -> None:
    """The model is traced and planned for a pipeline of two, and its layers' own batches come."""
    graph = executor.trace(*run_path(str(PLANNED))["traceable"]())
    limits = Limits.model_validate({"pipeline_parallel_degree": 2, "offload": []})
    job = Job(global_batch_size=8, sequence_length=16, precision="fp32", limits=limits)
    cluster = "2xcpu-gloo"
    plan = planner.plan(
        model_document(graph.name, graph),
        cluster_document(cluster, cluster_from_short_form(cluster)),
        job,
    )
    assert isinstance(plan, Plan)
    (tmp_path / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    plain = _run(_in_fp64(PLAIN, tmp_path))
    assert plain.returncode == 0, plain.stderr
    report_path = tmp_path / "report.json"
    words = ("-m", "planner.cli", "run", str(tmp_path / "plan.json"), "--report", str(report_path))
    planned = _run(*words, "--", _in_fp64(PLANNED, tmp_path))
    assert planned.returncode == 0, planned.stderr
    assert len(_losses(plain.stdout)) == 5
    assert _losses(planned.stdout) == pytest.approx(_losses(plain.stdout), abs=LAST_PLACE)
    report = RunReport.read(report_path)
    assert [rank.blocks for rank in report.ranks] == [(0, 1), (2, 3)]
    assert not any(floats_differences(rank.differences_from_plan) for rank in report.ranks)
    assert all(rank.peak_memory_bytes for rank in report.ranks)


def test_a_script_may_end_its_process_group(launches: ForkingLaunches, tmp_path: Path) -> None:
    plan_path = tmp_path / "plan.json"
    plan_path.write_text(cpu_plan(data_parallel_degree=2).to_json())
    script = tmp_path / "ends.py"
    example = (ROOT / "examples" / "train.py").read_text(encoding="utf-8")
    script.write_text(f"{example}\ntorch.distributed.destroy_process_group()\n")
    report_path = tmp_path / "report.json"
    words = (str(plan_path), "--report", str(report_path), "--", str(script))
    done = launches.launch(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    report = RunReport.read(report_path)
    assert len(report.losses) == 10
    assert [rank.rank for rank in report.ranks] == [0, 1]
