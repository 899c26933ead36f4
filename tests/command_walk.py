"""Every command, what it is given, and what it says where no extra is installed."""

from __future__ import annotations

CPU = ["tiny-llama-cpu", "2xcpu-gloo", "--global-batch-size", "8", "--sequence-length", "64"]
SERVICE = "needs the extra service, which is not installed; run: pip install 'meshwright[service]'"
EXECUTOR = (
    "needs the extra executor, which is not installed; run: pip install 'meshwright[executor]'"
)
BOTH = (
    "needs the extras service and executor, which are not installed; run: pip install "
    "'meshwright[service,executor]'"
)
NEEDY = {  # command -> what it is given, and what it says
    "agent enrol": (["--server", "http://127.0.0.1:1", "--token", "t"], EXECUTOR),
    "agent run": ([], EXECUTOR),
    "agent token": (["--server", "http://127.0.0.1:1"], EXECUTOR),
    "audit": ([], SERVICE),
    "db upgrade": ([], SERVICE),
    "demo": (["--directory", "story"], BOTH),
    "keys create": (["--name", "me"], SERVICE),
    "keys list": ([], SERVICE),
    "keys revoke": (["mw_1"], SERVICE),
    "profile": ([], EXECUTOR),
    "run": (["plan.json"], EXECUTOR),
    "serve": ([], SERVICE),
    "trace": (["net.py:net"], EXECUTOR),
    "tune": (CPU, EXECUTOR),
}
ALONE = {  # command -> what it is given where the planner is all that there is
    "plan": [*CPU, "--out", "made.json"],
    "estimate": [*CPU, "--strategy", "made.json"],
    "explain": ["made.json"],
    "frontier": [*CPU, "--points", "1"],
    "size": [
        "llama-3-8b", "--tokens", "1e9", "--days", "30", "--device", "h100-sxm5-80gb",
        "--max-devices", "8", "--global-batch-size", "64",
    ],
    "check": ["made.json", "tiny-llama-cpu", "2xcpu-gloo"],
    "compare": ["made.json", "made.json"],
    "compare-frameworks": ["made.json"],
    "export": ["made.json", "--to", "torchrun"],
    "verify": ["made.json"],
    "discover": ["--out", "cluster.json"],
    "models": [],
    "devices": [],
    "calibrate": ["runs.jsonl", "--out", "calibration.yaml"],
    "validate": ["runs.jsonl"],
}  # fmt: skip
MODULES = {
    "api": SERVICE,
    "api.openapi": SERVICE,
    "executor.agent": EXECUTOR,
    "executor.launcher": EXECUTOR,
    "executor.profiler": EXECUTOR,
    "executor.trace_command": EXECUTOR,
    "executor.trials": EXECUTOR,
}
