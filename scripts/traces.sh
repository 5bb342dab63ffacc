# What a training leaves on its runner: where it is, and how it is taken away. Sourced by run.sh and collect.sh.
#
# Everything lies in one folder of the runner's temporary folder. The container can write `home` and `records` in it
# and nothing else. What is in those two is a stranger's: no name, mode or link of theirs is trusted.
# shellcheck shell=bash

# shellcheck disable=SC2034  # the scripts that source this use them
workspace=${GITHUB_WORKSPACE:-$PWD}
temporary=${RUNNER_TEMP:-${TMPDIR:-/tmp}}
records=${CANARY_RECORDS:-$temporary/canary-records}
traces=$temporary/canary-run
reason=$temporary/canary-run.error
readonly workspace temporary records traces reason

# A line for the log of the job. The runner looks for `##[` anywhere in a line, for `::` at its start.
say() {
  local text=${*//[[:cntrl:]]/ }
  printf 'canary: %s\n' "${text//##\[/## [}" >&2
}

output() {
  if [ -n "${GITHUB_OUTPUT:-}" ]; then
    printf '%s=%s\n' "$1" "${2//[[:cntrl:]]/ }" >>"$GITHUB_OUTPUT"
  fi
}

# Removes a folder whatever its modes are. chmod -R and rm -r follow no link that they meet. A stranger can make more
# than can be removed in time: what is left after a while is put aside, and tried again by the next job.
clear_away() {
  [ -e "$1" ] || [ -L "$1" ] || return 0
  if [ -d "$1" ] && [ ! -L "$1" ]; then
    timeout 30 chmod -R u+rwX -- "$1" 2>/dev/null || true
  fi
  timeout 30 rm -rf -- "$1" 2>/dev/null || true
  [ -e "$1" ] || [ -L "$1" ] || return 0
  say "warning: $1 could not be removed; it is put aside, and the next canary tries again"
  mv -T -- "$1" "$(mktemp -u "$temporary/canary-left-XXXXXXXX")" 2>/dev/null
}

# Names this runner on its docker host: two runners of one machine differ by their folders, two pods by their hosts.
runner_label() {
  printf 'rlhf-canary.runner=%s' "$(printf '%s:%s' "$(uname -n)" "$(realpath -m -- "$temporary")" | sha256sum | cut -c 1-16)"
}

removal_s=60
# Ends containers by a filter of `docker ps`. True once docker itself says that there is none; waits removal_s at most.
remove_containers() {
  local left ends=$((SECONDS + removal_s))
  while [ "$SECONDS" -lt "$ends" ]; do
    left=$(timeout --kill-after=2 10 docker ps --all --quiet --no-trunc --filter "$1" 2>/dev/null) || left=unknown
    [ -n "$left" ] || return 0
    # shellcheck disable=SC2086  # ids, one a word
    if [ "$left" != unknown ]; then timeout --kill-after=2 25 docker rm --force $left >/dev/null 2>&1 || true; fi
    sleep 0.5
  done
  return 1
}

# Ends every process that carries the mark of a run: the runner signals the outer shell alone, and docker's client
# lives on to start a container that nobody waits for. A process can make its environment endless: little of it is
# read, and nothing of those in containers.
end_processes() {
  local run=$1 folder pid found own ends=$((SECONDS + 30))
  own=$(readlink /proc/self/ns/pid)
  while [ "$SECONDS" -lt "$ends" ]; do
    found=
    for folder in /proc/[0-9]*; do
      pid=${folder#/proc/}
      if [ "$pid" = "$$" ] || [ ! -O "$folder" ] || [ "$SECONDS" -ge "$ends" ]; then continue; fi
      [ "$(readlink "$folder/ns/pid" 2>/dev/null)" = "$own" ] || continue
      if timeout 1 head -c 1048576 "$folder/environ" 2>/dev/null | grep -qzxF -- "CANARY_RUN=$run"; then
        kill -KILL "$pid" 2>/dev/null && found=yes
      fi
    done
    [ -n "$found" ] || return 0
    sleep 0.2
  done
}
