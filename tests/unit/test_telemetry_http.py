"""The server: paths, probes, formats, and clients that misbehave."""

import hashlib
import json
import re
import socket
from email.message import Message
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from hapax.core.errors import ConfigurationError
from hapax.telemetry.health import Health
from hapax.telemetry.http import server as http
from hapax.telemetry.http.server import COMMANDS, Routes, TelemetryServer
from hapax.telemetry.metrics import Metrics

LOOPBACK = "127.0.0.1"
PAGE = ("/", "/page.css", "/page.js", "/elements.js", "/uPlot.min.css", "/uPlot.iife.min.js")
UPLOT_1_6_32 = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Intake:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.refusal = ""

    def pause(self) -> str:
        self.told.append("pause")
        return self.refusal

    def resume(self) -> None:
        self.told.append("resume")


class Service:
    def __init__(self) -> None:
        self.intake = Intake()
        self.metrics = Metrics()
        self.health = Health(30.0)
        self.failure: Exception | None = None
        self.server = TelemetryServer(
            LOOPBACK,
            0,
            registry=self.metrics.registry,
            health=self.health,
            status=self.status,
            intake=self.intake,
        )
        self.server.start()

    def status(self) -> dict[str, Any]:
        if self.failure:
            raise self.failure
        return {"state": "running"}

    def ask(self, path: str, method: str = "GET", **headers: str) -> Reply:
        connection = HTTPConnection(LOOPBACK, self.server.port, timeout=10)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        response = connection.getresponse()
        reply = Reply(response.status, dict(response.headers), response.read())
        connection.close()
        return reply

    def connect(self) -> socket.socket:
        client = socket.create_connection((LOOPBACK, self.server.port), timeout=10)
        client.sendall(b"GET /livez HTTP/1.1\r\n")  # and never the rest
        return client


@pytest.fixture
def service():
    service = Service()
    yield service
    service.server.close()


def test_metrics_are_prometheus_text_or_openmetrics_when_asked_zipped_and_picked(service):
    service.metrics.in_doubt_fences.of().inc()
    reply = service.ask("/metrics")
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("text/plain")
    samples = [
        sample
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    ]
    assert [s.value for s in samples if s.name == "hapax_in_doubt_fences_total"] == [1]
    assert [s for s in samples if s.name == "process_start_time_seconds"]
    reply = service.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert reply.headers["Content-Type"].startswith("application/openmetrics-text")
    parse: Any = openmetrics  # has no types, unlike the other parser
    assert "hapax_transactions" in {family.name for family in parse(reply.body.decode())}
    assert service.ask("/metrics", Accept_Encoding="gzip").headers["Content-Encoding"] == "gzip"
    picked = service.ask("/metrics?name[]=hapax_assigned_partitions").body.decode()
    assert re.findall(r"^[a-z]\w+", picked, re.MULTILINE) == ["hapax_assigned_partitions"]


def test_probes_answer_with_reasons(service):
    ready = service.ask("/readyz")
    assert (ready.status, ready.json["ok"]) == (503, False)
    assert "waiting for the first assignment of partitions" in ready.json["reasons"]
    assert service.ask("/startupz").status == 503
    assert service.ask("/livez").json == {"ok": True, "reasons": []}
    service.health.started = service.health.assigned = True
    assert service.ask("/readyz").status == 200
    assert service.ask("/startupz").status == 200
    service.health.loop_s = service.health.monotonic_s() - 31
    assert service.ask("/livez").status == 503


def test_a_call_without_an_answer_is_named_before_the_loop_counts_as_stalled(service):
    health, waits = service.health, ["commit_transaction", 60.0]
    health.started = health.assigned = True
    health.waiting = lambda: tuple(waits)
    health.loop_s = health.monotonic_s() - 2
    assert service.ask("/readyz").status == 200
    health.loop_s = health.monotonic_s() - 4
    (reason,) = service.ask("/readyz").json["reasons"]
    assert reason == "commit_transaction has had no answer for 60 s"
    waits[1] = 0.1  # the loop was elsewhere: in a slow record
    assert service.ask("/readyz").status == 200


