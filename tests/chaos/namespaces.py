"""`unshare -n python -m tests.chaos.namespaces FOLDER`: a node behind a cable that is pulled out.

This process, the service and two nodes have one network of their own, the third node another; a
pair of virtual interfaces joins them. While one is down, what is sent is lost without a word, as
on a real network: no connection is refused or closed. Prints what is found, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chaos.checks import read_marks, violations
from tests.chaos.fleet import Fleet, Place
from tests.chaos.rounds import ROUND_SECONDS, TEMPO, TWO_NODES, commands, settle
from tests.chaos.server import wait_until

_HERE, _THERE = "10.77.0.1", "10.77.0.2"
FAR = 0
IN_A_NETWORK = ("unshare", "-n")


def main() -> int:
    """Cut the far node off, and say what came of it."""
    folder = Path(sys.argv[1])
    os.environ["MESHWRIGHT_ALLOWED_HOSTS"] = f"localhost,127.0.0.1,{_HERE}"
    with far_network() as prefix:
        fleet = Fleet(folder, tempo=TEMPO)
        try:
            far = Place(prefix=prefix, server_host=_HERE)
            fleet.start(commands(folder), node_count=3, places={FAR: far})
            print(json.dumps(played(fleet)))  # noqa: T201
        finally:
            fleet.close()
    return 0


@contextmanager
def far_network() -> Iterator[tuple[str, ...]]:
    """Have a network that is joined to this one; yield what starts a command in it."""
    command = [*IN_A_NETWORK, "sh", "-c", "echo; exec sleep 1000"]
    keeper = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert keeper.stdout is not None
    keeper.stdout.readline()
    prefix = ("nsenter", "-t", str(keeper.pid), "-n")
    try:
        ip("link set lo up")
        ip("link add near type veth peer name far")
        ip(f"link set far netns {keeper.pid}")
        ip(f"addr add {_HERE}/24 dev near")
        ip("link set near up")
        for words in ("link set lo up", f"addr add {_THERE}/24 dev far", "link set far up"):
            ip(words, prefix=prefix)
        yield prefix
    finally:
        keeper.kill()
        keeper.wait()
        keeper.stdout.close()


def ip(words: str, *, prefix: tuple[str, ...] = ()) -> None:
    subprocess.run([*prefix, "ip", *words.split()], check=True)


def played(fleet: Fleet) -> dict[str, Any]:
    """Pull the cable while the run trains, and put it back when others have the run."""
    run_id = fleet.run(fleet.plan(TWO_NODES), command="work", restart_limit=9, replan=False)
    marks = fleet.folder / "marks" / run_id
    hold = marks.with_suffix(".hold")
    hold.parent.mkdir(exist_ok=True)
    hold.touch()
    wait_until(lambda: len(read_marks(marks)) == 2, ROUND_SECONDS, "the run does not begin")
    was_at_work = fleet.nodes[FAR].is_at_work
    ip("link set near down")
    wait_until(
        lambda: any(mark.epoch > 1 for mark in read_marks(marks)), ROUND_SECONDS, "it is not leased"
    )
    ip("link set near up")
    hold.unlink()
    run = fleet.wait_for(run_id, set(), ROUND_SECONDS)
    settle(fleet)
    return {
        "was_at_work": was_at_work,
        "state": run["state"],
        "epoch": run["epoch"],
        "losses": violations(fleet, run_id, marks, lease_seconds=TEMPO.lease),
    }


if __name__ == "__main__":
    sys.exit(main())
