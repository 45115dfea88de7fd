"""Kustomize and Helm make the same objects, and Kubernetes knows every field of them."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import hapax
from tests.deploy import generated, tools
from tests.deploy.manifests import (
    CHART,
    CHARTED,
    DEPLOY,
    KUSTOMIZE,
    LAYERS,
    OPERATOR,
    PAIRS,
    RENDERED,
    SHARED,
    Object,
    charted,
    comparable,
    driver,
    kustomized,
    leaves,
    only,
)
from tests.deploy.schemas import VERSIONS, problems
from tests.deploy.steps import ROOT
from tests.deploy.test_scaling import api_server
from tests.kit.commands import output_of, run_captured
from tests.kit.managed_process import child

RECOMMENDED = "app.kubernetes.io/"
LABELS = ("name", "instance", "component", "part-of")
FOUND = {"grafana_dashboard"}


@pytest.mark.deep
@pytest.mark.parametrize("helm", [tools.helm, tools.old_helm], ids=lambda helm: helm.__name__)
@pytest.mark.parametrize("layer", RENDERED)
def test_the_chart_makes_the_objects_of_the_kustomization(layer, helm):
    ours = comparable(kustomized(layer))
    made = charted(*RENDERED[layer], helm=helm())
    charts = [each["metadata"]["labels"][label] for each in made for label in CHARTED]
    assert charts == [f"hapax-{hapax.__version__}", "Helm", hapax.__version__] * len(made)
    theirs = comparable(made)
    assert sorted(ours) == sorted(theirs)
    for key, each in ours.items():
        assert {RECOMMENDED + name for name in LABELS} == each["metadata"]["labels"].keys() - FOUND
        assert dict(leaves(each)) == dict(leaves(theirs[key])), key


@pytest.mark.deep
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("layer", [*LAYERS, SHARED])
def test_every_object_is_known_to_kubernetes_field_by_field(layer, version):
    objects = kustomized(layer)
    assert len(objects) > (1 if layer == SHARED else 3)
    assert [problem for each in objects for problem in problems(each, version)] == []


@pytest.mark.deep
def test_a_field_that_does_not_exist_is_noticed():
    objects = kustomized("overlays/autoscaled")
    noticed = set()
    for each in objects:
        each.get("spec", each)["nothing"] = 1
        if problems(each):
            noticed.add(each["kind"])
    assert noticed == {each["kind"] for each in objects}


@pytest.mark.deep
def test_helm_finds_nothing_to_complain_about():
    output_of([tools.helm(), "lint", "--strict", CHART])


@pytest.mark.deep
def test_the_readme_of_the_chart_is_what_helm_docs_makes_of_its_comments():
    readme = generated.chart_readme()
    if readme is None:
        pytest.skip("no Go, which compiles helm-docs")
    assert generated.README.read_text() == readme


@pytest.mark.deep
def test_helm_test_asks_each_pod_whether_it_is_ready():
    policy, pod = charted("production", hooks=True)
    assert [one for each in (policy, pod) for one in problems(each)] == []
    assert loose(pod["spec"]) == []
    selector = only(charted("production"), "StatefulSet")["spec"]["selector"]
    labels = pod["metadata"]["labels"]
    assert policy["spec"]["podSelector"] == selector
    assert policy["spec"]["ingress"][0]["from"] == [{"podSelector": {"matchLabels": labels}}]
    assert not selector["matchLabels"].items() <= labels.items()
    [container] = pod["spec"]["containers"]
    for path, code in (("/readyz", 0), ("/livez", 1)):
        with api_server({path: {"ready": True}}) as address:
            there = '"127.0.0.1", ' + address.rpartition(":")[2]
            [script] = [each.replace('"hapax", 9464', there) for each in container["args"]]
            done = run_captured([*container["command"], script])
        assert (done.returncode, "HTTPError" in done.stderr) == (code, bool(code)), done.stderr


@pytest.mark.deep
def test_the_alerts_are_the_same_everywhere():
    groups = yaml.safe_load((DEPLOY / "monitoring/alerts.yaml").read_text())["groups"]
    assert groups
    for objects in (kustomized(SHARED), charted("cluster")):
        assert only(objects, "PrometheusRule")["spec"]["groups"] == groups


@pytest.mark.deep
def test_alerts_and_dashboard_come_once_and_not_with_each_pipeline():
    for objects in (*map(kustomized, LAYERS), *(charted(*names) for names in PAIRS.values())):
        assert {"PrometheusRule"}.isdisjoint(each["kind"] for each in objects)
        assert len([each for each in objects if each["kind"] == "ConfigMap"]) == 1


@pytest.mark.deep
def test_the_dashboard_is_the_one_of_the_repository():
    original = json.loads((DEPLOY / "monitoring/dashboard.json").read_text())
    for objects in (kustomized(SHARED), charted("cluster")):
        [content] = only(objects, "ConfigMap")["data"].values()
        assert json.loads(content) == original


@pytest.mark.deep
def test_the_links_of_the_alerts_lead_where_the_runbooks_are():
    option = ("--set", "monitoring.rules.runbooks=https://example.org/night")
    rule = only(charted("cluster", options=option), "PrometheusRule")
    links = [str(value) for path, value in leaves(rule) if path.endswith("runbook_url")]
    assert links
    assert all(link.startswith("https://example.org/night/") for link in links)


# -- Pods can do nothing that they need not, and two pipelines do not meet -----------------

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
    for volume in pod.get("volumes", ()):
        [kind] = set(volume) - {"name"}
        if kind not in VOLUMES or (kind == "emptyDir" and "sizeLimit" not in volume[kind]):
            found.append(kind)
    return found


@pytest.mark.deep
@pytest.mark.parametrize("layer", LAYERS)
def test_pods_pass_the_restricted_standard(layer):
    assert [loose(pod) for pod in pods(kustomized(layer))] == [[]] * (1 + (layer == OPERATOR))


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
@pytest.mark.parametrize("layer", LAYERS)
def test_the_user_is_that_of_the_image(layer):
    users = set(re.findall(r"(?m)^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text()))
    told = {
        (str(pod["securityContext"]["runAsUser"]), str(pod["securityContext"]["runAsGroup"]))
        for pod in pods(kustomized(layer))
    }
    assert told == users


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
def test_two_releases_in_one_namespace_do_not_meet():
    first = charted("production", "autoscaled")
    other = charted("production", "autoscaled", release="payments")
    names = [
        {(each["kind"], each["metadata"]["name"]) for each in objects} for objects in (first, other)
    ]
    assert names[0] & names[1] == set()


# -- What the Spark image does with the words that Spark on Kubernetes gives its pods ------

SCRIPT = ROOT / "deploy/spark_pod.py"
HOME = Path("/opt/hapax/lib/pyspark")

EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "2",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "hapax-exec-2",
}


def script() -> Any:
    spec = importlib.util.spec_from_file_location("spark_pod", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_other_words_are_for_hapax():
    assert script().plan(["run"], {"A": "b"}, HOME) == (["hapax", "run"], {"A": "b"})
    assert script().plan(["config", "check"], {}, HOME)[0] == ["hapax", "config", "check"]
    assert script().plan([], {}, HOME)[0] == ["hapax"]


def test_a_driver_is_hapax_with_the_properties_of_its_pod():
    words = (
        "driver --properties-file /opt/spark/conf/spark.properties --class a.B local:///x.py run"
    )
    command, environ = script().plan(
        words.split(), {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5", "HAPAX_APP": "a"}, HOME
    )
    assert command == ["hapax", "run"]
    assert environ["HAPAX_APP"] == "a"
    assert environ["PYSPARK_SUBMIT_ARGS"] == (
        "--deploy-mode client --properties-file /opt/spark/conf/spark.properties "
        "--conf spark.driver.bindAddress=10.0.0.5 pyspark-shell"
    )


def test_an_executor_is_the_jvm_that_spark_asks_for():
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 9, 0)}
    environ = {**EXECUTOR, **options, "SPARK_CLASSPATH": "/opt/spark/conf", "JAVA_HOME": "/java"}
    command, given = script().plan(["executor"], environ, HOME)
    assert given == environ
    assert command[:6] == ["/java/bin/java", "-Dn=0", "-Dn=9", "-Dn=10", "-Xms1g", "-Xmx1g"]
    assert command[6:8] == ["-cp", f"/opt/spark/conf:{HOME}/jars/*"]
    told = dict(zip(command[9::2], command[10::2], strict=True))
    assert told == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "2",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "hapax-exec-2",
    }


def test_the_class_of_the_executor_is_in_pyspark():
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    [jar] = jars.glob("spark-kubernetes_*.jar")
    name = script()._BACKEND.replace(".", "/") + ".class"
    assert name.encode() in jar.read_bytes()  # names stand in a jar's directory as they are


def test_the_entry_point_becomes_the_program_and_stays_process_one(tmp_path):
    program = tmp_path / "hapax"
    program.write_text('#!/bin/sh\necho "$$ $* $PYSPARK_SUBMIT_ARGS"\n')
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [
        sys.executable,
        str(SCRIPT),
        "driver",
        "--properties-file",
        "/p",
        "local:///x.py",
        "run",
    ]
    with child(words, env=environ, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=60)
    assert said == f"{process.pid} run --deploy-mode client --properties-file /p pyspark-shell\n"
