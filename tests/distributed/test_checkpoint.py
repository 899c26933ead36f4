"""A checkpoint of any layout continues in any other on the same loss curve."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zlib
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.forking_launches import ForkingLaunches
from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT, LOSS_OF_16_BITS
from tests.distributed.plans import block_count_of, cpu_plan

pytestmark = pytest.mark.distributed
ZERO3: dict[str, Any] = {"data_parallel_degree": 4, "zero_stage": 3}
ZERO3_ON_TWO: dict[str, Any] = {"data_parallel_degree": 2, "micro_batch_size": 2, "zero_stage": 3}
TENSOR_PIPELINE: dict[str, Any] = {
    "tensor_parallel_degree": 2,
    "sequence_parallel": True,
    "pipeline_parallel_degree": 2,
    "micro_batch_size": 2,
}
REPLICATED: dict[str, Any] = {"data_parallel_degree": 2}
INTERLEAVED: dict[str, Any] = {
    "pipeline_parallel_degree": 2,
    "pipeline_schedule": "interleaved_1f1b",
    "virtual_pipeline_degree": 2,
    "data_parallel_degree": 2,
    "zero_stage": 2,
}
TENSOR_V: dict[str, Any] = {
    "tensor_parallel_degree": 2,
    "pipeline_parallel_degree": 2,
    "pipeline_schedule": "zb_v",
    "micro_batch_size": 2,
}


# Untied, the chains below go on in more layouts, and tied where ranks hold several stages.
UNTIED = pytest.param("decoder", marks=pytest.mark.parity_full)
TIED = pytest.param("tied", marks=pytest.mark.parity_full)


@pytest.mark.parametrize("kind", [UNTIED, TIED, "llama"])
def test_training_continues_over_three_layouts(
    four_ranks: RankGroup, two_ranks: RankGroup, tmp_path: Path, kind: str
) -> None:
    """One step, one, and two: ZeRO-3 on four ranks, TP2 x PP2 on four, DP2 on two."""
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    runs = [
        four_ranks.run("resume", strategy=ZERO3, kind=kind, first_step=0, step_count=1, save=first),
        four_ranks.run(
            "resume",
            strategy=TENSOR_PIPELINE,
            kind=kind,
            first_step=1,
            step_count=1,
            load=first,
            save=second,
        ),
        two_ranks.run(
            "resume", strategy=REPLICATED, kind=kind, first_step=2, step_count=2, load=second
        ),
    ]
    losses = [loss for run in runs for loss in run["losses"]]
    assert losses == pytest.approx(runs[0]["reference_losses"][:4], rel=runs[0]["loss_bar"])


@pytest.mark.parity_full
def test_training_continues_between_layouts_with_data_ranks(
    four_ranks: RankGroup, tmp_path: Path
) -> None:
    """Three steps each: TP2 x replicated DP2, then PP2 x ZeRO-2."""
    directory = str(tmp_path / "checkpoint")
    tensor = {"tensor_parallel_degree": 2, "data_parallel_degree": 2, "micro_batch_size": 2}
    pipeline = {"pipeline_parallel_degree": 2, "data_parallel_degree": 2, "zero_stage": 2}
    runs = [
        four_ranks.run("resume", strategy=tensor, first_step=0, step_count=3, save=directory),
        four_ranks.run("resume", strategy=pipeline, first_step=3, step_count=3, load=directory),
    ]
    losses = [loss for run in runs for loss in run["losses"]]
    assert losses == pytest.approx(runs[0]["reference_losses"], rel=runs[0]["loss_bar"])


@pytest.mark.parametrize("kind", [UNTIED, "tied"])
def test_training_continues_where_ranks_hold_several_stages(
    four_ranks: RankGroup, tmp_path: Path, kind: str
) -> None:
    """One step, one, and two: interleaved PP2 x ZeRO-2, ZeRO-3, TP2 x PP2 there and back.

    Tied, the first rank of the last layout holds both copies of one weight.
    """
    paths = [str(tmp_path / name) for name in ("first", "second")]
    places: list[dict[str, Any]] = [
        {"strategy": INTERLEAVED, "save": paths[0]},
        {"strategy": ZERO3, "load": paths[0], "save": paths[1]},
        {"strategy": TENSOR_V, "load": paths[1], "step_count": 2},
    ]
    runs = [
        four_ranks.run("resume", kind=f"{kind}-4", first_step=index, **{"step_count": 1, **place})
        for index, place in enumerate(places)
    ]
    losses = [loss for run in runs for loss in run["losses"]]
    assert losses == pytest.approx(runs[0]["reference_losses"][:4], rel=runs[0]["loss_bar"])


# Layouts with the micro-batch size of each, so that runs in 16 bits round alike.
LAYOUTS: dict[str, dict[str, Any]] = {
    "fsdp4": ZERO3,
    "tp2-sp-fsdp2": {
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "data_parallel_degree": 2,
        "micro_batch_size": 2,
        "zero_stage": 3,
    },
    "pp2-zero1": {"pipeline_parallel_degree": 2, "data_parallel_degree": 2, "zero_stage": 1},
    "hsdp": {
        "data_parallel_replicate_degree": 2,
        "data_parallel_shard_degree": 2,
        "zero_stage": 2,
    },
    "tp2-pp2-interleaved": {
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "virtual_pipeline_degree": 2,
        "pipeline_schedule": "interleaved_1f1b",
    },
    "dualpipe-full": {
        "pipeline_parallel_degree": 2,
        "data_parallel_degree": 2,
        "pipeline_schedule": "dualpipe_v",
        "activation_checkpointing": "full",
    },
    "tp4": {"tensor_parallel_degree": 4},
    "offloaded": {**ZERO3, "offload": ["optimizer", "parameters", "activations"]},
    "optimizer-offloaded": {"data_parallel_degree": 4, "offload": ["optimizer"]},
    "parameters-offloaded": {**ZERO3, "offload": ["parameters"]},
    "ddp4": {"data_parallel_degree": 4},
}
MIXTURES: dict[str, dict[str, Any]] = {
    "ep2-tp2-sp-zero3": {
        "expert_parallel_degree": 2,
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "data_parallel_degree": 2,
        "micro_batch_size": 2,
        "zero_stage": 3,
    },
    "ep4-zero1": {"expert_parallel_degree": 4, "data_parallel_degree": 4, "zero_stage": 1},
    "ep2-pp2": {
        "expert_parallel_degree": 2,
        "data_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
    },
}
CHAINS: dict[str, tuple[str, ...]] = {
    "offloads": ("offloaded", "tp2-sp-fsdp2"),
    "schedules": ("dualpipe-full", "hsdp"),
}


def check_chain(
    group: RankGroup,
    root: Path,
    layouts: Sequence[str],
    *,
    last: RankGroup | None = None,
    loss: float = EXACT,
    steps: int = 1,
    kind: str = "decoder",
    **run: Any,
) -> None:
    """Fail unless steps in each layout continue one undisturbed run, the last on `last`.

    One step tells by its loss what weights were read, and by the next layout's what states were.
    """
    losses: list[float] = []
    answer: dict[str, Any] = {}
    directory = None
    strategies = [{**LAYOUTS, **MIXTURES}.get(name, REPLICATED) for name in layouts]
    block_count = max(map(block_count_of, strategies))
    for place, strategy in enumerate(strategies):
        saved = str(root / f"{place}")
        is_last = place == len(layouts) - 1
        ranks = last if is_last and last is not None else group
        answer = ranks.run(
            "go_on",
            strategy=strategy,
            kind=f"{kind}-{block_count}",
            steps=steps,
            load=directory,
            save=saved,
            compared=steps * len(layouts) if is_last else None,
            **run,
        )
        assert answer["differences"] == []
        assert answer["step"] == steps * (place + 1)
        if place:
            assert answer["extra"] == {"losses": losses[-steps:]}
        losses += answer["losses"]
        directory = saved
    assert losses == pytest.approx(answer["reference_losses"], rel=loss)
    assert answer["parameter_error"] <= EXACT


@pytest.mark.parametrize("layouts", CHAINS.values(), ids=CHAINS.keys())
def test_a_run_goes_on_as_if_undisturbed(
    four_ranks: RankGroup, tmp_path: Path, layouts: tuple[str, ...]
) -> None:
    """Weights, optimizer, step and data: the loader begins anew in each layout."""
    check_chain(four_ranks, tmp_path, layouts)


def test_an_fp16_run_goes_on_with_its_loss_scale(
    four_ranks: RankGroup, two_ranks: RankGroup, tmp_path: Path
) -> None:
    """In layouts with two data ranks each, so that the smallest gradients vanish alike."""
    layouts = ("pp2-zero1", "dualpipe-full", "dp2")
    run = {"precision": "fp16", "data_degree": 2}
    check_chain(four_ranks, tmp_path, layouts, last=two_ranks, loss=LOSS_OF_16_BITS, **run)


@pytest.mark.parametrize(
    "layouts",
    [
        ("ep2-tp2-sp-zero3", "ep2-pp2", "dp2"),
        pytest.param((*MIXTURES, "dp2"), marks=pytest.mark.parity_full),
    ],
)
def test_experts_go_on_in_other_layouts(
    four_ranks: RankGroup, two_ranks: RankGroup, tmp_path: Path, layouts: tuple[str, ...]
) -> None:
    check_chain(four_ranks, tmp_path, layouts, last=two_ranks, kind="mixture")


@pytest.fixture(name="groups")
def _groups(four_ranks: RankGroup, two_ranks: RankGroup) -> tuple[RankGroup, RankGroup]:
    """Four ranks, and two."""
    return four_ranks, two_ranks


@pytest.mark.parity_full
@pytest.mark.parametrize("kind", ["decoder", "tied"])
@pytest.mark.parametrize("first", LAYOUTS)
def test_every_layout_goes_on_in_every_other(
    groups: tuple[RankGroup, RankGroup], tmp_path: Path, first: str, kind: str
) -> None:
    """Each layout is followed by each, and then by two ranks."""
    four_ranks, two_ranks = groups
    for second in LAYOUTS:
        root = tmp_path / second
        chain = (first, second, "dp2")
        check_chain(four_ranks, root, chain, last=two_ranks, steps=2, kind=kind)


@pytest.fixture(name="saved_once", scope="module")
def _saved_once(two_ranks: RankGroup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after two steps, which nothing writes to."""
    directory = tmp_path_factory.mktemp("saved") / "run"
    two_ranks.run("go_on", strategy=ZERO3_ON_TWO, steps=2, save=str(directory))
    return directory


