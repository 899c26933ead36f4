"""`python -m benchmarks.worker`: a warm planner that answers one case a line.

It reads a case as JSON from its input, plans it, and writes what came of it as JSON, until its
input ends. Whoever started it ends it when an answer takes too long.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from benchmarks.memory import peak_resident_bytes, reset_peak
from benchmarks.phases import sampled_phases
from planner import planning
from planner.errors import InputError, MeshwrightError
from planner.planning import resolved_cluster, resolved_model
from planner.schema.job import Job
from planner.schema.plan import Plan

PHASES_SHOWN = 4


def main() -> None:
    """Answer the cases of the standard input."""
    answer({"model": "llama-3-8b", "cluster": "8xh100-sxm5-80gb", "job": {}})
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return what planning the case gives, how long it takes and what it holds."""
    reset = reset_peak()
    start, cpu = time.perf_counter(), time.process_time()
    with sampled_phases() as phases:
        try:
            outcome = _planned(case)
        except InputError as error:
            outcome = {"status": "refused", "message": str(error)}
        except MeshwrightError as error:
            outcome = {"status": "failed", "message": f"{type(error).__name__}: {error}"}
        except Exception as error:  # noqa: BLE001 - a benchmark counts what it meets
            outcome = {"status": "crashed", "message": f"{type(error).__name__}: {error}"}
    return {
        **outcome,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "peak_resident_bytes": peak_resident_bytes(),
        "peak_is_of_this_case": reset,
        "phases": dict(phases.most_common(PHASES_SHOWN)),
    }


def _planned(case: dict[str, Any]) -> dict[str, Any]:
    job = Job.from_fields(case["job"], source="job")
    found = planning.plan(resolved_model(case["model"]), resolved_cluster(case["cluster"]), job)
    if not isinstance(found, Plan):
        return {
            "status": "infeasible",
            "configurations_total": found.configurations_total,
            "relaxation_count": len(found.relaxations),
        }
    said = found.certificate
    return {
        "status": "proven" if said.status == "optimal" else "feasible",
        "gap_ratio": said.gap_ratio,
        "closed_form_is_proven": said.closed_form is not None and said.closed_form.is_proven,
        "configurations_total": said.configurations_total,
        "solved_count": said.configurations_total - said.configurations_pruned,
        "milp_count": said.milp_count,
        "solve_seconds": said.solve_seconds,
        "step_seconds": found.prediction.step_seconds.p50,
    }


if __name__ == "__main__":
    main()
