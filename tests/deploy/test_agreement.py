"""The manifests agree with the settings, with the service, and with each other."""

import re
import tomllib
from typing import Any

import pytest
import yaml

import hapax
from hapax.engines.membership import Opening
from hapax.settings import VARIABLES
from hapax.telemetry.health import Health
from hapax.wiring import LIVENESS_MARGIN_S
from hapax.wiring.builders import FAREWELL_S
from tests.deploy.manifests import (
    CHART,
    DEPLOY,
    KUSTOMIZE,
    LAYERS,
    OPERATOR,
    Object,
    driver,
    kustomized,
    only,
)
from tests.deploy.settled import SECRETS, environment, secret_files, settled
from tests.deploy.values_schema import settable

pytestmark = pytest.mark.deep  # needs kubectl
ROOT = DEPLOY.parent
DAY_S = 86_400
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@pytest.fixture(params=LAYERS)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    return kustomized(request.param)


def container(objects: list[Object]) -> Any:
    return driver(objects)["spec"]["containers"][0]


def patience_s(probe: Any) -> int:
    return int(probe["periodSeconds"]) * int(probe["failureThreshold"])


def test_the_settings_are_sound(objects, tmp_path):
    settings = settled(objects, tmp_path)
    assert settings.instance in {"hapax-0", "driver"}
    assert settings.engine == ("spark" if "SPARK" in str(environment(objects)) else "worker")


def test_the_config_map_holds_settings_and_no_secrets(objects):
    given = set(only(objects, "ConfigMap")["data"])
    allowed = set(settable())
    if any(each["kind"] == "SparkApplication" for each in objects):
        allowed.add("HAPAX_INSTANCE")  # one driver, whose pod has a new name after each restart
    assert given - allowed == set()
    assert [each["kind"] for each in objects if each["kind"] == "Secret"] == []


def test_the_base_asks_for_what_every_pipeline_has_of_its_own():
    examples = {each.name: each.example for each in VARIABLES if each.default is None}
    assert only(kustomized("base"), "ConfigMap")["data"] == examples


