"""Run apart: Megatron-LM 0.19.2 of the folder given parses and validates arguments of stdin.

Its wheel is for Python 3.12 and asks a GPU for its architecture: `typing.override` and the answer
of a Hopper are put in place; nothing else of it is changed.
"""

import contextlib
import io
import json
import os
import sys
import typing

import typing_extensions

typing.override = typing_extensions.override
sys.path.insert(0, sys.argv[1])
from megatron.core.transformer.pipeline_parallel_layer_layout import (  # noqa: E402
    PipelineParallelLayerLayout,
)
from megatron.training import arguments  # noqa: E402

arguments.get_device_arch_version = lambda: 9
MODEL = [
    "--num-layers", "32", "--hidden-size", "4096", "--num-attention-heads", "32",
    "--max-position-embeddings", "8192", "--transformer-impl", "local",
    "--untie-embeddings-and-output-weights",
]  # fmt: skip
EXPERTS = ["--num-experts", "8"]
FIELDS = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "virtual_pipeline_model_parallel_size", "expert_model_parallel_size", "data_parallel_size",
    "micro_batch_size", "hybrid_layer_pattern",
)  # fmt: skip


def parsed(request):
    """What one request's words say, or the error that they are refused with."""
    os.environ |= {"WORLD_SIZE": "16", "RANK": "0"}
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    if request["connections"]:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    sys.argv = ["parser", *request["words"], *MODEL, *(EXPERTS if request["experts"] else [])]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            args = arguments.parse_args()
            arguments.validate_args(args, {})
            blocks = stage_blocks(args)
    except (AssertionError, ValueError, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error}", "words": request["words"]}
    return {name: getattr(args, name) for name in FIELDS} | {"stage_blocks": blocks}


def stage_blocks(args):
    """The blocks of each virtual stage in the order of the chain, None where they are even."""
    if args.pipeline_model_parallel_layout is None:
        return None
    size = args.pipeline_model_parallel_size
    layout = PipelineParallelLayerLayout(str(args.pipeline_model_parallel_layout), size)
    layout.validate_layer_layout(args.num_layers, None)
    return [
        sum(kind.name == "decoder" for kind in layout.layout[rank][turn])
        for turn in range(layout.virtual_pipeline_model_parallel_size)
        for rank in range(size)
    ]


print(json.dumps([parsed(request) for request in json.load(sys.stdin)]))  # noqa: T201
