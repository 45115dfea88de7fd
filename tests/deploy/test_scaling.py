"""KEDA asks for the true lag, and takes pods away more slowly than they leave."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

import pytest
import yaml

from tests.deploy.expressions import known_metrics, metrics_in
from tests.deploy.manifests import WORKLOADS, Object, charted, driver, kustomized, only
from tests.deploy.schemas import problems
from tests.deploy.settled import SECRETS, secret_files, settled
from tests.deploy.test_values import BOTH, refusal, rendered

pytestmark = pytest.mark.deep  # needs kubectl and Helm
SASL = {"SCRAM-SHA-512": "scram_sha512", "SCRAM-SHA-256": "scram_sha256", "PLAIN": "plaintext"}


@pytest.fixture
def objects() -> list[Object]:
    return kustomized("overlays/autoscaled")


@pytest.fixture
def scaled(objects: list[Object]) -> Any:
    return only(objects, "ScaledObject")["spec"]


def test_every_input_topic_has_a_trigger_on_the_lag_of_our_group(objects, scaled, tmp_path):
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


def test_pods_leave_one_by_one_and_not_before_the_one_before_is_gone(objects, scaled, tmp_path):
    settings = settled(objects, tmp_path)
    grace_s = driver(objects)["spec"]["terminationGracePeriodSeconds"]
    session_s = settings.group.session_timeout_ms / 1000
    down = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert scaled["minReplicaCount"] == 1
    assert min(scaled["cooldownPeriod"], down["stabilizationWindowSeconds"]) > grace_s + session_s
    assert [policy["value"] for policy in down["policies"]] == [1]
    assert down["policies"][0]["periodSeconds"] > grace_s + session_s


def test_the_number_of_pods_is_kedas(objects, scaled):
    workload = only(objects, *WORKLOADS)
    assert "replicas" not in workload["spec"]
    target = scaled["scaleTargetRef"]
    assert (target["kind"], target["name"]) == (workload["kind"], workload["metadata"]["name"])
    names = [each["name"] for each in workload["spec"]["template"]["spec"]["containers"]]
    assert target["envSourceContainerName"] in names


def test_keda_logs_in_with_the_files_of_our_secret(objects, scaled):
    login = only(objects, "TriggerAuthentication")
    names = {trigger["authenticationRef"]["name"] for trigger in scaled["triggers"]}
    assert names == {login["metadata"]["name"]}
    keys = {each["key"] for each in login["spec"]["secretTargetRef"]}
    assert keys
    assert keys <= secret_files(objects)
    data = only(objects, "ConfigMap")["data"]
    assert [each["name"] in data for each in login["spec"]["env"]] == [True]


def test_the_chart_makes_a_trigger_for_each_topic():
    topics = "--set", r"settings.HAPAX_INPUT__TOPICS=orders\,returns"
    start = "--set", "settings.HAPAX_INPUT__START=latest"
    objects = charted(options=("--set", "autoscaling.enabled=true", *topics, *start))
    triggers = only(objects, "ScaledObject")["spec"]["triggers"]
    assert [each["metadata"]["topic"] for each in triggers] == ["orders", "returns"]
    assert {each["metadata"]["offsetResetPolicy"] for each in triggers} == {"latest"}
    # Brokers that ask for no login are not given one.
    assert [each for each in triggers if "authenticationRef" in each] == []
    assert [each for each in objects if each["kind"] == "TriggerAuthentication"] == []


SECURITY = "HAPAX_KAFKA__SECURITY__"
OAUTH = {
    "PROTOCOL": "sasl_ssl",
    "SASL_MECHANISM": "OAUTHBEARER",
    "OAUTH_CLIENT_ID": "hapax",
    "OAUTH_CLIENT_SECRET_FILE": f"{SECRETS}/oauth-secret",
    "OAUTH_TOKEN_URL": "https://idp.example/token",
    "OAUTH_SCOPE": "kafka",
}
SCRAM = {
    "PROTOCOL": "SASL_SSL",
    "SASL_MECHANISM": "scram-sha-256",
    "USERNAME": "hapax",
    "PASSWORD_FILE": f"{SECRETS}/password",
}
MUTUAL = {
    "PROTOCOL": "ssl",
    "CA_FILE": f"{SECRETS}/ca.pem",
    "CERTIFICATE_FILE": f"{SECRETS}/tls.crt",
    "KEY_FILE": f"{SECRETS}/tls.key",
    "KEY_PASSWORD_FILE": f"{SECRETS}/key-password",
}


def scaling(security: dict[str, str], **more: Any) -> dict[str, Any]:
    settings = {f"{SECURITY}{name}": value for name, value in security.items()}
    return {"settings": settings, "autoscaling": {"enabled": True}} | more


@BOTH
@pytest.mark.parametrize(
    ("security", "words", "env", "keys"),
    [
        ({}, ("none", "disable"), {}, {}),
        ({"PROTOCOL": "ssl"}, ("none", "enable"), {}, {}),
        (
            MUTUAL,
            ("none", "enable"),
            {},
            {"ca": "ca.pem", "cert": "tls.crt", "key": "tls.key", "keyPassword": "key-password"},
        ),
        (SCRAM, ("scram_sha256", "enable"), {"username": "USERNAME"}, {"password": "password"}),
        (
            SCRAM | {"PROTOCOL": "sasl_plaintext", "SASL_MECHANISM": "PLAIN"},
            ("plaintext", "disable"),
            {"username": "USERNAME"},
            {"password": "password"},
        ),
        (
            OAUTH,
            ("oauthbearer", "enable"),
            {
                "username": "OAUTH_CLIENT_ID",
                "oauthTokenEndpointUri": "OAUTH_TOKEN_URL",
                "scopes": "OAUTH_SCOPE",
            },
            {"password": "oauth-secret"},
        ),
    ],
)
def test_the_login_of_keda_follows_from_the_settings(tmp_path, helm, security, words, env, keys):
    objects = rendered(tmp_path, scaling(security), helm=helm())
    assert [one for each in objects for one in problems(each)] == []
    [trigger] = only(objects, "ScaledObject")["spec"]["triggers"]
    assert (trigger["metadata"]["sasl"], trigger["metadata"]["tls"]) == words
    logins = [each["spec"] for each in objects if each["kind"] == "TriggerAuthentication"]
    assert len(logins) == ("authenticationRef" in trigger) == bool(env or keys)
    for login in logins:
        told = {each["parameter"]: each["name"] for each in login.get("env", ())}
        assert told == {parameter: f"{SECURITY}{name}" for parameter, name in env.items()}
        assert {each["parameter"]: each["key"] for each in login["secretTargetRef"]} == keys
        assert {each["name"] for each in login["secretTargetRef"]} == {"hapax"}


def test_a_password_of_extra_env_is_one_that_keda_can_read(tmp_path):
    name = f"{SECURITY}PASSWORD"
    source = {"secretKeyRef": {"name": "vault", "key": "password"}}
    security = {key: value for key, value in SCRAM.items() if key != "PASSWORD_FILE"}
    given = scaling(security, extraEnv=[{"name": name, "valueFrom": source}])
    login = only(rendered(tmp_path, given), "TriggerAuthentication")["spec"]
    assert {"parameter": "password", "name": name, "containerName": "hapax"} in login["env"]


def without(security: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in security.items() if key != name}


@BOTH
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (scaling(without(SCRAM, "SASL_MECHANISM")), "SASL_MECHANISM is missing"),
        (scaling(without(SCRAM, "PASSWORD_FILE")), "PASSWORD is missing"),
        (scaling(SCRAM | {"PASSWORD_FILE": "/vault/password"}), "not the file /vault/password"),
        (scaling(OAUTH | {"OAUTH_CA_FILE": f"{SECRETS}/idp.pem"}), "no authority of its own"),
        (
            scaling({}, autoscaling={"enabled": True, "trigger": "prometheus"}),
            "needs the address of Prometheus",
        ),
        (
            scaling({}, autoscaling={"enabled": True, "minReplicas": 5, "maxReplicas": 4}),
            "minReplicas is larger",
        ),
        (
            {
                "settings": {"HAPAX_ENGINE": "spark", "HAPAX_SPARK__DATAFRAME": "a:b"},
                "autoscaling": {"enabled": True},
            },
            "one query with one checkpoint",
        ),
    ],
)
def test_what_keda_cannot_do_is_refused(tmp_path, helm, values, words):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    assert words in refusal(helm(), file)


def test_our_own_lag_in_prometheus_is_the_alternative(tmp_path):
    prometheus = {"serverAddress": "http://prometheus.monitoring:9090", "authModes": "bearer"}
    scale = {"enabled": True, "trigger": "prometheus", "prometheus": prometheus}
    given = scaling(OAUTH | {"OAUTH_CA_FILE": f"{SECRETS}/idp.pem"}, autoscaling=scale)
    objects = rendered(tmp_path, given)
    assert [one for each in objects for one in problems(each)] == []
    [trigger] = only(objects, "ScaledObject")["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert query == 'sum(hapax_consumer_lag{namespace="default", pod=~"hapax-[0-9]+"})'
    assert metrics_in(query) <= known_metrics().keys()
    # Prometheus that is away must not look like a lag of 0, which would take pods away.
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert [each for each in objects if each["kind"] == "TriggerAuthentication"] == []


def test_the_pace_follows_a_grace_period_that_is_longer(tmp_path):
    slow = {"HAPAX_SHUTDOWN__TIMEOUT": "8m", "HAPAX_GROUP__SESSION_TIMEOUT": "1m"}
    objects = rendered(tmp_path, {"settings": slow, "autoscaling": {"enabled": True}})
    grace_s = driver(objects)["spec"]["terminationGracePeriodSeconds"]
    scaled = only(objects, "ScaledObject")["spec"]
    down = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert min(down["stabilizationWindowSeconds"], scaled["cooldownPeriod"]) > grace_s + 60
    assert down["policies"][0]["periodSeconds"] > grace_s + 60


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_switch_to_autoscaling_keeps_the_pods_that_run(kind):
    """A number that disappears from a manifest becomes 1 in the cluster."""
    path = f"/apis/apps/v1/namespaces/default/{kind.lower()}s/hapax"
    owner = {"meta.helm.sh/release-name": "hapax", "meta.helm.sh/release-namespace": "default"}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    metadata = {"name": "hapax", "annotations": owner, "labels": labels}
    live = {"kind": kind, "apiVersion": "apps/v1", "metadata": metadata}
    options = ["autoscaling.enabled=true", f"kind={kind}"]
    options.append("settings.HAPAX_GROUP__MEMBERSHIP=dynamic")
    words = [word for option in options for word in ("--set", option)]
    for objects, wanted in (({path: live | {"spec": {"replicas": 7}}}, 7), ({}, None)):
        with api_server(objects) as address:
            server = ("--dry-run=server", "--kube-apiserver", address)
            made = charted(options=(*words, *server, "--disable-openapi-validation"))
        assert only(made, kind)["spec"].get("replicas") == wanted


_KINDS: Final = {
    "v1": ["ConfigMap", "Service", "ServiceAccount"],
    "apps/v1": ["StatefulSet", "Deployment"],
    "policy/v1": ["PodDisruptionBudget"],
    "keda.sh/v1alpha1": ["ScaledObject", "TriggerAuthentication"],
}


@contextmanager
def api_server(objects: dict[str, Any]) -> Iterator[str]:
    answers = _discovery() | objects

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            body = json.dumps(found or {"kind": "Status", "code": 404, "reason": "NotFound"})
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _discovery() -> dict[str, Any]:
    groups = [version for version in _KINDS if "/" in version]
    return {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [
                {
                    "name": version.partition("/")[0],
                    "versions": [{"groupVersion": version, "version": version.partition("/")[2]}],
                }
                for version in groups
            ],
        },
    } | {
        f"/{'apis' if '/' in version else 'api'}/{version}": {
            "kind": "APIResourceList",
            "groupVersion": version,
            "resources": [
                {
                    "name": f"{kind.lower()}s",
                    "singularName": kind.lower(),
                    "namespaced": True,
                    "kind": kind,
                    "verbs": ["get"],
                }
                for kind in kinds
            ],
        }
        for version, kinds in _KINDS.items()
    }
