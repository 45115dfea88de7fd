"""A price service on this machine, and what of the library httpx the pages use to reach it."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import threading
import types
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


class Prices:
    """Answers each POST with its body and a price; ``keys``: the idempotency keys that came."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        keys = self.keys

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                keys.append(self.headers["Idempotency-Key"])
                body = self.rfile.read(int(self.headers["Content-Length"])) + b" 250"
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words: object) -> None:
                """Nothing: the output is that of the tests."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Answer(NamedTuple):
    content: bytes

    def raise_for_status(self) -> None:
        """An answer that is none has raised already."""


class _AsyncClient:
    def __init__(self, *, base_url: str, timeout: float) -> None:
        self._base_url = base_url
        self._timeout_s = timeout
        self._open = False

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False

    async def post(self, path: str, *, content: bytes | None, headers: Mapping[str, str]) -> Any:
        assert self._open
        place = self._base_url.removeprefix("http://")

        def answer() -> bytes:
            connection = http.client.HTTPConnection(place, timeout=self._timeout_s)
            try:
                connection.request("POST", path, content, dict(headers))
                return connection.getresponse().read()
            finally:
                connection.close()

        return _Answer(await asyncio.to_thread(answer))


def httpx() -> types.ModuleType:
    """Return a module with the few names that the pages use, with the meaning that httpx gives."""
    module = types.ModuleType("httpx")
    vars(module)["AsyncClient"] = _AsyncClient
    return module
