"""Plan: the answer, with everything needed to read, repeat and check it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from planner.schema.block import later
from planner.schema.cluster import Cluster
from planner.schema.document import Document, Name, Part
from planner.schema.job import Job, Objective
from planner.schema.model import ModelGraph
from planner.schema.strategy import Strategy

Amount = Annotated[float, Field(ge=0)]
Tally = Annotated[int, Field(ge=0)]


class ResolvedModel(Part):
    """The model as the user gave it (a name, a config.json's fields), and as it was understood."""

    given: JsonValue
    resolved: ModelGraph
    digest: str


class ResolvedCluster(Part):
    """The cluster as given (a short form or a document), and as it was understood.

    `assumptions` are in words what was taken for granted in reading it.
    """

    given: JsonValue
    resolved: Cluster
    digest: str
    assumptions: tuple[str, ...] = later(())


class ResolvedJob(Part):
    """The job as given, and with every default spelled out."""

    given: JsonValue
    resolved: Job
    digest: str


class Interval(Part):
    """A quantity with its 10th, 50th and 90th percentile."""

    p10: Amount
    p50: Amount
    p90: Amount


class StepBreakdown(Part):
    """Seconds of the p50 step by cause; they sum to it.

    Taken on the stage that sets the pace; `bubble` is that stage's wait for the others.
    """

    compute: Amount
    recompute: Amount
    tensor_parallel: Amount
    context_parallel: Amount
    expert_parallel: Amount
    pipeline_point_to_point: Amount
    bubble: Amount
    data_parallel_exposed: Amount
    offload_exposed: Amount
    optimizer: Amount
    host: Amount

    def total_seconds(self) -> float:
        """Return the sum of all parts."""
        return float(sum(getattr(self, name) for name in type(self).model_fields))


class MemoryBreakdown(Part):
    """Bytes on one device of a stage at its peak, by cause; they sum to the peak."""

    parameters: Amount
    gradients: Amount
    optimizer: Amount
    activations: Amount
    logits: Amount
    communication_buffers: Amount
    workspace: Amount
    runtime: Amount

    def total_bytes(self) -> float:
        """Return the sum of all parts."""
        return float(sum(getattr(self, name) for name in type(self).model_fields))


class StagePrediction(Part):
    """Memory and pace of one pipeline stage.

    Host memory is one device's share of its node's, or of its NVMe where the job offloads there.
    """

    stage: int
    peak_memory_bytes: Amount
    capacity_bytes: Amount
    memory_bytes: MemoryBreakdown
    host_memory_bytes: Amount
    host_capacity_bytes: Amount
    forward_seconds: Amount
    backward_seconds: Amount
    step_end_seconds: Amount


class SimulatedStage(Part):
    """What one pipeline stage does in a simulated step; the three sum to the step."""

    stage: int
    busy_seconds: Amount
    idle_seconds: Amount
    step_end_seconds: Amount


class SimulatedStep(Part):
    """The step with its pipeline run event by event, from each stage's own times.

    It is the prediction's p50. `closed_form_error_ratio` is the step of the closed form, which
    searches compare, over this one, less 1. `bubble_ratio` is the stages' mean share of the step
    without work.
    """

    step_seconds: Amount
    closed_form_error_ratio: float
    bubble_ratio: Annotated[float, Field(ge=0, le=1)]
    stages: tuple[SimulatedStage, ...]


class IntervalCause(Part):
    """One reason why a step is uncertain, and how far from its p50 it would put p90 alone."""

    cause: str
    ratio: Amount


class Prediction(Part):
    """What a strategy costs: the same whether it was planned or only estimated.

    `fits` compares every stage's p50 peak with its `capacity_bytes`: what the job's headroom
    leaves, and what it may take to fit with the chance that the job asks for. `fits_probability` is
    the chance that a true peak stays under what the device holds, that of the stage with the least.
    `interval_causes` say why `step_seconds` is as wide as it is; independent of one another, their
    squares in logarithms add up. `simulated` is there for plans and single estimates of up to 256
    virtual stages; longer pipelines and batches of estimates go by the closed form alone.
    """

    step_seconds: Interval
    interval_causes: tuple[IntervalCause, ...] = ()
    tokens_per_second_per_device: Amount
    model_flop_utilization: Amount
    breakdown_seconds: StepBreakdown
    stages: tuple[StagePrediction, ...]
    cost_per_million_tokens: Amount | None
    fits: bool
    fits_probability: Annotated[float, Field(ge=0, le=1)]
    simulated: SimulatedStep | None = None

    @property
    def closed_form_seconds(self) -> float:
        """Return the step by the closed form, which searches compare."""
        if self.simulated is None:
            return self.step_seconds.p50
        return self.simulated.step_seconds * (1.0 + self.simulated.closed_form_error_ratio)


class ClosedForm(Part):
    """What the search has proven, which compares steps by their closed form.

    The closed form of no plan is below `lower_bound_seconds`, and the least that was found is
    `least_seconds`: where the two are equal, it is proven to be the least there is. That of the
    fastest plan is `step_seconds`. Of `simulated_count` kinds of plans, which differ in degrees or
    schedule, the best that was found was simulated, and of these the fastest taken; 0 where its
    pipeline is too long for that.
    """

    step_seconds: Amount
    lower_bound_seconds: Amount
    simulated_count: Tally
    least_seconds: Amount | None = later(None)

    @property
    def is_proven(self) -> bool:
        """Return whether no plan has a closed form below the least that was found."""
        return self.least_seconds is not None and self.lower_bound_seconds >= self.least_seconds


class Simplicity(Part):
    """What a plan has that is the simplest within a tolerance of the fastest.

    `techniques` are what counts (`planner.space.complexity`). No plan whose step is within
    `tolerance_ratio` of the fastest's has fewer than `least_technique_count`; `status` says whether
    that, and that no faster plan has as few, was proven.
    """

    status: Literal["optimal", "feasible"]
    tolerance_ratio: Amount
    techniques: tuple[str, ...]
    least_technique_count: Tally
    fastest: Strategy
    fastest_step_seconds: Amount
    fastest_techniques: tuple[str, ...]


class Certificate(Part):
    """The proof: no configuration of the searched space is faster than the lower bound.

    The plan's step is simulated, those of plans that the search excludes are closed forms: none
    but plans of kinds that were simulated has one below the bound (`closed_form`).

    Where `simplicity` is not `null`, the search is for the fastest, and all that is proven is of
    it: the plan is the simplest within a tolerance, and its step is longer.

    `objective` says what was least or most in the plan, `objective_value` what the plan has of it
    (seconds a step, cost per million tokens, bytes on the fullest device, devices) and
    `objective_lower_bound` what no plan can have less of. `lower_bound_seconds` holds among plans
    on the plan's own cluster, and for least memory among those that need no more of it.
    `gap_ratio` is the wider gap of the two; `solve_seconds` is that of all searches, the counts are
    of the last: `configurations_branched` had a branch and bound of their own, and
    `configurations_programmed` an integer program, some both. `not_searched` says what is legal and
    yet was left out of the searched space; a
    limit of the job has it searched (`planner.space.rules`).
    """

    status: Literal["optimal", "feasible"]
    lower_bound_seconds: Amount
    gap_ratio: Amount
    configurations_total: Tally
    configurations_pruned: Tally
    configurations_branched: Tally = 0
    configurations_programmed: Tally = 0
    milp_count: Tally
    solver: str
    solve_seconds: Amount
    objective: Objective = Objective.THROUGHPUT
    objective_value: Amount | None = None
    objective_lower_bound: Amount | None = None
    not_searched: tuple[str, ...] = ()
    simplicity: Simplicity | None = later(None)
    closed_form: ClosedForm | None = later(None)


class Alternative(Part):
    """A configuration that was not chosen, and what it would cost at best.

    It is on the plan's own devices; where least memory is the objective it takes no more of it.
    `objective_value` is what it has of the objective, `None` where only its step is known.
    """

    description: str
    step_seconds: Amount
    is_lower_bound: bool
    objective_value: Amount | None = None


class Explanation(Part):
    """Why this plan, in words and numbers."""

    summary: str
    binding_constraints: tuple[str, ...] = ()
    runners_up: tuple[Alternative, ...] = ()
    assumptions: tuple[str, ...] = ()


class Destination(Part):
    """A target that plans are exported to: what it would lose of one, or why it cannot run it."""

    target: Name
    losses: tuple[str, ...] = ()
    refusal: str | None = None


class Plan(Document):
    """The chosen strategy with its prediction and its certificate.

    `warnings` say what makes the prediction less sure than it looks; `explanation.assumptions` what
    was taken for granted. `destinations` are the targets that plans are exported to.
    """

    status: Literal["planned"] = "planned"
    id: str
    model: ResolvedModel
    cluster: ResolvedCluster
    job: ResolvedJob
    strategy: Strategy
    prediction: Prediction
    certificate: Certificate
    explanation: Explanation
    warnings: tuple[str, ...] = later(())
    destinations: tuple[Destination, ...] = later(())
    planner_version: str


class Overflow(Part):
    """The least that one family of configurations needs, and the limit that it breaks."""

    description: str
    limit: Literal["device_memory", "host_memory", "legality"]
    stage: int | None = None
    required_bytes: Amount | None = None
    capacity_bytes: Amount | None = None
    reason: str


class Relaxation(Part):
    """A smallest change to the request under which it has a plan; each was checked by planning."""

    field: str
    given: JsonValue
    needed: JsonValue
    description: str


class Infeasible(Document):
    """No strategy of the searched space fits: an answer, with what binds and what would help.

    `relaxations_cut_by_time` says that the time was over before all changes were looked into: there
    may be others, and smaller ones. `warnings` and `assumptions` are those of a plan.
    """

    status: Literal["infeasible"] = "infeasible"
    id: str
    model: ResolvedModel
    cluster: ResolvedCluster
    job: ResolvedJob
    configurations_total: int
    binding: tuple[Overflow, ...]
    relaxations: tuple[Relaxation, ...]
    relaxations_cut_by_time: bool = False
    warnings: tuple[str, ...] = later(())
    assumptions: tuple[str, ...] = later(())
    planner_version: str


class Estimate(Document):
    """The price of a strategy that the user wrote; `warnings` and `assumptions` as of a plan."""

    model: ResolvedModel
    cluster: ResolvedCluster
    job: ResolvedJob
    strategy: Strategy
    prediction: Prediction
    warnings: tuple[str, ...] = later(())
    assumptions: tuple[str, ...] = later(())
    planner_version: str
