"""As much of an API server as `helm template --dry-run=server` asks: what exists, and one object.

It shows what the chart makes of the state of a cluster (``lookup``). It checks nothing.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS: Final = {
    "v1": ["ConfigMap", "Service", "ServiceAccount"],
    "apps/v1": ["StatefulSet", "Deployment"],
    "policy/v1": ["PodDisruptionBudget"],
    "keda.sh/v1alpha1": ["ScaledObject", "TriggerAuthentication"],
}


@contextmanager
def api_server(objects: dict[str, Any]) -> Iterator[str]:
    """Serve ``objects``, path by path; yield the address."""
    answers = _discovery() | objects

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            body = json.dumps(found or {"kind": "Status", "code": 404, "reason": "NotFound"})
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _discovery() -> dict[str, Any]:
    groups = [version for version in _KINDS if "/" in version]
    return {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [
                {
                    "name": version.partition("/")[0],
                    "versions": [{"groupVersion": version, "version": version.partition("/")[2]}],
                }
                for version in groups
            ],
        },
    } | {
        f"/{'apis' if '/' in version else 'api'}/{version}": {
            "kind": "APIResourceList",
            "groupVersion": version,
            "resources": [
                {
                    "name": f"{kind.lower()}s",
                    "singularName": kind.lower(),
                    "namespaced": True,
                    "kind": kind,
                    "verbs": ["get"],
                }
                for kind in kinds
            ],
        }
        for version, kinds in _KINDS.items()
    }
