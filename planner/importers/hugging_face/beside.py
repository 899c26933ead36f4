"""Keys of a config.json on which no parameter, no step and no memory depends, by the reason why.

Names are those of transformers 5.23's configuration classes and of the files of released models; a
`*` stands for any letters. What a reader does not look at and is not here is told: a key that is
null, false, 0 or empty is off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from planner.importers.fields import not_read
from planner.schema.model import ModelGraph

WITHOUT_INFLUENCE: Mapping[str, str] = {
    "which rows of tables are meant, not how many there are": """
        *_token *_token_id *_token_ids *_token_index begin_suppress_tokens suppress_tokens
        eoa_token_index unk_index mask_index pad_index bos_index eos_index cls_index
        sep_index langs semantic_loss_ignore_index sparse_pred_ignore_index
    """,
    "names, versions and forms of what is put out": """
        _name_or_path _commit_hash _class_name _diffusers_version transformers_version
        unsloth_version unsloth_fixed model_type architectures auto_map tokenizer_class
        processor_class dtype torch_dtype return_dict use_return_dict id2label label2id
        problem_type task_specific_params finetuning_task prefix is_encoder_decoder
        is_decoder is_encoder license
    """,
    "how text is written, after training": """
        use_cache cache_implementation mamba_ssm_cache_dtype use_mamba_kernels
        num_logits_to_keep max_length max_new_tokens min_length do_sample temperature
        top_k top_p typical_p num_beams num_beam_groups num_return_sequences
        diversity_penalty length_penalty repetition_penalty no_repeat_ngram_size
        encoder_no_repeat_ngram_size early_stopping bad_words_ids remove_invalid_values
        exponential_decay_length_penalty
    """,
    "how weights begin": """
        initializer_range initializer_factor initializer_cutoff_factor init_std
        init_method_std init_device embed_init_std embedding_initializer_range
        rescale_prenorm_residual time_step_min time_step_max time_step_floor
        time_step_limit time_step_scale time_step_init_scheme linear_a_log_max
        linear_dt_min linear_dt_max linear_dt_init_floor lambda_std_dev
        logit_scale_init_value
    """,
    "numbers within operations that are priced whatever they are": """
        *_eps *_epsilon eps rope_theta rope_parameters rope_scaling rope_type
        rope_interleave rotary_base rotary_emb_base compress_rope_theta layer_rope_theta
        rope_local_base_freq axes_dims_rope rope_axes_dim rope_max_seq_len
        relative_attention_max_distance norm_topk_prob
        routed_scaling_factor router_scaling_factor route_scale moe_routed_scaling_factor
        scoring_func topk_method n_group topk_group num_expert_group moe_renormalize
        moe_normalize_expert_weights expert_selection_fn moe_norm_min scale_embedding
        scale_emb scale_depth dim_model_base embedding_multiplier residual_multiplier
        attention_multiplier lm_head_multiplier mlp_multipliers key_multiplier
        attention_out_multiplier attention_in_multiplier ssm_multipliers ssm_in_multiplier
        ssm_out_multiplier logits_scaling logit_scale scale_attn_weights
        scale_decoder_outputs query_pre_attn_scalar attn_logit_softcapping
        attention_value_scale attn_scale floor_scale attn_temperature_tuning swiglu_limit
        swiglu_alpha full_attn_alpha_factor full_attn_beta_factor linear_attn_alpha_factor
        linear_attn_beta_factor mlp_alpha_factor mlp_beta_factor
    """,
    "lengths that no table has, and what processors of images and sounds go by": """
        n_ctx initial_context_length original_max_position_embeddings model_max_length
        spatial_patch_size tokens_per_second position_id_per_seconds seconds_per_chunk
    """,
    "activations, of which each is one kernel but for those that the first block's names": """
        hidden_act hidden_activation activation_function activation dense_act_fn
        is_gated_act afn mlp_hidden_act mamba_hidden_act projector_hidden_act pooler_act
        gelu_activation ffn_act_fn feat_extract_activation classifier_activation
        summary_activation conv_activation activation_fn
    """,
    "weights of losses": """
        router_aux_loss_coef router_z_loss_coef aux_loss_alpha moe_loss_weight
        z_loss_coeff seq_aux router_jitter_noise ctc_loss_reduction ctc_zero_infinity
        positive_label_weight diversity_loss_weight contrastive_logits_temperature
        auxiliary_loss_weight
    """,
    "what heads do that are there in some class of the type alone, and are read there": """
        summary_type summary_use_proj summary_proj_to_labels start_n_top end_n_top
        classifier_pooling num_labels out_features out_indices stage_names
        reshape_hidden_states
    """,
    "what masks hide of the sound": """
        apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks
        mask_feature_prob mask_feature_length mask_feature_min_masks
    """,
}
_NAMES = frozenset(name for names in WITHOUT_INFLUENCE.values() for name in names.split())
_ENDS = tuple(name[1:] for name in _NAMES if name.startswith("*"))
# Whose use the job says, for all of the model.
_DROPOUT = re.compile(r"dropout|_pdrop$|^dropout|layerdrop|drop_path_rate")
_WINDOWS = frozenset({"sliding_window", "max_window_layers"})
_OFF_AT_ONE = frozenset({"ep_size", "moe_layer_freq", "pretraining_tp"})
_LENGTH_LIMIT = 64


def with_unread(
    graph: ModelGraph,
    config: Mapping[str, Any],
    asked: AbstractSet[str],
    *,
    title: str,
    whole: AbstractSet[str] = frozenset(),
) -> ModelGraph:
    """Return the graph with a line on the keys that count for nothing, and one on dropout.

    `asked` has the paths of the keys that were looked at, as `Fields` gathers them; those of
    `whole` were with all that is in them.
    """
    left = _unread(config, asked)
    unread = [path for path in left if not path.startswith(tuple(f"{one}." for one in whole))]
    dropped = [path for path in unread if _DROPOUT.search(path)]
    named = [path for path in unread if path not in dropped]
    said = [not_read(title, named)] if named else []
    if dropped:
        said.append(f"{', '.join(dropped)}: there is dropout where the job's dropout is true")
    if not said:
        return graph
    return graph.model_copy(update={"assumptions": (*graph.assumptions, *said)})


def _unread(config: Mapping[str, Any], asked: AbstractSet[str], prefix: str = "") -> Iterator[str]:
    """Yield the paths of keys that are on, were not looked at and may be of influence."""
    for key, value in config.items():
        name = str(key)
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path in asked:
            yield from _unread(value, asked, f"{path}.")
        elif path not in asked and value and not _is_beside(name, config):
            yield path[:_LENGTH_LIMIT]


def _is_beside(name: str, config: Mapping[str, Any]) -> bool:
    """Return whether a key is without influence, by itself or by what its section says."""
    if name in _NAMES or name.endswith(_ENDS):
        return True
    if name == "num_key_value_heads":  # a head of keys for each, in attention that has no groups
        return bool(config[name] == config.get("num_attention_heads"))
    if name == "intermediate_size":  # of blocks without experts, where there are none
        return "moe_intermediate_size" in config
    if name in _OFF_AT_ONE:
        return bool(config[name] == 1)
    return name in _WINDOWS and config.get("use_sliding_window") is False
