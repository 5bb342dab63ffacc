# python:3.12.14-slim-bookworm, the index of all platforms. The hash was read in November 2026 in public
# Dockerfiles that pin this tag by it; to confirm or renew it:
#   docker buildx imagetools inspect python:3.12.14-slim-bookworm
ARG BASE_IMAGE=python:3.12.14-slim-bookworm@sha256:392307d22300de8b5986851a12d9176dfc0fc073e65bf6523ebd7dcbeb23564e


# What the canary stands on. Nothing of the project is here, so its changes leave these layers alone.
FROM ${BASE_IMAGE} AS stack

# Of the build alone: an argument reaches pip as a variable and does not stay in the image.
ARG PIP_ROOT_USER_ACTION=ignore
ARG PIP_DISABLE_PIP_VERSION_CHECK=1

# Triton compiles a small C file for every kernel it starts; `canary ab` and `canary gate` run git.
# A checkout that is mounted belongs to whoever made it, and git refuses it unless told. The link-time
# optimizer (60 MB) is of no use to Triton.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates gcc git libc6-dev \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log \
        /usr/bin/*-lto-dump-* /usr/lib/gcc/*/*/lto1 \
    && git config --system --add safe.directory /workspace

# torch's own wheels bring CUDA, so a CUDA base would ship it twice. Empty: the locked default, for
# CUDA 13. For older drivers: TORCH_INDEX_URL is the URL that PyTorch's install page prints for your
# CUDA, and TORCH_VERSION one of the versions there.
ARG TORCH_VERSION=
ARG TORCH_INDEX_URL=
COPY requirements/torch.lock.txt /opt/canary/requirements/
# Removed again: static libraries, and two CUDA libraries that nothing installed here loads. Compiled
# Python stays: on a read-only root every launch would have to compile anew.
# hadolint ignore=DL3013
RUN if [ -z "${TORCH_VERSION}${TORCH_INDEX_URL}" ]; then \
        python -m pip install --no-cache-dir --only-binary :all: --no-deps --require-hashes \
            -r /opt/canary/requirements/torch.lock.txt; \
    else \
        locked="$(sed -n 's/^torch==\([^ ]*\).*/\1/p' /opt/canary/requirements/*)" \
        && python -m pip install --no-cache-dir --only-binary :all: "torch==${TORCH_VERSION:-${locked}}" \
            ${TORCH_INDEX_URL:+--index-url "${TORCH_INDEX_URL}"}; \
    fi \
    && site="$(python -c 'import site; print(site.getsitepackages()[0])')" \
    && find "${site}" \( -name '*.a' -o -name 'libcusolverMg.so*' -o -name 'libnvrtc*.alt.so*' \) -delete

COPY requirements/image.lock.txt /opt/canary/requirements/
RUN python -m pip install --no-cache-dir --only-binary :all: --no-deps --require-hashes \
        -r /opt/canary/requirements/image.lock.txt \
    && python -m pip check \
    && site="$(python -c 'import site; print(site.getsitepackages()[0])')" \
    && for package in networkx pandas pyarrow sympy; do \
        find "${site}/${package}" -type d -name tests -prune -exec rm -r {} +; \
    done


FROM stack AS project
COPY pyproject.toml README.md LICENSE /source/
COPY templates /source/templates
COPY canary /source/canary
RUN python -m pip install --no-cache-dir --no-deps --no-build-isolation --root /installed /source


FROM stack

# One folder holds whatever is written beside the records: mount it, and the root may be read-only.
# Home and temporary files are the folder itself, which is there for `docker exec` and checks too.
ENV CANARY_SCRATCH=/scratch \
    HOME=/scratch \
    TMPDIR=/scratch \
    XDG_CACHE_HOME=/scratch/cache \
    HF_HOME=/scratch/cache/huggingface \
    HF_DATASETS_CACHE=/scratch/cache/huggingface/datasets \
    TRITON_CACHE_DIR=/scratch/cache/triton \
    TORCHINDUCTOR_CACHE_DIR=/scratch/cache/inductor \
    CUDA_CACHE_PATH=/scratch/cache/cuda \
    MPLCONFIGDIR=/scratch/cache/matplotlib \
    USER=canary \
    LOGNAME=canary \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HF_HUB_DISABLE_TELEMETRY=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# Any uid may be given with --user, so these belong to no one in particular.
RUN mkdir -p /scratch /records /workspace /models/hub && chmod 1777 /scratch /records /workspace

COPY --from=project /installed /
COPY configs /opt/canary/configs
COPY entrypoint.py /opt/canary/entrypoint.py

ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="RLHF Canary" \
      org.opencontainers.image.description="A short RLHF or fine-tuning run on every change, compared with the runs before it." \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"

WORKDIR /workspace
VOLUME /scratch
USER 10001:10001

# Seldom: a check takes processor time from what is being timed.
HEALTHCHECK --interval=10m --timeout=1m --retries=2 CMD ["canary", "env"]

ENTRYPOINT ["python", "/opt/canary/entrypoint.py"]
CMD ["--help"]
