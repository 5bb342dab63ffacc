#!/usr/bin/env bash
# Runs an image as the action does: the caller's uid, read-only root, no network. No GPU is needed.
# Usage: scripts/try_image.sh IMAGE
set -euo pipefail

image=${1:?usage: scripts/try_image.sh IMAGE}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/scratch" "$work/records"

canary() {
  docker run --rm --read-only --network none --user "$(id -u):$(id -g)" \
    --volume "$work/scratch:/scratch" --volume "$work/records:/records" "$image" "$@"
}

canary env
canary demo
