"""The accuracy command prints a table of the runs that it is given, and counts the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
RUN = {
    "family": "torchtitan",
    "model": "llama-3-8b",
    "gpu": "A100-SXM",
    "num_gpus": 64,
    "seq_len": 8192,
    "framework": "torchtitan",
    "precision": "bf16",
    "tp": 1,
    "pp": 1,
    "zero_stage": 3,
    "mbs": 1,
    "gbs": 64,
    "recompute": "selective",
    "tokens_per_s_per_gpu": 2973,
}


def test_runs_are_tabulated_by_family_and_the_unpriced_counted(tmp_path: Path) -> None:
    """The run is row 1 of torchtitan's table of A100 (docs/performance.md of its release 1.0)."""
    file = tmp_path / "runs.jsonl"
    rows = [RUN, {**RUN, "tokens_per_s_per_gpu": 1000}, {**RUN, "precision": "nvfp4"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.accuracy", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert "2 of 3 runs priced" in done.stdout
    family = next(line for line in done.stdout.splitlines() if line.startswith("| torchtitan"))
    assert family.split("|")[2].strip() == "2"
    assert "| the number format is not modelled | 1 |" in done.stdout
