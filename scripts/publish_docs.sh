#!/usr/bin/env bash
# Publishes the built pages as a version of the site, on the branch gh-pages. A released version is `latest` too.
# Usage: scripts/publish_docs.sh VERSION [REMOTE], after `make docs`. VERSION: 1.2.3 or dev.
set -euo pipefail

version=${1:?usage: scripts/publish_docs.sh VERSION [REMOTE]}
remote=${2:-origin}
cd "$(dirname "$0")/.."

if [[ ! $version =~ ^(dev|[0-9]+\.[0-9]+\.[0-9]+)$ ]]; then
  echo "docs: '$version' is no version" >&2
  exit 1
fi
# The token stays in the environment.
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=credential.helper GIT_CONFIG_VALUE_0=''
export GIT_CONFIG_KEY_1=credential.helper GIT_CONFIG_VALUE_1='!gh auth git-credential'
export NO_MKDOCS_2_WARNING=1

PATH=$PWD/.venv/bin:$PATH  # mike starts mkdocs
given=(--branch gh-pages --remote "$remote" --push)
git fetch --quiet "$remote" gh-pages 2>/dev/null || true  # The first version makes the branch.
if [[ $version == dev ]]; then
  mike deploy "${given[@]}" dev
else
  mike deploy "${given[@]}" --update-aliases "${version%.*}" latest
  mike set-default "${given[@]}" latest
fi
