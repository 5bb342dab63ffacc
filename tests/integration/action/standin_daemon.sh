#!/usr/bin/env bash
# A stand-in for docker with containers that outlive their client, in a shell alone: the user who calls it may have no
# Python. STANDIN names a folder: `stranger.sh` there is what runs in the container, with WORKSPACE, RECORDS and SCRATCH
# naming what is mounted; `pull_s` is how long an image takes to arrive. A container is a file below `containers`.
set -euo pipefail
mkdir -p "$STANDIN/containers"
printf '%s\n' "$*" >>"$STANDIN/called"

named() {
  local one filter=$1
  for one in "$STANDIN"/containers/*; do
    [ -e "$one" ] || continue
    case $filter in
      label=*) grep -qxF -- "${filter#label=}" "$one.labels" 2>/dev/null && basename "$one" ;;
      name=*) [[ ${one##*/} =~ ${filter#name=^/?} ]] && basename "$one" ;;
    esac
  done 2>/dev/null | grep -v '\.labels$' || true
}

case $1 in
  info) printf 'Server Version: 28\n' ;;
  version)
    sleep "$(cat "$STANDIN/slow" 2>/dev/null || echo 0)"
    printf '28\n'
    ;;
  ps)
    if [ -e "$STANDIN/hangs" ]; then exec sleep 600; fi
    while [ $# -gt 0 ]; do
      if [ "$1" = --filter ]; then named "$2"; fi
      shift
    done
    ;;
  rm)
    shift 2
    for name in "$@"; do
      [ ! -e "$STANDIN/stuck" ] || continue
      kill -KILL -- "-$(cat "$STANDIN/containers/$name")" 2>/dev/null || true
      rm -f "$STANDIN/containers/$name" "$STANDIN/containers/$name.labels"
    done
    ;;
  run)
    shift
    label=
    while [[ $1 == --* ]]; do
      case $1 in
        --name) name=$2 ;;
        --label) label=$2 ;;
        --volume)
          case $2 in
            *:/workspace:ro) WORKSPACE=${2%%:*} ;;
            *:/scratch) SCRATCH=${2%%:*} ;;
            *:/records) RECORDS=${2%%:*} ;;
          esac
          ;;
      esac
      case $1 in
        --*=* | --rm | --init | --read-only) shift ;;
        *) shift 2 ;;
      esac
    done
    verb="${*:2}"
    sleep "$(cat "$STANDIN/pull_s" 2>/dev/null || echo 0)"
    # A container is nobody's child: neither the client nor the job that ends takes it along.
    env -i "PATH=$PATH" "STANDIN=$STANDIN" "VERB=$verb" "WORKSPACE=$WORKSPACE" "SCRATCH=$SCRATCH" "RECORDS=$RECORDS" \
      setsid bash -c 'printf "%s\n" "$$" >"$STANDIN/containers/$0"; bash "$STANDIN/stranger.sh" 2>&1; echo $? >"$STANDIN/$0.ended"; rm -f "$STANDIN/containers/$0" "$STANDIN/containers/$0.labels"' "$name" &
    printf '%s\n' "$label" >"$STANDIN/containers/$name.labels"
    while [ ! -e "$STANDIN/containers/$name" ] && [ ! -e "$STANDIN/$name.ended" ]; do sleep 0.02; done
    while [ -e "$STANDIN/containers/$name" ]; do sleep 0.02; done
    if [ -e "$STANDIN/$name.ended" ]; then exit "$(cat "$STANDIN/$name.ended")"; fi
    exit 137
    ;;
esac
