#!/usr/bin/env bash
# The word of the verdict is read back from the file: an exit code alone says nothing about what was written.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=actions/common.sh
source "$here/../common.sh"

require_name name "$NAME"
python=$RUNNER_TEMP/skippy-ci/bin/python
if [ ! -x "$python" ]; then fail "skippy-ci is not set up here: run the action setup with extra: agent before this one"; fi
plan=$RUNNER_TEMP/skippy-plan/plan.json
"$python" "$here/../same_plan.py" "$plan" "$PLAN_DIGEST"

receipts=$RUNNER_TEMP/skippy-all-receipts folder=$RUNNER_TEMP/skippy-verdict
rm -rf "$folder"
mkdir -p "$receipts" "$folder"
cp "$plan" "$folder/plan.json"
arguments=(gate --plan "$plan" --receipts "$receipts" -o "$folder/verdict.json" --junit "$folder/junit.xml")
case "$REQUIRE_SIGNATURE" in
  true) arguments+=(--require-signature) ;;
  false) ;;
  *) fail "require-signature is '$REQUIRE_SIGNATURE': use true or false" ;;
esac
records=$RUNNER_TEMP/skippy-records
"$python" "$here/records.py" "$RUNNER_TEMP/skippy-all-records" "$records"
# Without any, as with the binding's own libraries, the verdict says that nobody looked, and the pin stays.
if [ -d "$records" ]; then arguments+=(--builds "$records"); fi
status=0
skippy-agent "${arguments[@]}" || status=$?
if [ -f "$folder/verdict.json" ]; then
  skippy-agent statement "$folder/verdict.json"
  output artifact "skippy-verdict.$NAME.${GITHUB_RUN_ATTEMPT:-1}"
  output verdict "$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["state"])' "$folder/verdict.json")"
fi
exit "$status"
