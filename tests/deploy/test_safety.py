"""Pods can do nothing that they need not, and two pipelines do not meet."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.deploy.manifests import (
    DEPLOY,
    KUSTOMIZE,
    LAYERS,
    OPERATOR,
    Object,
    charted,
    driver,
    kustomized,
    only,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep  # needs kubectl and Helm
ROOT = DEPLOY.parent
PAGE = ROOT / "docs/kubernetes.md"
# Kubernetes' own list for "restricted".
VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip


def pods(objects: list[Object]) -> list[Any]:
    applications = [each["spec"] for each in objects if each["kind"] == "SparkApplication"]
    executors = [spec["executorSpec"]["podTemplateSpec"]["spec"] for spec in applications]
    return [driver(objects)["spec"], *executors]


def loose(pod: Any) -> list[str]:
    """Return what the pod security standard "restricted" would refuse, and a writable root."""
    outer, found = pod["securityContext"], []
    for each in pod["containers"]:
        inner = each["securityContext"]
        checks = {
            "escalation": inner.get("allowPrivilegeEscalation") is not False,
            "capabilities": inner.get("capabilities") != {"drop": ["ALL"]},
            "privileged": inner.get("privileged", False),
            "root": not inner.get("readOnlyRootFilesystem"),
            "ports": any("hostPort" in port for port in each.get("ports", ())),
        }
        found += [name for name, wrong in checks.items() if wrong]
    if outer.get("runAsNonRoot") is not True or outer.get("runAsUser", 0) == 0:
        found.append("user")
    if outer.get("seccompProfile") != {"type": "RuntimeDefault"}:
        found.append("seccomp")
    if {"hostNetwork", "hostPID", "hostIPC"} & set(pod):
        found.append("host")
    for volume in pod["volumes"]:
        [kind] = set(volume) - {"name"}
        if kind not in VOLUMES or (kind == "emptyDir" and "sizeLimit" not in volume[kind]):
            found.append(kind)
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_pods_pass_the_restricted_standard(layer):
    assert [loose(pod) for pod in pods(kustomized(layer))] == [[]] * (1 + (layer == OPERATOR))


def test_a_pod_that_could_do_more_is_noticed():
    pod = pods(kustomized("base"))[0]
    pod["hostNetwork"] = True
    pod["securityContext"] = {"runAsUser": 0}
    pod["volumes"].append({"name": "node", "hostPath": {"path": "/"}})
    pod["volumes"].append({"name": "endless", "emptyDir": {}})
    pod["containers"][0]["securityContext"] = {"privileged": True}
    pod["containers"][0]["ports"][0]["hostPort"] = 1
    noticed = "escalation capabilities privileged root ports user seccomp host hostPath emptyDir"
    assert loose(pod) == noticed.split()


@pytest.mark.parametrize("layer", LAYERS)
def test_pods_have_no_token_unless_they_start_pods(layer):
    objects = kustomized(layer)
    account = only(objects, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    tokens = [pod["automountServiceAccountToken"] for pod in pods(objects)]
    assert tokens == ([True, False] if layer == OPERATOR else [False])
    assert any(each["kind"] == "Role" for each in objects) == (layer == OPERATOR)
    if layer != OPERATOR:
        assert pods(objects)[0]["serviceAccountName"] == account["metadata"]["name"]


@pytest.mark.parametrize("layer", LAYERS)
def test_the_user_is_that_of_the_image(layer):
    users = set(re.findall(r"(?m)^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text()))
    told = {
        (str(pod["securityContext"]["runAsUser"]), str(pod["securityContext"]["runAsGroup"]))
        for pod in pods(kustomized(layer))
    }
    assert told == users


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer.startswith("overlays/")])
def test_namespaces_let_nothing_else_in(layer):
    objects = kustomized(layer)
    if layer == "overlays/development":  # it goes into whatever namespace is there
        assert all("namespace" not in each["metadata"] for each in objects)
        return
    space = only(objects, "Namespace")["metadata"]
    assert space["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    others = [each for each in objects if each["kind"] != "Namespace"]
    assert {each["metadata"]["namespace"] for each in others} == {space["name"]}


def test_nodes_can_be_drained_one_pod_at_a_time():
    budget = only(kustomized("overlays/production"), "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def second(tmp_path: Path) -> list[Object]:
    """Return the objects of the overlay that docs/kubernetes.md shows."""
    [block] = re.findall(r"(?ms)^```yaml\n(apiVersion: kustomize.*?)^```$", PAGE.read_text())
    base = os.path.relpath(KUSTOMIZE, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(block.replace("../hapax/deploy/kustomize", base))
    return kustomized(tmp_path)


def test_the_overlay_of_the_page_is_another_pipeline_in_a_namespace_of_its_own(tmp_path):
    objects = second(tmp_path)
    data = only(objects, "ConfigMap")["data"]
    first = only(kustomized("overlays/production"), "ConfigMap")["data"]
    own = {name for name in data if data[name] != first[name]}
    assert {"HAPAX_APP", "HAPAX_INPUT__TOPICS", "HAPAX_OUTPUT__TOPIC"} <= own
    assert "orders" not in str(data)
    assert only(objects, "Namespace")["metadata"]["name"] == "payments"
    others = [each for each in objects if each["kind"] != "Namespace"]
    assert {each["metadata"]["namespace"] for each in others} == {"payments"}
    assert driver(objects)["spec"]["containers"][0]["image"] == "registry.example/payments:1.0.0"


def test_two_releases_in_one_namespace_do_not_meet():
    first = charted("production", "autoscaled")
    other = charted("production", "autoscaled", release="payments")
    names = [
        {(each["kind"], each["metadata"]["name"]) for each in objects} for objects in (first, other)
    ]
    assert names[0] & names[1] == set()
