"""Reports as the product writes them, for tests that need no process. Written after its schema, not taken from a run."""

from __future__ import annotations

from typing import Any

STEP: dict[str, Any] = {
    "mode": "single-step",
    "status": "pass",
    "model_identity": {"model_id": "skippy-ci/model:local"},
    "matches": True,
    "native_mtp_draft_required": False,
    "baseline": {"token_id": 9, "predicted_token": 14},
    "split": {
        "token_id": 9,
        "predicted_token": 14,
        "native_mtp": {"sideband_present": False, "predicted_token_count": 1},
        "activation_width": 64,
        "wire_dtype": "f32",
        "boundary": {
            "producer_stage_index": 0,
            "layer_start": 0,
            "layer_end": 4,
            "token_count": 1,
            "payload_bytes": 256,
            "wire_payload_bytes": 256,
        },
    },
    "stage_models": [
        {"stage_index": 0, "layer_start": 0, "layer_end": 4, "load_mode": "runtime-slice", "model_path": "m.gguf"},
        {"stage_index": 1, "layer_start": 4, "layer_end": 8, "load_mode": "runtime-slice", "model_path": "m.gguf"},
    ],
}

CHAIN: dict[str, Any] = {
    "mode": "chain",
    "status": "pass",
    "model_identity": {"model_id": "skippy-ci/model:local"},
    "matches": True,
    "native_mtp_draft_required": False,
    "baseline": {"token_id": 9, "predicted_token": 14},
    "token_id": 9,
    "predicted_token": 14,
    "activation_width": 64,
    "wire_dtype": "f32",
    "stages": [
        {
            "stage_index": index,
            "layer_start": start,
            "layer_end": end,
            "payload_bytes": None if index == 2 else 256,
            "wire_payload_bytes": None if index == 2 else 256,
            "forwarded_over_binary": index == 1,
            "returned_predicted_token": index == 2,
        }
        for index, (start, end) in enumerate(((0, 3), (3, 6), (6, 8)))
    ],
    "stage_models": [
        {"stage_index": index, "layer_start": start, "layer_end": end, "load_mode": "runtime-slice", "model_path": "m"}
        for index, (start, end) in enumerate(((0, 3), (3, 6), (6, 8)))
    ],
}

HANDOFF: dict[str, Any] = {
    "mode": "state-handoff",
    "status": "pass",
    "model_identity": {"model_id": "skippy-ci/model:local"},
    "matches": True,
    "predicted_token_matches": True,
    "roundtrip_state_matches": True,
    "restored_output_matches": True,
    "suffix_prefill_matches": True,
    "cache_hit_matches": True,
    "layer_start": 0,
    "layer_end": 8,
    "handoff_transport": "local-runtime",
    "state_payload_kind": "resident-kv",
    "source_predicted_token": 14,
    "restored_predicted_token": 14,
    "prompt_token_count": 24,
    "state_bytes": 49152,
    "roundtrip_state_bytes": 49152,
    "payload_digest": {
        "payload_kind": "resident-kv",
        "payload_sha256": "a" * 64,
        "total_bytes": 49152,
        "kv_bytes": 49152,
        "recurrent_bytes": 0,
    },
    "cache_hit_repeats": 3,
    "stage_models": [
        {"stage_index": 0, "layer_start": 0, "layer_end": 8, "load_mode": "runtime-slice", "model_path": "m.gguf"}
    ],
}

PREFLIGHT: dict[str, Any] = {
    "schema_version": 1,
    "valid": True,
    "model_id": "skippy-ci/model:local",
    "layer_count": 8,
    "activation_width": 64,
    "manifest_sha256": "b" * 64,
    "checked_artifact_count": 9,
    "missing_artifact_count": 0,
    "issue_count": 0,
    "issues": [],
    "artifacts": [
        {
            "role": "layer" if layer is not None else "metadata",
            "layer_index": layer,
            "path": f"layers/layer-{layer}.gguf",
            "present": True,
            "size_matches_manifest": True,
            "sha256_matches_manifest": True,
        }
        for layer in (None, *range(8))
    ],
    "stages": [
        {
            "layer_start": start,
            "layer_end": end,
            "includes_embeddings": start == 0,
            "includes_output": end == 8,
            "missing_parts": [],
        }
        for start, end in ((0, 4), (4, 8))
    ],
}


def collected(mode: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """A report that holds several."""
    wrong = sum(not result["matches"] for result in results)
    return {
        "mode": mode,
        "status": "fail" if wrong else "pass",
        "model_identity": {"model_id": "skippy-ci/model:local"},
        "baseline": {"token_id": 9, "predicted_token": 14},
        "split_count" if mode == "split-scan" else "dtype_count": len(results),
        "mismatch_count": wrong,
        "results": results,
    }
