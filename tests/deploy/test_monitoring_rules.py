"""Alert rules: promtool takes them, they fire when they must, and all that they name exists."""

from __future__ import annotations

import copy
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hapax.sandbox import SandboxError, machine
from hapax.settings import load_settings
from tests.deploy.expressions import complaints, known_metrics, metrics_in

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/monitoring"
RULES: dict[str, Any] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
NAMES = [alert["alert"] for alert in ALERTS]
BASE = "https://hapax.example/docs/alerts.md#"

DEEP = pytest.mark.deep  # of what needs promtool
Promtool = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def promtool() -> Path:
    try:
        return machine.promtool()
    except SandboxError as error:
        pytest.fail(str(error), pytrace=False)


def run(promtool: Path, *words: str | Path) -> Promtool:
    return subprocess.run([promtool, *words], capture_output=True, text=True, check=False)


@DEEP
def test_the_rules_are_sound(promtool):
    checked = run(promtool, "check", "rules", MONITORING / "alerts.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout


@DEEP
def test_each_alert_fires_when_it_must_and_keeps_quiet_at_a_near_miss(promtool):
    tested = run(promtool, "test", "rules", MONITORING / "alerts_test.yaml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


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

    tested = run(promtool, "test", "rules", tmp_path / "alerts_test.yaml")

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
        named = set(re.findall(r"\$labels\.(\w+)", words))
        assert named - labels <= {"job", "instance"}, alert


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
    settings = load_settings(
        {
            "HAPAX_APP": "a",
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "b:1",
            "HAPAX_INPUT__TOPICS": "in",
            "HAPAX_OUTPUT__TOPIC": "out",
        }
    )
    threshold_s = float(alert["expr"].rpartition(">")[2])
    assert threshold_s >= 2 * settings.transaction.timeout_ms / 1000


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
