"""Small configurations of further model types, and the classes that they are counted against."""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]

SIZES: Fields = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
    "pad_token_id": 0,
}
MANY: Fields = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
N_EMBD: Fields = {"n_embd": 64, "n_head": 4, "n_layer": 3, "vocab_size": 500, "pad_token_id": 0}
WINDOWS = ["sliding_attention", "full_attention"] * 2
ROUTED: Fields = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
BART: Fields = {
    "d_model": 64,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 80,
    "vocab_size": 500,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
PICTURES: Fields = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
XLM: Fields = {"emb_dim": 64, "n_layers": 3, "n_heads": 4, "vocab_size": 500}

ANGLES: Fields = {"rope_type": "default", "rope_theta": 10_000.0}
CLIP: Fields = {**PICTURES, "model_type": "clip_vision_model"}
SIGLIP: Fields = {**PICTURES, "model_type": "siglip_vision_model"}
PAIR: Fields = {
    "text_config": {**MANY, "max_position_embeddings": 20},
    "vision_config": PICTURES,
}
WAVES: Fields = {
    **MANY,
    "conv_dim": [32, 48],
    "conv_stride": [5, 2],
    "conv_kernel": [10, 3],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
}


def seen(text_type: str, vision: Fields) -> Fields:
    """Return a configuration of a tower of images before a decoder."""
    return {"text_config": {"model_type": text_type, **SIZES}, "vision_config": vision}


def heard(text_type: str, audio_type: str) -> Fields:
    """Return a configuration of an encoder of sound before a decoder."""
    audio = {
        "model_type": audio_type,
        "d_model": 64,
        "hidden_size": 64,
        "encoder_layers": 3,
        "num_hidden_layers": 3,
        "encoder_attention_heads": 4,
        "num_attention_heads": 4,
        "encoder_ffn_dim": 256,
        "intermediate_size": 256,
        "num_mel_bins": 80,
        "max_source_positions": 40,
    }
    return {"text_config": {"model_type": text_type, **SIZES}, "audio_config": audio}


OMNI: Fields = {
    "text_config": SIZES,
    "vision_config": {
        "depth": 9,
        "hidden_size": 64,
        "intermediate_size": 90,
        "num_heads": 4,
        "out_hidden_size": 64,
    },
    "audio_config": {
        "d_model": 64,
        "encoder_layers": 3,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 80,
        "num_mel_bins": 80,
        "max_source_positions": 40,
        "output_dim": 64,
    },
}

BLIP_2: Fields = {
    "vision_config": PICTURES,
    "qformer_config": {**MANY, "hidden_size": 32, "encoder_hidden_size": 64},
    "text_config": {"model_type": "opt", **MANY, "ffn_dim": 80, "word_embed_proj_dim": 64},
    "num_query_tokens": 6,
}
T5: Fields = {"d_model": 64, "d_kv": 24, "d_ff": 96, "num_layers": 3, "num_heads": 4}
QWEN3_5: Fields = {
    **SIZES,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
KOSMOS: Fields = {
    "embed_dim": 64,
    "layers": 3,
    "ffn_dim": 96,
    "attention_heads": 4,
    "vocab_size": 500,
}
PAGES: Fields = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "patch_embed_hidden_size": 30,
}
SAM: Fields = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "mlp_dim": 96,
    "output_channels": 16,
    "image_size": 64,
    "patch_size": 8,
    "window_size": 3,
    "global_attn_indexes": [1, 3],
}
DEEP: Fields = {
    "depth": 3,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_heads": 4,
    "out_hidden_size": 64,
}
DEEPSTACK: Fields = {**DEEP, "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1]}
CONVOLVED: Fields = {
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 80,
    "num_mel_bins": 30,
    "downsample_hidden_size": 12,
    "output_dim": 64,
}
M3: Fields = {
    **SIZES,
    "head_dim": 16,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "dense_intermediate_size": 112,
    "shared_intermediate_size": 72,
    "layer_types": ["full_attention", "minimax_m3_sparse"] * 2,
    "mlp_layer_types": ["dense", *["sparse"] * 3],
}
# Towers of learned queries, of windows and convolutions, and others that stand alone.
UNUSUAL: list[tuple[str, str, Fields]] = [
    (
        "aria",
        "AriaForConditionalGeneration",
        {
            **seen("aria_text", {**PICTURES, "model_type": "idefics3_vision"}),
            "projector_patch_to_query_dict": {"16": 4, "64": 9},
        },
    ),
    ("blip", "BlipForConditionalGeneration", {"text_config": MANY, "vision_config": PICTURES}),
    ("blip-2", "Blip2ForConditionalGeneration", BLIP_2),
    (
        "blip-2",
        "Blip2ForConditionalGeneration",
        {**BLIP_2, "text_config": {"model_type": "t5", **T5, "vocab_size": 500}},
    ),
    ("instructblip", "InstructBlipForConditionalGeneration", BLIP_2),
    (
        "instructblipvideo",
        "InstructBlipVideoForConditionalGeneration",
        {**BLIP_2, "text_config": {"model_type": "llama", **SIZES}},
    ),
    (
        "idefics2",
        "Idefics2ForConditionalGeneration",
        {
            **seen("mistral", {**PICTURES, "model_type": "idefics2_vision"}),
            "perceiver_config": {"resampler_n_latents": 5, "resampler_head_dim": 12},
        },
    ),
    ("deepseek_vl", "DeepseekVLForConditionalGeneration", seen("llama", SIGLIP)),
    (
        "shieldgemma2",
        "Gemma3ForConditionalGeneration",
        {**seen("gemma3_text", SIGLIP), "mm_tokens_per_image": 4},
    ),
    ("git", "GitForCausalLM", {**MANY, "vision_config": PICTURES, "num_image_with_embedding": 3}),
    ("got_ocr2", "GotOcr2ForConditionalGeneration", seen("qwen2", SAM)),
    ("pp_chart2table", "GotOcr2ForConditionalGeneration", seen("qwen2", SAM)),
    (
        "hyperclovax_vision_v2",
        "HyperCLOVAXVisionV2ForConditionalGeneration",
        seen("hyperclovax", {**DEEP, "model_type": "qwen2_5_vl_vision", "out_hidden_size": 40}),
    ),
    (
        "cohere_compass",
        "CohereCompassForConditionalGeneration",
        {
            "text_config": {**SIZES, "rope_parameters": {"full_attention": ANGLES}},
            "vision_config": DEEPSTACK,
        },
    ),
    (
        "qwen3_omni_moe_thinker",
        "Qwen3OmniMoeThinkerForConditionalGeneration",
        {
            "text_config": {**SIZES, **ROUTED},
            "vision_config": DEEPSTACK,
            "audio_config": CONVOLVED,
        },
    ),
    ("glm_ocr", "GlmOcrForConditionalGeneration", {"text_config": SIZES, "vision_config": DEEP}),
    ("glmga", "Glm46VForConditionalGeneration", seen("glm4v_text", {**DEEP, "hidden_size": 32})),
    (
        "kosmos-2",
        "Kosmos2ForConditionalGeneration",
        {"text_config": KOSMOS, "vision_config": PICTURES, "latent_query_num": 5},
    ),
    (
        "kosmos-2.5",
        "Kosmos2_5ForConditionalGeneration",
        {
            "text_config": KOSMOS,
            "vision_config": {**PAGES, "intermediate_size": 80, "head_dim": 12},
            "latent_query_num": 5,
        },
    ),
    (
        "pix2struct",
        "Pix2StructForConditionalGeneration",
        {
            "text_config": {**T5, "hidden_size": 64, "vocab_size": 500},
            "vision_config": {**PAGES, "hidden_size": 64, "d_ff": 80, "d_kv": 12, "seq_len": 40},
        },
    ),
    *(
        (model_type, named, {**seen("qwen3_5_text", PICTURES), "text_config": QWEN3_5, **more})
        for model_type, named, more in (
            ("minicpm_ocr", "MiniCPMOcrForConditionalGeneration", {}),
            (
                "minicpmv4_6",
                "MiniCPMV4_6ForConditionalGeneration",
                {"insert_layer_id": 1, "merger_times": 2},
            ),
            ("minicpmv4_7", "MiniCPMV4_7ForConditionalGeneration", {"insert_layer_id": 0}),
        )
    ),
    ("minimax_m3_vl_text", "MiniMaxM3VLForCausalLM", M3),
    (
        "minimax_m3_vl",
        "MiniMaxM3SparseForConditionalGeneration",
        {"text_config": M3, "vision_config": PICTURES, "projector_hidden_size": 56},
    ),
    (
        "ovis2",
        "Ovis2ForConditionalGeneration",
        {**seen("qwen2", {**PICTURES, "vocab_size": 70, "hidden_stride": 2}), "hidden_size": 64},
    ),
    (
        "paddleocr_vl",
        "PaddleOCRVLForConditionalGeneration",
        {"text_config": SIZES, "vision_config": PICTURES},
    ),
    ("video_llama_3", "VideoLlama3ForConditionalGeneration", seen("qwen2", PICTURES)),
    (
        "gemma4_unified",
        "Gemma4UnifiedForConditionalGeneration",
        {
            "text_config": {**SIZES, "head_dim": 16},
            "vision_config": {"mm_embed_dim": 48, "mm_posemb_size": 10, "output_proj_dims": 48},
            "audio_config": {"audio_embed_dim": 20},
        },
    ),
    (
        "moss_transcribe_diarize",
        "MossTranscribeDiarizeForConditionalGeneration",
        heard("qwen3", "moss_transcribe_diarize_audio"),
    ),
    (
        "glmasr",
        "GlmAsrForConditionalGeneration",
        heard("llama", "glmasr_encoder"),
    ),
    (
        "musicflamingo",
        "MusicFlamingoForConditionalGeneration",
        heard("qwen2", "audioflamingo3_encoder"),
    ),
]

HALVES: Fields = {
    "encoder": {"model_type": "vit", **PICTURES, "hidden_size": 32, "qkv_bias": False},
    "decoder": {
        "model_type": "trocr",
        "d_model": 64,
        "decoder_layers": 2,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 96,
        "vocab_size": 500,
        "max_position_embeddings": 40,
        "pad_token_id": 1,
    },
}
LATENT: Fields = {
    **MANY,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
    "index_n_heads": 3,
    "index_head_dim": 16,
    "index_topk": 20,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
}
SLIDING: Fields = {
    "swa_num_attention_heads": 2,
    "swa_num_key_value_heads": 2,
    "swa_q_lora_rank": 20,
    "swa_kv_lora_rank": 28,
    "swa_head_dim": 24,
    "swa_qk_nope_head_dim": 16,
    "swa_v_head_dim": 10,
}
INKLING: Fields = {
    **SIZES,
    "num_hidden_layers": 7,
    "head_dim": 16,
    "swa_num_attention_heads": 6,
    "swa_num_key_value_heads": 3,
    "swa_head_dim": 12,
    "d_rel": 5,
    "rel_extent": 40,
    "sliding_window_size": 30,
    "conv_kernel_size": 3,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
}
SMALL_ROWS: Fields = {
    **SIZES,
    "head_dim": 16,
    "num_kv_shared_layers": 1,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 400,
    "altup_num_inputs": 3,
    "laurel_rank": 5,
    "layer_types": WINDOWS,
}
QWEN4: Fields = {
    **QWEN3_5,
    **ROUTED,
    "head_dim": 16,
    "shared_expert_intermediate_size": 40,
    "hc_count": 3,
    "hc_lowrank": 10,
    "heads_per_ngram": 4,
    "ngram_vocab_size_base": 100,
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 64,
    "indexer_compress_ratio": 16,
}
PHI4: Fields = {
    **SIZES,
    "vision_config": PICTURES,
    "audio_config": {
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_blocks": 2,
        "num_attention_heads": 4,
        "ext_pw_out_channel": 28,
        "depthwise_separable_out_channel": 28,
        "depthwise_multiplier": 2,
        "input_size": 30,
        "nemo_conv_channels": 12,
        "bias_max_distance": 9,
    },
}
# Decoders by mechanisms of their own, or that are one half of something.
HALF_OR_OTHER: list[tuple[str, str, Fields]] = [
    ("diffllama", "DiffLlamaForCausalLM", SIZES),
    ("diffllama", "DiffLlamaForCausalLM", {**SIZES, "attention_bias": True, "head_dim": 24}),
    ("dots3_note_text", "Dots3NoteForCausalLM", {**LATENT, **SLIDING, "num_hidden_layers": 6}),
    (
        "dots3_note_text",
        "Dots3NoteForCausalLM",
        {
            **LATENT,
            **SLIDING,
            "use_dsa": False,
            "attention_bias": True,
            "first_k_dense_replace": 2,
            "moe_shared_expert_intermediate_size": 40,
            "n_shared_experts": 2,
        },
    ),
    ("hy_v4", "HYV4ForCausalLM", {**LATENT, "num_hidden_layers": 6, "hc_mult": 3}),
    ("hy_v4", "HYV4ForCausalLM", {**LATENT, "indexer_types": ["full"] * 4}),
    ("inkling_text", "InklingForCausalLM", INKLING),
    ("inkling_text", "InklingForCausalLM", {**INKLING, "dense_mlp_idx": 2, "n_shared_experts": 0}),
    ("inkling_text", "InklingForCausalLM", {**INKLING, "dense_intermediate_size": 80}),
    (
        "inkling2_text",
        "Inkling2ForCausalLM",
        {key: value for key, value in INKLING.items() if key != "intermediate_size"},
    ),
    ("gemma3n_text", "Gemma3nForCausalLM", SMALL_ROWS),
    (
        "gemma3n_text",
        "Gemma3nForCausalLM",
        {**SMALL_ROWS, "intermediate_size": [96, 80, 96, 64], "num_kv_shared_layers": 2},
    ),
    ("minimax", "MiniMaxForCausalLM", SIZES),
    (
        "minimax",
        "MiniMaxForCausalLM",
        {**SIZES, "head_dim": 24, "layer_types": ["linear_attention", "full_attention"] * 2},
    ),
    ("emu3", "Emu3ForCausalLM", {"text_config": SIZES}),
    ("emu3_text_model", "Emu3ForCausalLM", {**SIZES, "mlp_bias": True}),
    ("qwen4_exp", "Qwen4ExpForCausalLM", {"text_config": QWEN4}),
    (
        "qwen4_exp_text",
        "Qwen4ExpForCausalLM",
        {**QWEN4, "ple_layer_ids": [2, 3], "eos_token_id": 1},
    ),
    (
        "dots3_note",
        "Dots3NoteForCausalLM",
        {
            "text_config": {**LATENT, **SLIDING},
            "vision_config": {"adapter_out_dim": 64},
            "audio_config": {"adapter_out_dim": 64},
        },
    ),
    ("moshi", "MoshiForCausalLM", {**SIZES, "ffn_dim": 96}),
    ("phi4_multimodal", "Phi4MultimodalForCausalLM", PHI4),
    ("trocr", "TrOCRForCausalLM", HALVES["decoder"]),
    (
        "trocr",
        "TrOCRForCausalLM",
        {
            **HALVES["decoder"],
            "cross_attention_hidden_size": 48,
            "use_learned_position_embeddings": False,
            "layernorm_embedding": False,
        },
    ),
    ("vision-encoder-decoder", "VisionEncoderDecoderModel", HALVES),
    (
        "vision-encoder-decoder",
        "VisionEncoderDecoderModel",
        {
            "encoder": {"model_type": "deit", **PICTURES, "hidden_size": 48},
            "decoder": {**HALVES["decoder"], "cross_attention_hidden_size": 48},
        },
    ),
]

LONG_T5: Fields = {**T5, "vocab_size": 500}
# Encoder-decoders whose encoders see less than all, or route, or have a vocabulary of their own.
UNUSUAL_ENCODERS: list[tuple[str, str, Fields]] = [
    ("bigbird_pegasus", "BigBirdPegasusForConditionalGeneration", {**BART, "block_size": 4}),
    ("bigbird_pegasus", "BigBirdPegasusForConditionalGeneration", {**BART, "use_bias": True}),
    (
        "fsmt",
        "FSMTForConditionalGeneration",
        {
            **{key: value for key, value in BART.items() if key != "vocab_size"},
            "src_vocab_size": 300,
            "tgt_vocab_size": 500,
        },
    ),
    (
        "led",
        "LEDForConditionalGeneration",
        {
            **{key: value for key, value in BART.items() if key != "max_position_embeddings"},
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 40,
            "attention_window": 8,
        },
    ),
    (
        "pegasus_x",
        "PegasusXForConditionalGeneration",
        {**BART, "num_global_tokens": 3, "block_size": 8},
    ),
    ("longt5", "LongT5ForConditionalGeneration", LONG_T5),
    (
        "longt5",
        "LongT5ForConditionalGeneration",
        {**LONG_T5, "encoder_attention_type": "transient-global", "num_decoder_layers": 2},
    ),
    ("pop2piano", "Pop2PianoForConditionalGeneration", {**LONG_T5, "composer_vocab_size": 7}),
    (
        "switch_transformers",
        "SwitchTransformersForConditionalGeneration",
        {**LONG_T5, "num_layers": 4, "num_decoder_layers": 3, "num_sparse_encoder_layers": 2},
    ),
]

# model type, class, fields beside the type's name
CASES: list[tuple[str, str, Fields]] = [
    ("aria_text", "AriaTextForCausalLM", {**SIZES, "attention_bias": True, "moe_num_experts": 4}),
    ("gemma4_unified_text", "Gemma4UnifiedForCausalLM", {**SIZES, "head_dim": 16}),
    ("axk1", "AXK1ForCausalLM", {**SIZES, "n_routed_experts": 8, "moe_layer_freq": 2}),
    ("axk2", "AXK2ForCausalLM", {**SIZES, "n_routed_experts": 8, "first_k_dense_replace": 2}),
    (
        "bailing_hybrid",
        "BailingHybridForCausalLM",
        {**SIZES, "num_local_experts": 8, "num_experts_per_tok": 2, "layer_group_size": 2},
    ),
    ("beam", "BeamForCausalLM", {**SIZES, **ROUTED, "num_experts": 8}),
    (
        "cohere_compass_text",
        "CohereCompassForCausalLM",
        {
            **SIZES,
            "rope_parameters": {"full_attention": ANGLES},
        },
    ),
    (
        "cpmant",
        "CpmAntForCausalLM",
        {**MANY, "dim_head": 24, "dim_ff": 96, "segment_types": 4, "prompt_length": 3},
    ),
    ("fuyu", "FuyuForCausalLM", {**MANY, "patch_size": 10}),
    ("lfm3", "Lfm3ForCausalLM", {**SIZES, "attention_bias": True, "conv_bias": True}),
    ("lfm3", "Lfm3ForCausalLM", {**SIZES, "use_sandwich_norm": False, "use_attention_gate": False}),
    ("olmo_hybrid", "OlmoHybridForCausalLM", {**SIZES, "attention_bias": True}),
    ("biogpt", "BioGptForCausalLM", {**MANY, "max_position_embeddings": 40}),
    ("bitnet", "BitNetForCausalLM", {**SIZES, "attention_bias": True}),
    ("codegen", "CodeGenForCausalLM", N_EMBD),
    ("cohere2_moe", "Cohere2MoeForCausalLM", {**SIZES, "head_dim": 32, "num_shared_experts": 2}),
    (
        "cohere2_moe",
        "Cohere2MoeForCausalLM",
        {
            **SIZES,
            "first_k_dense_replace": 1,
            "prefix_dense_intermediate_size": 80,
            "rms_norm_eps": 1e-6,
        },
    ),
    ("ctrl", "CTRLLMHeadModel", {**N_EMBD, "dff": 96}),
    (
        "dbrx",
        "DbrxForCausalLM",
        {
            "d_model": 64,
            "n_heads": 4,
            "n_layers": 3,
            "vocab_size": 500,
            "attn_config": {"kv_n_heads": 2, "rope_theta": 5e5},
            "ffn_config": {
                "hidden_size": 64,
                "ffn_hidden_size": 48,
                "moe_num_experts": 4,
                "moe_top_k": 2,
            },
        },
    ),
    ("doge", "DogeForCausalLM", {**SIZES, "attention_bias": True, "mlp_bias": True}),
    ("flint", "FlintForCausalLM", {**SIZES, **ROUTED}),
    ("gpt-sw3", "GPT2LMHeadModel", N_EMBD),
    ("gpt_neox_japanese", "GPTNeoXJapaneseForCausalLM", MANY),
    ("hyperclovax", "HyperCLOVAXForCausalLM", {**SIZES, "attention_bias": True}),
    ("hyperclovax", "HyperCLOVAXForCausalLM", {**SIZES, "use_post_norm": False}),
    ("iquestcoder", "LlamaForCausalLM", {**SIZES, "head_dim": 32}),
    ("jais2", "Jais2ForCausalLM", SIZES),
    ("kolibri1", "Kolibri1ForCausalLM", {**SIZES, **ROUTED, "layer_types": WINDOWS}),
    ("laguna", "LagunaForCausalLM", {**SIZES, **ROUTED, "layer_types": WINDOWS}),
    (
        "laguna",
        "LagunaForCausalLM",
        {**SIZES, **ROUTED, "gating": "per-element", "num_attention_heads_per_layer": [4, 6, 4, 6]},
    ),
    ("mellum", "MellumForCausalLM", {**SIZES, **ROUTED, "layer_types": WINDOWS}),
    (
        "mimo_v2_flash",
        "MiMoV2FlashForCausalLM",
        {
            **SIZES,
            "head_dim": 24,
            "v_head_dim": 16,
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "attention_bias": True,
        },
    ),
    ("openai-gpt", "OpenAIGPTLMHeadModel", N_EMBD),
    ("persimmon", "PersimmonForCausalLM", MANY),
    ("persimmon", "PersimmonForCausalLM", {**MANY, "qk_layernorm": False}),
    (
        "xglm",
        "XGLMForCausalLM",
        {
            "d_model": 64,
            "ffn_dim": 96,
            "num_layers": 3,
            "attention_heads": 4,
            "vocab_size": 500,
            "pad_token_id": 0,
        },
    ),
    ("clip", "CLIPModel", {**PAIR, "projection_dim": 64}),
    ("siglip", "SiglipModel", PAIR),
    ("siglip2", "Siglip2Model", {**PAIR, "vision_config": {**PICTURES, "num_patches": 36}}),
    *(
        (kind, named, WAVES)
        for kind, named in (
            ("wav2vec2", "Wav2Vec2ForCTC"),
            ("wav2vec2", "Wav2Vec2Model"),
            ("wav2vec2", "Wav2Vec2ForSequenceClassification"),
            ("hubert", "HubertForCTC"),
            ("unispeech", "UniSpeechForCTC"),
            ("unispeech-sat", "UniSpeechSatForCTC"),
        )
    ),
    (
        "wav2vec2",
        "Wav2Vec2ForCTC",
        {**WAVES, "do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True},
    ),
    ("qwen2_audio", "Qwen2AudioForConditionalGeneration", heard("qwen2", "qwen2_audio_encoder")),
    ("voxtral", "VoxtralForConditionalGeneration", heard("llama", "voxtral_encoder")),
    (
        "audioflamingo3",
        "AudioFlamingo3ForConditionalGeneration",
        heard("qwen2", "audioflamingo3_encoder"),
    ),
    (
        "qwen2_5_omni_thinker",
        "Qwen2_5OmniThinkerForConditionalGeneration",
        {**OMNI, "tie_word_embeddings": False},
    ),
    (
        "kimi_k25",
        "Kimi_K25ForConditionalGeneration",
        {
            "text_config": {
                "model_type": "deepseek_v3",
                **MANY,
                "n_routed_experts": 8,
                "num_experts_per_tok": 2,
            },
            "vision_config": {**PICTURES, "pos_emb_height": 6, "pos_emb_width": 5},
            "projection_hidden_size": 64,
        },
    ),
    *UNUSUAL,
    *UNUSUAL_ENCODERS,
    *HALF_OR_OTHER,
    ("llava_next_video", "LlavaNextVideoForConditionalGeneration", seen("llama", CLIP)),
    ("vipllava", "VipLlavaForConditionalGeneration", seen("llama", CLIP)),
    (
        "qianfan_ocr",
        "QianfanOCRForConditionalGeneration",
        seen("qwen3", {**PICTURES, "model_type": "qianfan_ocr_vision"}),
    ),
    (
        "lfm2_vl",
        "Lfm2VlForConditionalGeneration",
        seen("lfm2", {**PICTURES, "model_type": "siglip2_vision_model", "num_patches": 16}),
    ),
    (
        "lighton_ocr",
        "LightOnOcrForConditionalGeneration",
        seen("qwen3", {**PICTURES, "model_type": "pixtral"}),
    ),
    (
        "exaone4_5",
        "Exaone4_5_ForConditionalGeneration",
        seen(
            "exaone4",
            {
                "model_type": "exaone4_5_vision",
                "depth": 9,
                "hidden_size": 64,
                "intermediate_size": 90,
                "num_heads": 4,
                "num_key_value_heads": 2,
                "out_hidden_size": 64,
            },
        ),
    ),
    (
        "glm46v",
        "Glm46VForConditionalGeneration",
        seen(
            "glm4v_text",
            {
                "model_type": "glm4v_vision",
                "depth": 3,
                "hidden_size": 32,
                "intermediate_size": 90,
                "num_heads": 4,
                "out_hidden_size": 64,
            },
        ),
    ),
    *(
        (model_type, f"{prefix}{head}", BART)
        for model_type, prefix, head in (
            ("bart", "Bart", "ForConditionalGeneration"),
            ("blenderbot", "Blenderbot", "ForConditionalGeneration"),
            ("blenderbot-small", "BlenderbotSmall", "ForConditionalGeneration"),
            ("m2m_100", "M2M100", "ForConditionalGeneration"),
            ("marian", "Marian", "MTModel"),
            ("mbart", "MBart", "ForConditionalGeneration"),
            ("mvp", "Mvp", "ForConditionalGeneration"),
            ("pegasus", "Pegasus", "ForConditionalGeneration"),
            ("plbart", "PLBart", "ForConditionalGeneration"),
        )
    ),
    (
        "umt5",
        "UMT5ForConditionalGeneration",
        {"d_model": 64, "d_kv": 24, "d_ff": 96, "num_layers": 3, "num_heads": 4, "vocab_size": 500},
    ),
    ("vit_mae", "ViTMAEForPreTraining", {**PICTURES, "decoder_num_hidden_layers": 2}),
    ("beit", "BeitModel", {**PICTURES, "use_relative_position_bias": True, "use_mask_token": True}),
    ("beit", "BeitForImageClassification", {**PICTURES, "use_absolute_position_embeddings": True}),
    ("dinov2", "Dinov2Model", {**PICTURES, "use_swiglu_ffn": True, "use_mask_token": False}),
    ("dinov3_vit", "DINOv3ViTModel", {**PICTURES, "num_register_tokens": 4}),
    ("dinov3_vit", "DINOv3ViTModel", {**PICTURES, "use_gated_mlp": True, "key_bias": True}),
    ("clip_vision_model", "CLIPVisionModel", PICTURES),
    ("clip_vision_model", "CLIPVisionModelWithProjection", PICTURES),
    ("siglip_vision_model", "SiglipVisionModel", PICTURES),
    ("siglip_vision_model", "SiglipVisionModel", {**PICTURES, "vision_use_head": False}),
    *(
        (model_type, f"{prefix}{head}", PICTURES)
        for model_type, prefix in (
            ("deit", "DeiT"),
            ("dinov2", "Dinov2"),
            ("dinov2_with_registers", "Dinov2WithRegisters"),
            ("ijepa", "IJepa"),
            ("vit", "ViT"),
            ("vit_msn", "ViTMSN"),
        )
        for head in ("Model", "ForImageClassification")
    ),
]

# An encoder of text, its classes' prefix, and which heads transformers has classes for.
_ALL = ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering")
ENCODERS: dict[str, tuple[str, tuple[str, ...], Fields]] = {
    "bert": ("Bert", (*_ALL, "MultipleChoice", "NextSentencePrediction", "PreTraining"), MANY),
    "big_bird": ("BigBird", ("MaskedLM", "SequenceClassification", "MultipleChoice"), MANY),
    "camembert": ("Camembert", (*_ALL, "MultipleChoice"), MANY),
    "data2vec-text": ("Data2VecText", (*_ALL, "MultipleChoice"), MANY),
    "distilbert": (
        "DistilBert",
        (*_ALL, "MultipleChoice"),
        {
            "dim": 64,
            "hidden_dim": 96,
            "n_layers": 3,
            "n_heads": 4,
            "vocab_size": 500,
            "pad_token_id": 0,
        },
    ),
    "flaubert": ("Flaubert", _ALL[1:3], {**XLM, "pre_norm": True}),
    "electra": ("Electra", (*_ALL, "MultipleChoice"), {**MANY, "embedding_size": 32}),
    "ernie": ("Ernie", (*_ALL, "PreTraining"), {**MANY, "use_task_id": True}),
    "esm": ("Esm", _ALL[:3], {**MANY, "position_embedding_type": "rotary"}),
    "eurobert": ("EuroBert", _ALL[:3], {**SIZES, "mlp_bias": True}),
    "gte": ("Gte", _ALL[:3], MANY),
    "ibert": ("IBert", (*_ALL, "MultipleChoice"), MANY),
    "jina_embeddings_v3": ("JinaEmbeddingsV3", _ALL, MANY),
    "layoutlm": ("LayoutLM", _ALL, MANY),
    "longformer": ("Longformer", (*_ALL, "MultipleChoice"), {**MANY, "attention_window": 16}),
    "megatron-bert": ("MegatronBert", (*_ALL, "MultipleChoice", "PreTraining"), MANY),
    "modernbert": ("ModernBert", (*_ALL, "MultipleChoice"), {**MANY, "attention_bias": True}),
    "modernbert-decoder": (
        "ModernBertDecoder",
        ("CausalLM", "SequenceClassification"),
        {**MANY, "norm_bias": True, "mlp_bias": True},
    ),
    "mpnet": ("MPNet", (*_ALL, "MultipleChoice"), {**MANY, "pad_token_id": 1}),
    "mra": ("Mra", (*_ALL, "MultipleChoice"), MANY),
    "nomic_bert": ("NomicBert", _ALL[:3], MANY),
    "nystromformer": (
        "Nystromformer",
        (*_ALL, "MultipleChoice"),
        {**MANY, "num_landmarks": 8, "conv_kernel_size": 5},
    ),
    "rembert": (
        "RemBert",
        (*_ALL, "CausalLM", "MultipleChoice"),
        {**MANY, "input_embedding_size": 32, "output_embedding_size": 80},
    ),
    "roberta": ("Roberta", (*_ALL, "MultipleChoice"), MANY),
    "roberta-prelayernorm": ("RobertaPreLayerNorm", (*_ALL, "MultipleChoice"), MANY),
    "roc_bert": (
        "RoCBert",
        (*_ALL, "CausalLM", "MultipleChoice"),
        {**MANY, "pronunciation_embed_dim": 24, "shape_embed_dim": 40, "enable_shape": False},
    ),
    "roformer": ("RoFormer", (*_ALL, "MultipleChoice"), {**MANY, "embedding_size": 32}),
    "tapas": ("Tapas", ("MaskedLM", "SequenceClassification"), MANY),
    "xlm": ("XLM", _ALL[1:3], {**XLM, "n_langs": 3}),
    "xlm-roberta": ("XLMRoberta", (*_ALL, "MultipleChoice"), MANY),
    "xlm-roberta-xl": ("XLMRobertaXL", (*_ALL, "MultipleChoice"), MANY),
    "xmod": (
        "Xmod",
        (*_ALL, "CausalLM", "MultipleChoice"),
        {**MANY, "languages": ["en_XX", "de_DE"], "adapter_layer_norm": True, "pre_norm": True},
    ),
    "yoso": ("Yoso", (*_ALL, "MultipleChoice"), {**MANY, "conv_window": 5}),
}
HEADS = [
    (model_type, f"{prefix}{head}", fields)
    for model_type, (prefix, heads, fields) in ENCODERS.items()
    for head in ("Model", *(f"For{head}" for head in heads))
] + [
    ("bert-generation", "BertGenerationDecoder", MANY),
    ("flaubert", "FlaubertWithLMHeadModel", XLM),
    ("xlm", "XLMWithLMHeadModel", XLM),
    ("xmod", "XmodForMaskedLM", MANY),
]
