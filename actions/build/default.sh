#!/usr/bin/env bash
# Builds what this project's legs need: the wheel of the binding (compiled here and nowhere else), and the libraries of the pin.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
# shellcheck source=actions/common.sh
source "$here/../common.sh"

case "$SKIPPY_ENGINE" in
  pin | binding) ;;
  *) fail "engine is '$SKIPPY_ENGINE': use pin or binding" ;;
esac
if command -v sccache >/dev/null 2>&1; then
  export CMAKE_C_COMPILER_LAUNCHER=sccache CMAKE_CXX_COMPILER_LAUNCHER=sccache
fi

wheels=$(mktemp -d "$RUNNER_TEMP/skippy-wheels.XXXXXX")
"$SKIPPY_PYTHON" -m pip wheel -qq --disable-pip-version-check --require-hashes --wheel-dir "$wheels" \
  -r "$root/.ci/requirements/engine.txt" || fail "the binding of llama.cpp could not be built; see above"
# Wheels of one Python version are left out: the legs have those from their own hashed requirements, for the Python they run.
mkdir -p "$SKIPPY_BUILD_OUT/wheels"
cp "$wheels"/*-none-*.whl "$SKIPPY_BUILD_OUT/wheels/"
rm -rf "$wheels"

if [ "$SKIPPY_ENGINE" = pin ]; then
  arguments=(build --plan "$SKIPPY_PLAN" --key "$SKIPPY_BUILD_KEY" -o "$SKIPPY_BUILD_OUT/llama.tar")
  arguments+=(--jobs "$(getconf _NPROCESSORS_ONLN)")
  if [ -n "${SKIPPY_LLAMA_SRC:-}" ]; then arguments+=(--llama-src "$SKIPPY_LLAMA_SRC"); fi # a checkout that is here already
  if [ -n "$SKIPPY_PATCHES" ]; then arguments+=(--patches "$SKIPPY_PATCHES"); fi
  skippy-agent "${arguments[@]}" ||
    fail "the libraries of the pin were not built, so no leg can say anything about it; see above"
fi
