#!/usr/bin/env bash
# The reporting job of the action, and `plan` and `prefetch`: installs what the command line
# needs (no torch) in an environment of its own and calls it. Inputs are environment variables.
set -euo pipefail

# The token goes on through a pipe, and no child finds it or another of the job's in its environment.
# This shell begins anew, since /proc shows the environment that a process began with.
if [ "${CANARY_TOKEN_FD:-}" != 9 ]; then
  exec 9< <(printf '%s' "${CANARY_TOKEN:-}")
  unset CANARY_TOKEN GITHUB_TOKEN GH_TOKEN "${!ACTIONS_@}"
  CANARY_TOKEN_FD=9 exec bash "$0" "$@"
fi

readonly verb=$1
readonly temporary=${RUNNER_TEMP:-${TMPDIR:-/tmp}}
readonly action=${GITHUB_ACTION_PATH:-$(cd "$(dirname "$0")/.." && pwd)}

fail() {
  printf '::error title=RLHF Canary::%s\n' "$*"
  exit 4
}

find_python() {
  local candidate
  for candidate in python3.13 python3.12 python3.11 python3 python; do
    if command -v "$candidate" >/dev/null &&
      "$candidate" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      python=$candidate
      return
    fi
  done
  fail "Python 3.11 or newer is needed on the runner; add actions/setup-python before this step"
}

# Wheels alone, with the hashes of the lock. Usage: hashed install|download OPTION...
hashed() {
  env -u HF_TOKEN -u HUGGING_FACE_HUB_TOKEN "${pip[@]}" --quiet --disable-pip-version-check --no-input \
    "$1" --require-hashes --only-binary :all: --no-deps --requirement "$action/requirements/$lock.lock.txt" "${@:2}"
}

# On a runner of your own the wheels stay: to read the index takes longer than to install. Whoever
# may have changed them, the hashes are checked each time.
from_kept() {
  local kept=${RUNNER_TOOL_CACHE:-}/rlhf-canary-wheels fresh
  [ "${RUNNER_ENVIRONMENT:-}" = self-hosted ] && mkdir -p "$kept" 2>/dev/null || return
  hashed install "$@" --no-index --find-links "$kept" 2>/dev/null && return
  fresh=$(mktemp -d "$kept/XXXXXXXX") && hashed download --dest "$fresh" &&
    hashed install "$@" --no-index --find-links "$fresh" || return
  mv -f "$fresh"/* "$kept" 2>/dev/null || true
  rm -rf "$fresh"
}

# Always anew, since an environment that lay there could have been changed. The canary itself is not
# built, so that nothing without a hash is fetched for it.
install() {
  local lock=report bare=--without-pip pip
  if [ "$verb" = prefetch ]; then lock=prefetch; fi
  find_python
  venv=$(mktemp -d "$temporary/canary-venv-XXXXXXXX")
  pip=("$python" -I -m pip --python "$venv/bin/python")
  # On Debian, pip is a package of its own; a new environment is then given the one of python3-venv.
  if ! "$python" -I -c 'import pip' 2>/dev/null; then bare='' pip=("$venv/bin/python" -I -m pip); fi
  "$python" -I -m venv ${bare:+"$bare"} "$venv" ||
    fail "a virtual environment cannot be made; on Debian: apt install python3-venv"
  local how=(--no-compile --root-user-action ignore)
  from_kept "${how[@]}" || hashed install "${how[@]}" ||
    fail "the canary's packages could not be installed; the log above has the reason"
  ln -s "$action/canary" "$venv"/lib/python3*/site-packages/
  # The answer needs no charts, so it does without them.
  if [ "$verb" = report ]; then
    lock=page
    from_kept "${how[@]}" || hashed install "${how[@]}" ||
      printf '::notice title=RLHF Canary::no report with charts: the packages that draw it could not be installed\n'
  fi
}

# No file of the workspace may pass for a module of Python's while the token is around.
cd "$temporary"
unset PYTHONPATH PYTHONHOME
install 9<&-
exec "$venv/bin/python" -I -m canary gate "$verb"
