#!/usr/bin/env bash
# A product's build script: a build of this key is in the product's own S3 store already, so nothing is compiled again.
set -euo pipefail
exec "$SKIPPY_PYTHON" "$(dirname "$0")/take_build.py"
