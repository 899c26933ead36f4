"""Adapters: what was trained of a measured run's model, where a row says that not all was."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from planner.schema.job import Adapters, AdapterTargets, Stack, Unpacking
from planner.schema.measured_run import MeasuredRun
from planner.validation.reasons import Assumption

_FOUR = 4
_TASKS = frozenset({"lora", "qlora"})
# How weights are stored that adapters leave as they are
_FOUR_BITS = re.compile(r"w4a16|nf4|int4|fp4|4[- _]?bit|bnb")
_EIGHT_BITS = re.compile(r"w8a16|int8|8[- _]?bit")
_RANK = re.compile(r"\brank[ =](\d+)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What a program's recipes adapt where nothing else is said."""

    rank: int
    targets: AdapterTargets = AdapterTargets.ALL
    unpacking: Unpacking = Unpacking.KERNEL
    dropout: bool = True


# NeMo's recipes adapt attention with a rank of 16, as MLPerf's benchmark has it; litgpt queries and
# values of attention; PEFT's rank is 8 unless a script has its own, as Qwen's and QLoRA's have 64.
# Scripts drop 5 or 10 % of what adapters read; torchtune's, LLaMA-Factory's, Unsloth's and NeMo's
# defaults drop nothing.
# Source: mlcommons/training `llama2_70b_lora`; torchtune `recipes/configs`; litgpt
# `finetune/lora.py`; PEFT `tuners/lora/config.py`; QwenLM/Qwen `finetune.py`; Dettmers et al. 2023,
# arXiv:2305.14314, appendix B.
_RECIPES = (
    (re.compile(r"torchtune"), _Recipe(8, unpacking=Unpacking.TORCHAO, dropout=False)),
    (re.compile(r"lit-?gpt"), _Recipe(8, AdapterTargets.ATTENTION)),
    (re.compile(r"swift"), _Recipe(8)),
    (re.compile(r"factory"), _Recipe(8, dropout=False)),
    (re.compile(r"unsloth"), _Recipe(16, dropout=False)),
)
_OF_MEGATRON = _Recipe(16, AdapterTargets.ATTENTION, dropout=False)
_OF_SCRIPTS = _Recipe(64)


def adapters_of(run: MeasuredRun, stack: Stack, assumptions: list[Assumption]) -> Adapters | None:
    """Return the adapters that were trained in place of the model, if any.

    Where weights are in 4 bits, and in Qwen's scripts, all products of a block are adapted.
    """
    if run.task not in _TASKS:
        return None
    stated = _RANK.search(f"{run.optimizer or ''}; {run.notes or ''}")
    recipe = _recipe(run, stack)
    if stated is None:
        assumptions.append(Assumption.ADAPTER_RANK)
    return Adapters(
        rank=int(stated[1]) if stated else recipe.rank,
        targets=recipe.targets,
        trains_ends="lora_emb" in (run.notes or ""),
        base_bits=frozen_bits(run),
        unpacking=_unpacking(run, recipe),
        dropout=recipe.dropout,
    )


def frozen_bits(run: MeasuredRun) -> Literal[4, 8, 16]:
    """Return in how many bits a parameter is stored that adapters leave as it is."""
    name = (run.precision or "").lower()
    if run.task in _TASKS and _EIGHT_BITS.match(name):
        return 8
    if run.task == "qlora" or (run.task == "lora" and _FOUR_BITS.match(name)):
        return 4
    return 16


def _recipe(run: MeasuredRun, stack: Stack) -> _Recipe:
    if stack is Stack.MEGATRON:
        return _OF_MEGATRON
    framework = (run.framework or "").lower()
    return next((found for word, found in _RECIPES if word.search(framework)), _OF_SCRIPTS)


def _unpacking(run: MeasuredRun, recipe: _Recipe) -> Unpacking:
    """Return what unpacks frozen weights: compiled, torchao's steps become one kernel."""
    if frozen_bits(run) != _FOUR:
        return Unpacking.KERNEL
    if "gptq" in f"{run.precision_raw or ''} {run.precision or ''}".lower():
        return Unpacking.AUTO_GPTQ
    return Unpacking.KERNEL if run.compile is True else recipe.unpacking
