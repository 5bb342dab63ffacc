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
readonly most_entries=20000 longest_path=1000
readonly mark=${CANARY_MARK:-}

# gate.json with a reason of our own and nothing else.
write_reason() {
  local text=${1//[^ -~]/?}
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  printf '{"manifest_version": 1, "error": "%s", "parts": []}\n' "${text:0:900}" >"$new/gate.json"
}

# True where docker says that no container of a run is left. Their names were written down before docker heard of them.
without_containers() {
  local name
  [ -f "$traces/containers" ] || return 0
  while IFS= read -r name; do
    remove_containers "name=^/?$name\$" || return 1
  done <"$traces/containers"
}

# Containers first: what runs in them cannot be in the way of the rest. Then docker's client, and what it began meanwhile.
ended() {
  without_containers || return 1
  if [ -n "$mark" ]; then end_processes "$mark"; fi
  without_containers
}

too_large() {
  write_reason "the records are too large: at most $most_files files, $((largest_file >> 20)) MiB per file, $((largest_folder >> 20)) MiB in all"
}

# Copies the files, or says what is wrong with them. Names that no record has stay behind.
copy_records() {
  local size path folder last='' seen=0 count=0 total=0
  local plain='^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$'
  cd -P -- "$traces/records" || return 1
  while IFS=/ read -r -d '' size path; do
    seen=$((seen + 1))
    if [ "$seen" -gt "$most_entries" ]; then too_large; return; fi
    if [ "${#path}" -gt "$longest_path" ] || ! [[ $path =~ $plain ]]; then continue; fi
    count=$((count + 1))
    total=$((total + size))
    if [ "$count" -gt "$most_files" ] || [ "$size" -gt "$largest_file" ] || [ "$total" -gt "$largest_folder" ]; then
      too_large
      return
    fi
    folder=$new/$path
    folder=${folder%/*}
    if [ "$folder" != "$last" ]; then mkdir -p -- "$folder" || return 1; fi
    last=$folder
    dd "if=./$path" "of=$new/$path" iflag=nofollow oflag=nofollow conv=excl bs=1M status=none || return 1
  done < <(find . -maxdepth "$deepest" -type f -links 1 -printf '%s/%P\0' 2>/dev/null | head -z -n "$((most_entries + 1))")
  if [ "$seen" -gt "$count" ]; then say "$((seen - count)) files were left behind: their names are not those of a record's files"; fi
}

# The new folder's content: what the training left, or why there is nothing of it.
fill() {
  if [ -f "$reason" ] && [ ! -L "$reason" ]; then
    write_reason "$(head -c 2000 -- "$reason")"
  elif [ -z "$mark" ] || [ "$(head -c 64 -- "$traces/mark" 2>/dev/null)" != "$mark" ]; then
    # Records of an earlier job may lie here still.
    write_reason "the training job stopped before the canary started; read its log"
  else
    timeout 30 chmod -R u+rwX -- "$traces/records" 2>/dev/null || true
    if ! (copy_records); then
      clear_away "$new" || true
      clear_away "$traces" || true
      mkdir -p -- "$new"
      write_reason "the records could not be copied on the runner, perhaps because its disk is full; read the log of the training job"
    elif [ ! -f "$new/gate.json" ]; then
      write_reason "the training ended before it left a record; read the log of the training job"
    fi
  fi
}

main() {
  local code=0 certain=yes
  ended || certain=
  # Never handed on, and perhaps what fills the disk.
  if [ -n "$certain" ]; then clear_away "$traces/home" || true; fi
  new=$(mktemp -d "$temporary/canary-collect-XXXXXXXX")
  trap 'clear_away "$new"' EXIT
  if [ -n "$certain" ]; then
    fill
  else
    write_reason "the container could not be removed; remove it by hand on the runner: docker rm --force $(tr '\n' ' ' <"$traces/containers")"
    say "error: docker does not confirm that the container is gone, so nothing was copied"
    code=4
  fi
  clear_away "$records" || true
  mv -T -- "$new" "$records"
  output record-path "$records"
  if [ -n "$certain" ]; then clear_away "$traces" || true; fi
  rm -f -- "$reason"
  exit "$code"
}

main
