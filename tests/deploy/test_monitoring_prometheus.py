"""A real Prometheus, our rules and our endpoint together; no broker."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from hapax.commands.tree import app
from hapax.sandbox import SandboxError, monitoring
from hapax.telemetry.health import Health
from hapax.telemetry.http.server import TelemetryServer
from hapax.telemetry.metrics import Metrics
from tests.deploy.test_monitoring_dashboard import everywhere
from tests.deploy.test_monitoring_rules import promtool
from tests.kit.probes import ask
from tests.kit.prometheus import firing, impatient_rules, query
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hapax.sandbox import Prometheus

pytestmark = pytest.mark.deep  # needs Prometheus
__all__ = ["promtool"]  # a fixture


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
    metrics.build_info.of("1", "worker", "3", "2").set(1)
    health = Health(loop_limit_s=60)
    port = int(prometheus.environment()["HAPAX_TELEMETRY__PORT"])
    server = TelemetryServer("127.0.0.1", port, registry=metrics.registry, health=health)
    server.start()
    await_(
        lambda: bool(query(prometheus.url, "hapax_build_info")), 60, lambda: "nothing is scraped"
    )
    yield metrics
    server.close()


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


@pytest.mark.usefixtures("metrics")
def test_every_expression_of_the_dashboard_has_an_answer(prometheus):
    answers = {title: query(prometheus.url, expression) for title, expression in everywhere()}
    assert answers["Workers"][0]["value"][1] == "1"
    assert answers["Claim store"][0]["value"][1] == "1"
    assert [one["metric"] for one in answers["Versions"]] == [
        {"version": "1", "engine": "worker", "python": "3", "librdkafka": "2"}
    ]


def test_promtool_has_no_complaint_about_an_exposition(promtool, prometheus, metrics):
    metrics.consumer_lag.of("in", "0").set(1)
    metrics.retention_margin_seconds.of("in", "0").set(float("inf"))
    metrics.records_dead_lettered.of("KeyError").inc()
    assert "no help text" in complaints_about(promtool, "hapax_ok 1\n")

    _status, exposition = ask(prometheus.worker_ports[0], "/metrics")

    assert "hapax_retention_margin_seconds" in exposition
    assert complaints_about(promtool, exposition) == ""


def complaints_about(promtool: Path, exposition: str) -> str:
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=exposition,
        capture_output=True,
        text=True,
        check=False,
    )
    return checked.stdout + checked.stderr


def test_a_rule_that_is_wrong_is_named(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("groups: [{name: g, rules: [{alert: Wrong, expr: 'rate('}]}]")
    with (
        pytest.raises(SandboxError, match=r"(?s)ended while it started.*rules\.yaml.*Wrong"),
        monitoring(rules=rules),
    ):
        pass


def test_rules_that_are_not_there_are_said_so(tmp_path):
    with pytest.raises(SandboxError, match="no file of rules"), monitoring(rules=tmp_path / "no"):
        pass


def test_data_given_a_place_stay_there(tmp_path):
    with monitoring(data_dir=tmp_path / "kept") as one:
        assert ask(one.port, "/-/healthy")[0] == 200
    assert (tmp_path / "kept" / "data").is_dir()
    assert not one.running


def test_rules_for_no_prometheus_are_refused_before_anything_starts():
    answer = CliRunner().invoke(app, ["sandbox", "up", "--rules", "rules.yaml"])
    assert answer.exit_code == 2
    assert "Rules are for --monitoring" in answer.output
