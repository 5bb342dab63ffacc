#!/usr/bin/env bash
# The half of the action that answers, and `pending` and `prefetch`: installs the command line (no
# torch) in an environment of its own and calls it. Inputs are environment variables.
set -euo pipefail

readonly verb=$1
readonly temporary=${RUNNER_TEMP:-${TMPDIR:-/tmp}}
readonly action=${GITHUB_ACTION_PATH:-$(cd "$(dirname "$0")/.." && pwd)}
readonly venv=$temporary/canary-venv

fail() {
  printf '::error title=RLHF Canary::%s\n' "$*"
  exit 4
}

# No file of the workspace may pass for a module of Python's while the token is around.
cd "$temporary"
unset PYTHONPATH PYTHONHOME

python=
for candidate in python3.13 python3.12 python3.11 python3 python; do
  if command -v "$candidate" >/dev/null &&
    "$candidate" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || fail "Python 3.11 or newer is needed on the runner; add actions/setup-python before this step"

extras=
if [ "$verb" = prefetch ]; then extras='[hub]'; fi
if [ ! -x "$venv/bin/canary" ]; then
  "$python" -I -m venv "$venv" || fail "no virtual environment can be made; on Debian: apt install python3-venv"
  "$venv/bin/python" -I -m pip --disable-pip-version-check --quiet install \
    -c "$action/constraints.txt" "$action$extras" || fail "the command line could not be installed; the log has the reason"
fi
exec "$venv/bin/canary" gate "$verb"
