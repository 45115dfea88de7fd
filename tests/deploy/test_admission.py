"""A real API server takes everything that deploy/ renders, and refuses what it should."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.deploy import control_plane
from tests.deploy.manifests import (
    LAYERS,
    PAIRS,
    RENDERED,
    SHARED,
    WORKLOADS,
    Object,
    charted,
    kustomized,
    only,
)
from tests.deploy.pods import Pods
from tests.deploy.test_scaling import MUTUAL, OAUTH, SCRAM, scaling
from tests.deploy.test_values import GIVEN, rendered
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deploy.api_server import ApiServer

pytestmark = pytest.mark.deep  # needs an API server
ADDRESS = {"serverAddress": "http://prometheus.monitoring:9090", "authModes": "bearer"}
# Beyond the files of deploy/helm/values: what the chart makes of values that change many fields.
VALUES: dict[str, dict[str, Any]] = {
    "canary": {"update": {"partition": 1}, "minReadySeconds": 20, "priorityClassName": "high"},
    "on-delete": {"update": {"type": "OnDelete"}, "disruptionBudget": {"maxUnavailable": "50%"}},
    "openshift": {
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "networkPolicy": {"enabled": True, "dns": {"ports": [53, 5353]}},
    },
    "keda-certificates": scaling(MUTUAL),
    "keda-scram": scaling(SCRAM),
    "keda-oauth": scaling(OAUTH),
    "keda-prometheus": scaling(
        {}, autoscaling={"enabled": True, "trigger": "prometheus", "prometheus": ADDRESS}
    ),
}


@pytest.fixture(scope="module")
def space(server: ApiServer) -> str:
    return server.restricted()


@pytest.mark.parametrize("layer", [*LAYERS, SHARED])
def test_the_server_takes_every_layer_of_kustomize(server, space, layer):
    objects = kustomized(layer)
    # That of its own, or the one that it is applied to.
    own = {each["metadata"].get("namespace", space) for each in objects} - {space}
    done = server.checked(objects, own.pop() if own else space)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("serverside-applied (server dry run)") == len(objects)


@pytest.mark.parametrize("layer", RENDERED)
def test_the_server_takes_what_the_chart_makes_of_every_file_of_values(server, space, layer):
    done = server.checked(charted(*RENDERED[layer]), space)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", VALUES)
def test_the_server_takes_what_the_chart_makes_of_further_values(server, space, tmp_path, name):
    done = server.checked(rendered(tmp_path, VALUES[name]), space)
    assert done.returncode == 0, done.stderr


def test_the_server_takes_every_field_that_values_hand_on(
    server: ApiServer, tmp_path: Path
) -> None:
    # Containers without a security context of their own: no namespace that is restricted.
    done = server.checked(rendered(tmp_path, GIVEN), "default")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["StatefulSet", "ScaledObject", "PodMonitor", "NetworkPolicy"])
def test_a_misspelt_field_is_refused(server, space, kind):
    objects = charted("production", "autoscaled")
    only(objects, kind)["spec"]["nothing"] = 1
    done = server.checked(objects, space)
    assert done.returncode != 0
    assert "spec.nothing" in done.stderr


def test_a_value_that_no_schema_forbids_is_refused(server, space):
    objects = kustomized("base")
    only(objects, "StatefulSet")["spec"]["selector"]["matchLabels"]["another"] = "label"
    assert "`selector` does not match template `labels`" in server.checked(objects, space).stderr


# -- pods ----------------------------------------------------------------------------------


def pods(objects: list[Object]) -> list[Object]:
    """Return pods made of all templates: as a controller makes them, or Spark."""
    templates = []
    for each in objects:
        if each["kind"] in WORKLOADS:
            templates.append(each["spec"]["template"])
        if each["kind"] == "SparkApplication":
            templates += [
                each["spec"][role]["podTemplateSpec"] for role in ("driverSpec", "executorSpec")
            ]
    made = []
    for number, template in enumerate(copy.deepcopy(templates)):
        template["metadata"]["name"] = f"pod-{number}"
        template["spec"].pop("serviceAccountName", None)  # it exists once it is installed
        for container in template["spec"]["containers"]:
            container.setdefault("image", "hapax-spark:0.1.0")  # Spark's own setting
        made.append({"apiVersion": "v1", "kind": "Pod", **template})
    return made


@pytest.mark.parametrize("layer", LAYERS)
def test_every_pod_is_admitted_to_a_restricted_namespace(server, space, layer):
    made = pods(kustomized(layer))
    assert made
    done = server.checked(made, space)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"securityContext": {"privileged": True}}, "privileged"),
        ({"securityContext": None}, "allowPrivilegeEscalation != false"),
        ({"ports": [{"containerPort": 1, "hostPort": 1}]}, "host"),
    ],
)
def test_a_pod_that_could_do_more_is_not_admitted(server, space, change, words):
    made = pods(kustomized("base"))
    made[0]["spec"]["containers"][0] |= change
    done = server.checked(made, space)
    assert done.returncode != 0
    assert 'violates PodSecurity "restricted' in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize("layer", PAIRS)
def test_the_controller_creates_all_pods_in_a_restricted_namespace(server, layer):
    objects = charted(*PAIRS[layer])
    workload = only(objects, *WORKLOADS)
    made = Pods(server, server.restricted(), workload["kind"])
    server.run(*server.applying(made.space), given=yaml.safe_dump_all(objects))
    made.await_count(workload["spec"].get("replicas", 1))
    assert made.refusals() == []


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_pod_that_is_refused_is_an_event_and_no_pod(server, kind):
    objects = charted(*PAIRS["overlays/deployment" if kind == "Deployment" else "base"])
    only(objects, kind)["spec"]["template"]["spec"]["securityContext"] = {}
    made = Pods(server, server.restricted(), kind)
    server.run(*server.applying(made.space), given=yaml.safe_dump_all(objects))
    await_(made.refusals, 60, lambda: f"{made.all()}")
    assert "runAsNonRoot != true" in made.refusals()[0]
    assert made.all() == []


# -- without the programs ------------------------------------------------------------------


def test_programs_that_are_not_built_are_not_found(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert control_plane.found() is None
