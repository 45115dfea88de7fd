"""A new operator's first outage: the alert, the probe, the doctor, the runbook. All of it real."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped] # psutil has no types
import pytest

from hapax.sandbox import machine
from tests.deploy.test_monitoring_dashboard import everywhere
from tests.kit.commands import run_captured
from tests.kit.managed_process import WorkerProcess
from tests.kit.probes import ask, ready
from tests.kit.prometheus import firing, impatient_rules, query
from tests.kit.topics import Given, produce, read_back
from tests.kit.waiting import await_

ALERT = "HapaxClaimStoreDown"
PAGE = Path(__file__).parents[2] / "docs/alerts.md"
PATIENCE_S = 90.0


@contextmanager
def sandbox_up(*options: str) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """Type ``hapax sandbox up`` and read what it prints; whatever happens, it ends."""
    command = [sys.executable, "-m", "hapax", "sandbox", "up", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            printed = started.stdout.readline()
            assert printed, "the sandbox did not start"
            yield json.loads(printed), started
        finally:
            started.kill()  # what it started dies with it


class Stopped(NamedTuple):
    """A Redis that was killed: where it listened, and where its data are."""

    port: str
    folder: str


def stop_redis(command: subprocess.Popen[str], port: str) -> Stopped:
    """Kill the sandbox's Redis."""
    children = psutil.Process(command.pid).children(recursive=True)
    (redis,) = (one for one in children if one.name() == "redis-server")
    folder = redis.cwd()
    redis.kill()
    return Stopped(port, folder)


@contextmanager
def redis_with_its_data(stopped: Stopped) -> Iterator[None]:
    """Start a Redis where the other one was, from the same append-only file."""
    options = ["--bind", "127.0.0.1", "--port", stopped.port, "--dir", stopped.folder]
    policy = ["--appendonly", "yes", "--maxmemory-policy", "noeviction"]
    with subprocess.Popen(
        [machine.redis_server(), *options, *policy], stdout=subprocess.DEVNULL
    ) as started:
        try:
            yield
        finally:
            started.kill()


class Operator:
    """What somebody does who has the printed variables and the pages."""

    def __init__(self, variables: dict[str, str], folder: Path) -> None:
        self.bootstrap = variables["HAPAX_KAFKA__BOOTSTRAP_SERVERS"]
        self.prometheus = variables["PROMETHEUS_URL"]
        self.port = int(variables["HAPAX_TELEMETRY__PORT"])
        self.redis_port = str(urlsplit(variables["HAPAX_DEDUP__REDIS_URL"]).port)
        self._environment = {
            **os.environ,
            **variables,
            "HAPAX_APP": "orders-clean",
            "HAPAX_INPUT__TOPICS": "orders",
            "HAPAX_OUTPUT__TOPIC": "orders-clean",
            "HAPAX_TELEMETRY__LOG_FORMAT": "json",
        }
        self.worker = WorkerProcess(self._environment, "one", folder / "worker.log")

    def send(self, *ids: str) -> None:
        records = [
            Given(name.encode(), headers=(("message-id", name.encode()),), partition=0)
            for name in ids
        ]
        produce(self.bootstrap, "orders", *records)

    def await_outputs(self, *ids: str) -> None:
        await_(
            lambda: len(read_back(self.bootstrap, "orders-clean")) >= len(ids),
            PATIENCE_S,
            self.worker.text,
        )
        values = [one.value for one in read_back(self.bootstrap, "orders-clean")]
        assert values == [name.encode() for name in ids]

    def await_ready(self) -> None:
        await_(lambda: ready(self.port)[0], PATIENCE_S, self.worker.text)

    def await_alert(self, *, fires: bool) -> None:
        await_(
            lambda: (ALERT in firing(self.prometheus)) is fires,
            PATIENCE_S,
            lambda: f"{ALERT}: {not fires}\n{self.worker.text()}",
        )

    def hapax(self, *words: str) -> Any:
        answer = run_captured(
            [sys.executable, "-m", "hapax", *words, "--json"], env=self._environment
        )
        assert answer.stdout.startswith("{"), answer.stdout + answer.stderr
        return json.loads(answer.stdout)

    def doctor(self) -> dict[str, str]:
        """Return what the doctor finds failing, and how to mend it."""
        findings = self.hapax("doctor")["findings"]
        return {one["check"]: one["fix"] for one in findings if one["verdict"] == "FAIL"}

    def await_doctor_content(self) -> None:
        """Wait until the doctor finds nothing wrong with the claim store."""
        await_(lambda: "claim-store" not in self.doctor(), PATIENCE_S, self.worker.text)


