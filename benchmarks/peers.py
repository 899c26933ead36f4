"""Peers: other planners on the same question, on this machine, in the same run.

Their code is not part of this repository: whoever has a checkout names its path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measurement import Measurement, median_seconds
from benchmarks.memory import peak_resident_bytes
from benchmarks.question import (
    LLAMA_2_7B,
    LLAMA_2_7B_IN_24_GIB,
    LLAMA_8B,
    OPT_350M,
    SMALL_MEMORY_GIB,
    Question,
)
from planner.requests.resolution import resolved_model
from planner.schema.model import DenseFeedForward, GroupedQueryAttention

REPEAT_COUNT = 5
SAMPLE_SECONDS = 30.0
START_SECONDS_LIMIT = 120.0
GALVATRON_SECONDS_LIMIT = 360.0
AUTOPARALLEL_SECONDS_LIMIT = 360.0
CALCULON_DRIVER = Path(__file__).with_name("calculon_driver.py")
SAILOR_DRIVER = Path(__file__).with_name("sailor_driver.py")
GALVATRON_DRIVER = Path(__file__).with_name("galvatron_driver.py")
AUTOPARALLEL_DRIVER = Path(__file__).with_name("autoparallel_driver.py")
AUTOPARALLEL_SEQUENCE_COUNT = 16
SYSTEM = Path("systems") / "a100_80g.json"
DEVICE_COUNT = 8


def beside_calculon(checkout: str | None, python: str | None, *, offload: bool) -> Measurement:
    """Return our time to plan Llama-2-7B on eight A100 beside Calculon's, with or without offload.

    Calculon's sweep is timed on a scattered part and stated for the whole of it, on one core.
    """
    if checkout is None:
        return Measurement(seconds=0.0, skipped=True, note="skipped: give --calculon PATH")
    own = python or sys.executable
    return _beside(LLAMA_2_7B, lambda: _calculon(Path(checkout), own, offload=offload))


def beside_sailor(checkout: str | None, python: str | None) -> Measurement:
    """Return our time to plan OPT-350M on 128 A100 of 40 GB beside Sailor's."""
    if checkout is None:
        return Measurement(seconds=0.0, skipped=True, note="skipped: give --sailor PATH")
    return _beside(OPT_350M, lambda: _sailor(checkout, python or sys.executable))


def beside_galvatron(checkout: str | None, python: str | None) -> Measurement:
    """Return our time to plan Llama-2-7B on eight GPUs of 24 GiB beside Galvatron's.

    Its profiles do not name their GPU; the bandwidths in them are nearest to an A800's.
    """
    if checkout is None:
        return Measurement(seconds=0.0, skipped=True, note="skipped: give --galvatron PATH")
    return _beside(LLAMA_2_7B_IN_24_GIB, lambda: _galvatron(checkout, python or sys.executable))


def beside_autoparallel(checkout: str | None, python: str | None) -> Measurement:
    """Return our time to plan Llama-3-8B on eight H100 beside AutoParallel's.

    It has no micro-batches: it places the operators of one step of two sequences a device.
    """
    if checkout is None:
        return Measurement(seconds=0.0, skipped=True, note="skipped: give --autoparallel PATH")
    return _beside(LLAMA_8B, lambda: _autoparallel(checkout, python or sys.executable))


def _beside(asked: Question, peer: Callable[[], tuple[float, str]]) -> Measurement:
    """Return our time beside the peer's, and our peak before it, for children count in it."""
    plan = asked.plan()
    certificate = plan.certificate
    own = median_seconds(asked.plan, repeat_count=REPEAT_COUNT)
    peak = peak_resident_bytes()
    seconds, note = peer()
    return Measurement(
        seconds=own,
        baseline_seconds=seconds,
        note=f"gap {certificate.gap_ratio:.2%}, {certificate.configurations_total} configurations; "
        f"{note}",
        holds=certificate.gap_ratio == 0.0,
        peak_resident_bytes=peak,
    )


def _calculon(checkout: Path, python: str, *, offload: bool) -> tuple[float, str]:
    found = _swept(checkout, python, offload=offload)
    return found["whole_seconds"], (
        f"Calculon prices {found['execution_count']} executions one by one "
        f"({found['timed_count']} timed in {found['timed_seconds']:.0f} s)"
    )


def _sailor(checkout: str, python: str) -> tuple[float, str]:
    command = [python, str(SAILOR_DRIVER), checkout, "A100-40", "128"]
    found = _answer(command, name=f"Sailor at {checkout}")
    return found["seconds"], f"Sailor ranks {found['plan_count']} plans without proof"


