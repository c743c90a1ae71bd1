#!/usr/bin/env bash
# Prints the notes of the release $1 (vX.Y.Z): its part of the change log, and the breaking change that every Tier 3 family is.
# Run the action setup before: matrixgen is on PATH.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1#v}
changes=$(awk -v heading="## [$version]" '
  index($0, heading) == 1 { inside = 1; next }
  inside && /^## \[/ { exit }
  inside' CHANGELOG.md)
if [ -z "${changes//[[:space:]]/}" ]; then
  echo "release-notes: CHANGELOG.md has no entry '## [$version]': write it before the tag" >&2
  exit 1
fi
printf '%s\n\n' "$changes"
matrixgen tombstones --release-notes
