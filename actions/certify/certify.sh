#!/usr/bin/env bash
# The outputs come first, so that what receipts there are get uploaded whatever happens after.
set -euo pipefail
# shellcheck source=actions/common.sh
source "$(dirname "$0")/../common.sh"

refuse_foreign_code
require_name name "$NAME"
case "$JOB" in '' | *[!a-z0-9._@-]*) fail "job is '$JOB': give the id of the matrix, such as jamba@cpu" ;; esac
receipts=$RUNNER_TEMP/skippy-receipts
rm -rf "$receipts"
output receipts "$receipts"
output artifact "skippy-receipt.$NAME.$JOB.${GITHUB_RUN_ATTEMPT:-1}"

arguments=(certify --plan "$PLAN" --receipts "$receipts" --manifests "$MANIFESTS")
add_options --leg "$LEGS"
if [ -z "${LEGS//[[:space:],]/}" ]; then fail "legs is empty: without one, every leg of the plan would run here"; fi
if [ -n "$BUILD" ]; then arguments+=(--build "$BUILD"); fi
if [ -n "$STORE" ]; then arguments+=(--store "$STORE" --offline); fi
exec skippy-agent "${arguments[@]}"
