"""Launcher: starts the ranks that a plan has on this machine, and reports what they measured.

    python -m executor.launcher PLAN.json [--report FILE] [--runs FILE] [--steps N] [--json]
        [--nodes N --node-rank R --master ADDRESS:PORT] [-- SCRIPT ARGUMENT ...]

On several nodes each is launched by itself, and reports the ranks that it started.

Exit status: 0 completed, 1 a rank failed or the plan cannot run here, 2 usage.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from planner.extras import exit_without_extras

if __name__ == "__main__":
    exit_without_extras("executor.launcher")
    gc.disable()  # while torch is imported, which leaves no garbage

from torch.distributed.elastic.multiprocessing.api import SignalException

from executor import environment
from executor import variables as names
from executor.apply.supported import check_strategy
from executor.cuda_defaults import cuda_defaults
from executor.device_choice import chosen_device
from executor.errors import LaunchError
from executor.profile_table import profile_lines, read_summaries
from executor.rank_processes import run_ranks
from executor.refusal import is_lasting, leave_refusal
from executor.rendezvous import LOOPBACK, NodePlace
from executor.reporting import measured_run, run_report, summary_lines
from executor.tracker import LAUNCH_PREFIX, left_run_ended
from planner.errors import MeshwrightError
from planner.schema.plan import Plan
from planner.schema.run import RunReport

# gloo's threads write of connections that close as the run ends; what matters is said by us.
_USAGE = 2  # as argparse has it
_CPU_DEFAULTS = {"TORCH_CPP_LOG_LEVEL": "FATAL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What to run: the plan, the device to run it on, and a script or the shipped training."""

    plan_path: Path
    report_path: Path | None = None
    runs_path: Path | None = None
    profile_path: Path | None = None
    step_count: int | None = None
    device_type: str | None = None
    timeout_seconds: float = environment.DEFAULT_TIMEOUT_SECONDS
    start_timeout_seconds: float = environment.DEFAULT_TIMEOUT_SECONDS
    script: tuple[str, ...] = ()
    as_json: bool = False
    place: NodePlace = field(default_factory=NodePlace)


def main(arguments: Sequence[str]) -> int:
    """Launch what the command line asks for; return the exit status."""
    try:
        request = _parse(arguments)
    except SystemExit as stop:
        if stop.code == _USAGE:
            leave_refusal("the launcher's command line is none that it takes", os.environ)
        raise
    try:
        report = launch(request)
        lines = [*summary_lines(report), *_profiled(request)]
        text = report.to_json() if request.as_json else "\n".join(lines) + "\n"
        print(text, end="")  # noqa: T201 - this is a command
    except MeshwrightError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a command
        if is_lasting(error):
            leave_refusal(str(error), os.environ)
        if request.as_json:
            failure = {"kind": type(error).__name__, "message": str(error)}
            print(json.dumps({"status": "error", "exit_code": 1, "error": failure}))  # noqa: T201
        return 1
    except SignalException as stop:
        print(f"error: stopped by {stop.sigval.name}", file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)  # noqa: T201 - this is a command
        return 1
    return 0


def launch(request: LaunchRequest) -> RunReport:
    """Run the plan to its end, write the report where asked, and return it.

    Raises:
        InputError: if the plan cannot be read, applied, or run on this machine.
        RefusedError: if ranks refused the script's model, batch or checkpoint.
        RankFailedError: if a rank of this node died or raised.
    """
    plan = Plan.read(request.plan_path)
    check_strategy(plan.strategy, plan.job.resolved)
    _check_script(request.script)
    local_ranks = request.place.local_ranks(plan.strategy.world_size)
    device_type = chosen_device(plan, request.device_type, local_ranks=local_ranks)
    if request.report_path is not None:
        request.report_path.unlink(missing_ok=True)
        _check_place(request.report_path, "--report")
    if request.runs_path is not None:
        _check_place(request.runs_path, "--runs")
    if request.profile_path is not None:
        _prepare_profile(request.profile_path)
    with (
        tempfile.TemporaryDirectory(prefix=LAUNCH_PREFIX) as directory,
        _ranks_print_on_stderr() if request.as_json else nullcontext(),
        left_run_ended(Path(directory)),
    ):
        outcomes = run_ranks(
            request.place,
            request.script,
            world_size=plan.strategy.world_size,
            variables=rank_variables(
                request, device_type, Path(directory), local_ranks=local_ranks
            ),
            directory=Path(directory),
        )
    report = run_report(plan, outcomes, device_type=device_type)
    if request.report_path is not None:
        request.report_path.write_text(report.to_json(), encoding="utf-8")
    if request.runs_path is not None:
        row = measured_run(plan, report).model_dump_json(exclude_none=True)
        with request.runs_path.open("a", encoding="utf-8") as rows:
            rows.write(row + "\n")
    return report


def _profiled(request: LaunchRequest) -> list[str]:
    """Return what the ranks' profiles say, and leave it beside their traces."""
    if request.profile_path is None:
        return []
    plan = Plan.read(request.plan_path)
    lines = list(profile_lines(plan, read_summaries(request.profile_path)))
    path = request.profile_path / "profile.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lines


