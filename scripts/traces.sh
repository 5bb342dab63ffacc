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

# Removes a folder whatever its modes are. chmod -R and rm -r follow no link that they meet.
clear_away() {
  [ -e "$1" ] || [ -L "$1" ] || return 0
  if [ -d "$1" ] && [ ! -L "$1" ]; then
    chmod -R u+rwX -- "$1" 2>/dev/null || true
  fi
  rm -rf -- "$1" 2>/dev/null || true
  [ ! -e "$1" ] && [ ! -L "$1" ]
}

# Names this runner on its docker host: two runners of one machine differ by their folders, two pods by their hosts.
runner_label() {
  printf 'rlhf-canary.runner=%s' "$(printf '%s:%s' "$(uname -n)" "$(realpath -m -- "$temporary")" | sha256sum | cut -c 1-16)"
}

docker_answers() { timeout --kill-after=5 60 docker "$@"; }

# Ends containers by a filter of `docker ps`. True once docker itself says that there is none.
remove_containers() {
  local try left
  for try in 1 2 3 4 5 6 7 8 9 10; do
    left=$(docker_answers ps --all --quiet --no-trunc --filter "$1" 2>/dev/null) || left=unknown
    [ -n "$left" ] || return 0
    # shellcheck disable=SC2086  # ids, one a word
    if [ "$left" != unknown ]; then docker_answers rm --force $left >/dev/null 2>&1 || true; fi
    [ "$try" -lt 10 ] && sleep 1
  done
  return 1
}

# Ends every process that carries the mark of a run: the runner signals the outer shell alone, and docker's client
# lives on to start a container that nobody waits for.
end_processes() {
  local mark=$1 try file pid found
  for try in 1 2 3 4 5; do
    found=
    for file in /proc/[0-9]*/environ; do
      pid=${file#/proc/}
      pid=${pid%/environ}
      if [ "$pid" != "$$" ] && grep -qzxF -- "CANARY_RUN=$mark" "$file" 2>/dev/null; then
        kill -KILL "$pid" 2>/dev/null && found=yes
      fi
    done
    [ -n "$found" ] || return 0
    sleep 0.2
  done
}
