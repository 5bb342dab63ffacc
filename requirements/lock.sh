#!/usr/bin/env bash
# Writes the lock files from pyproject.toml and constraints.txt. Needs uv.
# Of the image: torch and the CUDA libraries it names (torch.lock.txt), and everything else
# (image.lock.txt). Of the half of the action that answers: what the command line needs
# (report.lock.txt), what charts need beside it (page.lock.txt), and for filling the model cache more
# (prefetch.lock.txt). Those three serve every Python from 3.11 on; uv lists the hashes of all wheels
# of a version, whatever they are for. release.lock.txt has the tools of `make release-candidate`.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TORCH_ONLY='^(torch|triton|cuda-[a-z-]+|nvidia-(cu|nccl|nv)[a-z0-9-]+)=='

# Usage: compile PYTHON pyproject.toml [--extra NAME], or compile PYTHON --group NAME
compile() {
  uv --no-config pip compile --constraint constraints.txt \
    --python-version "$1" --python-platform x86_64-manylinux_2_28 \
    --generate-hashes --no-header --no-annotate --quiet "${@:2}"
}

# A package and the hashes below it are one paragraph; `$1` is how awk treats those of TORCH_ONLY.
paragraphs() {
  awk -v only="$TORCH_ONLY" -v wanted="$1" \
    '/^[a-zA-Z0-9]/ { keep = (($0 ~ only) == wanted) } keep'
}

write() {
  printf '# %s Written by requirements/lock.sh; do not edit.\n' "$1"
  paragraphs "$2" <<<"$locked"
}

locked="$(compile 3.12 pyproject.toml --extra train)"
write "torch and the CUDA libraries that its default wheels name." 1 >requirements/torch.lock.txt
write "What the image installs beside torch: the tested set of constraints.txt." 0 >requirements/image.lock.txt
locked="$(compile 3.11 pyproject.toml)"
write "What the half of the action that answers installs." 0 >requirements/report.lock.txt
# Without the paragraphs that are in report.lock.txt already.
locked="$(awk 'NR == FNR { if (/^[a-zA-Z0-9]/) known[$1]; next }
  /^[a-zA-Z0-9]/ { keep = !($1 in known) } keep' requirements/report.lock.txt <(compile 3.11 pyproject.toml --extra report))"
write "What the charts of the report need beside report.lock.txt." 0 >requirements/page.lock.txt
locked="$(compile 3.11 pyproject.toml --extra hub)"
write "What filling the model cache installs." 0 >requirements/prefetch.lock.txt
locked="$(compile 3.11 --group release)"
write "What makes and checks a release candidate: make release-candidate." 0 >requirements/release.lock.txt
