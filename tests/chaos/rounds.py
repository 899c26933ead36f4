"""Rounds: a run on two of three agents in each, with one or two faults, and then the checks.

The third agent is there to be given what is not the others' any more: a run that is leased too
early then runs twice at once.
"""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.checks import violations
from tests.chaos.databases import Kind
from tests.chaos.faults import DAY_SECONDS, Faults
from tests.chaos.fleet import FINAL, Fleet
from tests.chaos.server import ROOT, Tempo, wait_until

TEMPO = Tempo(heartbeat=0.5, lease=4.0, poll=2.0, acknowledge=4.0)
STEP_COUNT = 40
STEP_SECONDS = 0.05
ROUND_SECONDS = 900.0
_QUIET_SECONDS = 600.0
_SECOND_FAULT_RATIO = 0.35
_WHILE_TRAINING_RATIO = 0.8
_HELD_RATIO = 0.5
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a round: how its run ended, after how many epochs, and what was lost."""

    faults: tuple[str, ...]
    state: str
    epochs: int
    seconds: float
    losses: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """What happened in all rounds."""

    rounds: int = 0
    databases: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    epochs: int = 0
    losses: list[str] = field(default_factory=list)

    def add(self, number: int, played: Played, database: str) -> None:
        """Count a round."""
        self.rounds += 1
        self.databases[database] += 1
        self.faults.update(played.faults)
        self.ends[played.state] += 1
        self.epochs += played.epochs
        faults = ", ".join(played.faults)
        self.losses += [f"round {number} ({faults}): {text}" for text in played.losses]

    def lines(self) -> list[str]:
        """Return it for people."""
        databases = ", ".join(f"{name} {count}" for name, count in sorted(self.databases.items()))
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        ends = ", ".join(f"{state} {count}" for state, count in sorted(self.ends.items()))
        return [
            f"rounds {self.rounds} ({databases}), epochs {self.epochs}, ends: {ends}",
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
    databases: Sequence[Kind] = ("sqlite",),
    root: Path = ROOT,
) -> Tally:
    """Return the tally of `rounds` rounds of faults, drawn from `seed`; fewer if time runs out.

    There is a fleet for each of `databases`, and they play at the same time: rounds mostly wait.
    What befalls a round follows from its number, whichever fleet plays it.
    """
    lanes = _Lanes(
        tally=Tally(), numbers=iter(range(rounds)), seed=seed, say=say, kinds=kinds,
        until=time.monotonic() + seconds_limit, root=root,
    )  # fmt: skip
    threads = []
    for index, database in enumerate(databases):
        own = folder / f"{index}-{database}"
        own.mkdir()
        thread = threading.Thread(target=lanes.play, args=(own, database))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    return lanes.tally


@dataclass(slots=True, kw_only=True)
class _Lanes:
    """Fleets that take rounds from one queue."""

    tally: Tally
    numbers: Iterator[int]
    seed: int
    say: Callable[[str], None]
    kinds: Sequence[str] | None
    until: float
    root: Path
    lock: threading.Lock = field(default_factory=threading.Lock)

    def play(self, folder: Path, database: Kind) -> None:
        """Play rounds with a fleet in `folder` until none is left; what ends it is a loss."""
        fleet = Fleet(folder, tempo=TEMPO, database=database, root=self.root)
        try:
            fleet.start(commands(folder), node_count=3, seed=self.seed)
            plan_id = fleet.plan(TWO_NODES)
            for node, days in zip(fleet.nodes, (-0.7, 0.9, 0.1), strict=True):
                node.clock.set_by(days * DAY_SECONDS)
            while (number := self._next()) is not None:
                chance = random.Random(f"{self.seed}/{number}")  # noqa: S311 - to be drawn again
                played = one_round(fleet, plan_id, chance=chance, kinds=self.kinds)
                self._add(number, played, database)
        except Exception as error:  # noqa: BLE001 - whatever it was, it is told
            with self.lock:
                self.tally.losses.append(f"the fleet on {database} ended: {error!r}")
        finally:
            fleet.close()

    def _next(self) -> int | None:
        with self.lock:
            return None if time.monotonic() > self.until else next(self.numbers, None)

    def _add(self, number: int, played: Played, database: Kind) -> None:
        faults = ", ".join(played.faults)
        with self.lock:
            self.tally.add(number, played, database)
            self.say(
                f"round {number} on {database}: {faults}; {played.state}; {played.seconds:.1f} s; "
                f"{len(played.losses)} losses"
            )
            for text in played.losses:
                self.say(f"  {text}")


def one_round(
    fleet: Fleet, plan_id: str, *, chance: random.Random, kinds: Sequence[str] | None
) -> Played:
    """Play one round, and return what came of it."""
    began = time.monotonic()
    faults = Faults(fleet, chance, lease_seconds=TEMPO.lease)
    run_id = fleet.run(plan_id, command="work", restart_limit=1000, replan=False)
    marks = fleet.folder / "marks" / run_id
    drawn = [chance.choice(list(kinds or faults.kinds))]
    if chance.random() < _SECOND_FAULT_RATIO:
        drawn.append(chance.choice(list(kinds or faults.kinds)))
    hold = marks.with_suffix(".hold")
    if chance.random() < _HELD_RATIO or not faults.outlast_runs.isdisjoint(drawn):
        hold.parent.mkdir(exist_ok=True)
        hold.touch()
    for kind in drawn:
        # Mostly while it trains; else at any moment: queued, being leased, ending.
        if chance.random() < _WHILE_TRAINING_RATIO:
            wait_until(
                lambda: any(marks.glob("*")) or ended(fleet, run_id), ROUND_SECONDS, "no start"
            )
        time.sleep(chance.uniform(0.0, 0.9 * STEP_COUNT * STEP_SECONDS))
        faults.kinds[kind](run_id, marks)
    hold.unlink(missing_ok=True)
    state, epochs = "lost", 0
    try:
        run = fleet.wait_for(run_id, set(), ROUND_SECONDS)
        state, epochs = run["state"], run["epoch"]
        settle(fleet)
        found = violations(fleet, run_id, marks, lease_seconds=TEMPO.lease)
    except AssertionError as error:
        found = [f"{run_id}: {error}"]
    return Played(
        faults=tuple(drawn),
        state=state,
        epochs=epochs,
        seconds=time.monotonic() - began,
        losses=tuple(found),
    )


def ended(fleet: Fleet, run_id: str) -> dict[str, object] | None:
    """Return the run if it is over."""
    run = fleet.state(run_id)
    return run if run["state"] in FINAL else None


def settle(fleet: Fleet) -> None:
    """Wait until no agent works on anything: what is left of the run must end by itself."""

    def idle() -> bool:
        return not any(node.is_at_work for node in fleet.nodes)

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