@pytest.mark.real
def test_redis_stops_and_an_operator_learns_it_finds_out_why_and_ends_it_by_the_runbook(tmp_path):
    rules = impatient_rules(tmp_path)
    topics = ["--topic", "orders:1", "--topic", "orders-clean:1"]
    with sandbox_up("--monitoring", "--rules", str(rules), *topics) as (variables, command):
        operator = Operator(variables, tmp_path)
        try:
            outage(operator, command)
        finally:
            operator.worker.close()


def outage(operator: Operator, command: subprocess.Popen[str]) -> None:
    operator.worker.start()
    operator.await_ready()
    operator.send("one", "two")
    operator.await_outputs("one", "two")
    await_(
        lambda: (
            "HapaxWorkerAbsent" not in firing(operator.prometheus)
            and bool(query(operator.prometheus, "hapax_records_consumed_total > 1"))
        ),
        PATIENCE_S,
        lambda: f"not scraped: {firing(operator.prometheus)}",
    )
    assert ALERT not in firing(operator.prometheus)
    operator.await_doctor_content()

    redis = stop_redis(command, operator.redis_port)
    operator.send("two", "three")
    operator.await_alert(fires=True)

    # What the alert's page says: the probe, the doctor, and the way out of it.
    page = firing(operator.prometheus)[ALERT]["annotations"]["runbook_url"]
    assert page.endswith(f"docs/alerts.md#{ALERT.lower()}")
    section = re.search(rf"(?ms)^## {ALERT}\n(.*?)^## ", PAGE.read_text())
    assert section
    assert '`/readyz` says "the claim store does not answer"' in section[1]
    is_ready, reasons = ready(operator.port)
    assert not is_ready
    assert "the claim store does not answer" in reasons
    assert "$ hapax doctor" in section[1]
    assert "claim-store" in operator.doctor()
    assert "Bring Redis back, with its data" in section[1]
    with redis_with_its_data(redis):
        operator.await_ready()
        operator.await_alert(fires=False)
        operator.await_outputs("one", "two", "three")  # the second "two" is known: claims are back
        operator.await_doctor_content()
        every_panel_has_an_answer(operator)
        promtool_has_no_complaint(operator)
        assert operator.worker.terminate() == 0
        servers = psutil.Process(command.pid).children(recursive=True)
        assert {"java", "prometheus"} <= {one.name() for one in servers}
        command.terminate()
        assert command.wait(60) == 0
    assert psutil.wait_procs(servers, timeout=30)[1] == []


def every_panel_has_an_answer(operator: Operator) -> None:
    """Ask Prometheus what the dashboard asks; most of it a pipeline of one worker has."""
    answers = {title: query(operator.prometheus, expression) for title, expression in everywhere()}
    assert answers["Workers"][0]["value"][1] == "1"
    silent = {title for title, series in answers.items() if not series}
    assert not silent & {"Records in", "Records out", "Age of records at commit", "By outcome"}
    assert not silent & {"Lookups", "Answer of the claim store", "Unread records", "Memory"}


def promtool_has_no_complaint(operator: Operator) -> None:
    _status, exposition = ask(operator.port, "/metrics")
    checked = run_captured([machine.promtool(), "check", "metrics"], input=exposition)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
