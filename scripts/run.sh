#!/usr/bin/env bash
# The half of the action that trains: chooses the engine, checks the machine, starts the canary.
# It has no token and hands none on. Inputs are environment variables, CANARY_<INPUT>.
#
# With docker the checkout is mounted read-only and copied inside, so that nothing of a pull request
# stays on the runner; the container has no network, no capabilities, no socket, a read-only root.
set -euo pipefail

readonly workspace=${GITHUB_WORKSPACE:-$PWD}
readonly temporary=${RUNNER_TEMP:-${TMPDIR:-/tmp}}
readonly records=${CANARY_RECORDS:-$temporary/canary-records}
readonly action=${GITHUB_ACTION_PATH:-$(cd "$(dirname "$0")/.." && pwd)}

say() { printf 'canary: %s\n' "$*" >&2; }

# Leaves the reason in the records, for the answer. What stood at its place, a link even, is replaced.
leave() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//[[:cntrl:]]/ }
  if [ -L "$records" ]; then rm -f "$records"; fi
  mkdir -p "$records"
  printf '{"manifest_version": 1, "error": "%s", "parts": []}\n' "${text:0:900}" >"$temporary/canary-gate.json.$$"
  rm -rf "$records/gate.json"
  mv -T "$temporary/canary-gate.json.$$" "$records/gate.json"
}

# Wrong usage: one line, exit code 2.
refuse() {
  leave "$*"
  say "$*"
  exit 2
}

# The machine cannot train: `error` with this reason, exit code 4.
machine_error() {
  leave "$*"
  say "error: $*"
  exit 4
}

output() {
  if [ -n "${GITHUB_OUTPUT:-}" ]; then
    printf '%s=%s\n' "$1" "$2" >>"$GITHUB_OUTPUT"
  fi
}

