#!/usr/bin/env bash
# One leg. The outputs come first, so that the receipt is uploaded whatever happens after.
set -euo pipefail
# shellcheck source=actions/common.sh
source "$(dirname "$0")/../common.sh"

refuse_foreign_code
require_name name "$NAME"
case "$LEG" in '' | *[!a-z0-9._@-]*) fail "leg is '$LEG': give an id of the plan, such as jamba@cpu" ;; esac
receipts=$RUNNER_TEMP/skippy-receipts
rm -rf "$receipts"
output receipts "$receipts"
output artifact "skippy-receipt.$NAME.$LEG.${GITHUB_RUN_ATTEMPT:-1}"

arguments=(certify --plan "$PLAN" --leg "$LEG" --receipts "$receipts" --manifests "$MANIFESTS")
if [ -n "$STORE" ]; then arguments+=(--store "$STORE" --offline); fi
exec skippy-agent "${arguments[@]}"
