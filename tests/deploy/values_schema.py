"""values.schema.json, and names.json: names that do not exist are refused on every level.

Helm applies the schema before any template and says of such a name only that it is not allowed, so
the file leaves those to a template, which reads names.json and says which name is nearest; editors
warn of them by OPEN. The settings have their names and forms from the code, and what Kubernetes
defines (volumes, affinity, sidecars) its own schemas, without the descriptions.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped] # it has none
import yaml

from hapax.settings import VARIABLES
from tests.deploy.manifests import leaves
from tests.deploy.schemas import VERSIONS

Schema = dict[str, Any]

# The manifests themselves say these: one port for probes, service and scrapes; one name per pod.
OWNED: Final = frozenset({"HAPAX_INSTANCE", "HAPAX_TELEMETRY__PORT"})
_EVERYWHERE: Final = {"enum": ["0.0.0.0", "::", ""]}  # noqa: S104 - of a pod
"""Addresses at which probes and scrapes reach a pod; the second one where there is IPv6 alone."""
_SELECTED: Final = ("app.kubernetes.io/name", "app.kubernetes.io/instance")
_LABELS: Final = (
    *_SELECTED,
    "helm.sh/chart",
    *(f"app.kubernetes.io/{each}" for each in ("managed-by", "version", "component", "part-of")),
)
CLOSED: Final = '"additionalProperties": false'
OPEN: Final = '"additionalProperties": {"deprecationMessage": "this name does not exist"}'
_CORE, _NET = "io.k8s.api.core.v1", "io.k8s.api.networking.v1"
_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_SOME: Final[Schema] = {"type": "integer", "minimum": 1}
_SHARE: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 1}
_NUMBER: Final[Schema] = {"type": "number", "minimum": 0}
_TEXTS: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}
_SPAN: Final[Schema] = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
_PORT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 65535}
_PLAIN: Final = ["string", "number", "boolean"]
# Words that Kubernetes documents and its schemas do not list.
_ENUMS: Final = {
    "Toleration.effect": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
    "Toleration.operator": ["Exists", "Equal", "Lt", "Gt"],
    "TopologySpreadConstraint.whenUnsatisfiable": ["DoNotSchedule", "ScheduleAnyway"],
    "Container.imagePullPolicy": ["Always", "IfNotPresent", "Never"],
    "SeccompProfile.type": ["RuntimeDefault", "Localhost", "Unconfined"],
}

# Thresholds that the chart takes as values, and the expressions in which each is the number.
THRESHOLDS: Final = {
    "stalledSeconds": "time() - hapax_last_commit_timestamp_seconds > @\n",
    "haltedSeconds": "  hapax_consumer_lag_seconds > @\n",
    "loopStuckSeconds": "time() - hapax_last_poll_timestamp_seconds > @ and",
    "latencySeconds": "rate(hapax_record_latency_seconds_bucket[5m])) > @\n",
    "fallingBehindSeconds": "(min_over_time(hapax_consumer_lag_seconds[15m]) > @)",
    "retentionUsedShare": "clamp_min(hapax_retention_margin_seconds, 0))\n          ) > @\n",
    "abortShare": "(increase(hapax_transactions_total[5m])) > @\n",
    "hangingTransactionSeconds": "(hapax_open_transaction_seconds) > @\n",
    "deadLetters": "dead_lettered_total[1d] offset 15m) > 0\n          ) > @\n",
    "restarts": "changes(process_start_time_seconds[15m]) > @\n",
    "rebalances": 'increase(hapax_rebalances_total{kind="assigned"}[15m]) > @\n',
    "tasksLost": "increase(hapax_tasks_lost_total[15m]) > @\n",
}
_UNIT: Final = {"minimum": 0, "maximum": 1}
_TOPIC: Final = "[a-zA-Z0-9._-]{1,249}"
_FORMS: Final[dict[str, tuple[str, list[str]]]] = {
    "duration": (r"[0-9]{1,15}(\.[0-9]{1,9})? ?(ms|s|m|h|d)", ["string"]),
    "size": (
        r"[0-9]{1,15}(\.[0-9]{1,9})? ?([kKmMgG]?[bB]|[kKmMgG][iI][bB])?",
        ["string", "integer"],
    ),
    "share": (r"[0-9]*(\.[0-9]*)?%?", ["string", "number"]),
    "comma list of topic names": (f" *{_TOPIC} *(, *{_TOPIC} *)*", _PLAIN),
    "topic name": (_TOPIC, _PLAIN),
    "comma list of `host:port`": (" *[^, ]+:[0-9]{1,5} *(, *[^, ]+:[0-9]{1,5} *)*", ["string"]),
    "`package.module:function`": (r"[^\s:]+:[^\s:]+", ["string"]),
    "`https://…` or `http://…`": ("https?://.+", ["string"]),
    "1 to 200 letters": ("[A-Za-z0-9._-]{1,200}", _PLAIN),
    "JSON object of librdkafka properties and plain values": (r"\s*\{(.|\s)*\}\s*", ["string"]),
    "JSON object of Spark properties and plain values": (r"\s*\{(.|\s)*\}\s*", ["string"]),
}
"""By what the reference says of a setting: the texts of its form, and its types in YAML."""


def settable() -> dict[str, str]:
    """Return what may stand in a ConfigMap, with its meaning: no secrets, but their files."""
    return {
        name: variable.meaning
        for variable in VARIABLES
        if variable.name not in OWNED
        for name in (None if variable.form.secret else variable.name, variable.file_name)
        if name is not None
    }


def schema() -> Schema:
    top = closed(_values())
    # A static member that never comes back under its name would only delay the others.
    top["if"] = {"properties": {"kind": {"const": "Deployment"}}, "required": ["kind"]}
    dynamic = {"properties": {"HAPAX_GROUP__MEMBERSHIP": {"const": "dynamic"}}}
    top["then"] = {"properties": {"settings": {**dynamic, "required": ["HAPAX_GROUP__MEMBERSHIP"]}}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **top,
        "definitions": dict(sorted(_definitions(json.dumps(top)))),
    }


def names() -> dict[str, Any]:
    """Return what ``templates/_known.tpl`` reads.

    values   the names of each level, with what is below; a text names one of ``types``, a list of
             one has what each item is, null takes whatever there is
    types    those that Kubernetes defines
    secrets  variables that only ``extraEnv`` may name
    renamed  by path, what is said of a name that is known from elsewhere
    """
    whole = schema()
    called = yaml.safe_load(Path(__file__).with_name("values.yaml").read_text())["called"]
    renamed = {path[1:]: f"it is called {name}" for path, name in leaves(called)}
    secrets = {variable.name for variable in VARIABLES if variable.form.secret}
    for name in secrets:
        renamed[f"settings.{name}"] = (
            f"{name}_FILE names a file of the Secret; no secret is a value"
        )
    for name in OWNED:
        renamed[f"settings.{name}"] = "the chart decides it"
    return {
        "values": _below(whole),
        "types": {name: _below(each) for name, each in whole["definitions"].items()},
        "secrets": dict.fromkeys(sorted(secrets)),
        "renamed": dict(sorted(renamed.items())),
    }


def _below(node: Schema) -> Any:
    """Return the names of a part of the schema, as ``names`` has them."""
    node = next((each for each in node.get("allOf", ()) if "$ref" in each), node)
    if "$ref" in node:
        return node["$ref"].removeprefix("#/definitions/")
    if node.get("additionalProperties") is False:
        return {name: _below(each) for name, each in node["properties"].items()}
    if "items" in node:
        below = _below(node["items"])
        return None if below is None else [below]
    return None


def closed(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def form(name: str, allowed: str) -> Schema:
    """Return how a setting is written, from what the reference says of it."""
    kind = allowed.partition(",")[0]
    if name == "HAPAX_TELEMETRY__ADDRESS":
        return _EVERYWHERE
    if kind == "whole number":
        low, high = (int(one) for one in re.findall(r"\d+", allowed))
        return _pattern("[0-9]+", "string", "integer") | {"minimum": low, "maximum": high}
    if kind in _FORMS:
        pattern, types = _FORMS[kind]
        return _pattern(pattern, *types) | (_UNIT if kind == "share" else {})
    if " · " in allowed and "`" not in allowed:  # else words are not all that is read
        words = [*_cased(allowed.split(" · ")), ""]
        read = ["yes", "no", "on", "off", "1", "0"] if allowed == "true · false" else []
        return {"enum": [*words, *_cased(read), *([True, False, 1, 0] if read else [])]}
    return _pattern("/.+", "string") if name.endswith("_FILE") else {"type": _PLAIN}


def _pattern(pattern: str, *types: str) -> Schema:
    """Return a text of this form, or none: an empty variable counts as unset."""
    return {"type": list(types), "pattern": f"^({pattern})?$"}


def _cased(words: list[str]) -> list[str]:
    """Return words in the cases in which people write them: settings are read in any."""
    cases = (str, str.lower, str.upper, str.capitalize, str.title)
    return list(dict.fromkeys(case(word) for word in words for case in cases))


def _settings() -> Schema:
    allowed = {variable.name: variable.form.allowed for variable in VARIABLES}
    return {
        **closed(
            {
                name: {**form(name, allowed.get(name, "path")), "description": meaning}
                for name, meaning in settable().items()
            }
        ),
        "required": [variable.name for variable in VARIABLES if variable.default is None],
    }


def _k8s(name: str, group: str = _CORE) -> Schema:
    return {"$ref": f"#/definitions/{group}.{name}"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _named(kind: str, *taken: str) -> Schema:
    """Return a list of what Kubernetes calls so, under other names than those that are taken."""
    name = {"properties": {"name": {"not": {"enum": list(taken)}}}}
    return _list({"allOf": [_k8s(kind), name]})


def _extra_env() -> Schema:
    """Return variables: secrets of Hapax come from a Secret. A template knows the names."""
    secret = sorted({variable.name for variable in VARIABLES if variable.form.secret})
    ours: list[Schema] = [
        {"properties": {"name": {"not": {"enum": [*secret, "POD_NAME"]}}}},
        {"properties": {"name": {"enum": secret}, "value": False}, "required": ["valueFrom"]},
    ]
    return _list({"allOf": [_k8s("EnvVar"), {"anyOf": ours}]})


def _apart(*taken: str) -> Schema:
    return {**_TEXTS, "propertyNames": {"not": {"enum": list(taken)}}}


def _probe() -> Schema:
    threshold = {"type": ["integer", "null"], "minimum": 1}
    return closed({"periodSeconds": _SOME, "timeoutSeconds": _SOME, "failureThreshold": threshold})


def _values() -> Schema:
    name = {"type": "string", "maxLength": 63, "pattern": "^([a-z]([a-z0-9-]*[a-z0-9])?)?$"}
    labels = _apart(*_SELECTED, "helm.sh/chart", "app.kubernetes.io/managed-by")
    dns = closed({"to": _list(_k8s("NetworkPolicyPeer", _NET)), "ports": _list(_PORT)})
    prometheus = {
        "serverAddress": {"type": "string", "pattern": "^(https?://.+)?$"},
        "query": _TEXT,
        "authentication": _TEXT,
        "authModes": {"enum": ["", "bearer", "basic", "tls", "custom"]},
    }
    return {
        "global": {"type": "object", "properties": {"imageRegistry": _TEXT}},
        "nameOverride": name,
        "fullnameOverride": name,
        "image": closed(
            {
                "registry": _TEXT,
                "repository": {"type": "string", "minLength": 1},
                "tag": {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$"},
                "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
            }
        ),
        "imagePullSecrets": _list({**_k8s("LocalObjectReference")}),
        "pipeline": closed({"enabled": _FLAG}),
        "kind": {"enum": ["StatefulSet", "Deployment"]},
        "replicaCount": _COUNT,
        "minReadySeconds": _COUNT,
        "updateStrategy": closed(
            {
                "type": {"enum": ["RollingUpdate", "OnDelete"]},
                "rollingUpdate": closed({"partition": _COUNT}),
            }
        ),
        "settings": _settings(),
        "secrets": closed({"name": _TEXT, "optional": _FLAG}),
        "extraEnv": _extra_env(),
        "extraEnvFrom": _list(_k8s("EnvFromSource")),
        "extraVolumes": _named("Volume", "secrets", "scratch"),
        "extraVolumeMounts": _list(_k8s("VolumeMount")),
        "volumeClaimTemplates": _list(_k8s("PersistentVolumeClaim")),
        "initContainers": _named("Container", "hapax"),
        "sidecars": _named("Container", "hapax"),
        "commonLabels": labels,
        "podLabels": labels,
        "podAnnotations": _apart("checksum/settings"),
        "annotations": _TEXTS,
        "serviceAccount": closed({"create": _FLAG, "name": _TEXT, "annotations": _TEXTS}),
        "nodeSelector": _TEXTS,
        "tolerations": _list(_k8s("Toleration")),
        "affinity": _k8s("Affinity"),
        "priorityClassName": _TEXT,
        "topologySpreadConstraints": {
            **_list(_k8s("TopologySpreadConstraint")),
            "type": ["array", "null"],
        },
        "podSecurityContext": _k8s("PodSecurityContext"),
        "securityContext": _k8s("SecurityContext"),
        "resources": _k8s("ResourceRequirements"),
        "scratchSize": {"type": "string", "pattern": "^[0-9.]+([kMGT]|[KMGT]i)?$"},
        "terminationGracePeriodSeconds": {"type": ["integer", "null"], "minimum": 1},
        "startupProbe": _probe(),
        "livenessProbe": _probe(),
        "readinessProbe": _probe(),
        "podDisruptionBudget": closed(
            {"enabled": _FLAG, "maxUnavailable": {"type": ["integer", "string"]}}
        ),
        "monitoring": _monitoring(),
        "networkPolicy": closed(
            {
                "enabled": _FLAG,
                "monitoringNamespace": _TEXT,
                "ports": _list(_PORT),
                "dns": dns,
                "extraIngress": _list(_k8s("NetworkPolicyIngressRule", _NET)),
                "extraEgress": _list(_k8s("NetworkPolicyEgressRule", _NET)),
            }
        ),
        "autoscaling": closed(
            {
                "enabled": _FLAG,
                "trigger": {"enum": ["kafka", "prometheus"]},
                "minReplicas": _COUNT,
                "maxReplicas": _SOME,
                "lagThreshold": _SOME,
                "prometheus": closed(prometheus),
            }
        ),
    }


def _monitoring() -> Schema:
    shares = {name: _SHARE if name.endswith("Share") else _NUMBER for name in THRESHOLDS}
    monitor = closed(
        {"enabled": _FLAG, "labels": _apart(*_LABELS), "interval": _SPAN, "scrapeTimeout": _SPAN}
    )
    return closed(
        {
            "podMonitor": monitor,
            "serviceMonitor": monitor,
            "rules": closed(
                {
                    "enabled": _FLAG,
                    "labels": _apart(*_LABELS),
                    "runbooks": {"type": "string", "pattern": "^https?://.+[^/]$"},
                    "thresholds": closed(shares),
                }
            ),
            "dashboard": closed({"enabled": _FLAG, "labels": _apart(*_LABELS)}),
        }
    )


@cache
def _kubernetes() -> Schema:
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    version = f"v{VERSIONS[-1]}.0-local-strict"
    found: Schema = json.loads((folder / version / "_definitions.json").read_text())
    return dict(found.get("$defs") or found["definitions"])


def _definitions(text: str) -> Iterator[tuple[str, Schema]]:
    """Yield what ``text`` refers to, and what that refers to."""
    todo, done = set(re.findall(r"#/definitions/([\w.]+)", text)), set()
    while todo:
        name = todo.pop()
        done.add(name)
        found = _plain(_kubernetes()[name])
        for field, words in _ENUMS.items():
            kind, _, inner = field.partition(".")
            if name == f"{_CORE}.{kind}":
                found["properties"][inner] = {"enum": words}
        yield name, found
        todo |= set(re.findall(r"#/definitions/([\w.]+)", json.dumps(found))) - done


def _plain(value: Any) -> Any:
    """Return a schema of Kubernetes without its descriptions, and with references as ours."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "oneOf" in value and all("null" in one.get("type", ()) for one in value["oneOf"]):
        # "a text or none" or "a number or none": none would be both.
        return {"type": sorted({word for one in value["oneOf"] for word in one["type"]})}
    return {
        name: re.sub(r".*/(?=io\.k8s)", "#/definitions/", each) if name == "$ref" else _plain(each)
        for name, each in value.items()
        if not (name == "description" and isinstance(each, str)) and not name.startswith("x-")
    }
