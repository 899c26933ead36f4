"""Which keys of all configurations of these tests are told not to be read, by type."""

from __future__ import annotations

from planner.importers.models import model_from_fields
from tests.golden.further_shapes import FURTHER_SHAPES
from tests.golden.further_types import CASES, ENCODERS, HALF_OR_OTHER, UNUSUAL, UNUSUAL_ENCODERS
from tests.golden.public_shapes import SHAPES

TOLD = {
    # Each head has its own keys, whatever the configuration says.
    "axk1": {"num_key_value_heads"},
    "axk2": {"num_key_value_heads"},
    "bailing_hybrid": {"num_key_value_heads"},
    "dots3_note_text": {"swa_num_key_value_heads"},
    # The width of the feed-forward stands under another name, or all of them are mixtures.
    "cpmant": {"intermediate_size"},
    "dbrx": {"ffn_config.hidden_size"},
    "gpt_neox_japanese": {"intermediate_size"},
    "moshi": {"intermediate_size"},
    "opt": {"intermediate_size"},
    "qwen3_next": {"intermediate_size"},
    "solar_open": {"intermediate_size"},
    # Half of the class is read, which is told by itself.
    "dots3_note": {"audio_config", "vision_config", "text_config.swa_num_key_value_heads"},
    # Sizes that follow from those of the other half, or name a table that is not built.
    "blip-2": {
        "qformer_config.encoder_hidden_size",
        "qformer_config.vocab_size",
        "text_config.intermediate_size",
    },
    "instructblip": {"qformer_config.encoder_hidden_size", "text_config.intermediate_size"},
    "instructblipvideo": {"qformer_config.encoder_hidden_size"},
    "pix2struct": {"text_config.d_kv", "text_config.d_model"},
    # Images of any size, of which one is assumed and told.
    "kimi_k25": {"vision_config.image_size"},
    "minimax_m3_vl": {"vision_config.image_size"},
    "video_llama_3": {"vision_config.image_size"},
    # Of layers that no case has.
    "qwen4_exp": {
        "text_config.heads_per_ngram",
        "text_config.indexer_compress_ratio",
        "text_config.ngram_vocab_size_base",
    },
    "qwen4_exp_text": {"indexer_compress_ratio"},
}


def test_only_keys_that_a_class_builds_nothing_of_are_told():
    listed = (*CASES, *UNUSUAL, *HALF_OR_OTHER, *UNUSUAL_ENCODERS)
    given = [{"model_type": name, **fields} for name, _, fields in listed]
    given += [{"model_type": name, **case[2]} for name, case in ENCODERS.items()]
    given += [*SHAPES.values(), *FURTHER_SHAPES.values()]
    told = {}
    for fields in given:
        for line in model_from_fields(fields, name="it").assumptions:
            if line.startswith("not read of"):
                names = line.rpartition(": ")[2].split(", ")
                told.setdefault(fields["model_type"], set()).update(names)
    assert told == TOLD
