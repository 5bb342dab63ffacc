#!/usr/bin/env bash
# The training job: chooses the engine, checks the machine, starts the canary.
# It has no token and hands none on. Inputs are environment variables, CANARY_<INPUT>.
#
# With docker the checkout is mounted read-only and copied inside; the container has no network, no capabilities, no
# socket, a read-only root. What it leaves is taken by collect.sh, which runs afterwards whatever ends this script.
set -euo pipefail
export LC_ALL=C

# Everything that this script starts carries a mark. collect.sh gets it as an output of this step, ends what carries
# it, and takes no records of another run.
if [ "${1:-}" != marked ]; then
  CANARY_RUN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  export CANARY_RUN
  exec bash "${BASH_SOURCE[0]}" marked
fi

# shellcheck source=scripts/traces.sh
. "$(dirname "${BASH_SOURCE[0]}")/traces.sh"

readonly action=${GITHUB_ACTION_PATH:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
output mark "$CANARY_RUN"

# Leaves the reason for the answer, where nothing but this script and collect.sh writes. It is published: folders of
# the runner are told by their last names; the log has the paths.
leave() {
  local text=${*//"$temporary/"/}
  printf '%s\n' "${text//"$workspace/"/}" >"$reason.$$"
  mv -fT -- "$reason.$$" "$reason"
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

# A line on the page of the job. Commands are let through for it; no code of a stranger runs yet.
warn() {
  local text=${*//[[:cntrl:]]/ }
  if [ "${GITHUB_ACTIONS:-}" = true ]; then
    printf '::%s::\n::warning title=RLHF Canary::%s\n::stop-commands::%s\n' "$token" "${text//%/%25}" "$token"
  else
    say "warning: $text"
  fi
}

# From here to the end of the step no line of the log is a command to the runner: nothing that prints knows the token.
stop_commands() {
  token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  printf '::stop-commands::%s\n' "$token"
}

# A checkout that kept its credentials would hand them to the code that is tested. actions/checkout
# keeps them as a header in .git/config, and since its version 6 in a file that the config includes; with
# ssh-key as a command. All configs below the workspace are read as text: git would pass over those of
# another user, of worktrees and submodules, and over what it cannot parse.
readonly credentials='extraheader|cookiefile|sshcommand|^[[:space:]]*\[[[:space:]]*(credential|include|includeif)|https?://[^/[:space:]"]*@'
refuse_credentials() {
  local file target link found=
  while IFS= read -r -d '' file; do
    if grep -Eiq "$credentials" "$file"; then found+=" ${file#"$workspace"/}"; fi
  done < <(find -H "$workspace" -type f \( -path '*/.git/*' -o -path '*.git/*' \) \( -name config -o -name config.worktree \) -print0)
  while IFS= read -r -d '' file; do
    target=$(sed -n 's/^gitdir: //p' "$file" | head -n 1)
    [ -n "$target" ] || continue
    case $target in /*) ;; *) target=$(dirname "$file")/$target ;; esac
    link=${file#"$workspace"/}
    for file in "$target/config" "$target/config.worktree" "$target/../../config"; do
      if [ -f "$file" ] && grep -Eiq "$credentials" "$file"; then found+=" the repository of $link"; fi
    done
  done < <(find -H "$workspace" -type f -name .git -print0)
  # google-github-actions/auth leaves its key there.
  while IFS= read -r -d '' file; do found+=" ${file#"$workspace"/}"; done \
    < <(find -H "$workspace" -maxdepth 1 -name 'gha-creds-*.json' -print0)
  if [ -n "$found" ]; then
    refuse "the checkout keeps credentials in$found; use actions/checkout with persist-credentials: false, and sign in to nothing before the canary"
  fi
}

# The runner mounts the workspace of a container job there; docker would look for it on the host.
in_container_job() { [[ $workspace == /__w/* ]]; }

choose_engine() {
  case ${CANARY_ENGINE:-auto} in
    docker)
      if in_container_job; then
        refuse "engine docker does not work inside a container job; use engine none, with the image as the job's container"
      fi
      command -v docker >/dev/null || machine_error "docker is not installed on the runner; install Docker Engine and the NVIDIA Container Toolkit, or use engine none"
      echo docker
      ;;
    none) echo none ;;
    auto)
      if ! in_container_job && command -v docker >/dev/null; then echo docker; else echo none; fi
      ;;
    *) refuse "input engine is '${CANARY_ENGINE}'; write auto, docker or none" ;;
  esac
}

# --- docker ---------------------------------------------------------------------------------------

# Further arguments of the user, one a line: a list of what cannot open the container, all else is refused.
# Volumes are kept apart: `setup` has network and gets none.
extra_arguments() {
  local line target what number=0
  while IFS= read -r line; do
    number=$((number + 1))
    [ -n "${line//[[:space:]]/}" ] || continue
    # Of what is refused only the option is told: a value may be a secret, and the reason is published.
    what="input docker-args, line $number"
    if [[ $line =~ ^--[a-z-]{1,40} ]]; then what+=" (${BASH_REMATCH[0]})"; fi
    if [[ $line =~ ^--(memory|memory-swap|memory-reservation|cpus|cpu-shares|cpuset-cpus|cpuset-mems|shm-size|ulimit|label|hostname|dns|dns-search|add-host|oom-score-adj|stop-timeout|storage-opt|platform|pull)=[^[:space:]]+$ &&
      $line != --label=rlhf-canary.* ]] || [[ $line =~ ^--log-opt=max-(size|file)=[0-9]+[kmg]?$ ]]; then
      extra+=("$line")
    elif [[ $line =~ ^--volume=(/[^:]+):(/[^:]+):ro$ ]]; then
      target=$(realpath -ms -- "${BASH_REMATCH[2]}")
      volume_folder "$what" "${BASH_REMATCH[1]}"
      case $target/ in
        / | /home/ | /opt/ | /workspace/* | /records/* | /scratch/* | /models/* | /opt/canary/* | /etc/* | /usr/* | /lib*/* | /bin/* | /sbin/* | /proc/* | /sys/* | /dev/* | /tmp/* | /var/* | /run/* | /root/*)
          refuse "$what: the container needs its folder $target; mount the data elsewhere" ;;
      esac
      volumes+=("--volume=$folder:$target:ro")
    else
      refuse "$what is not allowed; docs/security.md lists the allowed options"
    fi
  done <<<"${CANARY_DOCKER_ARGS:-}"
}

# Sets `folder` to what a path really is, since that is mounted. Refuses what is the system's, the runner's or the
# checkout's, and what holds it: a folder of the checkout may be a link of the pull request's author.
volume_folder() {
  local what=$1 kept
  folder=$(realpath -e -- "$2" 2>/dev/null) && [ -d "$folder" ] || refuse "$what: its folder is missing"
  [[ $folder != *:* && $folder != *[[:cntrl:]]* ]] || refuse "$what: docker cannot mount a name with ':' in it"
  case $folder in
    / | /boot* | /dev* | /etc* | /home | /lib* | /proc* | /root* | /run* | /sys* | /tmp | /usr* | /var | /var/lib* | /var/run* | /var/snap* | /var/spool*)
      refuse "$what: its folder is one of the system; move the data to a folder of its own, such as /srv/data" ;;
  esac
  for kept in "$temporary" "$workspace" "${RUNNER_WORKSPACE:-$workspace}" "$(runner_folder)"; do
    if overlaps "$folder" "$kept" || overlaps "$(realpath -ms -- "$2")" "$kept"; then refuse "$what: its folder belongs to the runner or the checkout; keep the data outside both"; fi
  done
  if [ -n "${3:-}" ]; then return; fi  # the model cache may lie in the home of the runner's user
  if overlaps "$folder" "${HOME:-/root}"; then refuse "$what: its folder belongs to the home of the runner's user; keep the data outside it"; fi
}

overlaps() {
  local one=$1 other
  other=$(realpath -m -- "$2")
  [ "$other" != / ] && [[ $one/ == "$other"/* || $other/ == "$one"/* ]]
}

# Where the runner itself is installed, with its credentials: two folders above its temporary one.
runner_folder() {
  local above
  above=$(realpath -m -- "$temporary/../..")
  if [ -e "$above/.runner" ] || [ -e "$above/.credentials" ]; then printf '%s' "$above"; else printf '%s' "$temporary"; fi
}

# Names that belong to secrets, read word by word.
readonly secret_names='(^|_)((ACCESS|API|AUTH|DEPLOY|ENCRYPTION|PRIVATE|SERVICE|SIGNING|SSH)?(TOKEN|SECRETS?|PASS(WORD|WD|PHRASE)|PWD|CREDENTIALS?|CREDS?|BEARER|JWT|KEYS?|PAT|AUTH)|PASS|DSN|COOKIES?|NETRC|WEBHOOK|CONNECTION_STRING|(DATABASE|DB|REDIS|MONGO|MONGODB|POSTGRES|POSTGRESQL|PG|MYSQL|AMQP|RABBITMQ|BROKER)_UR[IL])(_|$)'

# The environment of the canary as a file; a line without a value would copy the runner's own.
environment_file() {
  local line name number=0
  : >"$traces/environment"
  while IFS= read -r line; do
    number=$((number + 1))
    line=${line#"${line%%[![:space:]]*}"}
    [ -n "$line" ] || continue
    [[ $line =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || refuse "input env, line $number has no value; write KEY=VALUE"
    name=${line%%=*}
    if [[ ${name^^} =~ ^(GITHUB|ACTIONS|RUNNER|CANARY)_ || ${name^^} =~ $secret_names ]]; then
      refuse "input env: $name is reserved or looks like a secret, and the tested code could read it; remove it"
    fi
    if [[ $line =~ ://[^/@[:space:]]+@ ]]; then
      refuse "input env: the address in $name holds a user or password, and the tested code could read it; remove it"
    fi
    printf '%s\n' "$line" >>"$traces/environment"
  done <<<"${CANARY_ENV:-}"
}

check_docker() {
  if ! timeout --kill-after=5 60 docker info >"$traces/docker-info" 2>&1; then
    machine_error "docker does not answer; start it, and let the runner's user use it (group docker)"
  fi
  if [ "${CANARY_GPUS:-all}" != none ]; then
    if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
      machine_error "no GPU to train on: nvidia-smi finds none; install the NVIDIA driver on the runner, or set gpus: none to train on the CPU"
    fi
    if ! grep -qi nvidia "$traces/docker-info" && ! command -v nvidia-container-cli >/dev/null &&
      ! command -v nvidia-ctk >/dev/null; then
      machine_error "docker has no access to the GPU; install the NVIDIA Container Toolkit and run: nvidia-ctk runtime configure --runtime=docker"
    fi
  fi
}

# Sets `common`: what every container has, and `cache`: the model cache, for the one that has no network.
common_arguments() {
  common=(
    --rm --init
    --user "$(id -u):$(id -g)"
    --read-only
    --cap-drop ALL
    --security-opt no-new-privileges
    --pids-limit 8192
    --tmpfs "/tmp:rw,exec,nosuid,nodev"
    --shm-size 8g
    --log-driver local
    --label "$(runner_label)"
    --volume "$workspace:/workspace:ro"
    --volume "$traces/home:/scratch"
    --volume "$traces/records:/records"
    --env-file "$traces/environment"
    --env CANARY_CONFIG --env CANARY_COMMAND --env CANARY_SETUP --env CANARY_WORKING_DIRECTORY --env CANARY_COMPARE
    --env CANARY_TIMEOUT_MINUTES --env CANARY_BASE_SHA --env CANARY_TASK --env CANARY_GPUS
    --env CANARY_CHECKOUT=/workspace --env CANARY_RECORDS=/records --env CANARY_SCRATCH=/scratch
    --env "CANARY_LIMIT_S=$limit_s" --env "CANARY_IMAGE=$image"
  )
  if [ -n "${CANARY_MODEL_CACHE:-}" ]; then
    [[ $CANARY_MODEL_CACHE == /* ]] || refuse "input model-cache: '$CANARY_MODEL_CACHE' is not an absolute path; begin it with /"
    [ -d "$CANARY_MODEL_CACHE/hub" ] || refuse "input model-cache: folder $CANARY_MODEL_CACHE/hub is missing; fill it with mode prefetch"
    volume_folder "input model-cache" "$CANARY_MODEL_CACHE/hub" cache
    cache=(--volume "$folder:/models/hub:ro" --env HF_HUB_CACHE=/models/hub)
  fi
}

# The container has a limit of time of its own, CANARY_LIMIT_S; this one is around docker's client. Names are
# written down before docker hears of them, so that collect.sh can remove what this script did not.
contained() {
  local name=$1 rc=0
  shift
  # Before collect.sh could know of the container.
  if cancelled; then exit 4; fi
  printf '%s\n' "$name" >>"$traces/containers"
  timeout --foreground --kill-after=30 "$((limit_s + 30))s" docker run --name "$name" "$@" 2>&1 || rc=$?
  # How the client of a cancelled job ended says nothing about the training: collect.sh ends it, at any moment.
  if cancelled; then exit 4; fi
  if [ "$rc" -eq 124 ] || [ "$rc" -eq 137 ]; then remove_containers "name=^/?$name\$" || true; fi
  return "$rc"
}

# The shell that started this script is gone.
cancelled() { [ "$(cut -d ' ' -f 4 "/proc/$$/stat")" != "$PPID" ]; }

with_docker() {
  local rc=0 name
  check_docker
  environment_file
  extra_arguments
  common_arguments
  name=canary-$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')
  local gpus=() offline=() network=${CANARY_NETWORK:-none}
  if ! [[ $network =~ ^[A-Za-z0-9][A-Za-z0-9_.-]*$ ]] || [ "$network" = host ]; then
    refuse "input network is '$network'; write none, or the name of a docker network other than host"
  fi
  if [ "$network" = none ]; then offline=(--env HF_HUB_OFFLINE=1); fi
  if [ "${CANARY_GPUS:-all}" != none ]; then gpus=(--gpus "${CANARY_GPUS:-all}"); fi
  if [ -n "${CANARY_SETUP:-}" ]; then
    contained "$name-setup" "${common[@]}" ${extra[@]+"${extra[@]}"} "$image" gate setup || rc=$?
    explain "$rc"
  fi
  # The reason of docker's own is in the first lines, and what a stranger prints has no end.
  contained "$name" "${common[@]}" ${cache[@]+"${cache[@]}"} ${gpus[@]+"${gpus[@]}"} \
    --network "$network" ${offline[@]+"${offline[@]}"} \
    ${extra[@]+"${extra[@]}"} ${volumes[@]+"${volumes[@]}"} "$image" gate run |
    tee >(head -c 65536 >"$traces/output"; cat >/dev/null) || rc=$?
  explain "$rc"
}

# Exit codes of docker itself, and of what ran in it.
explain() {
  case $1 in
    0 | 2 | 4) [ "$1" -eq 0 ] || exit "$1" ;;
    124 | 137 | 142)  # 142: the container's own limit of time
      # What was done before stays judged; the manifest says which config was not.
      if [ -f "$traces/records/gate.json" ] && [ ! -L "$traces/records/gate.json" ]; then exit 4; fi
      if [ "$1" -ne 137 ]; then
        machine_error "the canary was stopped after ${CANARY_TIMEOUT_MINUTES:-60} minutes (timeout-minutes); raise it, or train fewer steps"
      fi
      machine_error "the canary was killed: the machine ran out of memory, or someone ended it"
      ;;
    125)
      for _ in 1 2 3 4 5; do [ -s "$traces/output" ] || sleep 0.2; done
      if grep -qi 'could not select device driver\|nvidia-container' "$traces/output" 2>/dev/null; then
        machine_error "docker has no access to the GPU; install the NVIDIA Container Toolkit and run: nvidia-ctk runtime configure --runtime=docker"
      fi
      machine_error "docker could not start the image; the log of the job has its reason"
      ;;
    *) machine_error "the canary ended with exit code $1 and left no record; read the log of the training job" ;;
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
  environment_file
  local kept=() name
  # By CANARY_RUN collect.sh finds what the training left running, and by RUNNER_TRACKING_ID the runner.
  for name in PATH LANG LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES VIRTUAL_ENV \
    CANARY_RUN RUNNER_TRACKING_ID \
    CANARY_CONFIG CANARY_COMMAND CANARY_SETUP CANARY_WORKING_DIRECTORY CANARY_COMPARE CANARY_TIMEOUT_MINUTES \
    CANARY_BASE_SHA CANARY_TASK CANARY_GPUS; do
    if [ -n "${!name:-}" ]; then kept+=("$name=${!name}"); fi
  done
  kept+=("HOME=$traces/home" "PYTHONUSERBASE=${PYTHONUSERBASE:-${HOME:-/root}/.local}")
  kept+=("CANARY_CHECKOUT=$workspace" "CANARY_RECORDS=$traces/records" "CANARY_SCRATCH=$traces/home")
  if [ -n "${CANARY_MODEL_CACHE:-}" ]; then kept+=("HF_HUB_CACHE=$CANARY_MODEL_CACHE/hub"); fi
  local line
  while IFS= read -r line; do kept+=("$line"); done <"$traces/environment"
  if [ -n "${CANARY_SETUP:-}" ]; then
    env -i "${kept[@]}" "${canary[@]}" gate setup || rc=$?
    explain "$rc"
  fi
  timeout --foreground --kill-after=30 "${limit_s}s" \
    env -i "${kept[@]}" HF_HUB_OFFLINE=1 "${canary[@]}" gate run || rc=$?
  explain "$rc"
}

# What an earlier job of this runner left: cancelled by force, or on a machine that went down.
begin_afresh() {
  local old
  if command -v docker >/dev/null && ! in_container_job && timeout --kill-after=5 60 docker version >/dev/null 2>&1; then
    remove_containers "label=$(runner_label)" || machine_error "a container of an earlier canary cannot be removed; remove it by hand: docker rm --force \$(docker ps -aq --filter label=$(runner_label))"
  fi
  if [ -f "$traces/mark" ]; then end_processes "$(head -c 64 -- "$traces/mark")"; fi
  for old in "$temporary"/canary-collect-* "$temporary"/canary-run.error.* "$temporary"/canary-left-*; do clear_away "$old" || true; done
  clear_away "$traces" || machine_error "$traces is of an earlier job and cannot be moved; remove it by hand"
  clear_away "$records" || machine_error "$records is of an earlier job and cannot be moved; remove it by hand"
  mkdir -m 0700 -- "$traces"
  mkdir -- "$traces/home" "$traces/records"
  printf '%s' "$CANARY_RUN" >"$traces/mark"
  : >"$traces/containers"
}

limit_of_time() {
  local minutes=${CANARY_TIMEOUT_MINUTES:-} usual=60
  case ${CANARY_TASK:-} in nightly | schedule) usual=240 ;; esac
  minutes=${minutes:-$usual}
  [[ $minutes =~ ^[0-9]{1,6}$ ]] && [ "$((10#$minutes))" -gt 0 ] || refuse "input timeout-minutes is '$minutes'; write a whole number above 0"
  export CANARY_TIMEOUT_MINUTES=$((10#$minutes))
  readonly limit_s=$((CANARY_TIMEOUT_MINUTES * 60 + 90))  # the canary itself ends in time; this is for one that does not
}

choose_image() {
  image=${CANARY_IMAGE:-}
  if [ -z "$image" ] && [ -s "$action/image.txt" ]; then image=$(head -n 1 "$action/image.txt"); fi
  [ -n "$image" ] || refuse "input image is empty, and this version of the action names none; write image: NAME@sha256:DIGEST"
  [[ $image =~ ^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$ ]] || refuse "input image is not the name of an image; write NAME@sha256:DIGEST"
  if ! [[ $image =~ @sha256:[0-9a-f]{64}$ ]]; then
    warn "image $image has no digest: whoever can move its tag chooses what runs; write ${image%%@*}@sha256:DIGEST"
  fi
}

main() {
  rm -f -- "$reason"
  if [ "${GITHUB_EVENT_NAME:-}" = pull_request_target ]; then
    refuse "the event pull_request_target is refused: it would train a stranger's code beside your secrets; use pull_request"
  fi
  begin_afresh
  limit_of_time
  refuse_credentials
  local wanted=${CANARY_GPUS:-all}
  wanted=${wanted//[[:space:]]/}
  export CANARY_GPUS=${wanted:-all}
  extra=() volumes=() cache=()
  engine=$(choose_engine)
  say "engine $engine"
  if [ "$engine" = docker ]; then
    choose_image
    with_docker
  else
    without_docker
  fi
}

stop_commands
main