@pytest.fixture(name="saved")
def _saved(saved_once: Path, tmp_path: Path) -> Path:
    """A checkpoint after two steps."""
    return Path(shutil.copytree(saved_once, tmp_path / "run"))


@pytest.fixture(name="undisturbed", scope="module")
def _undisturbed(two_ranks: RankGroup) -> list[float]:
    """The losses of four steps that nothing befalls."""
    losses: list[float] = two_ranks.run("go_on", strategy=ZERO3_ON_TWO, steps=4)["losses"]
    return losses


@pytest.mark.parametrize(
    "death", [("writing", 2), ("written", 2), ("replacing", 2), ("removing", 3)], ids=itemgetter(0)
)
def test_a_run_that_dies_while_it_saves_leaves_a_whole_checkpoint(
    two_ranks: RankGroup, saved: Path, undisturbed: list[float], death: tuple[str, int]
) -> None:
    """All ranks are killed at the same place; the next save clears away what they left."""
    moment, step = death  # the step of the checkpoint that is whole then
    with pytest.raises(AssertionError, match=r"died|closed by peer|reset by peer"):
        two_ranks.run("dying_save", strategy=ZERO3_ON_TWO, load=str(saved), moment=moment)
    answer = two_ranks.run("go_on", strategy=REPLICATED, load=str(saved), steps=1, save=str(saved))
    assert answer["step"] == step + 1
    assert answer["losses"] == pytest.approx(undisturbed[step : step + 1], rel=EXACT)
    left = sorted(path.name.rpartition("-")[0] or path.name for path in saved.iterdir())
    assert left == ["checkpoint.json", f"step-{step + 1:08d}"]


