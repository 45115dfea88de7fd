"""Rules, dashboard and pages of monitoring."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hapax.commands.tree import app
from hapax.sandbox import Prometheus, SandboxError, machine, monitoring
from hapax.settings import load_settings
from hapax.telemetry.health import Health
from hapax.telemetry.http.server import TelemetryServer
from hapax.telemetry.metrics import Metrics
from tests.deploy.expressions import complaints, known_metrics, metrics_in
from tests.kit.commands import output_of, run_captured
from tests.kit.managed_process import required
from tests.kit.probes import ask
from tests.kit.prometheus import firing, impatient_rules, query
from tests.kit.waiting import await_
from tests.meta.statements import commands

# -- Alert rules: promtool takes them, they fire when they must, and all that they name exists.


ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/monitoring"
RULES: dict[str, Any] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
NAMES = [alert["alert"] for alert in ALERTS]
BASE = "https://hapax.example/docs/alerts.md#"
DEEP = pytest.mark.deep  # of what needs promtool


@pytest.fixture(scope="module")
def promtool() -> Path:
    try:
        return machine.promtool()
    except SandboxError as error:
        pytest.fail(str(error), pytrace=False)


@DEEP
def test_the_rules_are_sound(promtool):
    checked = output_of([promtool, "check", "rules", MONITORING / "alerts.yaml"])
    assert f"{len(ALERTS)} rules found" in checked


@DEEP
def test_each_alert_fires_when_it_must_and_keeps_quiet_at_a_near_miss(promtool):
    output_of([promtool, "test", "rules", MONITORING / "alerts_test.yaml"])


def never(alert: dict[str, Any]) -> None:
    alert["expr"] = "vector(0) > 1"


def always(alert: dict[str, Any]) -> None:
    alert["expr"] = "label_replace(vector(1), 'instance', 'anything', '', '')"
    alert.pop("for", None)


def at_once(alert: dict[str, Any]) -> None:
    alert.pop("for", None)


@DEEP
@pytest.mark.parametrize("mutate", [never, always, at_once])
def test_no_alert_can_be_broken_without_a_test_that_notices(promtool, tmp_path, mutate):
    rules = copy.deepcopy(RULES)
    changed = set()
    for group in rules["groups"]:
        for alert in group["rules"]:
            before = dict(alert)
            mutate(alert)
            if alert != before:
                changed.add(alert["alert"])
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "alerts_test.yaml").write_bytes((MONITORING / "alerts_test.yaml").read_bytes())

    tested = run_captured([promtool, "test", "rules", tmp_path / "alerts_test.yaml"])

    noticed = set(re.findall(r"alertname:\s*(\w+)", tested.stdout + tested.stderr))
    assert changed
    assert changed - noticed == set()


def test_alerts_have_names_of_their_own():
    assert len(set(NAMES)) == len(NAMES)
    assert [name for name in NAMES if not re.fullmatch(r"Hapax[A-Z][A-Za-z]+", name)] == []


def test_alerts_name_metrics_labels_and_values_that_exist():
    known = known_metrics()
    for alert in ALERTS:
        metrics = metrics_in(alert["expr"])
        assert metrics, alert
        assert list(complaints(alert["expr"], known)) == [], alert
        labels = {label for name in metrics for label in known[name].labels}
        words = " ".join(alert["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", words)) - labels <= {"job", "instance"}, alert


def test_an_alert_says_how_urgent_it_is_what_is_the_matter_and_where_to_read_on():
    for alert in ALERTS:
        assert alert["labels"] == {"severity": alert["labels"]["severity"]}, alert
        assert alert["labels"]["severity"] in {"critical", "warning"}, alert
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}, alert
        words = [alert["annotations"][name] for name in ("summary", "description")]
        assert all(each.endswith(".") for each in words), alert
        assert alert["annotations"]["runbook_url"] == BASE + alert["alert"].lower()


def test_no_alert_counts_records_of_lag():
    lag = r"\bhapax_consumer_lag\b[^a-z]*?([<>]=?|==)\s*([\d.]+)"
    compared = [found for alert in ALERTS for found in re.findall(lag, alert["expr"])]
    assert {number for _operator, number in compared} <= {"0"}, compared


def test_a_transaction_hangs_after_twice_the_timeout_at_the_least():
    (alert,) = (one for one in ALERTS if one["alert"] == "HapaxHangingTransaction")
    settings = load_settings(required())
    assert float(alert["expr"].rpartition(">")[2]) >= 2 * settings.transaction.timeout_ms / 1000


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("rate(hapax_nothing_total[5m]) > 0", "there is no metric hapax_nothing_total"),
        ("hapax_transactions_total{result='x'} > 0".replace("'", '"'), "has no label result"),
        ('hapax_transactions_total{outcome="lost"} > 0', "outcome of hapax_.* is never lost"),
        ("sum by (reason) (hapax_transactions_total) > 0", "no metric here has a label reason"),
        ("hapax_transactions_total offset 5m > hapax_transactions", "no metric hapax_transactions"),
    ],
)
def test_what_does_not_exist_is_noticed(expression, complaint):
    (found,) = complaints(expression, known_metrics())
    assert re.search(complaint, found)


# -- The dashboard: its expressions parse, and all that they name exists -------------------

DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
GRAFANA = {"$__rate_interval": "5m", "$job": "hapax", "$instance": ".+"}


def expressions(panel: dict[str, Any]) -> list[str]:
    """Return a panel's expressions with Grafana's variables filled in."""
    found = [target["expr"] for target in panel["targets"]]
    return [_filled(expression) for expression in found]


def _filled(expression: str) -> str:
    for name, value in GRAFANA.items():
        expression = expression.replace(name, value)
    return expression


def everywhere() -> Iterator[tuple[str, str]]:
    for panel in PANELS:
        for expression in expressions(panel):
            yield panel["title"], expression
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], _filled(annotation["expr"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            question = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert question
            yield variable["name"], _filled(f"group by ({question[2]}) ({question[1]})")


@pytest.mark.deep
def test_the_expressions_are_sound(promtool, tmp_path):
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, (_title, expression) in enumerate(everywhere())
    ]
    (tmp_path / "panels.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]})
    )
    output_of([promtool, "check", "rules", tmp_path / "panels.yaml"])


def test_panels_name_metrics_labels_and_values_that_exist():
    known = known_metrics()
    for panel in PANELS:
        assert expressions(panel), panel
        for target, expression in zip(panel["targets"], expressions(panel), strict=True):
            assert metrics_in(expression), expression
            assert list(complaints(expression, known)) == []
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            labels = {label for name in metrics_in(expression) for label in known[name].labels}
            assert shown <= labels | {"job", "instance"}, expression
            # An aggregation leaves only the labels that it names.
            for kept in re.findall(r"\b(?:sum|max|min|count) by \(([^)]*)\)", expression):
                assert shown <= set(re.findall(r"\w+", kept)), expression


def test_what_annotations_and_variables_name_exists():
    known = known_metrics()
    titles = {panel["title"] for panel in PANELS}
    others = [expression for title, expression in everywhere() if title not in titles]
    assert len(others) == 3
    assert [found for expression in others for found in complaints(expression, known)] == []


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _y in cells) < 24
        assert not cells & taken
        taken |= cells


def test_every_metric_has_its_place():
    shown = set().union(*(metrics_in(expression) for _title, expression in everywhere()))
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    own = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for name in known_metrics()
        if name.startswith("hapax_")
    }
    # What a client's own lines could not say has no place on a board.
    assert own - bare == {"hapax_telemetry_failures_total"}


# -- docs/alerts.md: a section for each alert, and in each what somebody needs at three at night.


PAGE = ROOT / "docs/alerts.md"
PARTS = ["Meaning", "Impact", "Diagnosis", "Action"]
SECTIONS = dict(re.findall(r"(?ms)^## (Hapax\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text()))


def test_each_alert_has_its_section_in_the_order_of_the_rules():
    assert list(SECTIONS) == NAMES


def test_a_section_says_what_it_means_what_it_does_where_to_look_and_what_to_do():
    for name, section in SECTIONS.items():
        assert re.findall(r"(?m)^\*\*(\w+)\.\*\*", section) == PARTS, name
        diagnosis = section.partition("**Diagnosis.**")[2].partition("**Action.**")[0]
        assert re.findall(r"(?m)^\$ hapax \w+", diagnosis), name
        assert list(commands(section, PAGE)) == [], name


# -- A real Prometheus, our rules and our endpoint together; no broker ---------------------


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    try:
        with monitoring(rules=impatient_rules(tmp_path_factory.mktemp("rules"))) as started:
            yield started
    except SandboxError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module")
def metrics(prometheus: Prometheus) -> Iterator[Metrics]:
    """Metrics of a worker that is ready, where Prometheus looks for one."""
    metrics = Metrics()
    metrics.build_info.of("orders", "1", "worker", "3", "2").set(1)
    health = Health(loop_limit_s=60)
    port = int(prometheus.environment()["HAPAX_TELEMETRY__PORT"])
    server = TelemetryServer("127.0.0.1", port, registry=metrics.registry, health=health)
    server.start()
    await_(
        lambda: bool(query(prometheus.url, "hapax_build_info")), 60, lambda: "nothing is scraped"
    )
    yield metrics
    server.close()


@pytest.mark.deep
def test_an_alert_fires_while_its_cause_lasts_and_ends_with_it(prometheus, metrics):
    assert "HapaxClaimStoreDown" not in firing(prometheus.url)

    metrics.dedup_store_up.of().set(0)
    await_(
        lambda: "HapaxClaimStoreDown" in firing(prometheus.url), 60, lambda: "the alert is silent"
    )
    alert = firing(prometheus.url)["HapaxClaimStoreDown"]
    assert f"127.0.0.1:{prometheus.worker_ports[0]} of hapax" in alert["annotations"]["description"]

    metrics.dedup_store_up.of().set(1)
    await_(
        lambda: "HapaxClaimStoreDown" not in firing(prometheus.url), 60, lambda: "the alert stays"
    )


@pytest.mark.deep
@pytest.mark.usefixtures("metrics")
def test_every_expression_of_the_dashboard_has_an_answer(prometheus):
    answers = {title: query(prometheus.url, expression) for title, expression in everywhere()}
    assert answers["Workers"][0]["value"][1] == "1"
    assert answers["Claim store"][0]["value"][1] == "1"
    assert [one["metric"] for one in answers["Versions"]] == [
        {"app": "orders", "version": "1", "engine": "worker", "python": "3", "librdkafka": "2"}
    ]


@pytest.mark.deep
def test_promtool_has_no_complaint_about_an_exposition(promtool, prometheus, metrics):
    metrics.consumer_lag.of("orders", "in", "0").set(1)
    metrics.retention_margin_seconds.of("orders", "in", "0").set(float("inf"))
    metrics.records_dead_lettered.of("KeyError").inc()
    assert "no help text" in complaints_about(promtool, "hapax_ok 1\n")

    _status, exposition = ask(prometheus.worker_ports[0], "/metrics")

    assert "hapax_retention_margin_seconds" in exposition
    assert complaints_about(promtool, exposition) == ""


def complaints_about(promtool: Path, exposition: str) -> str:
    checked = run_captured([promtool, "check", "metrics"], input=exposition)
    return checked.stdout + checked.stderr


@pytest.mark.deep
def test_a_rule_that_is_wrong_is_named(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("groups: [{name: g, rules: [{alert: Wrong, expr: 'rate('}]}]")
    with (
        pytest.raises(SandboxError, match=r"(?s)ended while it started.*rules\.yaml.*Wrong"),
        monitoring(rules=rules),
    ):
        pass


@pytest.mark.deep
def test_rules_that_are_not_there_are_said_so(tmp_path):
    with pytest.raises(SandboxError, match="no file of rules"), monitoring(rules=tmp_path / "no"):
        pass


@pytest.mark.deep
def test_data_given_a_place_stay_there(tmp_path):
    with monitoring(data_dir=tmp_path / "kept") as one:
        assert ask(one.port, "/-/healthy")[0] == 200
    assert (tmp_path / "kept" / "data").is_dir()
    assert not one.running


@pytest.mark.deep
def test_rules_for_no_prometheus_are_refused_before_anything_starts():
    answer = CliRunner().invoke(app, ["sandbox", "up", "--rules", "rules.yaml"])
    assert answer.exit_code == 2
    assert "Rules are for --monitoring" in answer.output
