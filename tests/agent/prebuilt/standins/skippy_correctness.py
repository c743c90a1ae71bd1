"""Stands in for `skippy-correctness`, which cannot be had here: it is a Rust program linked with a patched llama.cpp.

Commands, flags, their defaults, the children it starts, its reports and its exit codes are those of the product: 0 passed, 1 any
error, 2 a wrong argument; the report is written before a mismatch is complained of. Like the product it compares one token after
the first token of the prompt. The model is a toy. It really starts `--stage-server-bin` and really sends it activations.

`STANDIN_RELEASE` chooses the command line: wire-dtypes, raw-f32, half, unknown. `STANDIN_BYTES` is a JSON file with bytes of
state: ``{"kv": [per token and layer], "recurrent": [per layer], "frame": bytes}``. `STANDIN_FAULT` chooses a failure: those of
the server, and no-report, silent-0, half-report, other-form, no-results, pass-but-1, fail-but-0, hang, hang-after-report, die,
die-killed, die-after-report, usage, leave-behind, wrong-cut, no-token, liar, drops-recurrent, other-roundtrip, other-hit,
wrong-suffix, few-tokens, other-restore.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.agent.prebuilt.standins.clap import Command, Flag, parse
from tests.agent.prebuilt.standins.toy import WIDTH, Layers, encode, fault, tokenize
from tests.agent.prebuilt.standins.wire import Downstream, packed

RELEASE = os.environ.get("STANDIN_RELEASE", "wire-dtypes")
_HAS_WIRE = RELEASE == "wire-dtypes"
_WIRE = (Flag("--activation-wire-dtype", default="f16"),) if _HAS_WIRE else ()
_RUNTIME = (
    Flag("--model", required=True),
    Flag("--model-id"),
    Flag("--stage-model"),
    Flag("--stage-load-mode", default="runtime-slice"),
    Flag("--layer-end", default="30"),
    Flag("--ctx-size", default="128"),
    Flag("--n-gpu-layers", default="0"),
    Flag("--n-batch"),
    Flag("--n-ubatch"),
    Flag("--prompt", default="Hello"),
    Flag("--flash-attn", default="auto"),
    Flag("--stage-server-bin", default="target/debug/skippy-server"),
    Flag("--child-logs", value=""),
    Flag("--startup-timeout-secs", default="60"),
    Flag("--max-inflight", default="4"),
    Flag("--report-out"),
    Flag("--allow-mismatch", value=""),
)
_STEP = Command(
    "single-step",
    (*_RUNTIME, *_WIRE, Flag("--split-layer", default="15"), Flag("--stage1-bind-addr", default="127.0.0.1:19021")),
)
_CHAIN = Command(
    "chain",
    (
        *_RUNTIME,
        *_WIRE,
        Flag("--splits", default="10,20"),
        Flag("--stage1-bind-addr", default="127.0.0.1:19031"),
        Flag("--stage2-bind-addr", default="127.0.0.1:19032"),
    ),
)
_SCAN = Command(
    "split-scan",
    (*_RUNTIME, *_WIRE, Flag("--splits", default="1..30"), Flag("--stage1-bind-addr", default="127.0.0.1:19041")),
)
_MATRIX = Command(
    "dtype-matrix",
    (
        *_RUNTIME,
        Flag("--split-layer", default="15"),
        Flag("--stage1-bind-addr", default="127.0.0.1:19051"),
        Flag("--dtypes", default="f32,f16,q8"),
    ),
)
_STATE = Command(
    "state-handoff",
    (
        *_RUNTIME,
        *_WIRE,
        Flag("--source-bind-addr", default="127.0.0.1:19061"),
        Flag("--restore-bind-addr", default="127.0.0.1:19062"),
        Flag("--activation-width", default="2048"),
        Flag("--state-layer-start", default="0"),
        Flag("--state-layer-end"),
        Flag("--state-stage-index"),
        Flag("--state-payload-kind", default="full-state"),
        Flag("--prefix-token-count"),
        Flag("--cache-hit-repeats", default="1"),
        Flag("--runtime-lane-count"),
        Flag("--skip-suffix-prefill-check", value=""),
        Flag("--synthetic-input-activation", value=""),
    ),
)
COMMANDS: tuple[Command, ...] = {
    "wire-dtypes": (_STEP, _CHAIN, _SCAN, _MATRIX, _STATE),
    "raw-f32": (_STEP, _CHAIN, _SCAN, _STATE, Command("remote-handoff", _RUNTIME)),
    "half": (_STEP, _CHAIN, _SCAN, _MATRIX, _STATE),
    "unknown": (Command("verify", _RUNTIME),),
}[RELEASE]

Values = Mapping[str, str]
Json = dict[str, Any]


def main() -> int:
    """Run one command."""
    command, values = parse("skippy-correctness", "Validate staged llama execution", COMMANDS, sys.argv[1:])
    _fail_before()
    report = {
        "single-step": _single_step,
        "chain": _chain,
        "split-scan": _scan,
        "dtype-matrix": _matrix,
        "state-handoff": _state_handoff,
    }[command](values)
    _write(report, values)
    matches = report["status"] == "pass"
    return _fail_after(0 if matches or "--allow-mismatch" in values else 1)


def _fail_before() -> None:
    match fault():
        case "no-report":
            sys.stderr.write("Error: failed to open model\n")
            sys.exit(1)
        case "silent-0":
            sys.exit(0)
        case "hang":
            subprocess.Popen(["sleep", "600"], start_new_session=True)
            time.sleep(600)
        case "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "die-killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "usage":
            sys.stderr.write("error: unexpected argument '--model' found\n")
            sys.exit(2)


def _fail_after(code: int) -> int:
    match fault():
        case "pass-but-1":
            sys.stderr.write("Error: failed to write telemetry\n")
            return 1
        case "fail-but-0":
            return 0
        case "hang-after-report":
            time.sleep(600)
        case "die-after-report":
            os.kill(os.getpid(), signal.SIGABRT)
        case "leave-behind":  # twice forked, in a session of its own: no kill of a group reaches it
            subprocess.run(["/bin/sh", "-c", "setsid sleep 600 >/dev/null 2>&1 &"], check=True)
    return code


def _write(report: Json, values: Values) -> None:
    if fault() == "no-results" and "results" in report:
        report |= {"results": [], "split_count": 0, "dtype_count": 0, "mismatch_count": 0}
    if fault() == "other-form":
        report = {"mode": report["mode"], "outcome": "pass"}
    text = json.dumps(report)
    if fault() == "half-report":
        text = text[: len(text) // 2]
    sys.stdout.write(text + "\n")
    if "--report-out" in values:
        Path(values["--report-out"]).write_text(text, encoding="utf-8")


def _baseline(values: Values) -> tuple[int, int]:
    """The first token of the prompt, and the one that the whole model gives after it."""
    layers = Layers(Path(values["--model"]), 0, int(values["--layer-end"]))
    token = tokenize(values["--prompt"])[0]
    return token, layers.token(layers.run("baseline", 0, layers.embed(token)))


def _split(values: Values, cuts: Sequence[int], addresses: Sequence[str], wire: str) -> int:
    """The token that the split model gives: the first stage in this process, the others in children."""
    edges = [0, *cuts, int(values["--layer-end"])]
    run = f"correctness-{int(time.time() * 1000)}"
    children = []
    try:
        for index in reversed(range(1, len(edges) - 1)):
            config = {
                "run_id": run,
                "topology_id": "correctness",
                "model_id": values["--model-id"],
                "model_path": values["--model"],
                "stage_id": f"stage-{index}",
                "stage_index": index,
                "layer_start": edges[index],
                "layer_end": edges[index + 1],
                "n_gpu_layers": int(values["--n-gpu-layers"]),
                "load_mode": values["--stage-load-mode"],
                "bind_addr": addresses[index - 1],
                "upstream": None,
                "downstream": {"endpoint": f"tcp://{addresses[index]}"} if index + 2 < len(edges) else None,
            }
            path = Path(tempfile.gettempdir()) / f"{run}-stage-{index}.json"
            path.write_text(json.dumps(config), encoding="utf-8")
            argv = [values["--stage-server-bin"], "serve-binary", "--config", str(path)]
            argv += ["--activation-width", str(WIDTH), "--activation-wire-dtype", wire] if _HAS_WIRE else []
            children.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        after = _connect(addresses[0], children, float(values["--startup-timeout-secs"]))
        first = Layers(Path(values["--model"]), 0, edges[1])
        frame = encode(first.run("s", 0, first.embed(tokenize(values["--prompt"])[0])), wire)
        answer = after.call({"op": "step", "sequence": "s", "positions": [0], "frames": packed([frame])})
        after.close()
        return int(answer["token"])
    except (ConnectionError, OSError) as error:
        sys.stderr.write(f"Error: stage execution failed: {error}\n")
        sys.exit(1)
    finally:
        for child in children:
            child.kill()
            child.wait()


def _connect(address: str, children: Sequence[subprocess.Popen[bytes]], seconds: float) -> Downstream:
    deadline = time.monotonic() + seconds
    while True:
        for child in children:
            if (code := child.poll()) is not None:
                raise ConnectionError(f"child process exited before readiness with status {code}")
        try:
            return Downstream(address, 0)
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.02)


def _step(values: Values, cut: int, wire: str) -> Json:
    token, expected = _baseline(values)
    found = _split(values, [cut], [values["--stage1-bind-addr"]], wire)
    matches = found == expected
    if fault() == "no-token":
        expected = found = -1
    if fault() == "liar":
        found += 1
    layers = int(values["--layer-end"])
    said = cut + 1 if fault() == "wrong-cut" else cut
    wire_bytes = len(encode([0] * WIDTH, wire))
    return {
        "mode": "single-step",
        "status": "pass" if matches else "fail",
        "model_identity": {"model_id": values["--model-id"]},
        "matches": matches,
        "native_mtp_draft_required": False,
        "baseline": {"token_id": token, "predicted_token": expected},
        "split": {
            "token_id": token,
            "predicted_token": found,
            "native_mtp": {"sideband_present": False},
            "activation_width": WIDTH,
            **({"wire_dtype": wire} if _HAS_WIRE else {}),
            "boundary": {
                "producer_stage_index": 0,
                "layer_start": 0,
                "layer_end": said,
                "token_count": 1,
                "payload_bytes": 4 * WIDTH,
                "wire_payload_bytes": wire_bytes,
            },
        },
        "stage_models": _stage_models(values, [(0, cut), (cut, layers)]),
    }


def _stage_models(values: Values, ranges: Sequence[tuple[int, int]]) -> list[Json]:
    mode = values["--stage-load-mode"]
    model = values.get("--stage-model", values["--model"])
    found = []
    for index, (start, end) in enumerate(ranges):
        entry: Json = {
            "stage_index": index, "layer_start": start, "layer_end": end, "load_mode": mode, "model_path": model
        }  # fmt: skip
        if mode == "layer-package":
            manifest = (Path(model) / "model-package.json").read_bytes()
            entry["package"] = {"package_ref": model, "manifest_sha256": hashlib.sha256(manifest).hexdigest()}
        found.append(entry)
    return found


def _wire_of(values: Values) -> str:
    return values.get("--activation-wire-dtype", "f32")


def _single_step(values: Values) -> Json:
    return _step(values, int(values["--split-layer"]), _wire_of(values))


def _chain(values: Values) -> Json:
    cuts = [int(cut) for cut in values["--splits"].split(",")]
    token, expected = _baseline(values)
    addresses = [values["--stage1-bind-addr"], values["--stage2-bind-addr"]]
    found = _split(values, cuts, addresses, _wire_of(values))
    edges = [0, *cuts, int(values["--layer-end"])]
    ranges = list(itertools.pairwise(edges))
    return {
        "mode": "chain",
        "status": "pass" if found == expected else "fail",
        "model_identity": {"model_id": values["--model-id"]},
        "matches": found == expected,
        "native_mtp_draft_required": False,
        "baseline": {"token_id": token, "predicted_token": expected},
        "token_id": token,
        "predicted_token": found,
        "native_mtp": {"sideband_present": False},
        "activation_width": WIDTH,
        **({"wire_dtype": _wire_of(values)} if _HAS_WIRE else {}),
        "stages": [
            {
                "stage_index": index,
                "layer_start": start,
                "layer_end": end,
                "payload_bytes": 4 * WIDTH if index < 2 else None,
                "wire_payload_bytes": 4 * WIDTH if index < 2 else None,
                "forwarded_over_binary": index == 1,
                "returned_predicted_token": index == 2,
            }
            for index, (start, end) in enumerate(ranges)
        ],
        "stage_models": _stage_models(values, ranges),
    }


def _scan(values: Values) -> Json:
    results = [_step(values, int(cut), _wire_of(values)) for cut in values["--splits"].split(",")]
    return _collected("split-scan", "split_count", results)


def _matrix(values: Values) -> Json:
    results = [_step(values, int(values["--split-layer"]), wire) for wire in values["--dtypes"].split(",")]
    return _collected("dtype-matrix", "dtype_count", results)


def _collected(mode: str, count: str, results: list[Json]) -> Json:
    wrong = sum(not result["matches"] for result in results)
    return {
        "mode": mode,
        "status": "fail" if wrong else "pass",
        "model_identity": results[0]["model_identity"],
        "baseline": results[0]["baseline"],
        count: len(results),
        "mismatch_count": wrong,
        "results": results,
    }


def _state_handoff(values: Values) -> Json:
    start, end = int(values["--state-layer-start"]), int(values["--state-layer-end"])
    count = int(values["--prefix-token-count"])
    source = Layers(Path(values["--model"]), start, end)
    words = (tokenize(values["--prompt"]) * count)[: count + 1]
    for position, token in enumerate(words[:count]):
        source.run("source", position, source.embed(token))
    source.keep("source", "prefix")
    target = Layers(Path(values["--model"]), start, end)
    target.kept = source.kept
    if fault() == "other-restore":
        target.kept = {"prefix": [[value + 1 for value in state] for state in source.kept["prefix"]]}

    def follow(layers: Layers, sequence: str) -> int:
        return layers.token(layers.run(sequence, count, layers.embed(words[count])))

    expected = follow(source, "source")
    answers = []
    for repeat in range(int(values["--cache-hit-repeats"]) + 1):
        target.restore("prefix", f"hit-{repeat}")
        answers.append(follow(target, f"hit-{repeat}"))
    hits = all(answer == expected for answer in answers[1:]) and fault() != "other-hit"
    kv, recurrent = _bytes(values["--state-payload-kind"], start, end, count)
    matches = answers[0] == expected and hits and fault() != "wrong-suffix"
    digest = hashlib.sha256(repr(source.kept["prefix"]).encode()).hexdigest()
    return {
        "mode": "state-handoff",
        "status": "pass" if matches else "fail",
        "model_identity": {"model_id": values["--model-id"]},
        "matches": matches,
        "predicted_token_matches": answers[0] == expected,
        "roundtrip_state_matches": fault() != "other-roundtrip",
        **({"restored_output_matches": matches} if start or end < int(values["--layer-end"]) else {}),
        "suffix_prefill_matches": fault() != "wrong-suffix",
        "cache_hit_matches": hits,
        "stage_index": 0 if not start else 1,
        "layer_start": start,
        "layer_end": end,
        "include_embeddings": not start,
        "include_output": end == int(values["--layer-end"]),
        "handoff_transport": "local-runtime",
        "state_payload_kind": values["--state-payload-kind"],
        "borrowed_resident_hits": False,
        "cached_decoded_result_hits": False,
        "source_predicted_token": expected,
        "restored_predicted_token": answers[0],
        "prompt_token_count": 1 if fault() == "few-tokens" else count,
        "benchmark_prompt_token_count": count + 1,
        "benchmark_prompt_text": values["--prompt"],
        "requested_prefix_token_count": count,
        "activation_width": int(values["--activation-width"]),
        "state_bytes": kv + recurrent,
        "state_bytes_per_prompt_token": (kv + recurrent) / count,
        "roundtrip_state_bytes": kv + recurrent,
        "payload_digest": {
            "payload_kind": values["--state-payload-kind"],
            "payload_sha256": digest,
            "total_bytes": kv + recurrent,
            "kv_bytes": kv,
            "recurrent_bytes": recurrent,
            "block_size_bytes": 1048576,
            "block_count": 1,
            "unique_block_count": 1,
            "duplicate_block_count": 0,
        },
        "tokenize_ms": 0.1,
        "cache_hit_repeats": int(values["--cache-hit-repeats"]),
        "stage_models": _stage_models(values, [(start, end)]),
    }


def _bytes(kind: str, start: int, end: int, tokens: int) -> tuple[int, int]:
    """Bytes of keys and values and of recurrent state that a payload of this kind holds, from the test's own arithmetic."""
    table = json.loads(Path(os.environ["STANDIN_BYTES"]).read_text(encoding="utf-8"))
    kv = tokens * sum(table["kv"][start:end]) if kind != "recurrent-only" else 0
    owned = sum(table["recurrent"][start:end])
    recurrent = table["frame"] + owned if owned and kind != "resident-kv" else 0
    return kv, 0 if fault() == "drops-recurrent" else recurrent


if __name__ == "__main__":
    sys.exit(main())
