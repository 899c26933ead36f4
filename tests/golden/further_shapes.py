"""Further public shapes: sparse attention, Mamba, short convolutions, and older decoders.

Facts alone, as in `public_shapes`.
"""

from __future__ import annotations

from tests.golden.public_shapes import Shape, llama, of_type

FURTHER_SHAPES: dict[str, Shape] = {
    "deepseek-v3.2": of_type(
        "deepseek_v32",
        llama(7168, 18432, 61, 128, 128, 129280),
        q_lora_rank=1536,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        first_k_dense_replace=3,
        index_n_heads=64,
        index_head_dim=128,
        index_topk=2048,
    ),
    "glm-5": of_type("glm_moe_dsa", llama(6144, 12288, 78, 64, 64, 154880)),
    "mamba-2.8b": {
        "model_type": "mamba",
        "hidden_size": 2560,
        "intermediate_size": 5120,
        "num_hidden_layers": 64,
        "vocab_size": 50280,
    },
    "falcon-mamba-7b": {
        "model_type": "falcon_mamba",
        "hidden_size": 4096,
        "intermediate_size": 8192,
        "expand": 16,
        "num_hidden_layers": 64,
        "time_step_rank": 256,
        "vocab_size": 65024,
        "tie_word_embeddings": False,
    },
    "mamba-codestral-7b": {
        "model_type": "mamba2",
        "hidden_size": 4096,
        "num_hidden_layers": 64,
        "num_heads": 128,
        "vocab_size": 32768,
    },
    "jamba-v0.1": of_type("jamba", llama(4096, 14336, 32, 32, 8, 65536)),
    "bamba-9b": of_type(
        "bamba",
        llama(4096, 14336, 32, 32, 8, 128256),
        attn_layer_indices=[9, 18, 27],
        mamba_d_state=128,
    ),
    "lfm2-1.2b": of_type(
        "lfm2",
        llama(2048, 12288, 16, 32, 8, 65536),
        full_attn_idxs=[2, 5, 8, 10, 12, 14],
    ),
    "lfm2-8b-a1b": of_type(
        "lfm2_moe",
        llama(2048, 7168, 24, 32, 8, 65536),
        layer_types=[
            "full_attention" if layer in {2, 6, 10, 14, 18, 21} else "conv" for layer in range(24)
        ],
    ),
    "starcoder-15b": {
        "model_type": "gpt_bigcode",
        "n_embd": 6144,
        "n_layer": 40,
        "n_head": 48,
        "n_inner": 24576,
        "n_positions": 8192,
        "vocab_size": 49152,
    },
    "gpt-j-6b": {
        "model_type": "gptj",
        "n_embd": 4096,
        "n_layer": 28,
        "n_head": 16,
        "vocab_size": 50400,
    },
    "gpt-neo-2.7b": {
        "model_type": "gpt_neo",
        "hidden_size": 2560,
        "num_layers": 32,
        "num_heads": 20,
        "vocab_size": 50257,
        "attention_types": [[["global", "local"], 16]],
    },
    "mpt-7b": {
        "model_type": "mpt",
        "d_model": 4096,
        "n_layers": 32,
        "n_heads": 32,
        "vocab_size": 50432,
    },
    "phi-3.5-moe": of_type(
        "phimoe",
        llama(4096, 6400, 32, 32, 8, 32064),
        attention_bias=True,
        lm_head_bias=True,
    ),
    "olmo-7b": of_type("olmo", llama(4096, 11008, 32, 32, 32, 50304)),
    "apertus-8b": of_type("apertus", llama(4096, 21504, 32, 32, 8, 131072)),
    "internlm3-8b": of_type("internlm3", llama(4096, 10240, 48, 32, 2, 128512), head_dim=128),
    "vaultgemma-1b": of_type(
        "vaultgemma", llama(1152, 6912, 26, 4, 4, 256000), head_dim=256, sliding_window=512
    ),
    "hunyuan-a13b": of_type(
        "hunyuan_v1_moe",
        llama(4096, 3072, 32, 32, 8, 128167),
        head_dim=128,
        num_experts=64,
        moe_topk=8,
        tie_word_embeddings=True,
    ),
    "minicpm3-4b": of_type("minicpm3", llama(2560, 6400, 62, 40, 40, 73448)),
    "nanochat-d20": of_type("nanochat", llama(1280, 5120, 20, 10, 10, 65536)),
    # The sizes that their configuration classes fill in.
    "afmoe": of_type("afmoe", llama(2048, 6144, 32, 16, 16, 200192)),
    "exaone-moe": of_type("exaone_moe", llama(4096, 16384, 32, 32, 32, 102400)),
    "granite-swa": of_type("granite_swa", llama(2560, 8192, 24, 20, 4, 100352)),
    "granite-moe-swa": of_type("granitemoe_swa", llama(4096, 11008, 32, 32, 32, 32000)),
    "hy-v3": of_type("hy_v3", llama(4096, 13312, 80, 64, 8, 120832)),
    "youtu": of_type("youtu", llama(2048, 6144, 32, 16, 16, 128256)),
}
