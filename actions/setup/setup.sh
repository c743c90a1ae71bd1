#!/usr/bin/env bash
# Makes an environment in RUNNER_TEMP, which ends with the job, so that no job can leave code behind for the next one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
# shellcheck source=actions/common.sh
source "$here/../common.sh"

refuse_foreign_code
case "$EXTRA" in
  base | agent) ;;
  *) fail "extra is '$EXTRA': use base or agent" ;;
esac

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
python=
for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
  if new_enough "$candidate"; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then fail "Python 3.11 or newer is needed and none is on PATH: install one, or name it with python:"; fi

home=$RUNNER_TEMP/skippy-ci
"$python" -m venv --clear "$home" || fail "no environment could be made with $python; on Debian, install python3-venv"
"$home/bin/python" -m pip install -qq --disable-pip-version-check --require-hashes --only-binary :all: \
  -r "$root/.ci/requirements/$EXTRA.txt" || fail "the requirements of '$EXTRA' could not be installed; see above"

# The code is used from where it stands: nothing has to be built, so nothing unhashed has to be fetched for building.
site=$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$root" >"$site/skippy_ci.pth"
for command in matrixgen:matrixgen skippy-agent:agent; do
  printf '#!/bin/sh\nexec "%s" -c "import sys; sys.argv[0] = \x27%s\x27; from %s.cli import main; main()" "$@"\n' \
    "$home/bin/python" "${command%%:*}" "${command##*:}" >"$home/bin/${command%%:*}"
  chmod +x "$home/bin/${command%%:*}"
done

printf '%s\n' "$home/bin" >>"$GITHUB_PATH"
output python "$home/bin/python"
output version "$("$home/bin/matrixgen" --version | awk '{ print $NF }')"
