"""One port for watchers: metrics, probes, status. Standard library, daemon threads.

It is started before anything else, so that a probe gets an answer while the service still waits for
Kafka. Clients that are slow, broken or many cost a bounded number of threads and no log line.
``Routes`` leads from a path to an answer and knows no sockets.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from contextlib import suppress
from functools import cache, partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from socketserver import TCPServer
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, make_wsgi_app

from hapax.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from email.message import Message

    from hapax.telemetry.health import Health, ProbeResult

CLIENTS_MAX: Final = 32
"""Connections at once; one more closes the oldest, so that a probe always gets through."""

CLIENT_TIMEOUT_S: Final = 10.0
"""A connection's whole life. A scrape takes milliseconds."""

_CLOSE_POLL_S: Final = 0.1
"""How soon the server's thread sees that it should end: part of every drain."""

COMMANDS: Final = ("/pause", "/resume")
COMMAND_HEADER: Final = "Hapax-Command"

_FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/elements.js": ("elements.js", "text/javascript"),
    "/uPlot.min.css": ("uPlot.min.css", "text/css"),
    "/uPlot.iife.min.js": ("uPlot.iife.min.js", "text/javascript"),
}
"""The page: it reads ``/status.json``, so nothing of a status is ever written into HTML."""
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "require-trusted-types-for 'script'; trusted-types 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing runs but these scripts, no text becomes markup, and no other page frames this one."""


class Answer(NamedTuple):
    """What goes back to the client."""

    status: HTTPStatus
    body: bytes
    headers: list[tuple[str, str]]


class Intake(Protocol):
    """What an operator may pause."""

    def pause(self) -> str:
        """Ask to take nothing until ``resume``; return why that cannot be, empty when it can."""

    def resume(self) -> None:
        """Ask to take records again."""


class Routes:
    """Answers requests; ``status`` returns what the page and ``/status.json`` show."""

    def __init__(
        self,
        registry: CollectorRegistry,
        health: Health,
        status: Callable[[], Mapping[str, Any]],
        intake: Intake | None = None,
        address: str = "localhost",
    ) -> None:
        self._intake = intake
        self._address = address
        self._exposition = make_wsgi_app(registry)
        self._status = status
        self._probes: dict[str, Callable[[], ProbeResult]] = {
            "/livez": health.livez,
            "/readyz": health.readyz,
            "/startupz": health.startupz,
        }

    def answer(self, target: str, headers: Message) -> Answer:
        """Answer a GET of ``target``, which is a path with or without a query."""
        url = urlsplit(target)
        if url.path in self._probes:
            verdict = self._probes[url.path]()
            status = HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE
            return json_answer(status, {"ok": verdict.ok, "reasons": verdict.reasons})
        match url.path:
            case "/metrics":
                return self._metrics(url.query, headers)
            case "/status.json":
                return json_answer(HTTPStatus.OK, self._status())
            case path if path in _FILES:
                return _file(*_FILES[path], held=headers.get("If-None-Match", ""))
            case _:
                paths = ["/", "/metrics", "/status.json", *self._probes]
                return json_answer(HTTPStatus.NOT_FOUND, {"error": "not found", "paths": paths})

    def command(self, target: str, headers: Message, *, local: bool) -> Answer | None:
        """Answer a POST of ``target``; None for one that is no command.

        ``local``: it comes from this machine. The headers keep pages of a browser on it out, also
        those whose name was bound to its address after they were loaded.
        """
        wanted = urlsplit(target).path
        if self._intake is None or wanted not in COMMANDS:
            return None
        if not (local and COMMAND_HEADER in headers and _from_here(headers, self._address)):
            told = "only by hapax pause and hapax resume, in the process's own container"
            return json_answer(HTTPStatus.FORBIDDEN, {"error": told})
        refusal = ""
        if wanted == "/pause":
            refusal = self._intake.pause()
        else:
            self._intake.resume()
        if refusal:
            return json_answer(HTTPStatus.CONFLICT, {"error": refusal})
        return json_answer(HTTPStatus.ACCEPTED, {"accepted": wanted})

    def _metrics(self, query: str, headers: Message) -> Answer:
        """Let the library negotiate: text or OpenMetrics, gzip, ``name[]``."""
        kept: list[tuple[str, str]] = []
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/metrics",
            "QUERY_STRING": query,
            "HTTP_ACCEPT": headers.get("Accept", ""),
            "HTTP_ACCEPT_ENCODING": headers.get("Accept-Encoding", ""),
        }
        body = self._exposition(environ, lambda _status, pairs: kept.extend(pairs))
        return Answer(HTTPStatus.OK, b"".join(body), kept)


