"""Case: a measured run as the cost model sees it, and its price."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cost.step import predict_simulated
from planner.hardware import ClusterHardware, cluster_hardware, unfused_device
from planner.requests.resolution import PARAMETER_COUNT_LIMIT
from planner.schema.calibration import CalibrationProfile
from planner.schema.cluster import Cluster
from planner.schema.job import Job, Stack
from planner.schema.measured_run import MeasuredRun
from planner.schema.model import ModelGraph
from planner.schema.plan import Plan, Prediction
from planner.schema.strategy import Strategy
from planner.space.legality import breaches
from planner.validation.graph import graph_of
from planner.validation.job import job_of
from planner.validation.layout import layout_of, parts_run_again
from planner.validation.machine import cluster_of, hardware_of
from planner.validation.program import Program, program_of, stacks_of, with_conventions
from planner.validation.reasons import Assumption, Unpriceable, Unpriced
from planner.validation.stated import with_variables
from planner.workload.layer import ModelWorkload
from planner.workload.model import model_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The model, machine, job and strategy of one row.

    Where the row's stack is not known, or how fast its network is, `others` are the other cases
    that it may be.
    `breaches` are the fields of our rules that the strategy breaks: it is priced all the same, for
    it is the cost model that is held to account here, and the run did run.
    """

    run: MeasuredRun
    graph: ModelGraph
    cluster: Cluster
    hardware: ClusterHardware
    job: Job
    strategy: Strategy
    workload: ModelWorkload
    assumptions: tuple[Assumption, ...]
    breaches: tuple[str, ...]
    others: tuple[Case, ...] = ()

    def price(self) -> Prediction:
        """Return what the cost model says of the run, under its first stack."""
        return predict_simulated(self.workload, self.hardware, self.job, self.strategy)


def case_of(run: MeasuredRun, calibration: CalibrationProfile | None = None) -> Case:
    """Return the case of `run`, whose job carries what `calibration` learnt.

    Raises:
        Unpriced: with the reason, if there is no honest price for it.
    """
    if run.unreadable is not None:
        raise Unpriced(Unpriceable.FIELD, run.unreadable)
    if run.plan is not None:
        return _planned_case(run, run.plan, calibration)
    run = with_variables(run)
    of_program: list[Assumption] = []
    program = program_of(run, of_program)
    run = with_conventions(run, program)
    cases, why = [], None
    stacks = stacks_of(program, run)
    if len(stacks) > 1:
        of_program.append(Assumption.STACK_UNKNOWN)
    for stack in _calibrated_first(stacks, calibration):
        try:
            cases.extend(_read_as(stack, run, program, calibration))
        except Unpriced as error:
            why = why or error
    if not cases:
        raise why or Unpriced(Unpriceable.LAYOUT, "stack")
    assumed = (*of_program, *cases[0].assumptions)
    return replace(cases[0], others=tuple(cases[1:]), assumptions=assumed)


def _calibrated_first(
    stacks: tuple[Stack, ...], calibration: CalibrationProfile | None
) -> tuple[Stack, ...]:
    """Return those of several possible stacks that were calibrated, all where none was."""
    known = set() if calibration is None else {run.stack for run in calibration.runs}
    return tuple(stack for stack in stacks if stack in known) or stacks


def _read_as(
    stack: Stack, run: MeasuredRun, program: Program, calibration: CalibrationProfile | None
) -> list[Case]:
    """Return the cases of `run` if its stack is `stack`, one for each network that it may have."""
    job, of_job = job_of(run, program, stack)
    cluster = cluster_of(run)
    of_machine: list[Assumption] = []
    networks = hardware_of(run, cluster, of_machine)
    (kind,) = networks[0].kinds
    graph, of_graph = graph_of(run, program)
    if run.attention_kernel is None and unfused_device(graph, networks[0], stack) is not None:
        job = job.model_copy(update={"fused_attention": False})
        of_machine.append(Assumption.ATTENTION_UNFUSED_HEADS)
    layout = layout_of(run, graph, job, program)
    learnt = None if calibration is None else calibration.calibration()
    changes = {
        "global_batch_size": layout.global_batch_size,
        "calibration": learnt,
        "tensor_float_32": job.tensor_float_32 and kind.profile.has_tensor_float_32,
    }
    job = job.model_copy(update=changes)
    workload = model_workload(graph, run_again=parts_run_again(run, job))
    if workload.parameter_count > PARAMETER_COUNT_LIMIT:
        raise Unpriced(Unpriceable.LIMITS, f"{workload.parameter_count} parameters")
    broken = breaches(graph, networks[0], job, layout.strategy)
    first = Case(
        run=run,
        graph=graph,
        cluster=cluster,
        hardware=networks[0],
        job=job,
        strategy=layout.strategy,
        workload=workload,
        assumptions=(*of_graph, *of_job, *layout.assumptions, *of_machine),
        breaches=tuple(dict.fromkeys(breach.field for breach in broken)),
    )
    return [replace(first, hardware=hardware) for hardware in networks]


def _planned_case(run: MeasuredRun, plan: Plan, calibration: CalibrationProfile | None) -> Case:
    """Return the case of a run whose plan says all that there is to say."""
    job, cluster = plan.job.resolved, plan.cluster.resolved
    learnt = None if calibration is None else calibration.calibration()
    hardware, graph = cluster_hardware(cluster), plan.model.resolved
    job = job.model_copy(update={"calibration": learnt})
    return Case(
        run=run,
        graph=graph,
        cluster=cluster,
        hardware=hardware,
        job=job,
        strategy=plan.strategy,
        workload=model_workload(graph),
        assumptions=(),
        breaches=tuple(
            dict.fromkeys(b.field for b in breaches(graph, hardware, job, plan.strategy))
        ),
    )