def _galvatron(checkout: str, python: str) -> tuple[float, str]:
    asked = LLAMA_2_7B_IN_24_GIB
    numbers = (DEVICE_COUNT, asked.global_batch_size, asked.sequence_length, SMALL_MEMORY_GIB)
    found = _answer(
        [python, str(GALVATRON_DRIVER), checkout, *map(str, numbers)],
        name=f"Galvatron at {checkout}",
        seconds_limit=GALVATRON_SECONDS_LIMIT,
    )
    rate = found["samples_per_second"]
    answer = "that nothing fits" if rate is None else f"{rate:.1f} sequences/s by its own profiles"
    return found["seconds"], (
        f"Galvatron answers {answer}, a fifth of the memory kept free, without proof"
    )


def _autoparallel(checkout: str, python: str) -> tuple[float, str]:
    numbers = (DEVICE_COUNT, AUTOPARALLEL_SEQUENCE_COUNT, LLAMA_8B.sequence_length)
    found = _answer(
        [python, str(AUTOPARALLEL_DRIVER), checkout, *map(str, numbers)],
        name=f"AutoParallel at {checkout}",
        seconds_limit=AUTOPARALLEL_SECONDS_LIMIT,
    )
    build, solve = found["build_seconds"], found["solve_seconds"]
    objective = found["objective_microseconds"] / 1e6
    answer = "solves" if found["solved"] else "does not solve"
    return build + solve, (
        f"AutoParallel {answer} one program of {found['variable_count']} variables, "
        f"objective {objective:.3f} s for {AUTOPARALLEL_SEQUENCE_COUNT} sequences "
        f"(build {build:.1f} s, solve {solve:.1f} s, after {found['trace_seconds']:.1f} s of "
        f"tracing): each operator's sharding on a line of {DEVICE_COUNT}, no pipeline, "
        "no micro-batches"
    )


def _swept(checkout: Path, python: str, *, offload: bool) -> dict[str, Any]:
    """Return counts and seconds of Calculon's own search.

    Raises:
        RuntimeError: if it does not run, with its last line.
    """
    with TemporaryDirectory() as folder:
        model, system = Path(folder) / "model.json", Path(folder) / "system.json"
        model.write_text(json.dumps(_model()))
        system.write_text(json.dumps(_system(checkout, offload=offload)))
        command = [python, str(CALCULON_DRIVER), str(model), str(DEVICE_COUNT)]
        command += [str(LLAMA_2_7B.global_batch_size), "float16", str(system), str(SAMPLE_SECONDS)]
        return _answer(command, name=f"Calculon at {checkout}", path=checkout)


def _answer(
    command: list[str],
    *,
    name: str,
    path: Path | None = None,
    seconds_limit: float = SAMPLE_SECONDS + START_SECONDS_LIMIT,
) -> dict[str, Any]:
    """Return what a driver prints last.

    Raises:
        RuntimeError: if it does not run, with its last line, or runs past the limit.
    """
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds_limit,
            env=os.environ if path is None else {**os.environ, "PYTHONPATH": str(path)},
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{name} took more than {seconds_limit:.0f} s") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeError(f"{name} did not run: {last}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _model() -> dict[str, int]:
    """Return our Llama-2-7B in Calculon's words; its feed-forward has two matrices, not three."""
    graph = resolved_model(LLAMA_2_7B.model).resolved
    block = graph.runs[0].block
    attention, feed_forward = block.attention, block.feed_forward
    assert isinstance(attention, GroupedQueryAttention)
    assert isinstance(feed_forward, DenseFeedForward)
    return {
        "hidden": graph.hidden_size,
        "feedforward": feed_forward.ffn_size,
        "seq_size": LLAMA_2_7B.sequence_length,
        "attn_heads": attention.head_count,
        "attn_size": attention.head_size,
        "num_blocks": graph.block_count,
    }


def _system(checkout: Path, *, offload: bool) -> dict[str, Any]:
    """Return the checkout's A100, without second memory where nothing is to be offloaded.

    Raises:
        RuntimeError: if the checkout has no such file.
    """
    path = checkout / SYSTEM
    if not path.is_file():
        raise RuntimeError(f"{path} is missing: is {checkout} a checkout of Calculon?")
    fields: dict[str, Any] = json.loads(path.read_text())
    if not offload:
        fields["mem2"]["GiB"] = 0
    return fields
