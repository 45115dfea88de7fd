"""What a worker answers on its telemetry port."""

import http.client
import json
import socket
from contextlib import closing
from typing import Any


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def ask(port: int, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def ready(port: int) -> tuple[bool, list[Any]]:
    try:
        status, body = ask(port, "/readyz")
    except OSError:
        return False, []
    return status == http.client.OK, json.loads(body)["reasons"]
