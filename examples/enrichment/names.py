"""A service that knows names, to try the example on."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAMES = {"pica-pica": "magpie", "corvus-corax": "raven"}
PORT = 18080


class Names(BaseHTTPRequestHandler):
    """Answers ``/species`` with its name."""

    def do_GET(self) -> None:
        """Answer one request."""
        name = NAMES.get(self.path.strip("/"))
        self.send_response(404 if name is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps({"name": name}).encode())


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Names).serve_forever()
