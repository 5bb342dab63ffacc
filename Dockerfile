# The digest of python:3.12.14-slim-bookworm for all platforms, read in November 2026 in public Dockerfiles that
# pin this tag with it. To check or update it:
#   docker buildx imagetools inspect python:3.12.14-slim-bookworm
ARG BASE_IMAGE=python:3.12.14-slim-bookworm@sha256:392307d22300de8b5986851a12d9176dfc0fc073e65bf6523ebd7dcbeb23564e


# The dependencies. Nothing of the project is here, so changes of the project do not rebuild these layers.
FROM ${BASE_IMAGE} AS stack

# Build arguments, not ENV: pip reads them as variables, but they do not stay in the image.
ARG PIP_ROOT_USER_ACTION=ignore
ARG PIP_DISABLE_PIP_VERSION_CHECK=1

# Triton compiles a small C file for every kernel it starts; `canary ab` and `canary gate` run git.
# A mounted checkout may belong to another user, which git refuses without safe.directory. Triton does not
# need the link-time optimizer (60 MB).
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates gcc git libc6-dev tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log \
        /usr/bin/*-lto-dump-* /usr/lib/gcc/*/*/lto1 \
    && git config --system --add safe.directory /workspace

# torch's wheels contain CUDA, so a CUDA base image would ship it twice. Empty means the locked default, for
# CUDA 13. For older drivers set TORCH_INDEX_URL to the URL that PyTorch's install page shows for your CUDA,
# and TORCH_VERSION to one of the versions there.
ARG TORCH_VERSION=
ARG TORCH_INDEX_URL=
COPY requirements/torch.lock.txt /opt/canary/requirements/
# Remove static libraries, and two CUDA libraries that nothing here loads. Keep compiled Python: on a
# read-only root every launch would compile it again.
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
COPY configs /source/configs
COPY canary /source/canary
RUN python -m pip install --no-cache-dir --no-deps --no-build-isolation --root /installed /source


FROM stack

# One folder holds everything that is written besides the records: if you mount it, the root may be read-only.
# HOME and TMPDIR are this folder itself, so that they also exist for `docker exec` and health checks.
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

# Writable for everyone, because --user may set any uid.
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

# Rarely: a check takes CPU time from the training that is being timed.
HEALTHCHECK --interval=10m --timeout=1m --retries=2 CMD ["canary", "env"]

# An init process passes signals on and collects what a killed training leaves. `-s`: also below that of
# `docker run --init`.
ENTRYPOINT ["tini", "-s", "--", "python", "/opt/canary/entrypoint.py"]
CMD ["--help"]
