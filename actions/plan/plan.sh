#!/usr/bin/env bash
# matrixgen writes the outputs of the step itself; this script only translates the inputs and names the artifact.
set -euo pipefail
# shellcheck source=actions/common.sh
source "$(dirname "$0")/../common.sh"

refuse_foreign_code
require_name name "$NAME"
case "${GITHUB_EVENT_NAME:-}" in
  pull_request*)
    if [ "$EVENT" != pull-request ]; then
      fail "a pull request may be anybody's code: plan it with the event pull-request, not with '$EVENT'"
    fi
    ;;
esac
case "$LLAMA_COMMIT" in *[!0-9a-f]*) fail "llama-commit is '$LLAMA_COMMIT': give 40 hex digits, not a branch or tag" ;; esac
if [ -n "$LLAMA_COMMIT" ] && [ "${#LLAMA_COMMIT}" != 40 ]; then
  fail "llama-commit has ${#LLAMA_COMMIT} digits: give all 40"
fi

folder=$RUNNER_TEMP/skippy-plan
rm -rf "$folder"
mkdir -p "$folder"
if [ -n "$LLAMA_COMMIT$UPSTREAM" ]; then
  # The checkout keeps its pin: only what is planned here has the candidate.
  cp -R "$MANIFESTS" "$folder/manifests"
  MANIFESTS=$folder/manifests
fi
if [ -n "$UPSTREAM" ]; then matrixgen pin --upstream "$UPSTREAM" --manifests "$MANIFESTS"; fi
if [ -n "$LLAMA_COMMIT" ]; then matrixgen pin "$LLAMA_COMMIT" --manifests "$MANIFESTS"; fi

arguments=(emit --event "$EVENT" --manifests "$MANIFESTS" --format table --plan "$folder/plan.json" "--pack=$PACK_MINUTES")
case "$CHUNKED" in
  true) arguments+=(--chunked) ;;
  false) ;;
  *) fail "chunked is '$CHUNKED': use true or false" ;;
esac
add_options --tier "$TIERS"
add_options --family "$FAMILIES"
add_options --backend "$BACKENDS"
add_options --subject "$SUBJECT"
table=$(matrixgen "${arguments[@]}")
printf '%s\n' "$table"
# shellcheck disable=SC2016 # the backquotes are Markdown
printf '### Plan `%s`\n\n```text\n%s\n```\n' "$EVENT" "$table" >>"$GITHUB_STEP_SUMMARY"
output artifact "skippy-plan.$NAME.${GITHUB_RUN_ATTEMPT:-1}"
