"""What a worker answers on its telemetry port."""

import http.client
import itertools
import json
import os
import socket
from contextlib import closing, suppress
from typing import Any

_ports = itertools.count(os.getpid() * 89)


def free_port() -> int:
    """Return one below those that the system gives to clients, of which one would take it soon."""
    for number in _ports:
        with socket.socket() as place, suppress(OSError):
            place.bind(("127.0.0.1", port := 10_000 + number % 20_000))
            return port
    raise AssertionError("numbers do not end")


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
