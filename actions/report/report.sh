#!/usr/bin/env bash
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=actions/common.sh
source "$here/../common.sh"

python=$RUNNER_TEMP/skippy-ci/bin/python
if [ ! -x "$python" ]; then fail "skippy-ci is not set up here: run the action setup with extra: agent before this one"; fi
case "$ATTEST" in true | false) ;; *) fail "attest is '$ATTEST': use true or false" ;; esac
plan=$RUNNER_TEMP/skippy-verdict/plan.json verdict=$RUNNER_TEMP/skippy-verdict/verdict.json
skippy-agent verify --plan "$plan" --verdict "$verdict"
arguments=()
add_options --lane "$LANES"
"$python" "$here/lanes.py" "$verdict" ${arguments[@]+"${arguments[@]#--lane=}"} >>"$GITHUB_STEP_SUMMARY" ||
  fail "a required lane was not passed by every leg that owes it, or by no leg at all; see the summary"
output plan "$plan"
output verdict "$verdict"
