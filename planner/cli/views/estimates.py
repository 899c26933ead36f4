"""Many estimates, as a person reads them: one row each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from planner.answers.chance_words import chance_words, fit_words
from planner.errors import InputError
from planner.schema.plan import Estimate
from planner.schema.strategy import Strategy
from planner.units import format_bytes, format_seconds


def estimates_view(answers: Sequence[Estimate | InputError]) -> Table:
    """Return one row per answer, in order; an illegal strategy's row says what is wrong."""
    table = Table(box=None, pad_edge=False)
    for heading in ("#", "strategy", "step", "MFU", "peak", "memory"):
        table.add_column(heading, justify="left" if heading == "strategy" else "right")
    for index, answer in enumerate(answers):
        if isinstance(answer, InputError):
            table.add_row(str(index), Text(str(answer), style="red"))
            continue
        prediction = answer.prediction
        table.add_row(
            str(index),
            degrees(answer.strategy),
            format_seconds(prediction.step_seconds.p50),
            f"{prediction.model_flop_utilization:.1%}",
            format_bytes(max(stage.peak_memory_bytes for stage in prediction.stages)),
            Text(
                f"{fit_words(prediction)} ({chance_words(prediction, answer.job.resolved.limits)})",
                style="" if prediction.fits else "red",
            ),
        )
    return table


def degrees(strategy: Strategy) -> str:
    """Return the degrees above one and the micro-batches: `tp 8, pp 4, dp 2, 16 x 1`."""
    named = {
        "tp": strategy.tensor_parallel_degree,
        "pp": strategy.pipeline_parallel_degree,
        "cp": strategy.context_parallel_degree,
        "ep": strategy.expert_parallel_degree,
        "dp": strategy.shard_degree * strategy.replicate_degree,
    }
    parts = [f"{name} {degree}" for name, degree in named.items() if degree > 1]
    batches = f"{strategy.micro_batch_count} x {strategy.micro_batch_size}"
    return ", ".join([*parts, batches])