def test_secrets_are_files_of_a_volume_that_is_there(objects):
    spec = driver(objects)["spec"]
    mounts = {each["mountPath"]: each for each in container(objects)["volumeMounts"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    volume = volumes[mounts[SECRETS]["name"]]["secret"]
    assert mounts[SECRETS]["readOnly"] is True
    # Readable for the group, which is fsGroup, and for nobody else.
    assert volume["defaultMode"] == 0o440
    assert volume.get("optional", False) == (secret_files(objects) == set())


def test_the_grace_period_is_longer_than_a_stop_may_take(objects, tmp_path):
    settings = settled(objects, tmp_path)
    grace_ms = driver(objects)["spec"]["terminationGracePeriodSeconds"] * 1000
    stop_ms = settings.transaction.timeout_ms + settings.shutdown.timeout_ms
    assert grace_ms > stop_ms + FAREWELL_S * 1000
    assert grace_ms > settings.watchdog.timeout_ms + settings.shutdown.timeout_ms
    assert grace_ms < settings.group.max_poll_interval_ms


def test_probes_wait_longer_than_what_they_watch_may_take(objects, tmp_path):
    settings = settled(objects, tmp_path)
    probes = container(objects)
    alive_s = patience_s(probes["livenessProbe"])
    assert alive_s > settings.watchdog.timeout_ms / 1000 + LIVENESS_MARGIN_S
    assert alive_s < settings.group.max_poll_interval_ms / 1000
    # A start waits for brokers and claim store: killed for it, pods would crash-loop in an outage.
    assert patience_s(probes["startupProbe"]) >= max(DAY_S, Opening.TIMEOUT_S)


def test_probes_ask_what_the_service_answers(objects):
    ports = {each["name"]: each["containerPort"] for each in container(objects)["ports"]}
    default = next(each.default for each in VARIABLES if each.name == "HAPAX_TELEMETRY__PORT")
    assert ports == {"telemetry": int(default or 0)}
    for name in PROBES:
        asked = container(objects)[name]["httpGet"]
        assert asked["port"] in ports
        assert asked["path"].startswith("/")
        assert callable(getattr(Health, asked["path"][1:]))
    paths = [container(objects)[name]["httpGet"]["path"] for name in PROBES]
    assert paths == ["/startupz", "/livez", "/readyz"]


def test_whatever_selects_pods_selects_ours_and_knows_their_port(objects):
    template = driver(objects)
    for each in objects:
        spec = each.get("spec", {})
        match each["kind"]:
            case "Service":
                selected = spec["selector"]
                assert {port["targetPort"] for port in spec["ports"]} == {"telemetry"}
            case "NetworkPolicy" if each["metadata"]["name"] == "hapax":
                selected = spec["podSelector"]["matchLabels"]
                [rule] = spec["ingress"]
                assert [port["port"] for port in rule["ports"]] == ["telemetry"]
            case "PodMonitor":
                selected = spec["selector"]["matchLabels"]
                assert [port["port"] for port in spec["podMetricsEndpoints"]] == ["telemetry"]
            case "StatefulSet" | "Deployment" | "PodDisruptionBudget":
                selected = spec["selector"]["matchLabels"]
            case _:
                continue
        assert selected.items() <= template["metadata"]["labels"].items(), each["kind"]
    for spread in template["spec"].get("topologySpreadConstraints", ()):
        selected = spread["labelSelector"]["matchLabels"]
        assert selected.items() <= template["metadata"]["labels"].items()


def test_the_stateful_set_names_members_and_the_deployment_does_not(objects, tmp_path):
    kinds = {each["kind"] for each in objects}
    assert (settled(objects, tmp_path).group.membership == "dynamic") == ("Deployment" in kinds)
    if "StatefulSet" in kinds:
        spec = only(objects, "StatefulSet")["spec"]
        assert spec["podManagementPolicy"] == "Parallel"
        assert spec["serviceName"] == only(objects, "Service")["metadata"]["name"]
        assert only(objects, "Service")["spec"]["clusterIP"] == "None"


def test_a_changed_setting_replaces_the_pods():
    names = {
        layer: only(kustomized(layer), "ConfigMap")["metadata"]["name"]
        for layer in LAYERS
        if layer != OPERATOR
    }
    # autoscaled and production have the same settings.
    assert len(set(names.values())) == len(names) - 1
    assert all(re.fullmatch(r"hapax-settings-[a-z0-9]{10}", name) for name in names.values())


def test_the_operator_is_given_the_settings_of_production():
    ours, theirs = (
        only(kustomized(layer), "ConfigMap")["data"] for layer in ("overlays/production", OPERATOR)
    )
    assert ours.items() <= theirs.items()
    spark = {"HAPAX_SPARK__MASTER", "HAPAX_SPARK__EXECUTOR_TIMEOUT"}
    assert set(theirs) - set(ours) == {"HAPAX_ENGINE", "HAPAX_INSTANCE"} | spark


def test_versions_are_those_of_the_project():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == hapax.__version__
    texts = [path.read_text() for path in KUSTOMIZE.rglob("*.yaml")]
    assert {
        tag for text in texts for tag in re.findall(r"(?:newTag: |hapax(?:-spark)?:)(\S+)", text)
    } == {hapax.__version__, "dev"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = only(kustomized(OPERATOR), "SparkApplication")["spec"]["runtimeVersions"]
    assert "pyspark>=4.0,<5" in project["optional-dependencies"]["spark"]
    assert (
        f"\npyspark=={versions['sparkVersion']} " in (ROOT / "requirements/spark.txt").read_text()
    )


def test_spark_has_the_cores_that_it_believes_to_have(tmp_path):
    objects = kustomized("overlays/spark")
    cores = container(objects)["resources"]["requests"]["cpu"]
    assert settled(objects, tmp_path).spark.master == f"local[{cores}]"


def test_policies_of_spark_allow_what_its_pods_exchange():
    objects = kustomized(OPERATOR)
    spec = only(objects, "SparkApplication")["spec"]
    conf = spec["sparkConf"]
    labels = {
        role: spec[f"{role}Spec"]["podTemplateSpec"]["metadata"]["labels"]
        for role in ("driver", "executor")
    }
    assert labels["driver"] != labels["executor"]
    policies = {
        each["metadata"]["name"]: each["spec"]
        for each in objects
        if each["kind"] == "NetworkPolicy"
    }
    assert policies.keys() == {"hapax", "hapax-driver", "hapax-executor"}
    for role in ("driver", "executor"):
        assert policies[f"hapax-{role}"]["podSelector"]["matchLabels"] == labels[role]

    def ports(rules: list[Any]) -> list[set[str]]:
        return [{str(port["port"]) for port in rule["ports"]} for rule in rules]

    blocks = conf["spark.blockManager.port"]
    of_driver = {conf["spark.driver.port"], conf["spark.driver.blockManager.port"]}
    assert ports(policies["hapax-driver"]["ingress"]) == [of_driver]
    assert ports(policies["hapax-driver"]["egress"]) == [{blocks}, {"443", "6443"}]
    assert ports(policies["hapax-executor"]["ingress"]) == [{blocks}]
    assert ports(policies["hapax-executor"]["egress"])[0] == of_driver | {blocks}
    # Tasks resolve names, and reach Kafka and Redis, as the driver does.
    assert policies["hapax-executor"]["egress"][1:] == policies["hapax"]["egress"]


def test_the_driver_of_the_operator_is_on_kubernetes(tmp_path):
    objects = kustomized(OPERATOR)
    assert settled(objects, tmp_path).spark.master.startswith("k8s://https://")
    spec = only(objects, "SparkApplication")["spec"]
    # Its tasks read Kafka with the same certificates as the driver.
    pods = [spec[role]["podTemplateSpec"]["spec"] for role in ("driverSpec", "executorSpec")]
    assert pods[0]["volumes"] == pods[1]["volumes"]
    assert pods[0]["containers"][0]["volumeMounts"] == pods[1]["containers"][0]["volumeMounts"]
    account = only(objects, "ServiceAccount")["metadata"]["name"]
    for role in ("driver", "executor"):
        name = f"spark.kubernetes.authenticate.{role}.serviceAccountName"
        assert spec["sparkConf"][name] == account
    assert spec["pyFiles"] == "local:///opt/hapax/spark_pod.py"
    assert "/opt/hapax/spark_pod.py" in (ROOT / "Dockerfile").read_text()
