# The worker as an image. Business code comes on top, in one of two ways:
#
#   FROM hapax                                    or, without an image of your own, a volume:
#   COPY pipeline.py /app/                        docker run -v ./pipeline.py:/app/pipeline.py:ro ...
#   ENV HAPAX_TRANSFORM=pipeline:transform
#
# /app is on PYTHONPATH. Nothing is written at run time: --read-only works as it is.
# For a build that can be repeated bit by bit pass PYTHON_IMAGE=python@sha256:...

ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# The libraries stand in a layer of their own: they change rarely. --only-binary: a wheel that is
# missing for this platform fails here, in words, instead of asking for a compiler.
COPY requirements/build.txt requirements/worker.txt requirements/
RUN python -m venv --without-pip /opt/hapax \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --requirement requirements/build.txt \
    && /opt/build/bin/pip --python /opt/hapax/bin/python install \
        --only-binary :all: --require-hashes --requirement requirements/worker.txt

COPY README.md pyproject.toml ./
COPY service/ service/
# Bytecode is compiled here, once: the running container may not write it. Unchecked hashes
# spare a stat per module and do not depend on file times.
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --check-build-dependencies \
        --wheel-dir wheels . \
    && /opt/build/bin/pip --python /opt/hapax/bin/python install --no-deps wheels/*.whl \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/hapax/lib

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="hapax" \
      org.opencontainers.image.description="Exactly-once consume-transform-produce for Kafka, in Python"

ENV PATH=/opt/hapax/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONFAULTHANDLER=1

COPY --from=build /opt/hapax /opt/hapax
WORKDIR /app

# A number, so that Kubernetes can check runAsNonRoot; no such user has to exist.
USER 65532:65532
EXPOSE 9464
STOPSIGNAL SIGTERM

# For compose and plain docker; Kubernetes has its own probes.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('HAPAX_TELEMETRY__PORT', '9464')}/livez\", timeout=2)"]

ENTRYPOINT ["hapax"]
CMD ["run"]
