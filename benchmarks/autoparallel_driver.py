"""Runs AutoParallel's own search in its own interpreter and says how long it takes.

`python autoparallel_driver.py CHECKOUT MESH SEQUENCES TOKENS`: the Llama-3-8B that the checkout
brings, on a mesh of the H100 of one node, as `8` or `2x4`, with so many sequences of so many tokens
a step. A build of torch for the CPU will do: the ranks are torch's fake ones. Nothing of Meshwright
is imported, and nothing of AutoParallel is copied.

Tensors on `cuda` cannot be traced without CUDA, not even fake ones. So the mesh is of `cpu` devices
that are called H100, and the attention operator that torch then takes is given what DTensor knows
of its sibling for GPUs: it can be split by sequence and by head, and it has floating-point
operations to be counted.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

GPU = "H100"
VOCABULARY_SIZE = 128256
AXES = ("dp", "tp")
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
SOLVED = 1


def main() -> None:
    """Search once and print seconds, the program's size and its objective in microseconds."""
    checkout = Path(sys.argv[1]).resolve()
    extents = tuple(int(word) for word in sys.argv[2].split("x"))
    sequences, tokens = (int(word) for word in sys.argv[3:])
    _make_importable(checkout)
    with redirect_stdout(sys.stderr):
        _pretend_gpus(math.prod(extents))
        found = _searched(extents, sequences, tokens)
    print(json.dumps(found))


def _make_importable(checkout: Path) -> None:
    """Put the checkout where Python looks.

    Raises:
        SystemExit: if the checkout or what it imports is missing.
    """
    if not (checkout / "autoparallel").is_dir():
        sys.exit(f"{checkout / 'autoparallel'} is missing: is it a checkout of AutoParallel?")
    sys.path.insert(0, str(checkout))
    try:
        import_module("autoparallel.api")
    except ImportError as error:
        sys.exit(f"{error}: install torch, numpy and pulp for {sys.executable}")


def _pretend_gpus(count: int) -> None:
    """Start torch's fake ranks, on devices named as the GPU whose rates AutoParallel looks up."""
    torch = import_module("torch")
    store = import_module("torch.testing._internal.distributed.fake_pg").FakeStore()
    distributed = import_module("torch.distributed")
    distributed.init_process_group("fake", store=store, rank=0, world_size=count)
    torch.get_device_module().get_device_name = lambda _device=None: GPU
    operators = torch.ops.aten
    counter = import_module("torch.utils.flop_counter")
    _describe(
        getattr(operators, ATTENTION), (3, 2), lambda *shapes: counter.sdpa_flop_count(*shapes[:3])
    )
    _describe(
        getattr(operators, f"{ATTENTION}_backward"),
        (6, 3),
        lambda *shapes: counter.sdpa_backward_flop_count(*shapes[:4]),
    )


def _describe(operator: Any, tensors: tuple[int, int], operations: Callable[..., Any]) -> None:
    """Say how an attention with so many tensors in and out can be split, and what it computes."""
    placements = import_module("torch.distributed.tensor")
    experimental = import_module("torch.distributed.tensor.experimental")
    taken, given = tensors

    def splits(*arguments: Any, **_named: Any) -> list[Any]:
        rest = [None] * (len(arguments) - taken)
        ways = (placements.Replicate(), placements.Shard(0), placements.Shard(1))
        return [([way] * given, [way] * taken + rest) for way in ways]

    def counted(*shapes: Any, **_named: Any) -> Any:
        return operations(*shapes)

    experimental.register_sharding(operator.default)(splits)
    import_module("torch.utils.flop_counter").register_flop_formula(operator)(counted)


def _searched(extents: tuple[int, ...], sequences: int, tokens: int) -> dict[str, Any]:
    """Return what its search finds, constrained as its example constrains it."""
    placements = import_module("torch.distributed.tensor")
    meshes = import_module("torch.distributed.device_mesh")
    axes = AXES[: len(extents)]
    parallel = _parallel(
        meshes.init_device_mesh("cpu", extents, mesh_dim_names=axes), sequences, tokens
    )
    traced = _timed(parallel, "build_model_graph")
    start = time.perf_counter()
    with parallel as search:
        built = time.perf_counter() - start
        search.add_parameter_memory_constraint(low=None, high=None)
        batch, vocabulary = placements.Shard(0), placements.Shard(2)
        whole = [placements.Replicate()] * (len(extents) - 1)
        search.add_input_constraints([(batch, *whole)])
        search.add_output_constraints([(batch, vocabulary)[: len(extents)]])
        start = time.perf_counter()
        search.optimize_placement()
        solved = time.perf_counter() - start
        program = search.sharding_optimizer.prob
        return {
            "trace_seconds": traced[0],
            "build_seconds": built - traced[0],
            "solve_seconds": solved,
            "variable_count": program.numVariables(),
            "constraint_count": program.numConstraints(),
            "objective_microseconds": program.objective.value(),
            "solved": program.status == SOLVED,
        }


def _parallel(mesh: Any, sequences: int, tokens: int) -> Any:
    """Return its planner of Llama-3-8B in BF16, reduced in FP32, on the mesh."""
    torch = import_module("torch")
    models = import_module("autoparallel._testing.models.llama3")
    policies = import_module("torch.distributed.fsdp")
    with torch.device("meta"):
        model = models.Transformer(
            models.TransformerModelArgs(
                dim=4096,
                n_layers=32,
                n_heads=32,
                n_kv_heads=8,
                ffn_dim_multiplier=1.3,
                multiple_of=1024,
                rope_theta=500000,
                vocab_size=VOCABULARY_SIZE,
                max_seq_len=tokens,
            )
        )
    nodes = import_module("autoparallel.cost_models.nccl_cost_model")
    return import_module("autoparallel.api").AutoParallel(
        model,
        lambda: torch.randint(0, VOCABULARY_SIZE, (sequences, tokens)),
        mesh,
        policies.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        cost_model=nodes.h100_topo_config(),
        repeated_subgraphs=True,
    )


def _timed(owner: Any, name: str) -> list[float]:
    """Return a list that takes the seconds of each call of the owner's method from now on."""
    method = getattr(owner, name)
    seconds: list[float] = []

    def timed(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        answer = method(*arguments, **named)
        seconds.append(time.perf_counter() - start)
        return answer

    setattr(owner, name, timed)
    return seconds


if __name__ == "__main__":
    main()
