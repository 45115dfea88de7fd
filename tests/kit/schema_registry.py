"""A schema registry that does what a test wants: answers, fails in a chosen way, dies, is slow.

It has the part of Confluent's API that is asked here, with ids and GUIDs.
"""

import json
import ssl
import threading
import uuid
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from hapax.sandbox.processes import LOOPBACK


class _Server(ThreadingHTTPServer):
    """Says nothing about clients that go away, or that its certificate does not please."""

    def handle_error(self, *_who: object) -> None:
        pass


class RegistryDouble:
    """One registry on a port of its own, also while it is dead.

    status   answered to everything; None: what is asked for
    location of each answer, before its path
    hidden   ids that it does not know yet
    denied   a part of a path → status and error code of the answer
    asked    paths that were asked, in order; logins: with which authorization
    hang     take questions and answer none, until it is killed
    slow_s   each answer takes so long

    ``tls``: speak it, as this context says.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.schemas: list[dict[str, Any]] = []
        self.status: int | None = None
        self.body = b"{}"
        self.location = ""
        self.hidden: set[int] = set()
        self.denied: dict[str, tuple[int, int]] = {}
        self.asked: list[str] = []
        self.logins: list[str] = []
        self.compatibility = "BACKWARD"
        self.hang = False
        self.slow_s = 0.0
        self._thaw = threading.Event()
        self._server = self._bound(0)
        self.port = self._server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://{LOOPBACK}:{self.port}"
        self._serve()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def add(self, subject: str, schema: Any, kind: str = "AVRO", **more: Any) -> int:
        """Register a schema; return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        number = len(self.schemas) + 1
        version = 1 + sum(one["subject"] == subject for one in self.schemas)
        entry = {"subject": subject, "id": number, "version": version, "schemaType": kind}
        self.schemas.append({**entry, "schema": text, "guid": str(uuid.uuid4()), **more})
        return number

    def guid(self, number: int) -> str:
        found: str = self.schemas[number - 1]["guid"]
        return found

    def kill(self) -> None:
        with suppress(OSError):
            self._thaw.set()
            self._server.shutdown()
            self._server.server_close()

    def start(self) -> None:
        self._thaw.clear()
        self.hang = False
        self._server = self._bound(self.port)
        self._serve()

    def _bound(self, port: int) -> ThreadingHTTPServer:
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer({})

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                self._answer(json.loads(self.rfile.read(size)))

            def _answer(self, body: dict[str, Any]) -> None:
                double.asked.append(self.path)
                if login := self.headers.get("Authorization"):
                    double.logins.append(login)
                if double.hang:
                    double._thaw.wait()
                elif double.slow_s:
                    double._thaw.wait(double.slow_s)
                if double.status is not None:
                    code, answer = double.status, double.body
                else:
                    code, found = double.found(self.path, body)
                    answer = json.dumps(found).encode()
                with suppress(OSError):
                    self.send_response(code)
                    self.send_header("Location", double.location + self.path)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *_words: object) -> None:
                pass

        _Server.allow_reuse_address = True
        server = _Server((LOOPBACK, port), Handler)
        server.daemon_threads = True
        if self._tls is not None:
            server.socket = self._tls.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        return server

    def _serve(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def found(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and answer; a descriptor in place of a text, where that is asked for."""
        for part in unquote(urlsplit(path).path).split("/"):
            if part in self.denied:
                code, error = self.denied[part]
                return code, {"error_code": error, "message": "User:me may not read this"}
        code, answer = self._found(path, body)
        if "format=serialized" in path and "serialized" in answer:
            answer = {**answer, "schema": answer["serialized"]}
        return code, answer

    def _found(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        match unquote(urlsplit(path).path).strip("/").split("/"):
            case ["schemas", "ids", number]:
                wanted = [one for one in self.schemas if one["id"] == int(number)]
                return self._last([one for one in wanted if one["id"] not in self.hidden], 40403)
            case ["schemas", "guids", guid]:
                return self._last([one for one in self.schemas if one["guid"] == guid], 40403)
            case ["config" | "subjects"] | ["config", _]:
                return 200, {"compatibilityLevel": self.compatibility}
            case ["subjects", subject, *rest]:
                return self._of_subject(subject, rest, body)
        return 404, {}

    def _of_subject(
        self, subject: str, rest: list[str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        here = [one for one in self.schemas if one["subject"] == subject]
        match rest:
            case ["versions"]:
                kind, text = body.get("schemaType", "AVRO"), body["schema"]
                self.add(subject, text, kind, serialized=text)
                return 200, self.schemas[-1]
            case ["versions", "latest"]:
                return self._last(here, 40401)
            case ["versions", version]:
                return self._last([one for one in here if one["version"] == int(version)], 40402)
        return self._last([one for one in here if one["schema"] == body["schema"]], 40403)

    def _last(self, found: list[dict[str, Any]], code: int) -> tuple[int, dict[str, Any]]:
        if not found:
            return 404, {"error_code": code, "message": "not found"}
        return 200, found[-1]
