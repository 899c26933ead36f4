"""Adapters: what was trained of a measured run's model, where a row says that not all was."""

from __future__ import annotations

import re
from typing import Literal

from planner.schema.job import Adapters, BaseFormat, Stack, Unpacking
from planner.schema.measured_run import MeasuredRun
from planner.validation.program import OF_MEGATRON, AdapterRecipe, Program
from planner.validation.reasons import Assumption

_FOUR = 4
_TASKS = frozenset({"lora", "qlora"})
# How weights are stored that adapters leave as they are
_FOUR_BITS = re.compile(r"w4a16|nf4|int4|fp4|4[- _]?bit|bnb")
_EIGHT_BITS = re.compile(r"w8a16|int8|8[- _]?bit")


def adapters_of(
    run: MeasuredRun, program: Program, stack: Stack, assumptions: list[Assumption]
) -> Adapters | None:
    """Return the adapters that were trained in place of the model, if any.

    What a row leaves open is as the recipes of `program`, or of Megatron's under its stack.
    """
    if run.task not in _TASKS:
        return None
    recipe = OF_MEGATRON if stack is Stack.MEGATRON else program.adapters
    if run.adapter_rank is None:
        assumptions.append(Assumption.ADAPTER_RANK)
    dropout, unpacking = run.adapter_dropout, _unpacking(run, recipe)
    is_gptq, bits = unpacking is Unpacking.AUTO_GPTQ, frozen_bits(run)
    return Adapters(
        rank=run.adapter_rank or recipe.rank,
        targets=run.adapter_targets or recipe.targets,
        trains_ends=run.adapted_ends is True,
        base_bits=bits,
        base_format=BaseFormat.GPTQ if is_gptq else BaseFormat.BNB_NESTED,
        whole_scales=bits == _FOUR and recipe.whole_scales and not is_gptq,
        unpacking=unpacking,
        dropout=recipe.dropout if dropout is None else dropout,
    )


def frozen_bits(run: MeasuredRun) -> Literal[4, 8, 16]:
    """Return in how many bits a parameter is stored that adapters leave as it is."""
    name = (run.precision or "").lower()
    if run.task in _TASKS and _EIGHT_BITS.match(name):
        return 8
    if run.task == "qlora" or (run.task == "lora" and _FOUR_BITS.match(name)):
        return 4
    return 16


def _unpacking(run: MeasuredRun, recipe: AdapterRecipe) -> Unpacking:
    """Return what unpacks frozen weights: compiled, torchao's steps become one kernel."""
    if frozen_bits(run) != _FOUR:
        return Unpacking.KERNEL
    if "gptq" in f"{run.precision_raw or ''} {run.precision or ''}".lower():
        return Unpacking.AUTO_GPTQ
    return Unpacking.KERNEL if run.compile is True else recipe.unpacking
