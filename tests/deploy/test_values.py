"""The values of the chart: typos are refused on every level, and what is given arrives."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # of kubernetes-validate
import pytest
import yaml

from hapax.settings import VARIABLES
from hapax.settings.base import Variable
from tests.deploy import tools
from tests.deploy.manifests import CHART, Object, asked, charted, driver, leaves, only
from tests.deploy.schemas import VERSIONS, problems
from tests.deploy.values_schema import CLOSED, OPEN, OWNED, form, settable
from tests.kit.commands import run_captured

BOTH = pytest.mark.parametrize(
    "helm",
    [pytest.param(each, marks=pytest.mark.deep) for each in (tools.helm, tools.old_helm)],
    ids=lambda helm: str(helm.__name__),
)
WRONG: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("values.yaml").read_text())
GIVEN = WRONG["given"]
PARTITION = "{rollingUpdate: {partition: 1}}"
DEPLOYMENT = "kind: Deployment, settings: {HAPAX_GROUP__MEMBERSHIP: dynamic}"


def refusal(helm: Path, values: Path, *options: str, release: str = "hapax") -> str:
    done = run_captured([helm, "template", release, CHART, "-f", values, *options, *asked(helm)])
    assert done.returncode != 0, done.stdout
    assert "geheim" not in done.stderr
    return done.stderr


def rendered(
    tmp_path: Path, values: dict[str, Any], *, helm: Path | None = None, release: str = "hapax"
) -> list[Object]:
    text = yaml.safe_dump(values)
    file = tmp_path / f"{hash(text)}.yaml"  # what was rendered is kept by its command
    file.write_text(text)
    return charted(helm=helm, release=release, options=("-f", str(file)))


def merged(values: Any, more: Any) -> Any:
    """Return values as Helm merges them before it asks the schema: null takes a default away."""
    if not (isinstance(values, dict) and isinstance(more, dict)):
        return more
    found = values | {name: merged(values.get(name), each) for name, each in more.items()}
    return {name: each for name, each in found.items() if more.get(name, each) is not None}


def closed() -> dict[str, Any]:
    """Return the schema with what templates/_known.tpl adds to it."""
    schema: dict[str, Any] = json.loads(
        (CHART / "values.schema.json").read_text().replace(OPEN, CLOSED)
    )
    return schema


@cache
def chart() -> tuple[jsonschema.Draft7Validator, dict[str, Any]]:
    """Return what judges values, and the defaults."""
    return jsonschema.Draft7Validator(closed()), yaml.safe_load((CHART / "values.yaml").read_text())


def refusals(values: dict[str, Any]) -> list[str]:
    schema, defaults = chart()
    errors = schema.iter_errors(merged(defaults, values))
    return [f"{'.'.join(map(str, each.absolute_path))}: {each.message}" for each in errors]


def unknown(values: dict[str, Any], how: str) -> set[str]:
    """Return what is said of each name of ``values``."""
    known = (".name", ".key", ".mountPath")
    found = {path[1:]: each for path, each in leaves(values) if not path.endswith(known)}
    return {f"{path}: {how.format(each)}" for path, each in found.items()}


@BOTH
def test_forty_names_that_do_not_exist_are_refused_each_with_the_nearest(tmp_path, helm):
    file = tmp_path / "values.yaml"
    for values, how in ((WRONG["names"], "did you mean {}?"), (WRONG["called"], "it is called {}")):
        file.write_text(yaml.safe_dump(values))
        assert unknown(values, how) <= set(refusal(helm(), file).splitlines()), how
    assert len(unknown(WRONG["names"], "")) >= 40
    file.write_text("extraEnv: [{name: HAPAX_TRANFORM, value: 'a:b'}]")
    assert "HAPAX_TRANFORM: did you mean HAPAX_TRANSFORM?" in refusal(helm(), file)


def test_a_typo_is_refused_by_name():
    assert refusals({}) == []
    typos = WRONG["forms"] + WRONG["in_helm"]
    assert [typo for word, typo in typos if word not in " ".join(refusals(typo))] == []
    at_once = " ".join(refusals(WRONG["names"]))
    names = {re.split(r"[.:]", each)[-2] for each in unknown(WRONG["names"], "")}
    assert [name for name in names if f"'{name}'" not in at_once] == []


@BOTH
def test_helm_applies_the_schema(tmp_path, helm):
    file = tmp_path / "values.yaml"
    for word, typo in WRONG["in_helm"]:
        file.write_text(yaml.safe_dump(typo))
        assert word in refusal(helm(), file), typo


def keys(schema: Any, values: Any, path: str = "") -> Iterator[tuple[str, bool]]:
    """Yield each name of a level of the chart's own, and whether values.yaml has it."""
    for name, inner in schema.get("properties", {}).items():
        where = f"{path}.{name}".removeprefix(".")
        if where in {"global", "settings"}:
            continue
        yield where, isinstance(values, dict) and name in values
        yield from keys(inner, values.get(name) if isinstance(values, dict) else None, where)


