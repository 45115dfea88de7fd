"""What Kustomize and Helm make of deploy/, as objects that can be compared and asked."""

import copy
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy import tools
from tests.deploy.schemas import VERSIONS
from tests.kit.commands import output_of

Object = dict[str, Any]

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
KUSTOMIZE: Final = DEPLOY / "kustomize"
CHART: Final = DEPLOY / "helm"
# What Kustomize makes, and the files of values from which the chart makes the same.
PAIRS: Final[dict[str, tuple[str, ...]]] = {
    "base": (),
    "overlays/development": ("development",),
    "overlays/production": ("production",),
    "overlays/autoscaled": ("production", "autoscaled"),
    "overlays/deployment": ("production", "deployment"),
    "overlays/spark": ("production", "spark"),
}
# Without pods: what all pipelines share.
SHARED: Final = "overlays/cluster"
RENDERED: Final = PAIRS | {SHARED: ("cluster",)}
# By Kustomize alone: the operator is an offer to those who have one.
OPERATOR: Final = "overlays/spark-operator"
LAYERS: Final = (*PAIRS, OPERATOR)
# What the chart's objects say of themselves on top of what Kustomize's do.
CHARTED: Final = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version")
WORKLOADS: Final = ("StatefulSet", "Deployment")
_TIMEOUT_S: Final = 120.0
_HASHED: Final = re.compile(r"-[a-z0-9]{10}$")


@cache
def _kustomized(layer: Path) -> list[Object]:
    return _objects(output_of([tools.kubectl(), "kustomize", layer], timeout=_TIMEOUT_S, cwd="/"))


def kustomized(layer: str | Path) -> list[Object]:
    """Return the objects of a layer: a folder of deploy/kustomize, or another one."""
    return copy.deepcopy(_kustomized(KUSTOMIZE / layer))


@cache
def _charted(
    helm: Path, release: str, values: tuple[str, ...], options: tuple[str, ...]
) -> list[Object]:
    files = [word for name in values for word in ("-f", CHART / "values" / f"{name}.yaml")]
    command = [helm, "template", release, CHART, *files, *options, *asked(helm)]
    return _objects(output_of(command, timeout=_TIMEOUT_S, cwd="/"))


def asked(helm: Path) -> tuple[str, ...]:
    """Return for which Kubernetes an old Helm renders: by itself it takes one of its own time."""
    return () if helm == tools.helm() else ("--kube-version", f"{VERSIONS[0]}.0")


def charted(
    *values: str,
    helm: Path | None = None,
    release: str = "hapax",
    options: tuple[str, ...] = (),
    hooks: bool = False,
) -> list[Object]:
    """Return the objects of the chart, with these files of values one upon another.

    hooks  those of ``helm test`` instead
    """
    objects = copy.deepcopy(_charted(helm or tools.helm(), release, values, options))
    hooked = [each["metadata"].get("annotations", {}).get("helm.sh/hook") for each in objects]
    return [each for each, hook in zip(objects, hooked, strict=True) if hooks == (hook is not None)]


def _objects(text: str) -> list[Object]:
    return [found for found in yaml.safe_load_all(text) if found]


def only(objects: list[Object], *kinds: str) -> Object:
    found = [each for each in objects if each["kind"] in kinds]
    assert len(found) == 1, [each["kind"] for each in objects]
    return found[0]


def driver(objects: list[Object]) -> Object:
    """Return the template of the pods that run hapax, whatever makes them."""
    applications = [each for each in objects if each["kind"] == "SparkApplication"]
    if applications:
        template: Object = applications[0]["spec"]["driverSpec"]["podTemplateSpec"]
    else:
        template = only(objects, *WORKLOADS)["spec"]["template"]
    return template


def comparable(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Return the objects by kind and name, without what the two tools do in their own ways.

    - Labels that say of which release of a chart an object is.
    - The namespace: Helm is told it, and installs into one that exists.
    - A changed setting replaces the pods: by a hash in the name, or by one in an annotation.
    """
    found = {}
    for each in copy.deepcopy(objects):
        if each["kind"] == "Namespace":
            continue
        each["metadata"].pop("namespace", None)
        for label in CHARTED:
            each["metadata"]["labels"].pop(label, None)
        if each["kind"] == "ConfigMap":
            each["metadata"]["name"] = _HASHED.sub("", each["metadata"]["name"])
        if each["kind"] in WORKLOADS:
            template = each["spec"]["template"]
            template["metadata"].pop("annotations", None)
            reference = template["spec"]["containers"][0]["envFrom"][0]["configMapRef"]
            reference["name"] = _HASHED.sub("", reference["name"])
        found[each["kind"], each["metadata"]["name"]] = each
    return found


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every value below, with the path to it: a difference is read more easily so."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{number}]")
    else:
        yield path, value
