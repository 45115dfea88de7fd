# The service as an image, one target for each engine:
#
#   docker build --target worker -t hapax .       the worker: slim, no Java
#   docker build --target spark -t hapax-spark .  the Spark engine: PySpark, Java, the connector
#
# Business code comes on top, in one of two ways:
#
#   FROM hapax                                    or, without an image of your own, a volume:
#   COPY pipeline.py /app/                        docker run -v ./pipeline.py:/app/pipeline.py:ro ...
#   ENV HAPAX_TRANSFORM=pipeline:transform
#
# /app is on PYTHONPATH. Nothing is written at run time: --read-only works as it is for the worker,
# and with a writable /tmp for Spark, which spills there.
#
# What a release passes:
#   --build-arg PYTHON_IMAGE=python@sha256:...    the base by its digest, which never changes
#   --build-arg REVISION="$(git rev-parse HEAD)"  what it was built from
#   --build-arg SOURCE=https://...                where that is
# Where pip may not use the public index, or an authority of one's own signs: secrets, which no
# layer keeps. What pip.conf says of the authority is: cert = /run/secrets/ca.pem
#   --secret id=pip.conf,src=pip.conf --secret id=ca.pem,src=ca.pem
# docs/kubernetes.md is for those who run it; deploy/sbom.py writes what is in it, from the lock.

ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# The libraries are in a layer of their own: they change rarely. --only-binary: a wheel that is
# missing for this platform fails here with its name, instead of asking for a compiler.
COPY requirements/build.txt requirements/worker.txt requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.pem \
    python -m venv --without-pip /opt/hapax \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --requirement requirements/build.txt \
    && /opt/build/bin/pip --python /opt/hapax/bin/python install --no-compile \
        --only-binary :all: --require-hashes --requirement requirements/worker.txt

# The native record path is compiled here, for this very Python; the image has no compiler.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

COPY LICENSE README.md pyproject.toml hatch_build.py ./
COPY service/ service/
COPY fast/ fast/
# The sandbox, the demo and hapax dev are for a machine to try things on: no image has them.
# Bytecode is compiled here, once: the running container may not write it. Unchecked hashes
# spare a stat per module and do not depend on file times. What pip compiled would be left as it is,
# hence its --no-compile. Symbols that only debuggers read are a third of the libraries. What type
# checkers and compilers read goes as well, and how languages other than Python are coloured.
# A wheel without the native path has another name, and ends the build.
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --check-build-dependencies \
        --wheel-dir wheels . \
    && /opt/build/bin/pip --python /opt/hapax/bin/python install --no-compile --no-deps wheels/*-linux_*.whl \
    && rm -r /opt/hapax/lib/python3*/site-packages/hapax/sandbox \
        /opt/hapax/lib/python3*/site-packages/hapax/demo \
        /opt/hapax/lib/python3*/site-packages/hapax/dev \
    && find /opt/hapax -name '*.so*' -type f -exec strip --strip-unneeded {} + \
    && find /opt/hapax/lib \( -name '*.py[ix]' -o -name '*.px[di]' -o -name '*.proto' \) -delete \
    && find /opt/hapax/lib -path '*/pygments/lexers/*.py' ! -name __init__.py ! -name _mapping.py \
        ! -name python.py ! -name special.py -delete \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/hapax/lib

# PySpark is a source archive without anything to compile; all the rest are wheels.
FROM build AS build-spark
COPY requirements/spark.txt requirements/
# Debian keeps one version of Java at a time, the patched one: a pin would break with every patch.
# Its package links pages of the manual, and fails where a slim base has no folder for them.
# hadolint ignore=DL3008
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.pem \
    mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && /opt/build/bin/pip --python /opt/hapax/bin/python install --no-compile \
        --only-binary :all: --no-binary pyspark \
        --require-hashes --requirement requirements/spark.txt \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/hapax/lib
# Fetched with the libraries of a sandbox, compared with the lock, and looked for nowhere else later.
# The sources have the code that fetches; the package in the image does not.
COPY requirements/sandbox.txt requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.pem \
    python -m venv /opt/fetch \
    && /opt/fetch/bin/pip install --no-compile \
        --only-binary :all: --require-hashes --requirement requirements/sandbox.txt
RUN XDG_CACHE_HOME=/build/cache PYTHONPATH=/build/service /opt/fetch/bin/python -c \
        'from hapax.engines.spark.session import connector_jars; print(*connector_jars(), sep="\n")' \
        > jars.txt \
    && mkdir /opt/hapax/jars \
    && xargs -a jars.txt cp --target-directory /opt/hapax/jars

# What both targets have in common.
FROM ${PYTHON_IMAGE} AS runtime
# The base brings what installs software. Nothing is installed here any more.
RUN python -m pip uninstall --yes --quiet --root-user-action ignore pip \
    && rm -rf /usr/local/lib/python3.*/ensurepip
ENV PATH=/opt/hapax/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONFAULTHANDLER=1
WORKDIR /app
EXPOSE 9464
STOPSIGNAL SIGTERM

# For compose and plain docker; Kubernetes has its own probes. A Spark driver starts a JVM first,
# hence the long start period; a container may be healthy earlier.
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('HAPAX_TELEMETRY__PORT', '9464')}/livez\", timeout=2)"]

ENTRYPOINT ["hapax"]
CMD ["run"]

FROM runtime AS spark
ENV PYSPARK_PYTHON=/opt/hapax/bin/python \
    HAPAX_ENGINE=spark \
    HAPAX_SPARK__JARS=/opt/hapax/jars

# Without a name for its user Spark does not start: Java then has no home folder (measured).
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && echo 'hapax:x:65532:65532::/tmp:/usr/sbin/nologin' >> /etc/passwd

COPY --from=build-spark /opt/hapax /opt/hapax
# Spark on Kubernetes starts drivers and executors with arguments of its own; all others are for hapax.
COPY deploy/spark_pod.py /opt/hapax/
ARG PYTHON_IMAGE
ARG VERSION=0.1.0
ARG REVISION=
ARG SOURCE=
ARG LICENSES=Apache-2.0
LABEL org.opencontainers.image.title="hapax-spark" \
      org.opencontainers.image.description="Exactly-once consume-transform-produce for Kafka, on Spark" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="${LICENSES}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
USER 65532:65532
ENTRYPOINT ["python", "/opt/hapax/spark_pod.py"]
CMD ["run"]

# The last target is what a build without --target makes.
FROM runtime AS worker
COPY --from=build /opt/hapax /opt/hapax
ARG PYTHON_IMAGE
ARG VERSION=0.1.0
ARG REVISION=
ARG SOURCE=
ARG LICENSES=Apache-2.0
LABEL org.opencontainers.image.title="hapax" \
      org.opencontainers.image.description="Exactly-once consume-transform-produce for Kafka, in Python" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="${LICENSES}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
# A number, so that Kubernetes can check runAsNonRoot; no such user has to exist.
USER 65532:65532