def test_each_value_of_the_schema_has_its_default_in_the_file():
    found = dict(keys(closed(), yaml.safe_load((CHART / "values.yaml").read_text())))
    assert len(found) > 80
    assert [where for where, there in found.items() if not there] == []


def loose(schema: Any, path: str = "") -> Iterator[str]:
    """Yield the objects below that take names which nobody has named."""
    if isinstance(schema, list):
        for inner in schema:
            yield from loose(inner, path)
    elif isinstance(schema, dict):
        named = "properties" in schema and "object" in schema.get("type", "")
        if named and schema.get("additionalProperties") is not False:
            yield path
        for name, inner in schema.items():
            yield from loose(inner, f"{path}/{name}")


def test_the_schema_is_closed_on_every_level():
    # Charts that have this one in theirs share the names below global.
    assert list(loose(closed())) == ["/properties/global"]


@pytest.fixture
def settings() -> dict[str, str]:
    """Of all settings that a ConfigMap may hold: the example, or the default."""
    names = settable()
    settings = {
        each.name: each.example or str(each.default)
        for each in VARIABLES
        if each.name in names and "`" not in str(each.default) and each.default != "unset"
    }
    assert len(settings) > 30
    return settings


def test_examples_and_defaults_of_all_settings_are_of_their_form(settings):
    assert refusals({"settings": settings}) == []


@pytest.mark.deep
def test_settings_arrive_as_they_are_given(settings, tmp_path):
    assert only(rendered(tmp_path, {"settings": settings}), "ConfigMap")["data"] == settings


def test_nothing_that_a_secret_says_can_stand_in_a_config_map():
    secrets = {variable.name for variable in VARIABLES if variable.form.secret}
    assert len(secrets) >= 4
    assert secrets & set(settable()) == set()
    assert {f"{name}_FILE" for name in secrets} <= set(settable())
    assert {variable.name for variable in VARIABLES} >= OWNED


# Of each form some that are read and some that are not; and one of everything else.
TEXTS = (
    "", "20s", "1.5m", "250ms", "24h", "7d", "90 s", "20", "0", "1", "10", "1000", "0.1", "10%",
    "16MiB", "512KiB", "1MB", "2kb", "4096", "16mib", "1 GiB", "true", "FALSE", "yes", "Off",
    "worker", "SPARK", "exactly_once", "At_Least_Once", "scram-sha-512", "PLAIN", "sasl_ssl",
    "SASL_PLAINTEXT", "latest", "debug", "json", "pass", "auto", "static", "dynamic", "consumer",
    "murmur2", "RANDOM", "kafka:9092", "a:1, b:2", "[::1]:9092", "orders", "orders, returns",
    "a.b-c_1", "package.mod:function", "http://idp/token", "https://idp/token", "{}", '{"a": 1}',
    "{\n}", "/run/secrets/hapax/x", "key", "header:message-id", "json:/id", "local[2]", "x y",
    "together", "hold", "topic", "prefix", "record", "NOW", "wait", "Leave",
)  # fmt: skip