def _truncate(folder: Path) -> None:
    path = max(folder.glob("*.distcp"))
    os.truncate(path, path.stat().st_size // 2)


def _flip(folder: Path) -> None:
    path = min(folder.glob("*.distcp"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _lose(folder: Path) -> None:
    (folder / ".metadata").unlink()


def _no_record(folder: Path) -> None:
    (folder.parent / "checkpoint.json").write_text("{", encoding="utf-8")


def _escaping_record(folder: Path) -> None:
    path = folder.parent / "checkpoint.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**record, "folder": "../elsewhere"}), encoding="utf-8")


class _Malice:
    """A pickle that runs a command when it is read."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> Any:
        return os.remove, (str(self.victim),)


def _malicious(folder: Path) -> None:
    """Metadata that deletes a file, with a record that vouches for it."""
    path = folder / ".metadata"
    path.write_bytes(pickle.dumps(_Malice(folder.parent / "checkpoint.json")))
    content = path.read_bytes()
    record = json.loads((folder.parent / "checkpoint.json").read_text(encoding="utf-8"))
    record["files"][path.name] = {"size_bytes": len(content), "crc32": zlib.crc32(content)}
    (folder.parent / "checkpoint.json").write_text(json.dumps(record), encoding="utf-8")


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (_truncate, "is not what was written"),
    "one-bit": (_flip, "is not what was written"),
    "no-metadata": (_lose, ".metadata is missing"),
    "no-record": (_no_record, "holds no complete checkpoint"),
    "escaping-record": (_escaping_record, "folder: does not match"),
    "malicious-metadata": (_malicious, "names posix.remove"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_refused_by_every_rank_in_the_same_words(
    two_ranks: RankGroup, saved: Path, damage: Callable[[Path], None], reason: str
) -> None:
    (folder,) = saved.glob("step-*")
    damage(folder)
    answer = two_ranks.run("refusals", strategy=ZERO3_ON_TWO, directory=str(saved))
    messages = answer["messages"]
    assert answer["changed"] == [False] * 2
    assert len(messages) == 2
    assert len(set(messages)) == 1
    assert messages[0].startswith("CheckpointFilesError: directory: holds")
    assert reason in messages[0]
    assert (saved / "checkpoint.json").is_file()


LOADS = """
import sys

import torch
from executor import start
from executor.losses import next_token_loss
from executor.models.decoder import Decoder

session = start()
trainer = session.parallelize(
    lambda: Decoder(session.plan.model.resolved), next_token_loss, torch.optim.AdamW
)
trainer.load(sys.argv[1])
print("loaded")
"""


def test_a_launched_run_ends_with_one_message_about_its_checkpoint(
    launches: ForkingLaunches, saved: Path, tmp_path: Path
) -> None:
    (folder,) = saved.glob("step-*")
    _truncate(folder)
    plan = tmp_path / "plan.json"
    plan.write_text(cpu_plan(data_parallel_degree=2, zero_stage=3).to_json(), encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(LOADS, encoding="utf-8")
    result = launches.launch(tmp_path, str(plan), "--", str(script), str(saved))
    assert result.returncode == 1
    assert "loaded" not in result.stdout
    told = [line for line in result.stderr.splitlines() if "damaged checkpoint" in line]
    assert len(told) == 1
    assert "load another checkpoint, or copy this one again" in told[0]


def test_states_of_another_optimizer_are_refused(two_ranks: RankGroup, saved: Path) -> None:
    (message, *_) = two_ranks.run(
        "refusals", strategy=ZERO3_ON_TWO, directory=str(saved), optimizer="sgd"
    )["messages"]
    assert "holds the states of AdamW, and the script's optimizer is SGD" in message


def test_a_directory_that_cannot_be_written_is_refused_by_every_rank(
    two_ranks: RankGroup, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.touch()
    messages = two_ranks.run(
        "refusals", strategy=REPLICATED, directory=str(path / "run"), verb="save"
    )["messages"]
    assert len(set(messages)) == 1
    assert "cannot be written: NotADirectoryError" in messages[0]


def test_nodes_that_do_not_share_a_directory_are_refused_before_they_train(
    two_ranks: RankGroup, tmp_path: Path
) -> None:
    answer = two_ranks.run("unshared_directory", directory=str(tmp_path / "own"))
    first, second = answer["messages"]
    assert first == second
    assert "is not the same on all nodes: rank 1 does not see what rank 0 wrote" in first
    assert answer["left"] == [["checkpoint.lock"], []]


def test_a_save_that_failed_leaves_nothing_in_the_way(two_ranks: RankGroup, tmp_path: Path) -> None:
    """The record cannot be put in its place once the tensors are written."""
    (tmp_path / "checkpoint.json").mkdir()
    messages = two_ranks.run("refusals", strategy=REPLICATED, directory=str(tmp_path), verb="save")[
        "messages"
    ]
    assert "free there: IsADirectoryError" in messages[0]
    assert not list(tmp_path.glob("step-*"))


def test_a_full_disk_leaves_the_last_checkpoint_and_the_run(
    two_ranks: RankGroup, tmp_path: Path
) -> None:
    """All ranks hear of one rank's disk; what was half written is gone, and training goes on."""
    answer = two_ranks.run("full_disk", strategy=REPLICATED, directory=str(tmp_path))
    assert len(set(answer["refusals"])) == 1
    assert "File too large" in answer["refusals"][0]
    assert "on rank 1" in answer["refusals"][0]
    assert answer["left"] == ["step-00000001"]
    assert answer["step"] == 1
    assert answer["loss"] == answer["wanted"]
    assert answer["last"] == 3


def test_the_last_checkpoints_and_every_so_many_are_kept(
    two_ranks: RankGroup, tmp_path: Path
) -> None:
    answer = two_ranks.run("several_saves", strategy=REPLICATED, directory=str(tmp_path))
    kept = sorted(int(path.name.split("-")[1]) for path in tmp_path.glob("step-*"))
    assert kept == [3, 6, 7]
    assert answer["step"] == 3
    assert answer["loss"] == answer["wanted"]
    assert "step: holds no checkpoint of this step, but of 3, 6, 7 (got 1)" in answer["refusal"]


def test_a_save_in_the_background_holds_what_was_trained_when_it_began(
    two_ranks: RankGroup, tmp_path: Path
) -> None:
    """One that fails is told by the next call, to every rank and once."""
    (tmp_path / "file").touch()
    answer = two_ranks.run(
        "save_in_background",
        strategy=ZERO3_ON_TWO,
        directory=str(tmp_path / "saved"),
        file=str(tmp_path / "file"),
    )
    assert answer["step"] == 1
    assert answer["loss"] == answer["wanted"]
    on_first, nothing, on_second, still_nothing = answer["refusals"]
    assert "cannot be written" in on_first
    assert on_first == on_second
    assert nothing is still_nothing is None


def test_a_directory_without_a_checkpoint_is_refused(two_ranks: RankGroup, tmp_path: Path) -> None:
    answer = two_ranks.run("refused_load", strategy=REPLICATED, directory=str(tmp_path / "nothing"))
    assert answer["error"] == "CheckpointFilesError"
    assert "holds no complete checkpoint" in answer["message"]


def test_a_checkpoint_of_another_model_is_refused(two_ranks: RankGroup, tmp_path: Path) -> None:
    """The Hugging Face model names its parameters otherwise."""
    directory = str(tmp_path / "llama")
    two_ranks.run(
        "resume", strategy=REPLICATED, kind="llama", first_step=0, step_count=1, save=directory
    )
    answer = two_ranks.run("refused_load", strategy=REPLICATED, directory=directory)
    assert answer["error"] == "CheckpointError"
    assert "holds nothing for blocks.0.attention.key.weight, which has shape" in answer["message"]
