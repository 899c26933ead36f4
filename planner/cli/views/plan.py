"""A plan, an estimate or an infeasible answer, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from planner.answers.chance_words import chance_words, fit_words, fitting_words
from planner.answers.comparison import (
    activation_checkpointing,
    blocks_per_stage,
    offload,
    zero_stages,
)
from planner.answers.kernels import kernel_words
from planner.answers.objective_words import alternative_words, proof_words, rival_place, value_words
from planner.answers.simplicity_words import simplicity_words
from planner.cli.views.bars import bar
from planner.cli.views.destinations import destination_lines
from planner.schema.job import Limits, Objective
from planner.schema.plan import (
    Certificate,
    Estimate,
    Explanation,
    Infeasible,
    Plan,
    Prediction,
    SimulatedStep,
    StepBreakdown,
)
from planner.schema.strategy import Strategy
from planner.units import GIB, counted, format_bytes, format_seconds

Answer = Plan | Infeasible

_MOST_OF_THE_LIMIT = 0.9


def answer_view(answer: Answer) -> RenderableType:
    """Return a plan or an infeasible answer to print."""
    match answer:
        case Plan():
            return plan_view(answer)
        case Infeasible():
            return infeasible_view(answer)
        case _:
            assert_never(answer)


def plan_view(plan: Plan) -> RenderableType:
    """Return the plan: strategy, prediction, memory, breakdown, certificate, reasons."""
    return Group(
        Rule(f"[bold]{escape(plan.id)}[/]", align="left"),
        *_request_lines(plan),
        *warning_lines(plan.warnings),
        "",
        _strategy_table(plan.strategy),
        "",
        *_prediction(plan.prediction, plan.job.resolved.limits),
        _certificate_line(plan.certificate),
        *_simplicity_lines(plan),
        *_outside_lines(plan.certificate),
        *_time_lines(plan),
        *_objective_lines(plan.certificate),
        *_explanation(plan.explanation, plan.certificate.objective),
        *(Text(f"  kernels: {words} (--set)") for words in kernel_words(plan)),
        *map(Text, destination_lines(plan.destinations)),
    )


def estimate_view(estimate: Estimate) -> RenderableType:
    """Return the estimate: strategy, prediction, memory, breakdown."""
    return Group(
        Rule("[bold]estimate[/]", align="left"),
        *_request_lines(estimate),
        *warning_lines(estimate.warnings),
        "",
        _strategy_table(estimate.strategy),
        "",
        *_prediction(estimate.prediction, estimate.job.resolved.limits),
        *assumption_lines(estimate.assumptions),
    )


def infeasible_view(answer: Infeasible) -> RenderableType:
    """Return why nothing fits, and what would help."""
    binding = Table(title="What binds", title_justify="left", box=None, pad_edge=False)
    for heading in ("configurations", "limit", "needs at least", "has", "why"):
        binding.add_column(heading)
    for item in answer.binding:
        binding.add_row(
            escape(item.description),
            item.limit.replace("_", " "),
            _optional_bytes(item.required_bytes),
            _optional_bytes(item.capacity_bytes),
            escape(item.reason),
        )
    relaxations: list[RenderableType] = ["", "[bold]What would make it fit[/]"]
    relaxations += [f"  • {escape(change.description)}" for change in answer.relaxations]
    if not answer.relaxations:
        relaxations.append("  neither a single change nor a pair that was tried is enough")
    if answer.relaxations_cut_by_time:
        relaxations.append("  the time ran out while looking: more solver seconds may find others")
    return Group(
        Rule("[bold red]infeasible[/]", align="left"),
        *_request_lines(answer),
        *warning_lines(answer.warnings),
        _none_of(answer.configurations_total, fitting_words(answer.job.resolved.limits)),
        "",
        binding,
        *relaxations,
        *assumption_lines(answer.assumptions),
    )


def warning_lines(warnings: Sequence[str]) -> Iterator[RenderableType]:
    """Yield each warning of an answer on a line."""
    for warning in warnings:
        yield Text(f"warning: {warning}", style="yellow")


def assumption_lines(assumptions: Sequence[str]) -> Iterator[RenderableType]:
    """Yield each assumption of an answer on a line."""
    for assumption in assumptions:
        yield Text(f"  assumed: {assumption}", style="dim")


def _none_of(configurations_total: int, fits: str) -> str:
    if configurations_total == 0:
        return "no configuration is legal: the rules below refuse them"
    if configurations_total == 1:
        return f"no plan of the only configuration {fits}"
    return f"none of {configurations_total} configurations {fits}"


def _request_lines(answer: Answer | Estimate) -> Iterator[str]:
    model, cluster, job = answer.model.resolved, answer.cluster.resolved, answer.job.resolved
    yield (
        f"[bold]{escape(model.name)}[/] ({counted(model.block_count, 'block')}, "
        f"hidden {model.hidden_size}) on [bold]{escape(cluster.name)}[/] "
        f"({counted(cluster.device_count, 'device')})"
    )
    yield (
        f"batch {job.global_batch_size} x {job.sequence_length} tokens, {job.precision}, "
        f"{job.optimizer}, {job.stack}"
    )


def _strategy_table(strategy: Strategy) -> Table:
    facts = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        facts.add_column(style="dim")
        facts.add_column(style="bold")
    pairs = list(_strategy_facts(strategy))
    for start in range(0, len(pairs), 3):
        facts.add_row(*[text for pair in pairs[start : start + 3] for text in pair])
    return facts


def _strategy_facts(strategy: Strategy) -> Iterator[tuple[str, str]]:
    sequence = " + sequence" if strategy.sequence_parallel else ""
    yield "tensor parallel", f"{strategy.tensor_parallel_degree}{sequence}"
    yield "pipeline parallel", str(strategy.pipeline_parallel_degree)
    yield "data parallel", f"{strategy.replicate_degree} x {strategy.shard_degree} shards"
    yield "context parallel", str(strategy.context_parallel_degree)
    yield "expert parallel", str(strategy.expert_parallel_degree)
    yield "schedule", strategy.pipeline_schedule.value
    yield "micro-batches", f"{strategy.micro_batch_count} of {strategy.micro_batch_size}"
    yield "blocks per stage", blocks_per_stage(strategy)
    yield "ZeRO stage", zero_stages(strategy)
    yield "checkpointing", activation_checkpointing(strategy)
    yield "offload", offload(strategy)


def _prediction(prediction: Prediction, limits: Limits) -> Iterator[RenderableType]:
    step = prediction.step_seconds
    cost = prediction.cost_per_million_tokens
    price = "" if cost is None else f", ${cost:.3g} per million tokens"
    yield (
        f"[bold green]{format_seconds(step.p50)}[/] a step "
        f"({format_seconds(step.p10)} to {format_seconds(step.p90)}), "
        f"{prediction.tokens_per_second_per_device:,.0f} tokens/s per device, "
        f"MFU {prediction.model_flop_utilization:.1%}{price}"
    )
    yield from _interval_lines(prediction)
    yield from _simulated(prediction.simulated)
    style = "green" if prediction.fits else "bold red"
    yield f"memory [{style}]{fit_words(prediction)}[/] ({chance_words(prediction, limits)})"
    yield ""
    yield _breakdown_table(prediction.breakdown_seconds)
    yield ""
    yield memory_table(prediction)
    yield ""


def _interval_lines(prediction: Prediction) -> Iterator[str]:
    """Yield why the interval is as wide as it is, where anything says so."""
    if prediction.interval_causes:
        step = prediction.step_seconds
        causes = "; ".join(
            f"{each.cause} ({each.ratio:.0%})" for each in prediction.interval_causes
        )
        yield f"[dim]within {step.p90 / step.p50 - 1.0:.0%} in 4 of 5 runs: {escape(causes)}[/]"


def _simulated(step: SimulatedStep | None) -> Iterator[str]:
    if step is not None:
        yield (
            f"simulated event by event (closed form {step.closed_form_error_ratio:+.1%}), "
            f"bubble {step.bubble_ratio:.1%}"
        )


def _breakdown_table(breakdown: StepBreakdown) -> Table:
    table = Table(title="Where the step goes", title_justify="left", box=None, pad_edge=False)
    table.add_column("cause")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    total = breakdown.total_seconds()
    for name in type(breakdown).model_fields:
        seconds = getattr(breakdown, name)
        if seconds > 0.0:
            share = seconds / total
            table.add_row(
                name.replace("_", " "), format_seconds(seconds), f"{share:.1%}", bar(share)
            )
    return table


def memory_table(prediction: Prediction) -> Table:
    """Return GiB per device of each stage by cause, beside what the device holds."""
    table = Table(
        title="Memory per device, GiB", title_justify="left", box=None, padding=(0, 1, 0, 0)
    )
    names = ("parameters", "gradients", "optimizer", "activations", "logits")
    for heading in ("stage", *names, "other", "peak", "holds"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for stage in prediction.stages:
        parts = [getattr(stage.memory_bytes, name) for name in names]
        other = stage.peak_memory_bytes - sum(parts)
        ratio = stage.peak_memory_bytes / stage.capacity_bytes if stage.capacity_bytes else 1.0
        style = "green" if ratio <= 1.0 else "red"
        figures = [*parts, max(other, 0.0), stage.peak_memory_bytes, stage.capacity_bytes]
        table.add_row(
            str(stage.stage), *[f"{value / GIB:.2f}" for value in figures], bar(ratio, style=style)
        )
    return table


def _certificate_line(certificate: Certificate) -> str:
    if certificate.status == "optimal":
        claim = "[bold green]proven optimal[/] in the searched space"
    else:
        claim = f"[bold yellow]within {certificate.gap_ratio:.2%} of the best possible[/]"
    return (
        f"{claim}: {proof_words(certificate)}; "
        f"{counted(certificate.configurations_total, 'configuration')}, "
        f"{certificate.configurations_pruned} pruned by bounds, "
        f"{certificate.configurations_branched} branched on, "
        f"{counted(certificate.milp_count, 'program')} by {escape(certificate.solver)}, "
        f"{format_seconds(certificate.solve_seconds)}"
    )


def _simplicity_lines(plan: Plan) -> Iterator[RenderableType]:
    words = simplicity_words(plan)
    if words is not None:
        yield Text(words)


def _outside_lines(certificate: Certificate) -> Iterator[str]:
    """Yield what is legal and was left out of the searched space."""
    if certificate.not_searched:
        yield f"not searched: {escape('; '.join(certificate.not_searched))}"


def _time_lines(plan: Plan) -> Iterator[str]:
    """Yield that the time limit ended the search, where it did."""
    limits, certificate = plan.job.resolved.limits, plan.certificate
    is_late = certificate.solve_seconds > _MOST_OF_THE_LIMIT * limits.solver_seconds
    if certificate.status != "optimal" and is_late:
        yield (
            f"the limit of {limits.solver_seconds:g} s ended the search: more --solver-seconds may "
            "close the gap"
        )


def _objective_lines(certificate: Certificate) -> Iterator[str]:
    """Yield what the plan has of an objective other than the step."""
    value = certificate.objective_value
    if certificate.objective is not Objective.THROUGHPUT and value is not None:
        yield f"least {certificate.objective}: {value_words(certificate.objective, value)}"


def _explanation(explanation: Explanation, objective: Objective) -> Iterator[RenderableType]:
    yield Text(explanation.summary)
    for constraint in explanation.binding_constraints:
        yield Text(f"  binds: {constraint}")
    for other in explanation.runners_up:
        head = f"runner-up{rival_place(objective)}: {other.description}"
        yield Text(f"  {head}: {alternative_words(objective, other)}")
    yield from assumption_lines(explanation.assumptions)


def _optional_bytes(count: float | None) -> str:
    return "" if count is None else format_bytes(count)
