# Recipes for daily work. `just` comes with the development requirements: run `sh .ci/setup` once, then `.venv/bin/just`.

set positional-arguments

agent := justfile_directory() / ".venv/bin/skippy-agent"
bin := justfile_directory() / ".venv/bin"

# Show the recipes.
default:
    @just --justfile {{ justfile() }} --list --unsorted

# Make or refresh .venv from the hashed requirements. Does nothing when it is up to date.
setup:
    sh .ci/setup

# Certify all Tier 1 families on twins, with real llama.cpp. Extra arguments go to `skippy-agent certify`.
certify *ARGS: setup
    {{ agent }} certify --tier 1 --twin "$@"

# Certify one family: `just family-certify qwen3-dense /path/to/model.gguf`, or upstream's `--family qwen3 --target-model PATH`.
family-certify *ARGS:
    #!/usr/bin/env bash
    set -euo pipefail
    families=() options=()
    while (($#)); do
      case "$1" in
        --family) families+=("${2:?--family needs a name}"); shift 2 ;;
        --family=*) families+=("${1#*=}"); shift ;;
        --target-model) options+=(--model "${2:?--target-model needs a path}"); shift 2 ;;
        --target-model=*) options+=(--model "${1#*=}"); shift ;;
        --skip-build) echo "family-certify: --skip-build has no effect, nothing is built here" >&2; shift ;;
        -*) options+=("$@"); break ;;
        *.gguf | */*) options+=(--model "$1"); shift ;;
        *) families+=("$1"); shift ;;
      esac
    done
    exec {{ quote(agent) }} certify ${families[@]+"${families[@]}"} ${options[@]+"${options[@]}"}

# Run the tests, without the slow ones.
test *ARGS:
    {{ bin }}/pytest -n 2 "$@"

# Run all tests, the slow ones too, as CI does.
test-all *ARGS:
    CI=true {{ bin }}/pytest -n 2 "$@"

# Check the style and the format of the code.
lint:
    {{ bin }}/ruff check
    {{ bin }}/ruff format --check

# Check the types.
types:
    {{ bin }}/mypy

# Build the documentation into site/; a broken link is an error.
docs:
    NO_MKDOCS_2_WARNING=1 {{ bin }}/mkdocs build --strict

# Everything that CI runs.
ci:
    .ci/run

# Pin the dependencies again, with hashes. `just requirements --upgrade` takes newer versions, without it only what pyproject.toml forces.
requirements *ARGS:
    #!/usr/bin/env bash
    set -euo pipefail
    compile() {
      {{ quote(bin) }}/uv --no-config pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "just requirements" "$@" pyproject.toml
    }
    compile --all-extras --output-file .ci/requirements/dev.txt "$@"
    # The smaller sets take their versions from the whole, so that one project never has two truths.
    compile --constraint .ci/requirements/dev.txt --output-file .ci/requirements/base.txt
    compile --constraint .ci/requirements/dev.txt --output-file .ci/requirements/agent.txt --extra agent
    compile --constraint .ci/requirements/dev.txt --output-file .ci/requirements/engine.txt --extra engine

# Measure what docs/performance.md reports.
bench *ARGS:
    CI=true {{ bin }}/pytest tests/bench -s "$@"
