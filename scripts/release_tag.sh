#!/usr/bin/env bash
# Makes the release commit, whose image.txt names the image, and pushes its tags: v1.2.3 for good and v1 as the moving one.
# No branch changes. Usage: scripts/release_tag.sh VERSION IMAGE@DIGEST [REMOTE]
set -euo pipefail

version=${1:?usage: scripts/release_tag.sh VERSION IMAGE@DIGEST [REMOTE]}
image=${2:?usage: scripts/release_tag.sh VERSION IMAGE@DIGEST [REMOTE]}
remote=${3:-origin}
cd "$(dirname "$0")/.."

scripts/release_check.sh "$version"
if [[ ! $image =~ ^[a-z0-9][a-z0-9./_-]*@sha256:[0-9a-f]{64}$ ]]; then
  echo "release: '$image' is no image by digest" >&2
  exit 1
fi
major=${version%%.*}

export GIT_AUTHOR_NAME="github-actions[bot]" GIT_COMMITTER_NAME="github-actions[bot]"
export GIT_AUTHOR_EMAIL="41898282+github-actions[bot]@users.noreply.github.com"
export GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL

printf '%s\n' "$image" >image.txt
git switch --quiet --detach
git add image.txt
git commit --quiet --message "Release $version: $image"
git tag --annotate --message "Release $version" "v$version"
git tag --annotate --force --message "Release $version" "v$major"

# Both or neither; v1.2.3 is refused where it exists, v1 moves. The token stays in the environment.
git -c credential.helper= -c credential.helper='!gh auth git-credential' \
  push --quiet --atomic "$remote" "refs/tags/v$version" "+refs/tags/v$major"
