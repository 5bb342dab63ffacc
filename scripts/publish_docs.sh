#!/usr/bin/env bash
# Publishes the built pages as a version of the site, on the branch gh-pages. A released version is `latest` too.
# Usage: scripts/publish_docs.sh VERSION [REMOTE], after `make docs`. VERSION: 1.2.3 or dev.
# The workflow does it in two jobs: --commit runs mkdocs and its plugins, without a token. --push runs nothing of them.
set -euo pipefail

usage="usage: scripts/publish_docs.sh [--commit | --push] VERSION [REMOTE]"
only=""
case ${1:-} in
  --commit | --push)
    only=$1
    shift
    ;;
esac
version=${1:?$usage}
remote=${2:-origin}
cd "$(dirname "$0")/.."

if [[ ! $version =~ ^(dev|[0-9]+\.[0-9]+\.[0-9]+)$ ]]; then
  echo "docs: '$version' is no version" >&2
  exit 1
fi

commit() {
  export NO_MKDOCS_2_WARNING=1
  local PATH=$PWD/.venv/bin:$PATH # mike starts mkdocs
  local given=(--branch gh-pages --remote "$remote")
  git fetch --quiet "$remote" gh-pages 2>/dev/null || true # The first version makes the branch.
  if [[ $version == dev ]]; then
    mike deploy "${given[@]}" dev
  else
    mike deploy "${given[@]}" --update-aliases "${version%.*}" latest
    mike set-default "${given[@]}" latest
  fi
}

if [[ $only != --push ]]; then
  commit
fi
if [[ $only != --commit ]]; then
  # The token stays in the environment.
  git -c credential.helper= -c credential.helper='!gh auth git-credential' push --quiet "$remote" gh-pages
fi
