#!/usr/bin/env bash
# Whether a version may be released from this checkout: well-formed, the code's own, new, newer than its line.
# Usage: scripts/release_check.sh VERSION
set -euo pipefail

version=${1:?usage: scripts/release_check.sh VERSION}
cd "$(dirname "$0")/.."

refuse() {
  echo "release: $1" >&2
  exit 1
}

[[ $version =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] ||
  refuse "'$version' is no version such as 1.2.3"

own=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' canary/__init__.py)
[[ $version == "$own" ]] ||
  refuse "canary/__init__.py says $own; set it to $version on main first"

[[ ! -s image.txt ]] ||
  refuse "image.txt is not empty; only a release commit fills it"

if git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null; then
  refuse "v$version is released already; a released version never moves"
fi

major=${version%%.*}
newest=$(git tag --list "v$major.*.*" | sed 's/^v//' | sort --version-sort | tail -n 1)
if [[ -n $newest && $(printf '%s\n' "$newest" "$version" | sort --version-sort | tail -n 1) == "$newest" ]]; then
  refuse "v$newest is newer; v$major would move backwards"
fi
