"""Safety: what plans that fit with a chance of 95 % cost, beside plans held to the headroom alone.

    python -m benchmarks.safety

plans well-known models on well-known clusters both ways, the fastest plan each time, and writes the
table of docs/predicted-memory.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median

from benchmarks.page import DOCS, put
from planner import planning
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job, Limits
from planner.schema.plan import Plan
from planner.version import planner_version

PAGE = DOCS / "predicted-memory.md"
_SAME = 5e-5
_A100, _A100_40, _H100 = "a100-sxm4-80gb", "a100-sxm4-40gb", "h100-sxm5-80gb"
_RTX_4090 = "rtx-4090-24gb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model on nodes of eight devices of one kind."""

    model: str
    device: str
    node_count: int
    global_batch_size: int
    sequence_length: int = 4096

    @property
    def cluster(self) -> str:
        """Return the cluster in short."""
        return f"{self.node_count}x8x{self.device}"

    def plan(
        self, *, chance: float | None, seconds: float, simplicity_ratio: float = 0.0
    ) -> Plan | None:
        """Return the plan with that chance of fitting, `None` if there is none."""
        limits = Limits(
            fits_probability=chance, solver_seconds=seconds, simplicity_ratio=simplicity_ratio
        )
        job = Job(
            global_batch_size=self.global_batch_size,
            sequence_length=self.sequence_length,
            limits=limits,
        )
        answer = planning.plan(resolved_model(self.model), resolved_cluster(self.cluster), job)
        return answer if isinstance(answer, Plan) else None


def _case(
    model: str, device: str, node_count: int, *, batch: int = 256, tokens: int = 4096
) -> Case:
    return Case(
        model=model,
        device=device,
        node_count=node_count,
        global_batch_size=batch,
        sequence_length=tokens,
    )


CASES = (
    _case("llama-3-8b", _H100, 1, batch=512),
    _case("llama-3-8b", _H100, 1, batch=128, tokens=8192),
    _case("llama-3-8b", _A100, 1, batch=128, tokens=8192),
    _case("llama-3-8b", _A100_40, 1, batch=128),
    _case("llama-2-7b", _A100_40, 1, batch=128),
    _case("llama-2-7b", _RTX_4090, 1, batch=128),
    _case("mistral-7b", _H100, 2),
    _case("qwen2-7b", _A100, 1),
    _case("qwen3-8b", _H100, 1),
    _case("gemma-2-9b", _A100, 1),
    _case("gemma-3-27b", _H100, 2),
    _case("gpt2-xl", _A100_40, 1, batch=512, tokens=1024),
    _case("llama-3-70b", _H100, 4),
    _case("llama-3-70b", _H100, 8, batch=512),
    _case("llama-3-70b", _A100, 8, batch=512),
    _case("llama-3-70b", _A100_40, 16, batch=512),
    _case("gpt-3-175b", _A100, 16, batch=1536, tokens=2048),
    _case("gpt-3-175b", _H100, 64, batch=1536, tokens=2048),
    _case("mixtral-8x7b", _H100, 4),
    _case("mixtral-8x7b", _A100, 8, batch=512),
    _case("qwen3-30b-a3b", _H100, 2),
    _case("qwen3-235b-a22b", _H100, 16, batch=512),
    _case("gpt-oss-120b", _H100, 8, batch=512),
    _case("llama-3.1-405b", _H100, 64, batch=512),
    _case("deepseek-v3", _H100, 128, batch=2048),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A case's plan without and with the chance that is asked for."""

    case: Case
    bare: Plan
    safe: Plan | None

    @property
    def cost_ratio(self) -> float | None:
        """Return by how much the step of the likelier plan is longer."""
        if self.safe is None:
            return None
        steps = [plan.prediction.step_seconds.p50 for plan in (self.bare, self.safe)]
        return steps[1] / steps[0] - 1.0

    @property
    def is_proven(self) -> bool:
        """Return whether both plans are optimal."""
        plans = [plan for plan in (self.bare, self.safe) if plan is not None]
        return all(plan.certificate.status == "optimal" for plan in plans)


def main() -> None:
    """Write the table of all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chance", type=float, default=0.95)
    parser.add_argument("--seconds", type=float, default=60.0, help="of search for each plan")
    given = parser.parse_args()
    pairs = []
    for case in CASES:
        bare = case.plan(chance=None, seconds=given.seconds)
        if bare is None:
            raise RuntimeError(f"{case.model} does not fit on {case.cluster}")
        safe = case.plan(chance=given.chance, seconds=given.seconds)
        pairs.append(Pair(case=case, bare=bare, safe=safe))
        print(_row(pairs[-1]), flush=True)
    put("safety", _table(pairs, chance=given.chance, seconds=given.seconds), page=PAGE)


def _table(pairs: Sequence[Pair], *, chance: float, seconds: float) -> Iterator[str]:
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    yield (
        f"`python -m benchmarks.safety --seconds {seconds:g}` on {today}, version "
        f"{planner_version()}:"
    )
    yield ""
    yield (
        "| model | cluster | batch x tokens | step, headroom alone | its chance | "
        f"step at {chance:.0%} | its chance | longer by |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    yield from (_row(pair) for pair in pairs)
    yield ""
    yield _summary(pairs, chance=chance)


def _row(pair: Pair) -> str:
    case, safe, cost = pair.case, pair.safe, pair.cost_ratio
    cells = [
        case.model,
        case.cluster,
        f"{case.global_batch_size} x {case.sequence_length}",
        *_cells(pair.bare),
        *(["no plan", ""] if safe is None else _cells(safe)),
        "" if cost is None else f"{cost:.1%}",
    ]
    return f"| {' | '.join(cells)} |"


def _cells(plan: Plan) -> list[str]:
    """Return the step and the chance."""
    found = plan.prediction
    return [f"{found.step_seconds.p50:.4g} s", f"{found.fits_probability:.1%}"]


def _summary(pairs: Sequence[Pair], *, chance: float) -> str:
    costs = [pair.cost_ratio for pair in pairs if pair.cost_ratio is not None]
    free = sum(cost < _SAME for cost in costs)
    chances = [pair.bare.prediction.fits_probability for pair in pairs]
    risky = sum(one < chance for one in chances)
    proven = sum(pair.is_proven for pair in pairs)
    lost = len(pairs) - len(costs)
    end = f" {lost} of them have no plan with that chance." if lost else ""
    return (
        f"Of {len(pairs)} plans held to the headroom alone, {risky} have a chance below "
        f"{chance:.0%}, the least {min(chances):.1%}. "
        f"{chance:.0%} costs nothing in {free} cases, {median(costs):.1%} of the step in the "
        f"median, {mean(costs):.1%} in the mean and {max(costs):.1%} at most. "
        f"Both plans are proven optimal in {proven} cases.{end}"
    )


if __name__ == "__main__":
    main()
