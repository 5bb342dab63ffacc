#!/usr/bin/env bash
# Builds the image, and runs it, on a machine without a docker engine.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/build_image_rootless.sh [options] [--run ARGS...]

Builds the Dockerfile with buildah, which needs no daemon, and runs the image with podman.
Packages: buildah, podman, crun; for `--base debootstrap` also debootstrap, and root.

  --base IMAGE          base image; without it, that of the Dockerfile
  --base debootstrap    makes a base from Debian packages, where no image registry can be reached;
                        its Python is Debian's own (SUITE=bookworm: 3.11)
  --tag NAME            name of the image [localhost/rlhf-canary]
  --torch-version V     another torch than the locked one
  --torch-index-url URL where it comes from: the URL that PyTorch's install page prints for your CUDA
  --storage FOLDER      where images are kept [that of buildah]
  --no-build            only run what an earlier call built
  --run ARGS...         everything that follows goes to the image: env, demo, run CONFIG. Its root is
                        read-only, its user 12345:12345, the network off; it finds ./ at /workspace
                        (read-only) and leaves its run folders in ./canary_output/image

Environment: SUITE and MIRROR of debootstrap; SSL_CERT_FILE, the certificates that pip trusts.
TEXT
}

fail() {
  printf 'build_image_rootless: %s\n' "$1" >&2
  exit 2
}

base="" tag="localhost/rlhf-canary" storage="" build=yes
torch_version="" torch_index_url=""
run=()
while (($#)); do
  case "$1" in
    --base | --tag | --torch-version | --torch-index-url | --storage)
      (($# > 1)) || fail "$1 needs a value (see --help)"
      case "$1" in
        --base) base="$2" ;;
        --tag) tag="$2" ;;
        --torch-version) torch_version="$2" ;;
        --torch-index-url) torch_index_url="$2" ;;
        --storage) storage="$2" ;;
      esac
      shift 2
      ;;
    --no-build) build="" && shift ;;
    --run) shift && run=("$@") && break ;;
    -h | --help) usage && exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
done

[[ -n "$build" ]] || ((${#run[@]})) || fail "--no-build does nothing without --run ARGS... (see --help)"

cd "$(dirname "$0")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Overlay shares the files of the layers; the other driver, vfs, copies 6 GB for each of them.
export STORAGE_DRIVER=overlay
((EUID == 0)) || export STORAGE_OPTS="overlay.mount_program=/usr/bin/fuse-overlayfs"
store=()
[[ -z "$storage" ]] || store=(--root "$storage/images" --runroot "$storage/run")

need() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || fail "$tool is not installed (on Debian: apt install $tool)"
  done
}

# A Debian with Python, laid out as the official images are: no documentation, `python` on the path,
# and a pip that installs for everyone.
debootstrap_base() {
  local name="$1" suite="${SUITE:-bookworm}" container root
  need debootstrap
  ((EUID == 0)) || fail "--base debootstrap needs root: it makes device files"
  container="$(buildah "${store[@]}" from scratch)"
  root="$(buildah "${store[@]}" mount "$container")"
  debootstrap --variant=minbase \
    --include=ca-certificates,python3,python3-dev,python3-pip,python3-venv \
    "$suite" "$root" ${MIRROR:+"$MIRROR"} >&2
  printf 'path-exclude /usr/share/%s/*\n' doc locale man >"$root/etc/dpkg/dpkg.cfg.d/slim"
  ln -s ../../bin/python3 "$root/usr/local/bin/python"
  rm -rf "$root"/usr/lib/python3*/EXTERNALLY-MANAGED "$root"/var/cache/apt "$root"/var/lib/apt/lists/* \
    "$root"/usr/share/doc "$root"/usr/share/man "$root"/usr/share/locale
  buildah "${store[@]}" umount "$container" >/dev/null
  buildah "${store[@]}" commit --rm --quiet "$container" "$name" >/dev/null
}

# What the build has to know of this machine: whom to trust, and which package index.
pip_config() {
  local index
  index="$(python3 -m pip config get global.index-url 2>/dev/null || true)"
  printf '[global]\ncert = /run/canary/certificates.crt\ntimeout = 180\n'
  [[ -z "$index" ]] || printf 'index-url = %s\n' "$index"
}

build_image() {
  local arguments=() certificates="${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}"
  [[ -f "$certificates" ]] || fail "no certificates at $certificates (set SSL_CERT_FILE)"
  if [[ "$base" == debootstrap ]]; then
    base="localhost/canary-base:${SUITE:-bookworm}"
    buildah "${store[@]}" inspect --type image "$base" >/dev/null 2>&1 || debootstrap_base "$base"
  fi
  [[ -z "$base" ]] || arguments+=(--build-arg "BASE_IMAGE=$base" --pull=false)
  pip_config >"$work/pip.conf"
  # The docker format, because the other has no health check.
  buildah "${store[@]}" build --isolation chroot --format docker --layers --tag "$tag" \
    --volume "$work/pip.conf:/etc/pip.conf:ro" \
    --volume "$certificates:/run/canary/certificates.crt:ro" \
    --build-arg "TORCH_VERSION=$torch_version" --build-arg "TORCH_INDEX_URL=$torch_index_url" \
    --build-arg "VERSION=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' canary/__init__.py)" \
    --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
    "${arguments[@]}" .
}

run_image() {
  local records="$PWD/canary_output/image" scratch="$work/scratch" mounts=()
  mkdir -p "$records" "$scratch"
  chmod 1777 "$records" "$scratch"
  # crun refuses the mixed cgroups that some virtual machines have; it sees plain ones in here.
  if ((EUID == 0)) && [[ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]]; then
    # shellcheck disable=SC2016
    mounts=(unshare --mount sh -c 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"' sh)
  fi
  "${mounts[@]}" podman "${store[@]}" run --rm --user 12345:12345 --network none \
    --read-only --read-only-tmpfs=false --no-healthcheck \
    --runtime crun --cgroups=disabled --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 \
    --volume "$PWD:/workspace:ro" --volume "$records:/records" --volume "$scratch:/scratch" \
    "$tag" "$@"
}

if [[ -n "$build" ]]; then
  need buildah
  SECONDS=0
  build_image
  printf 'built %s in %d s\n' "$tag" "$SECONDS" >&2
fi
if ((${#run[@]})); then
  need podman crun
  podman "${store[@]}" image exists "$tag" || fail "there is no image $tag: build it first, without --no-build"
  run_image "${run[@]}"
fi
