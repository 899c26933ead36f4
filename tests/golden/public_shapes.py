"""Public shapes: what the config.json files of released models say, as far as it changes a shape.

Facts alone, typed for these tests: fields that do not change a shape are left out.
"""

from __future__ import annotations

from typing import Any

Shape = dict[str, Any]


_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)


def llama(*sizes: int) -> Shape:
    """Return the fields that Llama-like decoders share, given in the order of `_SIZES`."""
    return dict(zip(_SIZES, sizes, strict=True))


def of_type(model_type: str, shape: Shape, **more: Any) -> Shape:
    """Return a whole configuration."""
    return {"model_type": model_type, **shape, **more}


_DEEPSEEK_V2 = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
}
_QWEN3_5_TOWER = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16}
_NEMOTRON_NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
_NEMOTRON_H_8B = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
_GRANITE_TINY = ["mamba"] * 5 + (["attention"] + ["mamba"] * 9) * 3 + ["attention"] + ["mamba"] * 4

SHAPES: dict[str, Shape] = {
    "llama-2-13b": of_type("llama", llama(5120, 13824, 40, 40, 40, 32000)),
    "llama-3.1-8b": of_type("llama", llama(4096, 14336, 32, 32, 8, 128256)),
    "llama-3.2-1b": of_type(
        "llama", llama(2048, 8192, 16, 32, 8, 128256), head_dim=64, tie_word_embeddings=True
    ),
    "llama-3.3-70b": of_type("llama", llama(8192, 28672, 80, 64, 8, 128256)),
    "mistral-nemo-12b": of_type(
        "mistral", llama(5120, 14336, 40, 32, 8, 131072), head_dim=128, sliding_window=None
    ),
    "mixtral-8x22b": of_type(
        "mixtral", llama(6144, 16384, 56, 48, 8, 32768), num_local_experts=8, num_experts_per_tok=2
    ),
    "qwen2.5-7b": of_type("qwen2", llama(3584, 18944, 28, 28, 4, 152064)),
    "qwen2.5-0.5b": of_type("qwen2", llama(896, 4864, 24, 14, 2, 151936), tie_word_embeddings=True),
    "qwen1.5-moe-a2.7b": of_type(
        "qwen2_moe",
        llama(2048, 5632, 24, 16, 16, 151936),
        moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
        num_experts=60,
        num_experts_per_tok=4,
    ),
    "qwen3-0.6b": of_type(
        "qwen3", llama(1024, 3072, 28, 16, 8, 151936), head_dim=128, tie_word_embeddings=True
    ),
    "qwen3-235b-a22b": of_type(
        "qwen3_moe",
        llama(4096, 12288, 94, 64, 4, 151936),
        head_dim=128,
        moe_intermediate_size=1536,
        num_experts=128,
        num_experts_per_tok=8,
    ),
    "qwen3-next-80b-a3b": of_type("qwen3_next", llama(2048, 5120, 48, 16, 2, 151936), head_dim=256),
    "qwen3.5-27b": {
        "model_type": "qwen3_5",
        "text_config": of_type(
            "qwen3_5_text",
            llama(5120, 17408, 64, 24, 4, 248320),
            head_dim=256,
            linear_num_key_heads=16,
            linear_num_value_heads=48,
        ),
        "vision_config": {**_QWEN3_5_TOWER, "out_hidden_size": 5120},
    },
    "deepseek-v2-lite": of_type(
        "deepseek_v2", llama(2048, 10944, 27, 16, 16, 102400), q_lora_rank=None, **_DEEPSEEK_V2
    ),
    "deepseek-v3": of_type(
        "deepseek_v3",
        llama(7168, 18432, 61, 128, 128, 129280),
        q_lora_rank=1536,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        first_k_dense_replace=3,
    ),
    "deepseek-v4-flash": of_type(
        "deepseek_v4",
        {"hidden_size": 4096, "num_hidden_layers": 43, "vocab_size": 129280},
        num_attention_heads=64,
        head_dim=512,
        q_lora_rank=1024,
        o_groups=8,
        o_lora_rank=1024,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=6,
        sliding_window=128,
        index_n_heads=64,
        index_head_dim=128,
        index_topk=512,
        hc_mult=4,
        compress_ratios=[0, 0, *[4, 128] * 20, 4],
    ),
    "gpt-oss-20b": of_type(
        "gpt_oss",
        llama(2880, 2880, 24, 64, 8, 201088),
        head_dim=64,
        num_local_experts=32,
        num_experts_per_tok=4,
        sliding_window=128,
    ),
    "gemma-2-2b": of_type("gemma2", llama(2304, 9216, 26, 8, 4, 256000), head_dim=256),
    "gemma-3-1b": of_type(
        "gemma3_text", llama(1152, 6912, 26, 4, 1, 262144), head_dim=256, sliding_window=512
    ),
    "gemma-4-e2b": of_type(
        "gemma4_text",
        llama(1536, 6144, 35, 8, 1, 262144),
        head_dim=256,
        global_head_dim=512,
        hidden_size_per_layer_input=256,
        vocab_size_per_layer_input=262144,
        num_kv_shared_layers=20,
        use_double_wide_mlp=True,
        sliding_window=512,
        layer_types=[*["sliding_attention"] * 4, "full_attention"] * 7,
    ),
    "gemma-4-31b": of_type(
        "gemma4_text",
        llama(5376, 21504, 60, 32, 16, 262144),
        head_dim=256,
        global_head_dim=512,
        num_global_key_value_heads=4,
        attention_k_eq_v=True,
        hidden_size_per_layer_input=0,
        sliding_window=1024,
    ),
    "gemma-4-26b-a4b": of_type(
        "gemma4_text",
        llama(2816, 2112, 30, 16, 8, 262144),
        head_dim=256,
        global_head_dim=512,
        num_global_key_value_heads=2,
        attention_k_eq_v=True,
        hidden_size_per_layer_input=0,
        sliding_window=1024,
        enable_moe_block=True,
        num_experts=128,
        top_k_experts=8,
        moe_intermediate_size=704,
    ),
    "glm-4-9b-0414": of_type("glm4", llama(4096, 13696, 40, 32, 2, 151552), attention_bias=True),
    "glm-4.5-air": of_type(
        "glm4_moe",
        llama(4096, 10944, 46, 96, 8, 151552),
        head_dim=128,
        attention_bias=True,
        moe_intermediate_size=1408,
        n_routed_experts=128,
        n_shared_experts=1,
        num_experts_per_tok=8,
        first_k_dense_replace=1,
        use_qk_norm=False,
    ),
    "llama-4-scout-text": of_type(
        "llama4_text",
        llama(5120, 8192, 48, 40, 8, 202048),
        head_dim=128,
        intermediate_size_mlp=16384,
        num_local_experts=16,
        num_experts_per_tok=1,
        interleave_moe_layer_step=1,
    ),
    "olmo-2-7b": of_type("olmo2", llama(4096, 11008, 32, 32, 32, 100352)),
    "olmo-3-7b": of_type("olmo3", llama(4096, 11008, 32, 32, 32, 100278), sliding_window=4096),
    "phi-3-mini": of_type("phi3", llama(3072, 8192, 32, 32, 32, 32064), sliding_window=2047),
    "smollm3-3b": of_type("smollm3", llama(2048, 11008, 36, 16, 4, 128256)),
    "nemotron-h-8b": of_type(
        "nemotron_h",
        llama(4096, 21504, 52, 32, 8, 131072),
        hybrid_override_pattern=_NEMOTRON_H_8B,
        head_dim=128,
        mamba_num_heads=128,
        mamba_head_dim=64,
        n_groups=8,
        ssm_state_size=128,
    ),
    "nemotron-3-nano-30b-a3b": of_type(
        "nemotron_h",
        llama(2688, 1856, 52, 32, 2, 131072),
        hybrid_override_pattern=_NEMOTRON_NANO,
        head_dim=128,
        mamba_num_heads=64,
        mamba_head_dim=64,
        n_groups=8,
        ssm_state_size=128,
        n_routed_experts=128,
        num_experts_per_tok=6,
        moe_intermediate_size=1856,
        moe_shared_expert_intermediate_size=3712,
    ),
    "granite-4.0-h-tiny": of_type(
        "granitemoehybrid",
        llama(1536, 512, 40, 12, 4, 100352),
        layer_types=_GRANITE_TINY,
        num_local_experts=64,
        num_experts_per_tok=6,
        shared_intermediate_size=1024,
        mamba_n_heads=48,
        mamba_d_head=64,
        mamba_d_state=128,
        tie_word_embeddings=True,
    ),
    "falcon-h1-1.5b": of_type(
        "falcon_h1",
        llama(2048, 4096, 24, 8, 2, 65537),
        head_dim=128,
        mamba_d_ssm=3072,
        mamba_n_heads=48,
        mamba_d_head=64,
        mamba_n_groups=1,
        mamba_d_state=256,
    ),
    "minimax-m2": of_type(
        "minimax_m2",
        llama(3072, 1536, 62, 48, 8, 200064),
        head_dim=128,
        num_local_experts=256,
        num_experts_per_tok=8,
    ),
    "kimi-k2": of_type(
        "kimi_k2",
        llama(7168, 18432, 61, 64, 64, 163840),
        q_lora_rank=1536,
        moe_intermediate_size=2048,
        n_routed_experts=384,
        n_shared_experts=1,
        num_experts_per_tok=8,
        first_k_dense_replace=1,
        num_nextn_predict_layers=0,
    ),
    "gpt2-medium": {
        "model_type": "gpt2",
        "n_embd": 1024,
        "n_layer": 24,
        "n_head": 16,
        "vocab_size": 50257,
    },
    "falcon-7b": {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "vocab_size": 65024,
    },
    "pythia-6.9b": of_type("gpt_neox", llama(4096, 16384, 32, 32, 32, 50432)),
    "opt-6.7b": of_type("opt", llama(4096, 16384, 32, 32, 32, 50272), ffn_dim=16384),
    "bloom-7b1": {
        "model_type": "bloom",
        "hidden_size": 4096,
        "n_layer": 30,
        "n_head": 32,
        "vocab_size": 250880,
    },
    "command-r-35b": of_type("cohere", llama(8192, 22528, 40, 64, 64, 256000)),
    "command-r7b": of_type("cohere2", llama(4096, 14336, 32, 32, 8, 256000)),
    "phi-2": of_type("phi", llama(2560, 10240, 32, 32, 32, 51200)),
    "starcoder2-7b": of_type("starcoder2", llama(4608, 18432, 32, 36, 4, 49152)),
    "olmoe-1b-7b": of_type("olmoe", llama(2048, 1024, 16, 16, 16, 50304)),
    "seed-oss-36b": of_type("seed_oss", llama(5120, 27648, 64, 80, 8, 155136), head_dim=128),
    "ernie-4.5-0.3b": of_type("ernie4_5", llama(1024, 3072, 18, 16, 2, 103424)),
    "ernie-4.5-21b-a3b": of_type("ernie4_5_moe", llama(2560, 12288, 28, 20, 4, 103424)),
    "kimi-linear-48b-a3b": of_type(
        "kimi_linear",
        llama(2304, 9216, 27, 32, 32, 163840),
        linear_attn_config={
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
            "kda_layers": [i for i in range(1, 27) if i % 4],
            "head_dim": 128,
            "num_heads": 32,
            "short_conv_kernel_size": 4,
        },
        num_experts=256,
        num_experts_per_token=8,
        num_shared_experts=1,
        moe_intermediate_size=1024,
    ),
    "ministral-3-8b": of_type("ministral3", llama(4096, 14336, 34, 32, 8, 131072), head_dim=128),
    "glm-4-9b-chat": of_type("glm", llama(4096, 13696, 40, 32, 2, 151552)),
    "exaone-4.0-32b": of_type("exaone4", llama(5120, 27392, 64, 40, 8, 102400)),
    "hunyuan-7b": of_type("hunyuan_v1_dense", llama(4096, 14336, 32, 32, 8, 128167), head_dim=128),
    "dots-llm1": of_type(
        "dots1",
        llama(4096, 10944, 62, 32, 32, 152064),
        n_routed_experts=128,
        n_shared_experts=2,
        num_experts_per_tok=6,
        first_k_dense_replace=1,
        moe_intermediate_size=1408,
    ),
    "granite-3.0-3b-a800m": of_type(
        "granitemoe",
        llama(1536, 512, 32, 24, 8, 49155),
        num_local_experts=40,
        num_experts_per_tok=8,
        tie_word_embeddings=True,
    ),
    "minitron-8b": of_type("nemotron", llama(4096, 16384, 32, 48, 8, 256000), head_dim=128),
    "stablelm-2-1.6b": of_type(
        "stablelm", llama(2048, 5632, 24, 32, 32, 100352), use_qkv_bias=True
    ),
    "afm-4.5b": of_type("arcee", llama(2560, 18432, 36, 20, 4, 128004), head_dim=128),
    "cwm-32b": of_type("cwm", llama(6144, 21504, 64, 48, 8, 128256)),
    "helium-1-2b": of_type("helium", llama(2560, 7040, 24, 20, 20, 48000)),
    "ministral-8b": of_type(
        "ministral", llama(4096, 12288, 36, 32, 8, 131072), head_dim=128, sliding_window=32768
    ),
    "solar-open-100b": of_type("solar_open", llama(4096, 10240, 48, 64, 8, 196608)),
    "glm-4.7-flash": of_type("glm4_moe_lite", llama(2048, 10240, 47, 20, 20, 154880)),
    "flex-olmo-7x7b": of_type("flex_olmo", llama(4096, 11008, 32, 32, 32, 100352)),
}
