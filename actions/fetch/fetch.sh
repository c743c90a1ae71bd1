#!/usr/bin/env bash
# Verifies plan and build, installs the build's binding, and fetches model files into the store.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=actions/common.sh
source "$here/../common.sh"

refuse_foreign_code
python=$RUNNER_TEMP/skippy-ci/bin/python
if [ ! -x "$python" ]; then fail "skippy-ci is not set up here: run the action setup with extra: agent before this one"; fi
plan=$RUNNER_TEMP/skippy-plan/plan.json
"$python" "$here/../same_plan.py" "$plan" "$PLAN_DIGEST"

build=$RUNNER_TEMP/skippy-build
rm -rf "$build"
"$python" "$here/unpack.py" "$RUNNER_TEMP/skippy-builds" "$build" "$BUILD_KEY"
if compgen -G "$build/wheels/*.whl" >/dev/null; then
  "$python" -m pip install -qq --disable-pip-version-check --no-index --no-deps "$build"/wheels/*.whl ||
    fail "the binding of the build does not fit this machine; see above"
fi
libraries=
if [ -f "$build/llama.tar" ]; then libraries=$build/llama.tar; fi

store=${STORE:-$RUNNER_TEMP/skippy-store}
if [ "$SUBJECT" = weights ]; then
  arguments=(fetch --plan "$plan" --store "$store")
  add_options --leg "$LEGS"
  add_options --source "$SOURCES"
  skippy-agent "${arguments[@]}"
fi
output plan "$plan"
output build "$libraries"
output store "$store"