def _prepare_profile(folder: Path) -> None:
    """Make the folder, and remove what an earlier run left in it.

    Raises:
        LaunchError: if it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("rank-*.summary.json"):
            path.unlink()
    except OSError as error:
        raise LaunchError(
            f"cannot be written: {error.strerror}",
            field="--profile",
            value=str(folder),
            remedy="give a folder that can be written",
        ) from None


def _check_place(path: Path, option: str) -> None:
    """Check before training that what comes of it can be written.

    Raises:
        LaunchError: if it cannot be.
    """
    existed = path.exists()
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise LaunchError(
            f"cannot be written: {error.strerror}",
            field=option,
            value=str(path),
            remedy="give a path in a folder that exists and can be written",
        ) from None
    if not existed:
        path.unlink()


def _check_script(script: Sequence[str]) -> None:
    if script and not Path(script[0]).is_file():
        raise LaunchError(
            "is not a file",
            field="script",
            value=script[0],
            remedy="give the path of a Python script after --",
        )


def rank_variables(
    request: LaunchRequest, device_type: str, directory: Path, *, local_ranks: int
) -> dict[str, str]:
    """Return what ranks find in their environment."""
    package_root = str(Path(__file__).resolve().parent.parent)
    search_path = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        environment.PLAN_PATH: str(request.plan_path.resolve()),
        environment.OUTCOME_DIRECTORY: str(directory),
        environment.DEVICE_TYPE: device_type,
        environment.TIMEOUT_SECONDS: str(request.timeout_seconds),
        environment.START_TIMEOUT_SECONDS: str(request.start_timeout_seconds),
        environment.LAUNCHER_PROCESS: str(os.getpid()),
        "PYTHONPATH": os.pathsep.join(search_path),
    }
    if request.step_count is not None:
        name = names.STEP_LIMIT if request.script else names.STEP_COUNT
        variables[name] = str(request.step_count)
    if device_type == "cuda":
        variables |= cuda_defaults(os.environ)
    else:
        variables |= {name: os.environ.get(name, value) for name, value in _CPU_DEFAULTS.items()}
    if request.profile_path is not None:
        variables[names.PROFILE_FOLDER] = str(request.profile_path.resolve())
    # What is offloaded is updated by threads of the host, which GPU ranks share.
    threads = 1 if device_type == "cpu" else max(1, (os.cpu_count() or 1) // local_ranks)
    variables["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(threads))
    return variables


@contextmanager
def _ranks_print_on_stderr() -> Iterator[None]:
    """Point the standard output that ranks inherit at stderr: ours is for the report alone."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(own, 1)
        os.close(own)


def _parse(arguments: Sequence[str]) -> LaunchRequest:
    own = list(arguments)
    script: list[str] = []
    if "--" in own:
        cut = own.index("--")
        own, script = own[:cut], own[cut + 1 :]
    parser = argparse.ArgumentParser(
        prog="python -m executor.launcher",
        description="Run a plan on this machine.",
        epilog="After --: a training script and its arguments, in place of the shipped training.",
    )
    parser.add_argument("plan", type=Path, help="a plan that `meshwright plan --out` wrote")
    parser.add_argument("--report", type=Path, help="where to write the run report (JSON)")
    parser.add_argument("--runs", type=Path, help="where to add the run as a row (JSON lines)")
    parser.add_argument(
        "--profile", type=Path, metavar="FOLDER",
        help="where to write a trace of three steps of each rank, and what they are made of",
    )  # fmt: skip
    parser.add_argument(
        "--steps",
        type=_positive,
        help="stop after so many steps; shipped training stops after "
        f"{environment.DEFAULT_STEP_COUNT} by itself",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the run report on stdout, all else on stderr"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the plan's")
    parser.add_argument(
        "--timeout-seconds",
        type=_positive,
        default=environment.DEFAULT_TIMEOUT_SECONDS,
        help="how long a step's collectives may wait for a rank that hangs (default %(default).0f)",
    )
    parser.add_argument(
        "--start-timeout-seconds",
        type=_positive,
        help="the same until the first step has ended (default: as --timeout-seconds)",
    )
    _add_place(parser)
    parsed = parser.parse_args(own)
    return LaunchRequest(
        plan_path=parsed.plan,
        report_path=parsed.report,
        runs_path=parsed.runs,
        profile_path=parsed.profile,
        step_count=parsed.steps,
        device_type=parsed.device,
        timeout_seconds=float(parsed.timeout_seconds),
        start_timeout_seconds=float(parsed.start_timeout_seconds or parsed.timeout_seconds),
        script=tuple(script),
        as_json=parsed.json,
        place=NodePlace(
            node_rank=parsed.node_rank,
            node_count=parsed.nodes,
            local_rank_count=parsed.local_ranks,
            master_address=parsed.master[0],
            master_port=parsed.master[1],
            meeting=parsed.meeting,
        ),
    )


def _add_place(parser: argparse.ArgumentParser) -> None:
    several = parser.add_argument_group("several nodes")
    several.add_argument("--nodes", type=_positive, default=1, help="how many launch this plan")
    several.add_argument("--node-rank", type=int, default=0, help="which of them this is, from 0")
    several.add_argument("--local-ranks", type=_positive, help="default: as many on every node")
    several.add_argument(
        "--master", type=_endpoint, default=(LOOPBACK, 0), metavar="ADDRESS:PORT",
        help="where the first node listens",
    )  # fmt: skip
    several.add_argument("--meeting", default="", help="a name that the nodes of one launch share")


def _endpoint(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text} is not ADDRESS:PORT")
    return address.strip("[]"), int(port)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return value


if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    sys.exit(main(sys.argv[1:]))