def refused_texts(variable: Variable) -> tuple[list[str], list[Any]]:
    """Return the texts that the service reads, and what the chart does not take of them."""
    schema = jsonschema.Draft7Validator(form(variable.name, variable.form.allowed))
    read = [text for text in TEXTS if text and parsed(variable, text)]
    # Stricter than the service: a path in a pod begins at its root, and a broker has a port.
    if variable.name.endswith("_FILE"):
        read = [text for text in read if text.startswith("/")]
    if variable.name == "HAPAX_TELEMETRY__ADDRESS":
        read = ["::", "0.0.0.0"]  # noqa: S104 - probes come from elsewhere
    if variable.name.endswith("KAFKA__BOOTSTRAP_SERVERS"):
        read = [text for text in read if text in {"kafka:9092", "a:1, b:2", "[::1]:9092"}]
    given: list[Any] = [*read]
    if not variable.form.allowed.startswith(("duration", "comma list of `host", "`")):
        given += [int(text) for text in read if text.isdecimal()]
    return read, [one for one in given if not schema.is_valid(one)]


def test_the_chart_takes_every_text_that_the_service_reads():
    found = {each.name: refused_texts(each) for each in VARIABLES if each.name in settable()}
    assert [name for name, (read, _) in found.items() if not read] == []
    assert {name: refused for name, (_, refused) in found.items() if refused} == {}


def parsed(variable: Variable, text: str) -> bool:
    try:
        variable.form.parse(text)
    except ValueError:
        return False
    return True


@BOTH
def test_a_large_number_stays_a_number(tmp_path, helm):
    given = {"settings": {"HAPAX_DEAD_LETTER__RECORDS_MIN": 100_000_000}}
    data = only(rendered(tmp_path, given, helm=helm()), "ConfigMap")["data"]
    assert data["HAPAX_DEAD_LETTER__RECORDS_MIN"] == "100000000"


@BOTH
def test_what_is_given_arrives_where_kubernetes_looks_for_it(tmp_path, helm):
    objects = rendered(tmp_path, GIVEN, helm=helm())
    assert [one for each in objects for one in problems(each, VERSIONS[-1])] == []
    workload = only(objects, "StatefulSet")
    spec, pod = workload["spec"], driver(objects)["spec"]
    assert {each["metadata"]["labels"]["team"] for each in objects} == {"shop"}
    assert {each["metadata"]["name"] for each in objects} == {
        "shop", "shop-settings", "shop-dashboard",
    }  # fmt: skip
    assert spec["minReadySeconds"] == 20
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    assert workload["metadata"]["annotations"] == GIVEN["annotations"]
    metadata = driver(objects)["metadata"]
    assert GIVEN["podLabels"].items() <= metadata["labels"].items()
    assert GIVEN["podAnnotations"].items() <= metadata["annotations"].items()
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity"):
        assert pod[name] == GIVEN[name]
    assert pod["priorityClassName"] == "high"
    assert "topologySpreadConstraints" not in pod
    assert pod["initContainers"] == GIVEN["initContainers"]
    ours, *others = pod["containers"]
    assert others == GIVEN["sidecars"]
    assert ours["env"][1:] == GIVEN["extraEnv"]
    assert ours["envFrom"][1:] == GIVEN["extraEnvFrom"]
    assert ours["volumeMounts"][2:] == GIVEN["extraVolumeMounts"]
    assert pod["volumes"][2:] == GIVEN["extraVolumes"]
    assert spec["volumeClaimTemplates"] == GIVEN["volumeClaimTemplates"]
    account = only(objects, "ServiceAccount")["metadata"]
    assert account["annotations"] == GIVEN["serviceAccount"]["annotations"]
    for kind in ("PodMonitor", "PrometheusRule"):
        assert only(objects, kind)["metadata"]["labels"]["release"] == "prometheus"
    boards = [each for each in objects if each["metadata"]["name"] == "shop-dashboard"]
    assert boards[0]["metadata"]["labels"]["folder"] == "kafka"
    policy = only(objects, "NetworkPolicy")["spec"]
    assert policy["egress"][0]["to"] == GIVEN["networkPolicy"]["dns"]["to"]
    assert {port["port"] for port in policy["egress"][0]["ports"]} == {53, 5353}
    assert policy["egress"][2:] == GIVEN["networkPolicy"]["extraEgress"]
    assert policy["ingress"][1:] == GIVEN["networkPolicy"]["extraIngress"]


