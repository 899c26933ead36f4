"""Price list: what layers cost under one configuration, and strategies with these prices.

Many strategies are priced from one cost table; those that a search tries for one configuration from
another one, with all choices that they may have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from planner.cost.configuration import (
    Choice,
    Choices,
    Configuration,
    Configurations,
    LayerChoices,
)
from planner.cost.layer_costs import CostTable, LayerCosts, LayerFigures, figures_of
from planner.cost.schedule import rank_of_virtual_stage
from planner.cost.table import cost_table
from planner.hardware import ClusterHardware
from planner.schema.job import DEVICE_RETURNS_LIMIT, Job, Stack
from planner.schema.strategy import EdgeChoice, LayerGroup, Stage, Strategy
from planner.workload.layer import ModelWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """What layers cost under one configuration and some choices, on every kind of device.

    `tables` have one row each; `choices` of blocks and `edges` are their columns.
    """

    hardware: ClusterHardware
    configuration: Configuration
    choices: Mapping[Choice, int]
    edges: Mapping[Choice, int]
    tables: tuple[CostTable, ...]
    stack: Stack
    known: dict[tuple[int, int], LayerFigures] = field(
        default_factory=dict, compare=False, repr=False
    )

    @staticmethod
    def of(
        workload: ModelWorkload,
        hardware: ClusterHardware,
        job: Job,
        configuration: Configuration,
        *,
        choices: Sequence[Choice],
        edges: Sequence[Choice],
    ) -> PriceList:
        """Return the prices of `choices` of blocks and of `edges`.

        Raises:
            ValueError: if the job is not resolved.
        """
        lists = _price_lists(workload, hardware, job, [configuration], choices=choices, edges=edges)
        return next(lists)

    def figures(self, costs: LayerCosts, choice: int) -> LayerFigures:
        """Return what a layer of these tables takes under a choice, read once for all ranks."""
        key = (id(costs), choice)
        if key not in self.known:
            self.known[key] = figures_of(costs, choice)
        return self.known[key]

    def priced(self, strategy: Strategy) -> PricedStrategy:
        """Return a resolved strategy of the configuration with its prices.

        Raises:
            ValueError: if the strategy is not resolved.
        """
        row = self.configuration
        return PricedStrategy(
            prices=self,
            strategy=strategy,
            stages=stages_of(strategy),
            rank_kinds=self.hardware.stage_kinds(
                row.device_order, pipeline_parallel_degree=row.pipeline_parallel_degree
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedStrategy:
    """A strategy with the prices of its configuration and the kind of device of each rank."""

    prices: PriceList
    strategy: Strategy
    stages: tuple[Stage, ...]
    rank_kinds: tuple[int, ...]

    def rank_of(self, virtual_stage: int) -> int:
        """Return the pipeline rank that holds a virtual stage."""
        configuration = self.prices.configuration
        return rank_of_virtual_stage(
            configuration.pipeline_schedule,
            pipeline_parallel_degree=configuration.pipeline_parallel_degree,
            virtual_stage=virtual_stage,
        )


def priced_strategies(
    workload: ModelWorkload,
    hardware: ClusterHardware,
    job: Job,
    strategies: Sequence[Strategy],
) -> Iterator[PricedStrategy]:
    """Yield every strategy with its prices, from one table for all of them."""
    rows = [
        configuration_of(one, device_order=device_order_of(one, hardware)) for one in strategies
    ]
    choices = [choice_of(g) for one in strategies for s in stages_of(one) for g in s.layers]
    edges = [edge_choice(edge) for one in strategies for edge in edges_of(one)]
    lists = _price_lists(workload, hardware, job, rows, choices=choices, edges=edges)
    for strategy, prices in zip(strategies, lists, strict=True):
        yield prices.priced(strategy)


def _price_lists(
    workload: ModelWorkload,
    hardware: ClusterHardware,
    job: Job,
    rows: Sequence[Configuration],
    *,
    choices: Sequence[Choice],
    edges: Sequence[Choice],
) -> Iterator[PriceList]:
    """Yield the prices of every configuration, from one table for each kind of device."""
    blocks, ends = _places(choices), _places(edges)
    edge_choices = Choices.of(tuple(ends))
    layers = LayerChoices(
        blocks=Choices.of(tuple(blocks)), embedding=edge_choices, head=edge_choices
    )
    columns = Configurations.of(rows)
    tables = [
        cost_table(workload, kind, job, configurations=columns, choices=layers)
        for kind in hardware.kinds
    ]
    for index, row in enumerate(rows):
        yield PriceList(
            hardware=hardware,
            configuration=row,
            choices=blocks,
            edges=ends,
            tables=tuple(table.row(index) for table in tables),
            stack=job.stack,
        )


def stages_of(strategy: Strategy) -> tuple[Stage, ...]:
    """Return the virtual stages of a resolved strategy."""
    if strategy.stages is None:
        raise ValueError("the strategy must be resolved before it is priced")
    return strategy.stages


def edges_of(strategy: Strategy) -> tuple[EdgeChoice, EdgeChoice]:
    """Return the choices of the embedding and of the head of a resolved strategy."""
    if strategy.embedding is None or strategy.head is None:
        raise ValueError("the strategy must be resolved before it is priced")
    return strategy.embedding, strategy.head


def _places(choices: Iterable[Choice]) -> dict[Choice, int]:
    """Return the different choices with their places."""
    return {choice: place for place, choice in enumerate(dict.fromkeys(choices))}


def configuration_of(strategy: Strategy, *, device_order: int = 0) -> Configuration:
    """Return the part of a resolved strategy that holds for all layers."""
    return Configuration(
        tensor_parallel_degree=strategy.tensor_parallel_degree,
        sequence_parallel=strategy.sequence_parallel,
        pipeline_parallel_degree=strategy.pipeline_parallel_degree,
        virtual_pipeline_degree=strategy.virtual_pipeline_degree,
        pipeline_schedule=strategy.pipeline_schedule,
        context_parallel_degree=strategy.context_parallel_degree,
        context_parallel_kind=strategy.context_parallel_kind,
        expert_parallel_degree=strategy.expert_parallel_degree,
        expert_tensor_parallel_degree=strategy.expert_tensor_parallel_degree,
        data_parallel_replicate_degree=strategy.replicate_degree,
        data_parallel_shard_degree=strategy.shard_degree,
        micro_batch_size=strategy.micro_batch_size,
        micro_batch_count=strategy.micro_batch_count or 1,
        device_order=device_order,
    )


def device_order_of(strategy: Strategy, hardware: ClusterHardware) -> int:
    """Return the place in `hardware.stage_orders` that the stages' device groups spell.

    0 without any. Kinds that no stage names follow in the cluster's order, and so do all that come
    in an order that there is not.
    """
    kinds = {name: index for index, k in enumerate(hardware.kinds) for name in k.node_groups}
    stages = (strategy.stages or ())[: strategy.pipeline_parallel_degree]
    named = [kinds[s.device_group] for s in stages if s.device_group in kinds]
    order = tuple(dict.fromkeys([*named, *range(len(hardware.kinds))]))
    comes_back = len(list(groupby(named))) > len(set(named))
    total, degree = hardware.device_count, strategy.pipeline_parallel_degree
    if comes_back and all(
        named.count(index) * total == degree * kind.device_count
        for index, kind in enumerate(hardware.kinds)
    ):
        orders = hardware.stage_orders(degree, returns=DEVICE_RETURNS_LIMIT)
        if tuple(named) in orders:
            return orders.index(tuple(named))
    return hardware.orders.index(order)


def choice_of(group: LayerGroup) -> Choice:
    """Return the choice of a group of layers."""
    return Choice(
        zero_stage=group.zero_stage,
        activation_checkpointing=group.activation_checkpointing,
        offload=group.offload,
    )


def edge_choice(choice: EdgeChoice) -> Choice:
    """Return the choice of the embedding or the head."""
    return Choice(zero_stage=choice.zero_stage, offload=choice.offload)
