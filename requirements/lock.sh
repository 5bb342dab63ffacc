#!/usr/bin/env bash
# Writes the two lock files of the image from pyproject.toml and constraints.txt: torch and the CUDA
# libraries it names (torch.lock.txt), and everything else (image.lock.txt). Needs uv.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TORCH_ONLY='^(torch|triton|cuda-[a-z-]+|nvidia-(cu|nccl|nv)[a-z0-9-]+)=='

compile() {
  uv --no-config pip compile pyproject.toml --extra train --constraint constraints.txt \
    --python-version 3.12 --python-platform x86_64-manylinux_2_28 \
    --generate-hashes --no-header --no-annotate --quiet
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

locked="$(compile)"
write "torch and the CUDA libraries that its default wheels name." 1 >requirements/torch.lock.txt
write "What the image installs beside torch: the tested set of constraints.txt." 0 >requirements/image.lock.txt
