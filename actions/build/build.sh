#!/usr/bin/env bash
# Runs a build script in an empty folder and packs what it leaves. A tar keeps modes and links, which an artifact's zip loses.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=actions/common.sh
source "$here/../common.sh"

refuse_foreign_code
python=$RUNNER_TEMP/skippy-ci/bin/python
if [ ! -x "$python" ]; then python=python3; fi
export SKIPPY_PLAN=$RUNNER_TEMP/skippy-plan/plan.json
"$python" "$here/../same_plan.py" "$SKIPPY_PLAN" "$PLAN_DIGEST"

folder=$RUNNER_TEMP/skippy-build
rm -rf "$folder"
mkdir -p "$folder/out"
export SKIPPY_BUILD_OUT=$folder/out SKIPPY_BUILD_KEY=$BUILD_KEY SKIPPY_BACKEND=$BACKEND SKIPPY_ENGINE=$ENGINE
export SKIPPY_PYTHON=$python SKIPPY_PATCHES=$PATCHES
if [ -n "$SCRIPT" ]; then
  case "$SCRIPT" in
    /* | *..*) fail "script is '$SCRIPT': give a path inside the workspace" ;;
  esac
  bash "$GITHUB_WORKSPACE/$SCRIPT"
else
  bash "$here/default.sh"
fi
"$python" "$here/pack.py" "$folder/out" "$folder/build.tar" "$BUILD_KEY"
output artifact "$ARTIFACT.${GITHUB_RUN_ATTEMPT:-1}"
# The gate traces what ran to this list. The binding alone has none: its libraries are unpacked from a wheel.
if [ "$ENGINE" = pin ]; then
  mkdir "$folder/record"
  if [ -f "$folder/out/llama.tar" ]; then
    tar -xOf "$folder/out/llama.tar" build.json >"$folder/record/build.json"
  else
    cp "$folder/out/contents.json" "$folder/record/"
  fi
  output record true
fi
