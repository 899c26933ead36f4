"""Many requests of every kind leave nothing behind: no memory, no files, no threads.

`python -m benchmarks.service --only soak --soak-minutes 30` is the long form.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.contract.api.processes import planned, serving

pytestmark = pytest.mark.slow
REQUEST = {
    "model": "gpt2",
    "cluster": "8xh100-sxm5-80gb",
    "job": {"global_batch_size": 8, "sequence_length": 512},
}
WARMING_COUNT, COUNT = 120, 360
# Caches may still fill; a page of 100 KiB, or four plans of 8 KiB, kept for each six may not.
GROWTH_BYTES_LIMIT = COUNT // 6 * 4 * 8 * 1024


def test_many_requests_leave_nothing_behind(tmp_path):
    url = f"sqlite:///{tmp_path}/meshwright.db"
    with serving(tmp_path / "files", database_url=url) as service:
        process = service.process.pid
        with service.client() as client:
            plan = planned(client, REQUEST).json()["id"]
            send(client, plan, count=WARMING_COUNT)
            before = held(process)
            send(client, plan, count=COUNT)
            after = held(process)

    assert after["memory"] - before["memory"] < GROWTH_BYTES_LIMIT
    assert after["files"] <= before["files"] + 2
    assert after["threads"] <= before["threads"] + 2


def send(client, plan, *, count):
    """Send pages, documents, lists, a known request, a bad one and a stream, in turns."""
    statuses = set()
    for number in range(count):
        match number % 6:
            case 0:
                answer = client.get(f"/plans/{plan}")
            case 1:
                answer = client.get(f"/v1/plans/{plan}")
            case 2:
                answer = client.get("/v1/plans")
            case 3:
                answer = client.post("/v1/plans", json=REQUEST)
            case 4:
                answer = client.post("/v1/plans", json={**REQUEST, "model": f"none-{number}"})
            case _:
                answer = client.get("/metrics")
        statuses.add(answer.status_code)
    assert statuses == {200, 422}


def held(process):
    """Return the bytes in memory, open files and threads of a process."""
    home = Path(f"/proc/{process}")
    pages = int((home / "statm").read_text(encoding="ascii").split()[1])
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "files": len(list((home / "fd").iterdir())),
        "threads": len(list((home / "task").iterdir())),
    }