@BOTH
def test_a_chart_with_this_one_in_it_gives_registry_and_name(tmp_path, helm):
    given = {
        "global": {"imageRegistry": "mirror.example:5000"},
        "image": {"registry": "registry.example", "tag": "1"},
        "nameOverride": "billing",
        "commonLabels": {"app.kubernetes.io/part-of": "shop"},
        "monitoring": {"serviceMonitor": {"enabled": True, "interval": "30s"}},
    }
    objects = rendered(tmp_path, given, helm=helm())
    assert [one for each in objects for one in problems(each)] == []
    assert driver(objects)["spec"]["containers"][0]["image"] == "mirror.example:5000/hapax:1"
    assert {each["metadata"]["labels"]["app.kubernetes.io/part-of"] for each in objects} == {"shop"}
    service, workload = only(objects, "Service"), only(objects, "StatefulSet")
    assert service["metadata"]["name"] == workload["metadata"]["name"] == "hapax-billing"
    selected = {"app.kubernetes.io/name": "billing", "app.kubernetes.io/instance": "hapax-billing"}
    assert service["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"] == selected
    assert selected.items() <= driver(objects)["metadata"]["labels"].items()
    monitor = only(objects, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [(each["port"], each["interval"]) for each in monitor["endpoints"]] == [
        (service["spec"]["ports"][0]["name"], "30s")
    ]


@pytest.mark.deep
def test_a_threshold_changes_its_rule_and_no_other(tmp_path):
    def expressions(thresholds: dict[str, float]) -> dict[str, str]:
        rules = {"enabled": True, "thresholds": thresholds}
        found = only(rendered(tmp_path, {"monitoring": {"rules": rules}}), "PrometheusRule")
        return {
            rule["alert"]: rule["expr"]
            for group in found["spec"]["groups"]
            for rule in group["rules"]
        }

    names = yaml.safe_load((CHART / "values.yaml").read_text())["monitoring"]["rules"]["thresholds"]
    before, touched = expressions({}), []
    assert "@" not in str(before)
    for name in names:
        after = expressions({name: 0.77})
        [changed] = [alert for alert in before if after[alert] != before[alert]]
        assert "0.77" in after[changed]
        touched.append(changed)
    assert len(set(touched)) == len(names)


@BOTH
def test_openshift_can_unset_the_ids(tmp_path, helm):
    unset = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
    pod = driver(rendered(tmp_path, {"podSecurityContext": unset}, helm=helm()))["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.deep
def test_an_account_that_exists_is_used_and_none_is_made(tmp_path):
    objects = rendered(tmp_path, {"serviceAccount": {"create": False, "name": "shared"}})
    assert driver(objects)["spec"]["serviceAccountName"] == "shared"
    assert [each for each in objects if each["kind"] == "ServiceAccount"] == []


@BOTH
def test_long_names_are_cut_in_time_and_do_not_meet(tmp_path, helm):
    long = "payments-of-the-northern-european-subsidiaries-clean"
    made = [rendered(tmp_path, {}, helm=helm(), release=name) for name in (f"{long}1", f"{long}2")]
    names = [only(objects, "StatefulSet")["metadata"]["name"] for objects in made]
    assert names[0] != names[1]
    for objects, name in zip(made, names, strict=True):
        # The controller labels pods with the name, a hyphen and ten characters.
        assert len(f"{name}-0123456789") <= 63
        assert {each["metadata"]["name"].removesuffix("-settings") for each in objects} == {name}
        labels = driver(objects)["metadata"]["labels"].values()
        assert max(len(label) for label in labels) <= 63


# -- what follows from the settings --------------------------------------------------------


@pytest.mark.deep
def test_grace_period_and_liveness_follow_from_the_settings(tmp_path):
    slow = {
        "HAPAX_WATCHDOG__TIMEOUT": "1.5m",
        "HAPAX_SHUTDOWN__TIMEOUT": "2500ms",
        "HAPAX_TRANSACTION__TIMEOUT": "2m",
    }
    pod = driver(rendered(tmp_path, {"settings": slow}))["spec"]
    # 120 s of a transaction in doubt, 10 s to close, 2.5 s to drain; and 5 s.
    assert pod["terminationGracePeriodSeconds"] == 138
    probe = pod["containers"][0]["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 100


@pytest.mark.deep
@pytest.mark.parametrize(
    ("outputs", "given", "limit"),
    [("1.5GiB", {}, "2048Mi"), (1 << 30, {}, "1536Mi"), ("1 MB", {"memory": "700Mi"}, "700Mi")],
)
def test_the_memory_limit_follows_from_the_outputs_of_one_record(tmp_path, outputs, given, limit):
    settings = {"HAPAX_CALL__OUTPUT_BYTES_MAX": outputs}
    made = rendered(tmp_path, {"settings": settings, "resources": {"limits": given}})
    (container,) = driver(made)["spec"]["containers"]
    both = {"requests": {"cpu": "500m", "memory": limit}, "limits": {"memory": limit}}
    assert container["resources"] == both


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("terminationGracePeriodSeconds: 70", "not longer than the 70 s that a stop may take"),
        (
            "livenessProbe: {failureThreshold: 6}",
            "not longer than the 65 s after which the watchdog",
        ),
        ("livenessProbe: {failureThreshold: 30}", "not shorter than the 300 s of HAPAX_GROUP"),
        (
            "settings: {HAPAX_GROUP__MAX_POLL_INTERVAL: 61s}",
            "not shorter than the 61 s of HAPAX_GROUP",
        ),
        (
            "{resources: {limits: {memory: 1Gi}}, settings: {HAPAX_CALL__OUTPUT_BYTES_MAX: 1GiB}}",
            "memory: 1Gi is not above HAPAX_CALL__OUTPUT_BYTES_MAX",
        ),
        ("startupProbe: {failureThreshold: 20}", "shorter than the 180 s that a start may take"),
        (f"{{{DEPLOYMENT}, updateStrategy: {PARTITION}}}", "neither ordinals nor OnDelete"),
        (f"{{{DEPLOYMENT}, updateStrategy: {{type: OnDelete}}}}", "neither ordinals nor OnDelete"),
        (
            "updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}",
            "only with updateStrategy.type: RollingUpdate",
        ),
        ("monitoring: {podMonitor: &on {enabled: true}, serviceMonitor: *on}", "process twice"),
        (
            "monitoring: {rules: {enabled: true, thresholds: {stalledSeconds: null}}}",
            "thresholds: stalledSeconds has no value",
        ),
        ("extraEnv: [{name: HAPAX_WATCHDOG__TIMEOUT, value: 4m}]", "put it into settings"),
        ("settings: {HAPAX_STOP_AFTER__AT_END: true}", "a bounded run ends"),
        ("settings: {HAPAX_INPUT__END: latest}", "a bounded run ends"),
        ("{replicaCount: 2, settings: {HAPAX_SPARK__DATAFRAME: a:b}}", "and one pod; set it to 1"),
        ("settings: {HAPAX_ENGINE: spark}", "add -f values/spark.yaml"),
        (
            "{autoscaling: {enabled: true, minReplicas: 0}, settings: {HAPAX_RETRY__LATER: a}}",
            "later tries need 1",
        ),
    ],
)
@BOTH
def test_contradictions_are_refused_with_their_reason(tmp_path, helm, values, words):
    file = tmp_path / "values.yaml"
    file.write_text(values)
    assert words in refusal(helm(), file)
