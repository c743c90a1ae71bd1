"""What the agent uses of the C API: if a build lacks one of these, no lane can run on it."""

from __future__ import annotations

from collections.abc import Mapping

# the structs through which the agent talks to llama.cpp, with the fields that it reads or writes
FIELDS: Mapping[str, frozenset[str]] = {
    "llama_model_params": frozenset({"devices", "n_gpu_layers"}),
    "llama_context_params": frozenset(
        {
            *("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_threads", "n_threads_batch"),
            *("cb_eval", "no_perf", "swa_full"),
        }
    ),
    "llama_batch": frozenset({"n_tokens", "token", "embd", "pos", "n_seq_id", "seq_id", "logits"}),
    "ggml_tensor": frozenset(
        {
            *("type", "buffer", "ne", "nb", "op", "op_params", "flags", "src", "view_src", "view_offs", "data"),
            "name",
        }
    ),
}
STRUCTS = tuple(FIELDS)

# functions of libllama; `llama_version` is not among them, since a word can stand in its place. Those of ggml are in ggml.py
FUNCTIONS = frozenset(
    {
        *("llama_log_set", "llama_backend_init"),
        *("llama_model_default_params", "llama_model_load_from_file", "llama_model_init_from_user", "llama_model_free"),
        *("llama_model_meta_val_str", "llama_model_n_layer", "llama_model_n_embd", "llama_model_n_embd_inp"),
        *("llama_model_rope_type", "llama_model_is_recurrent", "llama_model_is_hybrid", "llama_model_has_encoder"),
        *("llama_model_get_vocab", "llama_vocab_n_tokens"),
        *("llama_context_default_params", "llama_init_from_model", "llama_free", "llama_set_causal_attn"),
        *("llama_decode", "llama_get_logits"),
        *(
            "llama_get_memory",
            "llama_memory_clear",
            "llama_memory_seq_cp",
            "llama_memory_seq_rm",
            "llama_memory_seq_pos_max",
        ),
        *("llama_state_seq_get_size_ext", "llama_state_seq_get_data_ext", "llama_state_seq_set_data_ext"),
    }
)