def test_a_status_that_fails_is_an_answer_without_the_errors_text(service):
    assert service.ask("/status.json?x=1").json == {"state": "running"}
    service.failure = LookupError("secret")
    reply = service.ask("/status.json")
    assert (reply.status, reply.json) == (500, {"error": "LookupError"})
    assert service.ask("/livez").status == 200


def test_the_first_page_links_to_pages_that_exist(service):
    page = service.ask("/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    links = re.findall(r'(?:href|src)="(?!data:)([^"]+)"', page.body.decode())
    assert len(links) == 11
    # Relative: below the path of a proxy they lead to the same process.
    assert not [link for link in links if link.startswith(("/", "http:", "https:"))]
    assert {service.ask(f"/{link}").status for link in links} <= {200, 503}


@pytest.mark.parametrize("path", PAGE)
def test_files_of_the_page_come_once_and_are_compared_after_that(path, service):
    first = service.ask(path)
    assert (first.status, first.headers["Cache-Control"]) == (200, "no-cache")
    again = service.ask(path, If_None_Match=first.headers["ETag"])
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    assert "Content-Length" not in again.headers
    other = service.ask(path, If_None_Match='"another"')
    assert (other.status, other.body) == (200, first.body)
    assert service.ask("/status.json").headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", PAGE)
def test_nothing_runs_and_nothing_is_fetched_but_from_the_process(path, service):
    answer = service.ask(path)
    rules = dict(
        rule.split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split("; ")
    )
    assert rules == {
        "default-src": "'none'", "style-src": "'self'", "script-src": "'self'",
        "connect-src": "'self'", "img-src": "data:", "require-trusted-types-for": "'script'",
        "trusted-types": "'none'", "base-uri": "'none'", "form-action": "'none'",
        "frame-ancestors": "'none'",
    }  # fmt: skip
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    text = answer.body.decode()
    assert not re.findall(r"""url\(|@import|\son\w+="|\sstyle="|innerHTML\s*=[^=]|eval\(""", text)
    assert not re.findall(r"""["'(]https?://""", text)


def test_the_charts_are_drawn_by_uplot_as_npm_has_it():
    folder = Path(http.__file__).parent
    for name, digest in UPLOT_1_6_32.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    assert "MIT License" in (folder / "uPlot.LICENSE").read_text()
    assert "uPlot 1.6.32" in (folder / "page.html").read_text()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_only_get_and_head_are_allowed(method, service):
    reply = service.ask("/metrics", method)
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")


def test_head_is_get_without_a_body_and_what_does_not_exist_is_said_in_json(service):
    reply = service.ask("/readyz", "HEAD")
    assert (reply.status, reply.body) == (503, b"")
    assert int(reply.headers["Content-Length"]) > 0
    assert reply.headers["Server"] == "hapax", "not the version of Python"
    reply = service.ask("/admin/../etc/passwd")
    assert reply.status == 404
    assert "/metrics" in reply.json["paths"]


def test_nothing_is_written_for_requests(service, capfd):
    service.ask("/livez")
    service.ask("/nowhere")
    broken = service.connect()
    broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    broken.close()
    with socket.create_connection((LOOPBACK, service.server.port), timeout=10) as client:
        client.sendall(b"\xff\xfe\r\n\r\n")
        assert client.recv(1_000)
    assert service.ask("/livez").status == 200
    assert capfd.readouterr() == ("", "")


def test_a_request_that_is_too_long_gets_json(service):
    with socket.create_connection((LOOPBACK, service.server.port), timeout=10) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n")
        response = HTTPResponse(client)
        response.begin()
        assert (response.status, json.loads(response.read())) == (431, {"error": 431})


def test_many_slow_clients_do_not_keep_a_probe_out_and_one_that_lives_too_long_is_hung_up_on(
    service, monkeypatch
):
    slow = [service.connect() for _ in range(http.CLIENTS_MAX + 5)]
    assert service.ask("/livez").status == 200
    assert slow[0].recv(1) == b""  # the oldest was hung up on
    monkeypatch.setattr(http, "CLIENT_TIMEOUT_S", 0.0)
    assert slow[-1].recv(1) == b""
    for client in slow:
        client.close()


def test_a_port_that_is_taken_is_a_configuration_error_that_names_it(service):
    port = service.server.port
    with pytest.raises(ConfigurationError, match=f"HAPAX_TELEMETRY__PORT={port}.*free port"):
        TelemetryServer(LOOPBACK, port, registry=service.metrics.registry, health=service.health)


def test_a_server_that_never_started_can_be_closed_and_gives_its_port_back():
    registry, health, port = Metrics().registry, Health(1.0), 0
    for _ in range(2):
        server = TelemetryServer(LOOPBACK, port, registry=registry, health=health)
        port = server.port
        server.close()


@pytest.mark.parametrize(("address", "port"), [(LOOPBACK, 70_000), ("203.0.113.1", 0)])
def test_what_cannot_be_listened_on_is_a_configuration_error(address, port):
    with pytest.raises(ConfigurationError, match="cannot listen on"):
        TelemetryServer(address, port, registry=Metrics().registry, health=Health(1.0))


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_ipv6_addresses_are_listened_on_too():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    server = TelemetryServer("::1", 0, registry=Metrics().registry, health=Health(1.0))
    server.start()
    connection = HTTPConnection("::1", server.port, timeout=10)
    connection.request("GET", "/livez")
    assert connection.getresponse().status == 200
    connection.close()
    server.close()


def test_a_pause_and_a_resume_from_this_machine_are_passed_on_or_refused_with_the_reason(service):
    for path in ("/pause", "/resume"):
        reply = service.ask(path, "POST", Hapax_Command="1")
        assert (reply.status, reply.json) == (202, {"accepted": path})
    assert service.intake.told == ["pause", "resume"]
    service.intake.refusal = "Spark drives"
    reply = service.ask("/pause", "POST", Hapax_Command="1")
    assert (reply.status, reply.json) == (409, {"error": "Spark drives"})


def test_a_pause_without_our_header_as_of_a_browser_or_from_another_machine_is_refused(service):
    assert service.ask("/pause", "POST").status == 403
    assert service.ask("/pause", "POST", Hapax_Command="1", Host="evil.example").status == 403
    assert service.ask("/pause", "GET", Hapax_Command="1").status == 404
    assert service.ask("/livez", "POST", Hapax_Command="1").status == 405
    assert service.intake.told == []


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:9464", None, 202),
        ("[::1]:9464", "http://[::1]:9464", 202),
        ("LocalHost", None, 202),
        ("orders.internal:80", None, 202),
        (None, None, 403),
        ("evil.example:9464", None, 403),
        ("evil.example:9464", "http://evil.example:9464", 403),
        ("127.0.0.1.evil.example", None, 403),
        ("localhost:9464", "http://evil.example", 403),
        ("localhost:9464", "http://localhost:3000", 403),
        ("localhost:9464", "null", 403),
        ("[", None, 403),
    ],
)
@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_names_this_machine_and_comes_from_no_page_of_another(
    service, path, host, origin, status
):
    routes = Routes(
        service.metrics.registry, service.health, dict, service.intake, "orders.internal"
    )
    headers = Message()
    headers["Hapax-Command"] = "1"
    for name, value in (("Host", host), ("Origin", origin)):
        if value is not None:
            headers[name] = value
    answer, from_another = (routes.command(path, headers, local=local) for local in (True, False))
    assert answer is not None
    assert answer.status == status
    assert service.intake.told == [path[1:]] * (status == 202)
    assert from_another is not None
    assert from_another.status == 403
