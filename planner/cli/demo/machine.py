"""What the demo knows of this machine: a cluster file that `meshwright profile` writes or wrote."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from planner.cli.demo.process import ended_with
from planner.cli.demo.service import last_line
from planner.cli.demo.steps import DemoError
from planner.cli.profile import BUSY

PROFILE_SECONDS_LIMIT = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """CPU ranks of this machine: as `profile` has them, or `rank_count` of them, measured.

    Kernels are measured for about `seconds`, and steps for as long or until they agree.
    """

    profile: Path | None
    rank_count: int
    seconds: float

    @property
    def description(self) -> str:
        """What the demo says that it does to know them."""
        if self.profile is not None:
            return f"take the CPU ranks of this machine from {self.profile}"
        return f"measure the {self.rank_count} CPU ranks of this machine"

    def cluster_file(self, directory: Path) -> tuple[Path, list[str]]:
        """Return the cluster file, and what the profile warns of.

        Raises:
            DemoError: if ranks cannot be measured.
        """
        return self._measured(directory) if self.profile is None else (self.profile, [])

    def _measured(self, directory: Path) -> tuple[Path, list[str]]:
        path, log = directory / "cluster.json", directory / "profile.log"
        path.unlink(missing_ok=True)
        command = [sys.executable, "-m", "planner.cli", "profile", "--out", str(path)]
        command += ["--ranks", str(self.rank_count), "--device", "cpu"]
        command += ["--seconds", str(self.seconds)]
        code = ended_with(command, log=log, seconds_limit=PROFILE_SECONDS_LIMIT)
        if code != 0:
            raise DemoError(
                f"`meshwright profile` ended with code {code}: {last_line(log)}; see {log}"
            )
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return path, [line for line in said if line.startswith(BUSY)]


def check_has_cpu_ranks(path: Path) -> None:
    """Refuse a profile that the demo cannot train on.

    Raises:
        InputError: if it cannot be read, or is of other devices than CPU ranks.
    """
    from planner.errors import InputError
    from planner.hardware import profile_of
    from planner.schema.cluster import Cluster

    cluster = Cluster.read(path)
    others = [name for name in cluster.devices if profile_of(cluster, name).kind != "cpu"]
    if others:
        raise InputError(
            "is not a profile of CPU ranks",
            field=f"--profile {path}",
            value=", ".join(others),
            remedy="give what `meshwright profile --device cpu --out FILE` wrote on this machine",
        )
