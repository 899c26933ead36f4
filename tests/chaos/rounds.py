"""Rounds: a run on two agents in each, with one or two faults, and then the checks."""

from __future__ import annotations

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.checks import violations
from tests.chaos.faults import Faults
from tests.chaos.fleet import FINAL, Fleet, Tempo, wait_until

TEMPO = Tempo(heartbeat=0.5, lease=4.0, poll=2.0, acknowledge=4.0)
STEP_COUNT = 60
STEP_SECONDS = 0.05
ROUND_SECONDS = 150.0
_QUIET_SECONDS = 30.0
_SECOND_FAULT_RATIO = 0.35
_WHILE_TRAINING_RATIO = 0.8
WORKER = Path(__file__).with_name("worker.py")
TWO_NODES = {
    "model": {
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
        "max_position_embeddings": 64,
    },
    "cluster": {
        "name": "pair",
        "node_groups": [
            {"name": "cpu", "device": "cpu-gloo", "node_count": 2, "devices_per_node": 2}
        ],
    },
    "job": {"global_batch_size": 8, "sequence_length": 32, "precision": "fp32"},
}  # fmt: skip


@dataclass(slots=True)
class Tally:
    """What happened in all rounds."""

    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    epochs: int = 0
    losses: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return it for people."""
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        ends = ", ".join(f"{state} {count}" for state, count in sorted(self.ends.items()))
        return [
            f"rounds {self.rounds}, epochs {self.epochs}, ends: {ends}",
            f"faults {sum(self.faults.values())}: {faults}",
            f"losses {len(self.losses)}",
            *self.losses,
        ]


def play(
    folder: Path,
    *,
    rounds: int,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
    kinds: Sequence[str] | None = None,
    seconds_limit: float = math.inf,
) -> Tally:
    """Return the tally of `rounds` rounds of faults, drawn from `seed`; fewer if time runs out."""
    until = time.monotonic() + seconds_limit
    fleet = Fleet(folder, tempo=TEMPO)
    tally = Tally()
    try:
        fleet.start(commands(folder), node_count=2, seed=seed)
        plan_id = fleet.plan(TWO_NODES)
        for number in range(rounds):
            if time.monotonic() > until:
                break
            chance = random.Random(f"{seed}/{number}")  # noqa: S311 - to be drawn again
            one_round(fleet, plan_id, tally, chance=chance, say=say, kinds=kinds)
    finally:
        fleet.close()
    return tally


def one_round(
    fleet: Fleet,
    plan_id: str,
    tally: Tally,
    *,
    chance: random.Random,
    say: Callable[[str], None],
    kinds: Sequence[str] | None,
) -> None:
    """Play one round, and add it to the tally."""
    began = time.monotonic()
    faults = Faults(fleet, chance, lease_seconds=TEMPO.lease)
    run_id = fleet.run(plan_id, command="work", restart_limit=1000, replan=False)
    marks = fleet.folder / "marks" / run_id
    drawn = [chance.choice(list(kinds or faults.kinds))]
    if chance.random() < _SECOND_FAULT_RATIO:
        drawn.append(chance.choice(list(kinds or faults.kinds)))
    for kind in drawn:
        # Mostly while it trains; else at any moment: queued, being leased, ending.
        if chance.random() < _WHILE_TRAINING_RATIO:
            wait_until(
                lambda: any(marks.glob("*")) or ended(fleet, run_id), ROUND_SECONDS, "no start"
            )
        time.sleep(chance.uniform(0.0, 0.9 * STEP_COUNT * STEP_SECONDS))
        faults.kinds[kind](run_id, marks)
    found: list[str] = []
    try:
        run = wait_until(lambda: ended(fleet, run_id), ROUND_SECONDS, f"{run_id} does not end")
        tally.ends[run["state"]] += 1
        tally.epochs += run["epoch"]
        settle(fleet)
        found = violations(fleet, run_id, marks)
    except AssertionError as error:
        found = [f"{run_id}: {error}"]
        tally.ends["lost"] += 1
    tally.rounds += 1
    tally.faults.update(drawn)
    tally.losses += [
        f"round {tally.rounds} ({', '.join(drawn)}) {run_id}: {text}" for text in found
    ]
    took = time.monotonic() - began
    say(f"round {tally.rounds}: {', '.join(drawn)}; {took:.1f} s; {len(found)} losses")
    for text in found:
        say(f"  {text}")


def ended(fleet: Fleet, run_id: str) -> dict[str, object] | None:
    """Return the run if it is over."""
    run = fleet.state(run_id)
    return run if run["state"] in FINAL else None


def settle(fleet: Fleet) -> None:
    """Wait until no agent works on anything: what is left of the run must end by itself."""

    def idle() -> bool:
        folders = [path for node in fleet.nodes for path in node.folder.glob("runs/*")]
        return all((path / "closed").exists() for path in folders)

    wait_until(idle, _QUIET_SECONDS, "agents do not finish with a run that is over")


def commands(folder: Path) -> str:
    """Return the configuration of the command that rounds run."""
    return f"""
[commands.work]
argv = ["{sys.executable}", "-S", "{WORKER}", "launch", "--marks", "{folder}/marks/{{run}}",
    "--epoch", "{{epoch}}", "--node", "{{node_rank}}", "--steps", "{STEP_COUNT}",
    "--step-seconds", "{STEP_SECONDS}"]
grace_seconds = 0.5
"""
