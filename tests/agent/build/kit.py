"""A small checkout with the shape of llama.cpp: its headers for the pinned binding, and sources that cmake really builds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent.binding.layout import Layout
from agent.build.archive import members_of, pack
from agent.build.record import LIBRARIES, BuildRecord
from agent.build.system import needed_by, system_of_build

GGML_H = """\
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#define GGML_MAX_DIMS 4
enum ggml_type { GGML_TYPE_F32 = 0, GGML_TYPE_F16 = 1 };
enum ggml_op { GGML_OP_NONE = 0, GGML_OP_DUP };
struct ggml_backend_buffer;
struct ggml_tensor {
    enum ggml_type type;
    struct ggml_backend_buffer * buffer;
    int64_t ne[GGML_MAX_DIMS]; // elements
    size_t  nb[GGML_MAX_DIMS]; /* strides; in bytes */
    enum ggml_op op;
    int32_t op_params[64 / sizeof(int32_t)];
    int32_t flags;
    struct ggml_tensor * src[10];
    struct ggml_tensor * view_src;
    size_t view_offs;
    void * data;
    char name[64];
    void * extra;
    char padding[8];
};
typedef bool (*ggml_abort_callback)(void * data);
"""

GGML_BACKEND_H = """\
#pragma once
#include "ggml.h"
typedef struct ggml_backend_device * ggml_backend_dev_t;
typedef bool (*ggml_backend_sched_eval_callback)(struct ggml_tensor * t, bool ask, void * user_data);
"""

LLAMA_H = """\
#pragma once
#include "ggml-backend.h"
typedef int32_t llama_token;
typedef int32_t llama_pos;
typedef int32_t llama_seq_id;
enum llama_choice { LLAMA_CHOICE_UNSET = -1, LLAMA_CHOICE_NONE = 0 };
typedef bool (*llama_progress_callback)(float progress, void * user_data);
typedef struct llama_batch {
    int32_t n_tokens;
    llama_token  *  token;
    float        *  embd;
    llama_pos    *  pos;
    int32_t      *  n_seq_id;
    llama_seq_id ** seq_id;
    int8_t       *  logits;
} llama_batch;
struct llama_model_params {
    ggml_backend_dev_t * devices;
    const struct llama_model_tensor_buft_override * tensor_buft_overrides;
    int32_t n_gpu_layers;
    enum llama_choice split_mode;
    enum llama_choice load_mode;
    enum llama_choice lazy_mode;
    int32_t main_gpu;
    const float * tensor_split;
    llama_progress_callback progress_callback;
    void * progress_callback_user_data;
    const struct llama_model_kv_override * kv_overrides;
    bool vocab_only;
    bool check_tensors;
    bool use_extra_bufts;
    bool no_host;
    bool no_alloc;
    bool load_mtp;
};
struct llama_context_params {
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max, n_rs_seq, n_outputs_max, n_outputs_max_per_seq;
    int32_t n_threads, n_threads_batch;
    enum llama_choice ctx_type, rope_scaling_type, pooling_type, attention_type, flash_attn_type;
    float rope_freq_base, rope_freq_scale, yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    uint32_t yarn_orig_ctx;
    float defrag_thold;
    ggml_backend_sched_eval_callback cb_eval;
    void * cb_eval_user_data;
    enum ggml_type type_k;
    enum ggml_type type_v;
    ggml_abort_callback abort_callback;
    void * abort_callback_data;
    bool embeddings;
    bool offload_kqv;
    bool no_perf;
    bool op_offload;
    bool swa_full;
    bool kv_unified;
    struct llama_sampler_seq_config * samplers;
    size_t n_samplers;
    struct llama_context * ctx_other;
};
"""

CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(llama C)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(ggml-cpu SHARED src/cpu.c)
set_target_properties(ggml-cpu PROPERTIES VERSION 0.1.2 SOVERSION 0)
add_library(llama SHARED src/llama.c)
target_include_directories(llama PUBLIC include ggml/include)
target_link_libraries(llama PUBLIC ggml-cpu)
set_target_properties(llama PROPERTIES VERSION 0.5.0 SOVERSION 0)
"""

LLAMA_C = """\
#include "llama.h"
const char * llama_version(void) { return "toy"; }
int ggml_cpu_init(int device);
static void synchronize(void) {}
int llama_init(int n, int size) {
    if (n >= size) {
        return -1;
    }
    synchronize();
    return ggml_cpu_init(n);
}
const char * llama_where(void) { return __FILE__; }
"""


def write_checkout(root: Path, *, llama_h: str = LLAMA_H) -> Path:
    """A checkout at `root`."""
    files = {
        "include/llama.h": llama_h,
        "ggml/include/ggml.h": GGML_H,
        "ggml/include/ggml-backend.h": GGML_BACKEND_H,
        "CMakeLists.txt": CMAKE,
        "src/cpu.c": "int ggml_cpu_init(int device) { return device; }\n",
        "src/llama.c": LLAMA_C,
        "LICENSE": "text of the licence\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def pack_build(folder: Path, archive: Path, layout: Layout, **changes: Any) -> BuildRecord:
    """Pack the files of `folder` as a build of the CPU; `changes` are fields of its record."""
    libraries = sorted(path for path in (folder / LIBRARIES).glob("lib*") if not path.is_symlink())
    fields: dict[str, Any] = {
        "key": "",
        "commit": None,
        "patches": (),
        "patch_digest": "",
        "backend": "cpu",
        "system": system_of_build(libraries),
        "toolchain": {},
        "flags": (),
        "layout": layout,
        "needed": needed_by(libraries, frozenset(path.name for path in libraries)),
        "members": members_of(folder),
    }
    record = BuildRecord(**fields | changes)
    pack(folder, record, archive)
    return record


def pack_installed(tmp_path: Path, layout: Layout, **changes: Any) -> Path:
    """The libraries that came with the binding, packed as a build with `layout`."""
    llama_cpp = pytest.importorskip("llama_cpp")
    folder, archive = tmp_path / "installed", tmp_path / "installed.tar"
    shutil.copytree(Path(llama_cpp.__file__).parent / "lib", folder / LIBRARIES)
    pack_build(folder, archive, layout, **changes)
    return archive


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


def skippy(*arguments: object) -> Ran:
    """Run the command line as a user does."""
    done = subprocess.run(
        [sys.executable, "-c", "from agent.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
