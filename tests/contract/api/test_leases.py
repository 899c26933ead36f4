"""Leases: all agents of a run or none, fenced by epochs, and nothing is stored twice."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from api.repositories.clock import current_time
from api.services.watch import Watch
from api.tables import LeaseRow
from planner.schema.plan import Plan
from tests.contract.api.agents_at_work import (
    AT_WORK,
    AgentAtWork,
    a_gang_plan,
    a_run,
    age,
    launch,
    leased,
    pass_time,
    running,
    state_of,
    sweeper_of,
    two_agents,
    two_nodes,
)
from tests.contract.api.minutes import in_one_minute

APPLICATION = AT_WORK
SMALL_JOB = {"global_batch_size": 16, "sequence_length": 128}


def test_a_run_on_two_nodes_is_not_leased_to_one(client):
    agent = AgentAtWork.enrolled(client)
    agent.poll()
    run_id = a_run(client)

    run = client.get(f"/v1/runs/{run_id}").json()

    assert (run["state"], run["epoch"], run["leases"]) == ("queued", 0, [])
    assert "2 nodes with 4 x h100-sxm5-80gb" in run["waiting_for"]
    assert "(1 idle)" in run["waiting_for"]
    assert agent.poll().status_code == 204


def test_a_gang_gets_consecutive_ranks_and_one_rendezvous(client):
    run_id, first, second = leased(client, arguments={"lr": 0.1, "name": "x; rm -rf /"})

    assert first.lease["run_id"] == second.lease["run_id"] == run_id
    assert (first.lease["ranks"], second.lease["ranks"]) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert [agent.lease["node_rank"] for agent in (first, second)] == [0, 1]
    assert {agent.lease["node_count"] for agent in (first, second)} == {2}
    assert {agent.lease["master_address"] for agent in (first, second)} == {"node-a.cluster.test"}
    assert first.lease["master_port"] == second.lease["master_port"]
    assert first.lease["arguments"] == {"lr": 0.1, "name": "x; rm -rf /"}
    assert not first.lease["resume"]
    assert Plan.model_validate(first.lease["plan"]).strategy.world_size == 8


def test_a_run_is_leased_only_to_agents_that_allow_its_command(client):
    two_agents(client)

    run_id = a_run(client, command="finetune")

    assert state_of(client, run_id) == "queued"
    for name in ("node-c", "node-d"):
        AgentAtWork.enrolled(client, name, commands=["finetune"]).poll()
    assert state_of(client, run_id) == "starting"


def test_nobody_launches_before_all_are_ready(client):
    run_id, first, second = leased(client)

    assert not first.beat("ready").json()["go"]
    assert not second.beat("preparing").json()["go"]
    refused = first.beat("running")
    assert refused.status_code == 409
    assert refused.json()["type"].endswith("not-launched")
    assert state_of(client, run_id) == "starting"

    assert second.beat("ready").json()["go"]
    assert first.beat("ready").json()["go"]
    assert state_of(client, run_id) == "running"


def test_the_port_that_node_0_found_free_is_told_to_all(client):
    _, first, second = leased(client)

    second.beat("ready", master_port=1111)
    first.beat("ready", master_port=29123)

    assert second.beat("ready").json()["master_port"] == 29123
    assert second.beat("running").json()["master_port"] == 29123


def test_heartbeats_go_only_forwards(client):
    _, first, _ = running(client)
    first.beat("running", progress={"step": 7, "checkpoint_step": 5})

    late = first.beat("ready", progress={"step": 3})

    assert (late.status_code, late.json()["state"]) == (200, "running")
    run = client.get(f"/v1/runs/{first.lease['run_id']}").json()
    assert (run["step"], run["checkpoint_step"]) == (7, 5)


def test_a_heartbeat_extends_the_lease_by_the_services_clock(client):
    run_id, first, second = running(client)
    for _ in range(3):
        age(client, 50)
        assert first.beat("running").status_code == 200
        assert second.beat("running").status_code == 200
        sweeper_of(client).sweep()

    assert state_of(client, run_id) == "running"


def test_a_service_that_just_started_lets_no_lease_expire(client):
    """It could not have heard of the agents while it was away."""
    run_id, first, _ = running(client)
    age(client, 1000)

    client.app.state.agent_services.sweeper.sweep()

    assert state_of(client, run_id) == "running"
    assert first.beat("running").status_code == 200


@pytest.mark.parametrize("epoch", [2, 99])
def test_what_names_another_epoch_is_stale_and_writes_nothing(client, epoch):
    _, first, _ = running(client)

    answers = [
        first.beat("running", epoch=epoch, progress={"step": 9}),
        first.log(0, "lost", epoch=epoch),
        first.metrics(0, 1, epoch=epoch),
        first.result("succeeded", epoch=epoch),
    ]

    assert {answer.status_code for answer in answers} == {409}
    assert {answer.json()["type"] for answer in answers} == {"urn:meshwright:problem:stale-lease"}
    run = client.get(f"/v1/runs/{first.lease['run_id']}").json()
    assert (run["state"], run["step"]) == ("running", None)
    assert first.log(0, "x").json() == {"acknowledged_offset": 1}
    assert first.metrics(0, 1).json() == {"acknowledged_sequence": 1}


def test_a_lost_lease_writes_nothing_any_more(client):
    run_id, first, second = running(client)
    pass_time(client, 61, but=(first,))

    answers = [
        second.beat("running"),
        second.log(0, "late"),
        second.metrics(0, 1),
        second.result("succeeded"),
    ]

    assert {answer.status_code for answer in answers} == {409}
    assert state_of(client, run_id) == "stopping"
    assert client.get(f"/v1/runs/{run_id}/logs?node=1").json()["text"] == ""


def test_a_lease_of_another_agent_does_not_exist(client):
    _, first, second = running(client)
    first.headers = second.headers

    assert first.beat("running").status_code == 404


def test_a_log_is_stored_once_whatever_comes_twice_or_overlaps(client):
    _, first, _ = running(client)

    acknowledged = [
        first.log(offset, text).json()["acknowledged_offset"]
        for offset, text in [(0, "héllo "), (0, "héllo "), (3, "llo wor"), (20, "gap"), (10, "ld")]
    ]

    assert acknowledged == [7, 7, 10, 10, 12]
    log = client.get(f"/v1/runs/{first.lease['run_id']}/logs").json()
    assert (log["text"], log["end_offset"], log["complete"]) == ("héllo world", 12, False)


def test_a_log_may_be_read_from_any_byte(client):
    _, first, _ = running(client)
    first.log(0, "one\n")
    first.log(4, "zwö\n")
    run_id = first.lease["run_id"]

    tail = client.get(f"/v1/runs/{run_id}/logs?offset=7").json()

    assert (tail["text"], tail["end_offset"]) == ("\n", 9)
    nothing = client.get(f"/v1/runs/{run_id}/logs?offset=50").json()
    assert (nothing["text"], nothing["end_offset"]) == ("", 50)
    assert client.get(f"/v1/runs/{run_id}/logs?node=2").status_code == 404


def test_an_offset_inside_a_character_is_refused(client):
    _, first, _ = running(client)
    first.log(0, "a")

    answer = first.log(0, "é")

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "offset"


def test_a_nul_in_a_log_keeps_its_byte(client):
    _, first, _ = running(client)

    assert first.log(0, "a\0b").json() == {"acknowledged_offset": 3}
    log = client.get(f"/v1/runs/{first.lease['run_id']}/logs").json()
    assert log["text"] == "a\x1ab"


@pytest.mark.parametrize("seed", range(5))
def test_logs_in_any_order_end_up_whole_when_sent_from_what_is_acknowledged(client, seed):
    """Pieces come twice, overlap, or overtake those before them: none that leaves a gap counts."""
    chance = random.Random(seed)  # noqa: S311
    _, first, _ = running(client)
    content = "".join(chance.choice("aé日\n") for _ in range(60))
    data = content.encode()
    bounds = [len(content[:i].encode()) for i in range(len(content) + 1)]
    stored = 0
    while stored < len(data):
        start = chance.choice([*bounds[:-1], *[stored] * 20])
        end = chance.choice([b for b in bounds if b > start])
        answer = first.log(start, data[start:end].decode())
        stored = max(stored, end) if start <= stored else stored
        assert answer.json()["acknowledged_offset"] == stored

    log = client.get(f"/v1/runs/{first.lease['run_id']}/logs").json()
    assert log["text"] == content


def test_metrics_are_stored_once_in_order(client):
    _, first, _ = running(client)

    acknowledged = [
        first.metrics(sequence, *steps).json()["acknowledged_sequence"]
        for sequence, steps in [(0, (1, 2)), (0, (1, 2)), (1, (2, 3)), (5, (6,)), (3, (4,))]
    ]

    assert acknowledged == [2, 2, 3, 3, 4]
    metrics = client.get(f"/v1/runs/{first.lease['run_id']}/metrics").json()
    assert [row["step"] for row in metrics["items"]] == [1, 2, 3, 4]


def test_metrics_that_come_twice_at_once_are_stored_once(client):
    _, first, _ = running(client)

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: first.metrics(0, 1, 2, 3).json(), range(8)))

    assert answers == [{"acknowledged_sequence": 3}] * 8
    metrics = client.get(f"/v1/runs/{first.lease['run_id']}/metrics").json()
    assert [row["step"] for row in metrics["items"]] == [1, 2, 3]


def test_a_result_is_put_once(client):
    run_id, first, second = running(client)

    assert first.result("succeeded", report={"a": 1}).json() == {"state": "succeeded"}
    assert first.result("succeeded", report={"a": 1}).status_code == 200
    other = first.result("failed", reason="or not")
    assert other.status_code == 409
    assert other.json()["type"].endswith("result-conflict")
    assert first.beat("running").status_code == 409
    second.result("succeeded")
    assert first.result("succeeded", report={"a": 1}).status_code == 200

    assert state_of(client, run_id) == "succeeded"
    assert client.get(f"/v1/runs/{run_id}/result").json()["report"] == {"a": 1}


def test_an_agent_that_was_restarted_learns_what_it_is_believed_to_run(client):
    run_id, first, second = running(client)

    again = first.poll().json()

    assert again["state"] == "running"
    first.result("failed", reason="the agent was restarted")
    assert second.beat("running").json()["stop"]
    second.result("stopped")
    assert client.get(f"/v1/runs/{run_id}").json()["restart_count"] == 1


def test_an_agent_of_a_scheduler_takes_all_nodes_in_one_lease(client):
    agent = AgentAtWork.enrolled(client, "login", node_count=16, launcher="slurm")
    agent.poll()
    run_id = a_run(client)

    agent.poll()

    lease = agent.lease
    assert (lease["node_rank"], lease["node_count"], lease["node_span"]) == (0, 2, 2)
    assert lease["ranks"] == list(range(8))
    assert agent.beat("ready").json()["go"]
    agent.result("succeeded")
    assert state_of(client, run_id) == "succeeded"


def test_a_node_with_too_few_devices_is_given_nothing(client):
    device = {"index": 0, "name": "h100-sxm5-80gb"}
    for name in ("small-a", "small-b"):
        AgentAtWork.enrolled(client, name, devices=[device] * 3).poll()

    assert state_of(client, a_run(client)) == "queued"


def test_the_drivers_name_of_a_device_will_do(client):
    names = ["NVIDIA H100 80GB HBM3"] * 4
    devices = [{"index": index, "name": name} for index, name in enumerate(names)]
    for name in ("node-a", "node-b"):
        AgentAtWork.enrolled(client, name, devices=devices).poll()

    assert state_of(client, a_run(client)) == "starting"


def test_agents_of_one_place_are_leased_together(client):
    for name, rack in [("n1", "r2"), ("n2", "r1"), ("n3", "r2"), ("n4", "r1")]:
        AgentAtWork.enrolled(client, name, topology={"location": [rack]}).poll()

    run = client.get(f"/v1/runs/{a_run(client)}").json()

    assert [lease["agent_name"] for lease in run["leases"]] == ["n2", "n4"]


@pytest.mark.slow
def test_claims_at_once_by_several_processes_lease_nothing_twice(make_app, database):
    """Ten runs of two nodes, six agents, three applications with four threads each."""
    apps = [make_app(**AT_WORK) for _ in range(3)]
    clients = [TestClient(app) for app in apps]
    agents = [AgentAtWork.enrolled(clients[i % 3], f"node-{i}") for i in range(6)]
    with clients[0] as started:
        plan_id = a_gang_plan(started)
        run_ids = [a_run(started, plan_id) for _ in range(10)]

        def work(index):
            agent = agents[index % 6]
            for _ in range(40):
                if agent.poll().status_code == 200 and agent.beat("ready").json()["go"]:
                    agent.result("succeeded")
                if all(state_of(started, run_id) == "succeeded" for run_id in run_ids):
                    break

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(work, range(6)))

    with database.reading() as session:
        leases = session.scalars(select(LeaseRow)).all()
    assert {lease.state for lease in leases} == {"succeeded"}
    assert len({(lease.run_id, lease.epoch, lease.node_rank) for lease in leases}) == 20
    assert len(leases) == 20
    spans = sorted((lease.agent_id, lease.offered_at, lease.ended_at) for lease in leases)
    for (agent, _, ended), (next_agent, offered, _) in pairwise(spans):
        assert agent != next_agent or offered >= ended


def test_a_launch_that_is_seen_ready_by_two_at_once_starts(client):
    run_id, first, second = leased(client)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda agent: agent.beat("ready"), (first, second)))

    assert state_of(client, run_id) == "running"
    launch(first, second)


def a_small_plan(client):
    """Return a plan for one node; made before agents wait, who are not waited for long."""
    group = {**two_nodes()["node_groups"][0], "node_count": 1}
    request = {"model": "tiny", "cluster": two_nodes(node_groups=[group]), "job": SMALL_JOB}
    return client.post("/v1/plans", json=request).json()["id"]


def test_a_small_run_overtakes_a_gang_that_waits_for_agents(client):
    small_plan = a_small_plan(client)
    agent = AgentAtWork.enrolled(client)
    agent.poll()
    gang = a_run(client)
    small = a_run(client, small_plan)

    assert (state_of(client, gang), state_of(client, small)) == ("queued", "starting")


def test_a_gang_that_has_waited_long_has_agents_kept_for_it(client):
    """One node after the other comes free, and small runs do not take them for ever."""
    small_plan = a_small_plan(client)
    first, second = two_agents(client)
    busy = a_run(client, small_plan)
    holder, idle = sorted((first, second), key=lambda agent: agent.poll().status_code)
    gang = a_run(client)
    age(client, 601)
    idle.poll()

    small = a_run(client, small_plan)

    assert (state_of(client, gang), state_of(client, small)) == ("queued", "queued")
    waiting = client.get(f"/v1/runs/{small}").json()["waiting_for"]
    assert "1 idle agents are kept for a run that waits longer" in waiting
    launch(holder)
    holder.result("succeeded")
    assert state_of(client, busy) == "succeeded"
    holder.poll()
    assert (state_of(client, gang), state_of(client, small)) == ("starting", "queued")


def test_a_run_that_no_agents_could_ever_take_holds_nobody_up(client):
    small_plan = a_small_plan(client)
    agent = AgentAtWork.enrolled(client)
    agent.poll()
    gang = a_run(client)
    age(client, 601)
    agent.poll()

    small = a_run(client, small_plan)

    assert (state_of(client, gang), state_of(client, small)) == ("queued", "starting")


@pytest.mark.parametrize("set_by_seconds", [-3600, 3600])
def test_no_lease_expires_because_the_services_clock_was_set(client, database, set_by_seconds):
    """Time that nobody lived through takes no lease, and what was set back prolongs none."""
    run_id, first, second = running(client)
    sweeper = sweeper_of(client)
    sweeper._watch = Watch(gap_seconds=1e9, step_seconds=5)
    sweeper.sweep()
    age(client, set_by_seconds)
    sweeper._watch._ahead_seconds -= set_by_seconds
    sweeper._watch._since -= 61

    sweeper.sweep()

    assert state_of(client, run_id) == "running"
    if set_by_seconds < 0:
        sweeper._watch._since -= 61
        sweeper.sweep()
        with database.reading() as session:
            ends = session.scalars(select(LeaseRow.expires_at)).all()
            assert max(ends) <= current_time(session) + timedelta(seconds=60)
    assert [agent.beat("running").status_code for agent in (first, second)] == [200, 200]


def test_an_agent_that_asks_too_often_is_told_to_wait(make_client):
    with make_client(agent_requests_per_minute=3, **AT_WORK) as client:

        def polls():
            agent = AgentAtWork.enrolled(client)
            return [agent.poll() for _ in range(4)]

        answers = in_one_minute(polls)

    assert [answer.status_code for answer in answers] == [204, 204, 204, 429]
    assert int(answers[3].headers["Retry-After"]) >= 1
