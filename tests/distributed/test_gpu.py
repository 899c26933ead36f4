"""On GPUs: the parity matrix over NCCL, and a plan's peak and step beside its prediction."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from planner.schema.cluster import Cluster
from planner.schema.plan import Plan
from planner.schema.run import RunReport
from tests.distributed import test_parity_context, test_parity_schedules
from tests.distributed.families import hugging_face_graph, hugging_face_model
from tests.distributed.fine_tuning import CORPUS, LAST_PLACE, in_fp64, plain_losses
from tests.distributed.group import ROOT
from tests.distributed.parity import EXACT
from tests.distributed.plans import BLOCK_COUNT, block_count_of, cpu_plan, small_model
from tests.distributed.test_parity import ON_FOUR_RANKS, ON_TWO_RANKS

GPU_COUNT = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.distributed,
    pytest.mark.skipif(GPU_COUNT == 0, reason="torch sees no CUDA device here"),
]

LIMIT_SECONDS = 800
UNIT_OF_BF16 = 2.0**-8  # kernels sum in other orders, and hand on 16 bits
PARTS_IN_FP32 = 1e-5  # of transformers' norms, and what the Trainer adds losses in
ON_ONE_RANK: dict[str, dict[str, Any]] = {
    "accumulated": {"micro_batch_size": 2},
    "checkpointing-full": {"activation_checkpointing": "full", "micro_batch_size": 4},
    "checkpointing-selective": {"activation_checkpointing": "selective"},
    "offloaded-states": {"offload": ["optimizer"]},
    "offloaded-activations": {"offload": ["activations"], "micro_batch_size": 4},
    "offloaded-selective": {
        "offload": ["activations"],
        "activation_checkpointing": "selective",
        "micro_batch_size": 4,
    },
    "offloaded-parameters": {"offload": ["parameters"], "zero_stage": 3},
    "offloaded": {"offload": ["optimizer", "parameters", "activations"], "zero_stage": 3},
}


def _of_decoder(matrix: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    return {
        name: fields
        for name, (kind, fields) in matrix.items()
        if kind == "decoder" and block_count_of(fields) <= BLOCK_COUNT
    }


MATRICES = {
    1: ON_ONE_RANK,
    2: {
        **ON_TWO_RANKS,
        **test_parity_context.ON_TWO_RANKS,
        **_of_decoder(test_parity_schedules.ON_TWO_RANKS),
    },
    4: {
        **ON_FOUR_RANKS,
        **test_parity_context.ON_FOUR_RANKS,
        **_of_decoder(test_parity_schedules.ON_FOUR_RANKS),
    },
}


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )


def parity(folder: Path, *, rank_count: int, device: str) -> dict[str, Any]:
    """Return the answers of `gpu_parity` for the matrix of so many ranks."""
    plan = cpu_plan(model=small_model(), data_parallel_degree=rank_count)
    (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    (folder / "matrix.json").write_text(json.dumps(MATRICES[rank_count]), encoding="utf-8")
    script = str(ROOT / "tests" / "distributed" / "gpu_parity.py")
    words = ("executor.launcher", "plan.json", "--device", device, "--")
    done = _run(folder, *words, script, "matrix.json", "answer.json")
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return answers


def test_every_layout_trains_as_one_gpu_does(tmp_path: Path) -> None:
    rank_count = max(count for count in MATRICES if count <= GPU_COUNT)
    answers = parity(tmp_path, rank_count=rank_count, device="cuda")
    assert set(answers) == {*MATRICES[rank_count], "of-the-plan"}
    for name, answer in answers.items():
        assert answer["gradient_error"] <= EXACT, name
        assert answer["loss_error"] <= EXACT, name
        assert answer["parameter_error"] <= EXACT, name
        assert answer["peak_memory_bytes"] > 0, name
        assert answer["differences"] == [], name


def training(folder: Path, *, device: str) -> dict[str, Any]:
    """Return the answers of `gpu_training`, of one rank."""
    plan = cpu_plan(model=small_model(), micro_batch_size=2)
    (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    script = str(ROOT / "tests" / "distributed" / "gpu_training.py")
    words = ("executor.launcher", "plan.json", "--device", device, "--", script, str(folder))
    done = _run(folder, *words)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return answers


def check_training(answers: dict[str, Any], *, device: str) -> None:
    """Fail unless all that `gpu_training` did on `device` is what it was to equal."""
    resumed, trainer = answers["resumed"], answers["trainer"]
    assert len(resumed["losses"]) == 2
    assert resumed["losses"] == pytest.approx(resumed["expected"], rel=EXACT)
    assert trainer["device"] == device
    assert trainer["losses"] == pytest.approx(trainer["expected"], rel=PARTS_IN_FP32)
    for name in ("tensors", "rows", "compiled"):
        answer = answers[name]
        assert answer["losses"] == pytest.approx(answer["expected"], rel=UNIT_OF_BF16), name
        assert answer["losses"] != pytest.approx(answer["exact"], rel=PARTS_IN_FP32), name
        assert answer["losses"][-1] < answer["losses"][0], name
    told = {"cuda": "casts to fp8 are kernels of their own", "cpu": "products are rounded to fp8"}
    for name, is_told in (("tensors", True), ("compiled", device == "cpu")):
        said = answers[name]["differences"]
        assert any(line.startswith(told[device]) for line in said) is is_told, said


def test_runs_resume_train_in_8_bits_and_in_the_trainer(tmp_path: Path) -> None:
    check_training(training(tmp_path, device="cuda"), device="cuda")


@pytest.mark.parametrize("adapters", [None, {"rank": 8}], ids=["whole", "adapters"])
def test_the_example_fine_tunes_as_plain_torch_does(
    tmp_path: Path, adapters: dict[str, Any] | None
) -> None:
    losses, expected = fine_tuned(tmp_path, device="cuda", adapters=adapters)
    assert losses == pytest.approx(expected, abs=LAST_PLACE)


def fine_tuned(
    folder: Path, *, device: str, adapters: dict[str, Any] | None
) -> tuple[list[float], list[float]]:
    """Return the losses of the example on `device`, and of transformers and PEFT on the host."""
    pretrained = folder / "in"
    hugging_face_model("llama", tied=False).save_pretrained(pretrained)
    base: Any = AutoModelForCausalLM.from_pretrained(pretrained, dtype=torch.float64)
    if adapters is not None:
        config = LoraConfig(r=adapters["rank"], target_modules="all-linear")
        base.name_or_path = str(pretrained)
        base = get_peft_model(base, config, autocast_adapter_dtype=False)
        base.save_pretrained(pretrained)
    (folder / "fine_tune.py").write_text(in_fp64(), encoding="utf-8")
    graph = hugging_face_graph("llama", tied=False)
    plan = cpu_plan(model=graph, micro_batch_size=4, adapters=adapters)
    (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    words = (str(folder / "fine_tune.py"), str(pretrained), str(CORPUS), str(folder / "out"))
    done = _run(folder, "executor.launcher", "plan.json", "--device", device, "--", *words)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", done.stdout)]
    return losses, plain_losses(pretrained, base)


def test_peak_and_step_are_reported_beside_the_prediction_for_this_gpu(
    tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    """The machine is measured, a model planned for it, and the plan run."""
    profile = ("planner.cli", "profile", "--device", "cuda", "--seconds", "20")
    measured = _run(tmp_path, *profile, "--out", "here.json")
    assert measured.returncode == 0, measured.stderr
    assert Cluster.read(tmp_path / "here.json").device_count == GPU_COUNT
    batch = ("--global-batch-size", str(8 * GPU_COUNT), "--sequence-length", "512")
    words = ("planner.cli", "plan", "tiny-llama-cpu", "here.json", *batch, "--out", "plan.json")
    planned = _run(tmp_path, *words)
    assert planned.returncode == 0, planned.stderr
    words = ("planner.cli", "run", "plan.json", "--steps", "20", "--report", "report.json")
    ran = _run(tmp_path, *words)
    assert ran.returncode == 0, ran.stderr
    report = RunReport.read(tmp_path / "report.json")
    plan = Plan.read(tmp_path / "plan.json")
    assert report.backend == "nccl"
    assert {rank.peak_memory_kind for rank in report.ranks} == {"cuda_allocated"}
    assert report.predicted_step_seconds == plan.prediction.step_seconds.p50
    for rank in report.ranks:
        assert rank.peak_memory_bytes is not None
        predicted = report.predicted_peak_memory_bytes[rank.stage]
        record_property(f"peak_ratio_rank_{rank.rank}", rank.peak_memory_bytes / predicted)
    ratio = report.median_step_seconds / report.predicted_step_seconds
    record_property("step_ratio", ratio)
