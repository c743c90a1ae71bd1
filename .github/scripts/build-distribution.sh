#!/usr/bin/env bash
# Builds wheel and sdist into the folder $1, with the pinned build backend: hatchling and what it needs, with hashes, from dev.txt.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v names="hatchling packaging pathspec pluggy tomlkit trove-classifiers" '
  BEGIN { split(names, list, " "); for (i in list) wanted[list[i]] }
  /^[a-z0-9]/ { split($1, part, "=="); keep = part[1] in wanted }
  keep' .ci/requirements/dev.txt >"$work/build.txt"
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -qq --disable-pip-version-check --require-hashes --only-binary :all: -r "$work/build.txt"
"$work/venv/bin/python" -m hatchling build -d "$target"
