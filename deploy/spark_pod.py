"""Entry point of the Spark image: hapax, or what Spark on Kubernetes asks of its pods.

Spark gives its pods ``driver …`` or ``executor`` as arguments, the rest in the environment.
A driver is ``hapax run`` here, as everywhere: it is the first process of its pod, so a SIGTERM
drains it. Its JVM is its child and takes the properties that Spark wrote for the pod.
Everything else is arguments of ``hapax``.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OPTION = "SPARK_JAVA_OPT_"
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_TOLD = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def plan(
    words: Sequence[str], environ: Mapping[str, str], home: Path
) -> tuple[list[str], dict[str, str]]:
    """Return the command and its environment. ``home``: the folder of PySpark."""
    if words[:1] == ["executor"]:
        return _executor(environ, home), dict(environ)
    if words[:1] == ["driver"]:
        return ["hapax", "run"], {**environ, "PYSPARK_SUBMIT_ARGS": _submission(words, environ)}
    return ["hapax", *words], dict(environ)


def _submission(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what PySpark passes to the launcher of its JVM."""
    arguments = ["--deploy-mode", "client"]  # the submission said cluster, and this is its driver
    if "--properties-file" in words:
        arguments += ["--properties-file", words[words.index("--properties-file") + 1]]
    if address := environ.get("SPARK_DRIVER_BIND_ADDRESS"):
        arguments += ["--conf", f"spark.driver.bindAddress={address}"]
    return " ".join([*arguments, "pyspark-shell"])


def _executor(environ: Mapping[str, str], home: Path) -> list[str]:
    java = Path(environ["JAVA_HOME"], "bin", "java") if environ.get("JAVA_HOME") else "java"
    names = (name for name in environ if name.startswith(_OPTION))
    options = sorted(names, key=lambda name: int(name.removeprefix(_OPTION)))
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    places = [
        environ.get("SPARK_CLASSPATH"),
        f"{home}/jars/*",
        environ.get("SPARK_EXTRA_CLASSPATH"),
    ]
    return [
        str(java),
        *(environ[name] for name in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        os.pathsep.join(place for place in places if place),
        _BACKEND,
        *(part for option, name in _TOLD.items() for part in (option, environ[name])),
    ]


if __name__ == "__main__":
    _spec = find_spec("pyspark")
    _home = Path(_spec.origin).parent if _spec is not None and _spec.origin else Path()
    _command, _environ = plan(sys.argv[1:], os.environ, _home)
    os.execvpe(_command[0], _command, _environ)  # noqa: S606 - no shell is what is wanted
