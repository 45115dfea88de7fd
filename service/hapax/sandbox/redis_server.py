"""Redis, with an append-only file: what it has acknowledged survives a kill."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import redis

from hapax.sandbox import machine
from hapax.sandbox.machine import SandboxError
from hapax.sandbox.processes import LOOPBACK, ManagedProcess, Ports

if TYPE_CHECKING:
    from pathlib import Path

    from hapax.sandbox.guard import Guard
    from hapax.sandbox.watchdog import ChildWatchdog

_ANSWER_TIMEOUT_S = 1.0


class Redis(ManagedProcess):
    """One redis-server. Data: ``folder``, kept over restarts.

    tls_port  the same data over TLS; a certificate of one's own may be shown and need not. None
              unless the sandbox is guarded. A client of the plain port has all rights.
    """

    def __init__(
        self,
        folder: Path,
        ports: Ports,
        watchdog: ChildWatchdog,
        guard: Guard | None = None,
        port: int = 0,
    ) -> None:
        self.port = ports.reserve(port)
        self.tls_port = ports.reserve() if guard else None
        self._guard = guard
        self.url = f"redis://{LOOPBACK}:{self.port}/0"
        super().__init__("Redis", self._arguments(folder), folder / "redis.log", watchdog)

    def _arguments(self, folder: Path) -> list[str | Path]:
        return [
            machine.redis_server(tls=self._guard is not None),
            *("--bind", LOOPBACK, "--port", str(self.port), "--dir", folder),
            *("--maxmemory-policy", "noeviction"),  # a claim must never be thrown out
            # Each write reaches the file before its answer, and the file outlives a killed
            # process. With "everysec" Redis keeps writes back while a sync is running but
            # answers: on a busy disk a kill lost two acknowledged writes in 23 tries of 25.
            *("--appendonly", "yes", "--appendfsync", "no", "--save", ""),
            *self._tls_arguments(),
        ]

    def _tls_arguments(self) -> list[str | Path]:
        if self._guard is None:
            return []
        server = self._guard.server
        return [
            *("--tls-port", str(self.tls_port), "--tls-auth-clients", "optional"),
            *("--tls-cert-file", server.certificate_file, "--tls-key-file", server.key_file),
            *("--tls-ca-cert-file", self._guard.authority.ca_file),
        ]

    def tls_url(self, user: str, password: str) -> str:
        if self.tls_port is None:
            raise SandboxError("Redis has no TLS in this sandbox. Use Sandbox(guarded=Guard)")
        return f"rediss://{quote(user)}:{quote(password, safe='')}@{LOOPBACK}:{self.tls_port}/0"

    def allow(self, line: str, password: str) -> None:
        """Make the user of an ACL line, in which ``PASSWORD`` stands for the password."""
        _user, name, *rules = (word.replace("PASSWORD", password) for word in line.split())
        with self._client() as client:
            client.execute_command("ACL", "SETUSER", name, *rules)

    def flush(self) -> None:
        with self._client() as client:
            client.flushall()

    def _answers(self) -> bool:
        try:  # while it loads its file Redis refuses to answer
            with self._client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _client(self) -> redis.Redis:
        return redis.Redis(
            host=LOOPBACK,
            port=self.port,
            socket_timeout=_ANSWER_TIMEOUT_S,
            socket_connect_timeout=_ANSWER_TIMEOUT_S,
        )
