#!/usr/bin/env bash
# Copies what a training left into a new folder, which alone is handed on. Runs after run.sh whatever ended it.
#
# First the training is ended, its container removed. Then plain files with one link are copied, within the caps of
# canary/gate/records.py. Nothing of the folders that the container could write is ever handed on itself.
set -euo pipefail
export LC_ALL=C

# shellcheck source=scripts/traces.sh
. "$(dirname "${BASH_SOURCE[0]}")/traces.sh"

readonly most_files=2000 largest_file=33554432 largest_folder=268435456 deepest=7

# gate.json with a reason of our own and nothing else.
write_reason() {
  local text=${1//[[:cntrl:]]/ }
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  printf '{"manifest_version": 1, "error": "%s", "parts": []}\n' "${text:0:900}" >"$new/gate.json"
}

# True where docker says that no container of this run is left.
ended() {
  local name
  if [ -f "$traces/mark" ]; then end_processes "$(cat "$traces/mark")"; fi
  [ -f "$traces/containers" ] || return 0
  while IFS= read -r name; do
    remove_containers "name=^/?$name\$" || return 1
  done <"$traces/containers"
}

# Copies the files, or says what is wrong with them. Names that no record has stay behind.
copy_records() {
  local from=$1 size path count=0 total=0 left=0
  local plain='^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$'
  chmod -R u+rwX -- "$from" 2>/dev/null || true
  cd -P -- "$from" || return 1
  while IFS=/ read -r -d '' size path; do
    if ! [[ $path =~ $plain ]]; then
      left=$((left + 1))
      continue
    fi
    count=$((count + 1))
    total=$((total + size))
    if [ "$size" -gt "$largest_file" ] || [ "$total" -gt "$largest_folder" ] || [ "$count" -gt "$most_files" ]; then
      write_reason "the records are too large, at $path"
      return
    fi
    mkdir -p -- "$new/$(dirname "$path")" || return 1
    dd "if=./$path" "of=$new/$path" iflag=nofollow oflag=nofollow conv=excl bs=1M status=none || return 1
  done < <(find . -maxdepth "$deepest" -type f -links 1 -printf '%s/%P\0' 2>/dev/null)
  if [ "$left" -gt 0 ]; then say "$left files with names that no record has were left behind"; fi
}

main() {
  new=$(mktemp -d "$temporary/canary-collect-XXXXXXXX")
  trap 'clear_away "$new"' EXIT
  local code=0
  if ! ended; then
    write_reason "the container could not be removed from the runner; remove it by hand: docker rm --force $(tr '\n' ' ' <"$traces/containers")"
    say "error: docker does not say that the container is gone; its files are left where they are"
    code=4
  elif [ -f "$reason" ] && [ ! -L "$reason" ]; then
    write_reason "$(head -c 2000 "$reason")"
  elif [ -d "$traces/records" ]; then
    (copy_records "$traces/records") || write_reason "the records could not be copied on the runner; look at the log of the job that trains"
    if [ ! -f "$new/gate.json" ]; then write_reason "the training was ended before it left a record; look at the log of the job that trains"; fi
  else
    write_reason "the half that trains did not start; look at the log of the job that trains"
  fi
  if ! clear_away "$records"; then
    say "error: $records is there and cannot be removed"
    exit 4
  fi
  mv -T -- "$new" "$records"
  output record-path "$records"
  if [ "$code" -eq 0 ] && ! clear_away "$traces"; then
    say "warning: $traces cannot be removed; remove it by hand"
  fi
  rm -f -- "$reason"
  exit "$code"
}

main
