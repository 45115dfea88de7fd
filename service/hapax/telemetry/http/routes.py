"""From a path to an answer: metrics, probes, status. No sockets here."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable
from urllib.parse import urlsplit

from prometheus_client import make_wsgi_app

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from email.message import Message

    from prometheus_client import CollectorRegistry

    from hapax.telemetry.health import Health, ProbeResult

COMMANDS: Final = ("/pause", "/resume")
COMMAND_HEADER: Final = "Hapax-Command"


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


@runtime_checkable
class Sampled(Protocol):
    """A status that shows what changes over time."""

    def sample(self) -> None:
        """Take a sample when one is due; called several times a second."""


class Routes:
    """Answers requests; ``status`` returns what the page and ``/status.json`` show."""

    def __init__(
        self,
        registry: CollectorRegistry,
        health: Health,
        status: Callable[[], Mapping[str, Any]],
        intake: Intake | None = None,
    ) -> None:
        self._intake = intake
        self._exposition = make_wsgi_app(registry)
        self._status = status
        self._probes: dict[str, Callable[[], ProbeResult]] = {
            "/livez": health.livez,
            "/readyz": health.readyz,
            "/startupz": health.startupz,
        }

    def sample(self) -> None:
        """Let a status that shows rates take its samples."""
        status: object = self._status
        if isinstance(status, Sampled):
            status.sample()

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
            case "/":
                # Imported when the page is asked for: a restart need not wait for it.
                from hapax.telemetry.http.page import HEADERS, page

                html = page(self._status()).encode("utf-8", "replace")
                return Answer(HTTPStatus.OK, html, list(HEADERS))
            case _:
                paths = ["/", "/metrics", "/status.json", *self._probes]
                return json_answer(HTTPStatus.NOT_FOUND, {"error": "not found", "paths": paths})

    def command(self, target: str, headers: Message, *, local: bool) -> Answer | None:
        """Answer a POST of ``target``; None for one that is no command.

        ``local``: it comes from this machine. The header keeps browsers out, which send none of
        that name to another origin without asking first.
        """
        wanted = urlsplit(target).path
        if self._intake is None or wanted not in COMMANDS:
            return None
        if not local or COMMAND_HEADER not in headers:
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


def json_answer(status: HTTPStatus, value: Mapping[str, Any]) -> Answer:
    """Return ``value`` as a JSON answer."""
    body = json.dumps(value, default=str).encode() + b"\n"
    return Answer(status, body, [("Content-Type", "application/json")])
