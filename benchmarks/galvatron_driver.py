"""Runs Galvatron's own search in its own interpreter and says how long it takes.

`python galvatron_driver.py CHECKOUT DEVICES BATCH TOKENS MEMORY_GIB`: Llama-2-7B on one node, from
the profiles that the checkout brings, which are of sequences of 2,048 tokens. Its C++ dynamic
programming has to be built first (`python setup.py build_ext --inplace` in the checkout). Nothing
of Meshwright is imported, and nothing of Galvatron is copied.

Its package `galvatron.core.runtime` imports all that training needs (triton, flash-attn,
transformers) as soon as one of its modules is wanted. The search wants `args_schema` only, so a
stand-in for the package, empty but with the same folder, lets that module be found alone.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

CORE = "galvatron_dp_core"


def main() -> None:
    """Search once and print seconds, the throughput that it predicts, and the strategy."""
    checkout = Path(sys.argv[1]).resolve()
    devices, batch, tokens, memory = (int(word) for word in sys.argv[2:])
    _make_importable(checkout)
    with TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        arguments = _arguments(checkout, folder)
        arguments.hardware_info.num_gpus_per_node = devices
        arguments.hardware_info.memory_constraint = memory
        arguments.batch_size_info.settle_bsz = batch
        arguments.common_train_info.seq_length = tokens
        engine = _engine(checkout, arguments)
        start = time.perf_counter()
        rate = engine.parallelism_optimization()
        seconds = time.perf_counter() - start
        written = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    found = {"seconds": seconds, "samples_per_second": None, "strategy": None}
    if written:
        found |= {"samples_per_second": float(rate), "strategy": written[0]}
    print(json.dumps(found))


def _make_importable(checkout: Path) -> None:
    """Put the checkout where Python looks, with a stand-in for what only training needs.

    Raises:
        SystemExit: if the checkout or its core is missing.
    """
    runtime = checkout / "galvatron" / "core" / "runtime"
    if not runtime.is_dir():
        sys.exit(f"{runtime} is missing: is {checkout} a checkout of Galvatron?")
    sys.path[:0] = [str(checkout), str(checkout / "galvatron" / "build" / "lib")]
    stand_in = ModuleType("galvatron.core.runtime")
    stand_in.__path__ = [str(runtime)]
    sys.modules[stand_in.__name__] = stand_in
    try:
        import_module(CORE)
    except ImportError as error:
        sys.exit(f"{error}: run `python setup.py build_ext --inplace` in {checkout}")


def _arguments(checkout: Path, folder: str) -> Any:
    """Return the arguments of its example, but for its profiles' length and where it writes."""
    schema = import_module("galvatron.core.search_engine.args_schema")
    models = checkout / "galvatron" / "models" / "model_configs"
    return schema.GalvatronSearchArgs(
        model_info={"model_config_path": str(models / "llama2-7b.yaml")},
        common_train_info={"sequence_parallel": True},
        parallelism_info={
            "default_dp_type": "zero2",
            "pipeline_type": "pipedream_flush",
            "mixed_precision": "bf16",
        },
        profiling_info={"time_profile_mode": "batch", "memory_profile_mode": "static"},
        options_info={"log_dir": f"{folder}/logs", "output_config_path": folder},
    )


def _engine(checkout: Path, arguments: Any) -> Any:
    """Return its search engine with its profiles read."""
    adapter = import_module("galvatron.utils.hf_config_adapter")
    engines = import_module("galvatron.core.search_engine.search_engine")
    adapter.resolve_model_config(arguments)
    engine = engines.GalvatronSearchEngine(arguments)
    engine.set_search_engine_info(
        path=str(checkout / "galvatron" / "models" / "gpt"),
        model_layer_configs=adapter.model_layer_configs(arguments),
        model_name=adapter.model_name(arguments),
    )
    engine.initialize_search_engine()
    return engine


if __name__ == "__main__":
    main()
