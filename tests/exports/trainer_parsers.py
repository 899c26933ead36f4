"""Run apart: a trainer of the folder given reads the exports of stdin, a line of JSON for all.

Axolotl's schema and LLaMA-Factory's dataclasses read YAML, Hydra composes verl's configurations
with the overrides, and MaxText's keys are those of its base.yml (the rest of it needs JAX). What a
user has to add is added here.
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

NAME, FOLDER = sys.argv[1:3]
sys.path.insert(0, FOLDER)
DATA = {
    "axolotl": {"datasets": [{"path": "x", "type": "alpaca"}], "output_dir": "out"},
    # without a GPU, and without the file of DeepSpeed beside
    "llamafactory": {
        "model_name_or_path": "x", "dataset": "x", "template": "llama3", "output_dir": "out",
        "deepspeed": None, "use_cpu": True,
    },
}  # fmt: skip


def axolotl(request):
    """What Axolotl's schema makes of the keys; those that it does not have it would drop."""
    from axolotl.utils.schemas.config import AxolotlInputConfig  # noqa: PLC0415

    given = yaml.safe_load(request["text"])
    fields = AxolotlInputConfig.model_fields
    unknown = sorted(set(given) - set(fields) - {one.alias for one in fields.values()})
    read = AxolotlInputConfig(**given, **DATA[NAME], learning_rate=1e-5).model_dump()
    return {"unknown": unknown, **{key: read[key] for key in given if key in read}}


def llamafactory(request):
    """What the dataclasses of LLaMA-Factory make of the keys; others are refused."""
    from llamafactory.hparams import parser  # noqa: PLC0415
    from transformers import HfArgumentParser  # noqa: PLC0415

    given = yaml.safe_load(request["text"]) | DATA[NAME]
    parts = HfArgumentParser(parser._TRAIN_ARGS).parse_dict(given)
    return {key: getattr(part, key) for key in given for part in parts if hasattr(part, key)}


def verl(request):
    """The configuration that Hydra composes; a key that it lacks is refused unless added by ++."""
    with initialize_config_dir(config_dir=f"{FOLDER}/verl/trainer/config", version_base=None):
        made = compose(config_name=request["config"], overrides=request["text"].split("\n")[:-1])
    return OmegaConf.to_container(made.actor_rollout_ref.actor, resolve=False)


def maxtext(request):
    """The keys of base.yml with the export laid over them."""
    base = OmegaConf.load(f"{FOLDER}/maxtext/configs/base.yml")
    OmegaConf.set_struct(base, value=True)
    given = OmegaConf.create(request["text"])
    whole = OmegaConf.merge(base, given)
    return {key: whole[key] for key in given}


def said(request):
    """What a request says, or the error that it is refused with."""
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            tempfile.TemporaryDirectory() as folder,
            contextlib.chdir(folder),
        ):
            for name, text in request["beside"].items():
                Path(name).write_text(text, encoding="utf-8")
            return globals()[NAME](request)
    except (ValueError, OmegaConfBaseException) as error:
        return {"error": f"{type(error).__name__}: {error}", "text": request["text"]}


print(json.dumps([said(request) for request in json.load(sys.stdin)], default=str))  # noqa: T201
