"""KEDA asks for the true lag, and takes pods away more slowly than they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.deploy.manifests import WORKLOADS, Object, charted, driver, kustomized, only
from tests.deploy.settled import secret_files, settled

if TYPE_CHECKING:
    from pathlib import Path

SASL = {"SCRAM-SHA-512": "scram_sha512", "SCRAM-SHA-256": "scram_sha256", "PLAIN": "plaintext"}


@pytest.fixture
def objects() -> list[Object]:
    return kustomized("overlays/autoscaled")


@pytest.fixture
def scaled(objects: list[Object]) -> Any:
    return only(objects, "ScaledObject")["spec"]


def test_every_input_topic_has_a_trigger_on_the_lag_of_our_group(
    objects: list[Object], scaled: Any, tmp_path: Path
) -> None:
    settings = settled(objects, tmp_path)
    asked = [trigger["metadata"] for trigger in scaled["triggers"]]
    assert [each["topic"] for each in asked] == list(settings.input.topics)
    mechanism = settings.kafka.security.sasl_mechanism
    assert mechanism is not None
    for each in asked:
        assert each["consumerGroupFromEnv"] == "HAPAX_APP"
        assert each["bootstrapServersFromEnv"] == "HAPAX_KAFKA__BOOTSTRAP_SERVERS"
        assert each["offsetResetPolicy"] == settings.input.start
        assert each["sasl"] == SASL[mechanism]
        assert each["tls"] == "enable"
        # Kafka 4 refuses what is older than 2.1.
        assert [int(part) for part in each["version"].split(".")] >= [2, 1, 0]


def test_pods_leave_one_by_one_and_not_before_the_one_before_is_gone(
    objects: list[Object], scaled: Any, tmp_path: Path
) -> None:
    settings = settled(objects, tmp_path)
    grace_s = driver(objects)["spec"]["terminationGracePeriodSeconds"]
    session_s = settings.group.session_timeout_ms / 1000
    down = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert scaled["minReplicaCount"] == 1
    assert min(scaled["cooldownPeriod"], down["stabilizationWindowSeconds"]) > grace_s + session_s
    assert [policy["value"] for policy in down["policies"]] == [1]
    assert down["policies"][0]["periodSeconds"] > grace_s + session_s


def test_the_number_of_pods_is_kedas(objects: list[Object], scaled: Any) -> None:
    workload = only(objects, *WORKLOADS)
    assert "replicas" not in workload["spec"]
    target = scaled["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (workload["kind"], workload["metadata"]["name"])
    names = [each["name"] for each in workload["spec"]["template"]["spec"]["containers"]]
    assert target["envSourceContainerName"] in names


def test_keda_logs_in_with_the_files_of_our_secret(objects: list[Object], scaled: Any) -> None:
    login = only(objects, "TriggerAuthentication")
    names = {trigger["authenticationRef"]["name"] for trigger in scaled["triggers"]}
    assert names == {login["metadata"]["name"]}
    keys = {each["key"] for each in login["spec"]["secretTargetRef"]}
    assert keys
    assert keys <= secret_files(objects)
    data = only(objects, "ConfigMap")["data"]
    assert [each["name"] in data for each in login["spec"]["env"]] == [True]


def test_the_chart_makes_a_trigger_for_each_topic() -> None:
    topics = "--set", r"settings.HAPAX_INPUT__TOPICS=orders\,returns"
    start = "--set", "settings.HAPAX_INPUT__START=latest"
    objects = charted(options=("--set", "autoscaling.enabled=true", *topics, *start))
    triggers = only(objects, "ScaledObject")["spec"]["triggers"]
    assert [each["metadata"]["topic"] for each in triggers] == ["orders", "returns"]
    assert {each["metadata"]["offsetResetPolicy"] for each in triggers} == {"latest"}
    # Brokers that ask for no login are not given one.
    assert [each for each in triggers if "authenticationRef" in each] == []
    assert [each for each in objects if each["kind"] == "TriggerAuthentication"] == []