def _from_here(headers: Message, address: str) -> bool:
    """Whether Host is an IP address, localhost or ``address``, and Origin absent or the same."""
    host, origin = headers.get("Host", ""), headers.get("Origin")
    with suppress(ValueError):
        name = urlsplit(f"//{host}").hostname or ""
        if name not in {"localhost", address.lower()}:
            ip_address(name)
        return origin in {None, f"http://{host}", f"https://{host}"}
    return False


def _file(name: str, kind: str, *, held: str) -> Answer:
    """Return one file of the page; without its content where the client holds the same."""
    content, tag = _content(name)
    headers = [
        ("Content-Type", f"{kind}; charset=utf-8"),
        ("Content-Security-Policy", _POLICY),
        ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-cache"),
        ("ETag", tag),
    ]
    if tag in held:
        return Answer(HTTPStatus.NOT_MODIFIED, b"", headers)
    return Answer(HTTPStatus.OK, content, headers)


@cache
def _content(name: str) -> tuple[bytes, str]:
    content = Path(__file__).with_name(name).read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def json_answer(status: HTTPStatus, value: Mapping[str, Any]) -> Answer:
    body = json.dumps(value, default=str).encode() + b"\n"
    return Answer(status, body, [("Content-Type", "application/json")])


_NOT_ALLOWED: Final = json_answer(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "only GET and HEAD"})
_NOT_ALLOWED.headers.append(("Allow", "GET, HEAD"))


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_TIMEOUT_S
    error_content_type = "application/json"
    error_message_format = '{"error": %(code)d}'

    def do_GET(self) -> None:
        try:
            answer = cast("TelemetryServer", self.server).routes.answer(self.path, self.headers)
        except Exception as error:  # noqa: BLE001 - one page that fails must not end the thread
            reason = {"error": type(error).__name__}
            answer = json_answer(HTTPStatus.INTERNAL_SERVER_ERROR, reason)
        self._send(answer)

    def do_POST(self) -> None:
        # A client with the own address is on this machine: in its container, on Kubernetes.
        local = self.client_address[0] == self.connection.getsockname()[0]
        routes = cast("TelemetryServer", self.server).routes
        self._send(routes.command(self.path, self.headers, local=local) or _NOT_ALLOWED)

    do_HEAD = do_GET  # noqa: N815 - named by the base class

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Refuse every other method: the base class looks for ``do_<METHOD>``."""
        if name.startswith("do_"):
            return partial(self._send, _NOT_ALLOWED)
        raise AttributeError(name)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(answer.body)))
        if not any(name == "Cache-Control" for name, _ in answer.headers):
            self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        return "hapax"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the base class
        """Say nothing: a probe every few seconds is no event."""


class TelemetryServer(ThreadingHTTPServer):
    """Listens from construction on, answers from ``start`` on; bounds its clients and their lives.

    ``port`` 0 takes any free one; the attribute ``port`` has the real one. Raises
    ConfigurationError when the port or the address cannot be had. ``status`` is called by
    ``/status.json``, in a thread of the server, and returns what JSON can hold; ``sample`` several
    times a second, for what changes over time. ``intake`` is what a POST to ``/pause`` and
    ``/resume`` moves, from this machine alone.
    """

    request_queue_size = 128

    def __init__(
        self,
        address: str,
        port: int,
        *,
        registry: CollectorRegistry,
        health: Health,
        status: Callable[[], Mapping[str, Any]] = dict,
        sample: Callable[[], object] = bool,
        intake: Intake | None = None,
    ) -> None:
        self.routes = Routes(registry, health, status, intake, address)
        self._sample = sample
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._clients: dict[socket.socket, float] = {}
        self._lock = Lock()
        try:
            super().__init__((address, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(_refusal(address, port, error)) from error
        self.port: int = self.server_address[1]
        self._thread = Thread(
            target=self.serve_forever, args=(_CLOSE_POLL_S,), name="telemetry", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Bind without the base class's reverse look-up: where DNS is down it takes seconds."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "hapax", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._clients) >= CLIENTS_MAX:
                _hang_up(self._clients, next(iter(self._clients)))
            self._clients[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Hang up on clients that live by a byte now and then; sample. Called each poll."""
        born_s = time.monotonic() - CLIENT_TIMEOUT_S
        with self._lock:
            for client in [client for client, since_s in self._clients.items() if since_s < born_s]:
                _hang_up(self._clients, client)
        with suppress(Exception):  # a sample that fails must not end the thread
            self._sample()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that break off are no event of the service."""


def _hang_up(clients: dict[socket.socket, float], client: socket.socket) -> None:
    del clients[client]
    with suppress(OSError):  # it may just have gone by itself
        client.shutdown(socket.SHUT_RDWR)


def _refusal(address: str, port: int, error: OSError | OverflowError) -> str:
    reason = getattr(error, "strerror", None) or error
    return (
        f"HAPAX_TELEMETRY__PORT={port}: cannot listen on {address}:{port} ({reason}); "
        "choose a free port, or 0 for any"
    )
