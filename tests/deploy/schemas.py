"""Objects against the schemas of Kubernetes, strictly; for those of operators, own tables.

The tables hold the fields of the operators' definitions as far as deploy/ uses them. The objects
were compared with the definitions themselves, too: kedacore/keda 2.20, prometheus-operator 0.93,
apache/spark-kubernetes-operator 1.0; who adds a field here looks it up there.
"""

from collections.abc import Iterator
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped] # it has none

# The oldest that knows every field, and the newest there is.
VERSIONS: Final = ("1.27", "1.37")
# A table names the fields. None: a number; "text"; "pod": the template of one; [..]: a list of
# such; {"*": ..}: whatever the name.
Table = Any
_METADATA: Final[Table] = {"name": "text", "namespace": "text", "labels": {"*": "text"}}
_SELECTOR: Final[Table] = {"matchLabels": {"*": "text"}}
_BEHAVIOR: Final[Table] = {
    "stabilizationWindowSeconds": None,
    "policies": [{"type": "text", "value": None, "periodSeconds": None}],
}
_KAFKA: Final = (
    "bootstrapServersFromEnv consumerGroupFromEnv topic lagThreshold activationLagThreshold "
    "offsetResetPolicy allowIdleConsumers version sasl tls "
    "serverAddress query threshold ignoreNullValues authModes"
)
OPERATORS: Final[dict[str, Table]] = {
    "monitoring.coreos.com/v1 PodMonitor": {
        "selector": _SELECTOR,
        "podMetricsEndpoints": [
            {"port": "text", "path": "text", "interval": "text", "scrapeTimeout": "text"}
        ],
    },
    "monitoring.coreos.com/v1 ServiceMonitor": {
        "selector": _SELECTOR,
        "endpoints": [
            {
                **dict.fromkeys(("port", "path", "interval", "scrapeTimeout"), "text"),
                "relabelings": [
                    {"sourceLabels": ["text"], "separator": "text", "targetLabel": "text"}
                ],
            }
        ],
    },
    "monitoring.coreos.com/v1 PrometheusRule": {
        "groups": [
            {
                "name": "text",
                "interval": "text",
                "rules": [
                    {
                        "alert": "text",
                        "record": "text",
                        "expr": "text",
                        "for": "text",
                        "keep_firing_for": "text",
                        "labels": {"*": "text"},
                        "annotations": {"*": "text"},
                    }
                ],
            }
        ]
    },
    "keda.sh/v1alpha1 ScaledObject": {
        "scaleTargetRef": {
            "apiVersion": "text",
            "kind": "text",
            "name": "text",
            "envSourceContainerName": "text",
        },
        "pollingInterval": None,
        "cooldownPeriod": None,
        "minReplicaCount": None,
        "maxReplicaCount": None,
        "advanced": {
            "horizontalPodAutoscalerConfig": {
                "behavior": {"scaleUp": _BEHAVIOR, "scaleDown": _BEHAVIOR}
            }
        },
        # KEDA takes texts only: a number or a boolean is refused by the API server.
        "triggers": [
            {
                "type": "text",
                "metadata": dict.fromkeys(_KAFKA.split(), "text"),
                "authenticationRef": {"name": "text"},
            }
        ],
    },
    "keda.sh/v1alpha1 TriggerAuthentication": {
        "env": [{"parameter": "text", "name": "text", "containerName": "text"}],
        "secretTargetRef": [{"parameter": "text", "name": "text", "key": "text"}],
    },
    "spark.apache.org/v1 SparkApplication": {
        "deploymentMode": "text",
        "pyFiles": "text",
        "driverArgs": ["text"],
        "runtimeVersions": {"sparkVersion": "text", "scalaVersion": "text"},
        "sparkConf": {"*": "text"},
        "applicationTolerations": {
            "resourceRetainPolicy": "text",
            "restartConfig": {
                "restartPolicy": "text",
                "maxRestartAttempts": None,
                "maxRestartOnFailure": None,
                "restartBackoffMillis": None,
                "restartCounterResetMillis": None,
            },
        },
        "driverSpec": {"podTemplateSpec": "pod"},
        "executorSpec": {"podTemplateSpec": "pod"},
    },
}


def problems(each: dict[str, Any], version: str = VERSIONS[-1]) -> list[str]:
    key = f"{each['apiVersion']} {each['kind']}"
    if key not in OPERATORS:
        return _by_kubernetes(each, version, key)
    table = {
        "apiVersion": "text",
        "kind": "text",
        "metadata": _METADATA,
        "spec": OPERATORS[key],
    }
    return list(_by_table(each, table, version, key))


def _by_kubernetes(each: dict[str, Any], version: str, where: str) -> list[str]:
    try:
        kubernetes_validate.validate(each, version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return [f"{where}: {error.message}"]
    return []


def _by_table(value: object, table: Table, version: str, where: str) -> Iterator[str]:
    match table:
        case None:
            if not isinstance(value, int):
                yield f"{where}: {value!r} is no number"
        case "text":
            if not isinstance(value, str):
                yield f"{where}: {value!r} is no text"
        case "pod":
            pod = {"apiVersion": "v1", "kind": "PodTemplate", "template": value}
            yield from _by_kubernetes(pod, version, where)
        case list():
            for number, inner in enumerate(value if isinstance(value, list) else [value]):
                yield from _by_table(inner, table[0], version, f"{where}[{number}]")
        case _:
            for name, inner in value.items() if isinstance(value, dict) else ():
                if name in table or "*" in table:
                    below = table.get(name, table.get("*"))
                    yield from _by_table(inner, below, version, f"{where}.{name}")
                else:
                    yield f"{where}: {name} does not exist"
