"""A price service on this machine, for the examples of pages that ask one."""

import http.server
import threading
from typing import Self


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