# A checkout that kept its credentials would hand them to the code that is tested. actions/checkout
# keeps them as a header in .git/config, and since its version 6 in a file that the config includes; with
# ssh-key as a command. All configs below the workspace are read as text: git would pass over those of
# another user, of worktrees and submodules, and over what it cannot parse.
readonly credentials='extraheader|cookiefile|sshcommand|^[[:space:]]*\[[[:space:]]*(credential|include|includeif)|https?://[^/[:space:]"]*@'
refuse_credentials() {
  local file target found=
  while IFS= read -r -d '' file; do
    if grep -Eiq "$credentials" "$file"; then found+=" ${file#"$workspace"/}"; fi
  done < <(find "$workspace" -type f \( -path '*/.git/*' -o -path '*.git/*' \) \( -name config -o -name config.worktree \) -print0)
  while IFS= read -r -d '' file; do
    target=$(sed -n 's/^gitdir: //p' "$file" | head -n 1)
    [ -n "$target" ] || continue
    case $target in /*) ;; *) target=$(dirname "$file")/$target ;; esac
    for file in "$target/config" "$target/config.worktree" "$target/../../config"; do
      if [ -f "$file" ] && grep -Eiq "$credentials" "$file"; then found+=" $file"; fi
    done
  done < <(find "$workspace" -type f -name .git -print0)
  if [ -n "$found" ]; then
    refuse "the checkout keeps credentials in$found; use actions/checkout with persist-credentials: false"
  fi
}

# Links out of the records would be followed when they are uploaded: they go, and so does all but files.
clean_records() {
  if [ -L "$records" ]; then rm -f "$records"; fi
  if [ -d "$records" ]; then
    find "$records" \( ! -type f ! -type d -o -type f -links +1 \) -delete
  fi
}

# The runner mounts the workspace of a container job there; docker would look for it on the host.
in_container_job() { [[ $workspace == /__w/* ]]; }

choose_engine() {
  case ${CANARY_ENGINE:-auto} in
    docker)
      if in_container_job; then
        refuse "engine docker inside a container job: its paths are not the host's; use engine none with the image as the job's container"
      fi
      command -v docker >/dev/null || machine_error "docker is not installed on the runner; install Docker Engine and the NVIDIA Container Toolkit, or use engine none"
      echo docker
      ;;
    none) echo none ;;
    auto)
      if ! in_container_job && command -v docker >/dev/null; then echo docker; else echo none; fi
      ;;
    *) refuse "input engine: '${CANARY_ENGINE}' is none of auto, docker, none" ;;
  esac
}

# Lines of the log cannot be commands of the workflow while this token is unknown to what prints them.
guarded() {
  local token rc=0
  token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  echo "::stop-commands::$token"
  "$@" || rc=$?
  echo "::$token::"
  return "$rc"
}

# --- docker ---------------------------------------------------------------------------------------

# Further arguments of the user, one a line: a list of what cannot open the container, all else is refused.
extra_arguments() {
  local line folder
  while IFS= read -r line; do
    [ -n "${line//[[:space:]]/}" ] || continue
    if [[ $line =~ ^--(memory|memory-swap|memory-reservation|cpus|cpu-shares|cpuset-cpus|cpuset-mems|ulimit|label|hostname|dns|dns-search|add-host|oom-score-adj|stop-timeout|storage-opt|log-driver|log-opt|platform|pull)=[^[:space:]]+$ ]]; then
      extra+=("$line")
    elif [[ $line =~ ^--volume=(/[^:]+):(/[^:]+):ro$ ]]; then
      folder=$(realpath -m -- "${BASH_REMATCH[1]}")
      case $folder in
        / | /boot* | /dev* | /etc* | /home | /lib* | /proc* | /root* | /run* | /sys* | /tmp | /usr* | /var | /var/lib* | /var/run*)
          refuse "input docker-args: '$line' mounts a folder of the system" ;;
      esac
      extra+=("$line")
    else
      refuse "input docker-args: '$line' is not among what may be given; see docs/security.md"
    fi
  done <<<"${CANARY_DOCKER_ARGS:-}"
}

# The environment of the canary as a file; a line without a value would copy the runner's own.
environment_file() {
  local line
  : >"$scratch/environment"
  while IFS= read -r line; do
    line=${line#"${line%%[![:space:]]*}"}
    [ -n "$line" ] || continue
    if ! [[ $line =~ ^[A-Za-z_][A-Za-z0-9_]*= ]]; then
      refuse "input env: '${line%%=*}' is not KEY=VALUE"
    fi
    local name=${line%%=*}
    if [[ ${name^^} =~ ^(GITHUB|ACTIONS|RUNNER|CANARY)_ ||
      ${name^^} =~ (^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_KEY(_ID)?|PRIVATE_KEY)$ ]]; then
      refuse "input env: $name cannot be given to code that is tested"
    fi
    printf '%s\n' "$line" >>"$scratch/environment"
  done <<<"${CANARY_ENV:-}"
}

check_docker() {
  if ! docker info >"$scratch/docker-info" 2>&1; then
    machine_error "docker does not answer; start it, and let the runner's user use it (group docker)"
  fi
  if [ "${CANARY_GPUS:-all}" != none ]; then
    if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
      machine_error "no GPU to train on: nvidia-smi finds none; install the NVIDIA driver on the runner, or set gpus: none to train on the CPU"
    fi
    if ! grep -qi nvidia "$scratch/docker-info" && ! command -v nvidia-container-cli >/dev/null &&
      ! command -v nvidia-ctk >/dev/null; then
      machine_error "docker has no access to the GPU; install the NVIDIA Container Toolkit and run: nvidia-ctk runtime configure --runtime=docker"
    fi
  fi
}

# Sets `common`: what every container has.
common_arguments() {
  common=(
    --rm --init
    --user "$(id -u):$(id -g)"
    --read-only
    --cap-drop ALL
    --security-opt no-new-privileges
    --pids-limit 8192
    --tmpfs "/tmp:rw,exec,nosuid,nodev"
    --shm-size "${CANARY_SHM_SIZE:-8g}"
    --volume "$workspace:/workspace:ro"
    --volume "$scratch/home:/scratch"
    --volume "$records:/records"
    --env-file "$scratch/environment"
    --env CANARY_CONFIG --env CANARY_COMMAND --env CANARY_SETUP --env CANARY_WORKING_DIRECTORY
    --env CANARY_REPEATS --env CANARY_COMPARE --env CANARY_BUDGET_MINUTES
    --env CANARY_TIMEOUT_MINUTES --env CANARY_BASE_SHA --env CANARY_GPUS
    --env CANARY_CHECKOUT=/workspace --env CANARY_RECORDS=/records --env CANARY_SCRATCH=/scratch
  )
  local hub=${CANARY_MODEL_CACHE:+$CANARY_MODEL_CACHE/hub}
  if [ -n "$hub" ]; then
    [[ $hub == /* && $hub != *:* ]] || refuse "input model-cache: '$CANARY_MODEL_CACHE' is no absolute path"
    [ -d "$hub" ] || refuse "input model-cache: there is no folder $hub; fill it with mode prefetch"
    common+=(--volume "$hub:/models/hub:ro" --env HF_HUB_CACHE=/models/hub)
  fi
}

# With a limit of time; the container ends with it.
contained() {
  local name=$1 rc=0
  shift
  timeout --foreground --kill-after=30 "$limit" docker run --name "$name" "$@" || rc=$?
  if [ "$rc" -eq 124 ] || [ "$rc" -eq 137 ]; then
    docker rm --force "$name" >/dev/null 2>&1 || true
  fi
  return "$rc"
}

with_docker() {
  local rc=0 name
  check_docker
  mkdir -p "$scratch/home" "$records"
  environment_file
  extra_arguments
  common_arguments
  name=canary-$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')
  local gpus=() offline=() network=${CANARY_NETWORK:-none}
  if ! [[ $network =~ ^[A-Za-z0-9][A-Za-z0-9_.-]*$ ]] || [ "$network" = host ]; then
    refuse "input network: '$network'; none, or the name of a docker network other than host"
  fi
  if [ "$network" = none ]; then offline=(--env HF_HUB_OFFLINE=1); fi
  if [ "${CANARY_GPUS:-all}" != none ]; then gpus=(--gpus "${CANARY_GPUS:-all}"); fi
  if [ -n "${CANARY_SETUP:-}" ]; then
    guarded contained "$name-setup" "${common[@]}" ${extra[@]+"${extra[@]}"} "$image" gate setup || rc=$?
    explain "$rc"
  fi
  guarded contained "$name" "${common[@]}" ${gpus[@]+"${gpus[@]}"} \
    --network "$network" ${offline[@]+"${offline[@]}"} \
    ${extra[@]+"${extra[@]}"} "$image" gate run 2>&1 | tee "$scratch/output" || rc=$?
  explain "$rc"
}

# Exit codes of docker itself, and of what ran in it.
explain() {
  case $1 in
    0 | 2 | 4) [ "$1" -eq 0 ] || exit "$1" ;;
    124 | 137)
      # What was done before stays judged; the manifest says which config was not.
      if [ -f "$records/gate.json" ] && [ ! -L "$records/gate.json" ]; then exit 4; fi
      if [ "$1" -eq 124 ]; then
        machine_error "the canary was ended after ${CANARY_TIMEOUT_MINUTES:-60} minutes (timeout-minutes)"
      fi
      machine_error "the canary was killed: the machine ran out of memory, or someone ended it"
      ;;
    125)
      if grep -qi 'could not select device driver\|nvidia-container' "$scratch/output" 2>/dev/null; then
        machine_error "docker has no access to the GPU; install the NVIDIA Container Toolkit and run: nvidia-ctk runtime configure --runtime=docker"
      fi
      machine_error "docker could not start the image; the log of the job has its reason"
      ;;
    *) machine_error "the canary ended with exit code $1 and left no record" ;;
  esac
}

# --- without docker -------------------------------------------------------------------------------

# The job's own environment is not for code that is tested: a short list is handed on.
without_docker() {
  local rc=0 canary
  if [ -f /opt/canary/entrypoint.py ]; then
    canary=(python /opt/canary/entrypoint.py)
  elif command -v canary >/dev/null; then
    canary=(canary)
  else
    machine_error "neither docker nor the canary is here; run the job in the image (container:), or install it on the runner: pip install 'rlhf-canary[train]'"
  fi
  mkdir -p "$scratch/home" "$records"
  environment_file
  local kept=() name
  for name in PATH LANG LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES VIRTUAL_ENV \
    CANARY_CONFIG CANARY_COMMAND CANARY_SETUP CANARY_WORKING_DIRECTORY CANARY_REPEATS CANARY_COMPARE \
    CANARY_BUDGET_MINUTES CANARY_TIMEOUT_MINUTES CANARY_BASE_SHA CANARY_GPUS; do
    if [ -n "${!name:-}" ]; then kept+=("$name=${!name}"); fi
  done
  kept+=("HOME=$scratch/home" "PYTHONUSERBASE=${PYTHONUSERBASE:-${HOME:-/root}/.local}")
  kept+=("CANARY_CHECKOUT=$workspace" "CANARY_RECORDS=$records" "CANARY_SCRATCH=$scratch/home")
  if [ -n "${CANARY_MODEL_CACHE:-}" ]; then kept+=("HF_HUB_CACHE=$CANARY_MODEL_CACHE/hub"); fi
  local line
  while IFS= read -r line; do kept+=("$line"); done <"$scratch/environment"
  if [ -n "${CANARY_SETUP:-}" ]; then
    guarded env -i "${kept[@]}" "${canary[@]}" gate setup || rc=$?
    explain "$rc"
  fi
  guarded timeout --foreground --kill-after=30 "$limit" \
    env -i "${kept[@]}" HF_HUB_OFFLINE=1 "${canary[@]}" gate run || rc=$?
  explain "$rc"
}

main() {
  rm -rf "$records"
  trap clean_records EXIT
  refuse_credentials
  local minutes=${CANARY_TIMEOUT_MINUTES:-60}
  local wanted=${CANARY_GPUS:-all}
  wanted=${wanted//[[:space:]]/}
  export CANARY_GPUS=${wanted:-all}
  [[ $minutes =~ ^[0-9]+$ ]] && [ "$minutes" -gt 0 ] || refuse "input timeout-minutes: '$minutes' is no positive whole number"
  readonly limit="$((minutes * 60 + 90))s"  # the canary itself ends in time; this is for one that does not
  scratch=$(mktemp -d "$temporary/canary-XXXXXXXX")
  trap 'rm -rf "$scratch"; clean_records' EXIT
  extra=()
  output record-path "$records"
  engine=$(choose_engine)
  say "engine $engine"
  if [ "$engine" = docker ]; then
    image=${CANARY_IMAGE:-}
    if [ -z "$image" ] && [ -s "$action/image.txt" ]; then image=$(head -n 1 "$action/image.txt"); fi
    if [[ $image == -* ]]; then refuse "input image: '$image' is no image"; fi
    [ -n "$image" ] || refuse "input image is empty, and this version of the action was not released with one; name an image by digest"
    with_docker
  else
    without_docker
  fi
}

main
