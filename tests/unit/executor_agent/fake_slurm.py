# ruff: noqa: T201, S607, PTH123, PTH208 - a program of its own
"""A stand-in for Slurm's programs: one machine, jobs as process groups, no accounting.

Installed under the names sbatch, squeue, sacct, scancel, srun and scontrol in a folder; what it
knows of jobs lies in the folder beside it. It answers as Slurm 22.05 without slurmdbd does.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

JOBS = Path(sys.argv[0]).parent / "jobs"


def sbatch(arguments):
    options = dict(
        word.split("=", 1) for word in arguments if word.startswith("--") and "=" in word
    )
    script = arguments[-1]
    if "--partition" in options and options["--partition"] == "missing":
        sys.exit("sbatch: error: invalid partition specified: missing")
    JOBS.mkdir(exist_ok=True)
    number = str(len(list(JOBS.iterdir())) + 1)
    variables = {
        **os.environ,
        "SLURM_JOB_ID": number,
        "FAKE_SLURM_JOBS": str(JOBS),
        "SLURM_JOB_NUM_NODES": options["--nodes"],
        "SLURM_JOB_NODELIST": "node[1-2]",
    }
    with open(options["--output"].replace("%%", "%"), "ab") as log:
        job = subprocess.Popen(
            ["bash", script], env=variables, stdout=log, stderr=log, start_new_session=True
        )
    (JOBS / number).write_text(f"{job.pid} {options['--job-name']}")
    print(number)


def srun(arguments):
    command = [word for word in arguments if not word.startswith("--kill")]
    count = int(os.environ["SLURM_JOB_NUM_NODES"])
    tasks = [
        subprocess.Popen(command, env={**os.environ, "SLURM_NODEID": str(node)})
        for node in range(count)
    ]
    status = max(abs(task.wait()) for task in tasks)
    sys.exit(status)


def squeue(arguments):
    options = dict(word.split("=", 1) for word in arguments if "=" in word)
    if "--name" in options:
        for path in JOBS.glob("*"):
            pid, name = path.read_text().split()
            if name == options["--name"] and alive(int(pid)):
                print(path.name)
        return
    path = JOBS / options["--jobs"]
    if not path.exists() or not alive(int(path.read_text().split()[0])):
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    print("RUNNING")


def sacct(_arguments):
    sys.exit("Slurm accounting storage is disabled")


def scancel(arguments):
    if "--signal=KILL" in arguments:
        while processes := of_job(arguments[-1]):  # what one of them began meanwhile ends too
            signal_all(processes, signal.SIGKILL)
        return
    signal_all(of_job(arguments[-1]), signal.SIGTERM)


def signal_all(processes, number):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


def scontrol(_arguments):
    print("127.0.0.1\n127.0.0.2")


def of_job(number):
    """The job's live processes, whoever their parents are, as a control group would have them."""
    wanted = {f"SLURM_JOB_ID={number}", f"FAKE_SLURM_JOBS={JOBS}"}
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and alive(int(entry)):
            try:
                variables = Path(f"/proc/{entry}/environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if wanted <= set(variables.split("\0")):
                found.append(int(entry))
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    {f.__name__: f for f in (sbatch, srun, squeue, sacct, scancel, scontrol)}[
        Path(sys.argv[0]).name
    ](sys.argv[1:])
